//! The SELinux warning controller: emits events about pods that use the same volume with different SELinux labels, or
//! different policies of changing the labels of its files. Only one of them can use the volume on a node that mounts
//! it with `-o context=`.
//!
//! As upstream's it is off by default (`--controllers=*,selinux-warning-controller` of kube-controller-manager), since
//! it assumes that SELinux is enabled on all nodes: the API does not have that information. It compares all pods that
//! have not ended, whether they are scheduled or not. It writes nothing but events.
//!
//! ```text
//! label.rs     SELinux options of a container ──> its label, as far as it is known without a node
//! mounted.rs   the label and policy with which a pod mounts one of its volumes
//! conflict.rs  two pods, and the text of the event
//! plan.rs      what there is to warn about; what has not been reported yet
//! ```
//!
//! Upstream: `pkg/controller/volume/selinuxwarning`; KEP-1710. The differences:
//! - The pods of a volume are evaluated together, not one by one. So there is no event about a conflict that exists
//!   only until the next pod is evaluated, after `seLinuxMount` of a driver has changed.
//! - `MultipleSELinuxLabels` is emitted once per volume of a pod; upstream's controller returns an error, and so
//!   repeats the event with each retry.
//! - Volumes of in-tree plugins (iSCSI, FC, migrated ones) are not compared.

mod conflict;
mod label;
mod mounted;
mod plan;
#[cfg(test)]
mod plan_tests;
mod run;

pub(crate) use plan::{Key, plan};
pub use run::SelinuxWarning;
pub(crate) use run::concerned;
