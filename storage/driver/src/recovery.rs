//! What a starting driver puts right: volumes and snapshots that were half made or half deleted, drafts of
//! files, file systems that it froze, and uses by this node that no longer exist because the node was restarted.
//!
//! Loop devices below mounts need no care, the kernel clears them with their last user; those of raw volumes go
//! with the last use that needs them. Volumes that another process is working on are left alone: their lock is
//! taken.

use tracing::{info, warn};

use crate::{
    driver::Driver,
    error::{Doing, Result},
    host::Entry,
    id::{GroupId, SnapshotId, VolumeId},
    parameters::Kind,
    store::Id,
    volume::Volume,
};

impl Driver {
    /// Goes through all volumes once. A volume that cannot be put right is left for the next start; it must
    /// not keep the driver from serving the others.
    pub(crate) fn recover(&self) -> Result<()> {
        let volumes = self.store.ids::<VolumeId>()?;
        // Before any lock is looked at: who holds it may be waiting for what this node has frozen.
        for id in &volumes {
            if let Err(error) = self.remove_marks(id, |node| node == self.node_id()) {
                warn!(volume = %id, %error, "cannot thaw this volume");
            }
        }
        for id in volumes {
            if let Err(error) = self.recover_volume(&id) {
                warn!(volume = %id, %error, "cannot recover this volume");
            }
        }
        // Groups first: what is left of a snapshot depends on them.
        for id in self.store.ids::<GroupId>()? {
            if let Err(error) = self.recover_record(&id, |_| Ok(true)) {
                warn!(group = %id, %error, "cannot recover this group snapshot");
            }
        }
        for id in self.store.ids::<SnapshotId>()? {
            if let Err(error) = self.recover_record(&id, |snapshot| self.counts(snapshot)) {
                warn!(snapshot = %id, %error, "cannot recover this snapshot");
            }
        }
        Ok(())
    }

    /// Keeps what has a record that `counts`, and removes anything else.
    fn recover_record<I: Id>(&self, id: &I, counts: impl Fn(&I::Record) -> Result<bool>) -> Result<()> {
        let Some(_lock) = self.store.try_lock(id)? else { return Ok(()) };
        match self.store.load(id)? {
            Some(record) if counts(&record)? => self.store.remove_drafts(id),
            _ => {
                info!(%id, "removing what is left of a half made or half deleted snapshot");
                self.store.remove(id)
            }
        }
    }

    fn recover_volume(&self, id: &VolumeId) -> Result<()> {
        let Some(_lock) = self.store.try_lock(id)? else { return Ok(()) };
        match self.store.load(id)? {
            None => {
                info!(volume = %id, "removing what is left of a half made or half deleted volume");
                self.store.remove(id)
            }
            Some(mut volume) => {
                self.remove_marks(id, |_| true)?;
                self.store.remove_drafts(id)?;
                self.note_growth(&mut volume)?;
                self.forget_vanished(&mut volume)?;
                self.remove_own_staging(&volume)?;
                // Its publication did not come to its end; a repeat makes it again.
                self.remove_if_ephemeral(&volume)
            }
        }
    }

    /// Writes down what a driver that died while it expanded a volume had done.
    fn note_growth(&self, volume: &mut Volume) -> Result<()> {
        let content = self.store.content(&volume.id, volume.kind);
        match self.host.entry(&content).doing("look at", &content)? {
            Some(Entry::File { bytes }) if bytes > volume.capacity_bytes => {
                info!(volume = %volume.id, bytes, "finishing an expansion");
                volume.capacity_bytes = bytes;
                self.store.save(volume)
            }
            _ => Ok(()),
        }
    }

    /// Removes the directory where this node mounts the volume unasked, if it does not.
    fn remove_own_staging(&self, volume: &Volume) -> Result<()> {
        let path = self.store.own_staging(&volume.id, self.node_id());
        let staged = volume.usage(self.node_id()).and_then(|usage| usage.staged.as_ref());
        if staged.is_some_and(|staging| staging.path == path)
            || self.host.entry(&path).doing("look at", &path)?.is_none()
        {
            return Ok(());
        }
        self.host.remove_dir(&path).doing("remove", path)
    }

    /// Takes uses by this node out of the record whose mounts are gone: the node was restarted, or the driver
    /// died between writing a use down and mounting. A repeated call makes them again.
    fn forget_vanished(&self, volume: &mut Volume) -> Result<()> {
        let Some(usage) = volume.usage(self.node_id()) else { return Ok(()) };
        let mut kept = usage.clone();
        if let Some(staging) = &usage.staged
            && !self.is_staged(volume, staging)?
        {
            kept.staged = None;
        }
        for target in usage.published.keys() {
            if self.host.mounted(target).doing("look at", target)?.is_none() {
                kept.published.remove(target);
                if let Err(error) = self.remove_target(target) {
                    warn!(volume = %volume.id, %error, "a target path stays");
                }
            }
        }
        if kept == *usage {
            return Ok(());
        }
        info!(volume = %volume.id, "forgetting mounts that no longer exist");
        *volume.usage_mut(self.node_id()) = kept;
        volume.prune();
        if volume.kind == Kind::Image {
            self.detach_unneeded(volume)?;
        }
        self.store.save(volume)
    }
}
