//! Executes the plans of groups and their contents.

use claimcheck_informer::{Change, EventType, KindSet, World, key_of};
use claimcheck_model::group_snapshot::VolumeGroupSnapshot;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, api::ListParams};
use serde_json::json;

use super::{
    plan::{Action, plan_group, time_to_settle},
    triggers::{KINDS, Key, concerned},
};
use crate::{
    context::{Context, Failure},
    shell::{ActionOutcome, Controller, Plan},
    snapshotter::{
        bind::act,
        meter::Measured,
        plan_binding::{Binding, plan_content},
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
            Key::Content(name) => plan_content(name, world).map(Action::Bind).into_iter().collect(),
        };
        if let [Action::Bind(Binding::CreateContent { object, .. })] = &actions[..]
            && let Some(wait) = time_to_settle(object, world, now)
        {
            return Plan { actions: Vec::new(), requeue_after: Some(wait) };
        }
        actions.into()
    }

    async fn act(&self, context: &Context, _: &Key, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Bind(Binding::CreateContent { object, content }) => {
                let key = key_of(&*object);
                read_claims(context, &key.namespace).await?;
                let planned = Binding::CreateContent { object, content };
                let current = plan_group(&key, &context.informer.read());
                if current != [Action::Bind(planned.clone())] {
                    return Ok(ActionOutcome::Changed);
                }
                act(context, &self.measured, planned).await?;
            }
            Action::Bind(action) => act(context, &self.measured, action).await?,
            Action::CreateMember(snapshot) => context.create(&*snapshot).await?,
            Action::CreateMemberContent(content) => context.create(&*content).await?,
            Action::ReportMember { content, status } => {
                context.patch_status(&*content, json!(status)).await?;
            }
            Action::BindMember { snapshot, content } => {
                let status = json!({ "boundVolumeSnapshotContentName": content });
                context.patch_status(&*snapshot, status).await?;
            }
            Action::ReportInUse { group, snapshot } => {
                let key = key_of(&*group);
                let message = format!(
                    "Snapshot {snapshot} belonging to VolumeGroupSnapshot {key} is being used to restore a PVC"
                );
                context.event(&*group, EventType::Warning, "SnapshotDeletePending", message);
                return Ok(ActionOutcome::Unchanged);
            }
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
