//! Small constructors of objects and worlds, for the tests of planners.
//!
//! Every object has the uid `uid-<name>` and no resourceVersion, so a [`World`] always accepts the newest one
//! given. A test sets its relevant fields on the plain structs that these return.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    Metadata,
    api::{
        core::v1::{
            CSIPersistentVolumeSource, Node, NodeCondition, NodeSelector, NodeSelectorRequirement,
            NodeSelectorTerm, NodeStatus, ObjectReference, PersistentVolume, PersistentVolumeClaim,
            PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeClaimVolumeSource,
            PersistentVolumeSpec, PersistentVolumeStatus, Pod, PodSpec, PodStatus, Volume,
            VolumeNodeAffinity, VolumeResourceRequirements,
        },
        storage::v1::{
            CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec, CSIStorageCapacity, StorageClass,
            VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus,
            VolumeAttributesClass, VolumeNodeResources,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, Time},
    },
};

use claimcheck_model::{
    group_snapshot::{
        VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent,
        VolumeGroupSnapshotContentSource, VolumeGroupSnapshotContentSpec, VolumeGroupSnapshotSource,
        VolumeGroupSnapshotSpec,
    },
    meter::{Collector, Recorder},
    metric::Metric,
    reference_grant::{ReferenceGrant, ReferenceGrantFrom, ReferenceGrantSpec, ReferenceGrantTo},
    snapshot::{
        VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotContentSource,
        VolumeSnapshotContentSpec, VolumeSnapshotSource, VolumeSnapshotSpec,
    },
    volume_populator::{GroupKind, VolumePopulator},
};

use crate::world::{Object, World};

/// The driver of all volumes created here.
pub const DRIVER: &str = "csi.test";
/// The namespace of all namespaced objects created here.
pub const NAMESPACE: &str = "default";

/// A metric, the values of its labels, and its value.
pub type RecordedMetric = (&'static str, String, f64);

/// Records the metrics of a meter. Clones are the same.
#[derive(Clone, Default)]
pub struct Notes {
    recorded: Arc<Mutex<Vec<RecordedMetric>>>,
    collectors: Arc<Mutex<Vec<Collector>>>,
}

impl Notes {
    /// The recorded metrics, in order.
    pub fn recorded(&self) -> Vec<RecordedMetric> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The collected metrics.
    pub fn collectors(&self) -> Vec<Collector> {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Recorder for Notes {
    fn record(&self, metric: &'static Metric, labels: &[&str], value: f64) {
        let line = (metric.name, labels.join(" "), value);
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn register(&self, collector: Collector) {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner).push(collector);
    }

    fn ready(&self) {}
}

/// A world with these objects.
pub fn world<const N: usize>(objects: [Object; N]) -> World {
    let mut world = World::default();
    for object in objects {
        world.apply_any(object);
    }
    world
}

/// A pending ReadWriteOnce claim of a filesystem volume. An empty class requests a volume without class.
pub fn claim(name: &str, class: &str, size: &str) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: namespaced(name),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            resources: Some(VolumeResourceRequirements { requests: Some(storage(size)), limits: None }),
            storage_class_name: Some(class.into()),
            volume_mode: Some("Filesystem".into()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: Some(PersistentVolumeClaimStatus { phase: Some("Pending".into()), ..Default::default() }),
    }
}

/// An Available ReadWriteOnce CSI volume of [`DRIVER`], policy Delete, with the handle `handle-<name>`.
pub fn volume(name: &str, class: &str, size: &str) -> PersistentVolume {
    PersistentVolume {
        metadata: cluster(name),
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            capacity: Some(storage(size)),
            csi: Some(CSIPersistentVolumeSource {
                driver: DRIVER.into(),
                volume_handle: format!("handle-{name}"),
                ..CSIPersistentVolumeSource::default()
            }),
            persistent_volume_reclaim_policy: Some("Delete".into()),
            storage_class_name: Some(class.into()),
            volume_mode: Some("Filesystem".into()),
            ..PersistentVolumeSpec::default()
        }),
        status: Some(PersistentVolumeStatus { phase: Some("Available".into()), ..Default::default() }),
    }
}

/// Binds both ways, like the binder.
pub fn bind(claim: &mut PersistentVolumeClaim, volume: &mut PersistentVolume) {
    let volume_name = volume.metadata.name.clone();
    let spec = volume.spec.get_or_insert_default();
    spec.claim_ref = Some(claim_ref(claim));
    volume.status.get_or_insert_default().phase = Some("Bound".into());
    let status = claim.status.get_or_insert_default();
    status.phase = Some("Bound".into());
    status.capacity = spec.capacity.clone();
    status.access_modes = spec.access_modes.clone();
    claim.spec.get_or_insert_default().volume_name = volume_name;
    annotate(&mut claim.metadata, "pv.kubernetes.io/bind-completed", "yes");
    annotate(&mut claim.metadata, "pv.kubernetes.io/bound-by-controller", "yes");
}

