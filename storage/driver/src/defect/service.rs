//! The layer in front of the driver's services: defects that affect any call, and the state of defects.

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use claimcheck_csi::v1::list_volumes_response::Entry;
use tonic::{Code, Response, Status};

use super::Defect;
use crate::{
    driver::Driver,
    host::{LoopDevice, LoopUse},
    id::VolumeId,
    parameters::Kind,
    volume::Volume,
};

/// Number of fast calls, with [`Defect::SlowAfterCalls`].
const FAST_CALLS: usize = 300;
/// Duration of each later call.
const SLOWNESS: Duration = Duration::from_millis(200);

pub(super) type Answer<T> = Result<Response<T>, Status>;

/// The response of a defect that reports success without doing the work.
pub(super) fn done<T: Default>() -> Answer<T> {
    Ok(Response::new(T::default()))
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

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of a volume, if there is one of this id.
    pub(super) fn volume(&self, id: &str) -> Option<Volume> {
        self.sound.volume(&VolumeId::parse(id)?).ok()
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
