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

use super::{ATTACH, EXPAND, GET_SNAPSHOT, GROUPS, LIST_NODES, NODE_EXPAND, case, identity::is_domain};
use crate::{
    case::Row,
    config::Map,
    expect::{Answer, WrongStatus, status_text},
    fixture::Fixture,
    need::Need,
    spec,
    verdict::Breaks,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("GetPluginCapabilities returns only known capabilities, each once", spec::KNOWN, case!(plugin_once))
        .upstream("Identity Service GetPluginCapabilities should return appropriate capabilities"),
    Row::new("ControllerGetCapabilities returns only known capabilities, each once", spec::KNOWN, case!(controller_once))
        .upstream("Controller Service [Controller Server] ControllerGetCapabilities should return appropriate capabilities"),
    Row::new("NodeGetCapabilities returns only known capabilities, each once", spec::KNOWN, case!(node_once))
        .upstream("Node Service NodeGetCapabilities should return appropriate capabilities"),
    Row::new("GroupControllerGetCapabilities returns only known capabilities, each once", spec::KNOWN, case!(group_once))
        .needs(&[Need::Plugin(ServiceType::GroupControllerService)])
        .upstream("GroupController Service [GroupController Server] GroupControllerGetCapabilities should return appropriate capabilities"),
    Row::new("ControllerGetCapabilities matches the declaration of CONTROLLER_SERVICE", spec::CONTROLLER_CAPABILITIES, case!(controller_service))
        .also(&[spec::CONTROLLER, spec::CONTROLLER_SERVICE, spec::UNDECLARED]),
    Row::new("GroupControllerGetCapabilities matches the declaration of GROUP_CONTROLLER_SERVICE", spec::GROUP_CAPABILITIES, case!(group_service))
        .also(&[spec::UNDECLARED]),
    Row::new("ControllerGetCapabilities declares only implemented calls", spec::CONTROLLER, case!(controller_declared))
        .also(&[
            spec::CREATE, spec::DELETE, spec::ATTACH, spec::DETACH, spec::VALIDATE, spec::LIST,
            spec::CAPACITY, spec::SNAPSHOT, spec::DROP, spec::SNAPSHOTS, spec::FETCH, spec::EXPAND,
            spec::GET, spec::MODIFY,
        ]),
    Row::new("NodeGetCapabilities declares only implemented calls", spec::NODE, case!(node_declared))
        .also(&[
            spec::STAGE, spec::UNSTAGE, spec::STATS, spec::STATS_DECLARED, spec::NODE_EXPAND,
            spec::NODE_CAPABILITIES,
        ]),
    Row::new("GroupControllerGetCapabilities declares only implemented calls", spec::GROUPS, case!(group_declared))
        .also(&[spec::UNGROUP, spec::FETCH_GROUP])
        .needs(&[Need::Plugin(ServiceType::GroupControllerService)]),
    Row::new("GetPluginCapabilities declares SNAPSHOT_METADATA_SERVICE only if implemented", spec::ALLOCATED, case!(metadata_declared))
        .also(&[spec::DELTA])
        .needs(&[super::METADATA]),
    Row::new("ControllerGetCapabilities declares every implemented call", spec::UNSUPPORTED, case!(controller_undeclared)),
    Row::new("NodeGetCapabilities declares every implemented call", spec::UNSUPPORTED, case!(node_undeclared)),
    Row::new("GroupControllerGetCapabilities declares every implemented call", spec::UNSUPPORTED, case!(group_undeclared)),
    Row::new("GetPluginCapabilities declares SNAPSHOT_METADATA_SERVICE if implemented", spec::UNSUPPORTED, case!(metadata_undeclared)),
    Row::new("GetPluginCapabilities declares ONLINE or OFFLINE for controller EXPAND_VOLUME", spec::EXPANSION, case!(expansion))
        .needs(&[EXPAND]),
    Row::new("GetPluginCapabilities declares ONLINE or OFFLINE for node EXPAND_VOLUME", spec::EXPANSION, case!(expansion))
        .needs(&[NODE_EXPAND]),
    Row::new("GetPluginCapabilities declares ONLINE or OFFLINE only with EXPAND_VOLUME", spec::ONLINE_NEEDS, case!(expansion_implemented))
        .also(&[spec::OFFLINE_NEEDS]),
    Row::new("ControllerGetCapabilities declares each capability with its prerequisites", spec::KNOWN, case!(dependents)),
    Row::new("ControllerGetCapabilities declares LIST_VOLUMES_PUBLISHED_NODES only with PUBLISH_UNPUBLISH_VOLUME", spec::NODES_NEED_ATTACH, case!(published_nodes))
        .needs(&[LIST_NODES]),
    Row::new("ControllerGetCapabilities declares GET_SNAPSHOT if group snapshots are declared", spec::FETCH_MEMBERS, case!(snapshots_of_groups))
        .needs(&[GROUPS]),
    Row::new("NodeGetInfo returns a node_id of 1 to 256 bytes", spec::NODE_ID, case!(node_id))
        .also(&[spec::NODE_ID_SIZE, spec::NODE_ID_SHORT, spec::INFO, spec::INFO_USED])
        .upstream("Node Service NodeGetInfo should return appropriate values"),
    Row::new("NodeGetInfo returns a non-negative max_volumes_per_node", spec::NODE_LIMIT, case!(node_limit)),
    Row::new("NodeGetInfo returns an accessible_topology if topology is declared", spec::NODE_ANYWHERE, case!(node_topology)).needs(&[super::TOPOLOGY]),
    Row::new("NodeGetInfo returns no accessible_topology if topology is not declared", spec::NODE_TOPOLOGY, case!(no_topology)),
    Row::new("NodeGetInfo called twice returns the same node_id", spec::NODE_UNIQUE, case!(node_stays)),
    Row::new("NodeGetInfo called twice returns the same accessible_topology", spec::INFO_USED, case!(topology_stays)).needs(&[super::TOPOLOGY]),
    Row::new("NodeGetInfo returns different node_ids for two nodes", spec::NODE_UNIQUE, case!(node_ids)).needs(&[Need::SecondNode]),
    Row::new("NodeGetInfo returns well-formed topology segments", spec::KEY_NAME, case!(segments))
        .also(&[
            spec::KEY_NAME_GIVEN, spec::KEY_PREFIX, spec::KEY_CASE, spec::VALUE_SOME, spec::VALUE_CHARACTERS,
        ])
        .needs(&[super::TOPOLOGY]),
    Row::new("NodeGetInfo returns topology keys with one prefix", spec::KEY_ONE_PREFIX, case!(one_prefix)).needs(&[super::TOPOLOGY]),
];

