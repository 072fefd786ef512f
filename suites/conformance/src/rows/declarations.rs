//! What the driver declares is true: all of it is there, and nothing is there that it does not declare.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use claimcheck_csi::{
    Code, Status,
    v1::{
        self,
        controller_service_capability::rpc::Type as ControllerType,
        group_controller_service_capability::rpc::Type as GroupType,
        node_service_capability::rpc::Type as NodeType,
        plugin_capability::{service::Type as ServiceType, volume_expansion::Type as ExpansionType},
    },
};

use super::{EXPAND, NODE_EXPAND, case};
use crate::{
    case::{Need, Row},
    expect::{Answer, said},
    fixture::Fixture,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("the plugin's capabilities are known and listed once", "GetPluginCapabilities", case!(plugin_once))
        .upstream("Identity Service GetPluginCapabilities should return appropriate capabilities"),
    Row::new("the controller's capabilities are known and listed once", "ControllerGetCapabilities", case!(controller_once))
        .upstream("Controller Service [Controller Server] ControllerGetCapabilities should return appropriate capabilities"),
    Row::new("the node's capabilities are known and listed once", "NodeGetCapabilities", case!(node_once))
        .upstream("Node Service NodeGetCapabilities should return appropriate capabilities"),
    Row::new("the group controller's capabilities are known and listed once", "GroupControllerGetCapabilities", case!(group_once))
        .needs(&[Need::Plugin(ServiceType::GroupControllerService)])
        .upstream("GroupController Service [GroupController Server] GroupControllerGetCapabilities should return appropriate capabilities"),
    Row::new("a declared controller service is there", "GetPluginCapabilities", case!(controller_service)),
    Row::new("a declared group controller service is there", "GetPluginCapabilities", case!(group_service)),
    Row::new("what the controller declares is implemented", "ControllerGetCapabilities", case!(controller_declared)),
    Row::new("what the node declares is implemented", "NodeGetCapabilities", case!(node_declared)),
    Row::new("what the group controller declares is implemented", "GroupControllerGetCapabilities", case!(group_declared))
        .needs(&[Need::Plugin(ServiceType::GroupControllerService)]),
    Row::new("declared snapshot metadata is implemented", "GetPluginCapabilities", case!(metadata_declared))
        .needs(&[super::METADATA]),
    Row::new("what the controller implements is declared", "ControllerGetCapabilities", case!(controller_undeclared)),
    Row::new("what the node implements is declared", "NodeGetCapabilities", case!(node_undeclared)),
    Row::new("what the group controller implements is declared", "GroupControllerGetCapabilities", case!(group_undeclared)),
    Row::new("implemented snapshot metadata is declared", "GetPluginCapabilities", case!(metadata_undeclared)),
    Row::new("a driver that grows volumes says when", "ControllerExpandVolume", case!(expansion))
        .needs(&[EXPAND]),
    Row::new("a driver that grows volumes on the node only says when", "NodeExpandVolume", case!(expansion))
        .needs(&[NODE_EXPAND]),
    Row::new("a capability that builds on another comes with it", "ControllerGetCapabilities", case!(dependents)),
    Row::new("the node has an id of at most 256 bytes", "NodeGetInfo", case!(node_id))
        .upstream("Node Service NodeGetInfo should return appropriate values"),
    Row::new("the node's limit is not negative", "NodeGetInfo", case!(node_limit)),
    Row::new("the node says where it stands", "NodeGetInfo", case!(node_topology)).needs(&[super::TOPOLOGY]),
    Row::new("a node without topology says nothing of it", "NodeGetInfo", case!(no_topology)),
    Row::new("the node's id stays the same", "NodeGetInfo", case!(node_stays)),
    Row::new("the segments of topology are well-formed", "NodeGetInfo", case!(segments)).needs(&[super::TOPOLOGY]),
];

