//! The source and class of a snapshot, and the content created from them.
//!
//! Upstream: `createSnapshotContent`, `getVolumeFromVolumeSnapshot` and `SetDefaultSnapshotClass` in
//! `pkg/common-controller/snapshot_controller.go`.

use std::sync::Arc;

use claimcheck_informer::{NodeBy, World, key_of, node_label, reference};
use claimcheck_model::{
    ObjectKey, SNAPSHOT_CONTENT_PROTECTION, SNAPSHOT_MANAGED_BY,
    snapshot::{
        VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotContentSource,
        VolumeSnapshotContentSpec,
    },
    snapshot_content_name,
};
use k8s_openapi::{
    api::core::v1::{
        CSIPersistentVolumeSource, Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
        PersistentVolumeClaim,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::plan::{ContentOptions, Distribution};
use crate::{
    claims::{is_deleting, name},
    selector,
    snapshotter::{
        claim,
        finalizers::has,
        parameters::{Purpose, secret, secret_annotations},
        plan_binding,
        trouble::{DefaultTrouble, SourceTrouble},
    },
};

/// The claim that a snapshot names.
pub fn claim<'w>(
    snapshot: &VolumeSnapshot,
    world: &'w World,
) -> Result<&'w Arc<PersistentVolumeClaim>, SourceTrouble> {
    let expected = snapshot.spec.source.persistent_volume_claim_name.as_deref().unwrap_or_default();
    let key = ObjectKey::new(snapshot.metadata.namespace.as_deref().unwrap_or_default(), expected);
    world.claims.get(&key).ok_or_else(|| SourceTrouble::NoClaim(expected.to_owned()))
}

/// The volume of a claim, which must be a CSI volume.
pub fn volume<'w>(
    claim: &PersistentVolumeClaim,
    world: &'w World,
) -> Result<(&'w PersistentVolume, &'w CSIPersistentVolumeSource), SourceTrouble> {
    let volume = claim::volume(claim, "snapshot", world)?;
    Ok((volume, claim::csi(volume).ok_or_else(|| SourceTrouble::NotCsi(name(&**volume).to_owned()))?))
}

/// The name of the driver's only default class.
pub fn default_class(snapshot: &VolumeSnapshot, world: &World) -> Result<String, DefaultTrouble> {
    let (_, csi) = volume(claim(snapshot, world)?, world)?;
    plan_binding::default_class::<VolumeSnapshotContent>(&csi.driver, world)
}

/// The claim, if it must be protected while a snapshot of it is taken.
pub fn held_claim<'w>(
    snapshot: &VolumeSnapshot,
    world: &'w World,
    finalizer: &str,
) -> Result<(&'w Arc<PersistentVolumeClaim>, bool), SourceTrouble> {
    let claim = claim(snapshot, world)?;
    let held = has(&claim.metadata, finalizer);
    if !held && is_deleting(&**claim) {
        return Err(SourceTrouble::ClaimGoes(name(&**claim).to_owned()));
    }
    Ok((claim, held))
}

/// The first node by name from which a volume with node affinity is accessible. Upstream: `getManagedByNode`.
fn node<'w>(volume: &PersistentVolume, world: &'w World) -> Option<&'w str> {
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    required.node_selector_terms.iter().filter_map(|term| first_node(term, world)).min()
}

/// The first node by name that a term matches: among those with a label that it requires, if it lists the label's values.
fn first_node<'w>(term: &NodeSelectorTerm, world: &'w World) -> Option<&'w str> {
    let listing = term.match_expressions.iter().flatten().filter(|one| one.operator == "In");
    let nodes_with = |one: &NodeSelectorRequirement| -> Vec<String> {
        one.values.iter().flatten().map(|value| node_label(&one.key, value)).collect()
    };
    let count = |labels: &Vec<String>| -> usize {
        labels.iter().map(|label| world.nodes.count(NodeBy::Label, label)).sum()
    };
    let matches = |node: &&Arc<Node>| selector::holds(term, node);
    let found = match listing.map(nodes_with).min_by_key(count) {
        Some(labels) => {
            let first = labels.iter().filter_map(|label| world.nodes.by(NodeBy::Label, label).find(matches));
            first.min_by_key(|node| name(&***node))
        }
        None => world.nodes.iter().filter(matches).min_by_key(|node| name(&***node)),
    };
    found.map(|node| name(&**node))
}