/// Checks that each capability is defined by the specification and listed once.
fn once(what: &str, listed: &[i32], name: impl Fn(i32) -> Option<&'static str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for &capability in listed {
        ensure!(capability != 0, "{what} lists the capability UNKNOWN (0), which declares nothing");
        let Some(name) = name(capability) else {
            bail!("{what} lists the capability {capability}, which the specification does not define");
        };
        ensure!(seen.insert(capability), "{what} lists {name} twice");
    }
    Ok(())
}

async fn plugin_once(f: &Fixture) -> Result<()> {
    let capabilities = f.capabilities();
    let service = |number| ServiceType::try_from(number).ok().map(|it| it.as_str_name());
    once("GetPluginCapabilities", &capabilities.services, service)?;
    let expansion = |number| ExpansionType::try_from(number).ok().map(|it| it.as_str_name());
    once("GetPluginCapabilities (VolumeExpansion)", &capabilities.expansion, expansion)
}

async fn controller_once(f: &Fixture) -> Result<()> {
    let name = |number| ControllerType::try_from(number).ok().map(|it| it.as_str_name());
    once("ControllerGetCapabilities", &f.capabilities().controller, name)
}

async fn node_once(f: &Fixture) -> Result<()> {
    let name = |number| NodeType::try_from(number).ok().map(|it| it.as_str_name());
    once("NodeGetCapabilities", &f.capabilities().node, name)
}

async fn group_once(f: &Fixture) -> Result<()> {
    let name = |number| GroupType::try_from(number).ok().map(|it| it.as_str_name());
    once("GroupControllerGetCapabilities", &f.capabilities().group, name)
}

