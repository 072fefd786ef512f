//! The volumes that wait, from the objects of a cluster and the last Events about them.
//!
//! One row per claim and phase that started and has not ended, as `model::phase` defines it; without the node's mount
//! table, stage and publish cannot be distinguished and are both reported as publish.

use std::collections::BTreeSet;

use claimcheck_informer::{
    DataSource, World, class::claim_class, data_source, growth, is_terminal, key_of, pod_claims,
};
use claimcheck_model::{ObjectKey, Phase, SELECTED_NODE};
use claimcheck_timeline::WaitingPhase;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttachment,
};

use crate::inventory::Inventory;

use super::{
    Cause, Clock, InvolvedKind, Messages, Open, SCHEMA, Status, Waiting,
    cause::Remedy,
    facts::{
        condition, csi_driver, holders, is_running, is_shut_down, is_started, node_of, not_ready, pods_of,
        time, volume_of,
    },
    leftover::{claim_of, leftovers},
    row::{Row, View, deletion_of_pod, with_claim, with_finalizers},
};

/// The state of a cluster. Stuck rows come first, then the longest waits.
pub fn plan(world: &World, messages: &Messages, clock: &Clock) -> Status {
    let inventory = Inventory::of(world);
    plan_open(&inventory, &Open::of(&inventory), messages, clock, &|_| Vec::new())
}

/// The same, at the cost of the objects that are open: `open` must be that of the world. `observed` returns the
/// unfinished phases of the claim with a uid.
pub(crate) fn plan_open(
    world: &Inventory,
    open: &Open,
    messages: &Messages,
    clock: &Clock,
    observed: &dyn Fn(&str) -> Vec<WaitingPhase>,
) -> Status {
    let view = View { messages, clock, observed };
    let mut waiting: Vec<Waiting> = Vec::new();
    // A phase of the claim itself precedes those of its pods.
    let mut reported: BTreeSet<ObjectKey> = BTreeSet::new();
    for claim in open.claims.iter().filter_map(|key| world.claims.get(key)) {
        if let Some(row) = stuck_claim(world, &claim) {
            reported.insert(key_of(&*claim));
            waiting.push(row.finish(&view));
        }
    }
    for pod in open.pods.iter().filter_map(|key| world.pods.get(key)) {
        let rows = stuck_pod(world, &pod, &reported);
        waiting.extend(rows.into_iter().map(|row| row.finish(&view)));
    }
    for attachment in open.attachments.keys().filter_map(|key| world.attachments.get(key)) {
        waiting.extend(stuck_attachment(world, &attachment).map(|row| row.finish(&view)));
    }
    for volume in open.volumes.iter().filter_map(|key| world.volumes.get(key)) {
        waiting.extend(stuck_volume(world, &volume).map(|row| row.finish(&view)));
    }
    for row in stuck_snapshots(world, open) {
        waiting.push(row.finish(&view));
    }
    let order = |row: &Waiting| {
        (!row.stuck, row.since.is_none(), row.since, row.namespace.clone(), row.claim.clone())
    };
    waiting.sort_by_cached_key(|row| (order(row), row.pod.clone(), row.phase));
    Status {
        version: SCHEMA,
        at: clock.now,
        stuck_after_seconds: clock.stuck_after.as_secs_f64(),
        claims: world.claims.len(),
        volumes: world.volumes.len(),
        waiting,
        leftovers: leftovers(world, open, clock),
        notes: Vec::new(),
    }
}

