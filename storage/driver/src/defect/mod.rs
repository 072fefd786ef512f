//! Seeded defects: the built-in driver with exactly one fault, to test conformance suites.
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
    /// CreateVolume returns AlreadyExists for an existing volume, even if it matches the request
    CreateRepeatRefused,
    /// CreateVolume creates a second volume for the name of an existing one
    CreateRepeatMakesAnother,
    /// CreateVolume deletes an existing volume and creates it again
    CreateRepeatRemakes,
    /// CreateVolume of an existing volume restores the snapshot again
    RestoreRepeats,
    /// CreateVolume of an existing volume copies its source again
    CloneRepeats,
    /// CreateVolume returns the existing volume for a known name, even if the requested size differs
    CreateConflictAccepted,
    /// CreateVolume returns capacity_bytes 0
    CapacityZero,
    /// CreateVolume returns half of the volume's capacity
    CapacityHalved,
    /// CreateVolume ignores limit_bytes
    CapacityLimitIgnored,
    /// CreateVolume returns the topology segment of another node
    TopologyOfAnotherNode,
    /// CreateVolume ignores the content source and creates an empty volume
    SourceIgnored,
    /// CreateVolume ignores a volume as content source, and creates an empty volume, if CLONE_VOLUME is not declared
    UndeclaredSourceIgnored,
    /// CreateVolume returns an error that contains the request's secrets
    SecretInError,
    /// CreateVolume and NodePublishVolume log their requests, with secrets and tokens
    RequestsLogged,
    /// DeleteVolume keeps the data, which reappears in the next volume of that name
    DeleteKeepsData,
    /// DeleteVolume deletes volumes in use
    DeleteInUse,
    /// DeleteVolume deletes the data of published volumes, if volumes are neither attached nor staged
    DeletePublished,
    /// DeleteVolume also deletes all volumes with names that begin with the name of the volume
    DeleteByPrefix,
    /// DeleteVolume of a clone deletes the data of its source
    CloneDeleteEmptiesSource,
    /// DeleteVolume of a restored volume deletes the data of the source of its snapshot
    RestoreDeleteEmptiesSource,
    /// DeleteVolume returns NotFound for a deleted volume
    DeleteRepeatFails,
    /// ControllerPublishVolume attaches a single-node volume to two nodes
    TwoNodesAtOnce,
    /// ControllerPublishVolume attaches to nodes that do not exist
    UnknownNodeAccepted,
    /// ControllerUnpublishVolume returns NotFound for volumes that do not exist
    DetachVolumeNotFound,
    /// ControllerUnpublishVolume returns NotFound for nodes that do not exist
    DetachNodeNotFound,
    /// A node accepts one volume more than max_volumes_per_node of NodeGetInfo
    LimitOffByOne,
    /// ValidateVolumeCapabilities confirms every request
    ValidateConfirmsAll,
    /// ListVolumes omits the last volume of each page except the last page
    PagingDrops,
    /// ListVolumes repeats the last volume of a page as the first of the next
    PagingRepeats,
    /// ListVolumes restarts from the first page for an unknown starting_token
    PagingTokenIgnored,
    /// ListVolumes omits published_node_ids
    ListForgetsNodes,
    /// ListSnapshots ignores source_volume_id
    SnapshotFilterIgnored,
    /// ListSnapshots ignores a source_volume_id that does not exist
    SnapshotSourceGoneIgnored,
    /// ListSnapshots ignores a snapshot_id that does not exist
    SnapshotIdGoneIgnored,
    /// ListSnapshots returns Internal for negative max_entries
    SnapshotPageNegative,
    /// Snapshots never become ready_to_use
    NeverReady,
    /// Creation times of snapshots are in milliseconds, where the message has seconds
    TimeInMilliseconds,
    /// CreateSnapshot returns the existing snapshot for a known name, even if the source differs
    SnapshotConflictAccepted,
    /// A snapshot is not a copy: later writes to its source appear in it
    SnapshotAliasesSource,
    /// A clone is not a copy: it shares its blocks with its source
    CloneSharesBlocks,
    /// DeleteSnapshot returns OK and keeps the snapshot
    SnapshotDeleteForgotten,
    /// DeleteSnapshot deletes the data of the source
    SnapshotDeleteEmptiesSource,
    /// A group snapshot lacks the snapshot of the last volume
    GroupLacksMember,
    /// GetMetadataDelta omits the last changed block
    DeltaLacksBlock,
    /// ControllerExpandVolume returns the new size and does not expand the volume
    ExpandForgotten,
    /// NodeExpandVolume expands neither the device nor its file system
    ExpandForgetsFilesystem,
    /// ControllerModifyVolume accepts unknown parameters
    ModifyAcceptsAll,
    /// A repeated NodeStageVolume attaches a second loop device
    StageTwiceTwoLoops,
    /// NodeStageVolume formats the device on every call
    StageFormatsAgain,
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
    /// NodeUnstageVolume leaves the mount at the staging path
    MountLeftAfterUnstage,
    /// NodeUnstageVolume fails for a volume that is no longer staged
    UnstageRepeatFails,
    /// NodeUnstageVolume deletes the data of other volumes with names that begin with the name of the volume
    UnstageEmptiesByPrefix,
    /// NodePublishVolume succeeds without NodeStageVolume and provides an empty directory
    PublishWithoutStage,
    /// NodePublishVolume returns one second before the mount exists
    PublishBeforeMount,
    /// NodePublishVolume mounts nothing: writes end up on the node's own disk
    PublishMountsNothing,
    /// NodePublishVolume ignores readonly
    ReadOnlyIgnored,
    /// The driver declares VOLUME_MOUNT_GROUP and ignores volume_mount_group (fsGroup)
    FsGroupIgnored,
    /// NodePublishVolume accepts expired service account tokens
    ExpiredTokenAccepted,
    /// NodeUnpublishVolume leaves the mount at the target path
    MountLeftAfterUnpublish,
    /// NodeUnpublishVolume leaves the target path
    TargetLeft,
    /// NodeUnpublishVolume deletes the data of volumes with names that begin with "csi", as if they were inline volumes
    UnpublishEmptiesInline,
    /// NodeUnpublishVolume fails for a volume that is no longer published
    UnpublishRepeatFails,
    /// NodeUnpublishVolume fails if a reboot has undone the mount
    UnpublishRequiresMount,
    /// NodeUnpublishVolume deletes the files at a target that it could not unmount
    UnpublishDeletesFiles,
    /// NodeGetVolumeStats returns the first total of a volume again
    StatsRemembered,
    /// NodeGetVolumeStats returns the statistics of any volume at the path
    StatsOfAnotherVolume,
    /// NodeGetVolumeStats returns 2^63-1 as the number of inodes
    InodesUnlimited,
    /// The driver forgets its volumes when it is restarted
    ForgetsVolumes,
    /// All calls return Internal where NotFound is required
    InternalForNotFound,
    /// All calls take 200 ms after the first 100
    SlowAfterCalls,
    /// Each call leaks a file descriptor
    DescriptorLeak,
    /// Each NodeStageVolume leaks a loop device
    LoopLeak,
    /// NodeGetVolumeStats of a volume that does not exist crashes the process
    CrashInCall,
    /// NodeGetVolumeStats of a volume that does not exist hangs the process, which then responds to no call
    HangInCall,
    /// ControllerGetVolume is declared but not implemented
    DeclaredUnimplemented,
    /// ListVolumes is implemented but not declared
    ImplementedUndeclared,
    /// ControllerGetCapabilities returns a capability twice
    CapabilityTwice,
    /// Probe does not set `ready`
    ProbeWithoutReady,
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
        let defective = Defective::new(driver, self);
        if self == Self::ForgetsVolumes {
            defective.volumes().iter().for_each(|volume| defective.forget(volume));
        }
        defective
    }
}
