//! Plain HTTP for machines: `/metrics` of a run, and health and metrics of its components.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// The served pages.
pub trait Site: Clone + Send + Sync + 'static {
    /// The requested page, if it exists.
    fn page(&self, request: PageRequest<'_>) -> impl Future<Output = Option<Page>> + Send;
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// The page.
    pub path: &'a str,
    /// The Host header: `<host>:<port>`, or empty if missing.
    pub host: &'a str,
}

/// The text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl Page {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, kind: METRICS, text: text.into() }
    }

    /// 200 OK.
    pub fn ok(text: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, text)
    }

    /// 200 OK with JSON.
    pub fn json(value: &serde_json::Value) -> Self {
        Self { kind: "application/json", ..Self::ok(value.to_string()) }
    }

    /// 200 OK with an HTML page.
    pub fn html(text: impl Into<String>) -> Self {
        Self { kind: "text/html; charset=utf-8", ..Self::ok(text) }
    }

    /// 503, with the reason.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is in use.
    #[error(
        "cannot serve metrics on {address}: the port is in use; choose another with --metrics-addr (components: --http-endpoint), or port 0 for any free port"
    )]
    Occupied {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be created.
    #[error("cannot serve metrics on {}: choose another path with --http-endpoint unix://PATH", path.display())]
    Socket {
        /// The address.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The address is not local, or binding to it is not permitted.
    #[error(
        "cannot serve metrics on {address}: choose an address of this machine with --metrics-addr (components: --http-endpoint)"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

/// A server; dropping it stops it.
#[derive(Debug)]
pub struct Serving {
    /// The address it listens on: with the real port even if 0 was requested.
    pub address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

/// Serves a site at `http://<address>/`.
///
/// # Errors
/// If it cannot listen there; see [`ServeError`].
pub async fn serve(address: SocketAddr, site: impl Site) -> Result<Serving, ServeError> {
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::Occupied { address, source },
        _ => ServeError::Listen { address, source },
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let task = AbortOnDropHandle::new(tokio::spawn(accept(listener, site)));
    Ok(Serving { address, _task: task })
}

/// Serves a site at a unix socket, replacing an existing socket file. The task ends with the handle.
///
/// # Errors
/// If the socket cannot be created.
pub fn serve_unix(path: &Path, site: impl Site) -> Result<AbortOnDropHandle<()>, ServeError> {
    let failed = |source| ServeError::Socket { path: path.to_owned(), source };
    // A stale socket of a process that was killed.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    Ok(AbortOnDropHandle::new(tokio::spawn(accept(listener, site))))
}

/// The listener.
trait Listener: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

async fn accept(listener: impl Listener, site: impl Site) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.next() => match accepted {
                Ok(stream) => drop(connections.spawn(attend(stream, site.clone()))),
                // A connection that was aborted before it was accepted, or too many open files: clients retry.
                Err(error) => tracing::debug!(%error, "a client could not connect"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn attend(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, site: impl Site) {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(answer(&request, &site).await) }
    });
    let mut server = http1::Builder::new();
    if let Err(error) = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await
    {
        tracing::debug!(%error, "a client disconnected");
    }
}

async fn answer(request: &Request<Incoming>, site: &impl Site) -> Response<Full<Bytes>> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let page = match *request.method() {
        Method::GET | Method::HEAD => site.page(PageRequest { path: request.uri().path(), host }).await,
        _ => Some(Page::new(StatusCode::METHOD_NOT_ALLOWED, "only GET\n")),
    };
    let missing = || Page::new(StatusCode::NOT_FOUND, "nothing is here\n");
    let Page { status, kind, text } = page.unwrap_or_else(missing);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
