//! Declared capabilities: every declared capability is implemented, and every implemented call is declared.

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
    Row::new("GetPluginCapabilities returns only known capabilities, each once", "GetPluginCapabilities", case!(plugin_once))
        .upstream("Identity Service GetPluginCapabilities should return appropriate capabilities"),
    Row::new("ControllerGetCapabilities returns only known capabilities, each once", "ControllerGetCapabilities", case!(controller_once))
        .upstream("Controller Service [Controller Server] ControllerGetCapabilities should return appropriate capabilities"),
    Row::new("NodeGetCapabilities returns only known capabilities, each once", "NodeGetCapabilities", case!(node_once))
        .upstream("Node Service NodeGetCapabilities should return appropriate capabilities"),
    Row::new("GroupControllerGetCapabilities returns only known capabilities, each once", "GroupControllerGetCapabilities", case!(group_once))
        .needs(&[Need::Plugin(ServiceType::GroupControllerService)])
        .upstream("GroupController Service [GroupController Server] GroupControllerGetCapabilities should return appropriate capabilities"),
    Row::new("ControllerGetCapabilities matches the declaration of CONTROLLER_SERVICE", "GetPluginCapabilities", case!(controller_service)),
    Row::new("GroupControllerGetCapabilities matches the declaration of GROUP_CONTROLLER_SERVICE", "GetPluginCapabilities", case!(group_service)),
    Row::new("ControllerGetCapabilities declares only implemented calls", "ControllerGetCapabilities", case!(controller_declared)),
    Row::new("NodeGetCapabilities declares only implemented calls", "NodeGetCapabilities", case!(node_declared)),
    Row::new("GroupControllerGetCapabilities declares only implemented calls", "GroupControllerGetCapabilities", case!(group_declared))
        .needs(&[Need::Plugin(ServiceType::GroupControllerService)]),
    Row::new("GetPluginCapabilities declares SNAPSHOT_METADATA_SERVICE only if implemented", "GetPluginCapabilities", case!(metadata_declared))
        .needs(&[super::METADATA]),
    Row::new("ControllerGetCapabilities declares every implemented call", "ControllerGetCapabilities", case!(controller_undeclared)),
    Row::new("NodeGetCapabilities declares every implemented call", "NodeGetCapabilities", case!(node_undeclared)),
    Row::new("GroupControllerGetCapabilities declares every implemented call", "GroupControllerGetCapabilities", case!(group_undeclared)),
    Row::new("GetPluginCapabilities declares SNAPSHOT_METADATA_SERVICE if implemented", "GetPluginCapabilities", case!(metadata_undeclared)),
    Row::new("GetPluginCapabilities declares ONLINE or OFFLINE for controller EXPAND_VOLUME", "ControllerExpandVolume", case!(expansion))
        .needs(&[EXPAND]),
    Row::new("GetPluginCapabilities declares ONLINE or OFFLINE for node EXPAND_VOLUME", "NodeExpandVolume", case!(expansion))
        .needs(&[NODE_EXPAND]),
    Row::new("ControllerGetCapabilities declares each capability with its prerequisites", "ControllerGetCapabilities", case!(dependents)),
    Row::new("NodeGetInfo returns a node_id of 1 to 256 bytes", "NodeGetInfo", case!(node_id))
        .upstream("Node Service NodeGetInfo should return appropriate values"),
    Row::new("NodeGetInfo returns a non-negative max_volumes_per_node", "NodeGetInfo", case!(node_limit)),
    Row::new("NodeGetInfo returns an accessible_topology if topology is declared", "NodeGetInfo", case!(node_topology)).needs(&[super::TOPOLOGY]),
    Row::new("NodeGetInfo returns no accessible_topology if topology is not declared", "NodeGetInfo", case!(no_topology)),
    Row::new("NodeGetInfo called twice returns the same node_id", "NodeGetInfo", case!(node_stays)),
    Row::new("NodeGetInfo returns well-formed topology segments", "NodeGetInfo", case!(segments)).needs(&[super::TOPOLOGY]),
];

/// Checks that each capability is defined by the specification and listed once.
fn once(what: &str, listed: &[i32], name: impl Fn(i32) -> Option<&'static str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for &capability in listed {
        let Some(name) = name(capability).filter(|_| capability != 0) else {
            bail!("{what} lists the capability {capability}, which the specification does not define");
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
            bail!("the plugin has a controller with capabilities, but does not declare CONTROLLER_SERVICE")
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
                "the plugin has a group controller with capabilities, but does not declare GROUP_CONTROLLER_SERVICE"
            )
        }
        (false, _) => {}
    }
    Ok(())
}

