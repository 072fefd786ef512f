//! NodePublishVolume and NodeUnpublishVolume: once per volume and pod.

use std::path::{Path, PathBuf};

use claimcheck_csi::v1::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};
use jiff::Timestamp;
use tracing::warn;

use crate::{
    access::{Access, Mode},
    capability::Capability,
    driver::{Config, Driver},
    error::{Doing, Error, Result},
    fields,
    host::Entry,
    node::ephemeral,
    secrets::Call,
    store::Lock,
    tokens,
    volume::{Grant, Staging, Usage, Volume, VolumeId},
};

impl Driver {
    /// Publishes a staged volume at the target path.
    pub fn publish(&self, request: NodePublishVolumeRequest) -> Result<NodePublishVolumeResponse> {
        self.config.secrets.check(Call::NodePublishVolume, &request.secrets)?;
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let target = self.outside_path("target_path", &request.target_path)?;
        let context = &request.volume_context;
        fields::large_map("volume_context", context)?;
        let Config { token_audiences, token_field, .. } = &*self.config;
        tokens::check(token_audiences, *token_field, context, &request.secrets, Timestamp::now())?;
        let access = Access::required(request.volume_capability)?;
        let grant = Grant { access, read_only: request.readonly };
        if ephemeral::is_expected(context) {
            return self.publish_ephemeral(&request.volume_id, context, target, grant);
        }
        let staging = self.staging_path(&request.staging_target_path)?;
        let id = fields::volume_id(&request.volume_id)?;
        let (lock, mut volume) = self.lock(&id)?;
        grant.access.check(volume.kind, &self.config.capabilities)?;
        // CSI specification, ControllerPublishVolume: the volume MUST be published in readonly mode then.
        let attached = volume.usage(self.node_id()).and_then(|usage| usage.attached.as_ref());
        let read_only = grant.read_only || attached.is_some_and(|attached| attached.read_only);
        let grant = Grant { read_only, ..grant };

        let source = match staging {
            Some(path) => path,
            None => self.stage_unasked(&lock, &mut volume, &grant.access)?,
        };
        let shown = self.publish_from(&mut volume, &source, target, grant);
        if shown.is_err() {
            self.unstage_unasked(&mut volume)?;
        }
        shown
    }

    /// The staging path of a request; `None` if the driver does not declare STAGE_UNSTAGE_VOLUME.
    fn staging_path(&self, path: &str) -> Result<Option<PathBuf>> {
        if !self.config.capabilities.has(Capability::StageUnstageVolume) {
            return Ok(None);
        }
        if path.is_empty() {
            // The one missing field that the specification calls a failed precondition.
            let reason = "staging_target_path is missing; call NodeStageVolume first and name its path";
            return Err(Error::Precondition(reason.to_owned()));
        }
        self.outside_path("staging_target_path", path).map(Some)
    }

    /// Mounts the volume below the state directory, for a driver without staging: the pods of a node share one
    /// mount of an image.
    pub(super) fn stage_unasked(&self, lock: &Lock, volume: &mut Volume, access: &Access) -> Result<PathBuf> {
        let path = self.store.own_staging(&volume.id, self.node_id());
        let present = volume.usage(self.node_id()).and_then(|usage| usage.staged.clone());
        let expected = present.unwrap_or(Staging { path: path.clone(), access: access.clone() });
        self.stage_at(lock, volume, expected)?;
        Ok(path)
    }

    /// Undoes [`Driver::stage_unasked`] with the last publication.
    pub(super) fn unstage_unasked(&self, volume: &mut Volume) -> Result<()> {
        let published = volume.usage(self.node_id()).is_some_and(|usage| !usage.published.is_empty());
        let asked = self.config.capabilities.has(Capability::StageUnstageVolume) && !volume.ephemeral;
        if published || asked {
            return Ok(());
        }
        let path = self.store.own_staging(&volume.id, self.node_id());
        self.withdraw_staging(volume, &path)?;
        self.host.remove_dir(&path).doing("remove", path)
    }

