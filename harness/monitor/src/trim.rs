//! What is dropped from objects on arrival: most of them, since a monitor holds all objects of a large cluster.

use k8s_openapi::{
    Metadata,
    api::{
        core::v1::{
            Container, ContainerState, ContainerStateTerminated, ContainerStatus, EphemeralVolumeSource,
            Node, NodeSpec, NodeStatus, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, PodStatus,
            Volume,
        },
        storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use claimcheck_model::snapshot::{VolumeSnapshot, VolumeSnapshotContent};

use crate::canary::{self, ZONE};

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
    // Those of volume controllers: `pv.kubernetes.io/`, `volume.kubernetes.io/`, `volume.beta.kubernetes.io/`.
    if let Some(annotations) = &mut meta.annotations {
        let is_used = |name: &str| name.starts_with("volume.") || name.starts_with("pv.");
        annotations.retain(|name, _| is_used(name) || name.starts_with(canary::LABEL));
    }
}

impl Trim for PersistentVolumeClaim {
    fn trim_fields(&mut self) {
        if let Some(spec) = &mut self.spec {
            spec.selector = None;
        }
    }
}

impl Trim for PersistentVolume {
    fn trim_fields(&mut self) {
        let Some(spec) = &mut self.spec else { return };
        spec.node_affinity = None;
        spec.mount_options = None;
        let Some(csi) = &mut spec.csi else { return };
        csi.volume_attributes = None;
        csi.controller_expand_secret_ref = None;
        csi.controller_publish_secret_ref = None;
        csi.node_expand_secret_ref = None;
        csi.node_publish_secret_ref = None;
        csi.node_stage_secret_ref = None;
    }
}

impl Trim for Pod {
    fn trim_fields(&mut self) {
        self.spec = self.spec.take().map(|spec| PodSpec {
            node_name: spec.node_name,
            volumes: spec.volumes.map(|volumes| volumes.into_iter().filter_map(claim_volume).collect()),
            // Their number shows whether all have ended.
            containers: spec.containers.iter().map(|_| Container::default()).collect(),
            ..PodSpec::default()
        });
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            conditions: status.conditions,
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

fn states(statuses: Option<Vec<ContainerStatus>>) -> Option<Vec<ContainerStatus>> {
    let state = |state: ContainerState| ContainerState {
        running: state.running,
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
                conditions.into_iter().filter(|condition| condition.type_ == "Ready").collect()
            }),
            ..NodeStatus::default()
        });
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
        if let Some(status) = &mut self.status {
            status.attachment_metadata = None;
        }
    }
}

impl Trim for CSIDriver {}

impl Trim for CSINode {}

impl Trim for VolumeSnapshot {}

impl Trim for VolumeSnapshotContent {}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{annotate, pod, volume};
    use claimcheck_model::PROVISIONED_BY;

    use super::*;

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
