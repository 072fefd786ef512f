//! Evidence: all observations of a volume's lifecycle, with their times.
//!
//! ```text
//! watches (object changes) ─┐
//! tap (CSI calls)          ─┼─> one channel ─> timeline
//! mount table (lines)      ─┘
//! ```
//!
//! No conclusions are drawn here. Watches of different kinds are not ordered relative to each other, so a change
//! has its resourceVersion in addition to its time of arrival; the timeline orders by the former.

mod clock;
mod in_flight;
mod logs;
mod mount;
mod real_nodes;
mod scope;
mod stock;
mod tap;
mod taps;
mod up_to_now;
mod watch;

pub use in_flight::InFlight;
pub use mount::Observers;
pub use real_nodes::RealNodes;
pub use scope::Scope;
pub use stock::{Stock, scrape};
pub use tap::LocalCalls;
pub use taps::{TapLogs, is_tapped};
pub use up_to_now::{NoEvidence, UpToNow};
pub use watch::watch;

use claimcheck_csi::tap::TapRecord;
use claimcheck_model::{
    KubeletPath, Stamp,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The reason of a failed request, in one line for reports.
fn reason(error: &kube::Error) -> String {
    let text = claimcheck_informer::response::message(error);
    text.lines().next().unwrap_or_default().to_owned()
}

/// One observation.
#[derive(Clone, Debug)]
pub enum Observation {
    /// An object changed.
    Watch(Box<Change>),
    /// A CSI call ended, or its end can no longer arrive.
    Rpc(Box<TapRecord>),
    /// An entry was added to or removed from a node's mount table.
    Mount(Mount),
}

impl From<TapRecord> for Observation {
    fn from(call: TapRecord) -> Self {
        Self::Rpc(Box::new(call))
    }
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// When it was received: an upper bound of when it was written.
    pub at: Stamp,
    /// The object after the change; before it, if it was deleted.
    pub object: Object,
    /// Whether it was deleted.
    pub deleted: bool,
}

/// The watched kinds.
///
/// Nodes are not included: nothing in their status delimits a phase, and they are updated most often.
#[derive(Clone, Debug)]
pub enum Object {
    /// A claim.
    Claim(PersistentVolumeClaim),
    /// A volume.
    Volume(PersistentVolume),
    /// A pod.
    Pod(Pod),
    /// A volume on a node.
    Attachment(VolumeAttachment),
    /// A CSIDriver: whether attach is required.
    Driver(CSIDriver),
    /// A CSINode: the node ids of drivers.
    CsiNode(CSINode),
    /// A node's heartbeat.
    Node(Node),
    /// A snapshot.
    Snapshot(VolumeSnapshot),
    /// A snapshot in the storage system.
    Content(VolumeSnapshotContent),
}

impl Object {
    /// The object's metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Claim(o) => &o.metadata,
            Self::Volume(o) => &o.metadata,
            Self::Pod(o) => &o.metadata,
            Self::Attachment(o) => &o.metadata,
            Self::Driver(o) => &o.metadata,
            Self::CsiNode(o) => &o.metadata,
            Self::Node(o) => &o.metadata,
            Self::Snapshot(o) => &o.metadata,
            Self::Content(o) => &o.metadata,
        }
    }
}

macro_rules! object_from {
    ($($variant:ident: $kind:ty),+) => {
        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Self::$variant(object)
            }
        })+
    };
}
object_from!(
    Claim: PersistentVolumeClaim,
    Volume: PersistentVolume,
    Pod: Pod,
    Attachment: VolumeAttachment,
    Driver: CSIDriver,
    CsiNode: CSINode,
    Node: Node,
    Snapshot: VolumeSnapshot,
    Content: VolumeSnapshotContent
);

/// A change of a node's mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// When it was detected: an upper bound, and two changes may cancel out.
    pub at: Stamp,
    /// The node's name.
    pub node: String,
    /// The path of the mount.
    pub place: KubeletPath,
    /// Whether it was added, else removed.
    pub mounted: bool,
}
