//! Inline ephemeral volumes (KEP-596): created by NodePublishVolume, deleted by NodeUnpublishVolume.
//!
//! They have a record like all others, so that the next start finds what a crash left behind. They are never
//! staged: they are mounted below the state directory and bind mounted from there.

use std::{collections::BTreeMap, path::PathBuf};

use claimcheck_csi::v1::NodePublishVolumeResponse;

use crate::{
    capability::Capability,
    driver::Driver,
    error::{Error, Result},
    fields,
    filesystem::FsType,
    parameters::{Kind, PROVISIONER_PREFIX, Parameters},
    size::SizeRange,
    volume::{Grant, Volume, VolumeId},
};

/// Set by the kubelet in the volume context.
const KEY: &str = "csi.storage.k8s.io/ephemeral";
/// The attribute with the size of the volume in bytes.
const SIZE: &str = "size";

/// Whether the volume context is that of an ephemeral volume.
pub(super) fn is_expected(context: &BTreeMap<String, String>) -> bool {
    context.get(KEY).is_some_and(|value| value == "true")
}

/// The id of a volume in a call that may be about an ephemeral volume, with an id that the kubelet generates.
pub(super) fn id_on_node(handle: &str) -> Result<VolumeId> {
    match fields::volume_id(handle) {
        // A name with a control character cannot be that of any other volume.
        Err(Error::NoVolume(_)) => Ok(VolumeId::from_name(&format!("ephemeral\n{handle}"))),
        result => result,
    }
}

/// Whether an id is one that the kubelet generates: `csi-` and 64 hexadecimal digits (`makeVolumeHandle` in
/// pkg/volume/csi/csi_mounter.go).
pub(super) fn is_made_up(handle: &str) -> bool {
    let digits = handle.strip_prefix("csi-").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Driver {
    /// Creates the volume unless an earlier call did, and publishes it.
    pub(super) fn publish_ephemeral(
        &self,
        handle: &str,
        context: &BTreeMap<String, String>,
        target: PathBuf,
        grant: Grant,
    ) -> Result<NodePublishVolumeResponse> {
        if !self.config.capabilities.has(Capability::InlineEphemeral) {
            let reason = format!("{KEY} is set, and the driver does not declare INLINE_EPHEMERAL");
            return Err(Error::invalid("volume_context", reason));
        }
        let id = id_on_node(handle)?;
        let (kind, size) = attributes(context, &grant)?;
        grant.access.check(kind, &self.config.capabilities)?;
        if kind == Kind::Image {
            self.host.probe_loop().map_err(Error::NoLoop)?;
        }
        let fs = grant.access.fs_type.unwrap_or(FsType::Ext4);
        let capacity_bytes = size.choose(kind, fs, self.config.max_volume_bytes)?;
        let _room = self.config.capacity_bytes.map(|_| self.store.lock_room()).transpose()?;

        let lock = self.store.lock_or_make(&id)?;
        let mut volume = match self.store.load(&id)? {
            Some(present) => present,
            None => {
                let made = self.make_ephemeral(Volume {
                    id: id.clone(),
                    name: handle.to_owned(),
                    kind,
                    capacity_bytes,
                    fs_type: grant.access.fs_type,
                    topology: self.config.topology.clone(),
                    mutable: Default::default(),
                    source: None,
                    ephemeral: true,
                    nodes: BTreeMap::new(),
                });
                if made.is_err() {
                    self.store.remove(&id)?;
                }
                made?
            }
        };
        let shown = self
            .stage_unasked(&lock, &mut volume, &grant.access)
            .and_then(|source| self.publish_from(&mut volume, &source, target, grant));
        if shown.is_err() {
            self.unstage_unasked(&mut volume)?;
            self.remove_if_ephemeral(&volume)?;
        }
        shown
    }

    fn make_ephemeral(&self, volume: Volume) -> Result<Volume> {
        let expected = volume.capacity_bytes;
        if let Some(room) = self.room_in(&volume.topology)?.filter(|room| *room < expected) {
            return Err(Error::Exhausted(format!(
                "{expected} bytes were requested, and {room} are left on this node (--capacity)"
            )));
        }
        self.make_content(&volume, None)?;
        self.store.save(&volume)?;
        Ok(volume)
    }

    /// Removes an ephemeral volume that is no longer in use. The caller holds its lock.
    pub(crate) fn remove_if_ephemeral(&self, volume: &Volume) -> Result<()> {
        if volume.ephemeral && volume.in_use().is_none() { self.store.remove(&volume.id) } else { Ok(()) }
    }
}

/// The pod's volumeAttributes; keys of Kubernetes itself are ignored.
fn attributes(context: &BTreeMap<String, String>, grant: &Grant) -> Result<(Kind, SizeRange)> {
    let mut parameters = context.clone();
    parameters.retain(|key, _| !key.starts_with(PROVISIONER_PREFIX));
    let required = match parameters.remove(SIZE) {
        None => 0,
        Some(bytes) => bytes.parse().map_err(|_| {
            let reason = format!("{SIZE} {:?} is not a number of bytes", fields::clip(&bytes));
            Error::invalid("volume_context", reason)
        })?,
    };
    let kind = Parameters::parse(&parameters)?.kind_for(std::slice::from_ref(&grant.access));
    Ok((kind, SizeRange { required, limit: None }))
}
