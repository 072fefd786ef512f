//! The nodes that pods were chosen for, where the pods don't show it yet: they wait for their claims, or
//! the binding is under way. Kept in memory only; after a restart the claims' selected nodes tell.

use std::collections::{BTreeSet, HashMap};

use claimcheck_model::ObjectKey;

/// From pod to node, and back.
#[derive(Debug, Default)]
pub struct Reservations {
    nodes: HashMap<ObjectKey, String>,
    pods: HashMap<String, BTreeSet<ObjectKey>>,
}

impl Reservations {
    /// Notes the node chosen for a pod, or that there is none (any longer).
    pub fn set(&mut self, pod: &ObjectKey, node: Option<&str>) {
        if self.node(pod) == node {
            return;
        }
        if let Some(old) = self.nodes.remove(pod)
            && let Some(pods) = self.pods.get_mut(&old)
        {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(&old);
            }
        }
        if let Some(node) = node {
            self.nodes.insert(pod.clone(), node.to_owned());
            self.pods.entry(node.to_owned()).or_default().insert(pod.clone());
        }
    }

    /// The node chosen for a pod.
    pub fn node(&self, pod: &ObjectKey) -> Option<&str> {
        self.nodes.get(pod).map(String::as_str)
    }

    /// The pods that a node was chosen for.
    pub fn pods(&self, node: &str) -> impl ExactSizeIterator<Item = &ObjectKey> {
        static NONE: BTreeSet<ObjectKey> = BTreeSet::new();
        self.pods.get(node).unwrap_or(&NONE).iter()
    }
}
