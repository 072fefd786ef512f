//! exec, attach and portforward, through a kubelet that accepts every upgrade and returns what it receives.

use http::Request;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Fixture, create, pod};
use crate::logs::{kubelet_with, receive_head};

/// A cluster with pod `p` on a node, the kubelet of which answers with this status line and text.
async fn fixture(status: &'static str, text: &'static str) -> Fixture {
    let port = kubelet_with(move |mut stream| async move {
        let head = receive_head(&mut stream).await;
        let answer = if status.starts_with("101") {
            format!(
                "HTTP/1.1 {status}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-protocol: v5.channel.k8s.io\r\n\r\n{head}"
            )
        } else {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len())
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..length]).await.unwrap();
        }
        let _ = stream.shutdown().await;
    })
    .await;
    let fixture = Fixture::start().await;
    create(&fixture.cluster::<Node>(), json!({ "metadata": { "name": "n" } })).await;
    let status = json!({
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
    });
    let merge = "application/merge-patch+json";
    fixture.accept("PATCH", "/api/v1/nodes/n/status", merge, &json!({ "status": status })).await;
    let mut placed = pod("p");
    placed["spec"]["nodeName"] = "n".into();
    create(&fixture.api::<Pod>(), placed).await;
    create(&fixture.api::<Pod>(), pod("unplaced")).await;
    fixture
}

fn request(method: &str, path: &str, upgrades: bool) -> Request<Body> {
    let request = Request::builder().method(method).uri(format!("/api/v1/namespaces/default/pods/{path}"));
    let headers = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ("cookie", "secret"),
    ];
    let headers = headers.into_iter().filter(|_| upgrades);
    let request = headers.fold(request, |request, (name, value)| request.header(name, value));
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn connections_are_copied_to_the_kubelet() {
    let fixture = fixture("101 Switching Protocols", "").await;
    for (method, path, expected) in [
        (
            "GET",
            "p/exec?command=sh&command=a%20b&stdout=true",
            "GET /exec/default/p/c?output=1&command=sh&command=a+b ",
        ),
        ("POST", "p/attach?container=c&stdin=true&tty=true", "POST /attach/default/p/c?input=1&tty=1 "),
        ("GET", "p/portforward?ports=80", "GET /portForward/default/p "),
    ] {
        let answer = fixture.client.send(request(method, path, true)).await.unwrap();
        assert_eq!(answer.status(), 101, "{path}");
        assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io", "{path}");
        let mut connection = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        connection.write_all(b"returned").await.unwrap();
        connection.shutdown().await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("\r\n\r\nreturned"), "{text}");
        let token = format!("authorization: Bearer {}\r\n", fixture.server.node_token());
        assert!(text.contains(&token) && !text.contains("cookie"), "{text}");
    }
}

async fn refusal(fixture: &Fixture, request: Request<Body>) -> (u16, String) {
    let answer = fixture.client.send(request).await.unwrap();
    let code = answer.status().as_u16();
    let status: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn requests_without_a_target_are_rejected() {
    let fixture = fixture("101 Switching Protocols", "").await;
    for (path, upgrades, code, message) in [
        ("p/exec?stdout=true", false, 400, "Upgrade request required"),
        ("p/exec?container=x", true, 400, "container x is not valid for pod p"),
        ("unplaced/attach", true, 400, "pod unplaced does not have a host assigned"),
        ("unplaced/portforward", true, 400, "pod unplaced does not have a host assigned"),
        ("absent/exec", true, 404, "pods \"absent\" not found"),
    ] {
        let found = refusal(&fixture, request("GET", path, upgrades)).await;
        assert_eq!(found, (code, message.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn errors_of_the_kubelet_are_reported() {
    for (status, code, message) in [
        ("400 Bad Request", 400, "the reason"),
        ("403 Forbidden", 400, "the reason"),
        (
            "500 Internal Server Error",
            500,
            "Internal error occurred: unable to upgrade connection: the reason",
        ),
    ] {
        let fixture = fixture(status, "the reason").await;
        let found = refusal(&fixture, request("GET", "p/exec?stdout=true", true)).await;
        assert_eq!(found, (code, message.to_owned()), "{status}");
    }
}
