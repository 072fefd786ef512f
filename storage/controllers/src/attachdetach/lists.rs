//! Writes `node.status.volumesAttached`: one write at a time per node, each including all edits that were
//! requested while the previous one was in progress (a group commit).
//!
//! Volumes are planned one by one, but a node's list is one field of one object; without this, a hundred
//! volumes that become ready together would cost a hundred writes of a growing list.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{AttachedVolume, Node};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::oneshot;

use crate::context::Context;

/// A node's list that could not be written. One write covers many volumes, so the error is shared.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot write volumesAttached of node {node}; nothing will be detached from it until this succeeds")]
pub struct WriteError {
    node: String,
    #[source]
    source: Arc<kube::Error>,
}

/// A change of a node's list.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The volume's name in the list.
    pub unique: String,
    /// Whether it must be in the list.
    pub listed: bool,
    /// Write even if the cache shows no difference: the cache may be outdated.
    pub doubtful: bool,
}

/// The lists of all nodes.
#[derive(Default)]
pub struct Lists {
    nodes: Mutex<HashMap<String, Arc<List>>>,
}

#[derive(Default)]
struct List {
    waiting: Mutex<Vec<Waiting>>,
    writer: tokio::sync::Mutex<()>,
}

struct Waiting {
    edit: Edit,
    done: oneshot::Sender<Result<(), WriteError>>,
}

impl Lists {
    /// Returns once the edit is written and the response is in the cache. A deleted node has no list.
    ///
    /// No resourceVersion is sent: this is the only writer of the field, while the node itself writes other
    /// fields of its status all the time, each of which would cause a conflict.
    pub async fn edit(&self, context: &Context, node: &str, edit: Edit) -> Result<(), WriteError> {
        let list = lock(&self.nodes).entry(node.to_owned()).or_default().clone();
        let (done, mut written) = oneshot::channel();
        lock(&list.waiting).push(Waiting { edit, done });
        let _writer = list.writer.lock().await;
        if let Ok(result) = written.try_recv() {
            return result; // Another write included this edit.
        }
        let batch = std::mem::take(&mut *lock(&list.waiting));
        let result = write(context, node, &batch).await;
        for Waiting { done, .. } in batch {
            // A caller that stopped waiting will plan again anyway.
            let _ = done.send(result.clone());
        }
        result
    }
}

async fn write(context: &Context, node: &str, batch: &[Waiting]) -> Result<(), WriteError> {
    let list = {
        let world = context.informer.read();
        let Some(object) = world.nodes.named(node) else { return Ok(()) };
        edited(object, batch.iter().map(|waiting| &waiting.edit))
    };
    let Some(list) = list else { return Ok(()) };
    let list = if list.is_empty() { None } else { Some(list) };
    let patch = Patch::Merge(json!({"status": {"volumesAttached": list}}));
    let api = Api::<Node>::all(context.client.clone());
    match api.patch_status(node, &PatchParams::default(), &patch).await {
        Ok(object) => {
            context.informer.apply(object);
            Ok(())
        }
        Err(source) => Err(WriteError { node: node.to_owned(), source: Arc::new(source) }),
    }
}

/// The node's list with the edits applied; `None` if nothing changes.
fn edited<'e>(node: &Node, edits: impl Iterator<Item = &'e Edit>) -> Option<Vec<AttachedVolume>> {
    let old = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    let mut list = old.cloned().unwrap_or_default();
    let mut changed = false;
    for Edit { unique, listed, doubtful } in edits {
        let held = list.iter().position(|volume| volume.name == *unique);
        changed |= *doubtful || *listed != held.is_some();
        match (held, listed) {
            (None, true) => list.push(AttachedVolume { name: unique.clone(), device_path: String::new() }),
            (Some(index), false) => drop(list.remove(index)),
            (None, false) | (Some(_), true) => {}
        }
    }
    changed.then_some(list)
}

/// Nothing panics while one of these locks is held, so a poisoned one is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeStatus;

    use super::*;

    fn node(listed: &[&str]) -> Node {
        let attached =
            listed.iter().map(|name| AttachedVolume { name: (*name).into(), device_path: String::new() });
        let status = NodeStatus { volumes_attached: Some(attached.collect()), ..NodeStatus::default() };
        Node { status: Some(status), ..Node::default() }
    }

    fn edit(unique: &str, listed: bool) -> Edit {
        Edit { unique: unique.into(), listed, doubtful: false }
    }

    fn names(node: &Node, edits: &[Edit]) -> Option<Vec<String>> {
        Some(edited(node, edits.iter())?.into_iter().map(|volume| volume.name).collect())
    }

    #[test]
    fn one_write_takes_all_edits_along_and_keeps_the_rest() {
        let edits = [edit("a", false), edit("c", true)];
        assert_eq!(names(&node(&["a", "b"]), &edits), Some(vec!["b".into(), "c".into()]));
    }

    #[test]
    fn no_write_where_nothing_changes_unless_in_doubt() {
        let mut removal = edit("a", false);
        assert_eq!(names(&node(&["b"]), &[edit("b", true), removal.clone()]), None);
        removal.doubtful = true;
        assert_eq!(names(&node(&["b"]), &[removal]), Some(vec!["b".into()]));
    }
}