/// The reference to a claim that a volume bound to it has.
pub fn claim_ref(claim: &PersistentVolumeClaim) -> ObjectReference {
    crate::reference(claim)
}

/// A class of immediate binding and policy Delete.
pub fn class(name: &str, provisioner: &str) -> StorageClass {
    StorageClass {
        metadata: cluster(name),
        provisioner: provisioner.into(),
        reclaim_policy: Some("Delete".into()),
        volume_binding_mode: Some("Immediate".into()),
        ..StorageClass::default()
    }
}

/// An attributes class of [`DRIVER`] with the parameter `iops`.
pub fn attributes_class(name: &str, iops: &str) -> VolumeAttributesClass {
    VolumeAttributesClass {
        metadata: cluster(name),
        driver_name: DRIVER.into(),
        parameters: Some([("iops".to_owned(), iops.to_owned())].into()),
    }
}

/// A class with WaitForFirstConsumer.
pub fn wait_for_first_consumer_class(name: &str, provisioner: &str) -> StorageClass {
    StorageClass { volume_binding_mode: Some("WaitForFirstConsumer".into()), ..class(name, provisioner) }
}

/// A pending pod that mounts these claims, one volume each, of the claim's name. An empty node is none.
pub fn pod(name: &str, node: &str, claims: &[&str]) -> Pod {
    let volumes = claims.iter().map(|claim| Volume {
        name: (*claim).into(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: (*claim).into(),
            read_only: None,
        }),
        ..Volume::default()
    });
    Pod {
        metadata: namespaced(name),
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()).filter(|node| !node.is_empty()),
            scheduler_name: Some("default-scheduler".into()),
            volumes: Some(volumes.collect()),
            ..PodSpec::default()
        }),
        status: Some(PodStatus { phase: Some("Pending".into()), ..Default::default() }),
    }
}

/// A ready node, labelled with its name.
pub fn node(name: &str) -> Node {
    let mut metadata = cluster(name);
    metadata.labels = Some([("kubernetes.io/hostname".to_owned(), name.to_owned())].into());
    let ready = NodeCondition { type_: "Ready".into(), status: "True".into(), ..NodeCondition::default() };
    Node {
        metadata,
        status: Some(NodeStatus { conditions: Some(vec![ready]), ..NodeStatus::default() }),
        ..Node::default()
    }
}

/// A node's registration of [`DRIVER`], with a limit of volumes if given.
pub fn csi_node(name: &str, limit: Option<i32>) -> CSINode {
    let driver = CSINodeDriver {
        name: DRIVER.into(),
        node_id: name.into(),
        allocatable: limit.map(|count| VolumeNodeResources { count: Some(count) }),
        ..CSINodeDriver::default()
    };
    CSINode { metadata: cluster(name), spec: CSINodeSpec { drivers: vec![driver] }, status: None }
}

/// [`DRIVER`] as a cluster knows it.
pub fn csi_driver(attach_required: bool) -> CSIDriver {
    CSIDriver {
        metadata: cluster(DRIVER),
        spec: CSIDriverSpec { attach_required: Some(attach_required), ..CSIDriverSpec::default() },
    }
}

/// The capacity of [`DRIVER`] for volumes of a class on the node with this name.
pub fn capacity(name: &str, class: &str, node: &str, left: &str) -> CSIStorageCapacity {
    let labels = [("kubernetes.io/hostname".to_owned(), node.to_owned())];
    CSIStorageCapacity {
        metadata: namespaced(name),
        storage_class_name: class.into(),
        node_topology: Some(LabelSelector { match_labels: Some(labels.into()), ..LabelSelector::default() }),
        capacity: Some(Quantity(left.to_owned())),
        maximum_volume_size: None,
    }
}

/// The attachment of a volume to a node.
pub fn attachment(name: &str, volume: &str, node: &str, attached: bool) -> VolumeAttachment {
    VolumeAttachment {
        metadata: cluster(name),
        spec: VolumeAttachmentSpec {
            attacher: DRIVER.into(),
            node_name: node.into(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(volume.into()),
                ..Default::default()
            },
        },
        status: Some(VolumeAttachmentStatus { attached, ..Default::default() }),
    }
}

/// A snapshot of a claim, of a class.
pub fn snapshot(name: &str, claim: &str, class: &str) -> VolumeSnapshot {
    VolumeSnapshot {
        metadata: namespaced(name),
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotSource {
                persistent_volume_claim_name: Some(claim.into()),
                volume_snapshot_content_name: None,
            },
            volume_snapshot_class_name: Some(class.into()),
        },
        status: None,
    }
}

