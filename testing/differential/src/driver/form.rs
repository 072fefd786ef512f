//! Parts of requests, as scenarios and records have them.

use claimcheck_csi::v1::{
    Topology, VolumeCapability,
    volume_capability::{AccessType, access_mode::Mode},
};
use serde_json::{Value, json};

/// A capability of volumes, without what is not set.
pub fn capability(capability: &VolumeCapability) -> Value {
    let mode = capability.access_mode.as_ref().map(|mode| {
        Mode::try_from(mode.mode).map_or_else(|_| mode.mode.to_string(), |mode| mode.as_str_name().to_owned())
    });
    match &capability.access_type {
        Some(AccessType::Mount(mount)) => {
            json!({ "mode": mode, "fs": mount.fs_type, "flags": mount.mount_flags, "group": mount.volume_mount_group })
        }
        Some(AccessType::Block(_)) => json!({ "mode": mode, "block": true }),
        None => json!({ "mode": mode }),
    }
}

/// The segments of topologies.
pub fn topologies(topologies: &[Topology]) -> Value {
    topologies.iter().map(|topology| json!(topology.segments)).collect()
}

/// In a fixed order: the provisioner starts at a place that depends on a hash of the claim's name, or at random.
pub fn sorted(mut list: Value) -> Value {
    if let Some(list) = list.as_array_mut() {
        list.sort_by_key(Value::to_string);
    }
    list
}
