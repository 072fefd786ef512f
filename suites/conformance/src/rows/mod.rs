//! The rows of the catalogue, one file per suite.

mod capabilities;
mod clones;
mod concurrency;
mod controller_create;
mod controller_delete;
mod controller_expand;
mod controller_list;
mod controller_publish;
mod declarations;
mod groups;
mod identity;
mod interruptions;
mod lifecycle;
mod metadata;
mod node_expand;
mod node_publish;
mod node_stage;
mod node_stats;
mod pod;
mod recovery;
mod replays;
mod robustness;
mod snapshots;
mod unused;
mod upkeep;

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as ControllerType,
    group_controller_service_capability::rpc::Type as GroupType,
    node_service_capability::rpc::Type as NodeType, plugin_capability::service::Type as ServiceType,
};

use crate::{
    case::{Case, Row},
    effect::Effect,
    need::Need,
};

/// The suites: name, what their cases have in common, rows.
const SUITES: &[(&str, &str, &[Row])] = &[
    ("identity", "Calls the Identity service, which creates nothing.", identity::ROWS),
    (
        "declarations",
        "Compares the declared capabilities with each other, and with the responses to calls with empty requests, \
         which have no effect.",
        declarations::ROWS,
    ),
    (
        "lifecycle",
        "Creates a volume, attaches, stages and publishes it as Kubernetes does, and reverses each step; a step that \
         the driver does not declare is omitted.",
        lifecycle::ROWS,
    ),
    (
        "capabilities",
        "Passes volume capabilities to each call that has such a field, for a volume that exists.",
        capabilities::ROWS,
    ),
    (
        "controller_create",
        "Creates volumes with the configured size and parameters, changed in the one respect that the name states.",
        controller_create::ROWS,
    ),
    (
        "controller_delete",
        "Creates a volume, and deletes or validates it with a request that is changed as the name states.",
        controller_delete::ROWS,
    ),
    (
        "controller_list",
        "Creates volumes, and looks for them in the responses of the controller.",
        controller_list::ROWS,
    ),
    (
        "controller_publish",
        "Creates a volume, and attaches it to the driver's node.",
        controller_publish::ROWS,
    ),
    (
        "controller_expand",
        "Creates a volume, and expands it to twice its size (or --expand-size), or modifies its mutable parameters.",
        controller_expand::ROWS,
    ),
    (
        "snapshots",
        "Creates a volume and a snapshot of it, waits until the snapshot is ready, and restores it where the name \
         says so. Data is written to, and read from, published volumes.",
        snapshots::ROWS,
    ),
    (
        "clones",
        "Creates a volume from another one, and compares the data of both, which is written to published volumes.",
        clones::ROWS,
    ),
    ("groups", "Creates two volumes, and a group snapshot of both.", groups::ROWS),
    (
        "metadata",
        "Writes to a block volume at known offsets, creates snapshots of it, and compares the offsets with the blocks \
         that the stream returns.",
        metadata::ROWS,
    ),
    (
        "node_stage",
        "Creates and attaches a volume, and stages it in a directory of the case.",
        node_stage::ROWS,
    ),
    (
        "node_publish",
        "Creates, attaches and stages a volume, and publishes it at a path of the case; then mounts and data at that \
         path are checked, if the paths are accessible.",
        node_publish::ROWS,
    ),
    ("node_stats", "Publishes a volume, and queries its statistics.", node_stats::ROWS),
    (
        "node_expand",
        "Publishes a volume, and expands it at the controller and on the node.",
        node_expand::ROWS,
    ),
    ("pod", "Publishes a volume with the fields that the kubelet fills from a pod.", pod::ROWS),
    (
        "upkeep",
        "Makes a call many times, and compares the state of the process and the node before and after.",
        upkeep::ROWS,
    ),
    (
        "concurrency",
        "Makes several calls for one volume at the same time. Each may return Aborted; the state after them must be \
         one that calls in sequence could produce.",
        concurrency::ROWS,
    ),
    (
        "interruptions",
        "Cancels a call after growing delays, as a caller that times out does, then repeats it until it succeeds, and \
         uses the result.",
        interruptions::ROWS,
    ),
    ("replays", "Kills and restarts the driver between a call and its repetition.", replays::ROWS),
    (
        "recovery",
        "Publishes a volume with data, then does what callers do after a reboot of the node, a call of unknown outcome or \
         a mount that is still in use.",
        recovery::ROWS,
    ),
    (
        "robustness",
        "Passes input that is hostile or far beyond the limits, which must be rejected or have no effect.",
        robustness::ROWS,
    ),
];

/// All cases.
pub fn catalogue() -> Vec<Case> {
    SUITES.iter().flat_map(|(suite, about, rows)| Row::all(suite, about, rows)).collect()
}

/// Converts an async function of a fixture to the function type of a row.
macro_rules! case {
    ($function:path) => {
        |fixture| Box::pin(async move { $function(&fixture).await })
    };
}
use case;

