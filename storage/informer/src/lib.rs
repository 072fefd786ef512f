//! Watch caches with indexes, and the reconcile queue, shared by controllers and node.
//!
//! ```text
//! API server ──watch per kind──> Informer ──> World (Store per kind, with indexes) ──&World──> planners
//!      ^                            │                    ^
//!      │                         Change                  │ write-through: Informer::apply, forget
//!      │                            v                    │
//!      └──────writes── shells <── Queue<Key> (dedupe, one at a time, backoff)
//! ```
//!
//! Start here: [`World`] is the planners' input and is independent of networks and time; [`Informer`] keeps one
//! up to date; [`Queue`] runs a reconciler over keys; [`EventRecorder`] writes Events. One process needs one
//! [`Informer`], however many controllers it runs.

mod by_label;
pub mod class;
mod dangling;
mod events;
pub mod growth;
mod in_tree;
mod index;
mod informer;
pub mod modification;
pub mod quantity;
mod queue;
mod reflector;
pub mod response;
mod segments;
mod source;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod world;

pub use by_label::{accessible_from, capacity_labels, claim_label, group_labels, node_label};
pub use claimcheck_model::Backoff;
pub use events::{EventRecorder, EventType, reference};
pub use in_tree::{FC, ISCSI, InTree};
pub use index::{
    AttachmentBy, CapacityBy, ClaimBy, ClassBy, ContentBy, CsiNodeBy, DEFAULT_CLASSES, GrantBy, GroupBy,
    GroupContentBy, Indexed, NoIndex, NodeBy, PodBy, PodClaim, Slot, SnapshotBy, Term, UNREADY, UNSCHEDULED,
    VolumeBy, attributes_classes, available_with, capacity_place, is_terminal, pod_claims,
};
pub use informer::{Delays, Followed, Informer, Options, Pending, Watchable, is_forbidden, is_unserved};
pub use queue::{Outcome, Queue};
pub use reflector::{Reflector, Step};
pub use source::{DataSource, data_source, elsewhere_term};
pub use store::{Delta, Store, is_deleted, is_newer, key_of};
pub use world::{Cached, Change, Kind, KindSet, Object, World};
