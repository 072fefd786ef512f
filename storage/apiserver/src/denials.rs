//! What RBAC did not permit, once per user, verb and resource: the rules that are missing in a vendor's roles; and how
//! often each object was concerned, since a client that repeats a denied request does not continue.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use claimcheck_model::{Denial, DeniedObject};

use crate::auth::{Action, ActionTarget};

/// The number of denials from which on new ones are not recorded, since a client may send any path.
const MOST: usize = 1000;

/// The denials so far.
#[derive(Debug, Default)]
pub struct Denials(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    /// By their identities.
    denials: BTreeMap<[String; 5], Denial>,
    /// The number of requests for each object.
    objects: BTreeMap<(Denial, String), u32>,
}

impl Denials {
    /// Records a denial with RBAC's reason, which may be empty. The first of its kind is logged.
    pub fn record(&self, user: &str, action: &Action, reason: &str) {
        let denial = denial(user, action, reason);
        let identity = denial.identity().map(str::to_owned);
        let mut recorded = self.recorded();
        let count = recorded.denials.len();
        if let Entry::Vacant(new) = recorded.denials.entry(identity)
            && count < MOST
        {
            tracing::warn!("403 Forbidden: {denial}");
            new.insert(denial.clone());
        }
        let ActionTarget::Resource(target) = &action.target else { return };
        let (object, count) = ((denial, target.name.clone()), recorded.objects.len());
        match recorded.objects.entry(object) {
            Entry::Occupied(mut times) => *times.get_mut() += 1,
            Entry::Vacant(new) if count < MOST => drop(new.insert(1)),
            Entry::Vacant(_) => {}
        }
    }

    /// All of them, by user.
    pub fn all(&self) -> Vec<Denial> {
        self.recorded().denials.values().cloned().collect()
    }

    /// The objects that denied requests were about.
    pub fn objects(&self) -> Vec<DeniedObject> {
        let recorded = self.recorded();
        let objects = recorded.objects.iter();
        let object = |((denial, name), times): (&(Denial, String), &u32)| DeniedObject {
            denial: denial.clone(),
            name: name.clone(),
            times: *times,
        };
        objects.map(object).collect()
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            ("b", Method::GET, "/api/v1/nodes"),
            ("a", Method::GET, "/api/v1/namespaces/n/pods/p/status"),
            ("a", Method::GET, "/api/v1/namespaces/m/pods/q/status"),
            ("a", Method::GET, "/metrics"),
        ] {
            denials.record(user, &Action::from_request(&method, path, &Query::default()), "");
        }
        let texts: Vec<String> = denials.all().iter().map(ToString::to_string).collect();
        let expected = [
            "user a may not get /metrics",
            "user a may not get pods/status in namespace n",
            "user b may not list nodes at the cluster scope",
        ];
        assert_eq!(texts, expected);
        let objects = denials.objects();
        let named = objects
            .iter()
            .map(|object| (object.denial.namespace.as_str(), object.name.as_str(), object.times));
        let expected = [("m", "q", 1), ("n", "p", 1), ("", "", 2)];
        assert_eq!(named.collect::<Vec<_>>(), expected);
    }
}
