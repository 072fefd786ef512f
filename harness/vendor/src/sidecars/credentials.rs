//! What the pod of a program would have: the token of its service account, refreshed, where `rest.InClusterConfig` of
//! client-go finds it, the variables of the API server's service, and a kubeconfig with the same token.
//!
//! ```text
//! /cc/run/<name>  ──private mount──>  /run of the program, with the host's other entries
//!   └─ secrets/kubernetes.io/serviceaccount/{token,ca.crt,namespace}
//! ```

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use claimcheck_apiserver::kubeconfig;
use claimcheck_files::replace_private;
use claimcheck_model::Backoff;
use claimcheck_substrate::{ProcessSpec, RunDirectory, STATE_DIR};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

use super::account::Account;

/// Where a pod has its service account, below `/var/run/secrets` (pkg/kubelet and rest.InClusterConfig of client-go).
const SERVICE_ACCOUNT: &str = "kubernetes.io/serviceaccount";
/// The lifetime of a pod's token in seconds, and how much of it passes before it is replaced
/// (`WarnOnlyBoundTokenExpirationSeconds` of pkg/serviceaccount/claims.go, `requiresRefresh` of
/// pkg/kubelet/token/token_manager.go).
pub const LIFETIME: i64 = 3607;
const REFRESHED_AFTER: f64 = 0.8;
/// The age at which every token is replaced.
const OLDEST: Duration = Duration::from_secs(24 * 3600);
/// The delay of a request that is repeated.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };

/// No credentials can be given to a program.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// No token is issued.
    #[error("no token can be requested for ServiceAccount {account} of {program}")]
    Token {
        /// The program.
        program: String,
        /// The account.
        account: String,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The response has no token.
    #[error("the API server returned no token for ServiceAccount {account} of {program}")]
    NoToken {
        /// The program.
        program: String,
        /// The account.
        account: String,
    },
    /// A file cannot be written.
    #[error("cannot write {} for {program}", path.display())]
    Write {
        /// The program.
        program: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The directory of the host is missing.
    #[error("cannot prepare /var/run/secrets for {program}: the machine requires a directory /var/run")]
    Run {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The API server that issues tokens.
#[derive(Clone)]
pub struct Issuer {
    /// A client with all permissions.
    pub client: Client,
    /// Its address.
    pub url: String,
    /// The CA of its certificate, PEM.
    pub ca: String,
}

/// A token to keep in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile {
    /// The path of the file.
    pub path: PathBuf,
    /// Of this account.
    pub account: Account,
    /// None for the API server.
    pub audience: Option<String>,
    /// Its lifetime in seconds.
    pub lifetime: i64,
}

/// A task that keeps tokens valid. Dropping it ends the task.
#[derive(Debug)]
pub struct Refresh(JoinHandle<()>);

impl Drop for Refresh {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The credentials of a program.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Where the program finds them by default.
    pub run_directory: RunDirectory,
    /// The kubeconfig with the same token.
    pub kubeconfig: PathBuf,
    /// The namespace of the account.
    pub namespace: String,
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
    _refresh: Arc<Refresh>,
}

impl Credentials {
    /// Issues them to the program with this name.
    ///
    /// # Errors
    /// [`CredentialsError`], with the program.
    pub async fn issue(issuer: &Issuer, program: &str, account: &Account) -> Result<Self, CredentialsError> {
        let folder = Path::new(STATE_DIR).join("run").join(program);
        let prepared = RunDirectory::prepare(&folder);
        let run_directory =
            prepared.map_err(|source| CredentialsError::Run { program: program.to_owned(), source })?;
        let directory = RunDirectory::secrets(&folder).join(SERVICE_ACCOUNT);
        let writing = |path: &Path| {
            let (program, path) = (program.to_owned(), path.to_owned());
            move |source| CredentialsError::Write { program, path, source }
        };
        fs::create_dir_all(&directory).map_err(writing(&directory))?;
        for (name, text) in [("ca.crt", &issuer.ca), ("namespace", &account.namespace)] {
            let path = directory.join(name);
            kubeconfig::write(&path, text).map_err(writing(&path))?;
        }
        let token = TokenFile {
            path: directory.join("token"),
            account: account.clone(),
            audience: None,
            lifetime: LIFETIME,
        };
        let refresh = keep(issuer, program, token.clone()).await?;
        let path = Path::new(STATE_DIR).join(format!("kubeconfig-{program}"));
        let text = kubeconfig::render_token_file(&issuer.url, &issuer.ca, &token.path);
        kubeconfig::write(&path, &text).map_err(writing(&path))?;
        Ok(Self {
            run_directory,
            kubeconfig: path,
            namespace: account.namespace.clone(),
            folder,
            variables: service(&issuer.url),
            _refresh: Arc::new(refresh),
        })
    }

    /// Shows a folder at this path below `/var/run/secrets`.
    ///
    /// # Errors
    /// The link cannot be created.
    pub fn link(&self, at: &str, to: &Path) -> Result<(), CredentialsError> {
        let link = RunDirectory::secrets(&self.folder).join(at);
        let created = link.parent().map_or(Ok(()), fs::create_dir_all);
        created.and_then(|()| symlink(to, &link)).map_err(|source| {
            let program = self.folder.file_name().unwrap_or_default().display().to_string();
            CredentialsError::Write { program, path: link, source }
        })
    }

    /// Gives them to a process.
    pub fn give(&self, spec: &mut ProcessSpec) {
        spec.run_directory = Some(self.run_directory.clone());
        let variables =
            self.variables.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
        spec.env.extend(variables);
    }
}

/// The variables of the service `kubernetes` (`FromServices` in pkg/kubelet/envvars).
fn service(url: &str) -> Vec<(&'static str, String)> {
    let address = url.strip_prefix("https://").unwrap_or(url);
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "443"));
    let host = host.trim_matches(['[', ']']);
    vec![
        ("KUBERNETES_SERVICE_HOST", host.to_owned()),
        ("KUBERNETES_SERVICE_PORT", port.to_owned()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port.to_owned()),
    ]
}

