//! Raw block volumes: their loop devices.
//!
//! A machine has at most two per volume: one writable and one read-only, each shared by all nodes and pods on
//! it, so that writes of one are visible to the others. The record lists the nodes that need each. A device is
//! attached after its need is recorded and detached before that is removed, so after any crash a device that is
//! no longer needed still has a need on record, the end of which detaches it.
//!
//! Processes on several machines that share a state directory do not share devices; the last user's machine
//! detaches only its own. Raw volumes on several nodes are for nodes that share one machine, like the harness's
//! virtual nodes.

use std::path::{Path, PathBuf};

use crate::{
    driver::Driver,
    error::{Doing, Error, Result},
    host::{Entry, LoopUse},
    parameters::Kind,
    volume::Volume,
};

impl Driver {
    /// The volume's device for raw use; `None` if it is not attached.
    pub(super) fn raw_device(&self, volume: &Volume, read_only: bool) -> Result<Option<PathBuf>> {
        let image = self.store.content(&volume.id, Kind::Image);
        let present = self.host.raw_loops(&image).doing("list the loop devices of", &image)?;
        Ok(present.into_iter().find(|raw| raw.read_only == read_only).map(|raw| raw.path))
    }

    /// The volume's device for raw use, attached if necessary. The need is on record.
    pub(super) fn ensure_raw_device(&self, volume: &Volume, read_only: bool) -> Result<PathBuf> {
        if let Some(present) = self.raw_device(volume, read_only)? {
            return Ok(present);
        }
        let image = self.store.content(&volume.id, Kind::Image);
        let expected = LoopUse::Raw { read_only };
        let device = self.host.attach_loop(&image, expected).doing("attach a loop device to", image)?;
        Ok(device.path)
    }

    /// Detaches the devices that are unused according to the record `after`.
    pub(crate) fn detach_unneeded(&self, after: &Volume) -> Result<()> {
        let image = self.store.content(&after.id, Kind::Image);
        for raw in self.host.raw_loops(&image).doing("list the loop devices of", &image)? {
            if !after.needs_raw(raw.read_only) {
                self.host.detach_loop(&raw.path).doing("detach", raw.path)?;
            }
        }
        Ok(())
    }

    /// Bind mounts the device at `target`, which is created as a file if it does not exist.
    pub(super) fn show_device(&self, volume: &Volume, target: &Path, read_only: bool) -> Result<()> {
        match self.host.entry(target).doing("look at", target)? {
            None => self.host.make_file(target, 0o640).doing("make", target)?,
            Some(Entry::File { .. } | Entry::BlockDevice { .. }) => {}
            Some(Entry::Directory | Entry::Symlink | Entry::Other) => {
                let reason = format!("{} is not a file, which a raw block volume requires", target.display());
                return Err(Error::invalid("target_path", reason));
            }
        }
        let device = self.ensure_raw_device(volume, read_only)?;
        if self.mounted_volume(volume, target)?.is_none() {
            self.host.bind(&device, target).doing("bind mount the device at", target)?;
        }
        Ok(())
    }
}
