//! Carries out the plan of the canary, as the leader.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use claimcheck_informer::response;
use claimcheck_model::{
    Stamp,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass},
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, info, warn};

use super::{
    CanaryOptions, LABEL, RunResult, objects,
    plan::{Action, Canary, Item, Removed, all},
};
use crate::{
    life::{Life, Seen},
    run::Shared,
    watch::Watched,
};

/// The time between two plans without a change of an object: deadlines, and what is due.
const TICK: Duration = Duration::from_secs(1);
/// The time between two lists of the classes of snapshots.
const CLASSES_EVERY: Duration = Duration::from_secs(60);
/// The most time for one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The delay after a request that failed.
const BACKOFF: Duration = Duration::from_secs(5);
/// The most time for the removal of all objects at the end.
const END: Duration = Duration::from_secs(5);

/// Runs the canary; does not return.
pub(crate) async fn run(client: &Client, shared: &Shared, options: &CanaryOptions) {
    let mut canary = Canary::new(options.clone());
    let mut requests = Requests::new(client, shared, options);
    let (mut classes, mut classes_at) = (Vec::new(), None::<Instant>);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.canary_changed.notified() => {}
        }
        if classes_at.is_none_or(|at| at.elapsed() >= CLASSES_EVERY) {
            classes_at = Some(Instant::now());
            if let Some(listed) = requests.snapshot_classes().await {
                classes = listed;
            }
        }
        let now = shared.now();
        let plan = |life: &Life| canary.plan(life.world(), life.canary(), &classes, now);
        let actions = shared.read(plan);
        if !requests.carry_out(actions).await {
            tokio::time::sleep(BACKOFF).await;
        }
    }
}

/// Deletes all objects of the canary, without waiting until they no longer exist: another replica does that, if there
/// is one.
pub(crate) async fn clean_up(client: &Client, shared: &Shared, options: &CanaryOptions) {
    let mut requests = Requests::new(client, shared, options);
    let removal = async {
        // A request to create one may have been abandoned before its response.
        requests.read_again().await;
        let actions = shared.read(|life| all(life.world(), life.canary()));
        requests.carry_out(actions).await
    };
    if !timeout(END, removal).await.is_ok_and(|succeeded| succeeded) {
        warn!(
            namespace = options.namespace,
            "not all objects of the canary were deleted: the next leader deletes them after their deadline"
        );
    }
}

/// The requests of the canary.
struct Requests<'a> {
    client: &'a Client,
    shared: &'a Shared,
    options: &'a CanaryOptions,
    /// The last error of each request: one that repeats is logged once.
    failed: BTreeMap<String, String>,
}

