//! CreateSnapshot, DeleteSnapshot, ListSnapshots and GetSnapshot.

use std::collections::BTreeMap;

use claimcheck_csi::v1::{
    self, CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse,
    list_snapshots_response::Entry,
};
use tracing::warn;

use super::page::{Page, page};
use crate::{
    driver::Driver,
    error::{Error, Result},
    fields,
    id::{SnapshotId, VolumeId},
    parameters,
    point_in_time::Copy,
    secrets::Call,
    snapshot::Snapshot,
    store::{Id, Lock},
};

impl Driver {
    /// Creates a snapshot, or returns the one that an earlier call with the same name created.
    ///
    /// As with volumes the content is created first and the record last: the snapshot exists from the moment
    /// its record does, and is then ready to use.
    pub fn create_snapshot(&self, request: CreateSnapshotRequest) -> Result<CreateSnapshotResponse> {
        self.config.secrets.check(Call::CreateSnapshot, &request.secrets)?;
        let name = fields::name(&request.name)?;
        if request.source_volume_id.is_empty() {
            return Err(Error::Missing("source_volume_id"));
        }
        none_but_the_sidecars(&request.parameters)?;
        let source = fields::volume_id(&request.source_volume_id)?;
        let id = SnapshotId::from_name(name);
        // Before its volume is looked for: that may be gone by now.
        if let Some(present) = self.store.load(&id)? {
            return same_source(present, name, &source);
        }
        let (_volume_lock, volume) = self.lock(&source)?;
        let _lock = self.store.lock_or_make(&id)?;
        if let Some(present) = self.store.load(&id)? {
            return same_source(present, name, &source);
        }
        let to = self.store.content(&id, volume.kind);
        let snapshot = self
            .copy_at_one_time(&[Copy { volume: &volume, to }])
            .map(|created| Snapshot {
                id: id.clone(),
                source,
                kind: volume.kind,
                size_bytes: volume.capacity_bytes,
                fs_type: volume.fs_type,
                created,
                group: None,
            })
            .and_then(|snapshot| self.store.save(&snapshot).map(|()| snapshot))
            .inspect_err(|_| self.discard(&id))?;
        Ok(CreateSnapshotResponse { snapshot: Some(describe(&snapshot)) })
    }

    /// Deletes a snapshot and its data. Succeeds if it does not exist, whatever the form of its id.
    pub fn delete_snapshot(&self, request: DeleteSnapshotRequest) -> Result<DeleteSnapshotResponse> {
        self.config.secrets.check(Call::DeleteSnapshot, &request.secrets)?;
        let id = match fields::snapshot_id("snapshot_id", &request.snapshot_id) {
            Err(Error::NoSnapshot(_)) => return Ok(DeleteSnapshotResponse {}),
            id => id?,
        };
        let Some(_lock) = self.store.lock(&id)? else { return Ok(DeleteSnapshotResponse {}) };
        if let Some(Snapshot { group: Some(group), .. }) = self.snapshot(&id)? {
            let reason = format!(
                "snapshot {id} belongs to group snapshot {group}; call DeleteVolumeGroupSnapshot instead"
            );
            return Err(Error::invalid("snapshot_id", reason));
        }
        self.store.remove(&id)?;
        Ok(DeleteSnapshotResponse {})
    }

