//! NodeStageVolume and NodeUnstageVolume: once per volume and node.

use std::{io, path::Path};

use claimcheck_csi::v1::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};
use tracing::warn;

use crate::{
    access::{Access, VolumeMode},
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    filesystem::{Found, FsType},
    host::LoopUse,
    parameters::Kind,
    secrets::Call,
    store::Lock,
    volume::{Staging, Volume},
};

impl Driver {
    /// Mounts a volume at the staging path; a blank image is formatted first.
    pub fn stage(&self, request: NodeStageVolumeRequest) -> Result<NodeStageVolumeResponse> {
        self.config.secrets.check(Call::NodeStageVolume, &request.secrets)?;
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let path = self.outside_path("staging_target_path", &request.staging_target_path)?;
        fields::large_map("volume_context", &request.volume_context)?;
        let access = Access::required(request.volume_capability)?;
        let id = fields::volume_id(&request.volume_id)?;
        let (lock, mut volume) = self.lock(&id)?;
        access.check(volume.kind, &self.config.capabilities)?;
        self.stage_at(&lock, &mut volume, Staging { path, access })?;
        Ok(NodeStageVolumeResponse {})
    }

    /// Stages a volume that the caller has locked.
    pub(super) fn stage_at(&self, lock: &Lock, volume: &mut Volume, staging: Staging) -> Result<()> {
        volume.check_reach(self.node_id(), &self.config.topology)?;
        match volume.usage(self.node_id()).and_then(|usage| usage.staged.as_ref()) {
            Some(present) if *present != staging => Err(Error::AlreadyExists(format!(
                "volume {} is staged on this node already, at {} as {:?}; unstage it first",
                volume.id,
                present.path.display(),
                present.access.mode
            ))),
            Some(_) => self.mount_staged(lock, volume, &staging),
            None => {
                // Never mount over an unrelated mount.
                self.mounted_volume(volume, &staging.path)?;
                // Who writes is settled by attachments; here only that one-node volumes stay on one node.
                staging.access.join(true, volume.staged_elsewhere(self.node_id()))?;
                volume.usage_mut(self.node_id()).staged = Some(staging.clone());
                self.store.save(volume)?;
                if let Err(error) = self.mount_staged(lock, volume, &staging) {
                    // NodeUnstageVolume is not called after a final error: undo the partial work of this call.
                    if let Err(left) = self.withdraw_staging(volume, &staging.path) {
                        warn!(volume = %volume.id, error = %left, "a failed staging stays on record");
                    }
                    return Err(error);
                }
                Ok(())
            }
        }
    }

    /// Unstages the volume from the staging path. The caller owns the directory itself.
    pub fn unstage(&self, request: NodeUnstageVolumeRequest) -> Result<NodeUnstageVolumeResponse> {
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let path = self.outside_path("staging_target_path", &request.staging_target_path)?;
        let id = fields::volume_id(&request.volume_id)?;
        let (_lock, mut volume) = self.lock(&id)?;
        let target = volume.usage(self.node_id()).and_then(|usage| usage.published.keys().next());
        if let Some(target) = target {
            return Err(Error::Precondition(format!(
                "volume {id} is still published at {}; call NodeUnpublishVolume first",
                target.display()
            )));
        }
        self.withdraw_staging(&mut volume, &path)?;
        Ok(NodeUnstageVolumeResponse {})
    }

    /// Undoes [`Driver::stage_at`].
    pub(super) fn withdraw_staging(&self, volume: &mut Volume, path: &Path) -> Result<()> {
        self.unmount(volume, path)?;
        let mut after = volume.clone();
        let Some(usage) = after.nodes.get_mut(self.node_id()) else { return Ok(()) };
        let Some(deleted) = usage.staged.take_if(|staging| staging.path == path) else { return Ok(()) };
        after.prune();
        if deleted.access.is_block() {
            self.detach_unneeded(&after)?;
        }
        self.store.save(&after)?;
        *volume = after;
        Ok(())
    }

