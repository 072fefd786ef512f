//! The objects of a run.
//!
//! The pod is admitted where Pod Security is restricted. It is Ready once it has read what it wrote, and runs until it
//! is deleted; otherwise its init container fails.

use std::collections::BTreeMap;

use claimcheck_model::snapshot::{VolumeSnapshot, VolumeSnapshotSource, VolumeSnapshotSpec};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Affinity, Capabilities, Container, NodeAffinity, NodeSelector, NodeSelectorRequirement,
        NodeSelectorTerm, PersistentVolumeClaim, PersistentVolumeClaimSpec,
        PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
        Volume, VolumeMount, VolumeResourceRequirements,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use super::{CanaryOptions, LABEL, ZONE, topology::Segment};

/// The annotations of a run.
const CLASS: &str = "claimcheck.dev/canary-class";
const SEGMENT: &str = "claimcheck.dev/canary-topology";
const DEADLINE: &str = "claimcheck.dev/canary-deadline";

/// The user and group of the container, as in the images of claimcheck.
const USER: i64 = 65532;

/// Writes 1 MiB, and reads it back.
const VERIFY: &str = r#"written=$(dd if=/dev/urandom bs=65536 count=16 2>/dev/null | tee /data/canary | sha256sum) || exit 1
sync
read=$(sha256sum < /data/canary) || exit 1
[ "$written" = "$read" ] || { echo "what was read differs from what was written" >&2; exit 1; }
"#;
/// Waits for its deletion.
const WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// What identifies a run: in the annotations of each of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunSpec {
    /// Its name, and that of its objects.
    pub name: String,
    /// The storage class.
    pub class: String,
    /// Where its pod runs.
    pub segment: Segment,
    /// When it has failed.
    pub deadline: Timestamp,
}

impl RunSpec {
    /// A run of which only the name is known: its objects are to be deleted.
    pub fn unknown(name: &str) -> Self {
        let (class, deadline) = (String::new(), Timestamp::MIN);
        Self { name: name.to_owned(), class, segment: Segment::Any, deadline }
    }

    /// The run of an object with this metadata; none if an annotation is missing or invalid.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let annotation = |name: &str| meta.annotations.as_ref()?.get(name);
        Some(Self {
            name: super::members::run_of(meta)?.to_owned(),
            class: annotation(CLASS)?.clone(),
            segment: Segment::parse(annotation(SEGMENT)?)?,
            deadline: annotation(DEADLINE)?.parse().ok()?,
        })
    }

    /// The metadata of an object of the run.
    pub fn metadata(&self, namespace: &str) -> ObjectMeta {
        let annotations = [
            (CLASS, self.class.clone()),
            (SEGMENT, self.segment.to_string()),
            (DEADLINE, self.deadline.to_string()),
        ];
        let labels = [
            (LABEL, &*self.name),
            ("app.kubernetes.io/part-of", "claimcheck"),
            ("app.kubernetes.io/component", "canary"),
        ];
        ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            annotations: Some(annotations.map(|(name, value)| (name.to_owned(), value)).into()),
            ..ObjectMeta::default()
        }
    }
}

/// The claim of a run.
pub(super) fn claim(run: &RunSpec, options: &CanaryOptions) -> PersistentVolumeClaim {
    let requests = BTreeMap::from([("storage".to_owned(), Quantity(options.size.clone()))]);
    PersistentVolumeClaim {
        metadata: run.metadata(&options.namespace),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(requests),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: Some(run.class.clone()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// The snapshot of a run's claim.
pub(super) fn snapshot(run: &RunSpec, class: &str, options: &CanaryOptions) -> VolumeSnapshot {
    VolumeSnapshot {
        metadata: run.metadata(&options.namespace),
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotSource {
                persistent_volume_claim_name: Some(run.name.clone()),
                volume_snapshot_content_name: None,
            },
            volume_snapshot_class_name: Some(class.to_owned()),
        },
        status: None,
    }
}

/// The pod of a run.
pub(super) fn pod(run: &RunSpec, options: &CanaryOptions) -> Pod {
    let container = |name: &str, script: &str| Container {
        name: name.to_owned(),
        image: Some(options.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(["sh", "-c", script].map(str::to_owned).into()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: "data".to_owned(),
            mount_path: "/data".to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    };
    let volume = Volume {
        name: "data".to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: run.name.clone(),
            read_only: None,
        }),
        ..Volume::default()
    };
    Pod {
        metadata: run.metadata(&options.namespace),
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            // The pod is ready once the data were read: without a probe, which would add up to a second.
            init_containers: Some(vec![container("verify", VERIFY)]),
            containers: vec![container("canary", WAIT)],
            restart_policy: Some("Never".to_owned()),
            // The shell exits at once, once it has set its trap.
            termination_grace_period_seconds: Some(5),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                // The owner of the volume's root directory is root.
                fs_group: Some(USER),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            affinity: affinity(&run.segment),
            volumes: Some(vec![volume]),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// Restricts a pod to a segment. A node is selected by its name, as the DaemonSet controller does
/// (`pkg/controller/daemon/util/daemonset_util.go`), so that the scheduler still decides.
fn affinity(segment: &Segment) -> Option<Affinity> {
    let requirement = |key: &str, value: &String| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![value.clone()]),
    };
    let term = match segment {
        Segment::Any => return None,
        Segment::Zone(zone) => NodeSelectorTerm {
            match_expressions: Some(vec![requirement(ZONE, zone)]),
            ..NodeSelectorTerm::default()
        },
        Segment::Node(name) => NodeSelectorTerm {
            match_fields: Some(vec![requirement("metadata.name", name)]),
            ..NodeSelectorTerm::default()
        },
    };
    let required = NodeSelector { node_selector_terms: vec![term] };
    let node_affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(required),
        ..NodeAffinity::default()
    };
    Some(Affinity { node_affinity: Some(node_affinity), ..Affinity::default() })
}
