//! Responses: objects in JSON or protobuf, plain texts and watch streams.

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

/// The media type of Kubernetes' protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Encoding {
    /// The content type of an object.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => PROTOBUF,
        }
    }

    /// The content type of a stream of watch events.
    pub fn stream_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// An object, which has its kind.
    pub fn encode(self, object: &Value) -> Bytes {
        match self {
            Self::Json => Bytes::from(object.to_string()),
            Self::Protobuf => Bytes::from(protobuf::encode(object)),
        }
    }
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
pub fn text(status: StatusCode, text: &'static str) -> Answer {
    bytes(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
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
