//! Authentication with a client certificate: its common name is the user, its organizations are the groups.
//!
//! Mirrors apiserver pkg/authentication/request/x509. As there, the handshake accepts any certificate, or none; a
//! certificate that another CA signed is an error of the requests, unless they have another credential. It is
//! verified once per connection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::User;

/// The common name in a subject: 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// An organization in a subject: 2.5.4.10.
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// The certificate that the client of a connection presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The run's CA signed it for this user.
    Trusted(Arc<User>),
    /// It is not valid.
    Untrusted,
}

impl Peer {
    /// The user of the certificates of a connection, if there are any and the first has a common name.
    pub fn of(trusted: &dyn ClientCertVerifier, presented: Option<&[CertificateDer<'_>]>) -> Option<Self> {
        let (certificate, intermediates) = presented?.split_first()?;
        if trusted.verify_client_cert(certificate, intermediates, UnixTime::now()).is_err() {
            return Some(Self::Untrusted);
        }
        user(certificate).map(|user| Self::Trusted(Arc::new(user)))
    }
}

/// Accepts any certificate, or none, if the client has its key.
pub struct AnyCertificate(pub Arc<dyn ClientCertVerifier>);

impl fmt::Debug for AnyCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyCertificate")
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The user of a verified certificate; `None` without a common name.
fn user(certificate: &[u8]) -> Option<User> {
    let (mut name, mut groups) = (String::new(), Vec::new());
    for (kind, text) in subject(certificate)? {
        match kind {
            COMMON_NAME => name = text,
            ORGANIZATION => groups.push(text),
            _ => {}
        }
    }
    let credential = vec![format!("X509SHA256={}", claimcheck_model::sha256(certificate))];
    let extra = BTreeMap::from([("authentication.kubernetes.io/credential-id".to_owned(), credential)]);
    (!name.is_empty()).then(|| User { name, groups, extra, ..User::default() }.authenticated())
}

/// The attributes of a certificate's subject (RFC 5280, section 4.1), each with its encoded identifier.
fn subject(certificate: &[u8]) -> Option<Vec<(&[u8], String)>> {
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    let (_, mut sets, _) = element(fields)?;
    let mut attributes = Vec::new();
    while !sets.is_empty() {
        let (_, mut set, rest) = element(sets)?;
        sets = rest;
        while !set.is_empty() {
            let (_, attribute, rest) = element(set)?;
            set = rest;
            let (_, kind, value) = element(attribute)?;
            let (_, value, _) = element(value)?;
            attributes.push((kind, String::from_utf8_lossy(value).into_owned()));
        }
    }
    Some(attributes)
}

/// The first element of `bytes` in DER: its tag, its content, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, bytes) = bytes.split_first()?;
    let (&first, bytes) = bytes.split_first()?;
    let (length, bytes) = match first {
        0..=0x7f => (usize::from(first), bytes),
        0x81..=0x84 => {
            let (digits, bytes) = bytes.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), bytes)
        }
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::tls::Authority;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let mut bytes = vec![tag];
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => bytes.push(short),
            _ => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        bytes.extend_from_slice(content);
        bytes
    }

    fn certificate(attributes: &[(&[u8], &str)]) -> Vec<u8> {
        let attribute = |(kind, text): &(&[u8], &str)| {
            let both = [der(6, kind), der(0x0c, text.as_bytes())].concat();
            der(0x31, &der(0x30, &both))
        };
        let subject: Vec<u8> = attributes.iter().flat_map(attribute).collect();
        let fields = [
            der(0xa0, &der(2, &[2])),
            der(2, &[1]),
            der(0x30, &[]),
            der(0x30, &[]),
            der(0x30, &[]),
            der(0x30, &subject),
            der(0x30, &[0; 300]),
        ];
        der(0x30, &der(0x30, &fields.concat()))
    }

    #[test]
    fn subjects_are_users() {
        let country: &[u8] = &[0x55, 4, 6];
        let found = user(&certificate(&[
            (country, "DE"),
            (ORGANIZATION, "dev"),
            (COMMON_NAME, "jane"),
            (ORGANIZATION, "ops"),
        ]));
        let found = found.unwrap();
        assert_eq!(
            (&found.name[..], &found.groups[..]),
            ("jane", &["dev", "ops", "system:authenticated"].map(str::to_owned)[..])
        );
        let credential = &found.extra["authentication.kubernetes.io/credential-id"][0];
        assert!(credential.starts_with("X509SHA256=") && credential.len() == 11 + 64, "{credential}");
        assert_eq!(user(&certificate(&[(ORGANIZATION, "dev")])), None);
    }

    #[test]
    fn truncated_certificates_have_no_user() {
        let whole = certificate(&[(COMMON_NAME, "jane")]);
        assert!(user(&whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(user(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn only_the_ca_of_the_run_is_trusted() {
        let (own, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
        let verifier = own.client_verifier().unwrap();
        let peer = |authority: &Authority, group: Option<&str>| {
            let issued = authority.client("jane", group).unwrap();
            let presented = [CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
            Peer::of(&*verifier, Some(&presented[..]))
        };
        let Some(Peer::Trusted(user)) = peer(&own, Some("dev")) else { panic!("it is trusted") };
        assert_eq!((&user.name[..], &user.groups[0][..]), ("jane", "dev"));
        assert_eq!(peer(&other, None), Some(Peer::Untrusted));
        assert_eq!(Peer::of(&*verifier, None), None);
    }
}
