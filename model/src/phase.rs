//! The phases of a volume's life: one ordered enum that recorder, metrics, reports and dashboards import.
//!
//! A phase belongs to a subject and **starts when the last of its preconditions holds**, so that phases
//! of one life cycle neither contain nor overlap one another and their sum is the whole. What a phase's
//! start and end are is declared here in words; `harness::timeline` is the code that finds them.

use serde::{Deserialize, Serialize};

/// What a phase belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// How a moment was observed; every sample says the source of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A change of an object, as a watch of the API server delivered it.
    Watch,
    /// A CSI call, recorded by the tap.
    Csi,
    /// The node's mount table: good for times, never for counts, since polling coalesces.
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

/// Everything that is fixed about a phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseInfo {
    /// The name in metrics, reports and dashboards.
    pub name: &'static str,
    /// What it belongs to.
    pub subject: Subject,
    /// What happens in it, one sentence.
    pub doc: &'static str,
    /// It starts at the latest of these.
    pub start: &'static [&'static str],
    /// It ends with this.
    pub end: &'static str,
    /// Where the best evidence of its end comes from.
    pub source: Source,
    /// The driver's call whose time inside the phase is the driver's and not Kubernetes'.
    pub rpc: Option<&'static str>,
}

macro_rules! phases {
    ($($(#[doc = $doc:literal])+ $variant:ident: $name:literal of $subject:ident,
        starts [$($start:literal),+], ends $end:literal, by $source:ident, rpc $rpc:expr;)+) => {
        /// A step of a volume's life, in the order in which they happen.
        ///
        /// Under late binding `schedule` surrounds `provision` and `bind`; their time is taken out of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// The provisioner has the driver make a volume and writes its PersistentVolume.
    Provision: "provision" of Claim,
        starts ["claim created", "late binding: selected-node set"],
        ends "PV for it exists", by Watch, rpc Some("CreateVolume");
    /// The binder binds claim and volume to one another.
    Bind: "bind" of Claim,
        starts ["claim created", "PV exists"],
        ends "claim Bound", by Watch, rpc None;
    /// The scheduler chooses a node; time in provision and bind of its claims is taken out.
    Schedule: "schedule" of Pod,
        starts ["pod created", "its claims created"],
        ends "nodeName set", by Watch, rpc None;
    /// The volume is attached to the node; the controllers' own delay counts.
    Attach: "attach" of Attachment,
        starts ["nodeName set", "claim Bound", "ReadWriteOnce: gone from other nodes"],
        ends "status.attached", by Watch, rpc Some("ControllerPublishVolume");
    /// The volume is made ready on the node, once for all pods there.
    Stage: "stage" of NodeVolume,
        starts ["attached (or not attachable)", "pod on node"],
        ends "NodeStageVolume OK, or global mount seen", by Csi, rpc Some("NodeStageVolume");
    /// The volume is mounted for one pod.
    Publish: "publish" of PodVolume,
        starts ["staged (attached, if staging mounts nothing and no call is seen)", "pod on node"],
        ends "NodePublishVolume OK, or pod mount seen", by Csi, rpc Some("NodePublishVolume");
    /// The pod's containers start.
    Start: "start" of Pod,
        starts ["all its volumes published"],
        ends "Ready", by Watch, rpc None;
    /// The pod's containers stop; the grace period lives here.
    Stop: "stop" of Pod,
        starts ["deletionTimestamp"],
        ends "containers terminated", by Watch, rpc None;
    /// The volume is unmounted from one pod.
    Unpublish: "unpublish" of PodVolume,
        starts ["containers terminated"],
        ends "NodeUnpublishVolume OK, or target mount gone", by Csi, rpc Some("NodeUnpublishVolume");
    /// The volume leaves the node after its last pod there.
    Unstage: "unstage" of NodeVolume,
        starts ["last unpublish"],
        ends "NodeUnstageVolume OK, or global mount gone", by Csi, rpc Some("NodeUnstageVolume");
    /// The volume is detached from the node.
    Detach: "detach" of Attachment,
        starts ["unstaged"],
        ends "VolumeAttachment gone", by Watch, rpc Some("ControllerUnpublishVolume");
    /// The volume of a deleted claim is destroyed; a volume still attached is waited for in `detach`.
    Delete: "delete" of Claim,
        starts ["claim gone", "its attachments gone"],
        ends "PV gone", by Watch, rpc Some("DeleteVolume");
    /// The resizer has the driver grow the volume.
    ControllerExpand: "controller_expand" of Claim,
        starts ["request raised"],
        ends "PV capacity raised", by Watch, rpc Some("ControllerExpandVolume");
    /// The node grows the file system on the volume.
    NodeExpand: "node_expand" of Claim,
        starts ["FileSystemResizePending"],
        ends "claim capacity raised", by Watch, rpc Some("NodeExpandVolume");
    /// The driver cuts a snapshot.
    SnapshotCreate: "snapshot_create" of Snapshot,
        starts ["VolumeSnapshot created"],
        ends "VolumeSnapshotContent has its handle", by Watch, rpc Some("CreateSnapshot");
    /// The snapshot becomes usable.
    SnapshotReady: "snapshot_ready" of Snapshot,
        starts ["VolumeSnapshotContent has its handle"],
        ends "readyToUse", by Watch, rpc Some("GetSnapshot");
    /// A claim is provisioned from a snapshot.
    Restore: "restore" of Claim,
        starts ["claim created", "snapshot readyToUse"],
        ends "PV for it exists", by Watch, rpc Some("CreateVolume");
    /// A claim is provisioned from another claim.
    Clone: "clone" of Claim,
        starts ["claim created", "source claim Bound"],
        ends "PV for it exists", by Watch, rpc Some("CreateVolume");
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
