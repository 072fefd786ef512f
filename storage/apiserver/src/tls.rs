//! The certificates of one run: a CA generated at start, and certificates of an API server signed by it.
//!
//! All are ECDSA P-256, because those keys are generated in well under a millisecond; RSA would cost more than
//! the rest of the start together. The CA's key is dropped after signing.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why no TLS identity could be generated.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key or certificate could not be generated.
    #[error("could not make the certificates of this run")]
    Certificate(#[from] rcgen::Error),
    /// A generated certificate cannot be parsed.
    #[error("could not read the certificates of this run")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// rustls rejects the certificate.
    #[error("could not set up TLS with the certificate of this run")]
    Config(#[from] rustls::Error),
}

/// A CA generated for one run, and an API server's certificates and keys signed by it, all of them PEM.
pub struct Certificates {
    /// The CA's certificate, which clients trust.
    pub ca: String,
    /// The server's certificate.
    pub certificate: String,
    /// The server's key, PKCS #8.
    pub key: String,
    /// The client certificate for kubelets.
    pub client_certificate: String,
    /// Its key, PKCS #8.
    pub client_key: String,
}

impl Certificates {
    /// Generates a CA, a server certificate valid for `address`, the loopback addresses and `localhost`, and a
    /// client certificate.
    ///
    /// # Errors
    /// A key or certificate could not be generated.
    pub fn generate(address: IpAddr) -> Result<Self, TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "claimcheck-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.distinguished_name.push(DnType::CommonName, "claimcheck-apiserver");
        for ip in [address, IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])] {
            params.subject_alt_names.push(SanType::IpAddress(ip));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &ca)?;

        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client_key = KeyPair::generate()?;
        let client_certificate = params.signed_by(&client_key, &ca)?;
        Ok(Self {
            ca: ca.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            client_certificate: client_certificate.pem(),
            client_key: client_key.serialize_pem(),
        })
    }
}

/// The server's TLS identity.
pub struct Identity {
    /// The CA certificate that clients trust, PEM.
    pub ca_pem: String,
    /// TLS settings of the listener, with ALPN for HTTP/2 and HTTP/1.1.
    pub config: Arc<ServerConfig>,
}

impl Identity {
    /// Generates a CA and a server certificate valid for `address`, the loopback addresses and `localhost`.
    pub fn generate(address: IpAddr) -> Result<Self, TlsError> {
        let made = Certificates::generate(address)?;
        let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes())?;
        // The provider is named here rather than installed, so that an embedding program keeps its choice.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { ca_pem: made.ca, config: Arc::new(config) })
    }
}