pub(crate) const CREATE: Need = Need::Controller(ControllerType::CreateDeleteVolume);
const ATTACH: Need = Need::Controller(ControllerType::PublishUnpublishVolume);
const READONLY: Need = Need::Controller(ControllerType::PublishReadonly);
const LIST: Need = Need::Controller(ControllerType::ListVolumes);
const LIST_NODES: Need = Need::Controller(ControllerType::ListVolumesPublishedNodes);
const CAPACITY: Need = Need::Controller(ControllerType::GetCapacity);
const GET: Need = Need::Controller(ControllerType::GetVolume);
const CONDITION: Need = Need::Controller(ControllerType::VolumeCondition);
const SNAPSHOT: Need = Need::Controller(ControllerType::CreateDeleteSnapshot);
const LIST_SNAPSHOTS: Need = Need::Controller(ControllerType::ListSnapshots);
const GET_SNAPSHOT: Need = Need::Controller(ControllerType::GetSnapshot);
const CLONE: Need = Need::Controller(ControllerType::CloneVolume);
const EXPAND: Need = Need::Controller(ControllerType::ExpandVolume);
const MODIFY: Need = Need::Controller(ControllerType::ModifyVolume);
const STAGE: Need = Need::Node(NodeType::StageUnstageVolume);
const STATS: Need = Need::Node(NodeType::GetVolumeStats);
const NODE_EXPAND: Need = Need::Node(NodeType::ExpandVolume);
const GROUPS: Need = Need::Group(GroupType::CreateDeleteGetVolumeGroupSnapshot);
const METADATA: Need = Need::Plugin(ServiceType::SnapshotMetadataService);
const TOPOLOGY: Need = Need::Plugin(ServiceType::VolumeAccessibilityConstraints);
// Effects that other cases establish.
const CREATE_AGAIN: Need = Need::Effect(Effect::CreateAgain);
const SAME_DATA: Need = Need::Effect(Effect::CreateKeepsData);
const SURVIVES: Need = Need::Effect(Effect::VolumesSurvive);
const DELETE_AGAIN: Need = Need::Effect(Effect::DeleteAgain);
const ATTACH_AGAIN: Need = Need::Effect(Effect::AttachAgain);
const STAGE_AGAIN: Need = Need::Effect(Effect::StageAgain);
const UNSTAGE_AGAIN: Need = Need::Effect(Effect::UnstageAgain);
const PUBLISH_AGAIN: Need = Need::Effect(Effect::PublishAgain);
const PUBLISH_AT_ONCE: Need = Need::Effect(Effect::PublishAtOnce);
const UNPUBLISH_AGAIN: Need = Need::Effect(Effect::UnpublishAgain);
const MOUNTS: Need = Need::Effect(Effect::PublishMounts);
const UNMOUNTS: Need = Need::Effect(Effect::UnpublishUnmounts);
const UNSTAGES: Need = Need::Effect(Effect::UnstageUnmounts);
const READ_ONLY: Need = Need::Effect(Effect::ReadOnly);
const PERSISTS: Need = Need::Effect(Effect::DataPersists);
const RESTORES: Need = Need::Effect(Effect::RestoreCopies);
const KEEPS: Need = Need::Effect(Effect::SnapshotKeeps);
const CLONES: Need = Need::Effect(Effect::CloneCopies);
const COMPLETE: Need = Need::Effect(Effect::GroupComplete);
const EXPANDS: Need = Need::Effect(Effect::Expands);
const DELTA: Need = Need::Effect(Effect::DeltaComplete);
const SIZE: Need = Need::Effect(Effect::SizeHonored);
const LOOPS: Need = Need::Effect(Effect::LoopsDetached);
const FILTERS: Need = Need::Effect(Effect::SnapshotFilter);
// A driver that ignores the source of a volume copies nothing, and accepts sources that do not exist.
const SNAPSHOT_USED: Need = Need::SameCause(Effect::RestoreCopies);
const VOLUME_USED: Need = Need::SameCause(Effect::CloneCopies);
// Cases of which only some errors are consequences of the absent effect.
const IF_MOUNTED: Need = Need::Follows(Effect::PublishMounts);
const IF_PERSISTS: Need = Need::Follows(Effect::DataPersists);
const ANY_NAME: Need = Need::Follows(Effect::AnyName);
const SNAPSHOT_AGAIN: Need = Need::Effect(Effect::SnapshotAgain);
const CLONE_AGAIN: Need = Need::Effect(Effect::CloneAgain);
const SNAPSHOTS_AT_ONCE: Need = Need::Follows(Effect::SnapshotsAtOnce);
const CHECKS_NODE: Need = Need::Effect(Effect::NodeChecked);
const CHECKS_PARAMETERS: Need = Need::Effect(Effect::ParametersChecked);
