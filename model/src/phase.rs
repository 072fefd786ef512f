//! The phases of a volume's lifecycle: one ordered enum that recorder, metrics, reports and dashboards use.
//!
//! A phase belongs to a subject and **starts when the last of its preconditions holds**, so that phases
//! of one lifecycle neither contain nor overlap one another and add up to the whole. The start and end
//! conditions of a phase are described here; `harness::timeline` is the code that detects them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CsiMethod;

/// The object that a phase belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A PersistentVolumeClaim.
    Claim,
    /// A VolumeAttachment: a volume on a node, as the control plane sees it.
    Attachment,
    /// A volume on a node, as the node sees it: staged once however many pods use it.
    NodeVolume,
    /// A volume in a pod.
    PodVolume,
    /// A Pod.
    Pod,
    /// A VolumeSnapshot.
    Snapshot,
}

/// How a time was observed; every sample has the source of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A change of an object, as a watch of the API server delivered it.
    Watch,
    /// A CSI call, recorded by the tap.
    Csi,
    /// The node's mount table: used for times, never for counts, since polling coalesces changes.
    Mount,
}

impl Source {
    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Csi => "csi",
            Self::Mount => "mount",
        }
    }
}

/// The static description of a phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseInfo {
    /// The name in metrics, reports and dashboards.
    pub name: &'static str,
    /// The object it belongs to.
    pub subject: Subject,
    /// What happens in it, in one sentence.
    pub doc: &'static str,
    /// It starts when the last of these holds.
    pub start: &'static [&'static str],
    /// It ends when this holds.
    pub end: &'static str,
    /// The preferred source of its end.
    pub source: Source,
    /// The CSI call that is attributed to the driver, not to Kubernetes' overhead.
    pub rpc: Option<CsiMethod>,
}