impl<'a> Requests<'a> {
    fn new(client: &'a Client, shared: &'a Shared, options: &'a CanaryOptions) -> Self {
        Self { client, shared, options, failed: BTreeMap::new() }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.options.namespace)
    }

    /// The classes of snapshots; without the CRDs none, and `None` if they cannot be listed.
    async fn snapshot_classes(&mut self) -> Option<Vec<VolumeSnapshotClass>> {
        let api = Api::<VolumeSnapshotClass>::all(self.client.clone());
        match bounded(api.list(&ListParams::default())).await {
            Ok(classes) => Some(classes.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Some(Vec::new()),
            Err(error) => {
                self.report("list VolumeSnapshotClasses", &error);
                None
            }
        }
    }

    /// Carries out all actions; returns whether each request succeeded.
    async fn carry_out(&mut self, actions: Vec<Action>) -> bool {
        let mut succeeded = true;
        for action in actions {
            succeeded &= match action {
                Action::Start(run) => {
                    debug!(run = run.name, class = run.class, topology = %run.segment, "the canary starts a run");
                    self.shared.series.canary_starts(&run.class, run.segment.label());
                    true
                }
                Action::Report(run, result) => {
                    let (name, class, namespace) = (&run.name, &run.class, &self.options.namespace);
                    match result {
                        RunResult::Ok => info!(run = name, class, "the canary's run succeeded"),
                        RunResult::Failed => warn!(
                            run = name, class, namespace, topology = %run.segment, deadline = %run.deadline,
                            "the canary's run failed: describe its claim and pod, or look at the monitor's page"
                        ),
                        RunResult::Blocked => warn!(
                            run = name,
                            class,
                            namespace,
                            "the canary cannot start a run: the objects of this earlier run are not deleted"
                        ),
                    }
                    self.shared.series.canary_run(class, run.segment.label(), result);
                    true
                }
                Action::Skip(class, skip) => {
                    warn!(class, remedy = skip.remedy(), "the canary starts no run of this storage class");
                    true
                }
                Action::Create(Item::Claim, run) => self.create(&objects::claim(&run, self.options)).await,
                Action::Create(Item::Pod, run) => self.create(&objects::pod(&run, self.options)).await,
                Action::Create(Item::Snapshot(class), run) => {
                    self.create(&objects::snapshot(&run, &class, self.options)).await
                }
                Action::Delete(Removed::Claim, name, uid) => {
                    self.delete::<PersistentVolumeClaim>(&name, uid).await
                }
                Action::Delete(Removed::Pod, name, uid) => self.delete::<Pod>(&name, uid).await,
                Action::Delete(Removed::Snapshot, name, uid) => {
                    self.delete::<VolumeSnapshot>(&name, uid).await
                }
            };
        }
        succeeded
    }

    /// Creates an object, and enters the response, so that the next plan contains it.
    async fn create<K>(&mut self, object: &K) -> bool
    where
        K: Watched
            + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + serde::Serialize
            + Debug,
    {
        let request = format!("create a {}", K::CACHED_AS.name());
        match bounded(self.api::<K>().create(&PostParams::default(), object)).await {
            Ok(created) => {
                self.enter(created);
                self.failed.remove(&request);
                true
            }
            // By an earlier request without a response; the watch delivers it.
            Err(kube::Error::Api(status)) if status.code == 409 => true,
            Err(error) => self.report(&request, &error),
        }
    }

    /// Deletes an object. Its uid is the only precondition: no change of it is a reason to retain it.
    async fn delete<K>(&mut self, name: &str, uid: String) -> bool
    where
        K: Watched + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let preconditions = Preconditions { uid: Some(uid), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match bounded(self.api::<K>().delete(name, &params)).await {
            Ok(answer) => {
                // While finalizers hold it. One that was deleted at once may be returned, too: the watch removes it.
                if let Some(deleting) = answer.left()
                    && deleting.metadata().deletion_timestamp.is_some()
                {
                    self.enter(deleting);
                }
                true
            }
            // It no longer exists, or another one has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => true,
            Err(error) => self.report(&format!("delete {} {name}", K::CACHED_AS.name()), &error),
        }
    }

    /// Enters what exists now, without waiting for the watches.
    async fn read_again(&self) {
        tokio::join!(self.read::<PersistentVolumeClaim>(), self.read::<Pod>(), self.read::<VolumeSnapshot>());
    }

    async fn read<K>(&self)
    where
        K: Watched + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
    {
        match bounded(self.api::<K>().list(&ListParams::default().labels(LABEL))).await {
            Ok(listed) => listed.items.into_iter().for_each(|object| self.enter(object)),
            // Snapshots may not be served; otherwise what is known is deleted.
            Err(error) => debug!(kind = K::CACHED_AS.name(), %error, "the canary's objects cannot be listed"),
        }
    }

    fn enter<K: Watched>(&self, object: K) {
        let now = Stamp::now();
        self.shared.change(|life| life.enter(object, Seen::Live(now), now));
    }

    /// Reports a request that failed, and returns false.
    fn report(&mut self, request: &str, error: &kube::Error) -> bool {
        let message = response::message(error);
        let namespace = &self.options.namespace;
        if self.failed.get(request) == Some(&message) {
            debug!(request, error = message, "a request of the canary failed again");
        } else {
            let remedy = remedy(error, namespace);
            warn!(namespace, request, error = message, remedy, "a request of the canary failed");
            self.failed.insert(request.to_owned(), message);
        }
        false
    }
}

/// What to do about a request that failed.
fn remedy(error: &kube::Error, namespace: &str) -> String {
    let kube::Error::Api(status) = error else { return "it is tried again".to_owned() };
    match status.code {
        403 if status.message.contains("exceeded quota") => {
            format!("raise the quota of namespace {namespace}, or lower --canary-limit and --canary-size")
        }
        403 if status.message.contains("is forbidden: User") => {
            "apply manifests/monitor/canary, which has the Role, or bind one with this right".to_owned()
        }
        403 => format!("an admission plugin rejects it: change its policy for namespace {namespace}"),
        404 => format!("create namespace {namespace}: it is part of manifests/monitor/canary"),
        400 | 422 => "check --canary-size, --canary-image and the storage class".to_owned(),
        _ => "it is tried again".to_owned(),
    }
}

/// A request, of which the response must not take long.
async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    timeout(PATIENCE, request).await.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn each_rejection_has_its_remedy() {
        let quota = "persistentvolumeclaims \"c\" is forbidden: exceeded quota: one, requested: \
                     persistentvolumeclaims=1, used: persistentvolumeclaims=1, limited: persistentvolumeclaims=1";
        let right = "pods is forbidden: User \"system:serviceaccount:m:m\" cannot create resource \"pods\" in API group \
                     \"\" in the namespace \"canary\"";
        let policy = "pods \"c\" is forbidden: violates PodSecurity \"restricted:latest\": seccompProfile";
        for (code, message, expected) in [
            (403, quota, "raise the quota of namespace canary"),
            (403, right, "apply manifests/monitor/canary"),
            (403, policy, "an admission plugin rejects it"),
            (404, "namespaces \"canary\" not found", "create namespace canary"),
            (422, "PersistentVolumeClaim \"c\" is invalid: spec.resources", "check --canary-size"),
            (500, "etcdserver: request timed out", "it is tried again"),
        ] {
            let status = Status::failure(message, "").with_code(code).boxed();
            let remedy = remedy(&kube::Error::Api(status), "canary");
            assert!(remedy.starts_with(expected), "{message}: {remedy}");
        }
    }
}
