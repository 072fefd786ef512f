//! Raw block volumes: the loop devices through which they are used.
//!
//! A machine has at most two for a volume: one to write and one only to read, each shared by all nodes and
//! pods on it, so that what one writes the others read. The record says who needs which. A device is attached
//! after its need is written down and detached before that is taken out, so whatever crashes, a device that
//! nobody needs has a need on record, whose end will detach it.
//!
//! Processes on several machines that share a state directory do not share devices; the last user's machine
//! detaches only its own. Raw volumes on several nodes are for nodes that are one machine, as ours are.

use std::path::{Path, PathBuf};

use crate::{
    driver::Driver,
    error::{Doing, Error, Result},
    host::{Entry, LoopUse},
    parameters::Kind,
    volume::Volume,
};

impl Driver {
    /// The device for raw use of the volume; `None` if it is not attached.
    pub(super) fn raw_device(&self, volume: &Volume, read_only: bool) -> Result<Option<PathBuf>> {
        let image = self.store.content(&volume.id, Kind::Image);
        let present = self.host.raw_loops(&image).doing("look for loop devices of", &image)?;
        Ok(present.into_iter().find(|raw| raw.read_only == read_only).map(|raw| raw.path))
    }

    /// The device for raw use of the volume, attached if need be. The need is on record.
    pub(super) fn ensure_raw_device(&self, volume: &Volume, read_only: bool) -> Result<PathBuf> {
        if let Some(present) = self.raw_device(volume, read_only)? {
            return Ok(present);
        }
        let image = self.store.content(&volume.id, Kind::Image);
        let wanted = LoopUse::Raw { read_only };
        let device = self.host.attach_loop(&image, wanted).doing("attach a loop device to", image)?;
        Ok(device.path)
    }

    /// Detaches the devices that nobody needs any more once the record is as `after`.
    pub(crate) fn detach_unneeded(&self, after: &Volume) -> Result<()> {
        let image = self.store.content(&after.id, Kind::Image);
        for raw in self.host.raw_loops(&image).doing("look for loop devices of", &image)? {
            if !after.needs_raw(raw.read_only) {
                self.host.detach_loop(&raw.path).doing("detach", raw.path)?;
            }
        }
        Ok(())
    }

    /// Makes the device appear at `target`, which becomes a file if nothing is there.
    pub(super) fn show_device(&self, volume: &Volume, target: &Path, read_only: bool) -> Result<()> {
        match self.host.entry(target).doing("look at", target)? {
            None => self.host.make_file(target, 0o640).doing("make", target)?,
            Some(Entry::File { .. } | Entry::BlockDevice { .. }) => {}
            Some(Entry::Directory | Entry::Symlink | Entry::Other) => {
                let reason = format!("{} is not a file, as a raw block volume needs it", target.display());
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
