//! Executes the plans of groups and their contents.

use claimcheck_informer::{Change, EventType, KindSet, World, key_of};
use claimcheck_model::{
    GROUP_SNAPSHOT_BEING_DELETED, GROUP_SNAPSHOT_BOUND_PROTECTION, GROUP_SNAPSHOT_CONTENT_PROTECTION,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotStatus},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, api::ListParams};
use serde_json::json;
use tracing::info;

use super::{
    plan::{Action, plan_content, plan_group, time_to_settle},
    triggers::{KINDS, Key, concerned},
    trouble::Trouble,
};
use crate::{
    context::{Context, Failure},
    shell::{ActionOutcome, Controller, Plan},
    snapshotter::{
        finalizers,
        meter::Measured,
        status_error::{write_status, write_trouble},
    },
};

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
        KindSet::of(KINDS)
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        self.measured.changed::<VolumeGroupSnapshot>(change, world);
        concerned(change, world)
    }

    fn plan(&self, key: &Key, world: &World, now: Timestamp) -> Plan<Action> {
        let actions = match key {
            Key::Group(key) => plan_group(key, world),
            Key::Content(name) => Vec::from_iter(plan_content(name, world)),
        };
        if let [Action::CreateContent { group, .. }] = &actions[..]
            && let Some(wait) = time_to_settle(group, world, now)
        {
            return Plan { actions: Vec::new(), requeue_after: Some(wait) };
        }
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
    if let Some(precedes) = trouble.creation_event() {
        context.event(group, EventType::Warning, "CreateGroupSnapshotContentFailed", precedes);
    }
    let message = trouble.to_string();
    context.event(group, EventType::Warning, trouble.reason(), message.as_str());
    if let Some(follows) = trouble.finalizer_event(&key_of(group)) {
        context.event(group, EventType::Warning, "GroupSnapshotFinalizerError", follows);
    }
    write_trouble(context, group, &message, trouble.unreadies()).await
}