    /// Whether a recorded staging still exists: it does not after a reboot.
    pub(crate) fn is_staged(&self, volume: &Volume, staging: &Staging) -> Result<bool> {
        Ok(match staging.access.volume_mode {
            VolumeMode::Filesystem => self.mounted_volume(volume, &staging.path)?.is_some(),
            VolumeMode::Block => self.raw_device(volume, staging.access.mode.read_only())?.is_some(),
        })
    }

    fn mount_staged(&self, lock: &Lock, volume: &Volume, staging: &Staging) -> Result<()> {
        let Staging { path, access } = staging;
        if access.is_block() {
            // There is nothing to put into the staging directory: pods get the device itself.
            return self.ensure_raw_device(volume, access.mode.read_only()).map(drop);
        }
        if self.host.file_id(path).doing("look at", path)?.is_none() {
            // The caller should have made it (CSI specification, NodeStageVolume); not all do.
            self.host.make_dir(path, 0o750).doing("make", path)?;
        }
        match volume.kind {
            Kind::Directory => {
                let content = self.store.content(&volume.id, volume.kind);
                self.bind(volume, &content, path, &access.options()?)
            }
            Kind::Image => self.mount_image(lock, volume, path, access),
        }
    }

    fn mount_image(&self, lock: &Lock, volume: &Volume, path: &Path, access: &Access) -> Result<()> {
        if self.mounted_volume(volume, path)?.is_some() {
            return Ok(());
        }
        let found = self.ensure_filesystem(volume, access)?;
        let fs = found.fs;
        // Several nodes may read at once, and none of them changes what the others see.
        let grow = !access.mode.read_only() && !found.fills(volume.capacity_bytes);
        let grow_mounted =
            grow && self.host.grows_mounted(fs).doing("check the privileges to expand", path)?;
        if grow && !grow_mounted {
            self.grow_unmounted(lock, volume, fs)?;
        }
        let mut options = access.options()?;
        if fs == FsType::Xfs {
            // A copy of an image has its UUID too, and the kernel mounts an XFS UUID only once otherwise.
            options.filesystem.push("nouuid".to_owned());
        }
        let image = self.store.content(&volume.id, Kind::Image);
        let attached = self.host.attach_loop(&image, LoopUse::Mount);
        let device = attached.doing("attach a loop device to", &image)?;
        match self.host.mount(&device.path, path, fs, &options) {
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput
                    && !access.options()?.filesystem.is_empty() =>
            {
                let reason = format!("the kernel's {fs} refuses {:?}", options.data());
                return Err(Error::invalid("volume_capability.mount.mount_flags", reason));
            }
            mounted => mounted.doing("mount the image at", path)?,
        }
        if grow_mounted { self.grow_mounted(&device.path, path, fs) } else { Ok(()) }
    }

    /// Detects the file system on the image, or formats a blank one.
    ///
    /// It is formatted in a draft that then replaces the image: so the image is either blank or complete, and a
    /// tool that outlives a killed driver writes to an unused file only.
    fn ensure_filesystem(&self, volume: &Volume, access: &Access) -> Result<Found> {
        let image = self.store.content(&volume.id, Kind::Image);
        let expected = access.fs_type.or(volume.fs_type);
        if let Some(found) = self.host.probe_filesystem(&image).doing("read", &image)? {
            return match expected {
                Some(expected) if expected != found.fs => Err(Error::Precondition(format!(
                    "volume {} holds {held}, and {expected} was requested; set fsType to {held}",
                    volume.id,
                    held = found.fs
                ))),
                _ => Ok(found),
            };
        }
        let fs = expected.unwrap_or(FsType::Ext4);
        let draft = self.store.image_draft(&volume.id);
        // Removed, not truncated: that tool may still have it open.
        self.host.remove_file(&draft).doing("remove", &draft)?;
        self.host.make_sparse(&draft, volume.capacity_bytes).doing("make", &draft)?;
        match self.host.make_filesystem(&draft, fs) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoTool { tool: fs.tool(), package: fs.package() });
            }
            made => made.doing("make a file system in", &draft)?,
        }
        self.host.rename(&draft, &image).doing("replace", &image)?;
        Ok(Found::filling(fs, volume.capacity_bytes))
    }
}
