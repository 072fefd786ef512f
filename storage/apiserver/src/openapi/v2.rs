//! `/openapi/v2`: a document without paths and kinds.
//!
//! All kinds are in the documents of version 3. kubectl requests version 2 before it creates a kind that these do not
//! have, such as `List` (kubectl pkg/validation/schema.go, cli-runtime pkg/resource/query_param_verifier_v3.go), and
//! fails if there is none; with a document that does not have the kind either it continues without validation, and the
//! API server validates each object.

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use hyper::body::Bytes;
use serde_json::json;

use crate::response::{self, Answer};

/// The media type of [`DOCUMENT`]: `subTypeProtobuf` in kube-openapi, pkg/handler/handler.go.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// As client-go requests it (`subTypeProtobufDeprecated`); it could not parse a Content-Type with `@`.
const DEPRECATED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// gnostic openapiv2/OpenAPIv2.proto, message Document: 1 is swagger, 2 is info, with title (1) and version (2).
const DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x0f\x0a\x0aclaimcheck\x12\x010";

/// The document, in protobuf if the client accepts it.
pub fn document(headers: &HeaderMap) -> Answer {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.split(',').any(|clause| [PROTOBUF, DEPRECATED].contains(&clause.trim())) {
        return response::bytes(StatusCode::OK, PROTOBUF, Bytes::from_static(DOCUMENT));
    }
    let info = json!({ "title": "claimcheck", "version": "0" });
    let document = json!({ "swagger": "2.0", "info": info, "paths": {}, "definitions": {} });
    response::json(StatusCode::OK, &document)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// The numbers of the fields in a message with short fields, with their bytes.
    fn fields(mut message: &[u8]) -> Vec<(u8, &[u8])> {
        let mut found = Vec::new();
        while let [tag, length, rest @ ..] = message {
            assert_eq!(tag & 7, 2, "only fields with a length");
            let (value, rest) = rest.split_at(usize::from(*length));
            found.push((tag >> 3, value));
            message = rest;
        }
        assert!(message.is_empty());
        found
    }

    #[test]
    fn a_client_that_accepts_protobuf_gets_a_document_with_title_and_version() {
        let [(1, swagger), (2, info)] = fields(DOCUMENT)[..] else { panic!("{DOCUMENT:?}") };
        assert_eq!(swagger, b"2.0");
        assert_eq!(fields(info), [(1, &b"claimcheck"[..]), (2, &b"0"[..])]);
        for (accept, expected) in
            [(PROTOBUF, PROTOBUF), (DEPRECATED, PROTOBUF), ("application/json", "application/json")]
        {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(document(&headers).headers()["content-type"], expected);
        }
    }
}
