//! Tokens of a pod's service account, asked for when they are needed.
//! Upstream: `pkg/kubelet/token/token_manager.go`; KEP-1205, and KEP-1855 for CSI drivers.

use std::time::Duration;

use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
    },
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};

use crate::volumes::PodRef;

/// A token is asked for anew at the latest after this time, and after this part of its life.
const OLDEST: Duration = Duration::from_secs(24 * 3600);
const RENEW_AT: f64 = 0.8;

/// A token to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenWish {
    /// Who it is meant for; none for the API server.
    pub audience: Option<String>,
    /// Seconds it is to live; none leaves it to the API server.
    pub expiration: Option<i64>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The token itself.
    pub text: String,
    /// When it expires, as Kubernetes spells times.
    pub expires: String,
    /// After which time another one should be asked for.
    pub renew: Duration,
}

/// The API server gave no token.
#[derive(Debug, thiserror::Error)]
#[error("failed to fetch token: {source}")]
pub struct TokenError {
    /// What it said.
    source: Box<kube::Error>,
}

/// Asks for a token that is valid as long as the pod exists.
pub(crate) async fn request(client: &Client, pod: &PodRef, wish: &TokenWish) -> Result<Bearer, TokenError> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), &pod.key.namespace);
    let account = if pod.service_account.is_empty() { "default" } else { &pod.service_account };
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(wish.audience.iter().cloned().collect()),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.key.name.clone()),
                uid: Some(pod.uid.to_string()),
            }),
            expiration_seconds: wish.expiration,
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(|source| TokenError { source: Box::new(source) })?;
    let status = answer.status.unwrap_or_default();
    let expires = status.expiration_timestamp.map(|time| time.0);
    Ok(Bearer {
        text: status.token.unwrap_or_default(),
        expires: expires.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default(),
        renew: expires.map_or(OLDEST, |expires| renew_after(Timestamp::now(), expires)),
    })
}

/// Upstream: `requiresRefresh`.
fn renew_after(now: Timestamp, expires: Timestamp) -> Duration {
    let life = Duration::try_from(expires.duration_since(now)).unwrap_or_default();
    life.mul_f64(RENEW_AT).min(OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_well_before_it_expires() {
        let now = Timestamp::now();
        let after = |seconds: u64| renew_after(now, now + Duration::from_secs(seconds));
        assert_eq!(after(3600), Duration::from_secs(2880));
        assert_eq!(after(7 * 24 * 3600), OLDEST);
        assert_eq!(renew_after(now, now - Duration::from_secs(1)), Duration::ZERO);
    }
}