    /// Lists snapshots; restricted to a source volume or a single snapshot if the request names one.
    pub fn list_snapshots(&self, request: ListSnapshotsRequest) -> Result<ListSnapshotsResponse> {
        self.config.secrets.check(Call::ListSnapshots, &request.secrets)?;
        fields::short("source_volume_id", &request.source_volume_id)?;
        fields::short("snapshot_id", &request.snapshot_id)?;
        let source = Some(request.source_volume_id).filter(|id| !id.is_empty());
        let of_source =
            |snapshot: &Snapshot| source.as_ref().is_none_or(|source| snapshot.source.as_str() == source);
        let Page { records, next_token } = match request.snapshot_id.as_str() {
            "" => {
                page::<SnapshotId>(&self.store, request.max_entries, &request.starting_token, |snapshot| {
                    Ok(of_source(snapshot) && self.counts(snapshot)?)
                })?
            }
            id => {
                let found = SnapshotId::parse(id).map(|id| self.snapshot(&id)).transpose()?.flatten();
                Page { records: found.into_iter().filter(of_source).collect(), next_token: String::new() }
            }
        };
        let entries = records.iter().map(|snapshot| Entry { snapshot: Some(describe(snapshot)) }).collect();
        Ok(ListSnapshotsResponse { entries, next_token })
    }

    /// GetSnapshot.
    pub fn get_snapshot(&self, request: GetSnapshotRequest) -> Result<GetSnapshotResponse> {
        self.config.secrets.check(Call::GetSnapshot, &request.secrets)?;
        let snapshot = self.existing_snapshot("snapshot_id", &request.snapshot_id)?;
        Ok(GetSnapshotResponse { snapshot: Some(describe(&snapshot)) })
    }

    /// The record of a snapshot that a request names; it must exist.
    pub(crate) fn existing_snapshot(&self, field: &'static str, id: &str) -> Result<Snapshot> {
        let id = fields::snapshot_id(field, id)?;
        self.snapshot(&id)?.ok_or_else(|| Error::NoSnapshot(id.to_string()))
    }

    /// The record of a snapshot that exists.
    pub(super) fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        Ok(match self.store.load(id)? {
            Some(snapshot) if self.counts(&snapshot)? => Some(snapshot),
            _ => None,
        })
    }

    /// Locks an existing snapshot against deletion and reads its record.
    pub(super) fn lock_snapshot(&self, id: &SnapshotId) -> Result<(Lock, Snapshot)> {
        let missing = || Error::NoSnapshot(id.to_string());
        let lock = self.store.lock(id)?.ok_or_else(missing)?;
        let snapshot = self.snapshot(id)?.ok_or_else(missing)?;
        Ok((lock, snapshot))
    }

    /// Whether a snapshot with a record exists: a snapshot of a group exists as long as its group does.
    pub(crate) fn counts(&self, snapshot: &Snapshot) -> Result<bool> {
        match &snapshot.group {
            Some(group) => Ok(self.store.load(group)?.is_some()),
            None => Ok(true),
        }
    }

    /// Cleans up after a failed call. The caller holds the lock.
    pub(super) fn discard<I: Id>(&self, id: &I) {
        if let Err(error) = self.store.remove(id) {
            warn!(%id, %error, "the partial result of a failed call stays until the next start");
        }
    }
}

/// The snapshot as callers see it.
pub(super) fn describe(snapshot: &Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: snapshot.size_bytes.try_into().unwrap_or(i64::MAX),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.source.to_string(),
        creation_time: Some(snapshot.created.into()),
        ready_to_use: true,
        group_snapshot_id: snapshot.group.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// The driver accepts no parameters in snapshot classes; only the sidecar adds some.
pub(super) fn none_but_the_sidecars(raw: &BTreeMap<String, String>) -> Result<()> {
    fields::map("parameters", raw)?;
    match parameters::driver_parameters(raw).next() {
        Some((key, _)) => {
            let reason = format!("unknown key {:?}; snapshots have no parameters", fields::clip(key));
            Err(Error::invalid("parameters", reason))
        }
        None => Ok(()),
    }
}

/// The existing snapshot, if it is compatible with the request (CSI specification, CreateSnapshot Errors).
fn same_source(present: Snapshot, name: &str, source: &VolumeId) -> Result<CreateSnapshotResponse> {
    if present.source == *source {
        return Ok(CreateSnapshotResponse { snapshot: Some(describe(&present)) });
    }
    Err(Error::AlreadyExists(format!(
        "snapshot {name:?} already exists with source volume {}, not {source}",
        present.source
    )))
}
