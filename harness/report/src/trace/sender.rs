//! One request to the collector, over HTTP or gRPC, and whether its failure is retryable.

use std::sync::Arc;

use http::StatusCode;
use prost::Message as _;
use tonic::{Code, metadata::MetadataMap, transport::Channel};
use tower::service_fn;

use super::{
    collector::{Collector, Way},
    otlp::{Request, Response},
    tls,
};

/// The remedy for authentication failures.
const CREDENTIALS: &str = "pass credentials with OTEL_EXPORTER_OTLP_HEADERS or --otlp-headers-file";

/// The failure of a request; whether it is retryable is defined by the specification (OTLP, "Failures").
#[derive(Debug)]
pub(super) enum Failure {
    /// Retryable.
    Passing(String),
    /// Not retryable, or partially accepted and must not be sent twice.
    Lasting(String),
}

/// A client of the collector; it connects on demand.
pub(super) struct Sender {
    collector: Collector,
    client: Client,
}

enum Client {
    Http(reqwest::Client),
    Grpc(tonic::client::Grpc<Channel>),
}

impl Sender {
    /// Creates the client.
    pub fn new(collector: &Collector) -> Result<Self, String> {
        let client = match collector.way {
            Way::Http => Client::Http(http_client(collector)?),
            Way::Grpc => Client::Grpc(tonic::client::Grpc::new(channel(collector)?)),
        };
        Ok(Self { collector: collector.clone(), client })
    }

    /// Sends.
    pub async fn send(&mut self, request: &Request) -> Result<(), Failure> {
        let Self { collector, client } = self;
        let answered = match client {
            Client::Http(client) => over_http(client, collector, request).await,
            Client::Grpc(client) => over_grpc(client, collector, request).await,
        };
        let refused = |answer: Response| match answer.partial_success {
            Some(partial) if partial.rejected_spans > 0 => Err(Failure::Lasting(format!(
                "it rejected {} spans: {}",
                partial.rejected_spans, partial.error_message
            ))),
            _ => Ok(()),
        };
        answered.and_then(refused).map_err(|failure| match failure {
            Failure::Passing(why) => Failure::Passing(collector.without_secrets(&why)),
            Failure::Lasting(why) => Failure::Lasting(collector.without_secrets(&why)),
        })
    }
}

fn http_client(collector: &Collector) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder();
    if collector.url.scheme() == "https" {
        let config = collector.tls.config(&[b"h2", b"http/1.1"]).map_err(|error| error.to_string())?;
        builder = builder.tls_backend_preconfigured(config);
    }
    builder.build().map_err(|error| reason(&error))
}

fn channel(collector: &Collector) -> Result<Channel, String> {
    let address = collector.url.as_str().to_owned();
    let endpoint = tonic::transport::Endpoint::from_shared(address).map_err(|error| error.to_string())?;
    if collector.url.scheme() != "https" {
        return Ok(endpoint.connect_lazy());
    }
    let config = collector.tls.config(&[b"h2"]).map_err(|error| error.to_string())?;
    let config = Arc::new(config);
    Ok(endpoint.connect_with_connector_lazy(service_fn(move |to| tls::connect(config.clone(), to))))
}

async fn over_http(
    client: &reqwest::Client,
    collector: &Collector,
    request: &Request,
) -> Result<Response, Failure> {
    let passing = |error: reqwest::Error| Failure::Passing(reason(&error.without_url()));
    let post = client.post(collector.url.clone()).headers(collector.headers.clone());
    let post = post.header("content-type", "application/x-protobuf");
    let answer = post.body(request.encode_to_vec()).send().await.map_err(passing)?;
    let status = answer.status();
    let body = answer.bytes().await.map_err(passing)?;
    if status.is_success() {
        // A body that is not protobuf has no information on rejected spans.
        return Ok(Response::decode(body).unwrap_or_default());
    }
    let why = format!("it returned {status}");
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Lasting(format!("{why}: {CREDENTIALS}")),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Failure::Passing(why),
        _ => Failure::Lasting(why),
    })
}

async fn over_grpc(
    client: &mut tonic::client::Grpc<Channel>,
    collector: &Collector,
    request: &Request,
) -> Result<Response, Failure> {
    client.ready().await.map_err(|error| Failure::Passing(reason(&error)))?;
    let path =
        http::uri::PathAndQuery::from_static("/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let codec = tonic_prost::ProstCodec::<Request, Response>::default();
    let metadata = MetadataMap::from_headers(collector.headers.clone());
    let request = tonic::Request::from_parts(metadata, tonic::Extensions::default(), request.clone());
    let status = match client.unary(request, path, codec).await {
        Ok(answer) => return Ok(answer.into_inner()),
        Err(status) => status,
    };
    // Errors below gRPC, such as a refused connection, have their own source.
    if let Some(error) = std::error::Error::source(&status) {
        return Err(Failure::Passing(reason(error)));
    }
    let why = format!("it returned {:?}: {}", status.code(), status.message());
    Err(match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => Failure::Lasting(format!("{why}: {CREDENTIALS}")),
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Failure::Passing(why),
        _ => Failure::Lasting(why),
    })
}

/// An error with its causes: the outermost alone often states only that sending failed.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    let mut told: Vec<String> = Vec::new();
    for cause in causes {
        if !told.iter().any(|earlier| earlier.contains(&cause)) {
            told.push(cause);
        }
    }
    told.join(": ")
}
