//! Responses: objects in JSON, YAML or protobuf, plain texts and watch streams.

use std::convert::Infallible;

use futures::stream::BoxStream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::Value;

use crate::protobuf;

/// The body of a response: whole, or a stream of watch events.
pub type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

/// The response to a request.
pub type Answer = Response<Body>;

/// The media type of JSON.
const JSON: &str = "application/json";

/// The media type of YAML.
pub const YAML: &str = "application/yaml";

/// The media type of Kubernetes' protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// YAML, which watches do not have.
    Yaml,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Encoding {
    /// The content type of an object.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Yaml => YAML,
            Self::Protobuf => PROTOBUF,
        }
    }

    /// The content type of a stream of watch events.
    pub fn stream_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Yaml => YAML,
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// An object, which has its kind.
    pub fn encode(self, object: &Value) -> Bytes {
        match self {
            Self::Json => Bytes::from(object.to_string()),
            Self::Yaml => Bytes::from(yaml(object)),
            Self::Protobuf => Bytes::from(protobuf::encode(object)),
        }
    }
}

/// `value` as YAML with sorted keys, as sigs.k8s.io/yaml (`JSONToYAML`) writes it.
fn yaml(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    // JSON is YAML, too, so it stands in for a value that cannot be written.
    serde_saphyr::to_string(&sorted).unwrap_or_else(|_| sorted.to_string())
}

/// `text` with a content type.
pub fn bytes(status: StatusCode, content_type: &'static str, text: Bytes) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(text)));
    *response.status_mut() = status;
    with_headers(response, content_type)
}

/// A JSON value.
pub fn json(status: StatusCode, value: &Value) -> Answer {
    object(status, Encoding::Json, value)
}

/// An object, which has its kind.
pub fn object(status: StatusCode, encoding: Encoding, object: &Value) -> Answer {
    bytes(status, encoding.media_type(), encoding.encode(object))
}

/// A plain text, for health checks and unknown paths.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    bytes(status, "text/plain; charset=utf-8", text.into())
}

/// A stream of watch frames.
pub fn stream(content_type: &'static str, frames: BoxStream<'static, Bytes>) -> Answer {
    use futures::StreamExt;
    let frames = frames.map(|bytes| Ok(Frame::data(bytes))).boxed();
    with_headers(Response::new(Either::Right(StreamBody::new(frames))), content_type)
}

fn with_headers(mut response: Answer, content_type: &'static str) -> Answer {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_has_sorted_keys_and_keeps_the_types() {
        let object = json!({ "kind": "K", "data": { "yes": "yes", "number": "1", "none": "~", "lines": "a\nb\n", "t": "true" },
            "apiVersion": "v1", "list": [{ "b": 1, "a": null }, [], {}], "float": 1.5, "empty": "" });
        let text = yaml(&object);
        assert!(text.starts_with("apiVersion: v1\n"), "{text}");
        let strict = serde_saphyr::options! { strict_booleans: true };
        let read: Value = serde_saphyr::from_str_with_options(&text, strict).unwrap();
        assert_eq!(read, object, "{text}");
    }
}
