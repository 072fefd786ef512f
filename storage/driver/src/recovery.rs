//! Recovery at start: partially created or deleted volumes and snapshots, drafts of files, file systems left
//! frozen, and uses by this node that no longer exist because the node was restarted.
//!
//! Loop devices below mounts require no recovery, the kernel clears them with their last user; those of raw
//! volumes are detached with the last use that needs them. Volumes that another process is working on are
//! skipped: they are locked.

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
    /// Checks all volumes once. A volume that cannot be recovered is left for the next start; it must not
    /// prevent the driver from serving the others.
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

    /// Keeps objects with a record that `counts`, and removes all others.
    fn recover_record<I: Id>(&self, id: &I, counts: impl Fn(&I::Record) -> Result<bool>) -> Result<()> {
        let Some(_lock) = self.store.try_lock(id)? else { return Ok(()) };
        match self.store.load(id)? {
            Some(record) if counts(&record)? => self.store.remove_drafts(id),
            _ => {
                info!(%id, "removing a partially created or deleted snapshot");
                self.store.remove(id)
            }
        }
    }

    fn recover_volume(&self, id: &VolumeId) -> Result<()> {
        let Some(_lock) = self.store.try_lock(id)? else { return Ok(()) };
        match self.store.load(id)? {
            None => {
                info!(volume = %id, "removing a partially created or deleted volume");
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

    /// Completes the record of an expansion that a crash interrupted.
    fn note_growth(&self, volume: &mut Volume) -> Result<()> {
        let content = self.store.content(&volume.id, volume.kind);
        match self.host.entry(&content).doing("look at", &content)? {
            Some(Entry::File { bytes }) if bytes > volume.capacity_bytes => {
                info!(volume = %volume.id, bytes, "completing an interrupted expansion");
                volume.capacity_bytes = bytes;
                self.store.save(volume)
            }
            _ => Ok(()),
        }
    }

    /// Removes the directory where this node mounts the volume without staging, if it is not mounted.
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

    /// Removes uses by this node without a mount from the record: the node was restarted, or the driver crashed
    /// between recording a use and mounting. A repeated call restores them.
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
                    warn!(volume = %volume.id, %error, "cannot remove a target path");
                }
            }
        }
        if kept == *usage {
            return Ok(());
        }
        info!(volume = %volume.id, "removing mounts that no longer exist from the record");
        *volume.usage_mut(self.node_id()) = kept;
        volume.prune();
        if volume.kind == Kind::Image {
            self.detach_unneeded(volume)?;
        }
        self.store.save(volume)
    }
}
