//! The shared vocabulary of claimcheck: phases, events, metric and object names, capabilities.
//!
//! Pure data without I/O (except for reading the clock in [`Stamp::now`]). Every name that two
//! crates share is defined here, once.

mod api_write;
mod backoff;
mod capability;
mod class_label;
mod component_fault;
mod csi_method;
mod custom_kinds;
mod denial;
mod digest;
mod event;
mod evidence;
pub mod group_snapshot;
mod kubelet_path;
mod load;
mod matrix;
pub mod meter;
pub mod metric;
mod names;
mod phase;
mod rate;
pub mod reference_grant;
mod run;
mod sample;
pub mod snapshot;
mod stamp;
mod stock;
mod storage_operation;
mod suggest;
mod unserved;
pub mod volume_populator;

pub use api_write::{ApiWrite, LifecycleObject, LifecycleObjectKind};
pub use backoff::Backoff;
pub use capability::{Capability, UnknownCapability};
pub use class_label::{PER_CASE, class_label};
pub use component_fault::ComponentFault;
pub use csi_method::{CsiMethod, RpcMethod, UnknownMethod};
pub use denial::{Denial, DeniedObject};
pub use digest::{attachment_name, inline_volume_handle, sha256};
pub use event::*;
pub use evidence::{FailureDump, Log, ObjectEvent};
pub use kubelet_path::KubeletPath;
pub use load::{ControllersUsage, LoadEvent, LoadPlan, Usage, VolumeStep};
pub use matrix::{CapabilityLine, CapabilityPlan};
pub use meter::Meter;
pub use names::*;
pub use phase::{Phase, PhaseInfo, Source, Subject};
pub use rate::{NotARate, Rate};
pub use run::{CaseId, CaseResult, ClusterKind, ComponentEnd, INTERRUPTED, RunInfo, read_environment};
pub use sample::{Outcome, PhaseSample, SubjectIds, VolumeMode};
pub use stamp::Stamp;
pub use stock::{StockComponent, StockMetrics, StockOperation, StockState};
pub use storage_operation::StorageOperation;
pub use suggest::{nearest, unknown};
pub use unserved::Unserved;
