//! The distinct topology segments of all nodes. They are counted once for each set of labels that is asked for, and
//! followed node by node from then on: a request for a volume contains all segments, and visits no node.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{PoisonError, RwLock},
};

use k8s_openapi::api::core::v1::Node;

use crate::{
    store::Store,
    world::{Change, Kind},
};

/// Labels and their values.
type Segments = BTreeMap<String, String>;

/// By the labels' keys: the nodes that have all of them, by their values. There are as many sets of keys as drivers with
/// topology, or a few more while a driver is replaced by one with other keys.
#[derive(Debug, Default)]
pub(crate) struct NodeSegments(RwLock<HashMap<Vec<String>, BTreeMap<Segments, usize>>>);

impl NodeSegments {
    /// Enters a change of a node.
    pub fn follow(&mut self, change: &Change) {
        if change.kind != Kind::Node {
            return;
        }
        let (old, new) = change.both::<Node>();
        for (keys, counts) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let [old, new] = [old, new].map(|node| node_segments(node?, keys));
            if old == new {
                continue;
            }
            if let Some(old) = old
                && let Some(count) = counts.get_mut(&old)
            {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&old);
                }
            }
            if let Some(new) = new {
                *counts.entry(new).or_default() += 1;
            }
        }
    }

    /// The distinct values of these labels, of the nodes that have all of them.
    pub fn distinct(&self, keys: &[String], nodes: &Store<Node>) -> BTreeSet<Segments> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = known.get(keys) {
            return counts.keys().cloned().collect();
        }
        drop(known);
        let mut counts = BTreeMap::<Segments, usize>::new();
        for segments in nodes.iter().filter_map(|node| node_segments(node, keys)) {
            *counts.entry(segments).or_default() += 1;
        }
        let distinct = counts.keys().cloned().collect();
        // Another thread may have counted the same nodes meanwhile: they change only with the world, which is borrowed.
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(keys.to_vec(), counts);
        distinct
    }
}

/// The node's values of these labels, if it has all of them.
fn node_segments(node: &Node, keys: &[String]) -> Option<Segments> {
    let labels = node.metadata.labels.as_ref();
    keys.iter().map(|key| Some((key.clone(), labels?.get(key)?.clone()))).collect()
}