/// The phase of a claim: provision, bind, expand, or its deletion.
fn stuck_claim(world: &Inventory, claim: &PersistentVolumeClaim) -> Option<Row> {
    let (meta, status) = (&claim.metadata, claim.status.as_ref());
    let created = time(meta.creation_timestamp.as_ref());
    let pods = || pods_of(world, &key_of(claim));
    if let Some(deleting) = &meta.deletion_timestamp {
        let row = Row::new(Phase::Delete, Some(deleting.0), Cause::InProgress).with_claim(world, claim);
        return Some(in_use(world, with_finalizers(row, meta)));
    }
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Bound") => return stuck_growth(world, claim),
        Some("Lost") => {
            return Some(Row::new(Phase::Bind, created, Cause::LostVolume).with_claim(world, claim));
        }
        _ => {}
    }
    if let Some(volume) = volume_of(world, claim) {
        let since = time(volume.metadata.creation_timestamp.as_ref()).max(created);
        return Some(Row::new(Phase::Bind, since, Cause::InProgress).with_claim(world, claim));
    }
    let class = claim_class(claim);
    if class.is_empty() {
        return Some(Row::new(Phase::Bind, created, Cause::NoVolume).with_claim(world, claim));
    }
    let Some(class) = world.few.classes.named(class) else {
        return Some(Row::new(Phase::Provision, created, Cause::NoClass).with_claim(world, claim));
    };
    let phase = match data_source(claim) {
        Some(DataSource::Snapshot(_)) => Phase::Restore,
        Some(DataSource::Claim(_)) => Phase::Clone,
        Some(DataSource::Elsewhere { .. } | DataSource::Other { .. }) | None => Phase::Provision,
    };
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let selected = meta.annotations.iter().flatten().any(|(key, _)| key == SELECTED_NODE);
    let first = pods().filter_map(|pod| time(pod.metadata.creation_timestamp.as_ref())).min();
    match (waits, selected, pods().next()) {
        (true, false, None) => {
            let row = Row::new(phase, created, Cause::FirstConsumer).with_claim(world, claim);
            Some(row.certain(Some(Cause::FirstConsumer)))
        }
        // Its pod is to be scheduled.
        (true, false, Some(_)) => None,
        (true, true, _) => Some(provisioned(world, claim, phase, created.max(first))),
        (false, ..) => Some(provisioned(world, claim, phase, created)),
    }
}

/// The phase of a claim that waits for its provisioner: the class exists.
fn provisioned(
    world: &Inventory,
    claim: &PersistentVolumeClaim,
    phase: Phase,
    since: Option<Timestamp>,
) -> Row {
    let row = Row::new(phase, since, Cause::NoProvisioner).with_claim(world, claim);
    Row { contradicted: &[Cause::NoClass], ..row }
}

/// A row of a claim that is being deleted, with the pods that hold it.
fn in_use(world: &Inventory, row: Row) -> Row {
    let holders: Vec<_> = holders(world, &row.claim).collect();
    let is_deleting = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    let with_pod = |row: Row, pod: &Pod| {
        let (pod, node) = (pod.metadata.name.clone(), node_of(pod));
        let (pod, node) = (pod.unwrap_or_default(), node.unwrap_or_default().to_owned());
        Row { pod, node, ..row.certain(Some(Cause::InUse)) }
    };
    // One that has not ended, or may still run on a node that is lost.
    let has_ended = |pod: &Pod| {
        let node = node_of(pod).unwrap_or_default();
        is_terminal(pod) && not_ready(node, world.few.nodes.named(node)).is_none()
    };
    if let Some(pod) = holders.iter().find(|pod| !has_ended(pod)) {
        return with_pod(row, pod);
    }
    if let Some(pod) = holders.iter().find(|pod| !is_deleting(pod)) {
        return Row { remedy: Some(Remedy::EndedPod), ..with_pod(row, pod) };
    }
    let Some(pod) = holders.first() else { return row };
    let finalizers = pod.metadata.finalizers.as_deref().unwrap_or_default().join(", ");
    let error = Some(format!("finalizers of the pod: {finalizers}")).filter(|_| !finalizers.is_empty());
    Row { error, remedy: Some(Remedy::EndingPod), ..with_pod(row, pod) }
}

