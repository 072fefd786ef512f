//! What is dropped from objects on arrival: most of them, since a monitor holds all objects of a large cluster.

use k8s_openapi::{
    Metadata,
    api::{
        core::v1::{
            Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus,
            EphemeralVolumeSource, Node, NodeCondition, NodeSpec, NodeStatus, PersistentVolume,
            PersistentVolumeClaim, Pod, PodCondition, PodSpec, PodStatus, Volume,
        },
        storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use claimcheck_model::{
    KEEP_TERMINATED_POD_VOLUMES, PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};

use crate::canary::{self, ZONE};

/// The annotations that phases and causes depend on; the last one is an earlier form of the field for the class.
const ANNOTATIONS: [&str; 5] = [
    PROVISIONED_BY,
    STORAGE_PROVISIONER,
    SELECTED_NODE,
    KEEP_TERMINATED_POD_VOLUMES,
    "volume.beta.kubernetes.io/storage-class",
];

/// The conditions of pods that they depend on.
const CONDITIONS: [&str; 3] = ["PodScheduled", "PodReadyToStartContainers", "Ready"];

/// Drops what no phase and no cause depends on.
pub(crate) trait Trim: Metadata<Ty = ObjectMeta> + Sized {
    /// The smaller object.
    #[must_use]
    fn trimmed(mut self) -> Self {
        trim_metadata(self.metadata_mut());
        self.trim_fields();
        self
    }

    /// Drops fields of specification and status.
    fn trim_fields(&mut self) {}
}

fn trim_metadata(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.labels = meta.labels.take().and_then(|mut labels| {
        labels.retain(|name, _| name == canary::LABEL || name == ZONE);
        (!labels.is_empty()).then_some(labels)
    });
    meta.owner_references = None;
    meta.generate_name = None;
    meta.generation = None;
    meta.self_link = None;
    meta.annotations = meta.annotations.take().and_then(|mut annotations| {
        annotations.retain(|name, _| ANNOTATIONS.contains(&&**name) || name.starts_with(canary::LABEL));
        (!annotations.is_empty()).then_some(annotations)
    });
}

/// Finalizers hold objects that are being deleted: until then they have no effect.
fn drop_finalizers(meta: &mut ObjectMeta) {
    if meta.deletion_timestamp.is_none() {
        meta.finalizers = None;
    }
}

impl Trim for PersistentVolumeClaim {
    fn trim_fields(&mut self) {
        drop_finalizers(&mut self.metadata);
        if let Some(spec) = &mut self.spec {
            spec.selector = None;
        }
        if let Some(status) = &mut self.status {
            status.access_modes = None;
        }
    }
}

impl Trim for PersistentVolume {
    fn trim_fields(&mut self) {
        // One that is released waits for its deletion, which may not have started.
        if self.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound") {
            drop_finalizers(&mut self.metadata);
        }
        let Some(spec) = &mut self.spec else { return };
        spec.node_affinity = None;
        spec.mount_options = None;
        spec.access_modes = None;
        if let Some(claim) = &mut spec.claim_ref {
            claim.api_version = None;
            claim.kind = None;
            claim.resource_version = None;
        }
        let Some(csi) = &mut spec.csi else { return };
        csi.volume_attributes = None;
        csi.fs_type = None;
        csi.controller_expand_secret_ref = None;
        csi.controller_publish_secret_ref = None;
        csi.node_expand_secret_ref = None;
        csi.node_publish_secret_ref = None;
        csi.node_stage_secret_ref = None;
    }
}

impl Trim for Pod {
    fn trim_fields(&mut self) {
        drop_finalizers(&mut self.metadata);
        self.spec = self.spec.take().map(|spec| PodSpec {
            node_name: spec.node_name,
            volumes: spec.volumes.map(|volumes| volumes.into_iter().filter_map(claim_volume).collect()),
            // Their number shows whether all have ended.
            containers: spec.containers.iter().map(|_| Container::default()).collect(),
            ..PodSpec::default()
        });
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            conditions: status.conditions.map(conditions),
            container_statuses: states(status.container_statuses),
            init_container_statuses: states(status.init_container_statuses),
            ..PodStatus::default()
        });
    }
}

/// A pod's volume, if it is a claim's.
fn claim_volume(volume: Volume) -> Option<Volume> {
    if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() {
        return None;
    }
    Some(Volume {
        name: volume.name,
        persistent_volume_claim: volume.persistent_volume_claim,
        ephemeral: volume.ephemeral.map(|_| EphemeralVolumeSource::default()),
        ..Volume::default()
    })
}

fn conditions(mut conditions: Vec<PodCondition>) -> Vec<PodCondition> {
    conditions.retain(|condition| CONDITIONS.contains(&&*condition.type_));
    for condition in &mut conditions {
        condition.last_probe_time = None;
        condition.observed_generation = None;
        condition.reason = None;
    }
    conditions
}

fn states(statuses: Option<Vec<ContainerStatus>>) -> Option<Vec<ContainerStatus>> {
    let state = |state: ContainerState| ContainerState {
        running: state.running.map(|_| ContainerStateRunning::default()),
        terminated: state.terminated.map(|_| ContainerStateTerminated::default()),
        waiting: None,
    };
    let status = |status: ContainerStatus| ContainerStatus {
        state: status.state.map(state),
        ..ContainerStatus::default()
    };
    statuses.map(|statuses| statuses.into_iter().map(status).collect())
}

