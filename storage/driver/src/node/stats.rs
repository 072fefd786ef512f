//! NodeGetVolumeStats.

use std::path::Path;

use claimcheck_csi::v1::{
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeUsage, volume_usage::Unit,
};

use crate::{
    access::VolumeMode,
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    node::ephemeral,
};

impl Driver {
    /// Capacity, usage and condition of a volume.
    pub fn stats(&self, request: NodeGetVolumeStatsRequest) -> Result<NodeGetVolumeStatsResponse> {
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        fields::some("volume_path", &request.volume_path)?;
        // Which volume comes before where: of one that is not there, NotFound is due, wherever it is looked for.
        let volume = self.volume(&ephemeral::id_on_node(&request.volume_id)?)?;
        let path = fields::volume_path(&volume.id, &request.volume_path)?;
        let usage = volume.usage(self.node_id());
        // Only where the volume should be is it looked for: another's path is simply not its own.
        let mode = usage.and_then(|usage| usage.volume_mode_at(&path));
        let mounted = mode.map(|_| self.mounted_volume(&volume, &path)).transpose()?.flatten();
        let (Some(mode), Some(_)) = (mode, mounted) else {
            return Err(Error::NotMountedThere {
                volume: volume.id.to_string(),
                path: path.display().to_string(),
            });
        };
        let usage = match mode {
            VolumeMode::Filesystem => self.filesystem_usage(&path)?,
            // What of a device is in use, only its user knows.
            VolumeMode::Block => vec![of(Unit::Bytes, volume.capacity_bytes, 0, 0)],
        };
        Ok(NodeGetVolumeStatsResponse { usage, volume_condition: self.reported_condition(&volume)? })
    }

    /// Bytes and inodes of the volume's file system: its own for an image, the host's for a directory (with a
    /// size that is not enforced; summing up its files would cost more than the result is worth).
    fn filesystem_usage(&self, path: &Path) -> Result<Vec<VolumeUsage>> {
        let usage = self.host.usage(path).doing("determine the free space of", path)?;
        Ok(vec![
            of(Unit::Bytes, usage.total_bytes, usage.used_bytes, usage.available_bytes),
            of(Unit::Inodes, usage.total_inodes, usage.used_inodes, usage.available_inodes),
        ])
    }
}

fn of(unit: Unit, total: u64, used: u64, available: u64) -> VolumeUsage {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    VolumeUsage { unit: unit.into(), total: signed(total), used: signed(used), available: signed(available) }
}