/// The expansion of a bound claim.
fn stuck_growth(world: &Inventory, claim: &PersistentVolumeClaim) -> Option<Row> {
    let volume = volume_of(world, claim)?;
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let of_type = |names: &[&str]| {
        let mut conditions = conditions.clone();
        conditions.find(|condition| condition.status == "True" && names.contains(&&*condition.type_))
    };
    let (phase, condition) = match of_type(&["FileSystemResizePending"]) {
        Some(pending) => (Phase::NodeExpand, Some(pending)),
        None if growth::requested(claim) > growth::volume_capacity(&volume) => {
            (Phase::ControllerExpand, of_type(&["Resizing", "ControllerResizeError"]))
        }
        None => return None,
    };
    let since = condition.and_then(|condition| time(condition.last_transition_time.as_ref()));
    let row = Row::new(phase, since, Cause::InProgress).with_claim(world, claim);
    let error = of_type(&["ControllerResizeError", "NodeResizeError"]).and_then(|one| one.message.clone());
    let mut pods = pods_of(world, &row.claim);
    Some(match pods.next().filter(|_| phase == Phase::NodeExpand) {
        Some(pod) => {
            let node = node_of(&pod).unwrap_or_default();
            let down = (!node.is_empty()).then(|| not_ready(node, world.few.nodes.named(node))).flatten();
            Row { error, ..row.with_pod(&pod) }.down(down)
        }
        None => Row { error, ..row },
    })
}

/// The phases of a pod and its claims: schedule, attach, publish; or unpublish.
fn stuck_pod(world: &Inventory, pod: &Pod, reported: &BTreeSet<ObjectKey>) -> Vec<Row> {
    let mut rows = Vec::new();
    let created = time(pod.metadata.creation_timestamp.as_ref());
    for key in pod_claims(pod).map(|used| used.claim).collect::<BTreeSet<_>>() {
        let Some(claim) = world.claims.get(&key) else {
            // It may exist, and be of another class than those that are followed.
            if pod.metadata.deletion_timestamp.is_none() && !world.omitted.claims {
                let row = Row { claim: key, ..Row::new(Phase::Schedule, created, Cause::NoClaim) };
                rows.push(row.with_pod(pod).certain(Some(Cause::NoClaim)));
            }
            continue;
        };
        let node = node_of(pod).unwrap_or_default();
        let down = || not_ready(node, world.few.nodes.named(node));
        if let Some((deleted, due)) = deletion_of_pod(&pod.metadata) {
            if !node.is_empty() {
                let phase = if is_running(pod) { Phase::Stop } else { Phase::Unpublish };
                let row = Row::new(phase, Some(deleted), Cause::InProgress).with_claim(world, &claim);
                let row = Row { due: Some(due), ..row.with_pod(pod) };
                // Its node has finished it.
                let row = if is_shut_down(pod) { with_finalizers(row, &pod.metadata) } else { row };
                rows.push(row.down(down()));
            }
            continue;
        }
        if node.is_empty() {
            if !reported.contains(&key) {
                let since = created.max(time(claim.metadata.creation_timestamp.as_ref()));
                let row = Row::new(Phase::Schedule, since, Cause::Unschedulable).with_claim(world, &claim);
                let error = condition(pod, "PodScheduled").and_then(|found| found.message.clone());
                rows.push(Row { error, ..row.with_pod(pod) });
            }
            continue;
        }
        if is_started(pod) || reported.contains(&key) {
            continue;
        }
        let scheduled =
            condition(pod, "PodScheduled").and_then(|found| time(found.last_transition_time.as_ref()));
        let row = to_node(world, &claim, node, scheduled.or(created));
        rows.extend(row.map(|row| row.with_pod(pod).down(down())));
    }
    rows
}

/// The phase of a bound claim on the way to a pod on a node.
fn to_node(
    world: &Inventory,
    claim: &PersistentVolumeClaim,
    node: &str,
    scheduled: Option<Timestamp>,
) -> Option<Row> {
    let volume = volume_of(world, claim)?;
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let driver = csi_driver(&volume).unwrap_or_default();
    let registered = world
        .few
        .csi_nodes
        .named(node)
        .is_some_and(|csi_node| csi_node.spec.drivers.iter().any(|registered| registered.name == driver));
    let cause = if driver.is_empty() || registered { Cause::InProgress } else { Cause::DriverNotOnNode };
    let attaches =
        world.few.csi_drivers.named(driver).is_none_or(|found| found.spec.attach_required != Some(false));
    let here = world.attachments.referring_to(name).find(|one| one.spec.node_name == node);
    let attached = here.as_ref().is_some_and(|one| one.status.as_ref().is_some_and(|status| status.attached));
    if driver.is_empty() || !attaches || attached {
        return Some(Row::new(Phase::Publish, scheduled, cause).with_claim(world, claim));
    }
    let created = here.as_ref().and_then(|one| time(one.metadata.creation_timestamp.as_ref()));
    let single = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.access_modes.as_ref())
        .is_some_and(|modes| modes.iter().all(|mode| mode.starts_with("ReadWriteOnce")));
    let elsewhere = world.attachments.referring_to(name).any(|one| one.spec.node_name != node);
    let cause = if single && elsewhere { Cause::MultiAttach } else { cause };
    let contradicted: &[Cause] = if elsewhere { &[] } else { &[Cause::MultiAttach] };
    let row = Row::new(Phase::Attach, scheduled.max(created), cause).with_claim(world, claim);
    let error = here.as_ref().and_then(|one| one.status.as_ref()?.attach_error.as_ref()?.message.clone());
    Some(Row { error, contradicted, ..row })
}

