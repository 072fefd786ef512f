//! The certificates of one run: a CA generated at start, and certificates of an API server and its clients signed
//! by it.
//!
//! All are ECDSA P-256, because those keys are generated in well under a millisecond; RSA would cost more than
//! the rest of the start together. The CA's key never leaves the process.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::auth::AnyCertificate;

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
    /// Client certificates cannot be verified.
    #[error("could not set up the verification of client certificates of this run")]
    Clients(#[from] VerifierBuilderError),
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

/// A client certificate and its key, PEM.
pub struct ClientCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: String,
}

/// The CA of a run, with its key.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new CA.
    pub fn generate() -> Result<Self, TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "claimcheck-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// A server certificate valid for `address`, the loopback addresses and `localhost`, and its key.
    fn server(&self, address: IpAddr) -> Result<(String, String), TlsError> {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.distinguished_name.push(DnType::CommonName, "claimcheck-apiserver");
        for ip in [address, IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])] {
            params.subject_alt_names.push(SanType::IpAddress(ip));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.0)?.pem(), key.serialize_pem()))
    }

    /// A client certificate for `user`, and a member of `group`. More groups cannot be written by rcgen.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<ClientCertificate, TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?.pem();
        Ok(ClientCertificate { certificate, key: key.serialize_pem() })
    }

    /// Verifies client certificates that this CA signed.
    pub fn client_verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone())?;
        Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?)
    }
}

impl Certificates {
    /// Generates a CA, a server certificate valid for `address`, the loopback addresses and `localhost`, and a
    /// client certificate.
    ///
    /// # Errors
    /// A key or certificate could not be generated.
    pub fn generate(address: IpAddr) -> Result<Self, TlsError> {
        let authority = Authority::generate()?;
        let (certificate, key) = authority.server(address)?;
        let client = authority.client("kube-apiserver-kubelet-client", None)?;
        Ok(Self {
            ca: authority.0.pem(),
            certificate,
            key,
            client_certificate: client.certificate,
            client_key: client.key,
        })
    }
}

/// The server's TLS identity.
pub struct Identity {
    /// The CA certificate that clients trust, PEM.
    pub ca_pem: String,
    /// TLS settings of the listener, with ALPN for HTTP/2 and HTTP/1.1. Client certificates are optional.
    pub config: Arc<ServerConfig>,
    /// Verifies client certificates, after the handshake.
    pub clients: Arc<dyn ClientCertVerifier>,
    /// The CA.
    pub authority: Authority,
}

impl Identity {
    /// Generates a CA and a server certificate valid for `address`, the loopback addresses and `localhost`.
    pub fn generate(address: IpAddr) -> Result<Self, TlsError> {
        let authority = Authority::generate()?;
        let (certificate, key) = authority.server(address)?;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let clients = authority.client_verifier()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(AnyCertificate(clients.clone())))
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { ca_pem: authority.0.pem(), config: Arc::new(config), clients, authority })
    }
}

/// The provider is named rather than installed, so that an embedding program keeps its choice.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
