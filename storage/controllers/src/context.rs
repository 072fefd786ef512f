//! Access of a shell to the cluster: reads from the shared cache, writes to the API server.
//!
//! Every write except those that [remove a finalizer](Context::release) carries the resourceVersion it was
//! decided on, and its response enters the cache at once. A write with an outdated version puts the current
//! state into the cache and returns [`Failure::Conflict`], so that the shell plans again.

use std::time::Duration;

use claimcheck_informer::{
    Backoff, Cached, EventRecorder, EventType, Informer, Kind, Watchable, World, key_of, reference,
};
use claimcheck_model::{Meter, ObjectKey, meter::Reading};
use kube::{
    Client,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::resync;

/// Why an action failed.
#[derive(Debug)]
pub enum Failure {
    /// It was decided on an outdated state. The cache has the current one: plan again, now.
    Conflict,
    /// It failed: plan again after the key's backoff. An event was emitted if that is the component's duty; the
    /// shell logs the error.
    Transient(Box<dyn std::error::Error + Send + Sync>),
}

impl Failure {
    /// Whether the API server rejected the request because the component lacks the permission.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Conflict => false,
            Self::Transient(error) => matches!(
                error.downcast_ref::<Error>(),
                Some(Error::Request { source: kube::Error::Api(status), .. }) if status.is_forbidden()
            ),
        }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Transient(Box::new(error))
    }
}

/// A failed request to the API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server rejected it, or is unreachable.
    #[error("cannot {verb} {} {key}", kind.name())]
    Request {
        /// The operation.
        verb: Verb,
        /// The kind of the object.
        kind: Kind,
        /// The object.
        key: ObjectKey,
        /// The client's error.
        source: kube::Error,
    },
    /// The object cannot be serialized as JSON.
    #[error("cannot write {} {key} as JSON", kind.name())]
    Encode {
        /// The kind of the object.
        kind: Kind,
        /// The object.
        key: ObjectKey,
        /// The serializer's error.
        source: serde_json::Error,
    },
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET.
    Read,
    /// POST.
    Create,
    /// PATCH, of the object or its status.
    Patch,
    /// POST to a pod's binding.
    Bind,
    /// DELETE.
    Delete,
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Bind => "bind",
            Self::Delete => "delete",
        })
    }
}

/// One component's access to the cluster; clones are cheap and share everything.
#[derive(Clone)]
pub struct Context {
    /// For requests that this type has no method for.
    pub client: Client,
    /// The shared cache.
    pub informer: Informer,
    /// The component's events.
    pub events: EventRecorder,
    /// Metrics of the component.
    pub meter: Meter,
    /// Concurrency and timing.
    pub tuning: Tuning,
}

/// Concurrency and timing of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Number of keys processed concurrently; `None` for the controller's own.
    pub workers: Option<usize>,
    /// Backoff of failed keys; `None` for the controller's own.
    pub backoff: Option<Backoff>,
    /// The interval of resyncs, on average.
    pub resync: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { workers: None, backoff: None, resync: resync::PERIOD }
    }
}

impl Context {
    /// The access of the component, with `component` as the source of its events.
    pub fn new(client: Client, informer: Informer, component: &str) -> Self {
        let events = EventRecorder::new(client.clone(), component);
        Self { events, client, informer, meter: Meter::default(), tuning: Tuning::default() }
    }

    /// Registers the sizes of the cache with the meter, collected on each scrape.
    pub(crate) fn count(&self, readings: fn(&World) -> Vec<Reading>) {
        let informer = self.informer.clone();
        self.meter.collect(move || {
            let readings = readings(&informer.read());
            std::future::ready(readings)
        });
    }

    /// The same access, with `component` as the source of its events.
    #[must_use]
    pub fn signing_as(self, component: &str) -> Self {
        Self { events: EventRecorder::new(self.client.clone(), component), ..self }
    }

    /// The same access, with `component` as the source of its events, which are series as kube-scheduler's.
    #[must_use]
    pub fn with_event_series(self, component: &str) -> Self {
        Self { events: EventRecorder::in_series(self.client.clone(), component), ..self }
    }

    /// The same access, with metrics of its reconciliations.
    #[must_use]
    pub fn with_meter(self, meter: Meter) -> Self {
        Self { meter, ..self }
    }

    /// The same access, with another pace.
    #[must_use]
    pub fn with_tuning(self, tuning: Tuning) -> Self {
        Self { tuning, ..self }
    }

    /// The same access, with so many workers, or as many as the controller has by itself: for the lesser controllers of a
    /// sidecar, to which `--worker-threads` does not apply.
    #[must_use]
    pub fn with_workers(self, workers: Option<usize>) -> Self {
        let tuning = Tuning { workers, ..self.tuning };
        self.with_tuning(tuning)
    }

    /// Emits an event about `object`.
    pub fn event<K: Watchable>(
        &self,
        object: &K,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.events.record(&reference(object), event_type, reason, message);
    }

    /// Creates an object and enters it into the cache. If it exists already, it is read into the cache, and the
    /// failure is [`Failure::Conflict`].
    pub async fn create<K: Watchable + Serialize>(&self, object: &K) -> Result<(), Failure> {
        let key = key_of(object);
        let body = serde_json::to_vec(object).map_err(|source| Error::Encode {
            kind: K::CACHED_AS,
            key: key.clone(),
            source,
        })?;
        let request = collection::<K>(&key).create(&PostParams::default(), body);
        self.write::<K>(Verb::Create, &key, request).await
    }

