//! Authentication of clients, and upgrades, over real connections.

use std::{path::Path, sync::Arc};

use claimcheck_apiserver::Certificates;
use claimcheck_informer::{Informer, KindSet, Options};
use claimcheck_runtime::ContainerSpec;
use futures::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use super::*;
use crate::{layout::Layout, testing::FakeRuntime};

/// A server that lets the token `secret` in, and certificates of the CA in a file.
async fn start(client_ca: Option<&Path>) -> u16 {
    let credentials = Credentials::new(Some("secret"), client_ca.map(Path::to_owned));
    let server = Server::listen("n", "127.0.0.1", credentials).await.unwrap();
    let port = server.port();
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let informer = Informer::start(Client::try_from(config).unwrap(), KindSet::of(&[]), &Options::default());
    let runtime = FakeRuntime::default();
    let spec = ContainerSpec { id: "u/c/0".to_owned(), ..ContainerSpec::default() };
    runtime.start(spec).await.unwrap();
    for (name, uid) in [("runs", "u"), ("waits", "v")] {
        let pod = json!({
            "metadata": { "name": name, "namespace": "n", "uid": uid, "resourceVersion": "1" },
            "spec": { "containers": [{ "name": "c" }] },
        });
        informer.apply(serde_json::from_value::<Pod>(pod).unwrap());
    }
    let logs = Logs { informer, runtime: Arc::new(runtime), layout: Layout::new("/none") };
    tokio::spawn(server.run(logs));
    port
}

/// Sends a request; the code and text of its response, or none where there is no connection.
async fn send(
    port: u16,
    request: Request<Empty<Bytes>>,
    certificate: Option<&Certificates>,
) -> Option<(StatusCode, String)> {
    let answer = request_to(port, request, certificate).await?;
    let status = answer.status();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    Some((status, String::from_utf8(text.to_vec()).unwrap()))
}

async fn request_to(
    port: u16,
    request: Request<Empty<Bytes>>,
    certificate: Option<&Certificates>,
) -> Option<Response<Incoming>> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate));
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some(made) => {
            let certificate = CertificateDer::from_pem_slice(made.client_certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(made.client_key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.ok()
}

fn get(path: &str, authorization: Option<&str>) -> Request<Empty<Bytes>> {
    let request = Request::get(path);
    let request =
        authorization.into_iter().fold(request, |request, sent| request.header(AUTHORIZATION, sent));
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn only_requests_with_the_token_are_accepted() {
    let port = start(None).await;
    let rows = [
        (get("/healthz", Some("Bearer secret")), (StatusCode::OK, "ok")),
        (get("/healthz", Some("Bearer other")), (StatusCode::UNAUTHORIZED, "Unauthorized")),
        (get("/healthz", None), (StatusCode::UNAUTHORIZED, "Unauthorized")),
        (get("/containerLogs/n/p/c", None), (StatusCode::UNAUTHORIZED, "Unauthorized")),
        (get("/pods", Some("Bearer secret")), (StatusCode::NOT_FOUND, "404: Page Not Found")),
        (get("/containerLogs/n/p", Some("Bearer secret")), (StatusCode::NOT_FOUND, "404: Page Not Found")),
        (
            get("/containerLogs/n/p/c", Some("Bearer secret")),
            (StatusCode::NOT_FOUND, "pod \"p\" does not exist"),
        ),
        (
            get("/containerLogs/n/p/c?tailLines=x", Some("Bearer secret")),
            (StatusCode::BAD_REQUEST, "{\"message\": \"Unable to decode query.\"}"),
        ),
        (
            get("/containerLogs/n/p/c?limitBytes=0", Some("Bearer secret")),
            (StatusCode::UNPROCESSABLE_ENTITY, "{\"message\": \"Invalid request.\"}"),
        ),
        (
            Request::post("/healthz").header(AUTHORIZATION, "Bearer secret").body(Empty::new()).unwrap(),
            (StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
        ),
    ];
    for (request, (status, text)) in rows {
        let shown = format!("{request:?}");
        assert_eq!(send(port, request, None).await, Some((status, text.to_owned())), "{shown}");
    }
}

#[tokio::test]
async fn a_certificate_of_the_named_ca_stands_in_for_the_token() {
    let trusted = Certificates::generate([127, 0, 0, 1].into()).unwrap();
    let others = Certificates::generate([127, 0, 0, 1].into()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &trusted.ca).unwrap();
    let port = start(Some(file.path())).await;
    let code = async |token, certificate| {
        send(port, get("/healthz", token), certificate).await.map(|(status, _)| status.as_u16())
    };
    assert_eq!(code(None, Some(&trusted)).await, Some(200));
    assert_eq!(code(Some("Bearer secret"), None).await, Some(200));
    assert_eq!(code(None, None).await, Some(401));
    assert_eq!(code(Some("Bearer secret"), Some(&others)).await, None);
}

/// A request for WebSocket messages.
fn websocket(path: &str, protocol: &str) -> Request<Empty<Bytes>> {
    let mut request = get(path, Some("Bearer secret"));
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", protocol),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn programs_are_executed_over_websocket() {
    let port = start(None).await;
    let script = "input=1&output=1&error=1&command=sh&command=-c&command=cat;echo+bad%3E%262;exit+3";
    let request = websocket(&format!("/exec/n/runs/c?{script}"), "v5.channel.k8s.io, v4.channel.k8s.io");
    let answer = request_to(port, request, None).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    let connection = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, None).await;
    for message in [&b"\0some "[..], b"\0text", b"\xff\0"] {
        socket.send(Message::Binary(message.to_vec().into())).await.unwrap();
    }
    let mut received: [Vec<u8>; 4] = Default::default();
    let mut code = None;
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Binary(data) => received[usize::from(data[0])].extend_from_slice(&data[1..]),
            Message::Close(frame) => code = frame.map(|frame| u16::from(frame.code)),
            _ => {}
        }
    }
    let [_, stdout, stderr, status] = received;
    assert_eq!((&*stdout, &*stderr, code), (&b"some text"[..], &b"bad\n"[..], Some(1000)));
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["reason"], "NonZeroExitCode", "{status}");
    assert_eq!(status["details"]["causes"], json!([{ "reason": "ExitCode", "message": "3" }]));
}

