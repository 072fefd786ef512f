//! The node's time, for comparison with other clocks: `GET /clock`, plain HTTP.
//!
//! The harness sends the request through the API server's pod proxy; two readings of its own clock around the
//! response bound the difference of the clocks. The phases of a node (`harness/monitor/phases`) are served in the same way.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use claimcheck_model::Stamp;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinSet};

/// The path of the clock.
pub const CLOCK_PATH: &str = "/clock";

/// The clock, or the metrics, cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: set {flag} to an unused address of this machine")]
pub struct ServeError {
    address: SocketAddr,
    flag: &'static str,
    #[source]
    source: io::Error,
}

/// Listens on the address of this flag. The unspecified address (`[::]`) includes those of IPv4, and is limited to
/// them on a machine without IPv6.
///
/// # Errors
/// The address is not available.
pub async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServeError> {
    let bound = match TcpListener::bind(address).await {
        Err(error) if is_all_of_ipv6(address) && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.map_err(|source| ServeError { address, flag, source })
}

fn is_all_of_ipv6(address: SocketAddr) -> bool {
    address.ip() == Ipv6Addr::UNSPECIFIED
}

/// Serves these answers forever.
pub async fn serve<A>(listener: TcpListener, answer: A) -> Infallible
where
    A: Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let answer = answer.clone();
                    connections.spawn(async move {
                        let service = service_fn(move |request: Request<Incoming>| {
                            let response = answer(&request);
                            async move { Ok::<_, Infallible>(response) }
                        });
                        let mut server = http1::Builder::new();
                        let stream = TokioIo::new(stream);
                        let served = server.timer(TokioTimer::new()).serve_connection(stream, service);
                        if let Err(error) = served.await {
                            tracing::debug!(%error, "a client disconnected");
                        }
                    });
                }
                Err(error) => tracing::debug!(%error, "cannot accept a connection"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The pages of the clock.
pub(crate) fn clock(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, CLOCK_PATH) => {
            let now = serde_json::to_string(&Stamp::now()).expect("a stamp is two numbers");
            (StatusCode::OK, now)
        }
        (&Method::GET, "/healthz") => (StatusCode::OK, "ok".to_owned()),
        (_, CLOCK_PATH | "/healthz") => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "the time is at /clock\n".to_owned()),
    };
    respond(status, text)
}

/// A response that no cache keeps.
pub fn respond(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    // An answer of a moment ago would be a wrong one.
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_time_lies_between_question_and_answer() {
        let listener = bind("127.0.0.1:0".parse().unwrap(), "--listen").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _serving = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(serve(listener, clock)));
        let asked = Stamp::now();
        let answer = get(address, "GET /clock").await;
        let node: Stamp = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
        assert!(asked < node && node < Stamp::now(), "{answer}");
        assert!(get(address, "GET /healthz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "POST /clock").await.starts_with("HTTP/1.1 405"));
        assert!(get(address, "GET /else").await.starts_with("HTTP/1.1 404"));
        let taken = bind(address, "--listen").await.unwrap_err();
        assert!(taken.to_string().contains("--listen"), "{taken}");
    }

    #[tokio::test]
    async fn it_answers_in_both_families() {
        let listener = bind("[::]:0".parse().unwrap(), "--listen").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _serving = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(serve(listener, clock)));
        let mut hosts = vec![std::net::IpAddr::from(Ipv4Addr::LOCALHOST)];
        // A machine without IPv6 has the other alone.
        hosts.extend(address.is_ipv6().then_some(std::net::IpAddr::from(Ipv6Addr::LOCALHOST)));
        for host in hosts {
            let answer = get((host, address.port()).into(), "GET /healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
        }
    }
}