/// A content of [`DRIVER`] that is bound to a snapshot, without a status.
pub fn snapshot_content(name: &str, snapshot: &VolumeSnapshot, policy: &str) -> VolumeSnapshotContent {
    VolumeSnapshotContent {
        metadata: cluster(name),
        spec: VolumeSnapshotContentSpec {
            deletion_policy: policy.into(),
            driver: DRIVER.into(),
            source: VolumeSnapshotContentSource {
                volume_handle: Some("handle".into()),
                snapshot_handle: None,
            },
            source_volume_mode: Some("Filesystem".into()),
            volume_snapshot_class_name: snapshot.spec.volume_snapshot_class_name.clone(),
            volume_snapshot_ref: crate::reference(snapshot),
        },
        status: None,
    }
}

/// A snapshot class of [`DRIVER`].
pub fn snapshot_class(name: &str, policy: &str) -> VolumeSnapshotClass {
    VolumeSnapshotClass {
        metadata: cluster(name),
        driver: DRIVER.into(),
        deletion_policy: policy.into(),
        parameters: None,
    }
}

/// A group of snapshots of the claims with the label `group=<name>`, of a class.
pub fn group_snapshot(name: &str, class: &str) -> VolumeGroupSnapshot {
    let labels = [("group".to_owned(), name.to_owned())];
    let selector = LabelSelector { match_labels: Some(labels.into()), ..LabelSelector::default() };
    VolumeGroupSnapshot {
        metadata: namespaced(name),
        spec: VolumeGroupSnapshotSpec {
            source: VolumeGroupSnapshotSource {
                selector: Some(selector),
                volume_group_snapshot_content_name: None,
            },
            volume_group_snapshot_class_name: Some(class.into()),
        },
        status: None,
    }
}

/// A content of [`DRIVER`] that is bound to a group of these volumes, without a status.
pub fn group_snapshot_content(
    name: &str,
    group: &VolumeGroupSnapshot,
    volumes: &[&str],
    policy: &str,
) -> VolumeGroupSnapshotContent {
    VolumeGroupSnapshotContent {
        metadata: cluster(name),
        spec: VolumeGroupSnapshotContentSpec {
            deletion_policy: policy.into(),
            driver: DRIVER.into(),
            source: VolumeGroupSnapshotContentSource {
                group_snapshot_handles: None,
                volume_handles: Some(volumes.iter().map(|volume| (*volume).to_owned()).collect()),
            },
            volume_group_snapshot_class_name: group.spec.volume_group_snapshot_class_name.clone(),
            volume_group_snapshot_ref: crate::reference(group),
        },
        status: None,
    }
}

/// A class of group snapshots of [`DRIVER`].
pub fn group_snapshot_class(name: &str, policy: &str) -> VolumeGroupSnapshotClass {
    VolumeGroupSnapshotClass {
        metadata: cluster(name),
        driver: DRIVER.into(),
        deletion_policy: policy.into(),
        parameters: None,
    }
}

/// A grant in this namespace: claims of [`NAMESPACE`] may refer to all objects of this group and kind.
pub fn reference_grant(name: &str, namespace: &str, group: &str, kind: &str) -> ReferenceGrant {
    let from = ReferenceGrantFrom {
        group: String::new(),
        kind: "PersistentVolumeClaim".into(),
        namespace: NAMESPACE.into(),
    };
    let to = ReferenceGrantTo { group: group.into(), kind: kind.into(), name: None };
    ReferenceGrant {
        metadata: ObjectMeta { namespace: Some(namespace.into()), ..cluster(name) },
        spec: ReferenceGrantSpec { from: vec![from], to: vec![to] },
    }
}

/// The registration of a populator of this group and kind.
pub fn volume_populator(name: &str, group: &str, kind: &str) -> VolumePopulator {
    VolumePopulator {
        metadata: cluster(name),
        source_kind: GroupKind { group: group.into(), kind: kind.into() },
    }
}

/// The affinity of a volume that is accessible only from nodes with this name.
pub fn only_on(node: &str) -> VolumeNodeAffinity {
    let requirement = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

/// The object with these finalizers, being deleted.
#[must_use]
pub fn deleting<K: Metadata<Ty = ObjectMeta>>(mut object: K, finalizers: &[&str]) -> K {
    let meta = object.metadata_mut();
    meta.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    meta.finalizers = Some(finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect());
    object
}

/// Sets an annotation.
pub fn annotate(meta: &mut ObjectMeta, key: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(key.into(), value.into());
}

fn storage(size: &str) -> BTreeMap<String, Quantity> {
    [("storage".to_owned(), Quantity(size.to_owned()))].into()
}

fn namespaced(name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(NAMESPACE.into()), ..cluster(name) }
}

fn cluster(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), uid: Some(format!("uid-{name}")), ..ObjectMeta::default() }
}
