//! Wakes groups and their contents, and executes the plans.

use claimcheck_informer::{
    Change, DataSource, EventType, GroupBy, Kind, KindSet, UNREADY, World, data_source, key_of,
};
use claimcheck_model::{
    GROUP_SNAPSHOT_BEING_DELETED, GROUP_SNAPSHOT_BOUND_PROTECTION, GROUP_SNAPSHOT_CONTENT_PROTECTION,
    ObjectKey,
    group_snapshot::{
        VolumeGroupSnapshot, VolumeGroupSnapshotContent, VolumeGroupSnapshotStatus, owning_group,
    },
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, api::ListParams};
use serde_json::json;
use tracing::info;

use super::{
    plan::{Action, plan_content, plan_group},
    trouble::Trouble,
};
use crate::{
    claims::{claim_ref, ref_key},
    context::{Context, Failure},
    shell::{ActionOutcome, Controller, Plan},
    snapshotter::{
        finalizers,
        meter::Measured,
        status_error::{write_status, write_trouble},
    },
};

/// A key of the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The group of this key.
    Group(ObjectKey),
    /// The content of this name.
    Content(String),
}

/// The controller that binds groups of snapshots.
pub struct Groups {
    measured: Measured,
}

impl Groups {
    pub fn new(context: &Context) -> Self {
        Self { measured: Measured::new(context.meter.clone()) }
    }
}

impl Controller for Groups {
    type Key = Key;
    type Action = Action;

    const NAME: &'static str = "group-snapshot-controller";
    const WORKERS: usize = 10;

    fn kinds() -> KindSet {
        KindSet::of(&[
            Kind::GroupSnapshot,
            Kind::GroupSnapshotContent,
            Kind::GroupSnapshotClass,
            Kind::Snapshot,
            Kind::SnapshotContent,
            Kind::Claim,
            Kind::Volume,
        ])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        self.measured.changed::<VolumeGroupSnapshot>(change, world);
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
                change.states::<VolumeSnapshot>().filter_map(|snapshot| of_member(snapshot)).collect()
            }
            Kind::SnapshotContent => {
                let contents = change.states::<VolumeSnapshotContent>();
                let snapshots = contents.map(|content| ref_key(&content.spec.volume_snapshot_ref));
                snapshots.filter_map(|key| of_member(world.snapshots.get(&key)?)).collect()
            }
            Kind::Claim => {
                let claims = change.states::<PersistentVolumeClaim>();
                let sources = claims.filter_map(|claim| match data_source(claim) {
                    Some(DataSource::Snapshot(source)) => of_member(world.snapshots.get(&source)?),
                    Some(DataSource::Claim(_) | DataSource::Elsewhere { .. } | DataSource::Other { .. })
                    | None => None,
                });
                sources.chain(unready_in(&change.key.namespace, world)).collect()
            }
            Kind::Volume => {
                let claim = change.object::<PersistentVolume>().and_then(|volume| claim_ref(volume));
                let namespace = claim.map(|claim| ref_key(claim).namespace);
                namespace.map(|namespace| unready_in(&namespace, world).collect()).unwrap_or_default()
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

    fn plan(&self, key: &Key, world: &World, _: Timestamp) -> Plan<Action> {
        let actions = match key {
            Key::Group(key) => plan_group(key, world),
            Key::Content(name) => Vec::from_iter(plan_content(name, world)),
        };
        actions.into()
    }

    async fn act(&self, context: &Context, _: &Key, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::SetClass { group, class } => {
                context.patch(&*group, json!({"spec": {"volumeGroupSnapshotClassName": class}})).await?;
            }
            Action::HoldGroup(group) => {
                finalizers::hold(context, &*group, GROUP_SNAPSHOT_BOUND_PROTECTION).await?;
            }
            Action::ReleaseGroup(group) => {
                finalizers::release(context, &*group, GROUP_SNAPSHOT_BOUND_PROTECTION).await?;
            }
            Action::CreateContent { group, content } => {
                let key = key_of(&*group);
                read_claims(context, &key.namespace).await?;
                let planned = Action::CreateContent { group: group.clone(), content: content.clone() };
                let current = plan_group(&key, &context.informer.read());
                if current != [planned] {
                    return Ok(ActionOutcome::Changed);
                }
                context.create(&*content).await?;
                let message = format!("Waiting for a group snapshot {key} to be created by the CSI driver.");
                context.event(&*group, EventType::Normal, "CreatingGroupSnapshot", message);
            }
            Action::BindContent { content, group } => {
                let mut spec = json!({"volumeGroupSnapshotRef": {"uid": group.metadata.uid}});
                if let Some(class) = &group.spec.volume_group_snapshot_class_name {
                    spec["volumeGroupSnapshotClassName"] = json!(class);
                }
                context.patch(&*content, json!({ "spec": spec })).await?;
            }
            Action::HoldContent(content) => {
                finalizers::hold(context, &*content, GROUP_SNAPSHOT_CONTENT_PROTECTION).await?;
            }
            Action::CreateMember(snapshot) => context.create(&*snapshot).await?,
            Action::CreateMemberContent(content) => context.create(&*content).await?,
            Action::ReportMember { content, status } => {
                context.patch_status(&*content, json!(status)).await?;
            }
            Action::BindMember { snapshot, content } => {
                let status = json!({ "boundVolumeSnapshotContentName": content });
                context.patch_status(&*snapshot, status).await?;
            }
            Action::Report { group, status } => {
                report(context, &group, &status).await?;
                self.measured.reported::<VolumeGroupSnapshot>(&group, &status, &context.informer.read());
            }
            Action::Fail { group, trouble } => fail(context, &group, &trouble).await?,
            Action::ReportInUse { group, snapshot } => {
                let key = key_of(&*group);
                let message = format!(
                    "Snapshot {snapshot} belonging to VolumeGroupSnapshot {key} is being used to restore a PVC"
                );
                context.event(&*group, EventType::Warning, "SnapshotDeletePending", message);
                return Ok(ActionOutcome::Unchanged);
            }
            Action::Announce(content) => {
                let annotations = json!({ GROUP_SNAPSHOT_BEING_DELETED: "yes" });
                context.patch(&*content, json!({"metadata": {"annotations": annotations}})).await?;
            }
            Action::DeleteContent(content) => context.delete(&*content).await?,
            Action::DeleteMember(snapshot) => context.delete(&*snapshot).await?,
        }
        Ok(ActionOutcome::Changed)
    }
}