/// Writes a token to its file, and replaces it before it expires.
///
/// # Errors
/// The first one cannot be requested or written.
pub async fn keep(issuer: &Issuer, program: &str, file: TokenFile) -> Result<Refresh, CredentialsError> {
    let (client, program) = (issuer.client.clone(), program.to_owned());
    write_token(&client, &program, &file).await?;
    Ok(Refresh(tokio::spawn(async move {
        let lifetime = Duration::from_secs(file.lifetime.unsigned_abs());
        let mut failures = 0;
        loop {
            let delay = match failures {
                0 => refresh_after(lifetime),
                failures => BACKOFF.delay(failures),
            };
            tokio::time::sleep(delay).await;
            match write_token(&client, &program, &file).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(program, %error, "cannot refresh a token");
                }
            }
        }
    })))
}

/// The age at which a token is replaced.
fn refresh_after(lifetime: Duration) -> Duration {
    lifetime.mul_f64(REFRESHED_AFTER).min(OLDEST)
}

async fn write_token(client: &Client, program: &str, file: &TokenFile) -> Result<(), CredentialsError> {
    let TokenFile { path, account, audience, lifetime } = file;
    let (name, title) = (program.to_owned(), account.to_string());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
    let audiences: Vec<&String> = audience.iter().collect();
    let request: TokenRequest = serde_json::from_value(json!({
        "metadata": {},
        "spec": { "audiences": audiences, "expirationSeconds": lifetime },
    }))
    .expect("a TokenRequest");
    let issued = accounts.create_token_request(&account.name, &PostParams::default(), &request).await;
    let issued = match issued {
        Ok(issued) => issued.status.and_then(|status| status.token).unwrap_or_default(),
        Err(source) => return Err(CredentialsError::Token { program: name, account: title, source }),
    };
    if issued.is_empty() {
        return Err(CredentialsError::NoToken { program: name, account: title });
    }
    replace_private(path, issued.as_bytes()).map_err(|source| CredentialsError::Write {
        program: name,
        path: path.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_replaced_when_the_kubelet_replaces_them() {
        let seconds = |lifetime| refresh_after(Duration::from_secs(lifetime)).as_secs();
        assert_eq!([3607, 600, 7 * 24 * 3600].map(seconds), [2885, 480, 24 * 3600]);
    }

    #[test]
    fn the_variables_are_those_of_a_service() {
        for (url, host, port) in [
            ("https://127.0.0.1:40123", "127.0.0.1", "40123"),
            ("https://[::1]:6443", "::1", "6443"),
            ("https://example.com", "example.com", "443"),
        ] {
            let expected = [("HOST", host), ("PORT", port), ("PORT_HTTPS", port)];
            let found = service(url);
            let found: Vec<_> = found
                .iter()
                .map(|(name, value)| (name.trim_start_matches("KUBERNETES_SERVICE_"), value.as_str()))
                .collect();
            assert_eq!(found, expected, "{url}");
        }
    }
}
