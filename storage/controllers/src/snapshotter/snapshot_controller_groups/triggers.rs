//! The groups and contents that a change concerns.

use claimcheck_informer::{
    Change, ClaimBy, DataSource, GroupBy, Kind, UNREADY, World, data_source, group_labels, key_of,
};
use claimcheck_model::{
    ObjectKey,
    group_snapshot::{VolumeGroupSnapshotContent, owning_group},
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::{
    claims::{claim_ref, ref_key},
    selector::selects,
};

/// The kinds of objects that concern groups and contents.
pub(super) const KINDS: &[Kind] = &[
    Kind::GroupSnapshot,
    Kind::GroupSnapshotContent,
    Kind::GroupSnapshotClass,
    Kind::Snapshot,
    Kind::SnapshotContent,
    Kind::Claim,
    Kind::Volume,
];

/// A key of the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The group of this key.
    Group(ObjectKey),
    /// The content of this name.
    Content(String),
}

/// The groups and contents to plan again.
pub(crate) fn concerned(change: &Change, world: &World) -> Vec<Key> {
    match change.kind {
        Kind::GroupSnapshot => vec![Key::Group(change.key.clone())],
        Kind::GroupSnapshotContent => {
            let contents = change.states::<VolumeGroupSnapshotContent>();
            let bound = contents.map(|content| ref_key(&content.spec.volume_group_snapshot_ref));
            let requested = groups(GroupBy::Content, &change.key.name, world);
            let content = Key::Content(change.key.name.clone());
            bound.map(Key::Group).chain(requested).chain([content]).collect()
        }
        Kind::GroupSnapshotClass => groups(GroupBy::Unready, UNREADY, world).collect(),
        Kind::Snapshot => {
            change.states::<VolumeSnapshot>().filter_map(|snapshot| group_of_member(snapshot)).collect()
        }
        Kind::SnapshotContent => {
            let contents = change.states::<VolumeSnapshotContent>();
            let snapshots = contents.map(|content| ref_key(&content.spec.volume_snapshot_ref));
            snapshots.filter_map(|key| group_of_member(world.snapshots.get(&key)?)).collect()
        }
        Kind::Claim => {
            let claims = change.states::<PersistentVolumeClaim>();
            let sources = claims.filter_map(|claim| match data_source(claim) {
                Some(DataSource::Snapshot(source)) => group_of_member(world.snapshots.get(&source)?),
                Some(DataSource::Claim(_) | DataSource::Elsewhere { .. } | DataSource::Other { .. })
                | None => None,
            });
            let claims = change.states::<PersistentVolumeClaim>();
            let selecting = claims.flat_map(|claim| selecting(claim, world));
            sources.chain(selecting).collect()
        }
        Kind::Volume => {
            let reserved = change.states::<PersistentVolume>().filter_map(|volume| claim_ref(volume));
            let reserved = reserved.filter_map(|claim| world.claims.get(&ref_key(claim)));
            let bound = world.claims.by(ClaimBy::Volume, &change.key.name);
            reserved.chain(bound).flat_map(|claim| selecting(claim, world)).collect()
        }
        Kind::Class
        | Kind::Pod
        | Kind::Node
        | Kind::Attachment
        | Kind::CsiDriver
        | Kind::CsiNode
        | Kind::Capacity
        | Kind::Lease
        | Kind::ReferenceGrant
        | Kind::Populator
        | Kind::AttributesClass
        | Kind::SnapshotClass => Vec::new(),
    }
}

/// The group of a member.
fn group_of_member(snapshot: &VolumeSnapshot) -> Option<Key> {
    let group = owning_group(snapshot)?;
    Some(Key::Group(ObjectKey::new(snapshot.metadata.namespace.as_deref().unwrap_or_default(), group)))
}

/// Groups found by an index.
fn groups<'w>(by: GroupBy, term: &str, world: &'w World) -> impl Iterator<Item = Key> + use<'w> {
    world.group_snapshots.by(by, term).map(|group| Key::Group(key_of(&**group)))
}

/// The groups that are not ready and select a claim in this state.
fn selecting(claim: &PersistentVolumeClaim, world: &World) -> Vec<Key> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let labels = claim.metadata.labels.as_ref();
    let groups =
        group_labels(namespace, labels).flat_map(|term| world.group_snapshots.by(GroupBy::Selecting, &term));
    let groups = groups.filter(|group| selects(group.spec.source.selector.as_ref(), labels));
    groups.map(|group| Key::Group(key_of(&**group))).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use claimcheck_model::group_snapshot::VolumeGroupSnapshotStatus;

    use super::*;

    #[test]
    fn a_claim_or_its_volume_enqueues_only_the_groups_that_select_it() {
        let mut world = World::default();
        for (name, namespace) in [("a", "default"), ("b", "default"), ("a", "other")] {
            let mut group = testing::group_snapshot(name, "groups");
            group.metadata.namespace = Some(namespace.into());
            world.apply(group);
        }
        let mut expressions = testing::group_snapshot("all", "groups");
        expressions.spec.source.selector = Some(Default::default());
        world.apply(expressions);
        let mut ready = testing::group_snapshot("ready", "groups");
        ready.spec.source = testing::group_snapshot("a", "groups").spec.source;
        ready.status = Some(VolumeGroupSnapshotStatus { ready_to_use: Some(true), ..Default::default() });
        world.apply(ready);
        let mut imported = testing::group_snapshot("imported", "groups");
        imported.spec.source.selector = None;
        imported.spec.source.volume_group_snapshot_content_name = Some("content".into());
        world.apply(imported);

        let enqueued = |change: Option<Change>, world: &World| {
            let keys = concerned(&change.expect("a change"), world).into_iter();
            let mut names: Vec<String> = keys
                .filter_map(|key| match key {
                    Key::Group(key) => Some(key.to_string()),
                    Key::Content(_) => None,
                })
                .collect();
            names.sort();
            names.dedup();
            names
        };
        let (mut claim, mut volume) = (testing::claim("c", "", "1Gi"), testing::volume("v", "", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        let labelled = |value: &str| Some([("group".to_owned(), value.to_owned())].into());
        let change = world.apply(claim.clone());
        assert_eq!(enqueued(change, &world), ["default/all"]);
        claim.metadata.labels = labelled("a");
        let change = world.apply(claim.clone());
        assert_eq!(enqueued(change, &world), ["default/a", "default/all"]);
        claim.metadata.labels = labelled("b");
        let change = world.apply(claim);
        assert_eq!(enqueued(change, &world), ["default/a", "default/all", "default/b"], "old and new");
        let change = world.apply(volume.clone());
        assert_eq!(enqueued(change, &world), ["default/all", "default/b"]);
        let change = world.remove(&volume);
        assert_eq!(enqueued(change, &world), ["default/all", "default/b"]);
    }
}
