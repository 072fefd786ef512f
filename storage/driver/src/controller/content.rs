//! The initial content of a volume: empty, or copied from a snapshot or another volume.

use claimcheck_csi::v1::{
    VolumeContentSource,
    volume_content_source::{self, SnapshotSource, VolumeSource},
};

use crate::{
    capability::Capability,
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    filesystem::FsType,
    parameters::Kind,
    point_in_time::Copy,
    store::Lock,
    volume::{Source, Volume},
};

const FIELD: &str = "volume_content_source";

/// The source of a volume's content, in its current state.
pub(super) struct Origin {
    kind: Kind,
    fs_type: Option<FsType>,
    pub(super) bytes: u64,
}

impl Origin {
    /// Rejects a volume of another kind (CSI specification, CreateVolume Errors, "source incompatible").
    pub(super) fn check(&self, kind: Kind, fs_type: Option<FsType>) -> Result<()> {
        if self.kind != kind {
            let reason =
                format!("is of kind \"{}\", and the requested volume is of kind \"{kind}\"", self.kind);
            return Err(Error::invalid(FIELD, reason));
        }
        match (self.fs_type, fs_type) {
            (Some(source_fs), Some(requested_fs)) if source_fs != requested_fs => Err(Error::invalid(
                FIELD,
                format!("holds {source_fs}, and the volume was requested with {requested_fs}"),
            )),
            _ => Ok(()),
        }
    }
}

impl Source {
    /// The content source as callers see it.
    pub(super) fn to_csi(&self) -> VolumeContentSource {
        let r#type = match self {
            Self::Snapshot(id) => {
                volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id: id.to_string() })
            }
            Self::Volume(id) => {
                volume_content_source::Type::Volume(VolumeSource { volume_id: id.to_string() })
            }
        };
        VolumeContentSource { r#type: Some(r#type) }
    }
}

impl Driver {
    /// Parses the content source of a request.
    pub(super) fn parse_source(&self, source: Option<VolumeContentSource>) -> Result<Option<Source>> {
        let Some(source) = source else { return Ok(None) };
        let has = |capability: Capability| match self.config.capabilities.has(capability) {
            true => Ok(()),
            false => Err(Error::invalid(FIELD, format!("the driver does not declare {capability}"))),
        };
        Ok(Some(match source.r#type.ok_or(Error::Missing("volume_content_source.type"))? {
            volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id }) => {
                has(Capability::CreateDeleteSnapshot)?;
                Source::Snapshot(fields::snapshot_id(
                    "volume_content_source.snapshot.snapshot_id",
                    &snapshot_id,
                )?)
            }
            volume_content_source::Type::Volume(VolumeSource { volume_id }) => {
                has(Capability::CloneVolume)?;
                Source::Volume(fields::volume_id(&volume_id)?)
            }
        }))
    }

    /// Reads the record of the content source.
    pub(super) fn origin(&self, source: &Source) -> Result<Origin> {
        Ok(match source {
            Source::Snapshot(id) => {
                let found = self.snapshot(id)?.ok_or_else(|| Error::NoSnapshot(id.to_string()))?;
                Origin { kind: found.kind, fs_type: found.fs_type, bytes: found.size_bytes }
            }
            Source::Volume(id) => {
                let found = self.volume(id)?;
                Origin { kind: found.kind, fs_type: found.fs_type, bytes: found.capacity_bytes }
            }
        })
    }

    /// Locks the volume that `volume` copies, if it must be locked before `volume` itself: volumes are locked
    /// in the order of their ids, so that two calls cannot deadlock.
    pub(super) fn lock_first(&self, volume: &Volume) -> Result<Option<Lock>> {
        match &volume.source {
            Some(Source::Volume(source)) if *source < volume.id => self.store.lock(source),
            _ => Ok(None),
        }
    }

    /// Creates the content of a new volume, which the caller has locked; `first` is the result of
    /// [`Driver::lock_first`].
    pub(crate) fn make_content(&self, expected: &Volume, first: Option<Lock>) -> Result<()> {
        let content = self.store.content(&expected.id, expected.kind);
        let copied_bytes = match &expected.source {
            None => {
                return match expected.kind {
                    // Any user may write, as in other drivers without fsGroup support of their own.
                    Kind::Directory => self.host.make_dir(&content, 0o777).doing("make", content),
                    Kind::Image => {
                        self.host.make_sparse(&content, expected.capacity_bytes).doing("make", content)
                    }
                };
            }
            Some(Source::Snapshot(id)) => {
                let (_lock, snapshot) = self.lock_snapshot(id)?;
                let from = self.store.content(id, snapshot.kind);
                self.copy_content(expected.kind, &from, &content, None)?;
                snapshot.size_bytes
            }
            Some(Source::Volume(id)) => {
                let _lock = match first {
                    Some(lock) => Some(lock),
                    None => self.store.lock(id)?,
                };
                let volume = self.volume(id)?;
                self.copy_at_one_time(&[Copy { volume: &volume, to: content.clone() }])?;
                volume.capacity_bytes
            }
        };
        if expected.kind == Kind::Image && expected.capacity_bytes > copied_bytes {
            // The file system in it follows when the volume is staged.
            self.host.grow_file(&content, expected.capacity_bytes).doing("enlarge", content)?;
        }
        Ok(())
    }
}
