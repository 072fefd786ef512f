//! Resources that service accounts requested in versions that are not served, each once: a program that is older than
//! the removal of a version repeats such requests forever, and logs them only.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use claimcheck_model::Unserved;
use http::Method;

use crate::auth::{Action, ActionTarget};
use crate::request::Query;

/// The number of requests from which on new ones are not recorded, since a client may send any path.
const MOST: usize = 1000;

/// The requests so far.
#[derive(Debug, Default)]
pub struct UnservedRequests(Mutex<BTreeSet<Unserved>>);

impl UnservedRequests {
    /// Records a request for a path that is not served, if it is that of a resource.
    pub fn record(&self, user: &str, path: &str) {
        let Some(request) = request(user, path) else { return };
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() < MOST && !requests.contains(&request) {
            tracing::warn!("404 Not Found: {request}");
            requests.insert(request);
        }
    }

    /// All of them, by user.
    pub fn all(&self) -> Vec<Unserved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

fn request(user: &str, path: &str) -> Option<Unserved> {
    if !user.starts_with("system:serviceaccount:") {
        return None;
    }
    let action = Action::from_request(&Method::GET, path, &Query::default());
    let ActionTarget::Resource(target) = action.target else { return None };
    let version = path.split('/').filter(|segment| !segment.is_empty()).skip(1);
    let version: Vec<&str> = version.take(if target.group.is_empty() { 1 } else { 2 }).collect();
    Some(Unserved {
        user: user.to_owned(),
        version: version.join("/"),
        resource: target.resource,
        served: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_accounts_for_resources_are_recorded_once() {
        let requests = UnservedRequests::default();
        let account = "system:serviceaccount:ns:a";
        for (user, path) in [
            (account, "/apis/storage.k8s.io/v1beta1/namespaces/n/csistoragecapacities/c"),
            (account, "/apis/storage.k8s.io/v1beta1/csistoragecapacities"),
            (account, "/api/v1/nopes/n/status"),
            (account, "/nope"),
            (account, "/apis/policy/v1beta1"),
            ("jane", "/api/v1/nopes"),
        ] {
            requests.record(user, path);
        }
        let all = requests.all();
        let all: Vec<_> =
            all.iter().map(|request| (request.version.as_str(), request.resource.as_str())).collect();
        assert_eq!(all, [("storage.k8s.io/v1beta1", "csistoragecapacities"), ("v1", "nopes")]);
    }
}
