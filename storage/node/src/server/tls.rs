//! The server's side of TLS: a self-signed certificate, like that of a kubelet without a configured one.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer,
        pem::{self, PemObject},
    },
    server::{VerifierBuilderError, WebPkiClientVerifier},
};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key or certificate cannot be generated.
    #[error("the certificate of the node's server cannot be generated")]
    Certificate(#[from] rcgen::Error),
    /// rustls rejects the certificate.
    #[error("the certificate of the node's server cannot be used")]
    Config(#[from] rustls::Error),
    /// The file of client CAs cannot be read.
    #[error("--client-ca-file {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The file of client CAs is not valid.
    #[error("--client-ca-file {} is not a PEM file of certificates", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: pem::Error,
    },
    /// The client CAs are invalid.
    #[error("the certificates in --client-ca-file {} cannot be used", path.display())]
    Verifier {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: VerifierBuilderError,
    },
}

/// Settings of a listener at `ip`. A client certificate is optional; if present, one of the CAs must have
/// signed it. ECDSA P-256, because such a key is generated in well under a millisecond.
///
/// # Errors
/// See [`TlsError`].
pub fn settings(node: &str, ip: IpAddr, client_ca: Option<&Path>) -> Result<ServerConfig, TlsError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([node.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, node);
    params.subject_alt_names.push(SanType::IpAddress(ip));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(&key)?;
    // The provider is named here rather than installed, so that an embedding program keeps its choice.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            let verifier = verifier.allow_unauthenticated().build();
            builder.with_client_cert_verifier(
                verifier.map_err(|source| TlsError::Verifier { path: path.to_owned(), source })?,
            )
        }
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(builder.with_single_cert(vec![certificate.der().clone()], key)?)
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let text = fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
        roots.add(certificate)?;
    }
    Ok(roots)
}
