//! Wakes snapshots, contents and claims, and executes the plans.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use claimcheck_informer::{
    Change, ContentBy, DataSource, EventType, GroupContentBy, Kind, KindSet, SnapshotBy, UNREADY, World,
    data_source, key_of,
};
use claimcheck_model::{
    ObjectKey, SNAPSHOT_CLAIM_PROTECTION,
    group_snapshot::VolumeGroupSnapshotContent,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;

use super::plan::{Action, ContentOptions, plan_claim, plan_snapshot};
use crate::{
    claims::{claim_ref, ref_key},
    context::{Context, Failure},
    shell::{ActionOutcome, Controller, Plan},
    snapshotter::{bind::act, finalizers, meter::Measured, plan_binding::plan_content},
};

/// A key of the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The snapshot of this key.
    Snapshot(ObjectKey),
    /// The content of this name.
    Content(String),
    /// The claim of this key.
    Claim(ObjectKey),
}

/// The controller that binds snapshots.
pub struct Snapshots {
    measured: Measured,
    options: ContentOptions,
    /// The uids of snapshots of which the group was found to be deleted.
    ungrouped: Mutex<HashSet<String>>,
}

/// A member of a group of snapshots cannot be deleted alone.
#[derive(Debug, thiserror::Error)]
#[error(
    "deletion of the individual volume snapshot {snapshot} is not allowed as it belongs to group snapshot {group}. \
     Deleting the group snapshot will trigger the deletion of all the individual volume snapshots that are part of \
     the group."
)]
struct Grouped {
    snapshot: ObjectKey,
    group: ObjectKey,
}