#[tokio::test]
async fn a_program_has_the_terminal_of_its_client() {
    let port = start(None).await;
    let path = "/exec/n/runs/c?input=1&output=1&tty=1&command=sh&command=-c&command=read+x;stty+size";
    let answer = request_to(port, websocket(path, "v4.channel.k8s.io"), None).await.unwrap();
    let connection = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, None).await;
    for message in [&b"\x04{\"Width\":100,\"Height\":40}"[..], b"\0\n"] {
        socket.send(Message::Binary(message.to_vec().into())).await.unwrap();
    }
    let mut received: [Vec<u8>; 4] = Default::default();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(data) = message {
            received[usize::from(data[0])].extend_from_slice(&data[1..]);
        }
    }
    let text = |channel: usize| String::from_utf8(received[channel].clone()).unwrap();
    assert!(text(1).contains("40 100"), "{:?}", text(1));
    assert!(text(3).contains("Success"), "{:?}", text(3));
}

#[tokio::test]
async fn requests_that_cannot_be_upgraded_are_rejected() {
    let port = start(None).await;
    let plain = |path: &str| get(path, Some("Bearer secret"));
    let v5 = |path: &str| websocket(path, "v5.channel.k8s.io");
    let old = "unable to upgrade: unable to negotiate protocol: client supports [channel.k8s.io], \
               server accepts [v5.channel.k8s.io v4.channel.k8s.io]";
    let rows = [
        (plain("/exec/n/runs/c?output=1"), 400, "Upgrade request required"),
        (v5("/exec/n/runs/c?command=sh"), 400, "you must specify at least 1 of stdin, stdout, stderr"),
        (v5("/exec/n/runs/d?output=1"), 500, "container not found (\"d\")"),
        (v5("/attach/n/waits/c?output=1"), 500, "container not found (\"c\")"),
        (v5("/exec/n/absent/c?output=1"), 404, "pod \"absent\" does not exist"),
        (v5("/exec/n/runs?output=1"), 404, "404: Page Not Found"),
        (v5("/portForward/n/waits"), 500, "pod not found (\"waits_n\")"),
        (websocket("/exec/n/runs/c?output=1", "channel.k8s.io"), 403, old),
        (get("/exec/n/runs/c?output=1", None), 401, "Unauthorized"),
    ];
    for (request, code, text) in rows {
        let shown = format!("{request:?}");
        let status = StatusCode::from_u16(code).unwrap();
        assert_eq!(send(port, request, None).await, Some((status, text.to_owned())), "{shown}");
    }
}

#[tokio::test]
async fn an_unusable_address_is_reported() {
    let refusal = async |ip: &str, ca: Option<&Path>| {
        let credentials = Credentials::new(None, ca.map(Path::to_owned));
        Server::listen("n", ip, credentials).await.err().unwrap().to_string()
    };
    assert_eq!(refusal("here", None).await, "--node-ip \"here\" is not an IP address");
    assert!(refusal("192.0.2.1", None).await.contains("choose a --node-ip that this machine has"));
    let none = Path::new("/no/such/file");
    assert_eq!(refusal("127.0.0.1", Some(none)).await, "--client-ca-file /no/such/file cannot be read");
}

/// Takes any server for the right one: what is tried here is who the server takes.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
