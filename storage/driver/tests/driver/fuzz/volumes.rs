//! Calls about volumes: controller and node.

use claimcheck_csi::v1::{
    ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerModifyVolumeRequest,
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, GetCapacityRequest, ListVolumesRequest, NodeExpandVolumeRequest,
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, ValidateVolumeCapabilitiesRequest,
};
use claimcheck_driver::Driver;

use super::{Outcome, Source};
use crate::support;

/// How many there are.
pub(super) const CALLS: usize = 16;

pub(super) fn call(driver: &Driver, source: &mut Source) -> Outcome {
    let place = source.place;
    let at = |paths: &[&String]| paths.iter().map(|path| (*path).clone()).collect::<Vec<_>>();
    match source.step.call {
        0 | 1 => {
            let name = if source.flag() { support::NAME.to_owned() } else { source.text() };
            let request = CreateVolumeRequest {
                name,
                capacity_range: source.range(),
                volume_capabilities: vec![source.capability()],
                parameters: source.parameters(),
                mutable_parameters: source.map(&["iops"]),
                ..Default::default()
            };
            Some((vec![], driver.create(source.send(request)?).map(drop)))
        }
        2 => {
            let request = DeleteVolumeRequest { volume_id: source.id(), ..Default::default() };
            Some((vec![], driver.delete(source.send(request)?).map(drop)))
        }
        3 => {
            let request = ControllerPublishVolumeRequest {
                volume_id: source.id(),
                node_id: if source.flag() { "node-1".into() } else { source.text() },
                volume_capability: Some(source.capability()),
                readonly: source.flag(),
                ..Default::default()
            };
            Some((vec![], driver.attach(source.send(request)?).map(drop)))
        }
        4 => {
            let request = ControllerUnpublishVolumeRequest {
                volume_id: source.id(),
                node_id: source.text(),
                ..Default::default()
            };
            Some((vec![], driver.detach(source.send(request)?).map(drop)))
        }
        5 => {
            let request = ValidateVolumeCapabilitiesRequest {
                volume_id: source.id(),
                volume_capabilities: vec![source.capability()],
                parameters: source.parameters(),
                volume_context: source.map(&["kind"]),
                ..Default::default()
            };
            Some((vec![], driver.validate(source.send(request)?).map(drop)))
        }
        6 => {
            let max_entries = i32::try_from(source.number()).unwrap_or(-1);
            let request = ListVolumesRequest { max_entries, starting_token: source.text() };
            Some((vec![], driver.list(source.send(request)?).map(drop)))
        }
        7 => {
            let request = GetCapacityRequest {
                parameters: source.parameters(),
                volume_capabilities: vec![source.capability()],
                ..Default::default()
            };
            Some((vec![], driver.capacity(source.send(request)?).map(drop)))
        }
        8 => {
            let request = ControllerGetVolumeRequest { volume_id: source.id() };
            Some((vec![], driver.get(source.send(request)?).map(drop)))
        }
        9 => {
            let request = ControllerExpandVolumeRequest {
                volume_id: source.id(),
                capacity_range: source.range(),
                volume_capability: Some(source.capability()).filter(|_| source.flag()),
                ..Default::default()
            };
            Some((vec![], driver.expand(source.send(request)?).map(drop)))
        }
        10 => {
            let request = ControllerModifyVolumeRequest {
                volume_id: source.id(),
                mutable_parameters: source.map(&["iops", "throughput"]),
                ..Default::default()
            };
            Some((vec![], driver.modify(source.send(request)?).map(drop)))
        }
        11 => {
            let request = NodeStageVolumeRequest {
                volume_id: source.id(),
                staging_target_path: source.path(place.staging()),
                volume_capability: Some(source.capability()),
                ..Default::default()
            };
            let request = source.send(request)?;
            Some((at(&[&request.staging_target_path]), driver.stage(request).map(drop)))
        }
        12 => {
            let request = NodeUnstageVolumeRequest {
                volume_id: source.id(),
                staging_target_path: source.path(place.staging()),
            };
            let request = source.send(request)?;
            Some((at(&[&request.staging_target_path]), driver.unstage(request).map(drop)))
        }
        13 => {
            let request = NodePublishVolumeRequest {
                volume_id: source.id(),
                staging_target_path: source.path(place.staging()),
                target_path: source.path(place.target()),
                volume_capability: Some(source.capability()),
                readonly: source.flag(),
                volume_context: source.map(&["csi.storage.k8s.io/ephemeral", "kind", "size"]),
                ..Default::default()
            };
            let request = source.send(request)?;
            Some((at(&[&request.target_path]), driver.publish(request).map(drop)))
        }
        14 => {
            let request = NodeUnpublishVolumeRequest {
                volume_id: source.id(),
                target_path: source.path(place.target()),
            };
            let request = source.send(request)?;
            Some((at(&[&request.target_path]), driver.unpublish(request).map(drop)))
        }
        _ => {
            let path = source.path(place.staging());
            let stats = NodeGetVolumeStatsRequest {
                volume_id: source.id(),
                volume_path: path.clone(),
                ..Default::default()
            };
            driver.stats(source.send(stats)?).ok();
            let request = NodeExpandVolumeRequest {
                volume_id: source.id(),
                volume_path: path,
                capacity_range: source.range(),
                ..Default::default()
            };
            let staged = place.staging().display().to_string();
            Some((vec![staged], driver.expand_on_node(source.send(request)?).map(drop)))
        }
    }
}
