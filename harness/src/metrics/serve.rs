//! `GET /metrics`, plain HTTP, for as long as a run lasts.

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

use super::Metrics;

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else listens there.
    #[error(
        "cannot serve metrics on {address}: the port is taken; choose another with --metrics-addr, or port 0 for any that is free"
    )]
    Occupied {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The address is not ours, or we may not listen there.
    #[error("cannot serve metrics on {address}: choose an address of this machine with --metrics-addr")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A server of metrics; dropping it ends it.
#[derive(Debug)]
pub struct Serving {
    /// Where it listens: the port is a real one even where 0 was asked for.
    pub address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Metrics {
    /// Serves these metrics at `http://<address>/metrics`.
    ///
    /// # Errors
    /// If it cannot listen there; see [`ServeError`].
    pub async fn serve(&self, address: SocketAddr) -> Result<Serving, ServeError> {
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::Occupied { address, source },
            _ => ServeError::Listen { address, source },
        };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let task = AbortOnDropHandle::new(tokio::spawn(accept(listener, self.clone())));
        Ok(Serving { address, _task: task })
    }
}

async fn accept(listener: TcpListener, metrics: Metrics) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(attend(stream, metrics.clone()))),
                // A connection that broke before it was ours, or too many open files: scrapers come again.
                Err(error) => tracing::debug!(%error, "a scraper could not connect"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn attend(stream: TcpStream, metrics: Metrics) {
    let service = service_fn(move |request| {
        let response = answer(&request, &metrics);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    if let Err(error) = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await
    {
        tracing::debug!(%error, "a scraper went away");
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, metrics.text()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
