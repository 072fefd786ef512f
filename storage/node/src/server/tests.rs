//! Authentication of clients, over real connections.

use std::{path::Path, sync::Arc};

use claimcheck_apiserver::Certificates;
use claimcheck_informer::{Informer, KindSet, Options};
use http::{Request, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use kube::Client;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::{layout::Layout, testing::FakeRuntime};

/// A server that lets the token `secret` in, and certificates of the CA in a file.
async fn start(client_ca: Option<&Path>) -> u16 {
    let credentials = Credentials::new(Some("secret"), client_ca.map(Path::to_owned));
    let server = Server::listen("n", "127.0.0.1", credentials).await.unwrap();
    let port = server.port();
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let informer = Informer::start(Client::try_from(config).unwrap(), KindSet::of(&[]), &Options::default());
    let logs = Logs { informer, runtime: Arc::new(FakeRuntime::default()), layout: Layout::new("/none") };
    tokio::spawn(server.run(logs));
    port
}

/// Sends a request; what is said to it, or none where there is no connection.
async fn send(
    port: u16,
    request: Request<Empty<Bytes>>,
    certificate: Option<&Certificates>,
) -> Option<(StatusCode, String)> {
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
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.ok()?;
    let status = answer.status();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    Some((status, String::from_utf8(text.to_vec()).unwrap()))
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
