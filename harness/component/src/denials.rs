//! Logs requests of a component that RBAC does not permit, in one format for all components: the harness searches their
//! logs for it where it cannot read an audit log.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use claimcheck_model::Denial;
use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use tower::service_fn;

/// How often one denial is logged, however often it is repeated. A denial that is logged twice has lasted for this time:
/// it is no consequence of roles that the API server has not read yet.
const INTERVAL: Duration = Duration::from_secs(10);
/// The number of denials from which on new ones are not logged.
const MOST: usize = 1000;

/// The same client, which logs denials.
pub(super) fn logging_denials(client: &Client) -> Client {
    let (inner, logged) = (client.clone(), Arc::<Logged>::default());
    let service = service_fn(move |request: Request<Body>| {
        let (inner, logged) = (inner.clone(), logged.clone());
        async move {
            let response = inner.send(request).await?;
            if response.status() != StatusCode::FORBIDDEN {
                return Ok(response);
            }
            // A Status has less than a kilobyte.
            let (head, body) = response.into_parts();
            let body = body.collect_bytes().await?;
            if let Some((denial, message)) = denial(&body)
                && logged.is_due(&denial, Instant::now())
            {
                tracing::warn!("403 Forbidden: {message}");
            }
            Ok::<_, kube::Error>(Response::from_parts(head, Body::from(body)))
        }
    });
    Client::new(service, client.default_namespace())
}

/// The denial that a Status reports, with its message; none if another part of the API server than RBAC rejects the
/// request.
fn denial(status: &[u8]) -> Option<(Denial, String)> {
    let status: serde_json::Value = serde_json::from_slice(status).ok()?;
    let message = status["message"].as_str()?;
    Some((Denial::from_message(message)?, message.to_owned()))
}

/// When each denial was last logged.
#[derive(Debug, Default)]
struct Logged(Mutex<BTreeMap<[String; 5], Instant>>);

impl Logged {
    fn is_due(&self, denial: &Denial, now: Instant) -> bool {
        let identity = denial.identity().map(str::to_owned);
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = match logged.get(&identity) {
            Some(last) => now.duration_since(*last) >= INTERVAL,
            None => logged.len() < MOST,
        };
        if is_due {
            logged.insert(identity, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_of_rbac_are_logged_from_time_to_time() {
        let status = |message: &str| serde_json::json!({ "kind": "Status", "message": message }).to_string();
        let denied = status(
            "leases.coordination.k8s.io \"node-1\" is forbidden: User \
             \"system:serviceaccount:claimcheck-system:claimcheck-node-lifecycle\" cannot get resource \"leases\" in API \
             group \"coordination.k8s.io\" in the namespace \"kube-node-lease\"",
        );
        let (denied, _) = denial(denied.as_bytes()).expect("RBAC denies it");
        assert_eq!(
            denied.to_string(),
            "ServiceAccount claimcheck-system/claimcheck-node-lifecycle may not get leases.coordination.k8s.io in \
             namespace kube-node-lease"
        );
        let quota = status("pods \"p\" is forbidden: exceeded quota: q, requested: pods=1");
        assert_eq!((denial(quota.as_bytes()), denial(b"no JSON")), (None, None));
        let (logged, start) = (Logged::default(), Instant::now());
        assert!(logged.is_due(&denied, start));
        let elsewhere = Denial { namespace: "default".into(), ..denied.clone() };
        assert!(!logged.is_due(&elsewhere, start + INTERVAL / 2), "one rule permits both");
        assert!(logged.is_due(&denied, start + INTERVAL));
        assert!(logged.is_due(&Denial { verb: "list".into(), ..denied }, start));
    }
}
