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
mod replays;
mod robustness;
mod snapshots;
mod upkeep;

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as ControllerType,
    group_controller_service_capability::rpc::Type as GroupType,
    node_service_capability::rpc::Type as NodeType, plugin_capability::service::Type as ServiceType,
};

use crate::case::{Case, Need, Row};

/// All cases.
pub fn catalogue() -> Vec<Case> {
    let suites: &[(&'static str, &[Row])] = &[
        ("identity", identity::ROWS),
        ("declarations", declarations::ROWS),
        ("lifecycle", lifecycle::ROWS),
        ("capabilities", capabilities::ROWS),
        ("controller_create", controller_create::ROWS),
        ("controller_delete", controller_delete::ROWS),
        ("controller_list", controller_list::ROWS),
        ("controller_publish", controller_publish::ROWS),
        ("controller_expand", controller_expand::ROWS),
        ("snapshots", snapshots::ROWS),
        ("clones", clones::ROWS),
        ("groups", groups::ROWS),
        ("metadata", metadata::ROWS),
        ("node_stage", node_stage::ROWS),
        ("node_publish", node_publish::ROWS),
        ("node_stats", node_stats::ROWS),
        ("node_expand", node_expand::ROWS),
        ("pod", pod::ROWS),
        ("upkeep", upkeep::ROWS),
        ("concurrency", concurrency::ROWS),
        ("interruptions", interruptions::ROWS),
        ("replays", replays::ROWS),
        ("robustness", robustness::ROWS),
    ];
    suites.iter().flat_map(|(suite, rows)| rows.iter().flat_map(|row| row.cases(suite))).collect()
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
