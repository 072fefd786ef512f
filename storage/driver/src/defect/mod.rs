//! Seeded defects that lie inside of a driver: those that a proxy before it can have are rows of `testing/saboteur`.
//!
//! The driver itself has no code for them. A defect is implemented in one of two layers around it: in front of
//! its services (`Defective`), which changes requests, responses and their order or drops work, or below it,
//! between the driver and its host (`DefectiveHost`), which changes effects on the host.

mod controller;
mod host;
mod node;
mod plugin;
mod service;

use std::sync::Arc;

use clap::ValueEnum;

pub(crate) use self::{host::DefectiveHost, service::Defective};
use crate::{driver::Driver, host::Host};

/// A seeded defect. Each is of a kind that has been found in real drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Defect {
    /// Creation times of snapshots are in milliseconds, where the message has seconds
    TimeInMilliseconds,
    /// A repeated NodeStageVolume attaches a second loop device
    StageTwiceTwoLoops,
    /// NodeStageVolume mounts xfs without `nouuid`, so that a volume and its copy cannot be mounted on one node
    XfsWithoutNouuid,
    /// NodeStageVolume and NodePublishVolume rely on the driver's records, also where a reboot has undone the mounts
    StageTrustsRecord,
    /// NodeStageVolume formats a volume that has another file system than the requested one
    StageFormatsOther,
    /// NodeUnstageVolume does not undo a NodeStageVolume that was cancelled
    StageForgotten,
    /// ControllerUnpublishVolume does not undo a ControllerPublishVolume that was cancelled
    AttachForgotten,
    /// NodePublishVolume returns one second before the mount exists
    PublishBeforeMount,
    /// NodeUnpublishVolume fails if a reboot has undone the mount
    UnpublishRequiresMount,
    /// NodeUnpublishVolume deletes the files at a target that it could not unmount
    UnpublishDeletesFiles,
    /// Each NodeStageVolume leaks a loop device
    LoopLeak,
    /// NodeGetVolumeStats of a volume that does not exist crashes the process
    CrashInCall,
    /// NodeGetVolumeStats of a volume that does not exist hangs the process, which then responds to no call
    HangInCall,
}

impl Defect {
    /// All defects.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The defect's name on the command line.
    pub fn name(self) -> String {
        self.value().get_name().to_owned()
    }

    /// The defect's effect, in a sentence.
    pub fn effect(self) -> String {
        self.value().get_help().map(ToString::to_string).unwrap_or_default()
    }

    fn value(self) -> clap::builder::PossibleValue {
        self.to_possible_value().expect("no defect is hidden")
    }

    /// The host with this defect.
    pub(crate) fn below(self, host: Arc<dyn Host>) -> Arc<dyn Host> {
        Arc::new(DefectiveHost { sound: host, defect: self })
    }

    /// The services with this defect.
    pub(crate) fn before(self, driver: Driver) -> Defective {
        Defective::new(driver, self)
    }
}