/// Reads the claims of a namespace: a user labels claims, and creates a group of them at once, but the watches of the two
/// kinds are not ordered. Upstream lists them, too (`getClaimsFromVolumeGroupSnapshot`).
async fn read_claims(context: &Context, namespace: &str) -> Result<(), Failure> {
    let api = Api::<PersistentVolumeClaim>::namespaced(context.client.clone(), namespace);
    for claim in api.list(&ListParams::default()).await?.items {
        context.informer.apply(claim);
    }
    Ok(())
}

/// The group of a member.
fn of_member(snapshot: &VolumeSnapshot) -> Option<Key> {
    let group = owning_group(snapshot)?;
    Some(Key::Group(ObjectKey::new(snapshot.metadata.namespace.as_deref().unwrap_or_default(), group)))
}

/// Groups found by an index.
fn groups<'w>(by: GroupBy, term: &str, world: &'w World) -> impl Iterator<Item = Key> + use<'w> {
    world.group_snapshots.by(by, term).map(|group| Key::Group(key_of(&**group)))
}

/// The groups of a namespace that are not ready: they may select a changed claim.
fn unready_in(namespace: &str, world: &World) -> impl Iterator<Item = Key> {
    groups(GroupBy::Unready, namespace, world)
}

async fn report(
    context: &Context,
    group: &VolumeGroupSnapshot,
    status: &VolumeGroupSnapshotStatus,
) -> Result<(), Failure> {
    write_status(context, group, status).await?;
    let key = key_of(group);
    let was_created = group.status.as_ref().is_some_and(|status| status.creation_time.is_some());
    if status.creation_time.is_some() && !was_created {
        let message = format!("GroupSnapshot {key} was successfully created by the CSI driver.");
        context.event(group, EventType::Normal, "GroupSnapshotCreated", message);
    }
    if status.ready_to_use == Some(true) && !group.is_ready() {
        info!(group = %key, "ready");
        let message = format!("GroupSnapshot {key} is ready to use.");
        context.event(group, EventType::Normal, "GroupSnapshotReady", message);
    }
    Ok(())
}

/// An error is not retried after a delay: a change of a related object wakes the group.
async fn fail(context: &Context, group: &VolumeGroupSnapshot, trouble: &Trouble) -> Result<(), Failure> {
    if let Some(precedes) = trouble.of_creation() {
        context.event(group, EventType::Warning, "CreateGroupSnapshotContentFailed", precedes);
    }
    let message = trouble.to_string();
    context.event(group, EventType::Warning, trouble.reason(), message.as_str());
    if let Some(follows) = trouble.of_finalizers(&key_of(group)) {
        context.event(group, EventType::Warning, "GroupSnapshotFinalizerError", follows);
    }
    write_trouble(context, group, &message, trouble.unreadies()).await
}
