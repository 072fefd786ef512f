//! Seeded defects: our driver with one thing wrong, to try the suites that are to find it.
//!
//! The sound driver knows nothing of them. A defect lies in one of two layers around it: before its services
//! (`Defective`), where requests, answers and order change and work is dropped, or below it, between the
//! driver and its host (`DefectiveHost`), where effects do.

mod controller;
mod host;
mod node;
mod plugin;
mod service;

use std::sync::Arc;

use clap::ValueEnum;

pub(crate) use self::{host::DefectiveHost, service::Defective};
use crate::{driver::Driver, host::Host};

/// What can be wrong with the driver. Each is of a kind that real drivers have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Defect {
    /// CreateVolume refuses a volume that is there, even if it is the same
    CreateRepeatRefused,
    /// CreateVolume makes another volume for the name of one that is there
    CreateRepeatMakesAnother,
    /// CreateVolume takes a name for the same volume whatever its size shall be
    CreateConflictAccepted,
    /// CreateVolume says that volumes have 0 bytes
    CapacityZero,
    /// CreateVolume says that volumes have half of their bytes
    CapacityHalved,
    /// CreateVolume looks at no limit
    CapacityLimitIgnored,
    /// CreateVolume says that the volume is where another node is
    TopologyOfAnotherNode,
    /// CreateVolume makes an empty volume where a copy is asked for
    SourceIgnored,
    /// CreateVolume tells the secrets of a request that it refuses
    SecretInError,
    /// DeleteVolume keeps the data, which the next volume of that name has
    DeleteKeepsData,
    /// DeleteVolume deletes volumes in use
    DeleteInUse,
    /// DeleteVolume answers NotFound for a volume that is gone
    DeleteRepeatFails,
    /// ControllerPublishVolume attaches a volume for one node to two
    TwoNodesAtOnce,
    /// ControllerPublishVolume attaches to nodes that do not exist
    UnknownNodeAccepted,
    /// A node takes one volume more than NodeGetInfo says
    LimitOffByOne,
    /// ValidateVolumeCapabilities confirms whatever is asked
    ValidateConfirmsAll,
    /// ListVolumes leaves out the last volume of each page but the last
    PagingDrops,
    /// ListVolumes begins each page but the first with the last volume of the one before
    PagingRepeats,
    /// ListVolumes begins anew for a token that it does not know
    PagingTokenIgnored,
    /// ListVolumes forgets the nodes to which volumes are attached
    ListForgetsNodes,
    /// ListSnapshots lists those of all volumes whichever is named
    SnapshotFilterIgnored,
    /// Snapshots are never ready to use
    NeverReady,
    /// CreateSnapshot takes a name for the same snapshot whatever its source shall be
    SnapshotConflictAccepted,
    /// A snapshot is no copy: what is written to its source later is in it too
    SnapshotAliasesSource,
    /// A clone is no copy: it shares its blocks with its source
    CloneSharesBlocks,
    /// DeleteSnapshot keeps the snapshot
    SnapshotDeleteForgotten,
    /// A group snapshot lacks the last of its volumes
    GroupLacksMember,
    /// GetMetadataDelta leaves out the last block that has changed
    DeltaLacksBlock,
    /// ControllerExpandVolume says that the volume has grown, and it has not
    ExpandForgotten,
    /// NodeExpandVolume forgets the device and its file system
    ExpandForgetsFilesystem,
    /// ControllerModifyVolume takes parameters that do not exist
    ModifyAcceptsAll,
    /// NodeStageVolume attaches a second loop device when it is repeated
    StageTwiceTwoLoops,
    /// NodeStageVolume makes a new file system each time
    StageFormatsAgain,
    /// NodeUnstageVolume leaves the mount at the staging path
    MountLeftAfterUnstage,
    /// NodeUnstageVolume fails for a volume that is not staged any more
    UnstageRepeatFails,
    /// NodePublishVolume needs no NodeStageVolume, and shows an empty directory
    PublishWithoutStage,
    /// NodePublishVolume returns a second before the mount is there
    PublishBeforeMount,
    /// NodePublishVolume mounts nothing: what is written lands on the node's own disk
    PublishMountsNothing,
    /// NodePublishVolume ignores read-only
    ReadOnlyIgnored,
    /// The driver says that it mounts for the group of a pod (fsGroup), and does not
    FsGroupIgnored,
    /// NodePublishVolume accepts tokens after they have expired
    ExpiredTokenAccepted,
    /// NodeUnpublishVolume leaves the mount at the target path
    MountLeftAfterUnpublish,
    /// NodeUnpublishVolume leaves the target path
    TargetLeft,
    /// NodeUnpublishVolume fails for a volume that is not published any more
    UnpublishRepeatFails,
    /// NodeGetVolumeStats tells of whatever volume lies at the path
    StatsOfAnotherVolume,
    /// All calls answer Internal where NotFound is due
    InternalForNotFound,
    /// All calls take a fifth of a second once the driver has answered 300
    SlowAfterCalls,
    /// Each call leaves a file descriptor open
    DescriptorLeak,
    /// Each NodeStageVolume leaves a loop device attached
    LoopLeak,
    /// NodeGetVolumeStats of a volume that does not exist ends the process
    CrashInCall,
    /// NodeGetVolumeStats of a volume that does not exist stops the process, which answers nothing any more
    HangInCall,
    /// ControllerGetVolume is declared and not implemented
    DeclaredUnimplemented,
    /// ListVolumes is implemented and not declared
    ImplementedUndeclared,
    /// ControllerGetCapabilities lists a capability twice
    CapabilityTwice,
    /// Probe does not say whether the plugin is ready
    ProbeWithoutReady,
}

impl Defect {
    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// As the command line spells it.
    pub fn name(self) -> String {
        self.value().get_name().to_owned()
    }

    /// What it does, in a sentence.
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
