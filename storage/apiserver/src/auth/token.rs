//! Authentication with the tokens of service accounts.
//!
//! Mirrors `JWTTokenAuthenticator` in pkg/serviceaccount/jwt.go and `Validate` in claims.go there. Tokens are
//! verified once and then remembered, as upstream does for ten seconds: here only the signature is, and
//! everything that may change is checked again with each request.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use super::user::{User, service_account, service_account_groups};
use crate::resources::Storage;
use crate::store::{Key, Object, Store};
use crate::time;
use crate::tokens::{ISSUER, Signer, VerifyError};

/// Tolerated difference between clocks, in seconds (`DefaultLeeway` of go-jose).
const LEEWAY: i64 = 60;

/// Maximum number of remembered tokens; when it is reached, all are forgotten.
const REMEMBERED: usize = 1024;

/// An object to which a token is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundKind {
    /// A pod of the account's namespace.
    Pod,
    /// A secret there.
    Secret,
    /// A node.
    Node,
}

impl fmt::Display for BoundKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "pod",
            Self::Secret => "secret",
            Self::Node => "node",
        })
    }
}

/// Why a token is not accepted, in upstream's words. They never contain the token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It was not issued by this server.
    #[error("invalid bearer token")]
    Foreign,
    /// It names an unknown key.
    #[error("invalid signature, no keys found")]
    UnknownKey,
    /// It was altered.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// It is meant for others.
    #[error("token audiences {given} is invalid for the target audiences {required}")]
    Audience {
        /// The token's audiences, as Go formats a list.
        given: String,
        /// The accepted ones.
        required: String,
    },
    /// Its lifetime is over.
    #[error("service account token has expired")]
    Expired,
    /// Its lifetime has not begun.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// It was issued later than now.
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    /// Its service account does not exist.
    #[error("serviceaccounts \"{0}\" not found")]
    AccountMissing(String),
    /// Its service account was deleted and created again.
    #[error("service account UID ({found}) does not match claim ({claimed})")]
    AccountUid {
        /// The present UID.
        found: String,
        /// The UID in the token.
        claimed: String,
    },
    /// Its service account is being deleted.
    #[error("service account {0}/{1} has been deleted")]
    AccountDeleted(String, String),
    /// The object to which it is bound does not exist, or is being deleted.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// The object to which it is bound was deleted and created again.
    #[error("{kind} UID ({found}) does not match service account {kind} ref claim ({claimed})")]
    BoundUid {
        /// The kind of the object.
        kind: BoundKind,
        /// The present UID.
        found: String,
        /// The UID in the token.
        claimed: String,
    },
}

/// An accepted token.
#[derive(Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its user.
    pub user: Arc<User>,
    /// Those of its audiences that were required.
    pub audiences: Vec<String>,
}

/// The claims of a token.
#[derive(Debug, Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Vec<String>,
    exp: Option<i64>,
    nbf: Option<i64>,
    iat: Option<i64>,
    #[serde(default)]
    jti: String,
    #[serde(rename = "kubernetes.io")]
    identity: Identity,
}

#[derive(Debug, Deserialize)]
struct Identity {
    namespace: String,
    serviceaccount: Reference,
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
}

/// An object with its UID, which may be unknown for the node of a pod.
#[derive(Debug, Deserialize)]
struct Reference {
    name: String,
    #[serde(default)]
    uid: String,
}

/// A token with a valid signature.
#[derive(Debug)]
struct Verified {
    claims: Claims,
    user: Arc<User>,
}

/// The tokens with a valid signature.
#[derive(Default)]
pub struct Tokens {
    verified: Mutex<HashMap<String, Arc<Verified>>>,
}

impl Tokens {
    /// The user of `token` at the time `now`, in seconds since 1970, if it is meant for one of `audiences`.
    ///
    /// # Errors
    /// [`TokenError`], the reason.
    pub fn authenticate(
        &self,
        signer: &Signer,
        store: &Store,
        token: &str,
        audiences: &[String],
        now: i64,
    ) -> Result<Accepted, TokenError> {
        let verified = self.verify(signer, token)?;
        let claims = &verified.claims;
        let implicit = [ISSUER.to_owned()];
        let given = if claims.aud.is_empty() { &implicit[..] } else { &claims.aud[..] };
        let both: Vec<String> = given.iter().filter(|given| audiences.contains(given)).cloned().collect();
        if both.is_empty() {
            return Err(TokenError::Audience { given: quoted(given), required: quoted(audiences) });
        }
        claims.check_time(now)?;
        claims.identity.check(store)?;
        Ok(Accepted { user: verified.user.clone(), audiences: both })
    }

