//! The node's own server: what only the node has, for the API server to ask. `kubectl logs` ends here.
//!
//! It listens before the node is registered, so that the Node object never names a port at which nobody is.

mod choose;
mod credentials;
mod routes;
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
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

pub use self::{credentials::Credentials, routes::Logs, tls::TlsError};

/// How long a caller may take to begin.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why the node does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The node's address is none.
    #[error("--node-ip {0:?} is no address")]
    Address(String),
    /// It is not one of this machine's.
    #[error("cannot listen on {ip}: choose a --node-ip that this machine has")]
    Listen {
        /// The address.
        ip: IpAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A server that listens, and does not answer yet.
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

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Answers for as long as it is polled; dropping it ends all answers.
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
                        tracing::warn!(%error, "could not accept a connection");
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
        Err(_) => return tracing::debug!("a caller did not begin in time"),
    };
    // The handshake fails for a certificate of nobody we know.
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    let service = service_fn(move |request| {
        let is_known = has_certificate || credentials.accept(request.headers());
        let logs = logs.clone();
        async move { logs.answer(request, is_known).await }
    });
    // With a timer, a caller that sends half a request is given up.
    let served =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "connection ended");
    }
}
