//! The node's HTTPS server: serves the API server's requests for `kubectl logs`, `exec`, `cp`, `attach` and
//! `port-forward`.
//!
//! It listens before the node is registered, so that the Node object never contains a port without a listener.

mod choose;
mod connect;
mod credentials;
mod routes;
mod streams;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use claimcheck_runtime::Runtime;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

pub use self::{credentials::Credentials, routes::Logs, tls::TlsError};

/// Timeout for the start of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why the node does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The node's address is invalid.
    #[error("--node-ip {0:?} is not an IP address")]
    Address(String),
    /// The address does not belong to this machine.
    #[error("cannot listen on {ip}: choose a --node-ip that this machine has")]
    Listen {
        /// The address.
        ip: IpAddr,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A server that listens, and does not respond yet.
pub struct Server {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    credentials: Credentials,
    port: u16,
}

impl Server {
    /// Listens on a free port of the node's address.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub async fn listen(node: &str, ip: &str, credentials: Credentials) -> Result<Self, ListenError> {
        let ip: IpAddr = ip.parse().map_err(|_| ListenError::Address(ip.to_owned()))?;
        let listen = |source| ListenError::Listen { ip, source };
        let listener = TcpListener::bind(SocketAddr::new(ip, 0)).await.map_err(listen)?;
        let port = listener.local_addr().map_err(listen)?.port();
        let settings = tls::settings(node, ip, credentials.client_ca.as_deref())?;
        Ok(Self { listener, acceptor: TlsAcceptor::from(Arc::new(settings)), credentials, port })
    }

    /// Its address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves for as long as it is polled; dropping it aborts all responses.
    pub async fn run<R: Runtime>(self, logs: Logs<R>) {
        let (logs, credentials) = (Arc::new(logs), Arc::new(self.credentials));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let (acceptor, credentials) = (self.acceptor.clone(), credentials.clone());
                        connections.spawn(serve(stream, acceptor, credentials, logs.clone()));
                    }
                    Err(error) => {
                        // Out of file descriptors is the only lasting cause: give connections time to close.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn serve<R: Runtime>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    credentials: Arc<Credentials>,
    logs: Arc<Logs<R>>,
) {
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("a client did not send a request in time"),
    };
    // The handshake fails for a certificate of an unknown CA.
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    let (sessions, mut upgraded) = mpsc::unbounded_channel();
    let service = service_fn(move |request| {
        let is_known = has_certificate || credentials.accept(request.headers());
        let (logs, sessions) = (logs.clone(), sessions.clone());
        async move { logs.answer(request, is_known, &sessions).await }
    });
    // With a timer, a caller that sends half a request is given up.
    let served =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.with_upgrades().await {
        tracing::debug!(%error, "connection ended");
    }
    // What an upgraded connection is used for ends with this task.
    while let Ok(session) = upgraded.try_recv() {
        session.await;
    }
}
