//! The expected result of each defect: the case that catches it, and words of its message.

use claimcheck_driver::defect::Defect;

/// The kind of volumes under test: some defects show with one kind only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volumes {
    Directories,
    /// Needs root, as loop devices do.
    Images,
    /// Images with xfs. Needs root.
    XfsImages,
    /// Needs root.
    Devices,
}
pub(crate) use Volumes::{Devices, Directories, Images, XfsImages};

/// How a case reports a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum As {
    /// The specification forbids it.
    Failure,
    /// The specification permits it: a warning.
    CaseWarning,
}

/// The expected result of a defect.
pub(crate) struct Due {
    pub(crate) volumes: Volumes,
    /// The case that must catch it.
    pub(crate) case: &'static str,
    /// Words that its message must contain.
    pub(crate) words: &'static str,
    /// Whether the case fails or warns.
    pub(crate) as_what: As,
    /// The maximum number of failing cases: most defects affect few.
    pub(crate) most: usize,
    /// The capabilities without which the driver runs: with them, another case finds the defect, or nothing shows it.
    pub(crate) without: &'static [&'static str],
}

const fn due(volumes: Volumes, case: &'static str, words: &'static str, most: usize) -> Due {
    Due { volumes, case, words, as_what: As::Failure, most, without: &[] }
}

