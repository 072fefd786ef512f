//! Populates a volume: requests tokens, and writes the files.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity};

use super::{Content, Snapshot, payload, token};
use crate::{
    effects::Host,
    operations::{Executor, OperationError},
    volumes::{PodMount, VolumeKey},
};

/// Input of the population.
#[derive(Clone, Debug)]
pub struct Filling {
    /// The content.
    pub content: Box<Content>,
    /// The objects that it uses.
    pub objects: Snapshot,
    /// The pod, as last seen.
    pub pod: Arc<Pod>,
    /// The node's allocatable resources.
    pub node: BTreeMap<String, Quantity>,
}

/// Writes the volume's files; returns the time after which it must be repeated without a change of an object:
/// because of a token.
pub(crate) async fn write<H: Host>(
    executor: &Executor<H>,
    key: &VolumeKey,
    mount: &PodMount,
    filling: &Filling,
) -> Result<Option<Duration>, OperationError> {
    let mut tokens = Vec::new();
    for token_spec in filling.content.tokens() {
        tokens.push(token::request(&executor.client, &mount.pod, &token_spec).await?);
    }
    let facts = payload::Facts {
        objects: &filling.objects,
        pod: &filling.pod,
        node: &filling.node,
        tokens: &tokens,
        has_group: mount.fs_group.is_some(),
    };
    let files = payload::files(&filling.content, &facts)?;
    let path = executor.layout.pod_mount(&mount.pod.uid, key, &mount.directory);
    let (root, group) = (path.clone(), mount.fs_group);
    let written = executor.blocking(move |host| {
        host.make_dir(&root)?;
        host.open_to_all(&root)?;
        host.write_files(&root, &files, group)
    });
    written.await.map_err(|source| OperationError::Finish { path, source })?;
    Ok(tokens.iter().map(|token| token.renew).min())
}