    /// Merge-patches the object, on the condition that it is still the version given.
    pub async fn patch<K: Watchable>(&self, object: &K, patch: Value) -> Result<(), Failure> {
        let key = key_of(object);
        let patch = conditional(object, patch);
        let request = collection::<K>(&key).patch(&key.name, &PatchParams::default(), &Patch::Merge(patch));
        self.write::<K>(Verb::Patch, &key, request).await
    }

    /// Removes a finalizer from the object, whatever else has changed since: several components remove their own
    /// from a volume at the same moment, each for a reason that is independent of the others' writes. Not for
    /// kinds of a CRD, which do not support strategic merge patches.
    pub async fn release<K: Watchable>(&self, object: &K, finalizer: &str) -> Result<(), Failure> {
        let key = key_of(object);
        let uid = &object.metadata().uid;
        let patch = json!({ "metadata": { "uid": uid, "$deleteFromPrimitiveList/finalizers": [finalizer] } });
        let params = PatchParams::default();
        let request = collection::<K>(&key).patch(&key.name, &params, &Patch::Strategic(patch));
        self.write::<K>(Verb::Patch, &key, request).await
    }

    /// Merge-patches the object's status; `status` is its content. See [`Context::patch`].
    pub async fn patch_status<K: Watchable>(&self, object: &K, status: Value) -> Result<(), Failure> {
        self.patch_with_status(object, json!({ "status": status })).await
    }

    /// Merge-patches the object's status and its metadata, which the status subresource accepts too.
    pub async fn patch_with_status<K: Watchable>(&self, object: &K, patch: Value) -> Result<(), Failure> {
        let key = key_of(object);
        let patch = Patch::Merge(conditional(object, patch));
        let params = PatchParams::default();
        let request = collection::<K>(&key).patch_subresource("status", &key.name, &params, &patch);
        self.write::<K>(Verb::Patch, &key, request).await
    }

    /// Deletes the object, with its uid as a precondition. Succeeds if it does not exist.
    pub async fn delete<K: Watchable>(&self, object: &K) -> Result<(), Failure> {
        self.delete_within(object, None).await
    }

    /// Deletes the object without a grace period; see [`Context::delete`].
    pub async fn delete_now<K: Watchable>(&self, object: &K) -> Result<(), Failure> {
        self.delete_within(object, Some(0)).await
    }

    async fn delete_within<K: Watchable>(&self, object: &K, seconds: Option<u32>) -> Result<(), Failure> {
        let key = key_of(object);
        let uid = object.metadata().uid.clone();
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            grace_period_seconds: seconds,
            ..DeleteParams::default()
        };
        let request = collection::<K>(&key).delete(&key.name, &params).map_err(kube::Error::BuildRequest);
        let answer = match request {
            Ok(request) => self.client.request_status::<K>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => match answer.left() {
                // Finalizers or a grace period hold it: the answer shows it being deleted.
                Some(object) if is_held(&object) => self.informer.apply(object),
                _ => self.informer.forget(K::CACHED_AS, &key),
            },
            Err(source) => return self.failed::<K>(Verb::Delete, &key, source).await,
        }
        Ok(())
    }

    /// Sends a write, and enters its response into the cache.
    async fn write<K: Watchable>(
        &self,
        verb: Verb,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(), Failure> {
        let answer = match request.map_err(kube::Error::BuildRequest) {
            Ok(request) => self.client.request::<K>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(object) => {
                self.informer.apply(object);
                Ok(())
            }
            Err(source) => self.failed::<K>(verb, key, source).await,
        }
    }

    /// Distinguishes outdated decisions from other failures, and updates the cache for the former.
    pub async fn failed<K: Watchable>(
        &self,
        verb: Verb,
        key: &ObjectKey,
        source: kube::Error,
    ) -> Result<(), Failure> {
        match &source {
            kube::Error::Api(status) if status.is_not_found() && verb != Verb::Create => {
                self.informer.forget(K::CACHED_AS, key);
                if verb == Verb::Delete { Ok(()) } else { Err(Failure::Conflict) }
            }
            kube::Error::Api(status)
                if status.is_conflict() || status.is_already_exists() || is_of_successor(status) =>
            {
                self.refresh::<K>(key).await?;
                Err(Failure::Conflict)
            }
            _ => Err(Error::Request { verb, kind: K::CACHED_AS, key: key.clone(), source }.into()),
        }
    }

    /// Reads the object's current state into the cache.
    pub async fn refresh<K: Watchable>(&self, key: &ObjectKey) -> Result<(), Failure> {
        let failed =
            |source| Error::Request { verb: Verb::Read, kind: K::CACHED_AS, key: key.clone(), source };
        let request = collection::<K>(key)
            .get(&key.name, &GetParams::default())
            .map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        match self.client.request::<K>(request).await {
            Ok(object) => self.informer.apply(object),
            Err(kube::Error::Api(status)) if status.is_not_found() => self.informer.forget(K::CACHED_AS, key),
            Err(error) => return Err(failed(error).into()),
        }
        Ok(())
    }
}

/// Whether a patch with the uid of its object found another object of the same name: upstream responds that the uid is
/// immutable (`ValidateObjectMetaAccessorUpdate` in apimachinery's pkg/api/validation), with 422 and not with 409.
fn is_of_successor(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
}

/// The requests to the collection of an object with this key.
fn collection<K: Watchable>(key: &ObjectKey) -> Request {
    let namespace = Some(key.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    Request::new(K::url_path(&(), namespace))
}

/// The patch, with the object's version as a precondition.
fn conditional<K: Cached>(object: &K, mut patch: Value) -> Value {
    if let Some(version) = &object.metadata().resource_version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}

fn is_held<K: Cached>(object: &K) -> bool {
    let meta = object.metadata();
    meta.deletion_timestamp.is_some()
        && (meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty())
            || meta.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0))
}
