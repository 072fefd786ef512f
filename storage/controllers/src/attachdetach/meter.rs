//! Metrics of attach/detach, with the names of upstream's controller
//! (`pkg/controller/volume/attachdetach/metrics`, `pkg/volume/util/metrics.go`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use claimcheck_informer::{Change, PodBy, VolumeBy, World};
use claimcheck_model::{
    Meter, StorageOperation, csi_plugin,
    meter::Reading,
    metric::{ATTACHABLE_IN_USE, ATTACHDETACH_VOLUMES, FORCED_DETACHES},
};
use k8s_openapi::api::storage::v1::VolumeAttachment;

use super::{
    desired::Desired,
    in_tree::{reported_plugin, users},
    plan::is_out_of_service,
    volume::{CsiVolume, attach_required},
};
use crate::{context::Context, under_way::UnderWay};

/// Upstream's names of the states.
const DESIRED: &str = "desired_state_of_world";
const ACTUAL: &str = "actual_state_of_world";

/// Operations on an attachment, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Attach(String),
    Detach(String),
}

/// Measures attach and detach operations.
#[derive(Default)]
pub(super) struct Measured {
    meter: Meter,
    under_way: UnderWay<Operation>,
}

impl Measured {
    /// Registers with the context's meter, including the numbers of volumes.
    pub(super) fn new(context: &Context) -> Self {
        context.count(readings);
        Self { meter: context.meter.clone(), under_way: UnderWay::default() }
    }

    /// An attachment is about to be created.
    pub(super) fn attaches(&self, attachment: &VolumeAttachment) {
        self.under_way.begin(Operation::Attach(name(attachment)));
    }

    /// An attachment is about to be deleted; forced if the node still has the volume in use.
    pub(super) fn detaches(&self, attachment: &VolumeAttachment, world: &World) {
        self.under_way.end(&Operation::Attach(name(attachment)));
        self.under_way.begin(Operation::Detach(name(attachment)));
        let volume = attachment.spec.source.persistent_volume_name.as_deref();
        let volume = volume.and_then(|volume| CsiVolume::of(world.volumes.named(volume)?));
        let node = world.nodes.named(&attachment.spec.node_name);
        let (Some(volume), Some(node)) = (volume, node) else { return };
        let used = node.status.as_ref().and_then(|status| status.volumes_in_use.as_ref());
        if used.is_some_and(|used| used.contains(&volume.unique)) {
            // Upstream: `pkg/controller/volume/attachdetach/metrics/metrics.go`, ForceDetachReason*.
            let reason = if is_out_of_service(node) { "out-of-service" } else { "timeout" };
            self.meter.increment(&FORCED_DETACHES, &[reason]);
        }
    }

    /// The API server rejected a new attachment.
    pub(super) fn not_attached(&self, attachment: &VolumeAttachment) {
        if let Some(took) = self.under_way.end(&Operation::Attach(name(attachment))) {
            self.record(attachment, StorageOperation::Attach, false, took);
        }
    }

    /// The node may use this attachment.
    pub(super) fn attached(&self, attachment: &VolumeAttachment) {
        if let Some(took) = self.under_way.end(&Operation::Attach(name(attachment))) {
            self.record(attachment, StorageOperation::Attach, true, took);
        }
    }

    /// Errors of the attacher, which retries, and completed detachments.
    pub(super) fn changed(&self, change: &Change) {
        let (old, new) = change.both::<VolumeAttachment>();
        match (old, new) {
            (Some(deleted), None) => {
                self.under_way.end(&Operation::Attach(name(deleted)));
                if let Some(took) = self.under_way.end(&Operation::Detach(name(deleted))) {
                    self.record(deleted, StorageOperation::Detach, true, took);
                }
            }
            (Some(old), Some(new)) => {
                let (before, now) = (old.status.as_ref(), new.status.as_ref());
                let attach = now.and_then(|now| now.attach_error.as_ref());
                if attach.is_some() && attach != before.and_then(|before| before.attach_error.as_ref()) {
                    let so_far = self.under_way.so_far(&Operation::Attach(name(new)));
                    so_far
                        .into_iter()
                        .for_each(|took| self.record(new, StorageOperation::Attach, false, took));
                }
                let detach = now.and_then(|now| now.detach_error.as_ref());
                if detach.is_some() && detach != before.and_then(|before| before.detach_error.as_ref()) {
                    let so_far = self.under_way.so_far(&Operation::Detach(name(new)));
                    so_far
                        .into_iter()
                        .for_each(|took| self.record(new, StorageOperation::Detach, false, took));
                }
            }
            (None, _) => {}
        }
    }

