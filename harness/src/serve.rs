//! Plain HTTP for machines: `/metrics` of a run, and the health of components in a real cluster.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// What is served.
pub(crate) trait Site: Clone + Send + Sync + 'static {
    /// The page at a path, if there is one.
    fn page(&self, path: &str) -> impl Future<Output = Option<Page>> + Send;
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    status: StatusCode,
    text: String,
}

impl Page {
    /// All is well.
    pub(crate) fn ok(text: impl Into<String>) -> Self {
        Self { status: StatusCode::OK, text: text.into() }
    }

    /// Not now, with the reason.
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text: why.into() }
    }
}

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else listens there.
    #[error(
        "cannot serve metrics on {address}: the port is taken; choose another with --metrics-addr (components: --http-endpoint), or port 0 for any that is free"
    )]
    Occupied {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The address is not ours, or we may not listen there.
    #[error(
        "cannot serve metrics on {address}: choose an address of this machine with --metrics-addr (components: --http-endpoint)"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A server; dropping it ends it.
#[derive(Debug)]
pub struct Serving {
    /// Where it listens: the port is a real one even where 0 was asked for.
    pub address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

/// Serves a site at `http://<address>/`.
///
/// # Errors
/// If it cannot listen there; see [`ServeError`].
pub(crate) async fn serve(address: SocketAddr, site: impl Site) -> Result<Serving, ServeError> {
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::Occupied { address, source },
        _ => ServeError::Listen { address, source },
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let task = AbortOnDropHandle::new(tokio::spawn(accept(listener, site)));
    Ok(Serving { address, _task: task })
}

async fn accept(listener: TcpListener, site: impl Site) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(attend(stream, site.clone()))),
                // A connection that broke before it was ours, or too many open files: they come again.
                Err(error) => tracing::debug!(%error, "a client could not connect"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn attend(stream: TcpStream, site: impl Site) {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(answer(&request, &site).await) }
    });
    let mut server = http1::Builder::new();
    if let Err(error) = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await
    {
        tracing::debug!(%error, "a client went away");
    }
}

async fn answer(request: &Request<Incoming>, site: &impl Site) -> Response<Full<Bytes>> {
    let page = match *request.method() {
        Method::GET | Method::HEAD => site.page(request.uri().path()).await,
        _ => Some(Page { status: StatusCode::METHOD_NOT_ALLOWED, text: "only GET\n".to_owned() }),
    };
    let missing = || Page { status: StatusCode::NOT_FOUND, text: "nothing is here\n".to_owned() };
    let Page { status, text } = page.unwrap_or_else(missing);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