async fn controller_service(f: &Fixture) -> Result<()> {
    let answer = f.controller_get_capabilities(v1::ControllerGetCapabilitiesRequest {}).await;
    match (f.has(Need::Plugin(ServiceType::ControllerService)), answer) {
        (true, answer) => {
            drop(answer.works("ControllerGetCapabilities of a plugin that declares CONTROLLER_SERVICE")?)
        }
        (false, answer) => undeclared_service(
            answer.is_ok_and(|answer| !answer.capabilities.is_empty()),
            "a controller",
            "CONTROLLER_SERVICE",
        )
        .breaks(spec::UNDECLARED)?,
    }
    Ok(())
}

/// Checks that a service with capabilities is declared: Kubernetes calls no other.
fn undeclared_service(is: bool, service: &str, declaration: &str) -> Result<()> {
    ensure!(!is, "the plugin has {service} with capabilities, but does not declare {declaration}");
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
        (false, answer) => undeclared_service(
            answer.is_ok_and(|answer| !answer.capabilities.is_empty()),
            "a group controller",
            "GROUP_CONTROLLER_SERVICE",
        )
        .breaks(spec::UNDECLARED)?,
    }
    Ok(())
}

/// The results of calls with empty requests, which have no effect.
type Probes = Vec<(Need, &'static str, Result<(), Status>)>;

/// Makes each call with an empty request.
macro_rules! probes {
    ($f:ident: $($need:expr => $method:ident $request:ident;)*) => {
        vec![$(($need, stringify!($request).trim_end_matches("Request"), $f.$method(v1::$request::default()).await.map(drop)),)*]
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
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!("declared, but these calls return Unimplemented: {}", missing.join(", "));
    Err(WrongStatus::unimplemented(text).into())
}

/// Checks that calls that are not declared return Unimplemented. A driver that executes such a call has an undeclared
/// capability, or does nothing and returns OK; another one validates arguments first. Only a SHOULD forbids either.
fn undeclared(f: &Fixture, probes: Probes) -> Result<()> {
    let (mut working, mut other) = (Vec::new(), Vec::new());
    for (need, call, answer) in probes.into_iter().filter(|(need, ..)| !f.has(*need)) {
        match answer {
            Ok(()) => working.push(format!("{call} ({})", need.name())),
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => other.push(format!("{call} ({}) returned {}", need.name(), status_text(&status))),
        }
    }
    ensure!(working.is_empty(), "implemented, but not declared: {}", working.join(", "));
    ensure!(
        other.is_empty(),
        "not declared, so these calls should return Unimplemented: {}",
        other.join(", ")
    );
    Ok(())
}

async fn controller_declared(f: &Fixture) -> Result<()> {
    let mut probes = controller_probes(f).await;
    // "A Controller Plugin MUST implement this RPC call", without a capability.
    let validate = f.validate_volume_capabilities(v1::ValidateVolumeCapabilitiesRequest::default()).await;
    let controller = Need::Plugin(ServiceType::ControllerService);
    probes.push((controller, "ValidateVolumeCapabilities", validate.map(drop)));
    declared(f, probes)
}

async fn controller_undeclared(f: &Fixture) -> Result<()> {
    undeclared(f, controller_probes(f).await)
}

async fn node_declared(f: &Fixture) -> Result<()> {
    let mut probes = node_probes(f).await;
    // Two capabilities require this call.
    let stats = f.node_get_volume_stats(v1::NodeGetVolumeStatsRequest::default()).await.map(drop);
    probes.push((Need::Node(NodeType::VolumeCondition), "node_get_volume_stats", stats));
    declared(f, probes)
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
    if f.capabilities().expansion.is_empty() {
        f.warn("the plugin expands volumes but declares neither ONLINE nor OFFLINE: callers must guess");
    }
    let both = [ExpansionType::Online, ExpansionType::Offline].map(Need::Expansion).map(|need| f.has(need));
    if both == [true, true] {
        f.warn("the plugin declares ONLINE and OFFLINE expansion: ONLINE includes OFFLINE");
    }
    Ok(())
}

async fn expansion_implemented(f: &Fixture) -> Result<()> {
    let (controller, node) = (f.has(EXPAND), f.has(NODE_EXPAND));
    ensure!(
        !f.has(Need::ONLINE_EXPANSION) || controller || node,
        "the plugin declares ONLINE expansion, but neither its controller nor its node declares EXPAND_VOLUME"
    );
    offline_implemented(f.has(Need::Expansion(ExpansionType::Offline)), controller)
        .breaks(spec::OFFLINE_NEEDS)
}

fn offline_implemented(offline: bool, controller: bool) -> Result<()> {
    ensure!(
        !offline || controller,
        "the plugin declares OFFLINE expansion, but its controller does not declare EXPAND_VOLUME"
    );
    Ok(())
}

async fn published_nodes(f: &Fixture) -> Result<()> {
    ensure!(
        f.has(ATTACH),
        "LIST_VOLUMES_PUBLISHED_NODES is declared without PUBLISH_UNPUBLISH_VOLUME, which it requires"
    );
    Ok(())
}

async fn snapshots_of_groups(f: &Fixture) -> Result<()> {
    ensure!(
        f.has(GET_SNAPSHOT),
        "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT is declared without GET_SNAPSHOT, which fetches the snapshots of a \
         group"
    );
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
    let info = f.node_get_info(v1::NodeGetInfoRequest {}).await;
    // Only a plugin that attaches volumes must implement the call.
    let is_optional = matches!(&info, Err(status) if status.code() == Code::Unimplemented) && !f.has(ATTACH);
    let info = info.works("NodeGetInfo");
    let id = if is_optional { info.breaks(spec::INFO_USED) } else { info }?.node_id;
    ensure!(!id.is_empty(), "NodeGetInfo returns an empty node_id");
    ensure!(id.len() <= 256, "NodeGetInfo returns a node_id of {} bytes, at most 256 are allowed", id.len());
    short_node_id(id.len()).breaks(spec::NODE_ID_SHORT)
}

fn short_node_id(length: usize) -> Result<()> {
    ensure!(
        length <= 128,
        "NodeGetInfo returns a node_id of {length} bytes, and at most 128 are recommended"
    );
    Ok(())
}

async fn node_limit(f: &Fixture) -> Result<()> {
    for info in nodes(f) {
        let limit = info.max_volumes_per_node;
        ensure!(limit >= 0, "NodeGetInfo returns max_volumes_per_node {limit}; it must not be negative");
    }
    Ok(())
}

/// "This field is OPTIONAL": the node has access to the volumes without a topology.
async fn node_topology(f: &Fixture) -> Result<()> {
    for info in nodes(f) {
        ensure!(
            topology_keys(info) > 0,
            "the plugin declares VOLUME_ACCESSIBILITY_CONSTRAINTS, but NodeGetInfo returns no accessible_topology on the \
             node {:?}",
            info.node_id
        );
    }
    Ok(())
}

/// What NodeGetInfo returns on each node.
fn nodes(f: &Fixture) -> impl Iterator<Item = &v1::NodeGetInfoResponse> {
    [Some(f.node_info()), f.capabilities().second.as_ref()].into_iter().flatten()
}

fn topology_keys(info: &v1::NodeGetInfoResponse) -> usize {
    info.accessible_topology.as_ref().map_or(0, |topology| topology.segments.len())
}

async fn no_topology(f: &Fixture) -> Result<()> {
    ensure!(
        f.has(super::TOPOLOGY) || nodes(f).all(|info| topology_keys(info) == 0),
        "NodeGetInfo returns an accessible_topology, but the plugin does not declare \
         VOLUME_ACCESSIBILITY_CONSTRAINTS: the topology is ignored"
    );
    Ok(())
}

async fn topology_stays(f: &Fixture) -> Result<()> {
    let again = f.node_get_info(v1::NodeGetInfoRequest {}).await.works("NodeGetInfo")?.accessible_topology;
    let first = &f.node_info().accessible_topology;
    ensure!(again == *first, "NodeGetInfo returns different topologies: {first:?}, then {again:?}");
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

async fn node_ids(f: &Fixture) -> Result<()> {
    let second = f.capabilities().second.as_ref().map(|second| &second.node_id);
    ensure!(
        second != Some(&f.node_info().node_id),
        "NodeGetInfo returns the node_id {:?} on both nodes, expected different ones",
        f.node_info().node_id
    );
    Ok(())
}

async fn segments(f: &Fixture) -> Result<()> {
    topologies(f).await.iter().try_for_each(|topology| well_formed(&topology.segments))
}

/// The topologies of both nodes and of a new volume.
async fn topologies(f: &Fixture) -> Vec<v1::Topology> {
    let of_nodes = nodes(f).filter_map(|info| info.accessible_topology.clone());
    // Other cases report an error.
    let volume = if f.has(super::CREATE) { f.create_volume(f.create_request()).await.ok() } else { None };
    let of_volume = volume.and_then(|made| made.volume).unwrap_or_default().accessible_topology;
    of_nodes.chain(of_volume).collect()
}

/// Whether a text has 1 to 63 of these characters, and begins and ends with a letter or digit.
fn fine(text: &str, alphanumeric: impl Fn(&u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    (1..=63).contains(&bytes.len())
        && ends.into_iter().flatten().all(&alphanumeric)
        && bytes.iter().all(|b| alphanumeric(b) || inner.contains(b))
}

/// Checks topology segments for the form of labels of nodes.
fn well_formed(segments: &Map) -> Result<()> {
    let lower = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut folded = BTreeSet::new();
    for (key, value) in segments {
        let (prefix, name) = key.rsplit_once('/').map_or((None, key.as_str()), |(p, name)| (Some(p), name));
        ensure!(
            fine(name, u8::is_ascii_alphanumeric, b"-_."),
            "the name of the topology key {key:?} must consist of 1 to 63 letters, digits, '-', '_' and '.', and begin \
             and end with a letter or digit"
        );
        ensure!(
            prefix.is_none_or(|prefix| fine(prefix, lower, b"-.") && is_domain(prefix)),
            "the prefix of the topology key {key:?} must be a domain name of 1 to 63 lower-case letters, digits, '-' and \
             '.', of which each label begins and ends with a letter or digit"
        );
        ensure!(
            fine(value, u8::is_ascii_alphanumeric, b"-_."),
            "the topology value {value:?} must consist of 1 to 63 letters, digits, '-', '_' and '.', and begin and end \
             with a letter or digit"
        );
        ensure!(folded.insert(key.to_lowercase()), "two topology keys differ in case only: {key:?}");
    }
    Ok(())
}

async fn one_prefix(f: &Fixture) -> Result<()> {
    prefixes(topologies(f).await.iter().flat_map(|topology| topology.segments.keys()))
}

/// Checks that the keys with a prefix have the same one.
fn prefixes<'a>(keys: impl Iterator<Item = &'a String>) -> Result<()> {
    let prefixes: BTreeSet<&str> =
        keys.filter_map(|key| key.rsplit_once('/')).map(|(prefix, _)| prefix).collect();
    ensure!(prefixes.len() <= 1, "the topology keys have several prefixes: {prefixes:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments_of(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn topology_segments_have_the_form_of_labels() {
        for good in [
            &[("rack", "1")][..],
            &[("topology.example.com/zone", "Z_1.a-b"), ("topology.example.com/rack", "r")],
        ] {
            well_formed(&segments_of(good)).unwrap();
            prefixes(segments_of(good).keys()).unwrap();
        }
        let long = "x".repeat(64);
        for bad in [
            &[("", "1")][..],
            &[("-rack", "1")],
            &[("example.com/", "1")],
            &[("example..com/rack", "1")],
            &[("example-.com/rack", "1")],
            &[("/rack", "1")],
            &[("Example.com/rack", "1")],
            &[("example_com/rack", "1")],
            &[(long.as_str(), "1")],
            &[("rack", "")],
            &[("rack", "1-")],
            &[("rack", "a b")],
            &[("rack", long.as_str())],
            &[("Zone", "a"), ("zone", "b")],
        ] {
            assert!(well_formed(&segments_of(bad)).is_err(), "{bad:?}");
        }
        let two = segments_of(&[("a.example.com/zone", "1"), ("b.example.com/zone", "1")]);
        prefixes(two.keys()).unwrap_err();
    }

    #[test]
    fn offline_expansion_is_of_the_controller() {
        for (offline, controller, fine) in
            [(true, true, true), (true, false, false), (false, true, true), (false, false, true)]
        {
            assert_eq!(offline_implemented(offline, controller).is_ok(), fine, "{offline} {controller}");
        }
    }
}
