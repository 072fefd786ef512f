//! Requests to a node's kubelet: the logs of its containers, and connections to them.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, BodyStream, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum size of an error message, as upstream.
const REFUSAL_LIMIT: usize = 50_000;

/// Why a request to a kubelet failed.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// Its address cannot be reached.
    #[error("dial tcp {address}: {error}")]
    Connect {
        /// Its address.
        address: SocketAddr,
        /// The error of the kernel or of TLS.
        error: std::io::Error,
    },
    /// Its response is not valid HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The request is invalid.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The provider of cryptography has no usable version of TLS.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

/// A kubelet's response.
pub enum Reply {
    /// The text, as a stream.
    Text(BoxStream<'static, Bytes>),
    /// An error, with its code and text.
    Refused(StatusCode, String),
}

/// A kubelet's response to a request for an upgrade.
pub enum Upgrade {
    /// The headers of its response, and the connection.
    Accepted(HeaderMap, Upgraded),
    /// An error, with its code and text.
    Refused(StatusCode, String),
}

/// The body of requests.
type EmptyBody = Empty<Bytes>;

/// Sends `GET https://address/path` with `authorization` and streams the response.
///
/// # Errors
/// [`KubeletError`] if there is no response at all.
pub async fn get(address: SocketAddr, path: &Uri, authorization: &str) -> Result<Reply, KubeletError> {
    let (mut sender, connection) = connect(address).await?;
    // It ends with the stream below: when the caller disconnects, the kubelet's connection is closed too.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%address, %error, "connection to the kubelet ended");
        }
    });
    let request = Request::get(path.clone())
        .header(HOST, address.to_string())
        .header(AUTHORIZATION, authorization)
        .body(EmptyBody::new())?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        return Ok(Reply::Refused(response.status(), message(response.into_body()).await));
    }
    Ok(Reply::Text(text(response.into_body())))
}

/// Sends `request`, which requests an upgrade, to `https://address` with `authorization`.
///
/// # Errors
/// [`KubeletError`] if there is no response at all.
pub async fn upgrade(
    address: SocketAddr,
    request: Request<()>,
    authorization: &str,
) -> Result<Upgrade, KubeletError> {
    let (mut sender, connection) = connect(address).await?;
    // It ends with the upgrade, or with the response that refuses it.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%address, %error, "connection to the kubelet ended");
        }
    });
    let mut request = request.map(|()| EmptyBody::new());
    let value = |text: &str| HeaderValue::from_str(text).map_err(http::Error::from);
    request.headers_mut().insert(HOST, value(&address.to_string())?);
    request.headers_mut().insert(AUTHORIZATION, value(authorization)?);
    let mut response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Upgrade::Refused(response.status(), message(response.into_body()).await));
    }
    let headers = std::mem::take(response.headers_mut());
    Ok(Upgrade::Accepted(headers, hyper::upgrade::on(response).await?))
}

type Connected = (SendRequest<EmptyBody>, Connection<TokioIo<TlsStream<TcpStream>>, EmptyBody>);

async fn connect(address: SocketAddr) -> Result<Connected, KubeletError> {
    let failed = |error| KubeletError::Connect { address, error };
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    // As the client's connection: a key press is sent at once.
    stream.set_nodelay(true).map_err(failed)?;
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(settings()?).connect(name, stream).await.map_err(failed)?;
    Ok(hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?)
}

/// The text of an error.
async fn message(body: Incoming) -> String {
    match Limited::new(body, REFUSAL_LIMIT).collect().await {
        Ok(text) => String::from_utf8_lossy(&text.to_bytes()).trim_end().to_owned(),
        Err(error) => format!("its answer could not be read: {error}"),
    }
}

/// The data of a body until it ends, or the connection does: the status has been sent by then, so that the
/// error cannot be reported.
fn text(body: Incoming) -> BoxStream<'static, Bytes> {
    let frames = BodyStream::new(body).take_while(|frame| std::future::ready(frame.is_ok()));
    frames.filter_map(async |frame| frame.ok()?.into_data().ok()).boxed()
}

fn settings() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(AcceptAnyCertificate(provider.signature_verification_algorithms));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Accepts any certificate, as kube-apiserver does without `--kubelet-certificate-authority`: kubelets sign
/// their own. The peer must still prove possession of the certificate's key.
#[derive(Debug)]
struct AcceptAnyCertificate(WebPkiSupportedAlgorithms);

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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
