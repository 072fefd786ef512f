//! The kubeconfig of a run: one cluster, one user, everything inlined.

use std::io;
use std::path::Path;

use claimcheck_files::write_private;

use crate::encoding::base64;

/// The YAML text of a kubeconfig for `url`, trusting `ca_pem` and presenting `token`.
pub fn render(url: &str, ca_pem: &str, token: &str) -> String {
    render_user(url, ca_pem, &format!("token: {token}"))
}

/// The YAML text of a kubeconfig for `url`, trusting `ca_pem` and presenting a client certificate (PEM).
pub fn render_certificate(url: &str, ca_pem: &str, certificate: &str, key: &str) -> String {
    let (certificate, key) = (base64(certificate.as_bytes()), base64(key.as_bytes()));
    let user = format!("client-certificate-data: {certificate}\n\x20   client-key-data: {key}");
    render_user(url, ca_pem, &user)
}

/// The YAML text of a kubeconfig for `url`, trusting `ca_pem`, without credentials.
pub fn render_anonymous(url: &str, ca_pem: &str) -> String {
    render_user(url, ca_pem, "{}")
}

/// The YAML text of a kubeconfig for `url`, trusting `ca_pem`, with the token that `path` contains at the time of a
/// request.
pub fn render_token_file(url: &str, ca_pem: &str, path: &Path) -> String {
    render_user(url, ca_pem, &format!("tokenFile: {}", path.display()))
}

/// The text with the fields of the user.
fn render_user(url: &str, ca_pem: &str, user: &str) -> String {
    let ca = base64(ca_pem.as_bytes());
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: claimcheck\n\
         \x20 cluster:\n\
         \x20   server: {url}\n\
         \x20   certificate-authority-data: {ca}\n\
         users:\n\
         - name: claimcheck\n\
         \x20 user:\n\
         \x20   {user}\n\
         contexts:\n\
         - name: claimcheck\n\
         \x20 context:\n\
         \x20   cluster: claimcheck\n\
         \x20   user: claimcheck\n\
         \x20   namespace: default\n\
         current-context: claimcheck\n"
    )
}

/// Writes `text` to `path`, readable by its owner only: it holds the token.
///
/// # Errors
/// Any error of the file system.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    write_private(path, text.as_bytes())
}
