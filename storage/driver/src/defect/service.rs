//! The layer in front of the driver's services, and the state of defects.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tonic::{Response, Status};

use super::Defect;
use crate::{
    driver::Driver,
    host::{LoopDevice, LoopUse},
    id::VolumeId,
    parameters::Kind,
    volume::Volume,
};

/// Duration of a call that callers are expected to cancel.
const CANCELLABLE: Duration = Duration::from_millis(100);

pub(super) type Answer<T> = Result<Response<T>, Status>;

/// The response of a defect that reports success without doing the work.
pub(super) fn done<T: Default>() -> Answer<T> {
    Ok(Response::new(T::default()))
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
    memory: Arc<Mutex<Memory>>,
}

/// State of the defects.
#[derive(Default)]
pub(super) struct Memory {
    /// Leaked loop devices; the kernel clears them when the process exits.
    pub loops: Vec<LoopDevice>,
    /// The volumes of which a call was cancelled.
    pub cancelled: BTreeSet<String>,
}

impl Defective {
    pub(super) fn new(sound: Driver, defect: Defect) -> Self {
        Self { sound, defect, memory: Arc::default() }
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
                $altered(self, request.into_inner()).await
            })*
            $(async fn $same(&self, request: tonic::Request<v1::$asked>) -> Answer<$response> {
                $service::$same(&self.sound, request).await
            })*
        }
    };
}
pub(super) use serve;
