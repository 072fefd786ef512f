//! Authentication of clients: every user of the machine can connect to loopback, so a request must prove that
//! it comes from the API server.

use std::path::PathBuf;

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};

/// Accepted credentials. Without any, all requests are rejected.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Digests, so that the duration of a comparison reveals nothing about the token.
    token: Option<[u8; 32]>,
    /// A CA bundle for client certificates. A stock API server has one.
    pub client_ca: Option<PathBuf>,
}

impl Credentials {
    /// Accepts this bearer token, and client certificates of the CAs in this file.
    pub fn new(token: Option<&str>, client_ca: Option<PathBuf>) -> Self {
        Self { token: token.map(|token| Sha256::digest(token).into()), client_ca }
    }

    /// Whether the request carries the token.
    pub fn accept(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let sent: Option<[u8; 32]> = sent.map(|token| Sha256::digest(token).into());
        self.token.is_some() && sent == self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_accepted() {
        let rows = [
            (Some("secret"), Some("Bearer secret"), true),
            (Some("secret"), Some("Bearer secret2"), false),
            (Some("secret"), Some("Basic secret"), false),
            (Some("secret"), Some("Bearer "), false),
            (Some("secret"), None, false),
            (None, Some("Bearer secret"), false),
            (None, None, false),
        ];
        for (token, sent, expected) in rows {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(AUTHORIZATION, sent.parse().unwrap());
            }
            assert_eq!(Credentials::new(token, None).accept(&headers), expected, "{token:?} {sent:?}");
        }
    }
}
