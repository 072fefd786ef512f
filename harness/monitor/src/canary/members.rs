//! The keys of the canary's objects, updated with each change: a world has no index of labels.

use std::collections::BTreeSet;

use claimcheck_informer::{Change, Object};
use claimcheck_model::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::LABEL;

/// The objects with the canary's label in its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// None if the canary is not enabled.
    namespace: Option<String>,
    pub claims: BTreeSet<ObjectKey>,
    pub pods: BTreeSet<ObjectKey>,
    pub snapshots: BTreeSet<ObjectKey>,
    /// Grows with each change of these objects.
    revision: u64,
}

impl Members {
    /// None yet.
    pub fn new(namespace: Option<String>) -> Self {
        Self { namespace, ..Self::default() }
    }

    /// Differs after a change of these objects.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Follows a change.
    pub fn follow(&mut self, change: &Change) {
        if self.namespace.as_ref() != Some(&change.key.namespace) {
            return;
        }
        for (object, exists) in [(&change.old, false), (&change.new, true)] {
            let (keys, meta) = match object {
                Some(Object::Claim(claim)) => (&mut self.claims, &claim.metadata),
                Some(Object::Pod(pod)) => (&mut self.pods, &pod.metadata),
                Some(Object::Snapshot(snapshot)) => (&mut self.snapshots, &snapshot.metadata),
                Some(_) | None => continue,
            };
            if run_of(meta).is_none() {
                continue;
            }
            self.revision += 1;
            if exists {
                keys.insert(change.key.clone());
            } else {
                keys.remove(&change.key);
            }
        }
    }
}

/// The name of the run that an object belongs to.
pub(super) fn run_of(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(LABEL).map(String::as_str)
}
