//! NodeGetVolumeStats.

use claimcheck_csi::v1::{
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeUsage, volume_usage::Unit,
};

use crate::{
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
};

impl Driver {
    /// Bytes and inodes of the file system that a volume lies on: its own for an image, the host's for a
    /// directory (whose size nothing enforces; adding up its files would cost more than it tells).
    pub fn stats(&self, request: NodeGetVolumeStatsRequest) -> Result<NodeGetVolumeStatsResponse> {
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let path = fields::path("volume_path", &request.volume_path)?;
        let volume = self.volume(&fields::volume_id(&request.volume_id)?)?;
        let elsewhere =
            || Error::NotMountedThere { volume: volume.id.to_string(), path: path.display().to_string() };
        let known = volume.usage(self.node_id()).is_some_and(|usage| usage.has_path(&path));
        if !known || self.mounted_volume(&volume, &path)?.is_none() {
            return Err(elsewhere());
        }
        let usage = self.host.usage(&path).doing("look at the free space of", &path)?;
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let of = |unit: Unit, total, used, available| VolumeUsage {
            unit: unit.into(),
            total: signed(total),
            used: signed(used),
            available: signed(available),
        };
        Ok(NodeGetVolumeStatsResponse {
            usage: vec![
                of(Unit::Bytes, usage.total_bytes, usage.used_bytes, usage.available_bytes),
                of(Unit::Inodes, usage.total_inodes, usage.used_inodes, usage.available_inodes),
            ],
            volume_condition: None,
        })
    }
}
