//! What is to come of each defect: the case that catches it, and what its message says.

use claimcheck_driver::defect::Defect;

/// What a driver is asked for: some defects show with one kind of volume only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volumes {
    Directories,
    /// Needs root, as loop devices do.
    Images,
    /// Needs root.
    Devices,
}
pub(crate) use Volumes::{Devices, Directories, Images};

/// How a case tells what it has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum As {
    /// The specification forbids it.
    Failure,
    /// The specification allows it, though it does no good.
    Remark,
}

/// What is to come of a defect.
pub(crate) struct Due {
    pub(crate) volumes: Volumes,
    /// The case that is to catch it.
    pub(crate) case: &'static str,
    /// What its message must say.
    pub(crate) words: &'static str,
    /// Whether the case fails or remarks it.
    pub(crate) as_what: As,
    /// How many cases it may fail: most defects are the matter of few.
    pub(crate) most: usize,
}

const fn due(volumes: Volumes, case: &'static str, words: &'static str, most: usize) -> Due {
    Due { volumes, case, words, as_what: As::Failure, most }
}

/// What is to come of each.
pub(crate) const fn due_of(defect: Defect) -> Due {
    match defect {
        Defect::CreateRepeatRefused => due(
            Directories,
            "controller_create::the same name and size is the same volume [mount]",
            "answered AlreadyExists",
            9,
        ),
        Defect::CreateRepeatMakesAnother => due(
            Directories,
            "controller_create::the same name and size is the same volume [mount]",
            "made two volumes",
            10,
        ),
        Defect::CreateConflictAccepted => due(
            Directories,
            "controller_create::the same name with another size already exists",
            "another size answered OK",
            1,
        ),
        Defect::CapacityZero => {
            due(Directories, "controller_list::a volume can be looked up", "gave the capacity 0", 1)
        }
        Defect::CapacityHalved => due(
            Directories,
            "controller_create::a volume is at least as large as asked for [mount]",
            "CreateVolume gives 33554432",
            3,
        ),
        Defect::CapacityLimitIgnored => due(
            Directories,
            "controller_create::a range without sense is refused",
            "a limit below what is required answered OK",
            1,
        ),
        Defect::TopologyOfAnotherNode => due(
            Directories,
            "controller_create::a volume is where it was asked to be",
            "is accessible from",
            1,
        ),
        Defect::SourceIgnored => due(
            Directories,
            "snapshots::a restored volume has the snapshot's data [mount]",
            "the data is not there",
            22,
        ),
        Defect::SecretInError => due(
            Directories,
            "robustness::no error of the whole run tells a secret",
            "told the value of a secret",
            2,
        ),
        Defect::DeleteKeepsData => due(
            Directories,
            "lifecycle::a deleted volume's name makes a new and empty one [mount]",
            "holds the data of a deleted one",
            1,
        ),
        Defect::DeleteInUse => due(
            Directories,
            "controller_delete::an attached volume is in use",
            "that is attached to a node answered OK",
            3,
        ),
        Defect::DeleteRepeatFails => due(
            Directories,
            "controller_delete::a volume can be deleted, twice",
            "DeleteVolume called again answered NotFound",
            8,
        ),
        Defect::TwoNodesAtOnce => due(
            Directories,
            "controller_publish::a volume for one node is not attached to a second",
            "to a second node answered OK",
            1,
        ),
        Defect::UnknownNodeAccepted => due(
            Directories,
            "controller_publish::attaching to a node that is not there is refused",
            "to a node that does not exist answered OK",
            2,
        ),
        Defect::LimitOffByOne => due(
            Directories,
            "controller_publish::a node takes no more than its limit",
            "is 95, and 96 volumes were attached",
            1,
        ),
        Defect::ValidateConfirmsAll => due(
            Directories,
            "capabilities::an unknown access mode is refused",
            "ValidateVolumeCapabilities answered OK",
            1,
        ),
        Defect::PagingDrops => due(
            Directories,
            "controller_list::pages of one give every volume, each once",
            "is missing from ListVolumes",
            3,
        ),
        Defect::PagingRepeats => due(
            Directories,
            "controller_list::pages survive that the last volume of one is deleted",
            "with max_entries 2 gives 3 entries",
            3,
        ),
        Defect::PagingTokenIgnored => due(
            Directories,
            "controller_list::a token that nobody gave out is refused",
            "an invalid starting_token answered OK",
            1,
        ),
        Defect::ListForgetsNodes => due(
            Directories,
            "controller_list::the list says to which nodes a volume is published",
            "and ListVolumes says []",
            1,
        ),
        Defect::SnapshotFilterIgnored => due(
            Directories,
            "snapshots::listing a source gives its snapshots",
            "ListSnapshots of the source",
            3,
        ),
        Defect::NeverReady => {
            due(Directories, "lifecycle::a snapshot is taken and deleted", "was not ready_to_use within", 3)
        }
        Defect::SnapshotConflictAccepted => due(
            Directories,
            "snapshots::the same name with another source already exists",
            "of another volume answered OK",
            1,
        ),
        Defect::SnapshotAliasesSource => due(
            Directories,
            "snapshots::what the source is written later is not in the snapshot [mount]",
            "the source was written to after the snapshot, and in the restored volume",
            4,
        ),
        Defect::CloneSharesBlocks => due(
            Directories,
            "clones::a clone and its source do not share what is written later [mount]",
            "a clone was written to, and in its source",
            1,
        ),
        Defect::SnapshotDeleteForgotten => due(
            Directories,
            "snapshots::a new snapshot is listed, and a deleted one is not",
            "is still in ListSnapshots",
            2,
        ),
        Defect::GroupLacksMember => due(
            Directories,
            "groups::a group has one snapshot of each volume",
            "there are 0 snapshots in its group",
            6,
        ),
        Defect::DeltaLacksBlock => due(
            Images,
            "metadata::changed blocks are those that were written between",
            "is not among the changed blocks",
            1,
        ),
        Defect::ExpandForgotten => due(
            Images,
            "controller_expand::a grown volume tells its size",
            "and ControllerGetVolume says 67108864",
            7,
        ),
        Defect::ExpandForgetsFilesystem => due(
            Devices,
            "node_expand::a workload sees that its volume has grown [block]",
            "its workload sees 67108864",
            4,
        ),
        Defect::ModifyAcceptsAll => due(
            Directories,
            "controller_expand::invalid mutable parameters are refused",
            "invalid mutable parameters answered OK",
            2,
        ),
        Defect::StageTwiceTwoLoops => {
            due(Images, "upkeep::staging twice attaches one loop device", "attaches another loop device", 1)
        }
        Defect::StageFormatsAgain => due(
            Images,
            "lifecycle::data survives a whole way down and up [mount]",
            "after a way down and up: the data is not there",
            16,
        ),
        Defect::MountLeftAfterUnstage => {
            due(Directories, "node_stage::nothing is mounted after unstaging [mount]", "left mounted", 2)
        }
        Defect::UnstageRepeatFails => due(
            Directories,
            "node_stage::unstaging twice works [mount]",
            "NodeUnstageVolume called again answered Internal",
            6,
        ),
        Defect::PublishWithoutStage => due(
            Directories,
            "node_publish::publishing what is not staged is refused [mount]",
            "that is not staged answered OK",
            3,
        ),
        Defect::PublishBeforeMount => due(
            Directories,
            "node_publish::a published volume is mounted when the call returns",
            "nothing is mounted at the target",
            70,
        ),
        Defect::PublishMountsNothing => due(
            Directories,
            "node_publish::a published volume is mounted when the call returns",
            "nothing is mounted at the target",
            38,
        ),
        Defect::ReadOnlyIgnored => due(
            Directories,
            "node_publish::read-only is read-only [mount]",
            "published read-only could be written to",
            3,
        ),
        Defect::FsGroupIgnored => due(
            Directories,
            "pod::a volume belongs to the group that it was mounted for",
            "fsGroup is ignored",
            1,
        ),
        Defect::ExpiredTokenAccepted => {
            due(Directories, "pod::a token that has expired is refused", "accepted a token", 1)
        }
        Defect::MountLeftAfterUnpublish => due(
            Directories,
            "node_publish::unpublishing removes the target [mount]",
            "the target is still mounted",
            3,
        ),
        Defect::TargetLeft => due(
            Directories,
            "node_publish::unpublishing removes the target [mount]",
            "the target path is still there",
            2,
        ),
        Defect::UnpublishRepeatFails => due(
            Directories,
            "node_publish::unpublishing twice works [mount]",
            "NodeUnpublishVolume called again answered Internal",
            8,
        ),
        Defect::StatsOfAnotherVolume => due(
            Images,
            "node_stats::statistics at another volume's path are refused",
            "at the path of another volume answered OK",
            1,
        ),
        Defect::InternalForNotFound => {
            due(Directories, "node_stage::staging what is not there is refused", "where NotFound is due", 40)
        }
        Defect::SlowAfterCalls => {
            due(Directories, "upkeep::many calls later a call takes no longer", "calls become slower", 4)
        }
        Defect::DescriptorLeak => {
            due(Directories, "upkeep::calls leave no file descriptor open", "calls leave descriptors open", 1)
        }
        Defect::LoopLeak => {
            due(Images, "upkeep::unstaging leaves no loop device attached", "of the volume attached", 6)
        }
        Defect::CrashInCall => due(
            Directories,
            "node_stats::statistics of what is not there are refused",
            "ended by itself in a call",
            3,
        ),
        Defect::HangInCall => due(
            Directories,
            "node_stats::statistics of what is not there are refused",
            "the driver hangs in a call of NodeGetVolumeStats",
            3,
        ),
        Defect::DeclaredUnimplemented => due(
            Directories,
            "declarations::what the controller declares is implemented",
            "declared, and yet they answer Unimplemented",
            10,
        ),
        Defect::ImplementedUndeclared => due(
            Directories,
            "declarations::what the controller implements is declared",
            "implemented, and yet not declared",
            2,
        ),
        Defect::CapabilityTwice => due(
            Directories,
            "declarations::the controller's capabilities are known and listed once",
            "twice",
            1,
        ),
        // A caller must take the plugin for ready (CSI specification, Probe), so that it is no failure.
        Defect::ProbeWithoutReady => Due {
            as_what: As::Remark,
            ..due(
                Directories,
                "identity::the probe says that the plugin is ready",
                "Probe does not set `ready`",
                0,
            )
        },
    }
}
