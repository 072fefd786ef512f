//! Nodes chosen for pods that do not show it yet: they wait for their claims, or the binding is in progress. In
//! memory only; after a restart the claims' selected-node annotations restore them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use claimcheck_informer::Backoff;
use claimcheck_model::ObjectKey;
use jiff::Timestamp;

/// How long a pod waits after its volumes could not be provisioned for the chosen node (upstream's
/// `podInitialBackoffSeconds` and `podMaxBackoffSeconds` are 1 and 10).
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(10) };

/// From pod to node, and back.
#[derive(Debug, Default)]
pub struct Reservations {
    nodes: HashMap<ObjectKey, Place>,
    pods: HashMap<String, BTreeSet<ObjectKey>>,
    provisioning_failures: HashMap<ObjectKey, ProvisioningFailures>,
}

/// The node chosen for a pod.
#[derive(Debug)]
struct Place {
    node: String,
    since: Timestamp,
}

/// Nodes for which a pod's volumes could not be provisioned, and the number of failures.
#[derive(Debug)]
struct ProvisioningFailures {
    until: Timestamp,
    nodes: BTreeMap<String, u32>,
}

impl Reservations {
    /// Records the node chosen for a pod.
    pub fn set(&mut self, pod: &ObjectKey, node: &str, now: Timestamp) {
        if self.node(pod) == Some(node) {
            return;
        }
        self.release(pod);
        self.nodes.insert(pod.clone(), Place { node: node.to_owned(), since: now });
        self.pods.entry(node.to_owned()).or_default().insert(pod.clone());
    }

    /// Records that the pod has no chosen node (any longer).
    pub fn release(&mut self, pod: &ObjectKey) {
        if let Some(Place { node, .. }) = self.nodes.remove(pod)
            && let Some(pods) = self.pods.get_mut(&node)
        {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(&node);
            }
        }
    }

    /// Records that a pod's volume could not be provisioned for the chosen node: another is tried, after a
    /// delay.
    pub fn set_back(&mut self, pod: &ObjectKey, node: &str, now: Timestamp) {
        self.release(pod);
        let provisioning_failures = self.provisioning_failures.entry(pod.clone());
        let provisioning_failures = provisioning_failures
            .or_insert_with(|| ProvisioningFailures { until: now, nodes: BTreeMap::new() });
        *provisioning_failures.nodes.entry(node.to_owned()).or_default() += 1;
        provisioning_failures.until = now + BACKOFF.delay(provisioning_failures.nodes.values().sum());
    }

    /// The number of failures to provision the pod's volumes for a node.
    pub fn provisioning_failures(&self, pod: &ObjectKey, node: &str) -> u32 {
        self.provisioning_failures
            .get(pod)
            .and_then(|provisioning_failures| provisioning_failures.nodes.get(node))
            .copied()
            .unwrap_or(0)
    }

    /// The remaining delay after the pod's last failure, if any.
    pub fn pause(&self, pod: &ObjectKey, now: Timestamp) -> Option<Duration> {
        let left = self.provisioning_failures.get(pod)?.until.duration_since(now);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    /// Removes a pod that needs no node any more.
    pub fn forget(&mut self, pod: &ObjectKey) {
        self.release(pod);
        self.provisioning_failures.remove(pod);
    }

    /// The node chosen for a pod.
    pub fn node(&self, pod: &ObjectKey) -> Option<&str> {
        self.nodes.get(pod).map(|place| place.node.as_str())
    }

    /// The time since the pod's node was chosen; zero if it has none.
    pub fn held(&self, pod: &ObjectKey, now: Timestamp) -> Duration {
        let held = self.nodes.get(pod).map(|place| now.duration_since(place.since));
        // A clock that was set back makes it a new choice.
        held.and_then(|held| Duration::try_from(held).ok()).unwrap_or_default()
    }

    /// The pods with a chosen node.
    pub fn pods(&self, node: &str) -> impl ExactSizeIterator<Item = &ObjectKey> {
        static NONE: BTreeSet<ObjectKey> = BTreeSet::new();
        self.pods.get(node).unwrap_or(&NONE).iter()
    }
}