/// The expected result of each defect.
pub(crate) const fn due_of(defect: Defect) -> Due {
    match defect {
        Defect::CreateRepeatRefused => due(
            Directories,
            "controller_create::CreateVolume called twice with the same name and size returns the same volume [mount]",
            "returned AlreadyExists",
            4,
        ),
        Defect::CreateRepeatMakesAnother => due(
            Directories,
            "controller_create::CreateVolume called twice with the same name and size returns the same volume [mount]",
            "created two volumes",
            4,
        ),
        Defect::CreateRepeatRemakes => due(
            Directories,
            "lifecycle::CreateVolume called again keeps the data of the volume [mount]",
            "after CreateVolume was called again: the data is missing or differs",
            1,
        ),
        Defect::RestoreRepeats => due(
            Directories,
            "snapshots::CreateVolume from a snapshot called again keeps the data of the volume [mount]",
            "after CreateVolume was called again: the data is missing or differs",
            1,
        ),
        Defect::CloneRepeats => due(
            Directories,
            "clones::CreateVolume from a volume called again keeps the data of the clone [mount]",
            "after CreateVolume was called again: the data is missing or differs",
            1,
        ),
        Defect::CreateConflictAccepted => due(
            Directories,
            "controller_create::CreateVolume with an existing name and a different size returns AlreadyExists",
            "a different size returned OK",
            1,
        ),
        // A volume of unknown size is legal, and so not a failure.
        Defect::CapacityZero => Due {
            as_what: As::CaseWarning,
            ..due(
                Directories,
                "controller_create::CreateVolume returns a volume of at least the requested size [mount]",
                "CreateVolume returned no capacity",
                0,
            )
        },
        Defect::CapacityHalved => due(
            Directories,
            "controller_create::CreateVolume returns a volume of at least the requested size [mount]",
            "CreateVolume returned 33554432",
            3,
        ),
        Defect::CapacityLimitIgnored => due(
            Directories,
            "controller_create::CreateVolume with an invalid capacity_range returns OutOfRange",
            "limit_bytes below required_bytes returned OK",
            1,
        ),
        Defect::TopologyOfAnotherNode => due(
            Directories,
            "controller_create::CreateVolume returns a volume accessible from the requested topology",
            "is accessible from",
            1,
        ),
        Defect::SourceIgnored => due(
            Directories,
            "snapshots::CreateVolume from a snapshot restores its data [mount]",
            "the data is missing or differs",
            6,
        ),
        Defect::UndeclaredSourceIgnored => Due {
            without: &["CLONE_VOLUME"],
            ..due(
                Directories,
                "controller_create::CreateVolume from a kind of source that is not declared returns InvalidArgument",
                "a volume without the data of the source, expected InvalidArgument",
                1,
            )
        },
        Defect::SecretInError => due(
            Directories,
            "robustness::error messages of the whole run contain no secrets",
            "contained the value of a secret",
            2,
        ),
        Defect::RequestsLogged => due(
            Directories,
            "robustness::the driver's output of the whole run contains no secrets",
            "contain a secret or token that was passed to the driver",
            1,
        ),
        Defect::DeleteKeepsData => due(
            Directories,
            "lifecycle::CreateVolume with the name of a deleted volume returns an empty volume [mount]",
            "contains the data of a deleted one",
            1,
        ),
        Defect::DeleteInUse => due(
            Directories,
            "controller_delete::DeleteVolume of a staged volume returns FailedPrecondition",
            "that is staged on a node returned OK",
            3,
        ),
        // A controller that neither attaches nor stages may not know what is in use, so it is not a failure.
        Defect::DeletePublished => Due {
            as_what: As::CaseWarning,
            without: &["PUBLISH_UNPUBLISH_VOLUME", "STAGE_UNSTAGE_VOLUME"],
            ..due(
                Directories,
                "controller_delete::DeleteVolume of a published volume keeps its data or returns FailedPrecondition [mount]",
                "returned OK and deletes its data while it is mounted",
                0,
            )
        },
        Defect::DeleteByPrefix => due(
            Directories,
            "controller_delete::DeleteVolume leaves other volumes unchanged [mount]",
            "after DeleteVolume of another one: the volume cannot be published",
            1,
        ),
        Defect::CloneDeleteEmptiesSource => due(
            Directories,
            "clones::DeleteVolume of a clone leaves its source unchanged [mount]",
            "in the source, after its clone was deleted: the data is missing or differs",
            1,
        ),
        Defect::RestoreDeleteEmptiesSource => due(
            Directories,
            "snapshots::DeleteVolume of a restored volume leaves the snapshot and its source unchanged [mount]",
            "in the source, after a volume that was restored from its snapshot was deleted: the data is missing",
            1,
        ),
        Defect::DeleteRepeatFails => due(
            Directories,
            "controller_delete::DeleteVolume called twice succeeds",
            "DeleteVolume called again returned NotFound",
            4,
        ),
        Defect::TwoNodesAtOnce => due(
            Directories,
            "controller_publish::ControllerPublishVolume of an attached volume to a second node returns FailedPrecondition",
            "to a second node returned OK",
            1,
        ),
        Defect::UnknownNodeAccepted => due(
            Directories,
            "controller_publish::ControllerPublishVolume to a nonexistent node returns NotFound",
            "to a node that does not exist returned OK",
            2,
        ),
        // The call SHOULD return OK, so it is not a failure.
        Defect::DetachVolumeNotFound => Due {
            as_what: As::CaseWarning,
            ..due(
                Directories,
                "controller_publish::ControllerUnpublishVolume of a nonexistent volume succeeds or returns NotFound",
                "ControllerUnpublishVolume of a volume that does not exist returned NotFound",
                0,
            )
        },
        Defect::DetachNodeNotFound => Due {
            as_what: As::CaseWarning,
            ..due(
                Directories,
                "controller_publish::ControllerUnpublishVolume from a nonexistent node succeeds or returns NotFound",
                "ControllerUnpublishVolume from a node that does not exist returned NotFound",
                0,
            )
        },
        Defect::LimitOffByOne => due(
            Directories,
            "controller_publish::ControllerPublishVolume beyond max_volumes_per_node returns ResourceExhausted",
            "is 95, but 96 volumes were attached",
            1,
        ),
        Defect::ValidateConfirmsAll => due(
            Directories,
            "capabilities::access mode UNKNOWN is rejected by every call",
            "ValidateVolumeCapabilities returned OK",
            1,
        ),
        Defect::PagingDrops => due(
            Directories,
            "controller_list::ListVolumes in pages of one returns every volume once",
            "is missing from ListVolumes",
            3,
        ),
        Defect::PagingRepeats => due(
            Directories,
            "controller_list::ListVolumes in pages continues after the last volume of a page is deleted",
            "with max_entries 2 returns 3 entries",
            3,
        ),
        Defect::PagingTokenIgnored => due(
            Directories,
            "controller_list::ListVolumes with an invalid starting_token returns Aborted",
            "an invalid starting_token returned OK",
            1,
        ),
        Defect::ListForgetsNodes => due(
            Directories,
            "controller_list::ListVolumes returns the nodes that a volume is published to",
            "but ListVolumes returns published_node_ids []",
            1,
        ),
        Defect::SnapshotFilterIgnored => due(
            Directories,
            "snapshots::ListSnapshots of a source_volume_id returns all snapshots of that volume",
            "ListSnapshots of the source_volume_id",
            3,
        ),
        Defect::SnapshotSourceGoneIgnored => due(
            Directories,
            "snapshots::ListSnapshots of a nonexistent source_volume_id returns no entries",
            "ListSnapshots of a source_volume_id that does not exist returns",
            1,
        ),
        Defect::SnapshotIdGoneIgnored => due(
            Directories,
            "snapshots::ListSnapshots of a nonexistent snapshot_id returns no entries",
            "ListSnapshots of a snapshot_id that does not exist returns",
            1,
        ),
        Defect::SnapshotPageNegative => due(
            Directories,
            "snapshots::ListSnapshots with negative max_entries succeeds or returns InvalidArgument",
            "ListSnapshots with max_entries -1 returned Internal",
            1,
        ),
        Defect::NeverReady => due(
            Directories,
            "lifecycle::CreateSnapshot and DeleteSnapshot succeed",
            "was not ready_to_use within",
            3,
        ),
        Defect::TimeInMilliseconds => due(
            Directories,
            "snapshots::CreateSnapshot returns snapshot_id, source_volume_id and creation_time",
            "which is no time of the years 1 to 9999",
            2,
        ),
        Defect::SnapshotConflictAccepted => due(
            Directories,
            "snapshots::CreateSnapshot with an existing name and a different source returns AlreadyExists",
            "a different source returned OK",
            1,
        ),
        Defect::SnapshotAliasesSource => due(
            Directories,
            "snapshots::a write to the source after CreateSnapshot does not change the snapshot [mount]",
            "in a restored volume, after a later write to the source",
            4,
        ),
        Defect::CloneSharesBlocks => due(
            Directories,
            "clones::a write to a clone or to its source does not change the other [mount]",
            "in the source, after a write to its clone",
            1,
        ),
        Defect::SnapshotDeleteForgotten => due(
            Directories,
            "snapshots::ListSnapshots includes a new snapshot and omits a deleted one",
            "is still in ListSnapshots",
            2,
        ),
        Defect::SnapshotDeleteEmptiesSource => due(
            Directories,
            "snapshots::DeleteSnapshot leaves its source unchanged [mount]",
            "in the source, after its snapshot was deleted: the data is missing or differs",
            1,
        ),
        Defect::GroupLacksMember => due(
            Directories,
            "groups::CreateVolumeGroupSnapshot returns one snapshot of each volume",
            "the group contains 0 snapshots of volume",
            6,
        ),
        Defect::DeltaLacksBlock => due(
            Images,
            "metadata::GetMetadataDelta returns the blocks written between two snapshots",
            "is not among the changed blocks",
            1,
        ),
        Defect::ExpandForgotten => due(
            Images,
            "controller_expand::ControllerGetVolume after ControllerExpandVolume returns the new size",
            "but ControllerGetVolume returns 67108864",
            5,
        ),
        Defect::ExpandForgetsFilesystem => due(
            Devices,
            "node_expand::NodeExpandVolume makes the new size visible to the workload [block]",
            "its workload sees 67108864",
            4,
        ),
        Defect::ModifyAcceptsAll => due(
            Directories,
            "controller_expand::ControllerModifyVolume with invalid mutable parameters returns InvalidArgument",
            "invalid mutable parameters returned OK",
            2,
        ),
        Defect::StageTwiceTwoLoops => due(
            Images,
            "upkeep::NodeStageVolume called twice attaches one loop device",
            "attaches another loop device",
            1,
        ),
        Defect::StageFormatsAgain => due(
            Images,
            "lifecycle::data survives unpublishing and publishing the volume again [mount]",
            "after unpublishing and publishing the volume again: the data is missing or differs",
            6,
        ),
        Defect::XfsWithoutNouuid => due(
            XfsImages,
            "snapshots::CreateVolume from a snapshot restores its data [mount]",
            "cannot mount the image",
            4,
        ),
        Defect::StageTrustsRecord => due(
            Directories,
            "recovery::NodeStageVolume and NodePublishVolume after the node lost its mounts mount the volume again",
            "in a volume that is published after the node lost its mounts: the data is missing or differs",
            1,
        ),
        Defect::StageFormatsOther => due(
            Images,
            "recovery::NodeStageVolume or NodePublishVolume with another fs_type leaves the data",
            "after another fs_type was requested: the data is missing or differs",
            1,
        ),
        Defect::StageForgotten => due(
            Directories,
            "recovery::NodeUnstageVolume after a cancelled NodeStageVolume leaves nothing mounted [mount]",
            "NodeUnstageVolume returned OK, but these mounts remain",
            2,
        ),
        Defect::AttachForgotten => due(
            Directories,
            "recovery::DeleteVolume after a cancelled ControllerPublishVolume and ControllerUnpublishVolume succeeds",
            "detached after a cancelled ControllerPublishVolume returned FailedPrecondition",
            2,
        ),
        Defect::MountLeftAfterUnstage => due(
            Directories,
            "node_stage::NodeUnstageVolume leaves nothing mounted [mount]",
            "these mounts remain",
            1,
        ),
        Defect::UnstageRepeatFails => due(
            Directories,
            "node_stage::NodeUnstageVolume called twice succeeds [mount]",
            "NodeUnstageVolume called again returned Internal",
            4,
        ),
        Defect::UnstageEmptiesByPrefix => due(
            Directories,
            "lifecycle::unpublishing a volume keeps its data, and that of volumes with similar names [mount]",
            "after NodeUnpublishVolume and NodeUnstageVolume of volumes with similar names: the data is missing",
            1,
        ),
        Defect::PublishWithoutStage => due(
            Directories,
            "node_publish::NodePublishVolume of a volume that is not staged returns FailedPrecondition [mount]",
            "that is not staged returned OK",
            3,
        ),
        Defect::PublishBeforeMount => due(
            Directories,
            "node_publish::NodePublishVolume mounts the volume before it returns",
            "nothing is mounted at the target",
            6,
        ),
        Defect::PublishMountsNothing => due(
            Directories,
            "node_publish::NodePublishVolume mounts the volume before it returns",
            "nothing is mounted at the target",
            6,
        ),
        Defect::ReadOnlyIgnored => due(
            Directories,
            "node_publish::NodePublishVolume with the readonly flag prevents writes [mount]",
            "published read-only could be written to",
            2,
        ),
        Defect::FsGroupIgnored => due(
            Directories,
            "pod::NodePublishVolume with a volume_mount_group sets the group of the volume",
            "fsGroup is ignored",
            1,
        ),
        Defect::ExpiredTokenAccepted => due(
            Directories,
            "pod::NodePublishVolume with an expired service account token is rejected",
            "accepted a service account token",
            1,
        ),
        Defect::MountLeftAfterUnpublish => due(
            Directories,
            "node_publish::NodeUnpublishVolume unmounts and removes the target [mount]",
            "the target is still mounted",
            1,
        ),
        Defect::TargetLeft => due(
            Directories,
            "node_publish::NodeUnpublishVolume unmounts and removes the target [mount]",
            "the target path still exists",
            1,
        ),
        Defect::UnpublishEmptiesInline => due(
            Directories,
            "lifecycle::unpublishing a volume keeps its data, and that of volumes with similar names [mount]",
            "after NodeUnpublishVolume and NodeUnstageVolume of volumes with similar names: the data is missing",
            1,
        ),
        Defect::UnpublishRepeatFails => due(
            Directories,
            "node_publish::NodeUnpublishVolume called twice succeeds [mount]",
            "NodeUnpublishVolume called again returned Internal",
            4,
        ),
        Defect::UnpublishRequiresMount => due(
            Directories,
            "recovery::NodeUnpublishVolume and NodeUnstageVolume after the node lost its mounts succeed",
            "NodeUnpublishVolume after the node lost its mounts returned Internal",
            1,
        ),
        Defect::UnpublishDeletesFiles => due(
            Directories,
            "recovery::NodeUnpublishVolume of a target in use leaves the data",
            "after NodeUnpublishVolume of a target in use: the data is missing or differs",
            1,
        ),
        Defect::StatsRemembered => due(
            Devices,
            "node_stats::NodeGetVolumeStats after NodeExpandVolume returns the new size [block]",
            "bytes before NodeExpandVolume, and",
            2,
        ),
        Defect::StatsOfAnotherVolume => due(
            Images,
            "node_stats::NodeGetVolumeStats at the path of another volume returns NotFound",
            "at the path of another volume returned OK",
            1,
        ),
        // The specification does not limit totals, so it is not a failure.
        Defect::InodesUnlimited => Due {
            as_what: As::CaseWarning,
            ..due(
                Directories,
                "node_stats::NodeGetVolumeStats returns consistent usage [mount]",
                "NodeGetVolumeStats returns a total of 2^63-1 INODES",
                0,
            )
        },
        Defect::ForgetsVolumes => due(
            Directories,
            "replays::a volume survives a driver restart",
            "a volume that was created before a driver restart no longer exists after it",
            1,
        ),
        Defect::InternalForNotFound => due(
            Directories,
            "node_stage::NodeStageVolume of a nonexistent volume returns NotFound",
            "expected NotFound",
            40,
        ),
        Defect::SlowAfterCalls => due(
            Directories,
            "upkeep::NodeGetInfo called many times does not become slower",
            "latency grows",
            4,
        ),
        Defect::DescriptorLeak => due(
            Directories,
            "upkeep::NodeGetInfo called many times leaves no file descriptor open",
            "calls leak file descriptors",
            1,
        ),
        Defect::LoopLeak => due(
            Images,
            "upkeep::NodeUnstageVolume leaves no loop device attached",
            "of the volume remain attached",
            6,
        ),
        Defect::CrashInCall => due(
            Directories,
            "node_stats::NodeGetVolumeStats of a nonexistent volume returns NotFound",
            "exited unexpectedly during a call",
            3,
        ),
        Defect::HangInCall => due(
            Directories,
            "node_stats::NodeGetVolumeStats of a nonexistent volume returns NotFound",
            "the driver hangs during a call of NodeGetVolumeStats",
            3,
        ),
        Defect::DeclaredUnimplemented => due(
            Directories,
            "declarations::ControllerGetCapabilities declares only implemented calls",
            "declared, but these calls return Unimplemented",
            12,
        ),
        // An unsupported call SHOULD return an error, so it is not a failure.
        Defect::ImplementedUndeclared => Due {
            as_what: As::CaseWarning,
            ..due(
                Directories,
                "declarations::ControllerGetCapabilities declares every implemented call",
                "implemented, but not declared",
                0,
            )
        },
        // The specification does not forbid declaring a capability twice, so it is not a failure.
        Defect::CapabilityTwice => Due {
            as_what: As::CaseWarning,
            ..due(
                Directories,
                "declarations::ControllerGetCapabilities returns only known capabilities, each once",
                "twice",
                0,
            )
        },
        // A caller must assume that the plugin is ready (CSI specification, Probe), so it is not a failure.
        Defect::ProbeWithoutReady => Due {
            as_what: As::CaseWarning,
            ..due(
                Directories,
                "identity::Probe reports that the plugin is ready",
                "Probe does not set `ready`",
                0,
            )
        },
    }
}
