//! Evidence: everything that can be seen of a volume's life, with the time at which it was seen.
//!
//! ```text
//! watches (object changes) ─┐
//! tap (one record per RPC) ─┼─> one channel ─> timeline
//! mount table (lines)      ─┘
//! ```
//!
//! Nothing is concluded here. Watches of different kinds are not ordered among each other, so a change
//! carries its resourceVersion beside the time of its arrival; the timeline orders by the former.

mod clock;
mod in_flight;
mod logs;
mod mount;
mod real_nodes;
mod stock;
mod tap;
mod taps;
mod watch;

pub use in_flight::InFlight;
pub use mount::Observers;
pub use real_nodes::RealNodes;
pub use stock::{Stock, scrape};
pub use tap::calls;
pub use taps::is_tapped;
pub use watch::watch;

use claimcheck_model::{
    Place, Stamp,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Why a request failed, in one line of a report.
fn reason(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// One thing that was seen.
#[derive(Clone, Debug)]
pub enum Evidence {
    /// An object changed.
    Watch(Box<Change>),
    /// A CSI call ended, or its end can no longer come.
    Rpc(Rpc),
    /// A line came into a node's mount table, or left it.
    Mount(Mount),
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// When it arrived here: an upper bound of when it was written.
    pub at: Stamp,
    /// The object after the change; before it, if it is gone.
    pub object: Object,
    /// It was deleted.
    pub gone: bool,
}

/// The kinds that are watched.
///
/// Nodes are not among them: nothing in their status marks a phase, and they are the busiest kind.
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
    /// How a driver wants to be treated: attached or not.
    Driver(CSIDriver),
    /// Which id a node has for a driver.
    CsiNode(CSINode),
    /// Whether a node is alive.
    Node(Node),
    /// A snapshot.
    Snapshot(VolumeSnapshot),
    /// A snapshot as it is in the storage system.
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

/// A CSI call. Fields that the method does not have are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rpc {
    /// The driver's name.
    pub driver: String,
    /// The bare method, `NodeStageVolume`.
    pub method: String,
    /// The volume's handle; for CreateVolume the name that was asked for, for DeleteSnapshot and GetSnapshot the
    /// snapshot's handle.
    pub volume: String,
    /// The node's name; for ControllerPublish and -Unpublish the node id of the request.
    pub node: String,
    /// The target path of publish and unpublish.
    pub target: String,
    /// When the call left the caller.
    pub start: Stamp,
    /// When and how it came back; none if it never did.
    pub end: Option<RpcEnd>,
}

/// How a call came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcEnd {
    /// When.
    pub at: Stamp,
    /// The gRPC status, `OK` or upstream's spelling of another (`DeadlineExceeded`).
    pub code: String,
    /// It failed because a fault was injected into it.
    pub injected: bool,
}

impl Rpc {
    /// It failed by our own doing, which says nothing about the driver.
    pub fn is_injected(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.injected)
    }

    /// When it succeeded; none if it did not.
    pub fn succeeded(&self) -> Option<Stamp> {
        self.end.as_ref().filter(|end| end.code == "OK").map(|end| end.at)
    }
}

/// A change of a node's mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// When it was noticed: an upper bound, and two changes may be noticed as none.
    pub at: Stamp,
    /// The node's name.
    pub node: String,
    /// Whose mount it is.
    pub place: Place,
    /// It came; else it left.
    pub mounted: bool,
}