    pub(super) fn publish_from(
        &self,
        volume: &mut Volume,
        source: &Path,
        target: PathBuf,
        grant: Grant,
    ) -> Result<NodePublishVolumeResponse> {
        let id = volume.id.clone();
        let usage = volume.usage(self.node_id()).cloned().unwrap_or_default();
        let staged = usage.staged.as_ref().filter(|staging| staging.path == source);
        if let Some(staging) = staged
            && staging.access.volume_mode != grant.access.volume_mode
        {
            let reason = format!(
                "the volume is staged as {:?} and cannot be published as {:?}",
                staging.access.volume_mode, grant.access.volume_mode
            );
            return Err(Error::invalid("volume_capability", reason));
        }
        let existing = staged.map(|staging| self.is_staged(volume, staging)).transpose()?;
        if existing != Some(true) {
            return Err(Error::Precondition(format!(
                "volume {id} is not staged at {}; call NodeStageVolume first",
                source.display()
            )));
        }
        match usage.published.get(&target) {
            Some(present) if *present != grant => {
                return Err(Error::AlreadyExists(format!(
                    "volume {id} is published at {} already as {:?} (read-only: {}); unpublish it first",
                    target.display(),
                    present.access.mode,
                    present.read_only
                )));
            }
            Some(present) => self.show(volume, source, &target, present)?,
            None => {
                self.mounted_volume(volume, &target)?;
                check_single(&id, &usage, &grant)?;
                volume.usage_mut(self.node_id()).published.insert(target.clone(), grant.clone());
                self.store.save(volume)?;
                if let Err(error) = self.show(volume, source, &target, &grant) {
                    // NodeUnpublishVolume is not called after a final error: undo the partial work of this call.
                    if let Err(left) = self.withdraw(volume, &target) {
                        warn!(volume = %id, error = %left, "a failed publication stays on record");
                    }
                    return Err(error);
                }
            }
        }
        Ok(NodePublishVolumeResponse {})
    }

    fn show(&self, volume: &Volume, source: &Path, target: &Path, grant: &Grant) -> Result<()> {
        if grant.access.is_block() {
            return self.show_device(volume, target, grant.is_read_only());
        }
        match self.host.entry(target).doing("look at", target)? {
            None => self.host.make_dir(target, 0o750).doing("make", target)?,
            Some(Entry::Directory) => {}
            Some(_) => {
                let reason = format!("{} is not a directory", target.display());
                return Err(Error::invalid("target_path", reason));
            }
        }
        // Settled by staging for the file system itself, so that only flags of the mount point are left.
        let options = grant.access.options()?.read_only(grant.read_only);
        self.bind(volume, source, target, &options)
    }

    /// Unpublishes the volume from the target path, and removes the path.
    pub fn unpublish(&self, request: NodeUnpublishVolumeRequest) -> Result<NodeUnpublishVolumeResponse> {
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let target = self.outside_path("target_path", &request.target_path)?;
        let (_lock, mut volume) = match self.lock(&ephemeral::id_on_node(&request.volume_id)?) {
            // Removed with its publication, so that a repeated call does not find it; and the kubelet would
            // repeat until it succeeds.
            Err(Error::NoVolume(_)) if ephemeral::is_made_up(&request.volume_id) => {
                self.remove_target(&target)?;
                return Ok(NodeUnpublishVolumeResponse {});
            }
            locked => locked?,
        };
        self.withdraw(&mut volume, &target)?;
        self.unstage_unasked(&mut volume)?;
        self.remove_if_ephemeral(&volume)?;
        Ok(NodeUnpublishVolumeResponse {})
    }

    fn withdraw(&self, volume: &mut Volume, target: &Path) -> Result<()> {
        self.unmount(volume, target)?;
        self.remove_target(target)?;
        let mut after = volume.clone();
        let Some(usage) = after.nodes.get_mut(self.node_id()) else { return Ok(()) };
        let Some(deleted) = usage.published.remove(target) else { return Ok(()) };
        after.prune();
        if deleted.access.is_block() {
            self.detach_unneeded(&after)?;
        }
        self.store.save(&after)?;
        *volume = after;
        Ok(())
    }
}

/// A SINGLE_NODE_SINGLE_WRITER volume has one target (CSI specification, table of NodePublishVolume).
fn check_single(id: &VolumeId, usage: &Usage, grant: &Grant) -> Result<()> {
    let alone = |mode| mode == Mode::SingleNodeSingleWriter;
    match usage.published.iter().next() {
        Some((other, existing)) if alone(grant.access.mode) || alone(existing.access.mode) => {
            Err(Error::Precondition(format!(
                "volume {id} is for one pod only and is published at {}; unpublish it there first",
                other.display()
            )))
        }
        _ => Ok(()),
    }
}
