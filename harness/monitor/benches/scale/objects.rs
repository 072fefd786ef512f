//! The bodies of the synthetic objects, with the fields that those of a real cluster have.

use serde_json::{Value, json};

/// The number of drivers.
pub const DRIVERS: usize = 3;
/// The number of storage classes, a multiple of [`DRIVERS`]: each class has one driver.
pub const CLASSES: usize = 6;
/// The number of namespaces.
pub const NAMESPACES: usize = 20;

/// The time of all transitions.
const TIME: &str = "2026-01-01T00:00:00Z";

/// The name of a driver.
pub fn driver_name(index: usize) -> String {
    format!("driver-{}.csi.example.com", index % DRIVERS)
}

/// The name of a storage class.
pub fn class_name(index: usize) -> String {
    format!("class-{}", index % CLASSES)
}

/// The name of a namespace.
pub fn namespace_name(index: usize) -> String {
    format!("team-{}", index % NAMESPACES)
}

/// The name of a node.
pub fn node_name(index: usize) -> String {
    format!("ip-10-0-{}-{}.eu-central-1.compute.internal", index / 250, index % 250)
}

/// A namespace.
pub fn namespace(index: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace_name(index) } })
}

/// A driver that attaches volumes.
pub fn driver(index: usize) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": driver_name(index) },
        "spec": { "attachRequired": true },
    })
}

/// A storage class.
pub fn class(index: usize) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": class_name(index) },
        "provisioner": driver_name(index),
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}

/// A node.
pub fn node(index: usize) -> Value {
    let name = node_name(index);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m7i.large",
                "topology.kubernetes.io/zone": format!("eu-central-1{}", ["a", "b", "c"][index % 3]),
            },
        },
    })
}

/// The status of a node that is ready.
pub fn node_status() -> Value {
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastHeartbeatTime": TIME, "lastTransitionTime": TIME });
    json!({ "status": { "conditions": [
        condition("MemoryPressure", "False"),
        condition("DiskPressure", "False"),
        condition("PIDPressure", "False"),
        condition("Ready", "True"),
    ] } })
}

/// The registrations of all drivers on a node.
pub fn csi_node(index: usize) -> Value {
    let drivers = (0..DRIVERS).map(|driver| {
        json!({
            "name": driver_name(driver),
            "nodeID": format!("i-{index:017x}"),
            "topologyKeys": ["topology.kubernetes.io/zone"],
            "allocatable": { "count": 255 },
        })
    });
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": { "name": node_name(index) },
        "spec": { "drivers": drivers.collect::<Vec<_>>() },
    })
}

/// The names of a volume and its users, as long as a real cluster's are.
#[derive(Clone, Debug)]
pub struct Names {
    /// The namespace of claim and pod.
    pub namespace: String,
    /// The claim.
    pub claim: String,
    /// The PersistentVolume.
    pub volume: String,
    /// The VolumeAttachment.
    pub attachment: String,
    /// The pod.
    pub pod: String,
    /// The node.
    pub node: String,
    class: String,
    driver: String,
    handle: String,
}

impl Names {
    /// Those of the volume with this number; `prefix` has three letters.
    pub fn new(prefix: &str, index: usize, nodes: usize) -> Self {
        Self {
            namespace: namespace_name(index),
            claim: format!("data-{prefix}-{index}"),
            volume: format!("pvc-{prefix}-{index:032x}"),
            attachment: format!("csi-{prefix}{index:061x}"),
            pod: format!("{prefix}-{index}"),
            node: node_name(index % nodes),
            class: class_name(index),
            driver: driver_name(index),
            handle: format!("{prefix}-{index:017x}"),
        }
    }

