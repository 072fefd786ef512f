//! NodeExpandVolume, and the expansion of a file system after its image has grown.
//!
//! Online where the kernel permits it. Otherwise (ext4 requires `CAP_SYS_RESOURCE`) before the next mount:
//! staging checks whether a file system fills its image.

use std::{io, path::Path};

use claimcheck_csi::v1::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};

use crate::{
    access::{Access, VolumeMode},
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    filesystem::FsType,
    parameters::Kind,
    secrets::Call,
    size::SizeRange,
    store::Lock,
    volume::{Staging, Volume},
};

impl Driver {
    /// Expands the volume on this node to the size that ControllerExpandVolume set.
    ///
    /// CSI specification, NodeExpandVolume: the path must be one of the volume's on this node.
    pub fn expand_on_node(&self, request: NodeExpandVolumeRequest) -> Result<NodeExpandVolumeResponse> {
        self.config.secrets.check(Call::NodeExpandVolume, &request.secrets)?;
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        fields::some("volume_path", &request.volume_path)?;
        if !request.staging_target_path.is_empty() {
            fields::path("staging_target_path", &request.staging_target_path)?;
        }
        let size = SizeRange::parse(request.capacity_range)?;
        let access = request.volume_capability.as_ref().map(Access::parse).transpose()?;
        let (_lock, volume) = self.lock(&fields::volume_id(&request.volume_id)?)?;
        let path = fields::volume_path(&volume.id, &request.volume_path)?;
        let usage = volume.usage(self.node_id()).filter(|usage| usage.volume_mode_at(&path).is_some());
        let Some(staging) = usage.and_then(|usage| usage.staged.as_ref()) else {
            return Err(Error::NotMountedThere {
                volume: volume.id.to_string(),
                path: path.display().to_string(),
            });
        };
        if let Some(access) = access
            && access.volume_mode != staging.access.volume_mode
        {
            let (asked, is) = (access.volume_mode, staging.access.volume_mode);
            return Err(Error::invalid("volume_capability", format!("the volume is {is:?}, not {asked:?}")));
        }
        if !size.contains(volume.capacity_bytes) {
            return Err(Error::OutOfRange(format!(
                "volume {} has {} bytes, not in the requested range; call ControllerExpandVolume to expand it",
                volume.id, volume.capacity_bytes
            )));
        }
        if volume.kind == Kind::Image {
            self.grow_staged(&volume, staging)?;
        }
        let capacity_bytes = volume.capacity_bytes.try_into().unwrap_or(i64::MAX);
        Ok(NodeExpandVolumeResponse { capacity_bytes })
    }

    fn grow_staged(&self, volume: &Volume, staging: &Staging) -> Result<()> {
        let image = self.store.content(&volume.id, Kind::Image);
        if staging.access.volume_mode == VolumeMode::Block {
            for raw in self.host.raw_loops(&image).doing("list the loop devices of", &image)? {
                self.host.resize_loop(&raw.path).doing("resize", raw.path)?;
            }
            return Ok(());
        }
        let path = &staging.path;
        let Some(backing) = self.mounted_volume(volume, path)?.and_then(|mounted| mounted.backing) else {
            return Err(Error::Precondition(format!(
                "volume {} is no longer mounted at {}; call NodeStageVolume",
                volume.id,
                path.display()
            )));
        };
        let found = self.host.probe_filesystem(&image).doing("read", &image)?;
        let Some(found) = found.filter(|found| !found.fills(volume.capacity_bytes)) else { return Ok(()) };
        if staging.access.mode.read_only() {
            return Ok(());
        }
        let device = backing.device();
        self.host.resize_loop(&device).doing("resize", &device)?;
        if !self.host.grows_mounted(found.fs).doing("check the privileges to expand", path)? {
            return Err(Error::OnlineGrowth { volume: volume.id.to_string(), fs: found.fs });
        }
        self.grow_mounted(&device, path, found.fs)
    }

    /// Expands a mounted file system to the size of its device.
    pub(super) fn grow_mounted(&self, device: &Path, path: &Path, fs: FsType) -> Result<()> {
        with_tool(fs, self.host.grow_mounted(device, path, fs))?.doing("expand the file system at", path)
    }

    /// Expands the file system in an unmounted image to the size of the image. XFS does not support this and is
    /// expanded once it is mounted.
    ///
    /// The tool holds the volume's lock too: if this process is killed, the image stays locked until the tool
    /// has exited.
    pub(super) fn grow_unmounted(&self, lock: &Lock, volume: &Volume, fs: FsType) -> Result<()> {
        let image = self.store.content(&volume.id, Kind::Image);
        let grown = self.host.grow_image(&image, fs, lock.hold());
        with_tool(fs, grown)?.doing("expand the file system in", image)
    }
}

/// Distinguishes a missing tool from a tool's error.
fn with_tool(fs: FsType, outcome: io::Result<()>) -> Result<io::Result<()>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::NoTool { tool: fs.grow_tool(), package: fs.package() })
        }
        other => Ok(other),
    }
}
