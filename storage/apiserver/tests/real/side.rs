//! Requests to one of the two servers, on connections that stay open.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::protobuf;

/// The deadline of a request; those that wait the longest are lists of versions of the future (3 s).
const TIMEOUT: Duration = Duration::from_secs(20);
/// The user agent, of which the first part becomes the field manager.
const AGENT: &str = "real/1.0";
/// The headers that are compared.
const HEADERS: [&str; 6] = ["content-type", "warning", "cache-control", "retry-after", "allow", "location"];

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: &'static str,
    /// With the query.
    pub path: String,
    pub content_type: Option<&'static str>,
    pub accept: Option<String>,
    pub body: Vec<u8>,
}

/// A response, decoded.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The code; 0 if there was no response.
    pub status: u16,
    /// The compared headers; several of a name are in separate lines.
    pub headers: BTreeMap<&'static str, String>,
    /// The body; of a watch the list of its events, and of other texts a string.
    pub body: Value,
}

/// A server.
pub struct Side {
    client: Client,
}

impl Request {
    /// A request without a body.
    pub fn get(path: &str) -> Self {
        Self { method: "GET", path: path.to_owned(), ..Self::default() }
    }

    /// A request that creates an object.
    pub fn post(path: &str, object: &Value) -> Self {
        let body = object.to_string().into_bytes();
        Self {
            method: "POST",
            path: path.to_owned(),
            content_type: Some("application/json"),
            body,
            accept: None,
        }
    }
}

impl Answer {
    /// Whether the request was executed.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn failure(reason: &str) -> Self {
        Self { status: 0, headers: BTreeMap::new(), body: json!({ "noResponse": reason }) }
    }
}

impl Side {
    /// Requests with the credentials of a kubeconfig.
    pub async fn new(kubeconfig: &str) -> Result<Self, String> {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|error| error.to_string())?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.map_err(|error| error.to_string())?;
        // Failures are compared.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        Ok(Self { client })
    }

    /// Sends a request. A failure of the connection is an answer as well.
    pub async fn send(&self, request: &Request) -> Answer {
        match tokio::time::timeout(TIMEOUT, self.exchange(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) => Answer::failure(&reason),
            Err(_) => Answer::failure("the deadline has passed"),
        }
    }

    async fn exchange(&self, request: &Request) -> Result<Answer, String> {
        let mut builder = http::Request::builder().method(request.method).uri(&request.path);
        builder = builder.header("user-agent", AGENT);
        if let Some(content_type) = request.content_type {
            builder = builder.header("content-type", content_type);
        }
        if let Some(accept) = &request.accept {
            builder = builder.header("accept", accept);
        }
        let built = builder.body(Body::from(request.body.clone())).map_err(|error| error.to_string())?;
        // The text of the error would contain the port.
        let response = self.client.send(built).await.map_err(|_| "the connection failed".to_owned())?;
        let status = response.status().as_u16();
        let headers: BTreeMap<&str, String> = HEADERS
            .iter()
            .filter_map(|name| {
                let values = response.headers().get_all(*name).iter();
                let values: Vec<_> =
                    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
                (!values.is_empty()).then(|| (*name, values.join("\n")))
            })
            .collect();
        let body = response.into_body().collect().await.map_err(|_| "the body is incomplete".to_owned())?;
        let content_type = headers.get("content-type").map_or("", String::as_str);
        let is_watch = status == 200 && request.path.contains("watch=");
        Ok(Answer { status, body: decode(content_type, is_watch, &body.to_bytes()), headers })
    }
}

/// The body as a value.
fn decode(content_type: &str, is_watch: bool, bytes: &[u8]) -> Value {
    if content_type.starts_with(protobuf::MEDIA_TYPE) {
        return if is_watch { protobuf::decode_events(bytes) } else { protobuf::decode(bytes) };
    }
    let text = String::from_utf8_lossy(bytes);
    let as_text = || Value::String(text.to_string());
    if content_type.starts_with("application/json") && is_watch {
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|_| line.into());
        return text.lines().map(event).collect();
    }
    if content_type.starts_with("application/json") {
        return serde_json::from_str(&text).unwrap_or_else(|_| as_text());
    }
    if content_type.starts_with("application/yaml") {
        let strict = serde_saphyr::options! { strict_booleans: true };
        return serde_saphyr::from_str_with_options(&text, strict).unwrap_or_else(|_| as_text());
    }
    as_text()
}
