//! Start and end of the server: the listener, TLS, one task per connection.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{Api, Issued};
use crate::audit::{Audit, RequestCount};
use crate::faults::Faults;
use crate::store::Store;
use crate::tls::{Identity, TlsError};
use crate::tokens::{SignError, Signer};
use crate::{gc, kubeconfig};

/// What a server is started with; `Config::default()` is an ephemeral port on loopback.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The version reported by `/version`, e.g. `v1.36.2`.
    pub git_version: String,
    /// Changes kept per resource for watches that start in the past; older ones are answered with 410.
    pub history: usize,
    /// How long an event is kept after it was last written.
    pub event_ttl: Duration,
    /// Where to append one JSON line per request, if anywhere.
    pub audit_log: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            git_version: "v1.36.2".to_owned(),
            // Some seconds of a busy cluster, at ten kilobytes a change; who is behind lists again.
            history: 1024,
            event_ttl: Duration::from_secs(3600),
            audit_log: None,
        }
    }
}

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process listens on the address.
    #[error(
        "address {address} is in use: stop what listens there, or choose another port (0 takes a free one)"
    )]
    Occupied {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("could not listen on {address}: choose an address of this machine, and a port above 1023")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The certificates could not be made.
    #[error("could not prepare TLS for the API server")]
    Tls(#[from] TlsError),
    /// The key of service account tokens could not be made.
    #[error("could not make the key that signs tokens of service accounts")]
    Signer(#[from] SignError),
    /// The audit log cannot be written.
    #[error("could not open the audit log {path}: choose a path in an existing, writable directory")]
    Audit {
        /// The path that was asked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A running API server; it ends when it is dropped, in good order with [`Server::shutdown`].
pub struct Server {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    api: Arc<Api>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Starts a server and returns once it accepts connections.
///
/// # Errors
/// [`StartError`] says which address or file is at fault and what to do about it.
pub async fn start(config: Config) -> Result<Server, StartError> {
    let listener = listen(config.listen).await?;
    let address =
        listener.local_addr().map_err(|source| StartError::Listen { address: config.listen, source })?;
    let identity = Identity::generate(address.ip())?;
    let audit = Audit::open(config.audit_log.as_deref())
        .map_err(|source| StartError::Audit { path: config.audit_log.clone().unwrap_or_default(), source })?;
    let token = uuid::Uuid::new_v4().simple().to_string() + &uuid::Uuid::new_v4().simple().to_string();
    let (store, notices) = Store::new(config.history);
    let stop = CancellationToken::new();
    let ca_pem = identity.ca_pem;
    let collector = gc::run(store.clone(), ca_pem.clone(), config.event_ttl, notices);
    let issued =
        Issued { address, token: token.clone(), ca_pem: ca_pem.clone(), signer: Signer::generate()? };
    let api = Arc::new(Api::new(store, issued, config.git_version, audit, stop.clone()));
    let tasks = TaskTracker::new();
    tasks.spawn(until_stopped(stop.clone(), collector));
    let acceptor = TlsAcceptor::from(identity.config);
    tasks.spawn(until_stopped(
        stop.clone(),
        accept(listener, acceptor, api.clone(), stop.clone(), tasks.clone()),
    ));
    tracing::info!(%address, "API server ready");
    Ok(Server { address, ca_pem, token, api, stop, tasks })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::Occupied { address, source },
        _ => StartError::Listen { address, source },
    })
}

async fn until_stopped(stop: CancellationToken, work: impl Future<Output = ()>) {
    stop.run_until_cancelled(work).await;
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    api: Arc<Api>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, acceptor.clone(), api.clone());
                tasks.spawn(until_stopped(stop.clone(), connection));
            }
            Err(error) => {
                // Out of file descriptors is the only lasting cause: give connections time to close.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, api: Arc<Api>) {
    // Answers are small and wait for nobody: Nagle's algorithm would only add delay.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not disable Nagle's algorithm");
    }
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "TLS handshake failed"),
    };
    let service = service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // A client keeps one stream per watch: hyper's default of 200 streams would starve a big one.
    builder.http2().max_concurrent_streams(10_000).initial_connection_window_size(16 << 20);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(error, "connection ended");
    }
}

impl Server {
    /// The base URL, e.g. `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The CA that signed the server's certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The bearer token that may do everything.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A kubeconfig (YAML) with CA and token inlined.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::render(&self.url(), &self.ca_pem, &self.token)
    }

    /// Writes the kubeconfig to `path` with mode 0600.
    ///
    /// # Errors
    /// Whatever the file system says about `path`.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        kubeconfig::write(path, &self.kubeconfig())
    }

    /// How many requests came so far, by client, verb and resource, in that order.
    pub fn requests(&self) -> Vec<RequestCount> {
        self.api.requests()
    }

    /// What shall go wrong with requests, from now on.
    pub fn faults(&self) -> &Faults {
        &self.api.faults
    }

    /// Ends all watches and connections and waits until they are gone.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
