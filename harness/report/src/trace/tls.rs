//! TLS to a collector: the same trust for HTTP and for gRPC.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A file without certificates.
#[derive(Debug, thiserror::Error)]
#[error("{} contains no usable certificate: pass a PEM file with the collector's CA", path.display())]
pub struct TlsError {
    path: PathBuf,
    #[source]
    source: Option<rustls::pki_types::pem::Error>,
}

/// The trusted certificates.
#[derive(Debug, Default)]
pub(super) struct Tls {
    /// In addition to those that this machine trusts.
    certificates: Vec<CertificateDer<'static>>,
}

impl Tls {
    /// The certificates of a file.
    pub(super) fn trusting(path: &Path) -> Result<Self, TlsError> {
        let failed = |source| TlsError { path: path.to_owned(), source };
        let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let certificates: Vec<_> = certificates.map_err(|error| failed(Some(error)))?;
        if certificates.is_empty() { Err(failed(None)) } else { Ok(Self { certificates }) }
    }

    /// The configuration of a client with these ALPN `protocols`.
    pub(super) fn config(&self, protocols: &[&[u8]]) -> Result<ClientConfig, rustls::Error> {
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
        let verifier = Verifier::new_with_extra_roots(self.certificates.clone(), provider.clone())?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}

/// Connects with TLS, for HTTP/2.
pub(super) async fn connect(
    config: Arc<ClientConfig>,
    address: Uri,
) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
    let host = address.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), address.port_u16().unwrap_or(443))).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    Ok(TokioIo::new(TlsConnector::from(config).connect(name, stream).await?))
}
