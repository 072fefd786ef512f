//! Tokens of a pod's service account, requested when they are needed.
//! Upstream: `pkg/kubelet/token/token_manager.go`; KEP-1205, and KEP-1855 for CSI drivers.

use std::time::Duration;

use claimcheck_informer::response;
use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
    },
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};

use crate::volumes::PodRef;

/// A token is renewed at the latest after this time, and after this fraction of its lifetime.
const OLDEST: Duration = Duration::from_secs(24 * 3600);
const RENEW_AT: f64 = 0.8;

/// A token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenSpec {
    /// Its audience; `None` for the API server.
    pub audience: Option<String>,
    /// Its lifetime in seconds; `None` for the API server's default.
    pub expiration: Option<i64>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The token itself.
    pub text: String,
    /// Its expiry time in Kubernetes' format.
    pub expires: String,
    /// The time after which it must be renewed.
    pub renew: Duration,
}

/// The API server did not issue the token.
#[derive(Debug, thiserror::Error)]
#[error("failed to fetch token: {}", response::message(source))]
pub struct TokenError {
    /// The API server's error.
    source: Box<kube::Error>,
}

/// Requests a token that is bound to the pod.
pub(crate) async fn request(
    client: &Client,
    pod: &PodRef,
    token_spec: &TokenSpec,
) -> Result<Bearer, TokenError> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), &pod.key.namespace);
    let account = if pod.service_account.is_empty() { "default" } else { &pod.service_account };
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(token_spec.audience.iter().cloned().collect()),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.key.name.clone()),
                uid: Some(pod.uid.to_string()),
            }),
            expiration_seconds: token_spec.expiration,
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
    use std::sync::{Arc, Mutex};

    use claimcheck_model::ObjectKey;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tonic::codegen::http::{Request, Response};

    use super::*;

    /// The paths and bodies of requests.
    type Requests = Arc<Mutex<Vec<(String, Value)>>>;

    /// A client of an API server that answers every request so; what it is asked is kept.
    fn client(answer: Value) -> (Client, Requests) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (kept, answer) = (kept.clone(), answer.to_string());
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect_bytes().await.map_err(std::io::Error::other)?;
                kept.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
                Ok::<_, std::io::Error>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn a_token_is_bound_to_its_pod_and_meant_for_its_audience() {
        let status = json!({"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"});
        let (client, asked) = client(json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {
                "audiences": []}, "status": status,
        }));
        let pod = PodRef { key: ObjectKey::new("ns", "p"), uid: "u".into(), service_account: "robot".into() };
        let token_spec = TokenSpec { audience: Some("vault".into()), expiration: Some(600) };
        let token = request(&client, &pod, &token_spec).await.unwrap();
        let expires = "2020-01-01T00:00:00Z".to_owned();
        assert_eq!(token, Bearer { text: "t".into(), expires, renew: Duration::ZERO });
        let (path, body) = asked.lock().unwrap().pop().unwrap();
        assert_eq!(path, "/api/v1/namespaces/ns/serviceaccounts/robot/token");
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        assert_eq!(
            body["spec"],
            json!({"audiences": ["vault"], "boundObjectRef": bound, "expirationSeconds": 600})
        );
        // Without an account the namespace's default one.
        let without_account = PodRef { service_account: String::new(), ..pod };
        request(&client, &without_account, &token_spec).await.unwrap();
        assert!(asked.lock().unwrap()[0].0.ends_with("/serviceaccounts/default/token"));
    }

    #[test]
    fn a_token_is_renewed_well_before_it_expires() {
        let now = Timestamp::now();
        let after = |seconds: u64| renew_after(now, now + Duration::from_secs(seconds));
        assert_eq!(after(3600), Duration::from_secs(2880));
        assert_eq!(after(7 * 24 * 3600), OLDEST);
        assert_eq!(renew_after(now, now - Duration::from_secs(1)), Duration::ZERO);
    }
}
