//! One request to the collector, and whether its failure is retryable.

use http::StatusCode;
use prost::Message as _;

use super::{
    collector::Collector,
    otlp::{Request, Response},
};

/// The remedy for authentication failures.
const CREDENTIALS: &str = "pass credentials with OTEL_EXPORTER_OTLP_HEADERS or --otlp-headers-file";

/// The failure of a request; whether it is retryable is defined by the specification (OTLP, "Failures").
#[derive(Debug)]
pub(super) enum Failure {
    /// Retryable.
    Transient(String),
    /// Not retryable, or partially accepted and must not be sent twice.
    Permanent(String),
}

/// A client of the collector; it connects on demand.
pub(super) struct Sender {
    collector: Collector,
    client: reqwest::Client,
}

impl Sender {
    /// Creates the client.
    pub fn new(collector: &Collector) -> Result<Self, String> {
        let builder = reqwest::Client::builder().tls_certs_merge(collector.certificates.clone());
        let client = builder.build().map_err(|error| reason(&error))?;
        Ok(Self { collector: collector.clone(), client })
    }

    /// Sends.
    pub async fn send(&self, request: &Request) -> Result<(), Failure> {
        let Self { collector, client } = self;
        let answered = post(client, collector, request).await;
        let refused = |answer: Response| match answer.partial_success {
            Some(partial) if partial.rejected_spans > 0 => Err(Failure::Permanent(format!(
                "it rejected {} spans: {}",
                partial.rejected_spans, partial.error_message
            ))),
            _ => Ok(()),
        };
        answered.and_then(refused).map_err(|failure| match failure {
            Failure::Transient(why) => Failure::Transient(collector.without_secrets(&why)),
            Failure::Permanent(why) => Failure::Permanent(collector.without_secrets(&why)),
        })
    }
}

async fn post(
    client: &reqwest::Client,
    collector: &Collector,
    request: &Request,
) -> Result<Response, Failure> {
    let transient = |error: reqwest::Error| Failure::Transient(reason(&error.without_url()));
    let post = client.post(collector.url.clone()).headers(collector.headers.clone());
    let post = post.header("content-type", "application/x-protobuf");
    let answer = post.body(request.encode_to_vec()).send().await.map_err(transient)?;
    let status = answer.status();
    let body = answer.bytes().await.map_err(transient)?;
    if status.is_success() {
        // A body that is not protobuf has no information on rejected spans.
        return Ok(Response::decode(body).unwrap_or_default());
    }
    let why = format!("it returned {status}");
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Failure::Permanent(format!("{why}: {CREDENTIALS}"))
        }
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Failure::Transient(why),
        _ => Failure::Permanent(why),
    })
}

/// An error with its causes: the outermost alone often states only that sending failed.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    let mut causes_shown: Vec<String> = Vec::new();
    for cause in causes {
        if !causes_shown.iter().any(|earlier| earlier.contains(&cause)) {
            causes_shown.push(cause);
        }
    }
    causes_shown.join(": ")
}
