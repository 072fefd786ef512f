//! Responses: JSON objects, plain texts and watch streams.

use std::convert::Infallible;

use futures::stream::BoxStream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::Value;

/// The body of a response: whole, or a stream of watch events.
pub type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

/// The response to a request.
pub type Answer = Response<Body>;

/// The media type of everything but health checks.
pub const JSON: &str = "application/json";

/// `text` with a content type.
pub fn bytes(status: StatusCode, content_type: &'static str, text: Bytes) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(text)));
    *response.status_mut() = status;
    with_headers(response, content_type)
}

/// A JSON value.
pub fn json(status: StatusCode, value: &Value) -> Answer {
    bytes(status, JSON, Bytes::from(value.to_string()))
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
