//! `--metrics` of `claimcheck observe`: measures the phases of the node from copies of its records, and serves them.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf};

use claimcheck_observe::{Record, ServeError, bind, respond, serve};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{ApiError, Series, api_client, follow};

/// The arguments of `claimcheck observe` about phases.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Measure stage, publish, start, unpublish and unstage of the node's volumes and serve them (GET /metrics) on this
    /// address. Watches the node's pods and the Node, and reads PersistentVolumes and CSIDrivers
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// The namespace of the monitor's canary: phases of claims there have source="canary"
    #[arg(long, value_name = "NAME", default_value = "claimcheck-canary", requires = "metrics")]
    pub canary_namespace: String,
    /// Path of the kubeconfig for --metrics [default: KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub kubeconfig: Option<PathBuf>,
}

/// Errors of the start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The metrics cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// `--metrics` has no API server.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl Args {
    /// Where to send the records of this node, and what measures and serves forever; none without `--metrics`.
    ///
    /// # Errors
    /// The API server cannot be used, or the address is not available.
    pub async fn start(
        self,
        node: String,
    ) -> Result<Option<(UnboundedSender<Record>, impl Future<Output = Infallible>)>, StartError> {
        let Some(address) = self.metrics else { return Ok(None) };
        let client = api_client(self.kubeconfig.as_deref()).await?;
        let listener = bind(address, "--metrics").await?;
        let (copies, records) = unbounded_channel();
        let series = Series::new(&self.canary_namespace);
        let measured = async move {
            let served = series.clone();
            let pages = move |request: &Request<Incoming>| pages(request, &served);
            let (never, ()) = tokio::join!(serve(listener, pages), follow(client, &node, records, &series));
            never
        };
        Ok(Some((copies, measured)))
    }
}

/// The pages of `--metrics`.
fn pages(request: &Request<Incoming>, series: &Series) -> Response<Full<Bytes>> {
    const JSON: &str = "/unused.json";
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, series.text()),
        (&Method::GET, JSON) => (StatusCode::OK, series.leftovers()),
        (&Method::GET, "/healthz") => (StatusCode::OK, "ok".to_owned()),
        (&Method::GET, "/readyz") if series.is_synced() => (StatusCode::OK, "ok".to_owned()),
        (&Method::GET, "/readyz") => {
            (StatusCode::SERVICE_UNAVAILABLE, "the pods and the Node were not listed yet\n".to_owned())
        }
        (_, "/metrics" | JSON | "/healthz" | "/readyz") => {
            (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned())
        }
        _ => (
            StatusCode::NOT_FOUND,
            "the metrics are at /metrics, mounts without pods at /unused.json\n".to_owned(),
        ),
    };
    let mut response = respond(status, text);
    let format = header::HeaderValue::from_static(match (status, request.uri().path()) {
        (StatusCode::OK, JSON) => "application/json",
        _ => "text/plain; version=0.0.4; charset=utf-8",
    });
    response.headers_mut().insert(header::CONTENT_TYPE, format);
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
    async fn metrics_are_served_in_the_format_of_prometheus() {
        let listener = bind("127.0.0.1:0".parse().unwrap(), "--metrics").await.unwrap();
        let address = listener.local_addr().unwrap();
        let series = Series::new("canary");
        let serving = serve(listener, move |request: &Request<Incoming>| pages(request, &series));
        let _serving = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(serving));
        let answer = get(address, "GET /metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nprocess_resident_memory_bytes "), "{answer}");
        let answer = get(address, "GET /unused.json").await;
        assert!(answer.contains("content-type: application/json") && answer.ends_with("\r\n[]"), "{answer}");
        assert!(get(address, "GET /healthz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "GET /readyz").await.starts_with("HTTP/1.1 503"));
        assert!(get(address, "POST /metrics").await.starts_with("HTTP/1.1 405"));
        assert!(get(address, "GET /clock").await.starts_with("HTTP/1.1 404"));
        let taken = bind(address, "--metrics").await.unwrap_err();
        assert!(taken.to_string().contains("--metrics"), "{taken}");
    }
}