/// The content to be created for a snapshot. Upstream adds its finalizer in a second step.
pub fn content(
    snapshot: &VolumeSnapshot,
    claim: &PersistentVolumeClaim,
    class: &VolumeSnapshotClass,
    world: &World,
    options: ContentOptions,
) -> Result<VolumeSnapshotContent, SourceTrouble> {
    let (volume, csi) = volume(claim, world)?;
    if csi.driver != class.driver {
        return Err(SourceTrouble::OtherDriver {
            class: class.driver.clone(),
            volume: name(volume).to_owned(),
            driver: csi.driver.clone(),
        });
    }
    let content = snapshot_content_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
    let secret = secret(Purpose::Snapshot, class.parameters.as_ref(), &content, Some(&key_of(snapshot)))?;
    let node = match options.distribution {
        Distribution::Central => None,
        Distribution::Nodes => node(volume, world),
    };
    let mode = volume.spec.as_ref().and_then(|spec| spec.volume_mode.clone());
    Ok(VolumeSnapshotContent {
        metadata: ObjectMeta {
            name: Some(content),
            annotations: secret.map(secret_annotations::<VolumeSnapshotContent>),
            labels: node.map(|node| [(SNAPSHOT_MANAGED_BY.to_owned(), node.to_owned())].into()),
            finalizers: Some(vec![SNAPSHOT_CONTENT_PROTECTION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotContentSpec {
            deletion_policy: class.deletion_policy.clone(),
            driver: class.driver.clone(),
            source: VolumeSnapshotContentSource {
                volume_handle: Some(csi.volume_handle.clone()),
                snapshot_handle: None,
            },
            source_volume_mode: mode.filter(|_| options.source_volume_mode),
            volume_snapshot_class_name: class.metadata.name.clone(),
            volume_snapshot_ref: reference(snapshot),
        },
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_node_of_a_volume_is_the_first_of_all_that_can_access_it() {
        let mut world = World::default();
        for (index, zone) in ["b", "a", "b", "a"].into_iter().enumerate() {
            let mut node = testing::node(&format!("n{index}"));
            let labels = node.metadata.labels.get_or_insert_default();
            labels.extend([("zone".to_owned(), zone.to_owned()), ("all".to_owned(), "1".to_owned())]);
            world.apply(node);
        }
        let one = |key: &str, operator: &str, values: &[&str]| {
            let values = json!(values);
            json!({"key": key, "operator": operator, "values": values})
        };
        let zone = |values: &[&str]| one("zone", "In", values);
        for (terms, expected) in [
            (json!([{"matchExpressions": [zone(&["a"])]}]), Some("n1")),
            (json!([{"matchExpressions": [zone(&["a", "b"])]}]), Some("n0")),
            (json!([{"matchExpressions": [zone(&["c"])]}]), None),
            (json!([{"matchExpressions": [one("all", "In", &["1"]), zone(&["a"])]}]), Some("n1")),
            (json!([{"matchExpressions": [one("zone", "NotIn", &["b"])]}]), Some("n1")),
            (json!([{"matchExpressions": [zone(&["a"])]}, {"matchExpressions": [zone(&["b"])]}]), Some("n0")),
            (json!([{"matchFields": [one("metadata.name", "In", &["n3", "n2"])]}]), Some("n2")),
            (json!([{}]), None),
            (json!([]), None),
        ] {
            let mut volume = testing::volume("v", "fast", "1Gi");
            let affinity = serde_json::from_value(json!({"required": {"nodeSelectorTerms": terms}})).unwrap();
            volume.spec.get_or_insert_default().node_affinity = Some(affinity);
            assert_eq!(node(&volume, &world), expected, "{terms}");
            let accessible = world.nodes.iter().filter(|node| selector::reaches(&volume, node));
            assert_eq!(accessible.map(|node| name(&**node)).min(), expected, "{terms}, of all");
        }
    }
}
