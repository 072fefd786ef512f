//! Tokens of service accounts: JSON Web Tokens signed with a key of this run (RFC 7519, RFC 8037).
//!
//! Drivers request them by `tokenRequests` and present them to their storage; `auth::token` accepts those for this
//! server. The claims mirror pkg/serviceaccount/claims.go.

use jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use rustls::SignatureScheme;
use rustls::pki_types::SignatureVerificationAlgorithm;
use serde_json::{Map, Value, json};

use crate::auth::service_account;
use crate::encoding::{base64_url, unbase64_url};
use crate::store::Object;

/// The issuer of tokens, and their default audience: this server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The minimum and maximum lifetime of a token, in seconds.
pub const LIFE: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// The signing key of tokens.
pub struct Signer {
    key: KeyPair,
    id: String,
    verification: &'static dyn SignatureVerificationAlgorithm,
}

/// Why a token was not signed with this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyError {
    /// It is not a token of this issuer.
    Foreign,
    /// It names another key.
    UnknownKey,
    /// The signature is wrong.
    Signature,
}

/// The signing key could not be generated, or does not sign.
#[derive(Debug, thiserror::Error)]
#[error("could not sign with the key of service account tokens")]
pub struct SignError(#[from] rcgen::Error);

impl Signer {
    /// A new key.
    pub fn generate() -> Result<Self, SignError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let id = base64_url(&key.der_bytes()[..12]);
        let known = rustls::crypto::ring::default_provider().signature_verification_algorithms.mapping;
        let found = known.iter().find(|(scheme, _)| *scheme == SignatureScheme::ED25519);
        let verification = *found.and_then(|(_, algorithms)| algorithms.first()).expect("ring has Ed25519");
        Ok(Self { key, id, verification })
    }

    /// The token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, SignError> {
        let header = json!({ "alg": "EdDSA", "kid": self.id });
        let part = |value: &Value| base64_url(value.to_string().as_bytes());
        let text = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(text.as_bytes())?;
        Ok(format!("{text}.{}", base64_url(&signature)))
    }

    /// The claims of a token that was signed with this key.
    ///
    /// Mirrors `AuthenticateToken` in pkg/serviceaccount/jwt.go, up to the issuer.
    ///
    /// # Errors
    /// [`VerifyError`], the reason.
    pub fn verify(&self, token: &str) -> Result<Value, VerifyError> {
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(VerifyError::Foreign);
        };
        let read = |part: &str| -> Option<Value> { serde_json::from_slice(&unbase64_url(part)?).ok() };
        let (signed, signature) = (&token[..header.len() + 1 + claims.len()], unbase64_url(signature));
        let (header, claims) = (read(header), read(claims));
        let (Some(header), Some(claims), Some(signature)) = (header, claims, signature) else {
            return Err(VerifyError::Foreign);
        };
        if claims["iss"] != ISSUER {
            return Err(VerifyError::Foreign);
        }
        if header["kid"] != self.id.as_str() {
            return Err(VerifyError::UnknownKey);
        }
        let verified =
            self.verification.verify_signature(self.key.der_bytes(), signed.as_bytes(), &signature);
        match verified {
            Ok(()) if header["alg"] == "EdDSA" => Ok(claims),
            _ => Err(VerifyError::Signature),
        }
    }

    /// The public key as a set (RFC 7517), for verification of tokens.
    pub fn key_set(&self) -> Value {
        let key = json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
            "kid": self.id, "x": base64_url(self.key.der_bytes()),
        });
        json!({ "keys": [key] })
    }
}

/// The claims of a token for a service account that is valid for `seconds` from now. `bound` has the objects with
/// which it ends.
pub fn claims(account: &Object, bound: Map<String, Value>, audiences: &[String], seconds: i64) -> Value {
    let (namespace, name) = (&*account.key.namespace, &*account.key.name);
    let issued = Timestamp::now().as_second();
    let mut identity = json!({
        "namespace": namespace,
        "serviceaccount": { "name": name, "uid": account.uid() },
    });
    for (kind, object) in bound {
        identity[kind] = object;
    }
    json!({
        "aud": audiences,
        "exp": issued + seconds,
        "iat": issued,
        "iss": ISSUER,
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": identity,
        "nbf": issued,
        "sub": service_account(namespace, name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_signed_with_the_key_are_verified() {
        let (signer, other) = (Signer::generate().unwrap(), Signer::generate().unwrap());
        let claims = json!({ "iss": ISSUER, "sub": "a" });
        let token = signer.sign(&claims).unwrap();
        assert_eq!(signer.verify(&token), Ok(claims.clone()));
        let parts: Vec<&str> = token.split('.').collect();
        let altered = base64_url(json!({ "iss": ISSUER, "sub": "b" }).to_string().as_bytes());
        let unsigned = base64_url(json!({ "alg": "none", "kid": signer.id }).to_string().as_bytes());
        for (token, expected) in [
            (other.sign(&claims).unwrap(), VerifyError::UnknownKey),
            (signer.sign(&json!({ "iss": "https://other" })).unwrap(), VerifyError::Foreign),
            (format!("{}.{altered}.{}", parts[0], parts[2]), VerifyError::Signature),
            (format!("{unsigned}.{}.{}", parts[1], parts[2]), VerifyError::Signature),
            (format!("{unsigned}.{}.", parts[1]), VerifyError::Signature),
            (format!("{}.{}", parts[0], parts[1]), VerifyError::Foreign),
            (format!("{token}.x"), VerifyError::Foreign),
            ("secret".to_owned(), VerifyError::Foreign),
            (String::new(), VerifyError::Foreign),
        ] {
            assert_eq!(signer.verify(&token), Err(expected));
        }
    }
}
