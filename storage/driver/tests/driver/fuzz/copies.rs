//! Calls about what is made from volumes: snapshots, groups of them, clones, and the blocks of snapshots.

use std::{
    panic,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use claimcheck_csi::v1::{
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeGroupSnapshotRequest, GetMetadataAllocatedRequest, GetMetadataDeltaRequest,
    GetSnapshotRequest, GetVolumeGroupSnapshotRequest, ListSnapshotsRequest, VolumeContentSource,
    snapshot_metadata_server::SnapshotMetadata,
};
use claimcheck_driver::{
    Driver,
    error::{Error, Result},
    id::{GroupId, SnapshotId, VolumeId},
};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::{COPY, GROUP, Outcome, SNAPSHOT, Source};
use crate::support;

/// How many there are.
pub(super) const CALLS: usize = 12;
/// The threads that read blocks.
const READER: &str = "fuzz-reader";
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Number of panicked reader threads: they are not joined, so their panic is not reported elsewhere.
pub(super) fn panics() -> usize {
    PANICS.load(Ordering::Relaxed)
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name() == Some(READER) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            others(info);
        }));
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name(READER).build().unwrap()
    })
}

/// Reads a stream of blocks to its end. The socket's errors are texts by now, so that one which no driver should
/// give is passed on as it is.
fn drain<M>(answer: impl Future<Output = Result<Response<BoxStream<M>>, Status>>) -> Result<(), Error> {
    let read = async {
        let mut stream = answer.await?.into_inner();
        while let Some(message) = stream.next().await {
            message?;
        }
        Ok(())
    };
    runtime().block_on(read).map_err(|status: Status| Error::Precondition(status.message().to_owned()))
}

impl Source<'_> {
    /// Mostly one of the snapshots that may be there.
    fn snapshot_id(&mut self) -> String {
        match self.number().rem_euclid(5) {
            0 => self.text(),
            1 => GroupId::from_name(GROUP).snapshot_of(&VolumeId::from_name(support::NAME)).to_string(),
            2 => SnapshotId::from_name(COPY).to_string(),
            _ => SnapshotId::from_name(SNAPSHOT).to_string(),
        }
    }

    fn group_id(&mut self) -> String {
        if self.number() % 4 == 0 { self.text() } else { GroupId::from_name(GROUP).to_string() }
    }

    fn name_of(&mut self, usual: &str) -> String {
        if self.number() % 4 == 0 { self.text() } else { usual.to_owned() }
    }

    /// Mostly one, sometimes the same twice.
    fn sources(&mut self) -> Vec<String> {
        let copy = VolumeId::from_name(COPY).to_string();
        match self.number().rem_euclid(5) {
            0 => vec![self.id(), self.text()],
            1 => Vec::new(),
            2 => vec![support::id(), copy],
            _ => vec![self.id()],
        }
    }

    fn entries(&mut self) -> i32 {
        i32::try_from(self.number()).unwrap_or(-1)
    }
}

pub(super) fn call(number: usize, driver: &Driver, source: &mut Source) -> Outcome {
    let secrets = source.map(&["password"]);
    let result = match number {
        0 | 1 => {
            let usual = if source.flag() { SNAPSHOT } else { COPY };
            let request = CreateSnapshotRequest {
                name: source.name_of(usual),
                source_volume_id: source.id(),
                parameters: source.map(&["csi.storage.k8s.io/volumesnapshot/name", "kind"]),
                secrets,
            };
            driver.create_snapshot(source.send(request)?).map(drop)
        }
        2 => {
            let request = DeleteSnapshotRequest { snapshot_id: source.snapshot_id(), secrets };
            driver.delete_snapshot(source.send(request)?).map(drop)
        }
        3 => {
            let request = ListSnapshotsRequest {
                max_entries: source.entries(),
                starting_token: source.text(),
                source_volume_id: if source.flag() { source.id() } else { String::new() },
                snapshot_id: if source.flag() { source.snapshot_id() } else { String::new() },
                secrets,
            };
            driver.list_snapshots(source.send(request)?).map(drop)
        }
        4 => {
            let request = GetSnapshotRequest { snapshot_id: source.snapshot_id(), secrets };
            driver.get_snapshot(source.send(request)?).map(drop)
        }
        5 | 6 => {
            let content = match source.number().rem_euclid(5) {
                0 => None,
                1 | 2 => Some(support::from_volume(&source.id())),
                _ => Some(support::from_snapshot(&source.snapshot_id())),
            };
            let request = CreateVolumeRequest {
                name: source.name_of(COPY),
                capacity_range: source.range(),
                volume_capabilities: vec![source.capability()],
                parameters: source.parameters(),
                volume_content_source: Some(VolumeContentSource { r#type: content }),
                ..Default::default()
            };
            driver.create(source.send(request)?).map(drop)
        }
        7 | 8 => {
            let request = CreateVolumeGroupSnapshotRequest {
                name: source.name_of(GROUP),
                source_volume_ids: source.sources(),
                parameters: source.map(&["csi.storage.k8s.io/volumegroupsnapshot/name", "kind"]),
                secrets,
            };
            driver.create_group(source.send(request)?).map(drop)
        }
        9 => {
            let snapshot_ids = if source.flag() { Vec::new() } else { vec![source.snapshot_id()] };
            if source.flag() {
                let group_snapshot_id = source.group_id();
                let request = DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets };
                driver.delete_group(source.send(request)?).map(drop)
            } else {
                let group_snapshot_id = source.group_id();
                let request = GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets };
                driver.get_group(source.send(request)?).map(drop)
            }
        }
        10 => {
            let request = GetMetadataAllocatedRequest {
                snapshot_id: source.snapshot_id(),
                starting_offset: source.number(),
                max_results: source.entries(),
                secrets,
            };
            drain(driver.get_metadata_allocated(Request::new(source.send(request)?)))
        }
        _ => {
            let request = GetMetadataDeltaRequest {
                base_snapshot_id: source.snapshot_id(),
                target_snapshot_id: source.snapshot_id(),
                starting_offset: source.number(),
                max_results: source.entries(),
                secrets,
            };
            drain(driver.get_metadata_delta(Request::new(source.send(request)?)))
        }
    };
    Some((Vec::new(), result))
}
