//! Variants of the calls of a node.

use claimcheck_csi::v1::{
    self, NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, node_server::Node,
    volume_usage::Unit,
};
use tonic::Request;

use super::{
    Variant, Varied,
    service::{Answer, serve},
};

serve! { Node {
    varied {
        node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
        node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
        node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
    }
    sound {
        node_get_capabilities(NodeGetCapabilitiesRequest) -> v1::NodeGetCapabilitiesResponse;
        node_stage_volume(NodeStageVolumeRequest) -> v1::NodeStageVolumeResponse;
        node_publish_volume(NodePublishVolumeRequest) -> v1::NodePublishVolumeResponse;
    }
} }

async fn node_get_info(d: &Varied, request: NodeGetInfoRequest) -> Answer<NodeGetInfoResponse> {
    let mut answer = d.sound.node_get_info(Request::new(request)).await?;
    if d.has(Variant::NodeTopologyUnset) {
        answer.get_mut().accessible_topology = None;
    }
    Ok(answer)
}

async fn node_unstage_volume(
    d: &Varied,
    request: NodeUnstageVolumeRequest,
) -> Answer<NodeUnstageVolumeResponse> {
    let deleted = d.deleted(&request.volume_id);
    let answer = d.sound.node_unstage_volume(Request::new(request)).await?;
    deleted?;
    Ok(answer)
}

async fn node_unpublish_volume(
    d: &Varied,
    request: NodeUnpublishVolumeRequest,
) -> Answer<NodeUnpublishVolumeResponse> {
    // The record of an inline ephemeral volume is deleted with its publication.
    let deleted = match request.volume_id.starts_with("csi-") {
        true => Ok(()),
        false => d.deleted(&request.volume_id),
    };
    let answer = d.sound.node_unpublish_volume(Request::new(request)).await?;
    deleted?;
    Ok(answer)
}

async fn node_get_volume_stats(
    d: &Varied,
    request: NodeGetVolumeStatsRequest,
) -> Answer<NodeGetVolumeStatsResponse> {
    let mut answer = d.sound.node_get_volume_stats(Request::new(request)).await?;
    let usage = &mut answer.get_mut().usage;
    if d.has(Variant::StatsUnset) {
        usage.clear();
    }
    for (variant, unit) in [(Variant::StatsOfBytes, Unit::Bytes), (Variant::StatsOfInodes, Unit::Inodes)] {
        usage.retain(|usage| !d.has(variant) || usage.unit() == unit);
    }
    if d.has(Variant::StatsOfTotals) {
        usage.iter_mut().for_each(|usage| (usage.used, usage.available) = (0, 0));
    }
    Ok(answer)
}

async fn node_expand_volume(
    d: &Varied,
    request: NodeExpandVolumeRequest,
) -> Answer<NodeExpandVolumeResponse> {
    let mut answer = d.sound.node_expand_volume(Request::new(request)).await?;
    if d.has(Variant::NodeExpandedSizeUnset) {
        answer.get_mut().capacity_bytes = 0;
    }
    Ok(answer)
}
