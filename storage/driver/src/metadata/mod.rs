//! The SnapshotMetadata service: allocated blocks of a snapshot, and changed blocks between two snapshots of a
//! volume. For snapshots of images only, since directories have no blocks.
//!
//! Snapshots keep no list of changed blocks. Blocks that were never written are holes in the image, and changes
//! are found by comparison: exact to the block, and as fast as the images can be read.

mod stream;

use std::fs::File;

use claimcheck_csi::v1::{
    GetMetadataAllocatedRequest, GetMetadataAllocatedResponse, GetMetadataDeltaRequest,
    GetMetadataDeltaResponse, snapshot_metadata_server::SnapshotMetadata,
};
use tonic::{Request, Response, Status, async_trait, codegen::BoxStream};

use self::stream::Listing;
use crate::{
    capability::Capability,
    driver::Driver,
    error::{Doing, Error, Result},
    parameters::Kind,
    secrets::Call,
    snapshot::Snapshot,
};

type Answer<T> = std::result::Result<Response<BoxStream<T>>, Status>;

#[async_trait]
impl SnapshotMetadata for Driver {
    async fn get_metadata_allocated(
        &self,
        request: Request<GetMetadataAllocatedRequest>,
    ) -> Answer<GetMetadataAllocatedResponse> {
        self.config.capabilities.demand(Capability::SnapshotMetadata)?;
        let listing = self.call(|driver| driver.allocated(request.into_inner())).await?;
        Ok(Response::new(listing.into_inner().stream()))
    }

    async fn get_metadata_delta(
        &self,
        request: Request<GetMetadataDeltaRequest>,
    ) -> Answer<GetMetadataDeltaResponse> {
        self.config.capabilities.demand(Capability::SnapshotMetadata)?;
        let listing = self.call(|driver| driver.delta(request.into_inner())).await?;
        Ok(Response::new(listing.into_inner().stream()))
    }
}

impl Driver {
    fn allocated(&self, request: GetMetadataAllocatedRequest) -> Result<Listing> {
        self.config.secrets.check(Call::GetMetadataAllocated, &request.secrets)?;
        if request.snapshot_id.is_empty() {
            return Err(Error::Missing("snapshot_id"));
        }
        let per_message = per_message(request.max_results)?;
        let snapshot = self.existing_snapshot("snapshot_id", &request.snapshot_id)?;
        let start = start(request.starting_offset, &snapshot)?;
        let file = self.open_blocks(&snapshot)?;
        Ok(Listing { base: None, target: file, start, size: snapshot.size_bytes, per_message })
    }

    fn delta(&self, request: GetMetadataDeltaRequest) -> Result<Listing> {
        self.config.secrets.check(Call::GetMetadataDelta, &request.secrets)?;
        for (field, id) in [
            ("base_snapshot_id", &request.base_snapshot_id),
            ("target_snapshot_id", &request.target_snapshot_id),
        ] {
            if id.is_empty() {
                return Err(Error::Missing(field));
            }
        }
        let per_message = per_message(request.max_results)?;
        let base = self.existing_snapshot("base_snapshot_id", &request.base_snapshot_id)?;
        let target = self.existing_snapshot("target_snapshot_id", &request.target_snapshot_id)?;
        if base.source != target.source {
            let reason = format!("is of volume {}, and the base is of volume {}", target.source, base.source);
            return Err(Error::invalid("target_snapshot_id", reason));
        }
        if base.created > target.created {
            return Err(Error::invalid(
                "base_snapshot_id",
                "is newer than the target snapshot; exchange them",
            ));
        }
        let start = start(request.starting_offset, &target)?;
        let (old, new) = (self.open_blocks(&base)?, self.open_blocks(&target)?);
        Ok(Listing { base: Some(old), target: new, start, size: target.size_bytes, per_message })
    }

    /// An open image stays readable even if the snapshot is deleted meanwhile.
    fn open_blocks(&self, snapshot: &Snapshot) -> Result<File> {
        if snapshot.kind == Kind::Directory {
            return Err(Error::Precondition(format!(
                "snapshot {} is of a volume of kind \"directory\", which has no blocks; make a full backup",
                snapshot.id
            )));
        }
        let path = self.store.content(&snapshot.id, snapshot.kind);
        let open = self.host.open_file(&path).doing("open", path)?;
        open.ok_or_else(|| Error::NoSnapshot(snapshot.id.to_string()))
    }
}

fn per_message(max_results: i32) -> Result<usize> {
    match usize::try_from(max_results) {
        Ok(0) => Ok(stream::PER_MESSAGE),
        Ok(max) => Ok(max.min(stream::PER_MESSAGE)),
        Err(_) => Err(Error::invalid("max_results", format!("{max_results} is negative"))),
    }
}

fn start(starting_offset: i64, snapshot: &Snapshot) -> Result<u64> {
    let size = snapshot.size_bytes;
    u64::try_from(starting_offset).ok().filter(|start| *start <= size).ok_or_else(|| {
        Error::OutOfRange(format!(
            "starting_offset {starting_offset} is not within the {size} bytes of the volume"
        ))
    })
}