impl Trim for Node {
    fn trim_fields(&mut self) {
        self.spec = self.spec.take().map(|spec| NodeSpec { taints: spec.taints, ..NodeSpec::default() });
        self.status = self.status.take().map(|status| NodeStatus {
            conditions: status.conditions.map(|conditions| {
                conditions
                    .into_iter()
                    .filter(|condition| condition.type_ == "Ready")
                    .map(node_condition)
                    .collect()
            }),
            ..NodeStatus::default()
        });
    }
}

/// What a node that is not ready reports is the message of rows; most nodes are ready.
fn node_condition(condition: NodeCondition) -> NodeCondition {
    let ready = condition.status == "True";
    NodeCondition {
        last_heartbeat_time: None,
        message: condition.message.filter(|_| !ready),
        reason: condition.reason.filter(|_| !ready),
        ..condition
    }
}

impl Trim for StorageClass {
    fn trim_fields(&mut self) {
        self.parameters = None;
        self.mount_options = None;
        self.allowed_topologies = None;
    }
}

impl Trim for VolumeAttachment {
    fn trim_fields(&mut self) {
        drop_finalizers(&mut self.metadata);
        self.spec.source.inline_volume_spec = None;
        if let Some(status) = &mut self.status {
            status.attachment_metadata = None;
        }
    }
}

impl Trim for CSIDriver {}

impl Trim for CSINode {
    /// The names of its drivers remain.
    fn trim_fields(&mut self) {
        for driver in &mut self.spec.drivers {
            driver.node_id = String::new();
            driver.topology_keys = None;
            driver.allocatable = None;
        }
    }
}

impl Trim for VolumeSnapshot {}

impl Trim for VolumeSnapshotContent {}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{annotate, deleting, pod, volume};

    use super::*;

    #[test]
    fn finalizers_stay_while_they_may_hold_an_object() {
        let finalizers = |phase: &str, is_deleting: bool| {
            let mut volume = volume("v", "fast", "1Gi");
            volume.status.get_or_insert_default().phase = Some(phase.into());
            volume.metadata.finalizers = Some(vec!["f".into()]);
            let volume = if is_deleting { deleting(volume, &["f"]) } else { volume };
            volume.trimmed().metadata.finalizers.unwrap_or_default().len()
        };
        assert_eq!((finalizers("Bound", false), finalizers("Bound", true)), (0, 1));
        assert_eq!(finalizers("Released", false), 1);
        let mut pod = pod("p", "n", &["c"]);
        pod.metadata.finalizers = Some(vec!["f".into()]);
        assert_eq!(pod.clone().trimmed().metadata.finalizers, None);
        assert_eq!(deleting(pod, &["f"]).trimmed().metadata.finalizers, Some(vec!["f".to_owned()]));
    }

    #[test]
    fn a_pod_has_the_conditions_that_show_its_phase() {
        let mut pod = pod("p", "n", &["c"]);
        let condition = |type_: &str| PodCondition {
            type_: type_.into(),
            message: Some("m".into()),
            reason: Some("r".into()),
            ..PodCondition::default()
        };
        let all = ["PodScheduled", "Initialized", "Ready"].map(condition);
        pod.status.get_or_insert_default().conditions = Some(all.into());
        let conditions = pod.trimmed().status.unwrap().conditions.unwrap();
        let types: Vec<_> = conditions.iter().map(|condition| &*condition.type_).collect();
        assert_eq!(types, ["PodScheduled", "Ready"]);
        let dropped = |condition: &PodCondition| condition.reason.is_none() && condition.message.is_some();
        assert!(conditions.iter().all(dropped));
    }

    #[test]
    fn a_volume_loses_its_attributes_and_a_pod_all_but_its_claims() {
        let mut volume = volume("v", "fast", "1Gi");
        annotate(&mut volume.metadata, PROVISIONED_BY, "csi.test");
        annotate(&mut volume.metadata, "kubectl.kubernetes.io/last-applied-configuration", "{}");
        volume.metadata.labels = Some([("app".to_owned(), "db".to_owned())].into());
        let attributes = [("a".to_owned(), "b".to_owned())].into();
        volume.spec.as_mut().unwrap().csi.as_mut().unwrap().volume_attributes = Some(attributes);
        let volume = volume.trimmed();
        assert_eq!(volume.metadata.labels, None);
        let annotations: Vec<_> = volume.metadata.annotations.unwrap().into_keys().collect();
        assert_eq!(annotations, [PROVISIONED_BY]);
        let csi = volume.spec.unwrap().csi.unwrap();
        assert_eq!((csi.volume_attributes, &*csi.volume_handle), (None, "handle-v"));

        let mut pod = pod("p", "n", &["c"]);
        let spec = pod.spec.as_mut().unwrap();
        spec.volumes.as_mut().unwrap().push(Volume { name: "scratch".into(), ..Volume::default() });
        spec.containers = vec![Container { image: Some("i".into()), ..Container::default() }];
        spec.service_account_name = Some("s".into());
        let spec = pod.trimmed().spec.unwrap();
        assert_eq!(spec.volumes.unwrap().len(), 1);
        assert_eq!(spec.containers, [Container::default()]);
        assert_eq!((spec.service_account_name, spec.node_name.as_deref()), (None, Some("n")));
    }
}