    fn verify(&self, signer: &Signer, token: &str) -> Result<Arc<Verified>, TokenError> {
        let known = self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned();
        if let Some(verified) = known {
            return Ok(verified);
        }
        let claims = signer.verify(token).map_err(|error| match error {
            VerifyError::Foreign => TokenError::Foreign,
            VerifyError::UnknownKey => TokenError::UnknownKey,
            VerifyError::Signature => TokenError::Signature,
        })?;
        // This server signs nothing else.
        let claims: Claims = serde_json::from_value::<Claims>(claims).map_err(|_| TokenError::Foreign)?;
        let verified = Arc::new(Verified { user: Arc::new(claims.user()), claims });
        let mut remembered = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(token.to_owned(), verified.clone());
        Ok(verified)
    }
}

impl Claims {
    fn check_time(&self, now: i64) -> Result<(), TokenError> {
        if self.nbf.is_some_and(|begin| now + LEEWAY < begin) {
            return Err(TokenError::NotYetValid);
        }
        if self.exp.is_some_and(|end| now - LEEWAY > end) {
            return Err(TokenError::Expired);
        }
        match self.iat.is_some_and(|issued| now + LEEWAY < issued) {
            true => Err(TokenError::IssuedInFuture),
            false => Ok(()),
        }
    }

    /// Mirrors `ServiceAccountInfo.UserInfo` (apiserver pkg/authentication/serviceaccount/util.go).
    fn user(&self) -> User {
        let Identity { namespace, serviceaccount, pod, node, .. } = &self.identity;
        let mut extra = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
            }
        };
        if !self.jti.is_empty() {
            add("credential-id", &format!("JTI={}", self.jti));
        }
        if let Some(pod) = pod {
            add("pod-name", &pod.name);
            add("pod-uid", &pod.uid);
        }
        if let Some(node) = node {
            add("node-name", &node.name);
            add("node-uid", &node.uid);
        }
        let user = User {
            name: service_account(namespace, &serviceaccount.name),
            uid: serviceaccount.uid.clone(),
            groups: service_account_groups(namespace),
            extra,
        };
        user.authenticated()
    }
}

impl Identity {
    /// Whether the account and the object to which the token is bound still exist.
    fn check(&self, store: &Store) -> Result<(), TokenError> {
        let Reference { name, uid } = &self.serviceaccount;
        let account = store.get(Storage::ServiceAccounts, &Key::new(&self.namespace, name));
        let account = account.ok_or_else(|| TokenError::AccountMissing(name.clone()))?;
        if account.uid() != uid {
            let (found, claimed) = (account.uid().to_owned(), uid.clone());
            return Err(TokenError::AccountUid { found, claimed });
        }
        if is_deleted(&account) {
            return Err(TokenError::AccountDeleted(self.namespace.clone(), name.clone()));
        }
        // The node of a pod is only information.
        let node = self.node.as_ref().filter(|_| self.pod.is_none());
        for (kind, storage, bound) in [
            (BoundKind::Secret, Storage::Secrets, self.secret.as_ref()),
            (BoundKind::Pod, Storage::Pods, self.pod.as_ref()),
            (BoundKind::Node, Storage::Nodes, node),
        ] {
            let Some(bound) = bound else { continue };
            let namespace = if storage.namespaced() { self.namespace.as_str() } else { "" };
            let object = store.get(storage, &Key::new(namespace, &bound.name));
            let object = object.ok_or(TokenError::Invalidated)?;
            if object.uid() != bound.uid {
                let (found, claimed) = (object.uid().to_owned(), bound.uid.clone());
                return Err(TokenError::BoundUid { kind, found, claimed });
            }
            if is_deleted(&object) {
                return Err(TokenError::Invalidated);
            }
        }
        Ok(())
    }
}

/// Whether the deletion of an object was due a while ago.
fn is_deleted(object: &Object) -> bool {
    let due = object.value["metadata"]["deletionTimestamp"].as_str().and_then(time::seconds_since);
    due.is_some_and(|seconds| seconds > LEEWAY)
}

/// A list in Go's `%q`.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests;