/// The results of calls with empty requests, which have no effect.
type Probes = Vec<(Need, &'static str, Result<(), Status>)>;

/// Makes each call with an empty request.
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

/// Checks that no declared call returns Unimplemented.
fn declared(f: &Fixture, probes: Probes) -> Result<()> {
    let missing = |(need, call, answer): &(Need, &str, Result<(), Status>)| {
        let unimplemented = matches!(answer, Err(status) if status.code() == Code::Unimplemented);
        (f.has(*need) && unimplemented).then(|| format!("{call} ({})", need.name()))
    };
    let missing: Vec<String> = probes.iter().filter_map(missing).collect();
    ensure!(missing.is_empty(), "declared, but these calls return Unimplemented: {}", missing.join(", "));
    Ok(())
}

/// Checks that calls that are not declared return Unimplemented. The specification does not permit calling them, so
/// a driver that validates arguments first violates nothing; one that executes the call has an undeclared capability.
fn undeclared(f: &Fixture, probes: Probes) -> Result<()> {
    let mut working = Vec::new();
    for (need, call, answer) in probes.into_iter().filter(|(need, ..)| !f.has(*need)) {
        match answer {
            Ok(()) => working.push(format!("{call} ({})", need.name())),
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => f.warn(format!(
                "{call} returns {}; Unimplemented is recommended, since {} is not declared",
                said(&status),
                need.name()
            )),
        }
    }
    ensure!(working.is_empty(), "implemented, but not declared: {}", working.join(", "));
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
        f.warn("the plugin expands volumes but declares neither ONLINE nor OFFLINE: callers must guess");
    }
    let both = [ExpansionType::Online, ExpansionType::Offline].map(Need::Expansion).map(|need| f.has(need));
    if both == [true, true] {
        f.warn("the plugin declares ONLINE and OFFLINE expansion: ONLINE includes OFFLINE");
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
            "{} is declared without {}, which it requires",
            capability.as_str_name(),
            names.join(" or ")
        );
    }
    Ok(())
}

async fn node_id(f: &Fixture) -> Result<()> {
    let id = f.node_get_info(v1::NodeGetInfoRequest {}).await.works("NodeGetInfo")?.node_id;
    ensure!(!id.is_empty(), "NodeGetInfo returns an empty node_id");
    ensure!(id.len() <= 256, "NodeGetInfo returns a node_id of {} bytes, at most 256 are allowed", id.len());
    Ok(())
}

async fn node_limit(f: &Fixture) -> Result<()> {
    let limit = f.node_info().max_volumes_per_node;
    ensure!(limit >= 0, "NodeGetInfo returns max_volumes_per_node {limit}; it must not be negative");
    Ok(())
}

async fn node_topology(f: &Fixture) -> Result<()> {
    let segments = f.node_info().accessible_topology.as_ref().map_or(0, |topology| topology.segments.len());
    ensure!(
        segments > 0,
        "the plugin declares VOLUME_ACCESSIBILITY_CONSTRAINTS, but NodeGetInfo returns no accessible_topology"
    );
    Ok(())
}

async fn no_topology(f: &Fixture) -> Result<()> {
    if !f.has(super::TOPOLOGY) && f.node_info().accessible_topology.is_some() {
        f.warn(
            "NodeGetInfo returns an accessible_topology, but the plugin does not declare \
                  VOLUME_ACCESSIBILITY_CONSTRAINTS: the topology is ignored",
        );
    }
    Ok(())
}

async fn node_stays(f: &Fixture) -> Result<()> {
    let again = f.node_get_info(v1::NodeGetInfoRequest {}).await.works("NodeGetInfo")?;
    let first = f.node_info();
    ensure!(
        again.node_id == first.node_id,
        "NodeGetInfo returns different node_ids: {:?}, then {:?}",
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
            "the topology key {key:?} must be [prefix/]name of letters, digits, '-', '_' and '.'"
        );
        ensure!(
            fine(value, ""),
            "the topology value {value:?} must consist of 1 to 63 letters, digits, '-', '_' and '.'"
        );
    }
    Ok(())
}
