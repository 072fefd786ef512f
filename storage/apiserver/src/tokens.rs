//! Tokens of service accounts: JSON Web Tokens signed with a key of this run (RFC 7519, RFC 8037).
//!
//! Drivers request them by `tokenRequests` and present them to their storage. This server itself only accepts
//! the token of the kubeconfig.

use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};

use crate::encoding::base64_url;

/// The signing key of tokens.
pub struct Signer {
    key: KeyPair,
    id: String,
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
        Ok(Self { key, id })
    }

    /// The token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, SignError> {
        let header = json!({ "alg": "EdDSA", "kid": self.id });
        let part = |value: &Value| base64_url(value.to_string().as_bytes());
        let text = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(text.as_bytes())?;
        Ok(format!("{text}.{}", base64_url(&signature)))
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
