//! Protobuf as client-go uses it by default: bodies, negotiation of responses, and watch streams.

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::harness::Fixture;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const NAMESPACES: &str = "/api/v1/namespaces";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";

/// What `kubectl create namespace n` of 1.32 sends.
const NAMESPACE: &[u8] =
    b"k8s\0\n\x0f\n\x02v1\x12\tNamespace\x12\x1b\n\x13\n\x01n\x12\0\x1a\0\"\0*\x002\x008\0B\0\
    \x12\0\x1a\x02\n\0\x1a\0\"\0";

/// A response: its code, its content type, and its body.
struct Response {
    code: u16,
    content_type: String,
    body: Vec<u8>,
}

impl Response {
    /// Whether the body contains a string, which protobuf has as it is.
    fn contains(&self, text: &str) -> bool {
        self.body.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Sends a body in protobuf.
async fn send(fixture: &Fixture, method: &str, path: &str, accept: &str, body: &[u8]) -> Response {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let request = request.header("content-type", PROTOBUF).body(Body::from(body.to_vec())).unwrap();
    let response = fixture.client.send(request).await.unwrap();
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes().to_vec();
    Response { code, content_type, body }
}

async fn create_secret(fixture: &Fixture, name: &str) {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
    fixture.accept("POST", SECRETS, JSON, &secret).await;
}

#[tokio::test]
async fn a_body_in_protobuf_is_created_and_returned() {
    let fixture = Fixture::start().await;
    let created = send(&fixture, "POST", NAMESPACES, PROTOBUF, NAMESPACE).await;
    assert_eq!((created.code, created.content_type.as_str()), (201, PROTOBUF));
    assert!(created.body.starts_with(b"k8s\0") && created.contains("Active"));
    let path = format!("{NAMESPACES}/n");
    let read = fixture.accept("GET", &path, JSON, &Value::Null).await;
    assert_eq!(read["status"]["phase"], "Active");
    // What was returned can be sent back; nothing is lost.
    let updated = send(&fixture, "PUT", &path, PROTOBUF, &created.body).await;
    assert_eq!((updated.code, &updated.body), (200, &created.body));
    assert_eq!(fixture.accept("GET", &path, JSON, &Value::Null).await, read);
}

#[tokio::test]
async fn invalid_bodies_in_protobuf_are_rejected() {
    let fixture = Fixture::start().await;
    let snapshot = b"k8s\0\n\x2c\n\x1asnapshot.storage.k8s.io/v1\x12\x0eVolumeSnapshot";
    let table: [(&str, &[u8], u16, &str); 4] = [
        (NAMESPACES, b"\x08\x01", 400, "expected prefix [107 56 115 0]"),
        (NAMESPACES, &NAMESPACE[..20], 400, "not well-formed protobuf"),
        (SECRETS, NAMESPACE, 400, "cannot be handled as a Secret"),
        (SNAPSHOTS, snapshot, 400, "send JSON"),
    ];
    for (path, body, code, message) in table {
        let refused = send(&fixture, "POST", path, JSON, body).await;
        let status: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(refused.code, code, "{status}");
        assert!(status["message"].as_str().unwrap().contains(message), "{status}");
    }
}

#[tokio::test]
async fn preconditions_in_protobuf_are_checked() {
    let fixture = Fixture::start().await;
    create_secret(&fixture, "a").await;
    let path = format!("{SECRETS}/a");
    let options = |uid: &[u8]| {
        let kind = b"k8s\0\n\x13\n\x02v1\x12\x0dDeleteOptions\x12";
        let lengths = [uid.len() + 4, uid.len() + 2, uid.len()].map(|length| u8::try_from(length).unwrap());
        let [message, preconditions, length] = lengths;
        [&kind[..], &[message, 0x12, preconditions, 0x0a, length], uid].concat()
    };
    let refused = send(&fixture, "DELETE", &path, PROTOBUF, &options(b"another")).await;
    assert_eq!((refused.code, refused.content_type.as_str()), (409, PROTOBUF));
    assert!(refused.contains("Failure") && refused.contains("the UID in the precondition (another)"));
    let secret = fixture.accept("GET", &path, JSON, &Value::Null).await;
    let uid = secret["metadata"]["uid"].as_str().unwrap();
    let deleted = send(&fixture, "DELETE", &path, PROTOBUF, &options(uid.as_bytes())).await;
    assert_eq!(deleted.code, 200);
    assert!(deleted.contains("Success") && deleted.contains(uid));
}

#[tokio::test]
async fn the_first_supported_response_is_chosen() {
    let fixture = Fixture::start().await;
    create_secret(&fixture, "a").await;
    let as_kind = |media_type: &str, kind: &str| format!("{media_type};as={kind};g=meta.k8s.io;v=v1");
    let metadata = as_kind(PROTOBUF, "PartialObjectMetadataList");
    let table = as_kind(PROTOBUF, "Table");
    let stream = "application/vnd.kubernetes.protobuf;stream=watch";
    let watch = format!("{SECRETS}?watch=1&timeoutSeconds=1");
    let missing = format!("{SECRETS}/missing");
    for (path, accept, code, content_type) in [
        (SECRETS, format!("{PROTOBUF},{JSON}"), 200, PROTOBUF),
        (SECRETS, format!("{JSON},{PROTOBUF}"), 200, JSON),
        (SECRETS, format!("{JSON};q=0.5, {PROTOBUF}"), 200, PROTOBUF),
        (SECRETS, format!("*/*,{PROTOBUF}"), 200, PROTOBUF),
        // go-restful knows no ranges of subtypes.
        (SECRETS, "application/*".to_owned(), 406, JSON),
        (SECRETS, metadata.clone(), 200, PROTOBUF),
        // Tables have no protobuf.
        (SECRETS, format!("{table},{JSON}"), 200, JSON),
        (SECRETS, "application/yaml".to_owned(), 200, YAML),
        (SECRETS, format!("{table},{YAML}"), 200, YAML),
        (SECRETS, "application/json;as=Table".to_owned(), 406, JSON),
        (SECRETS, "application/cbor".to_owned(), 406, JSON),
        (missing.as_str(), YAML.to_owned(), 404, YAML),
        // There are no streams of YAML.
        (watch.as_str(), YAML.to_owned(), 406, YAML),
        ("/api", YAML.to_owned(), 200, YAML),
        ("/apis", "text/html".to_owned(), 406, JSON),
        (watch.as_str(), PROTOBUF.to_owned(), 200, stream),
        (watch.as_str(), stream.to_owned(), 200, stream),
        (watch.as_str(), format!("{PROTOBUF};stream=other"), 406, JSON),
        // A `Status` has protobuf, but no metadata only.
        (missing.as_str(), PROTOBUF.to_owned(), 404, PROTOBUF),
        (missing.as_str(), format!("{metadata},{JSON}"), 404, JSON),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", PROTOBUF.to_owned(), 200, PROTOBUF),
        // Kinds of CRDs have no protobuf, except for their metadata.
        (SNAPSHOTS, format!("{PROTOBUF},{JSON}"), 200, JSON),
        (SNAPSHOTS, metadata.clone(), 200, PROTOBUF),
        (SNAPSHOTS, PROTOBUF.to_owned(), 406, PROTOBUF),
    ] {
        let response = send(&fixture, "GET", path, &accept, b"").await;
        assert_eq!((response.code, response.content_type.as_str()), (code, content_type), "{path}: {accept}");
    }
}

#[tokio::test]
async fn a_watch_in_protobuf_is_a_sequence_of_frames() {
    let fixture = Fixture::start().await;
    for name in ["first", "second"] {
        create_secret(&fixture, name).await;
    }
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{SECRETS}?watch=1&timeoutSeconds=1&{initial}");
    let events = send(&fixture, "GET", &path, PROTOBUF, b"").await;
    let mut rest = &events.body[..];
    for (event, text) in [
        ("\x0a\x05ADDED\x12", "first"),
        ("\x0a\x05ADDED\x12", "second"),
        ("\x0a\x08BOOKMARK\x12", "k8s.io/initial-events-end"),
    ] {
        let (length, after) = rest.split_first_chunk().unwrap();
        let (frame, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        rest = after;
        let frame = Response { code: 200, content_type: String::new(), body: frame.to_vec() };
        assert!(frame.body.starts_with(event.as_bytes()), "{:?}", frame.body);
        assert!(frame.contains("k8s\0") && frame.contains("Secret") && frame.contains(text), "{text}");
    }
    assert_eq!(rest, b"", "nothing follows");
    let forms = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let events = send(&fixture, "GET", &path, &forms, b"").await;
    assert!(events.contains("PartialObjectMetadata") && !events.contains("Opaque"));
}
