//! One request to the collector, over HTTP or gRPC, and whether it is worth another try.

use http::StatusCode;
use prost::Message as _;
use tonic::{Code, transport::Channel};

use super::{
    collector::{Collector, Way},
    otlp::{Request, Response},
};

/// Why a request failed; whether another may do better is the specification's "retryable" (OTLP, "Failures").
#[derive(Debug)]
pub(super) enum Failure {
    /// Another may do.
    Passing(String),
    /// It would fail again, or was taken in part and must not be sent twice.
    Lasting(String),
}

/// A way to the collector; connections are made when they are needed.
pub(super) enum Sender {
    Http { client: reqwest::Client, url: String },
    Grpc(tonic::client::Grpc<Channel>),
}

impl Sender {
    /// Prepares the way.
    pub fn new(collector: &Collector) -> Result<Self, String> {
        let url = collector.url.clone();
        Ok(match collector.way {
            Way::Http => {
                let client = reqwest::Client::builder().build().map_err(|error| error.to_string())?;
                Self::Http { client, url }
            }
            Way::Grpc => {
                let endpoint = tonic::transport::Endpoint::from_shared(url).map_err(|e| e.to_string())?;
                Self::Grpc(tonic::client::Grpc::new(endpoint.connect_lazy()))
            }
        })
    }

    /// Sends.
    pub async fn send(&mut self, request: &Request) -> Result<(), Failure> {
        let answer = match self {
            Self::Http { client, url } => over_http(client, url, request).await?,
            Self::Grpc(client) => over_grpc(client, request).await?,
        };
        match answer.partial_success {
            Some(partial) if partial.rejected_spans > 0 => Err(Failure::Lasting(format!(
                "it refused {} spans: {}",
                partial.rejected_spans, partial.error_message
            ))),
            _ => Ok(()),
        }
    }
}

async fn over_http(client: &reqwest::Client, url: &str, request: &Request) -> Result<Response, Failure> {
    let passing = |error: reqwest::Error| Failure::Passing(reason(&error.without_url()));
    let post = client.post(url).header("content-type", "application/x-protobuf");
    let answer = post.body(request.encode_to_vec()).send().await.map_err(passing)?;
    let status = answer.status();
    let body = answer.bytes().await.map_err(passing)?;
    if status.is_success() {
        // What is no protobuf says nothing of spans that were refused.
        return Ok(Response::decode(body).unwrap_or_default());
    }
    let why = format!("it answered {status}");
    Err(match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Failure::Passing(why),
        _ => Failure::Lasting(why),
    })
}

async fn over_grpc(
    client: &mut tonic::client::Grpc<Channel>,
    request: &Request,
) -> Result<Response, Failure> {
    client.ready().await.map_err(|error| Failure::Passing(reason(&error)))?;
    let path =
        http::uri::PathAndQuery::from_static("/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let codec = tonic_prost::ProstCodec::<Request, Response>::default();
    let status = match client.unary(tonic::Request::new(request.clone()), path, codec).await {
        Ok(answer) => return Ok(answer.into_inner()),
        Err(status) => status,
    };
    // What lies below gRPC, such as a connection that is refused, comes with its error.
    if let Some(error) = std::error::Error::source(&status) {
        return Err(Failure::Passing(reason(error)));
    }
    let why = format!("it answered {:?}: {}", status.code(), status.message());
    Err(match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Failure::Passing(why),
        _ => Failure::Lasting(why),
    })
}

/// An error with its causes: the first alone often says no more than that sending failed.
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