/// The detach of an attachment that is being deleted.
fn stuck_attachment(world: &Inventory, attachment: &VolumeAttachment) -> Option<Row> {
    let deleting = attachment.metadata.deletion_timestamp.as_ref()?;
    let node = &attachment.spec.node_name;
    let row = Row::new(Phase::Detach, Some(deleting.0), Cause::InProgress);
    let name = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
    let row = match world.volumes.named(name) {
        Some(volume) => with_claim(world, row.with_volume(&volume)),
        // It may exist, and be of a claim that is not followed.
        None if world.omitted.volumes => return None,
        None => Row { volume: name.to_owned(), driver: attachment.spec.attacher.clone(), ..row },
    };
    let error = attachment.status.as_ref().and_then(|status| status.detach_error.as_ref()?.message.clone());
    Some(with_finalizers(Row { node: node.clone(), error, ..row }, &attachment.metadata))
}

/// The deletion of a volume of which the claim no longer exists.
fn stuck_volume(world: &Inventory, volume: &PersistentVolume) -> Option<Row> {
    let status = volume.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let policy = volume.spec.as_ref()?.persistent_volume_reclaim_policy.as_deref();
    let deleting = volume.metadata.deletion_timestamp.as_ref();
    let reclaimed = matches!(phase, Some("Released" | "Failed")) && policy == Some("Delete");
    let in_use = claim_of(volume).is_some_and(|claim| world.claims.contains(&claim));
    if in_use || !(deleting.is_some() || reclaimed) {
        return None;
    }
    let released = status.and_then(|status| time(status.last_phase_transition_time.as_ref()));
    let since = time(deleting).or(released);
    let row = with_finalizers(Row::new(Phase::Delete, since, Cause::InProgress), &volume.metadata);
    let error = status.and_then(|status| status.message.clone()).filter(|message| !message.is_empty());
    let row = Row { error, ..row.with_volume(volume) };
    let attachment =
        world.attachments.referring_to(volume.metadata.name.as_deref().unwrap_or_default()).next();
    Some(match attachment {
        // Provisioners delete no volume that is attached.
        Some(attachment) => Row {
            node: attachment.spec.node_name.clone(),
            remedy: Some(Remedy::Attached),
            ..row.certain(Some(Cause::InUse))
        },
        None => row,
    })
}

/// The snapshots that are not ready.
fn stuck_snapshots(world: &Inventory, open: &Open) -> impl Iterator<Item = Row> {
    open.snapshots.iter().filter_map(|key| world.few.snapshots.get(key)).filter_map(|snapshot| {
        let status = snapshot.status.as_ref();
        let ready = status.is_some_and(|status| status.ready_to_use == Some(true));
        if ready || snapshot.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let taken = status.and_then(|status| status.creation_time.as_ref());
        let phase = if taken.is_some() { Phase::SnapshotReady } else { Phase::SnapshotCreate };
        let since = time(taken).max(time(snapshot.metadata.creation_timestamp.as_ref()));
        let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
        let claim = snapshot.spec.source.persistent_volume_claim_name.clone().unwrap_or_default();
        let row =
            Row { claim: ObjectKey::new(namespace, claim), ..Row::new(phase, since, Cause::InProgress) };
        let row = with_claim(world, row).with_events_of(InvolvedKind::Snapshot, &snapshot.metadata);
        let error = status.and_then(|status| status.error.as_ref()?.message.clone());
        Some(Row { error, ..row })
    })
}