/// Listed once, and of the specification.
fn once(what: &str, listed: &[i32], name: impl Fn(i32) -> Option<&'static str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for &capability in listed {
        let Some(name) = name(capability).filter(|_| capability != 0) else {
            bail!("{what} lists the capability {capability}, which the specification does not know");
        };
        ensure!(seen.insert(capability), "{what} lists {name} twice");
    }
    Ok(())
}

async fn plugin_once(f: &Fixture) -> Result<()> {
    let offers = f.offers();
    let service = |number| ServiceType::try_from(number).ok().map(|it| it.as_str_name());
    once("GetPluginCapabilities", &offers.services, service)?;
    let expansion = |number| ExpansionType::try_from(number).ok().map(|it| it.as_str_name());
    once("GetPluginCapabilities (VolumeExpansion)", &offers.expansion, expansion)
}

async fn controller_once(f: &Fixture) -> Result<()> {
    let name = |number| ControllerType::try_from(number).ok().map(|it| it.as_str_name());
    once("ControllerGetCapabilities", &f.offers().controller, name)
}

async fn node_once(f: &Fixture) -> Result<()> {
    let name = |number| NodeType::try_from(number).ok().map(|it| it.as_str_name());
    once("NodeGetCapabilities", &f.offers().node, name)
}

async fn group_once(f: &Fixture) -> Result<()> {
    let name = |number| GroupType::try_from(number).ok().map(|it| it.as_str_name());
    once("GroupControllerGetCapabilities", &f.offers().group, name)
}

async fn controller_service(f: &Fixture) -> Result<()> {
    let answer = f.controller_get_capabilities(v1::ControllerGetCapabilitiesRequest {}).await;
    match (f.has(Need::Plugin(ServiceType::ControllerService)), answer) {
        (true, answer) => {
            drop(answer.works("ControllerGetCapabilities of a plugin that declares CONTROLLER_SERVICE")?)
        }
        (false, Ok(answer)) if !answer.capabilities.is_empty() => {
            bail!("the plugin has a controller with capabilities, and does not declare CONTROLLER_SERVICE")
        }
        (false, _) => {}
    }
    Ok(())
}

async fn group_service(f: &Fixture) -> Result<()> {
    let answer = f.group_controller_get_capabilities(v1::GroupControllerGetCapabilitiesRequest {}).await;
    match (f.has(Need::Plugin(ServiceType::GroupControllerService)), answer) {
        (true, answer) => {
            drop(answer.works(
                "GroupControllerGetCapabilities of a plugin that declares GROUP_CONTROLLER_SERVICE",
            )?);
        }
        (false, Ok(answer)) if !answer.capabilities.is_empty() => {
            bail!(
                "the plugin has a group controller with capabilities, and does not declare GROUP_CONTROLLER_SERVICE"
            )
        }
        (false, _) => {}
    }
    Ok(())
}

