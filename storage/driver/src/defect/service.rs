//! The layer in front of the driver's services: defects that affect any call, and the state of defects.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs::{self, File},
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use claimcheck_csi::v1::{VolumeUsage, list_volumes_response::Entry};
use tonic::{Code, Response, Status};
use tracing::warn;

use super::Defect;
use crate::{
    driver::Driver,
    host::{LoopDevice, LoopUse},
    id::VolumeId,
    parameters::Kind,
    volume::Volume,
};

/// Number of fast calls, with [`Defect::SlowAfterCalls`].
const FAST_CALLS: usize = 100;
/// Duration of a call that callers are expected to cancel.
const CANCELLABLE: Duration = Duration::from_millis(100);
/// Duration of each later call.
const SLOWNESS: Duration = Duration::from_millis(200);

pub(super) type Answer<T> = Result<Response<T>, Status>;

/// The response of a defect that reports success without doing the work.
pub(super) fn done<T: Default>() -> Answer<T> {
    Ok(Response::new(T::default()))
}

/// Logs that a defect has no effect.
fn untriggered<E: Display>(done: Result<(), E>) {
    if let Err(error) = done {
        warn!(%error, "the defect cannot be triggered");
    }
}

/// Removes what a directory contains.
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

/// Remembers a volume when it is dropped before the call has ended.
struct Cancelled<'a> {
    defective: &'a Defective,
    volume_id: Option<String>,
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        self.defective.memory().cancelled.extend(self.volume_id.take());
    }
}

/// A driver with a defect in its services.
#[derive(Clone)]
pub(crate) struct Defective {
    pub(super) sound: Driver,
    pub(super) defect: Defect,
    calls: Arc<AtomicUsize>,
    memory: Arc<Mutex<Memory>>,
}

/// State of the defects.
#[derive(Default)]
pub(super) struct Memory {
    /// Leaked file descriptors.
    pub descriptors: Vec<File>,
    /// Leaked loop devices; the kernel clears them when the process exits.
    pub loops: Vec<LoopDevice>,
    /// The last volume of a page, keyed by the token of the next one.
    pub pages: BTreeMap<String, Entry>,
    /// The volumes of which a call was cancelled.
    pub cancelled: BTreeSet<String>,
    /// The first statistics of a volume.
    pub statistics: BTreeMap<String, Vec<VolumeUsage>>,
}

impl Defective {
    pub(super) fn new(sound: Driver, defect: Defect) -> Self {
        Self { sound, defect, calls: Arc::default(), memory: Arc::default() }
    }

    /// Makes a call, with the defects that affect all calls.
    pub(super) async fn around<T>(&self, call: impl Future<Output = Answer<T>>) -> Answer<T> {
        let before = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.defect {
            Defect::SlowAfterCalls if before >= FAST_CALLS => tokio::time::sleep(SLOWNESS).await,
            // A process that may open no more has leaked enough.
            Defect::DescriptorLeak => self.memory().descriptors.extend(File::open("/dev/null").ok()),
            _ => {}
        }
        call.await.map_err(|status| match (self.defect, status.code()) {
            (Defect::InternalForNotFound, Code::NotFound) => Status::internal(status.message()),
            _ => status,
        })
    }

    /// Makes a call that takes long enough to be cancelled; then the volume is remembered, and the work is done all the
    /// same.
    pub(super) async fn cancellable<T>(
        &self,
        volume_id: String,
        call: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let mut cancelled = Cancelled { defective: self, volume_id: Some(volume_id) };
        let answer = call.await;
        tokio::time::sleep(CANCELLABLE).await;
        cancelled.volume_id = None;
        answer
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of a volume, if there is one of this id.
    pub(super) fn volume(&self, id: &str) -> Option<Volume> {
        self.sound.volume(&VolumeId::parse(id)?).ok()
    }

    /// The records of all volumes.
    pub(super) fn volumes(&self) -> Vec<Volume> {
        let ids = self.sound.store.ids::<VolumeId>().unwrap_or_default();
        ids.iter().filter_map(|id| self.sound.volume(id).ok()).collect()
    }

    /// The other volumes with names that begin with the name of this one, unless they are in use.
    pub(super) fn longer_names(&self, volume: &Volume) -> Vec<Volume> {
        let mut all = self.volumes();
        all.retain(|other| other.id != volume.id && other.name.starts_with(&volume.name));
        all.retain(|other| other.in_use().is_none());
        all
    }

    /// Deletes a volume.
    pub(super) fn forget(&self, volume: &Volume) {
        untriggered(self.sound.store.remove(&volume.id));
    }

    /// Deletes the data of a volume.
    pub(super) fn empty(&self, volume: &Volume) {
        let content = self.sound.store.content(&volume.id, volume.kind);
        untriggered(match volume.kind {
            Kind::Directory => clear(&content),
            Kind::Image => File::options()
                .write(true)
                .open(content)
                .and_then(|file| file.set_len(0).and_then(|()| file.set_len(volume.capacity_bytes))),
        });
    }

    /// Attaches an image a second time, to leak the device.
    pub(super) fn leak_loop(&self, volume_id: &str) {
        let Some(volume) = self.volume(volume_id).filter(|volume| volume.kind == Kind::Image) else { return };
        let image = self.sound.store.content(&volume.id, volume.kind);
        // Without a free device there is none to leak.
        if let Ok(device) = self.sound.host.attach_loop(&image, LoopUse::Mount) {
            self.memory().loops.push(device);
        }
    }
}

/// Implements a service: the calls of the first list by the free functions of that name, the others by
/// delegation.
macro_rules! serve {
    ($service:ident {
        altered { $($altered:ident($request:ident) -> $answer:ty;)* }
        sound { $($same:ident($asked:ident) -> $response:ty;)* }
    }) => {
        #[tonic::async_trait]
        impl $service for crate::defect::Defective {
            $(async fn $altered(&self, request: tonic::Request<v1::$request>) -> Answer<$answer> {
                self.around($altered(self, request.into_inner())).await
            })*
            $(async fn $same(&self, request: tonic::Request<v1::$asked>) -> Answer<$response> {
                self.around($service::$same(&self.sound, request)).await
            })*
        }
    };
}
pub(super) use serve;
