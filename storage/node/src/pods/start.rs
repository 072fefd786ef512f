//! Starts one attempt of a container: looks up the sources of its variables, opens sub paths of volumes,
//! creates its files, and calls the runtime.

use std::{collections::BTreeMap, error::Error, sync::Arc};

use claimcheck_informer::{EventRecorder, Informer};
use claimcheck_model::Stamp;
use claimcheck_runtime::{Runtime, RuntimeError};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Client;

use super::{
    containers::ContainerId,
    environment::{self, EnvFile, EnvFiles, Facts},
    images::{PodImage, entrypoint},
    restarts::Backoff,
    spec::{Prepared, SpecError, container_spec},
};
use crate::{
    effects::Host,
    layout::Layout,
    logs::{LogClock, times_path},
    volumes::{
        Place,
        content::{self, Snapshot},
        sub_path,
    },
};

/// Dependencies of the pod manager.
pub struct Node<R, H> {
    /// The container runtime.
    pub runtime: Arc<R>,
    /// The host.
    pub host: Arc<H>,
    /// The kubelet's tree.
    pub layout: Layout,
    /// Timestamps of their logs.
    pub clock: LogClock,
    /// The API server.
    pub client: Client,
    /// The watch cache.
    pub informer: Informer,
    /// For events.
    pub recorder: EventRecorder,
    /// The node's name.
    pub name: String,
    /// The node's address.
    pub host_ip: String,
    /// The restart back-off of containers.
    pub backoff: Backoff,
    /// The programs that stand for images.
    pub images: Arc<[PodImage]>,
}

/// Why a container is not running.
#[derive(Clone, Debug)]
pub enum NotStarted {
    /// A precondition is missing (so far).
    Waiting {
        /// The reason, as in `status.containerStatuses[].state.waiting.reason`.
        reason: &'static str,
        /// The message for the user.
        message: String,
    },
    /// The runtime failed to start its program.
    Failed {
        /// The message for the user.
        message: String,
    },
}

impl NotStarted {
    /// The spec refers to something that does not exist.
    pub fn config(error: &(dyn Error + 'static)) -> Self {
        Self::Waiting { reason: "CreateContainerConfigError", message: error.to_string() }
    }

    /// A resource of the node is missing.
    fn create(error: &(dyn Error + 'static)) -> Self {
        Self::Waiting { reason: "CreateContainerError", message: with_sources(error) }
    }

    fn run(error: &RuntimeError) -> Self {
        match error {
            RuntimeError::Refused { .. } => Self::Failed { message: with_sources(error) },
            RuntimeError::Open { .. } | RuntimeError::Gone { .. } => Self::create(error),
        }
    }
}

impl<R, H> Clone for Node<R, H> {
    fn clone(&self) -> Self {
        Self {
            runtime: self.runtime.clone(),
            host: self.host.clone(),
            layout: self.layout.clone(),
            clock: self.clock.clone(),
            client: self.client.clone(),
            informer: self.informer.clone(),
            recorder: self.recorder.clone(),
            name: self.name.clone(),
            host_ip: self.host_ip.clone(),
            backoff: self.backoff,
            images: self.images.clone(),
        }
    }
}

impl<R: Runtime, H: Host> Node<R, H> {
    /// The runtime's specification, with the source objects of variables looked up. `places` are the pod's
    /// volumes by name.
    ///
    /// # Errors
    /// If the spec refers to something that does not exist.
    pub async fn prepare(
        &self,
        pod: &Pod,
        container: &Container,
        id: &ContainerId,
        places: &BTreeMap<String, Place>,
    ) -> Result<Prepared, SpecError> {
        let mut objects = Snapshot::new();
        for object in environment::objects(pod, container) {
            let known = content::fetch(&self.client, &object).await;
            objects.insert(object, known);
        }
        let allocatable = {
            let world = self.informer.read();
            let node = world.nodes.named(&self.name);
            node.and_then(|node| node.status.as_ref()?.allocatable.clone()).unwrap_or_default()
        };
        let files = read_files(container, places);
        let facts = Facts {
            pod,
            objects: &objects,
            files: &files,
            allocatable: &allocatable,
            host_ip: &self.host_ip,
        };
        let program = container.image.as_deref().and_then(|image| entrypoint(&self.images, image));
        container_spec(container, id, &self.layout, &facts, program, |name| places.get(name).cloned())
    }

    /// Creates the container's files, and starts it; returns its start time.
    ///
    /// # Errors
    /// See [`NotStarted`].
    pub async fn launch(&self, id: &ContainerId, prepared: Prepared) -> Result<Stamp, NotStarted> {
        let Prepared { mut spec, parts } = prepared;
        let mut opened = Vec::new();
        for (index, path) in parts {
            let source = &mut spec.mounts[index].source;
            let part = sub_path::open_in(source, &path).map_err(|error| NotStarted::config(&error))?;
            *source = part.path();
            // Held until the runtime has them.
            opened.push(part);
        }
        let message = self.layout.termination_message(&id.pod, &id.container, id.attempt);
        self.host
            .make_dir(&self.layout.container(&id.pod, &id.container))
            .and_then(|()| self.host.write(&message, b""))
            .and_then(|()| self.host.open_to_all(&message))
            .and_then(|()| self.host.write(&spec.log_path, b""))
            .map_err(|error| NotStarted::create(&error))?;
        self.clock.watch(&spec.log_path);
        // The latest two are kept: what runs, and what ran before, for its log and exit reason.
        if let Some(attempt) = id.attempt.checked_sub(2) {
            self.discard(&ContainerId { attempt, ..id.clone() }).await;
        }
        let started = Stamp::now();
        self.runtime.start(spec).await.map_err(|error| NotStarted::run(&error))?;
        Ok(started)
    }

    /// Removes an old attempt. Remains are removed with the pod.
    async fn discard(&self, id: &ContainerId) {
        let _ = self.runtime.remove(&id.to_string()).await;
        let message = self.layout.termination_message(&id.pod, &id.container, id.attempt);
        let log = self.layout.container_log(&id.pod, &id.container, id.attempt);
        self.clock.forget(&log);
        for path in [message, times_path(&log), log] {
            if let Err(error) = self.host.remove(&path) {
                tracing::debug!(path = %path.display(), %error, "not removed");
            }
        }
    }
}

/// The files of variables, in volumes that the container need not mount.
fn read_files(container: &Container, places: &BTreeMap<String, Place>) -> EnvFiles {
    let read = |(volume, path): &environment::FileRef| {
        let Some(place) = places.get(volume) else { return EnvFile::NoVolume };
        let shown = place.path.join(path).display().to_string();
        match sub_path::read_in(&place.path, path) {
            Ok(text) => EnvFile::Read { path: shown, text: String::from_utf8_lossy(&text).into_owned() },
            Err(error) => {
                tracing::warn!(path = shown, %error, "a file of variables cannot be read");
                EnvFile::Unreadable
            }
        }
    };
    let files = environment::files(container);
    files.into_iter().map(|file| (file.clone(), read(&file))).collect()
}

/// An error with its sources, for the user.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