macro_rules! phases {
    ($($(#[doc = $doc:literal])+ $variant:ident: $name:literal of $subject:ident,
        starts [$($start:literal),+], ends $end:literal, by $source:ident, rpc $rpc:expr;)+) => {
        /// A phase of a volume's lifecycle, in the order in which they happen.
        ///
        /// With WaitForFirstConsumer `schedule` encloses `provision` and `bind`; their time is subtracted from it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Phase { $($(#[doc = $doc])+ $variant,)+ }

        impl Phase {
            /// All of them, in order.
            pub const ALL: &'static [Phase] = &[$(Phase::$variant,)+];

            /// The declaration of this phase.
            pub const fn info(self) -> PhaseInfo {
                match self {
                    $(Phase::$variant => PhaseInfo {
                        name: $name,
                        subject: Subject::$subject,
                        doc: concat!($($doc),+),
                        start: &[$($start),+],
                        end: $end,
                        source: Source::$source,
                        rpc: $rpc,
                    },)+
                }
            }
        }
    };
}

phases! {
    /// The provisioner calls CreateVolume and creates the PersistentVolume.
    Provision: "provision" of Claim,
        starts ["claim created", "WaitForFirstConsumer: selected-node set"],
        ends "PV for it exists", by Watch, rpc Some(CsiMethod::CreateVolume);
    /// The PersistentVolume controller binds claim and volume.
    Bind: "bind" of Claim,
        starts ["claim created", "PV exists"],
        ends "claim Bound", by Watch, rpc None;
    /// The scheduler chooses a node; the time that its claims spend in provision and bind is subtracted.
    Schedule: "schedule" of Pod,
        starts ["pod created", "its claims created"],
        ends "nodeName set", by Watch, rpc None;
    /// The volume is attached to the node; the controllers' own delays are included.
    Attach: "attach" of Attachment,
        starts ["nodeName set", "claim Bound", "ReadWriteOnce: detached from other nodes"],
        ends "status.attached", by Watch, rpc Some(CsiMethod::ControllerPublishVolume);
    /// The volume is staged on the node, once for all pods there.
    Stage: "stage" of NodeVolume,
        starts ["attached (or not attachable)", "pod on node"],
        ends "NodeStageVolume OK, or global mount observed", by Csi, rpc Some(CsiMethod::NodeStageVolume);
    /// The volume is mounted into one pod.
    Publish: "publish" of PodVolume,
        starts ["staged (attached, if staging mounts nothing and no call is observed)", "pod on node"],
        ends "NodePublishVolume OK, or pod mount observed", by Csi, rpc Some(CsiMethod::NodePublishVolume);
    /// The pod's containers start.
    Start: "start" of Pod,
        starts ["all its volumes published"],
        ends "Ready", by Watch, rpc None;
    /// The pod's containers stop; includes the termination grace period.
    Stop: "stop" of Pod,
        starts ["deletionTimestamp"],
        ends "containers terminated", by Watch, rpc None;
    /// The volume is unmounted from one pod.
    Unpublish: "unpublish" of PodVolume,
        starts ["containers terminated"],
        ends "NodeUnpublishVolume OK, or target unmounted", by Csi, rpc Some(CsiMethod::NodeUnpublishVolume);
    /// The volume is unstaged from the node after its last pod there.
    Unstage: "unstage" of NodeVolume,
        starts ["last unpublish"],
        ends "NodeUnstageVolume OK, or global mount unmounted", by Csi, rpc Some(CsiMethod::NodeUnstageVolume);
    /// The volume is detached from the node.
    Detach: "detach" of Attachment,
        starts ["unstaged"],
        ends "VolumeAttachment deleted", by Watch, rpc Some(CsiMethod::ControllerUnpublishVolume);
    /// The volume of a deleted claim is deleted; waiting for a volume that is still attached is part of `detach`.
    Delete: "delete" of Claim,
        starts ["claim deleted", "its VolumeAttachments deleted"],
        ends "PV deleted", by Watch, rpc Some(CsiMethod::DeleteVolume);
    /// The resizer calls ControllerExpandVolume.
    ControllerExpand: "controller_expand" of Claim,
        starts ["storage request raised"],
        ends "PV capacity raised", by Watch, rpc Some(CsiMethod::ControllerExpandVolume);
    /// The kubelet expands the file system on the volume.
    NodeExpand: "node_expand" of Claim,
        starts ["FileSystemResizePending"],
        ends "claim capacity raised", by Watch, rpc Some(CsiMethod::NodeExpandVolume);
    /// The driver takes a snapshot.
    SnapshotCreate: "snapshot_create" of Snapshot,
        starts ["VolumeSnapshot created"],
        ends "VolumeSnapshotContent has snapshotHandle", by Watch, rpc Some(CsiMethod::CreateSnapshot);
    /// The snapshot becomes usable.
    SnapshotReady: "snapshot_ready" of Snapshot,
        starts ["VolumeSnapshotContent has snapshotHandle"],
        ends "readyToUse", by Watch, rpc Some(CsiMethod::CreateSnapshot);
    /// A claim is provisioned from a snapshot.
    Restore: "restore" of Claim,
        starts ["claim created", "snapshot readyToUse"],
        ends "PV for it exists", by Watch, rpc Some(CsiMethod::CreateVolume);
    /// A claim is cloned from another claim.
    Clone: "clone" of Claim,
        starts ["claim created", "source claim Bound"],
        ends "PV for it exists", by Watch, rpc Some(CsiMethod::CreateVolume);
}

impl Phase {
    /// The name in metrics, reports and dashboards.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The phase called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|phase| phase.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_and_metrics_spell_a_phase_alike() {
        for &phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
            assert_eq!(Phase::from_name(phase.name()), Some(phase));
        }
        assert_eq!(Phase::from_name("mount"), None);
    }

    #[test]
    fn the_order_is_the_order_of_life() {
        let mut sorted = Phase::ALL.to_vec();
        sorted.sort();
        assert_eq!(sorted, Phase::ALL);
        assert!(
            Phase::Provision < Phase::Bind && Phase::Stage < Phase::Publish && Phase::Unstage < Phase::Detach
        );
    }
}