    /// The claim; without `bound` it is to be provisioned.
    pub fn claim(&self, bound: bool) -> Value {
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": self.claim,
                "labels": { "app.kubernetes.io/name": "db" },
                "annotations": {
                    "volume.beta.kubernetes.io/storage-provisioner": self.driver,
                    "volume.kubernetes.io/storage-provisioner": self.driver,
                },
                "finalizers": ["kubernetes.io/pvc-protection"],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "10Gi" } },
                "storageClassName": self.class,
                "volumeMode": "Filesystem",
            },
        });
        if bound {
            claim["spec"]["volumeName"] = self.volume.as_str().into();
            let annotations = &mut claim["metadata"]["annotations"];
            for name in ["pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"] {
                annotations[name] = "yes".into();
            }
        }
        claim
    }

    /// The binder's change of the claim.
    pub fn binding(&self) -> Value {
        let annotations = json!({
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        });
        json!({ "metadata": { "annotations": annotations }, "spec": { "volumeName": self.volume } })
    }

    /// The volume of the claim with this uid.
    pub fn volume(&self, claim_uid: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": self.volume,
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": self.driver,
                    "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                    "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
                },
                "finalizers": [
                    "kubernetes.io/pv-protection",
                    "external-provisioner.volume.kubernetes.io/finalizer",
                ],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "10Gi" },
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": self.namespace,
                    "name": self.claim,
                    "uid": claim_uid,
                },
                "csi": {
                    "driver": self.driver,
                    "volumeHandle": self.handle,
                    "fsType": "ext4",
                    "volumeAttributes": {
                        "storage.kubernetes.io/csiProvisionerIdentity": "1767225600000-1234-driver",
                    },
                },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": self.class,
                "volumeMode": "Filesystem",
            },
        })
    }

    /// The attachment of the volume to the node.
    pub fn attachment(&self) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": { "name": self.attachment },
            "spec": {
                "attacher": self.driver,
                "nodeName": self.node,
                "source": { "persistentVolumeName": self.volume },
            },
        })
    }

    /// The pod; without a node it is to be scheduled.
    pub fn pod(&self, scheduled: bool) -> Value {
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.pod, "labels": { "app.kubernetes.io/name": "db" } },
            "spec": {
                "containers": [{
                    "name": "main",
                    "image": "registry.example.com/team/db:1.2.3",
                    "env": [{ "name": "MODE", "value": "primary" }],
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [
                    { "name": "data", "persistentVolumeClaim": { "claimName": self.claim } },
                    { "name": "scratch", "emptyDir": {} },
                ],
            },
        });
        if scheduled {
            pod["spec"]["nodeName"] = self.node.as_str().into();
        }
        pod
    }

    /// The scheduler's binding of the pod.
    pub fn pod_binding(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": self.pod, "namespace": self.namespace },
            "target": { "apiVersion": "v1", "kind": "Node", "name": self.node },
        })
    }
}

/// The status of a claim that is bound.
pub fn claim_status() -> Value {
    json!({ "status": {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "10Gi" },
    } })
}

/// The status of a volume: `Bound`, `Released`.
pub fn volume_status(phase: &str) -> Value {
    json!({ "status": { "phase": phase } })
}

/// The status of an attachment that is attached.
pub fn attached() -> Value {
    json!({ "status": { "attached": true } })
}

/// The status of a pod that runs and is ready.
pub fn pod_running() -> Value {
    let types = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": TIME });
    let state = json!({ "running": { "startedAt": TIME } });
    json!({ "status": {
        "phase": "Running",
        "conditions": types.map(condition),
        "containerStatuses": [container(true, &state)],
    } })
}

/// The status of a pod after its containers have ended.
pub fn pod_ended() -> Value {
    let state = json!({ "terminated": { "exitCode": 0, "startedAt": TIME, "finishedAt": TIME } });
    json!({ "status": { "containerStatuses": [container(false, &state)] } })
}

fn container(ready: bool, state: &Value) -> Value {
    let image = "registry.example.com/team/db:1.2.3";
    json!({
        "name": "main",
        "image": image,
        "imageID": format!("{image}@sha256:{:064x}", 1),
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    })
}
