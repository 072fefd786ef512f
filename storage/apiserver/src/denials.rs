//! What RBAC did not permit, once per user, verb and resource: the rules that are missing in a vendor's roles.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

use claimcheck_model::Denial;

use crate::auth::{Action, ActionTarget};

/// The number of denials from which on new ones are not recorded, since a client may send any path.
const MOST: usize = 1000;

/// The denials so far, by their identities.
#[derive(Debug, Default)]
pub struct Denials(Mutex<BTreeMap<[String; 5], Denial>>);

impl Denials {
    /// Records a denial with RBAC's reason, which may be empty. The first of its kind is logged.
    pub fn record(&self, user: &str, action: &Action, reason: &str) {
        let denial = denial(user, action, reason);
        let identity = denial.identity().map(str::to_owned);
        let mut denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = denials.len();
        if let Entry::Vacant(new) = denials.entry(identity)
            && count < MOST
        {
            tracing::warn!("403 Forbidden: {denial}");
            new.insert(denial);
        }
    }

    /// All of them, by user.
    pub fn all(&self) -> Vec<Denial> {
        let denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        denials.values().cloned().collect()
    }
}

fn denial(user: &str, action: &Action, reason: &str) -> Denial {
    let of = Denial {
        user: user.to_owned(),
        verb: action.verb.clone(),
        reason: reason.to_owned(),
        ..Denial::default()
    };
    match &action.target {
        ActionTarget::Path(path) => Denial { path: path.clone(), ..of },
        ActionTarget::Resource(target) => Denial {
            group: target.group.clone(),
            resource: target.combined(),
            namespace: target.namespace.clone(),
            ..of
        },
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    #[test]
    fn equal_denials_are_recorded_once() {
        let denials = Denials::default();
        for (user, method, path) in [
            ("b", Method::GET, "/api/v1/nodes"),
            ("a", Method::GET, "/api/v1/namespaces/n/pods/p/status"),
            ("a", Method::GET, "/api/v1/namespaces/m/pods/q/status"),
            ("a", Method::GET, "/metrics"),
        ] {
            denials.record(user, &Action::of_request(&method, path, &Query::default()), "");
        }
        let texts: Vec<String> = denials.all().iter().map(ToString::to_string).collect();
        let expected = [
            "user a may not get /metrics",
            "user a may not get pods/status in namespace n",
            "user b may not list nodes at the cluster scope",
        ];
        assert_eq!(texts, expected);
    }
}
