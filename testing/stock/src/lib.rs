//! An upstream kube-apiserver with etcd, as controller-runtime's envtest starts them: certificates, tokens and data are
//! created for the run.
//!
//! `--cluster envtest` starts the programs in the namespaces of its run; tests start them by [`Programs`].

mod arguments;
mod programs;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
};

use claimcheck_apiserver::{Certificates, TlsError, kubeconfig};

pub use arguments::{Options, WITHOUT_FAIRNESS, WITHOUT_SERVICE_ACCOUNTS};
pub use programs::Programs;

/// Something cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A certificate cannot be made.
    #[error(transparent)]
    Certificates(#[from] TlsError),
    /// A file cannot be written, no port is free, or a program cannot be started.
    #[error("cannot prepare {what}")]
    File {
        /// The file, port or program.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn preparing(what: impl ToString) -> impl FnOnce(io::Error) -> PrepareError {
    let what = what.to_string();
    move |source| PrepareError::File { what, source }
}

/// What the programs are started with.
pub struct Prepared {
    /// Where the API server listens.
    pub address: SocketAddr,
    /// The CA of its certificate, PEM, which the folder has as `ca.crt`, too.
    pub ca: String,
    /// The arguments of etcd.
    pub etcd: Vec<String>,
    /// The arguments of kube-apiserver.
    pub apiserver: Vec<String>,
}

impl Prepared {
    /// Creates the folder, with certificates and the table of tokens.
    ///
    /// # Errors
    /// A file cannot be written, or no port is free.
    pub fn new(folder: &Path, options: &Options) -> Result<Self, PrepareError> {
        fs::create_dir_all(folder).map_err(preparing(folder.display()))?;
        let (store, address) = (free_port(0)?, free_port(options.port)?);
        let certificates = Certificates::generate(address.ip())?;
        for (name, text) in [
            ("tls.crt", &certificates.certificate),
            ("tls.key", &certificates.key),
            ("ca.crt", &certificates.ca),
            ("kubelet-client.crt", &certificates.client_certificate),
            ("kubelet-client.key", &certificates.client_key),
            ("tokens.csv", &options.tokens),
        ] {
            let file = folder.join(name);
            kubeconfig::write(&file, text).map_err(preparing(file.display()))?;
        }
        let etcd = arguments::etcd(folder, store);
        let apiserver = arguments::apiserver(folder, address, store, options);
        Ok(Self { address, ca: certificates.ca, etcd, apiserver })
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The kubeconfig of the user with this token.
    pub fn kubeconfig(&self, token: &str) -> String {
        kubeconfig::render(&self.url(), &self.ca, token)
    }
}

/// A free loopback port. Another process may bind it before the program does; then the program
/// logs that.
fn free_port(requested: u16) -> Result<SocketAddr, PrepareError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, requested));
    let port = TcpListener::bind(address).and_then(|listener| listener.local_addr());
    port.map_err(preparing(format!("a port at {address}")))
}