    fn record(
        &self,
        attachment: &VolumeAttachment,
        operation: StorageOperation,
        success: bool,
        took: Duration,
    ) {
        operation.ended(&self.meter, &csi_plugin(&attachment.spec.attacher), success, took);
    }
}

fn name(attachment: &VolumeAttachment) -> String {
    attachment.metadata.name.clone().unwrap_or_default()
}

/// Desired and attached volumes, and the number of pods that use them on each node. As upstream's states of world, the
/// totals have a volume of several objects once per node.
fn readings(world: &World) -> Vec<Reading> {
    let mut total: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut used: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut count = |plugin: &str, desired: &Desired| {
        for (node, pods) in &desired.pods {
            *total.entry((plugin.to_owned(), DESIRED)).or_default() += 1;
            *used.entry((node.clone(), plugin.to_owned())).or_default() += pods.len() as u64;
        }
    };
    for volume in world.volumes.iter().filter_map(|volume| CsiVolume::of(volume)) {
        if volume.planned_as(world) == volume.name && attach_required(volume.driver, world) {
            count(&csi_plugin(volume.driver), &Desired::from_volumes(&volume.sharing(world), world));
        }
    }
    let in_tree = world.volumes.terms(VolumeBy::InTree).chain(world.pods.terms(PodBy::InTree));
    for unique in in_tree.collect::<BTreeSet<_>>() {
        if let Some(plugin) = reported_plugin(unique) {
            count(plugin, &users(unique, world).desired);
        }
    }
    for node in world.nodes.iter() {
        let listed = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
        for plugin in listed.filter_map(|volume| reported_plugin(&volume.name)) {
            *total.entry((plugin.to_owned(), ACTUAL)).or_default() += 1;
        }
    }
    for attachment in world.attachments.iter() {
        if attachment.status.as_ref().is_some_and(|status| status.attached) {
            let plugin = csi_plugin(&attachment.spec.attacher);
            *total.entry((plugin, ACTUAL)).or_default() += 1;
        }
    }
    let total = total.iter().map(|((plugin, state), count)| {
        Reading::new(&ATTACHDETACH_VOLUMES, &[plugin.as_str(), *state], *count as f64)
    });
    let used = used.iter().map(|((node, plugin), count)| {
        Reading::new(&ATTACHABLE_IN_USE, &[node.as_str(), plugin.as_str()], *count as f64)
    });
    total.chain(used).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::{World, testing, testing::Notes};
    use k8s_openapi::api::{core::v1::AttachedVolume, storage::v1::VolumeError};

    use super::{
        super::plan_tests::{attachment, bound, node},
        *,
    };

    const PLUGIN: &str = "kubernetes.io/csi:csi.test";

    /// The recorded metrics, without durations.
    fn recorded(notes: &Notes) -> Vec<(&'static str, String)> {
        notes.recorded().into_iter().map(|(metric, labels, _)| (metric, labels)).collect()
    }

    #[test]
    fn an_attachment_is_timed_from_one_write_to_the_other() {
        let notes = Notes::default();
        let measured = Measured { meter: Meter::new(notes.clone()), under_way: UnderWay::default() };
        let (_, volume) = bound(&["ReadWriteOnce"]);
        let mut world = testing::world([volume.into(), node("a", true, true).into()]);
        let mut change = |attachment: VolumeAttachment| {
            if let Some(change) = world.apply(attachment) {
                measured.changed(&change);
            }
        };
        measured.attaches(&attachment("a", false));
        change(attachment("a", false));
        let mut failed = attachment("a", false);
        let error = VolumeError { message: Some("no".into()), ..VolumeError::default() };
        failed.status.get_or_insert_default().attach_error = Some(error);
        change(failed);
        measured.attached(&attachment("a", true));
        measured.attached(&attachment("a", true));
        measured.detaches(&attachment("a", true), &world);
        let deleted = world.forget(
            claimcheck_informer::Kind::Attachment,
            &claimcheck_informer::key_of(&attachment("a", true)),
        );
        measured.changed(&deleted.unwrap());
        let ended = |rest: &str| ("storage_operation_duration_seconds", format!("{PLUGIN} {rest} false"));
        let forced = "attach_detach_controller_attachdetach_controller_forced_detaches";
        assert_eq!(
            recorded(&notes),
            [
                ended("volume_attach fail-unknown"),
                ended("volume_attach success"),
                (forced, "timeout".to_owned()),
                ended("volume_detach success"),
            ]
        );
    }

    #[test]
    fn volumes_are_counted_as_pods_want_them_and_as_they_are_attached() {
        let (claim, volume) = bound(&["ReadWriteOnce"]);
        let pods = [testing::pod("p", "a", &["data"]), testing::pod("q", "a", &["data"])];
        let [p, q] = pods;
        let world: World = testing::world([
            claim.into(),
            volume.into(),
            node("a", false, false).into(),
            p.into(),
            q.into(),
            attachment("b", true).into(),
            attachment("c", false).into(),
        ]);
        assert_eq!(
            readings(&world),
            [
                Reading::new(&ATTACHDETACH_VOLUMES, &[PLUGIN, "actual_state_of_world"], 1.0),
                Reading::new(&ATTACHDETACH_VOLUMES, &[PLUGIN, "desired_state_of_world"], 1.0),
                Reading::new(&ATTACHABLE_IN_USE, &["a", PLUGIN], 2.0),
            ]
        );
    }
    #[test]
    fn a_volume_of_two_objects_is_counted_once() {
        let (claim, volume) = bound(&["ReadWriteMany"]);
        let mut other_claim = testing::claim("data-2", "fast", "1Gi");
        let mut other = testing::volume("pv-2", "fast", "1Gi");
        testing::bind(&mut other_claim, &mut other);
        other.spec.get_or_insert_default().csi.get_or_insert_default().volume_handle = "handle-pv".into();
        let world = testing::world([
            claim.into(),
            volume.into(),
            other_claim.into(),
            other.into(),
            node("a", false, false).into(),
            testing::pod("p", "a", &["data"]).into(),
            testing::pod("q", "a", &["data-2"]).into(),
        ]);
        assert_eq!(
            readings(&world),
            [
                Reading::new(&ATTACHDETACH_VOLUMES, &[PLUGIN, DESIRED], 1.0),
                Reading::new(&ATTACHABLE_IN_USE, &["a", PLUGIN], 2.0),
            ]
        );
    }

    #[test]
    fn volumes_without_attachments_are_counted_by_the_nodes_lists() {
        const ISCSI: &str = "kubernetes.io/iscsi";
        let source = serde_json::json!({"targetPortal": "10.0.0.1", "iqn": "iqn", "lun": 0});
        let volume = serde_json::json!({"name": "disk", "iscsi": source});
        let mut pod = testing::pod("p", "a", &[]);
        pod.spec.get_or_insert_default().volumes = Some(vec![serde_json::from_value(volume).unwrap()]);
        let mut a = testing::node("a");
        let listed = AttachedVolume { name: format!("{ISCSI}/10.0.0.1:iqn:0"), device_path: String::new() };
        a.status.get_or_insert_default().volumes_attached = Some(vec![listed]);
        assert_eq!(
            readings(&testing::world([pod.into(), a.into()])),
            [
                Reading::new(&ATTACHDETACH_VOLUMES, &[ISCSI, ACTUAL], 1.0),
                Reading::new(&ATTACHDETACH_VOLUMES, &[ISCSI, DESIRED], 1.0),
                Reading::new(&ATTACHABLE_IN_USE, &["a", ISCSI], 1.0),
            ]
        );
    }
}