/// What calls with empty requests answer: nothing can come of them but a list.
type Probes = Vec<(Need, &'static str, Result<(), Status>)>;

/// Calls each with an empty request.
macro_rules! probes {
    ($f:ident: $($need:expr => $method:ident $request:ident;)*) => {
        vec![$(($need, stringify!($method), $f.$method(v1::$request::default()).await.map(drop)),)*]
    };
}

async fn controller_probes(f: &Fixture) -> Probes {
    use ControllerType as T;
    probes! { f:
        Need::Controller(T::CreateDeleteVolume) => create_volume CreateVolumeRequest;
        Need::Controller(T::CreateDeleteVolume) => delete_volume DeleteVolumeRequest;
        Need::Controller(T::PublishUnpublishVolume) => controller_publish_volume ControllerPublishVolumeRequest;
        Need::Controller(T::PublishUnpublishVolume) => controller_unpublish_volume ControllerUnpublishVolumeRequest;
        Need::Controller(T::ListVolumes) => list_volumes ListVolumesRequest;
        Need::Controller(T::GetCapacity) => get_capacity GetCapacityRequest;
        Need::Controller(T::CreateDeleteSnapshot) => create_snapshot CreateSnapshotRequest;
        Need::Controller(T::CreateDeleteSnapshot) => delete_snapshot DeleteSnapshotRequest;
        Need::Controller(T::ListSnapshots) => list_snapshots ListSnapshotsRequest;
        Need::Controller(T::GetSnapshot) => get_snapshot GetSnapshotRequest;
        Need::Controller(T::ExpandVolume) => controller_expand_volume ControllerExpandVolumeRequest;
        Need::Controller(T::GetVolume) => controller_get_volume ControllerGetVolumeRequest;
        Need::Controller(T::ModifyVolume) => controller_modify_volume ControllerModifyVolumeRequest;
    }
}

async fn node_probes(f: &Fixture) -> Probes {
    use NodeType as T;
    probes! { f:
        Need::Node(T::StageUnstageVolume) => node_stage_volume NodeStageVolumeRequest;
        Need::Node(T::StageUnstageVolume) => node_unstage_volume NodeUnstageVolumeRequest;
        Need::Node(T::GetVolumeStats) => node_get_volume_stats NodeGetVolumeStatsRequest;
        Need::Node(T::ExpandVolume) => node_expand_volume NodeExpandVolumeRequest;
    }
}

async fn group_probes(f: &Fixture) -> Probes {
    use GroupType::CreateDeleteGetVolumeGroupSnapshot as Groups;
    probes! { f:
        Need::Group(Groups) => create_volume_group_snapshot CreateVolumeGroupSnapshotRequest;
        Need::Group(Groups) => delete_volume_group_snapshot DeleteVolumeGroupSnapshotRequest;
        Need::Group(Groups) => get_volume_group_snapshot GetVolumeGroupSnapshotRequest;
    }
}

async fn metadata_probes(f: &Fixture) -> Probes {
    probes! { f:
        super::METADATA => get_metadata_allocated GetMetadataAllocatedRequest;
        super::METADATA => get_metadata_delta GetMetadataDeltaRequest;
    }
}

/// Nothing that is declared answers that it is not implemented.
fn declared(f: &Fixture, probes: Probes) -> Result<()> {
    let missing = |(need, call, answer): &(Need, &str, Result<(), Status>)| {
        let unimplemented = matches!(answer, Err(status) if status.code() == Code::Unimplemented);
        (f.has(*need) && unimplemented).then(|| format!("{call} ({})", need.name()))
    };
    let missing: Vec<String> = probes.iter().filter_map(missing).collect();
    ensure!(missing.is_empty(), "declared, and yet they answer Unimplemented: {}", missing.join(", "));
    Ok(())
}

/// What is not declared answers that it is not implemented. The specification lets nobody call it, so a driver
/// that looks at arguments first breaks nothing; one that does the work hides an ability.
fn undeclared(f: &Fixture, probes: Probes) -> Result<()> {
    let mut working = Vec::new();
    for (need, call, answer) in probes.into_iter().filter(|(need, ..)| !f.has(*need)) {
        match answer {
            Ok(()) => working.push(format!("{call} ({})", need.name())),
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => f.remark(format!(
                "{call} answers {} where Unimplemented would say that {} is not declared",
                said(&status),
                need.name()
            )),
        }
    }
    ensure!(working.is_empty(), "implemented, and yet not declared: {}", working.join(", "));
    Ok(())
}

async fn controller_declared(f: &Fixture) -> Result<()> {
    declared(f, controller_probes(f).await)
}

async fn controller_undeclared(f: &Fixture) -> Result<()> {
    undeclared(f, controller_probes(f).await)
}

async fn node_declared(f: &Fixture) -> Result<()> {
    declared(f, node_probes(f).await)
}

async fn node_undeclared(f: &Fixture) -> Result<()> {
    undeclared(f, node_probes(f).await)
}

async fn group_declared(f: &Fixture) -> Result<()> {
    declared(f, group_probes(f).await)
}

async fn group_undeclared(f: &Fixture) -> Result<()> {
    undeclared(f, group_probes(f).await)
}

async fn metadata_declared(f: &Fixture) -> Result<()> {
    declared(f, metadata_probes(f).await)
}

async fn metadata_undeclared(f: &Fixture) -> Result<()> {
    undeclared(f, metadata_probes(f).await)
}

async fn expansion(f: &Fixture) -> Result<()> {
    if f.offers().expansion.is_empty() {
        f.remark("the plugin grows volumes and declares neither ONLINE nor OFFLINE: callers must guess when");
    }
    let both = [ExpansionType::Online, ExpansionType::Offline].map(Need::Expansion).map(|need| f.has(need));
    if both == [true, true] {
        f.remark("the plugin declares ONLINE and OFFLINE expansion: ONLINE includes OFFLINE");
    }
    Ok(())
}

async fn dependents(f: &Fixture) -> Result<()> {
    use ControllerType as T;
    let pairs = [
        (T::PublishReadonly, &[T::PublishUnpublishVolume][..]),
        (T::ListVolumesPublishedNodes, &[T::ListVolumes, T::GetVolume]),
        (T::VolumeCondition, &[T::ListVolumes, T::GetVolume]),
        (T::CloneVolume, &[T::CreateDeleteVolume]),
    ];
    for (capability, bases) in pairs {
        let has = |capability| f.has(Need::Controller(capability));
        let names: Vec<&str> = bases.iter().map(|base| base.as_str_name()).collect();
        ensure!(
            !has(capability) || bases.iter().any(|&base| has(base)),
            "{} is declared without {}, on which it builds",
            capability.as_str_name(),
            names.join(" or ")
        );
    }
    Ok(())
}

async fn node_id(f: &Fixture) -> Result<()> {
    let id = f.node_get_info(v1::NodeGetInfoRequest {}).await.works("NodeGetInfo")?.node_id;
    ensure!(!id.is_empty(), "NodeGetInfo gives an empty node_id");
    ensure!(id.len() <= 256, "NodeGetInfo gives a node_id of {} bytes, at most 256 are allowed", id.len());
    Ok(())
}

async fn node_limit(f: &Fixture) -> Result<()> {
    let limit = f.node_info().max_volumes_per_node;
    ensure!(limit >= 0, "NodeGetInfo gives max_volumes_per_node {limit}; it must not be negative");
    Ok(())
}

async fn node_topology(f: &Fixture) -> Result<()> {
    let segments = f.node_info().accessible_topology.as_ref().map_or(0, |topology| topology.segments.len());
    ensure!(
        segments > 0,
        "the plugin declares VOLUME_ACCESSIBILITY_CONSTRAINTS, and its node does not say where it stands"
    );
    Ok(())
}

async fn no_topology(f: &Fixture) -> Result<()> {
    if !f.has(super::TOPOLOGY) && f.node_info().accessible_topology.is_some() {
        f.remark("the node says where it stands, and the plugin does not declare VOLUME_ACCESSIBILITY_CONSTRAINTS: \
                  nobody will heed it");
    }
    Ok(())
}

async fn node_stays(f: &Fixture) -> Result<()> {
    let again = f.node_get_info(v1::NodeGetInfoRequest {}).await.works("NodeGetInfo")?;
    let first = f.node_info();
    ensure!(
        again.node_id == first.node_id,
        "NodeGetInfo gives another node_id each time: {:?}, then {:?}",
        first.node_id,
        again.node_id
    );
    Ok(())
}

async fn segments(f: &Fixture) -> Result<()> {
    let fine = |text: &str, more: &str| {
        let inner = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b) || more.bytes().any(|m| m == b));
        (1..=63).contains(&text.len()) && inner
    };
    for (key, value) in f.node_info().accessible_topology.iter().flat_map(|topology| &topology.segments) {
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
        ensure!(
            fine(name, "") && (prefix.is_empty() || (prefix.len() <= 63 && fine(prefix, ""))),
            "the topology key {key:?} is not [prefix/]name of letters, digits, '-', '_' and '.'"
        );
        ensure!(
            fine(value, ""),
            "the topology value {value:?} is not made of 1 to 63 letters, digits, '-', '_' and '.'"
        );
    }
    Ok(())
}
