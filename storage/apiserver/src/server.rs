//! Start and end of the server: the listener, TLS, one task per connection.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use claimcheck_model::{Denial, DeniedObject, KUBERNETES_VERSION, Unserved};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{Api, Issued};
use crate::audit::{Audit, RequestCount};
use crate::auth::{IssueError, Peer};
use crate::faults::Faults;
use crate::interference::Interference;
use crate::store::Store;
use crate::tls::{Authority, ClientCertificate, Identity, TlsError};
use crate::tokens::{SignError, Signer};
use crate::{gc, kubeconfig};

/// The configuration of a server; `Config::default()` is an ephemeral port on loopback.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The version reported by `/version`, e.g. `v1.36.2`.
    pub git_version: String,
    /// Changes kept per resource for watches that start in the past; older versions are answered with 410.
    pub history: usize,
    /// TTL of an event since its last write.
    pub event_ttl: Duration,
    /// File to which one JSON line per request is appended, if any.
    pub audit_log: Option<PathBuf>,
    /// What seeds defects of components, if any.
    pub interference: Option<Arc<dyn Interference>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            git_version: KUBERNETES_VERSION.to_owned(),
            // Some seconds of a busy cluster, at ten kilobytes a change; who is behind lists again.
            history: 1024,
            event_ttl: Duration::from_secs(3600),
            audit_log: None,
            interference: None,
        }
    }
}

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process listens on the address.
    #[error("address {address} is in use: stop its process, or choose another port (0 takes a free one)")]
    Occupied {
        /// The requested address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("could not listen on {address}: choose an address of this machine, and a port above 1023")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The certificates could not be generated.
    #[error("could not prepare TLS for the API server")]
    Tls(#[from] TlsError),
    /// The key of service account tokens could not be generated.
    #[error("could not generate the key that signs tokens of service accounts")]
    Signer(#[from] SignError),
    /// The audit log cannot be written.
    #[error("could not open the audit log {path}: choose a path in an existing, writable directory")]
    Audit {
        /// The requested path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A running API server; it ends when it is dropped, or gracefully with [`Server::shutdown`].
pub struct Server {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    node_token: String,
    authority: Authority,
    api: Arc<Api>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Starts a server and returns once it accepts connections.
///
/// # Errors
/// [`StartError`], with the address or file, and the remedy.
pub async fn start(config: Config) -> Result<Server, StartError> {
    let listener = listen(config.listen).await?;
    let address =
        listener.local_addr().map_err(|source| StartError::Listen { address: config.listen, source })?;
    let identity = Identity::generate(address.ip())?;
    let audit = Audit::open(config.audit_log.as_deref())
        .map_err(|source| StartError::Audit { path: config.audit_log.clone().unwrap_or_default(), source })?;
    let [token, node_token] = [(); 2]
        .map(|()| uuid::Uuid::new_v4().simple().to_string() + &uuid::Uuid::new_v4().simple().to_string());
    let (store, notices) = Store::new(config.history);
    let stop = CancellationToken::new();
    let ca_pem = identity.ca_pem;
    let collector = gc::run(store.clone(), ca_pem.clone(), config.event_ttl, notices);
    let issued = Issued {
        address,
        token: token.clone(),
        node_token: node_token.clone(),
        ca_pem: ca_pem.clone(),
        signer: Signer::generate()?,
    };
    let api = Arc::new(Api::new(store, issued, config.git_version, audit, stop.clone(), config.interference));
    let tasks = TaskTracker::new();
    tasks.spawn(until_stopped(stop.clone(), collector));
    let (acceptor, authority) = (TlsAcceptor::from(identity.config), identity.authority);
    tasks.spawn(until_stopped(
        stop.clone(),
        accept(listener, (acceptor, identity.clients), api.clone(), stop.clone(), tasks.clone()),
    ));
    tracing::info!(%address, "API server ready");
    Ok(Server { address, ca_pem, token, node_token, authority, api, stop, tasks })
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
    (acceptor, clients): (TlsAcceptor, Arc<dyn ClientCertVerifier>),
    api: Arc<Api>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, acceptor.clone(), clients.clone(), api.clone());
                tasks.spawn(until_stopped(stop.clone(), connection));
            }
            Err(error) => {
                // Out of file descriptors is the only lasting cause: give connections time to close.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    clients: Arc<dyn ClientCertVerifier>,
    api: Arc<Api>,
) {
    // Responses are small and complete: Nagle's algorithm would only add delay.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot disable Nagle's algorithm");
    }
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "TLS handshake failed"),
    };
    let peer = Peer::of(&*clients, stream.get_ref().1.peer_certificates());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let api = api.clone();
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // A client keeps one stream per watch: hyper's default of 200 streams would starve a big one.
    builder.http2().max_concurrent_streams(10_000).initial_connection_window_size(16 << 20);
    if let Err(error) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
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

    /// The bearer token of the cluster admin.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The bearer token of its requests to nodes, which authenticates no client here.
    pub fn node_token(&self) -> &str {
        &self.node_token
    }

    /// A kubeconfig (YAML) with CA and token inlined.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::render(&self.url(), &self.ca_pem, &self.token)
    }

    /// A bearer token of a service account, which is created if it does not exist. It has the permissions that
    /// RBAC grants to the account, and is valid until the server stops or the account is deleted.
    ///
    /// # Errors
    /// [`IssueError`], with the service account and the remedy.
    pub fn token_for(&self, namespace: &str, service_account: &str) -> Result<String, IssueError> {
        self.api.issue_token(namespace, service_account)
    }

    /// A kubeconfig (YAML) with the CA and a token of a service account; see [`Server::token_for`].
    ///
    /// # Errors
    /// [`IssueError`], with the service account and the remedy.
    pub fn kubeconfig_for(&self, namespace: &str, service_account: &str) -> Result<String, IssueError> {
        let token = self.token_for(namespace, service_account)?;
        Ok(kubeconfig::render(&self.url(), &self.ca_pem, &token))
    }

    /// A client certificate, with which requests are those of `user` in `group`.
    ///
    /// # Errors
    /// A key or certificate could not be generated.
    pub fn certificate_for(&self, user: &str, group: Option<&str>) -> Result<ClientCertificate, TlsError> {
        self.authority.client(user, group)
    }

    /// Writes the kubeconfig to `path` with mode 0600.
    ///
    /// # Errors
    /// Any error of the file system.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        kubeconfig::write(path, &self.kubeconfig())
    }

    /// The number of requests so far, by client, verb and resource, in that order.
    pub fn requests(&self) -> Vec<RequestCount> {
        self.api.requests()
    }

    /// What RBAC did not permit so far, once per user, verb and resource.
    pub fn denials(&self) -> Vec<Denial> {
        self.api.denials.all()
    }

    /// The objects that denied requests were about.
    pub fn denied_objects(&self) -> Vec<DeniedObject> {
        self.api.denials.objects()
    }

    /// What service accounts requested in versions that are not served, each once.
    pub fn unserved(&self) -> Vec<Unserved> {
        self.api.unserved.all()
    }

    /// Sets the injected faults, from now on.
    pub fn faults(&self) -> &Faults {
        &self.api.faults
    }

    /// Ends all watches and connections and waits for their end.
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
