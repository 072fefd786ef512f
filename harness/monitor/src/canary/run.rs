//! Carries out the plan of the canary, as the leader.

use std::{fmt::Debug, time::Duration};

use claimcheck_model::{
    Stamp,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass},
};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, info, warn};

use super::{
    CanaryOptions, RunResult, objects,
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
            if let Some(listed) = snapshot_classes(client).await {
                classes = listed;
            }
        }
        let plan = |life: &Life| canary.plan(life.world(), life.canary(), &classes, Timestamp::now());
        let actions = shared.read(plan);
        if !carry_out(client, shared, options, actions).await {
            tokio::time::sleep(BACKOFF).await;
        }
    }
}

/// Deletes all objects of the canary, without waiting until they no longer exist: another replica does that, if there
/// is one.
pub(crate) async fn clean_up(client: &Client, shared: &Shared, options: &CanaryOptions) {
    let actions = shared.read(|life| all(life.world(), life.canary()));
    if timeout(END, carry_out(client, shared, options, actions)).await.is_err() {
        warn!(
            namespace = options.namespace,
            "not all objects of the canary were deleted: the next leader deletes them after their deadline"
        );
    }
}

/// The classes of snapshots; without the CRDs none, and `None` if they cannot be listed.
async fn snapshot_classes(client: &Client) -> Option<Vec<VolumeSnapshotClass>> {
    let api = Api::<VolumeSnapshotClass>::all(client.clone());
    match bounded(api.list(&ListParams::default())).await {
        Ok(classes) => Some(classes.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Some(Vec::new()),
        Err(error) => {
            warn!(
                %error,
                "cannot list VolumeSnapshotClasses: apply manifests/monitor/canary, or the canary creates no snapshots"
            );
            None
        }
    }
}

/// Carries out all actions; returns whether each request succeeded.
async fn carry_out(client: &Client, shared: &Shared, options: &CanaryOptions, actions: Vec<Action>) -> bool {
    let mut succeeded = true;
    let namespace = &options.namespace;
    for action in actions {
        succeeded &= match action {
            Action::Start(run) => {
                debug!(run = run.name, class = run.class, topology = %run.segment, "the canary starts a run");
                shared.series.canary_starts(&run.class, run.segment.label());
                true
            }
            Action::Report(run, result) => {
                let (name, class) = (&run.name, &run.class);
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
                shared.series.canary_run(class, run.segment.label(), result);
                true
            }
            Action::Skip(class, skip) => {
                warn!(class, remedy = skip.remedy(), "the canary starts no run of this storage class");
                true
            }
            Action::Create(Item::Claim, run) => {
                create(client, shared, namespace, &objects::claim(&run, options)).await
            }
            Action::Create(Item::Pod, run) => {
                create(client, shared, namespace, &objects::pod(&run, options)).await
            }
            Action::Create(Item::Snapshot(class), run) => {
                create(client, shared, namespace, &objects::snapshot(&run, &class, options)).await
            }
            Action::Delete(Removed::Claim, name, uid) => {
                delete::<PersistentVolumeClaim>(client, shared, namespace, &name, uid).await
            }
            Action::Delete(Removed::Pod, name, uid) => {
                delete::<Pod>(client, shared, namespace, &name, uid).await
            }
            Action::Delete(Removed::Snapshot, name, uid) => {
                delete::<VolumeSnapshot>(client, shared, namespace, &name, uid).await
            }
        };
    }
    succeeded
}

/// Creates an object, and enters the response, so that the next plan contains it.
async fn create<K>(client: &Client, shared: &Shared, namespace: &str, object: &K) -> bool
where
    K: Watched + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + serde::Serialize + Debug,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    match bounded(api.create(&PostParams::default(), object)).await {
        Ok(created) => {
            enter(shared, created);
            true
        }
        // By an earlier request without a response; the watch delivers it.
        Err(kube::Error::Api(status)) if status.code == 409 => true,
        Err(error) => {
            warn!(
                kind = K::CACHED_AS.name(), namespace, %error,
                "the canary cannot create an object: apply manifests/monitor/canary"
            );
            false
        }
    }
}

/// Deletes an object. Its uid is the only precondition: no change of it is a reason to retain it.
async fn delete<K>(client: &Client, shared: &Shared, namespace: &str, name: &str, uid: String) -> bool
where
    K: Watched + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let preconditions = Preconditions { uid: Some(uid), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match bounded(api.delete(name, &params)).await {
        Ok(answer) => {
            // While finalizers hold it. One that was deleted at once may be returned, too: the watch removes it.
            if let Some(deleting) = answer.left()
                && deleting.metadata().deletion_timestamp.is_some()
            {
                enter(shared, deleting);
            }
            true
        }
        // It no longer exists, or another one has its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => true,
        Err(error) => {
            warn!(
                kind = K::CACHED_AS.name(), namespace, name, %error,
                "the canary cannot delete an object: apply manifests/monitor/canary"
            );
            false
        }
    }
}

fn enter<K: Watched>(shared: &Shared, object: K) {
    let now = Stamp::now();
    shared.change(|life| life.enter(object, Seen::Live(now), now));
}

/// A request, of which the response must not take long.
async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    timeout(PATIENCE, request).await.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
}
