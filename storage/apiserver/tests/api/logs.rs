//! Logs, fetched from a kubelet that says what it was asked.

use std::sync::Arc;

use http::Request;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::LogParams;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::harness::{Fixture, create, pod, refusal};

/// Answers every request with `status` and, as text, the request's path and token.
async fn kubelet(status: &'static str) -> u16 {
    kubelet_with(move |mut stream| async move {
        let head = receive_head(&mut stream).await;
        let path = head.split(' ').nth(1).unwrap();
        let token = head.lines().find(|line| line.starts_with("authorization: ")).unwrap();
        let text = format!("{path}\n{token}\n");
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await
}

/// A connection of the API server.
pub type Connection = TlsStream<TcpStream>;

/// The head of a request.
pub async fn receive_head(stream: &mut Connection) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Listens with TLS, and serves one connection after the other; returns its port.
pub async fn kubelet_with<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(Connection) -> F + Send + Sync + 'static,
) -> u16 {
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![own.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = serve(acceptor.accept(stream).await.unwrap());
            answer.await;
        }
    });
    port
}

async fn with_kubelet(status: &'static str) -> Fixture {
    let fixture = Fixture::start().await;
    let nodes = fixture.cluster::<Node>();
    create(&nodes, json!({ "metadata": { "name": "n" } })).await;
    let status = json!({
        "addresses": [{ "type": "Hostname", "address": "n" }, { "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet(status).await } },
    });
    let merge = "application/merge-patch+json";
    fixture.accept("PATCH", "/api/v1/nodes/n/status", merge, &json!({ "status": status })).await;
    let mut placed = pod("p");
    placed["spec"]["nodeName"] = "n".into();
    create(&fixture.api::<Pod>(), placed).await;
    fixture
}

#[tokio::test]
async fn logs_come_from_the_kubelet() {
    let fixture = with_kubelet("200 OK").await;
    let options = LogParams { tail_lines: Some(3), previous: true, ..LogParams::default() };
    let text = fixture.api::<Pod>().logs("p", &options).await.unwrap();
    let expected = "/containerLogs/default/p/c?previous=true&tailLines=3";
    assert_eq!(text, format!("{expected}\nauthorization: Bearer {}\n", fixture.server.node_token()));
}

#[tokio::test]
async fn errors_of_the_kubelet_are_passed_on() {
    let fixture = with_kubelet("400 Bad Request").await;
    let error = fixture.api::<Pod>().logs("p", &LogParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"));
    assert!(status.message.starts_with("/containerLogs/default/p/c"), "{}", status.message);
}

#[tokio::test]
async fn missing_logs_are_errors() {
    let fixture = Fixture::start().await;
    let pods = fixture.api::<Pod>();
    create(&pods, pod("waiting")).await;
    let path = "/api/v1/namespaces/default/pods/waiting/log";
    let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
    assert_eq!(fixture.client.send(request).await.unwrap().status(), 204, "it is on no node yet");
    let mut lost = pod("lost");
    lost["spec"]["nodeName"] = "nowhere".into();
    create(&pods, lost).await;
    assert_eq!(refusal(pods.logs("lost", &LogParams::default()).await), (404, "NotFound".to_owned()));
    let other = LogParams { container: Some("other".to_owned()), ..LogParams::default() };
    assert_eq!(refusal(pods.logs("waiting", &other).await), (400, "BadRequest".to_owned()));
    let none = LogParams { limit_bytes: Some(0), ..LogParams::default() };
    assert_eq!(refusal(pods.logs("waiting", &none).await), (422, "Invalid".to_owned()));
}
