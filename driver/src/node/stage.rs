//! NodeStageVolume and NodeUnstageVolume: once per volume and node.

use std::{io, path::Path};

use claimcheck_csi::v1::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};
use tracing::warn;

use crate::{
    access::Access,
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    filesystem::FsType,
    parameters::Kind,
    volume::{Staging, Volume},
};

impl Driver {
    /// Mounts a volume at the staging path; a blank image gets its file system first.
    pub fn stage(&self, request: NodeStageVolumeRequest) -> Result<NodeStageVolumeResponse> {
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let path = fields::path("staging_target_path", &request.staging_target_path)?;
        let access = Access::required(request.volume_capability)?;
        let id = fields::volume_id(&request.volume_id)?;
        let (_lock, mut volume) = self.lock(&id)?;
        access.check(volume.kind)?;
        self.stage_at(&mut volume, Staging { path, access })?;
        Ok(NodeStageVolumeResponse {})
    }

    /// Stages a volume that the caller has locked.
    pub(super) fn stage_at(&self, volume: &mut Volume, staging: Staging) -> Result<()> {
        volume.check_reach(self.node_id(), &self.config.topology)?;
        match volume.usage(self.node_id()).and_then(|usage| usage.staged.as_ref()) {
            Some(present) if *present != staging => Err(Error::AlreadyExists(format!(
                "volume {} is staged on this node already, at {} as {:?}; unstage it first",
                volume.id,
                present.path.display(),
                present.access.mode
            ))),
            Some(_) => self.mount_staged(volume, &staging),
            None => {
                // Not over somebody else's mount.
                self.mounted_volume(volume, &staging.path)?;
                // Who writes is settled by attachments; here only that one-node volumes stay on one node.
                staging.access.join(true, volume.staged_elsewhere(self.node_id()))?;
                volume.usage_mut(self.node_id()).staged = Some(staging.clone());
                self.store.save(volume)?;
                if let Err(error) = self.mount_staged(volume, &staging) {
                    // After a final error nobody calls NodeUnstageVolume: take back what this call began.
                    if let Err(left) = self.withdraw_staging(volume, &staging.path) {
                        warn!(volume = %volume.id, error = %left, "a failed staging stays on record");
                    }
                    return Err(error);
                }
                Ok(())
            }
        }
    }

    /// Takes the volume away from the staging path. The directory itself is the caller's.
    pub fn unstage(&self, request: NodeUnstageVolumeRequest) -> Result<NodeUnstageVolumeResponse> {
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let path = fields::path("staging_target_path", &request.staging_target_path)?;
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
        if let Some(usage) = volume.nodes.get_mut(self.node_id())
            && usage.staged.take_if(|staging| staging.path == path).is_some()
        {
            volume.prune();
            self.store.save(volume)?;
        }
        Ok(())
    }

    fn mount_staged(&self, volume: &Volume, staging: &Staging) -> Result<()> {
        let Staging { path, access } = staging;
        if self.host.file_id(path).doing("look at", path)?.is_none() {
            // The caller should have made it (CSI specification, NodeStageVolume); not all do.
            self.host.make_dir(path, 0o750).doing("make", path)?;
        }
        match volume.kind {
            Kind::Directory => {
                let content = self.store.content(&volume.id, volume.kind);
                self.bind(volume, &content, path, &access.options()?)
            }
            Kind::Image => self.mount_image(volume, path, access),
        }
    }

    fn mount_image(&self, volume: &Volume, path: &Path, access: &Access) -> Result<()> {
        if self.mounted_volume(volume, path)?.is_some() {
            return Ok(());
        }
        let fs = self.ensure_filesystem(volume, access)?;
        let mut options = access.options()?;
        if fs == FsType::Xfs {
            // A copy of an image has its UUID too, and the kernel mounts an XFS UUID only once otherwise.
            options.filesystem.push("nouuid".to_owned());
        }
        let image = self.store.content(&volume.id, Kind::Image);
        let device = self.host.attach_loop(&image).doing("attach a loop device to", &image)?;
        match self.host.mount(&device.path, path, fs, &options) {
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput
                    && !access.options()?.filesystem.is_empty() =>
            {
                let reason = format!("the kernel's {fs} refuses {:?}", options.data());
                Err(Error::invalid("volume_capability.mount.mount_flags", reason))
            }
            mounted => mounted.doing("mount the image at", path),
        }
    }

    /// Finds out what is on the image, or makes a file system on a blank one.
    ///
    /// It is made in a draft that then takes the image's place: so the image is blank or complete, and a
    /// tool that outlives a killed driver scribbles on a file that nobody will use.
    fn ensure_filesystem(&self, volume: &Volume, access: &Access) -> Result<FsType> {
        let image = self.store.content(&volume.id, Kind::Image);
        let wanted = access.fs_type.or(volume.fs_type);
        if let Some(found) = self.host.probe_filesystem(&image).doing("read", &image)? {
            return match wanted {
                Some(wanted) if wanted != found => Err(Error::Precondition(format!(
                    "volume {} holds {found}, and {wanted} was asked for; set fsType to {found}",
                    volume.id
                ))),
                _ => Ok(found),
            };
        }
        let fs = wanted.unwrap_or(FsType::Ext4);
        let draft = self.store.image_draft(&volume.id);
        // Removed, not truncated: that tool may still have it open.
        self.host.remove_file(&draft).doing("remove", &draft)?;
        self.host.make_sparse(&draft, volume.capacity_bytes).doing("make", &draft)?;
        match self.host.make_filesystem(&draft, fs) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::NoTool(fs)),
            made => made.doing("make a file system in", &draft)?,
        }
        self.host.rename(&draft, &image).doing("replace", image)?;
        Ok(fs)
    }
}
