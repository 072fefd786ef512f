//! Cases on a cluster: claims and pods, with the driver under test.
//!
//! [`Case::new`] names a case, its function and what it requires; [`Fixture`] is what the function gets.

pub use claimcheck_cluster::{Disruption, Victim};
pub use claimcheck_csi::Code;
pub use claimcheck_engine::skip;
pub use claimcheck_model::{Capability, CsiMethod};
pub use claimcheck_suites::fixture::{Claim, DATA, DEVICE, Fixture, Pod, Policy, TestPod, VolumeSource};
pub use claimcheck_suites::{Binding, Case, FsType, Need, Pattern, catalogue};