impl Snapshots {
    pub fn new(context: &Context, options: ContentOptions) -> Self {
        Self { measured: Measured::new(context.meter.clone()), options, ungrouped: Mutex::default() }
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn ungrouped(&self) -> MutexGuard<'_, HashSet<String>> {
        self.ungrouped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for Snapshots {
    type Key = Key;
    type Action = Action;

    const NAME: &'static str = "snapshot-controller";
    const WORKERS: usize = 10;

    fn kinds() -> KindSet {
        KindSet::of(&[
            Kind::Snapshot,
            Kind::SnapshotContent,
            Kind::SnapshotClass,
            Kind::GroupSnapshot,
            Kind::GroupSnapshotContent,
            Kind::Claim,
            Kind::Volume,
        ])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        self.measured.changed::<VolumeSnapshot>(change, world);
        match change.kind {
            Kind::Snapshot => {
                if let (Some(deleted), None) = change.both::<VolumeSnapshot>() {
                    self.ungrouped().remove(uid(deleted));
                }
                let claims = change.states::<VolumeSnapshot>().filter_map(|snapshot| {
                    let claim = snapshot.spec.source.persistent_volume_claim_name.as_ref()?;
                    Some(Key::Claim(ObjectKey::new(&change.key.namespace, claim)))
                });
                claims.chain([Key::Snapshot(change.key.clone())]).collect()
            }
            Kind::SnapshotContent => {
                let bound = change.states::<VolumeSnapshotContent>();
                let bound = bound.map(|content| ref_key(&content.spec.volume_snapshot_ref));
                let asking = snapshots(SnapshotBy::Content, &change.key.name, world);
                let content = Key::Content(change.key.name.clone());
                bound.map(Key::Snapshot).chain(asking).chain([content]).collect()
            }
            Kind::SnapshotClass => snapshots(SnapshotBy::Unready, UNREADY, world).collect(),
            Kind::Claim => {
                let made_from =
                    change.states::<PersistentVolumeClaim>().filter_map(|claim| match data_source(claim) {
                        Some(DataSource::Snapshot(source)) => Some(Key::Snapshot(source)),
                        Some(
                            DataSource::Claim(_) | DataSource::Elsewhere { .. } | DataSource::Other { .. },
                        )
                        | None => None,
                    });
                let of = snapshots(SnapshotBy::Claim, &change.key.to_string(), world);
                made_from.chain(of).chain([Key::Claim(change.key.clone())]).collect()
            }
            Kind::Volume => {
                let claim = change.object::<PersistentVolume>().and_then(|volume| claim_ref(volume));
                let claim = claim.map(|claim| ref_key(claim).to_string());
                claim.map(|claim| snapshots(SnapshotBy::Claim, &claim, world).collect()).unwrap_or_default()
            }
            Kind::GroupSnapshot => {
                let key = change.key.to_string();
                let contents = world.group_snapshot_contents.by(GroupContentBy::Group, &key);
                let imported = contents.flat_map(|content| members(content, world));
                snapshots(SnapshotBy::Group, &key, world).chain(imported).collect()
            }
            Kind::GroupSnapshotContent => {
                let contents = change.states::<VolumeGroupSnapshotContent>();
                contents.flat_map(|content| members(content, world)).collect()
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
            | Kind::GroupSnapshotClass => Vec::new(),
        }
    }

    fn plan(&self, key: &Key, world: &World, _: Timestamp) -> Plan<Action> {
        let action = match key {
            Key::Snapshot(key) => {
                let snapshot = world.snapshots.get(key);
                let is_ungrouped = snapshot.is_some_and(|snapshot| self.ungrouped().contains(uid(snapshot)));
                plan_snapshot(key, world, self.options, is_ungrouped)
            }
            Key::Content(name) => plan_content(name, world).map(Action::Bind),
            Key::Claim(key) => plan_claim(key, world),
        };
        Vec::from_iter(action).into()
    }

    async fn act(&self, context: &Context, _: &Key, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Bind(action) => act(context, &self.measured, action).await?,
            Action::HoldClaim(claim) => {
                finalizers::hold(context, &*claim, SNAPSHOT_CLAIM_PROTECTION).await?;
            }
            Action::ReleaseClaim(claim) => {
                finalizers::release(context, &*claim, SNAPSHOT_CLAIM_PROTECTION).await?;
            }
            Action::ReportInUse(snapshot) => {
                let message = "Snapshot is being used to restore a PVC";
                context.event(&*snapshot, EventType::Warning, "SnapshotDeletePending", message);
                return Ok(ActionOutcome::Unchanged);
            }
            Action::Own { snapshot, owner } => {
                let mut owners = snapshot.metadata.owner_references.clone().unwrap_or_default();
                owners.push(owner);
                context.patch(&*snapshot, json!({"metadata": {"ownerReferences": owners}})).await?;
            }
            Action::ReportGrouped { snapshot, group } => {
                let message = Grouped { snapshot: key_of(&*snapshot), group }.to_string();
                context.event(&*snapshot, EventType::Warning, "SnapshotDeletePending", message);
                return Ok(ActionOutcome::Unchanged);
            }
            // Other versions of groups are not watched, so one that exists is requested again after the backoff.
            Action::FindGroup { snapshot, group } => {
                if exists(&context.client, &group).await? {
                    let grouped = Grouped { snapshot: key_of(&*snapshot), group };
                    let message = grouped.to_string();
                    context.event(&*snapshot, EventType::Warning, "SnapshotDeletePending", message);
                    return Err(grouped.into());
                }
                self.ungrouped().insert(uid(&snapshot).to_owned());
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

fn uid(snapshot: &VolumeSnapshot) -> &str {
    snapshot.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether a group of snapshots exists, in any version of its API. Where none is served, no group does.
async fn exists(client: &Client, group: &ObjectKey) -> kube::Result<bool> {
    for version in ["v1", "v1beta2", "v1beta1"] {
        let kind = GroupVersionKind::gvk("groupsnapshot.storage.k8s.io", version, "VolumeGroupSnapshot");
        let kind = ApiResource::from_gvk_with_plural(&kind, "volumegroupsnapshots");
        let groups = Api::<DynamicObject>::namespaced_with(client.clone(), &group.namespace, &kind);
        match groups.get(&group.name).await {
            Ok(_) => return Ok(true),
            // By the code, since the response for a version that is not served has no reason.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The snapshots with contents that are part of a group.
fn members<'w>(group: &VolumeGroupSnapshotContent, world: &'w World) -> impl Iterator<Item = Key> + use<'w> {
    let contents = group.handle().map(|handle| world.snapshot_contents.by(ContentBy::Group, handle));
    let snapshots = contents.into_iter().flatten().map(|one| ref_key(&one.spec.volume_snapshot_ref));
    snapshots.map(Key::Snapshot)
}

/// Snapshots found by an index.
fn snapshots<'w>(by: SnapshotBy, term: &str, world: &'w World) -> impl Iterator<Item = Key> + use<'w> {
    world.snapshots.by(by, term).map(|snapshot| Key::Snapshot(key_of(&**snapshot)))
}
