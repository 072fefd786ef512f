//! Indented JSON, for people: with `?pretty`, and for curl, Wget and browsers.
//!
//! Mirrors isPrettyPrint in apiserver pkg/endpoints/handlers/negotiation/negotiate.go, and Go's `json.Indent`.

use futures::FutureExt;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Bytes;
use serde_json::Value;

use crate::request::Query;
use crate::response::Answer;

/// The start of the names of programs that get indented JSON.
const AGENTS: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// Whether a client gets indented JSON.
pub fn is_requested(query: &Query, headers: &HeaderMap) -> bool {
    match query.get("pretty") {
        // Go's `strconv.ParseBool`.
        Some(given) => ["1", "t", "T", "true", "TRUE", "True"].contains(&given),
        None => {
            let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
            AGENTS.iter().any(|known| agent.starts_with(known))
        }
    }
}

/// The response with its JSON indented; one in another format, or a stream, as it is.
pub fn indent(mut answer: Answer) -> Answer {
    let is_json = answer.headers().get(CONTENT_TYPE).is_some_and(|given| given == "application/json");
    if let (true, Either::Left(body)) = (is_json, answer.body_mut()) {
        let text = std::mem::take(body).collect().now_or_never().and_then(Result::ok);
        let text = text.map(|text| text.to_bytes()).unwrap_or_default();
        *body = Full::new(indented(&text).unwrap_or(text));
    }
    answer
}

fn indented(text: &[u8]) -> Option<Bytes> {
    let value: Value = serde_json::from_slice(text).ok()?;
    serde_json::to_vec_pretty(&value).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};
    use serde_json::json;

    use super::*;
    use crate::response;

    #[test]
    fn who_gets_indented_json() {
        for (query, agent, expected) in [
            ("", "kubectl/v1.36.2", false),
            ("", "curl/8.0", true),
            ("", "Mozilla/5.0 (X11)", true),
            ("pretty=1", "kubectl", true),
            ("pretty=true", "kubectl", true),
            ("pretty=0", "curl/8.0", false),
            ("pretty=yes", "curl/8.0", false),
            ("pretty", "kubectl", false),
        ] {
            let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
            assert_eq!(is_requested(&Query::parse(Some(query)), &headers), expected, "{query} {agent}");
        }
    }

    #[test]
    fn only_json_is_indented() {
        let body = |answer: Answer| match answer.into_body() {
            Either::Left(body) => body.collect().now_or_never().unwrap().unwrap().to_bytes(),
            Either::Right(_) => panic!("a stream"),
        };
        let object = json!({ "b": { "c": [1, 2] }, "a": {}, "d": [] });
        let shown =
            "{\n  \"b\": {\n    \"c\": [\n      1,\n      2\n    ]\n  },\n  \"a\": {},\n  \"d\": []\n}";
        assert_eq!(body(indent(response::json(StatusCode::OK, &object))), shown);
        assert_eq!(body(indent(response::text(StatusCode::OK, "{\"a\":1}"))), "{\"a\":1}");
    }
}
