//! Serves gRPC on a unix socket, or a TCP port for development: drivers, plugin registration, and the drivers of
//! tests.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    os::fd::AsFd,
    path::Path,
    task::{Context, Poll},
};

use http::{Request, Response};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_stream::StreamExt;
use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Service},
    server::NamedService,
    transport::{
        self,
        server::{Connected, TcpIncoming},
    },
};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{
    authority::AnyAuthority,
    endpoint::Endpoint,
    socket::{self, BindError},
};

/// A connection of a client, before [`Server::serve_over`] wraps it.
pub trait Connection: AsyncRead + AsyncWrite + AsFd + Send + Unpin {}

impl<Io: AsyncRead + AsyncWrite + AsFd + Send + Unpin> Connection for Io {}

/// A connection that was accepted.
pub type Accepted = Box<dyn Connection>;

/// Why serving ended early.
#[derive(Debug, Error)]
#[error("serving gRPC failed")]
pub struct ServeError(#[source] transport::Error);

/// The services of a server, distinguished by the first segment of the path.
///
/// tonic's own router would add all of axum for this.
#[derive(Clone, Debug, Default)]
pub struct Services(BTreeMap<&'static str, BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>>);

impl Services {
    /// With one more service, e.g. `NodeServer::new(node)`.
    #[must_use]
    pub fn with<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.0.insert(S::NAME, BoxCloneSyncService::new(service));
        self
    }
}

impl Service<Request<Body>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let service = path.split('/').nth(1).and_then(|name| self.0.get(name)).cloned();
        match service {
            Some(service) => Box::pin(service.oneshot(request)),
            None => {
                let status = Status::unimplemented(format!("no service here has {path}"));
                Box::pin(std::future::ready(Ok(status.into_http())))
            }
        }
    }
}

/// A socket that listens already; clients may connect and wait for [`Self::serve`].
#[derive(Debug)]
pub struct Server(Listening);

#[derive(Debug)]
enum Listening {
    Unix(socket::Listener),
    Tcp(TcpListener),
}

impl Server {
    /// Listens at an endpoint. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`], among others if another process listens there.
    pub async fn listen(endpoint: &Endpoint) -> Result<Self, BindError> {
        match endpoint {
            Endpoint::Unix(path) => Self::bind(path),
            Endpoint::Tcp(address) => {
                let failed = |source| BindError::Tcp { address: address.clone(), source };
                TcpListener::bind(address)
                    .await
                    .map(|listener| Self(Listening::Tcp(listener)))
                    .map_err(failed)
            }
        }
    }

    /// The address it listens on: with the actual port even if 0 was requested.
    pub fn endpoint(&self) -> Endpoint {
        match &self.0 {
            Listening::Unix(listener) => Endpoint::Unix(listener.path().to_owned()),
            Listening::Tcp(listener) => Endpoint::Tcp(
                listener.local_addr().expect("a socket that listens has an address").to_string(),
            ),
        }
    }

    /// Listens at `path`. A dead server's socket is replaced. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`], among others if a live server listens there.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        socket::Listener::bind(path).map(|listener| Self(Listening::Unix(listener)))
    }

    /// Lets the members of a group call, too, which callers other than root require. Otherwise the process's
    /// umask decides. A TCP port is open to all users anyway.
    ///
    /// # Errors
    /// [`BindError::Io`] if the process may not do that.
    pub fn share_with(self, group: u32) -> Result<Self, BindError> {
        if let Listening::Unix(listener) = &self.0 {
            listener.share_with(group)?;
        }
        Ok(self)
    }

    /// Serves until `shutdown` completes; then the socket file goes, calls under way are finished, and
    /// no new ones taken.
    ///
    /// # Errors
    /// [`ServeError`] if accepting connections fails for good.
    pub async fn serve(
        self,
        services: Services,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_any(services, shutdown).await
    }

    /// As [`Self::serve`], by a service that takes every path.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub async fn serve_any<S>(self, service: S, shutdown: impl Future<Output = ()>) -> Result<(), ServeError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let server = transport::Server::builder();
        let served = match self.0 {
            Listening::Unix(listener) => {
                let incoming = listener.map(|accepted| accepted.map(AnyAuthority::new));
                server.serve_with_incoming_shutdown(service, incoming, shutdown).await
            }
            Listening::Tcp(listener) => {
                let incoming = TcpIncoming::from(listener).map(|accepted| accepted.map(AnyAuthority::new));
                server.serve_with_incoming_shutdown(service, incoming, shutdown).await
            }
        };
        served.map_err(ServeError)
    }

    /// As [`Self::serve`], by any service, over what `wrap` makes of the connections.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub async fn serve_over<S, C>(
        self,
        service: S,
        mut wrap: impl FnMut(Accepted) -> C,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        C: AsyncRead + AsyncWrite + Connected + Send + Unpin + 'static,
    {
        let server = transport::Server::builder();
        let served = match self.0 {
            Listening::Unix(listener) => {
                let mut any = |stream| AnyAuthority::new(wrap(Box::new(stream)));
                let incoming = listener.map(|accepted| accepted.map(&mut any));
                server.serve_with_incoming_shutdown(service, incoming, shutdown).await
            }
            Listening::Tcp(listener) => {
                let mut any = |stream| AnyAuthority::new(wrap(Box::new(stream)));
                let incoming = TcpIncoming::from(listener).map(|accepted| accepted.map(&mut any));
                server.serve_with_incoming_shutdown(service, incoming, shutdown).await
            }
        };
        served.map_err(ServeError)
    }
}
