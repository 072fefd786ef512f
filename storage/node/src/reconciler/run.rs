//! Carries out the planner's decisions: starts operations as tasks, and processes their results.
//!
//! The manager never waits: everything that takes time runs as a task that sends a [`Notice`] when it is done,
//! and the manager's owner passes it back. So all state is in one place, without locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tracing::Instrument as _;

use super::{
    Decision, Facts, Moment, Notice, Operation, VolumeManager, Wait, manager::Finished, meter::Ended, plan,
    size::Grew,
};
use crate::{
    actual::Outcome,
    effects::Host,
    operations::{OperationError, Work},
    pods::Eviction,
    volumes::{DriverPolicy, EmptyDir, Form, PodUid, VolumeKey, VolumeSpec, empty_dir::Medium},
};

/// Delay after a failed write of `volumesInUse`.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// Interval of repeated publication, for a driver with `requiresRepublish`. Upstream repeats it with every sync
/// of a pod, which happens every minute to minute and a half.
const REPUBLISH: Duration = Duration::from_secs(60);

impl<H: Host> VolumeManager<H> {
    /// Processes a task's report.
    pub fn notice(&mut self, notice: Notice, now: Moment) {
        match notice {
            Notice::Finished(finished) => self.finished(finished, now),
            Notice::InUseWritten { success } => {
                self.in_use.ended(success);
                let waiting = std::mem::take(&mut self.waiting);
                let (in_use, others) = waiting.into_iter().partition(|(_, wait)| *wait == Wait::InUse);
                self.waiting = others;
                self.due.extend(BTreeMap::into_keys(in_use));
                if success {
                    self.write_in_use();
                } else {
                    let notices = self.notices.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(WRITE_AGAIN).await;
                        // The receiver is gone when the agent stops.
                        let _ = notices.send(Notice::WriteAgain);
                    });
                }
            }
            Notice::WriteAgain => self.write_in_use(),
            Notice::Object(update) => {
                let keys = self.objects.learn(update);
                self.outdate(keys);
            }
            Notice::Measured { key, bytes } => {
                let over = self.limits.measured(&key, bytes);
                self.evicted.extend(over.map(|(pod, message)| (pod, Eviction::OverLimit(message))));
            }
            Notice::AllocatableUpdated { driver } => self.allocatable_updated(&driver),
        }
    }

    /// Plans every due volume and starts the operations; returns the pods with changed volumes, and the time of
    /// the next call without an event.
    pub fn settle(&mut self, now: Moment) -> (BTreeSet<PodUid>, Option<Moment>) {
        self.due.extend(expired(&mut self.timers, now));
        let renewals = expired(&mut self.renewals, now);
        self.outdate(renewals);
        while let Some(key) = self.due.pop_first() {
            self.settle_one(&key, now);
        }
        self.write_in_use();
        self.measure(now);
        self.report_waiting(now);
        let update = self.update_allocatable(now);
        let touched = std::mem::take(&mut self.touched);
        for pod in &touched {
            if self.volumes(pod).ready {
                self.waits.remove(pod);
            }
        }
        let timers = self.timers.values().chain(self.renewals.values()).copied();
        let waits = self.waits.values().map(|(_, until)| *until);
        (touched, timers.chain(waits).chain(self.limits.next()).chain(update).min())
    }

    fn measure(&mut self, now: Moment) {
        for key in self.limits.due(now) {
            let VolumeKey::Local { pod, name, .. } = &key else { continue };
            let path = self.executor.layout.pod_mount(pod, &key, name);
            let (executor, notices) = (self.executor.clone(), self.notices.clone());
            tokio::spawn(async move {
                match executor.blocking(move |host| host.usage(&path)).await {
                    // The receiver is gone when the agent stops.
                    Ok(bytes) => drop(notices.send(Notice::Measured { key, bytes })),
                    Err(error) => tracing::debug!(volume = %key, %error, "not measured"),
                }
            });
        }
    }

    fn settle_one(&mut self, key: &VolumeKey, now: Moment) {
        if self.actual.get(key).is_none_or(|volume| volume.running.is_none()) && self.outdated.remove(key) {
            self.actual.outdate(key);
        }
        let policy = self.policy(key);
        self.note_size(key);
        self.watch_over(key, policy.as_ref(), now);
        let (desired, actual) = (self.desired.get(key), self.actual.get(key));
        let here = desired.is_some() || actual.is_some_and(|volume| !volume.is_deleted());
        let attaches =
            matches!(key, VolumeKey::Csi { .. }) && policy.as_ref().is_some_and(|p| p.attach_required);
        self.references.attachment(key, desired.is_some() && attaches, &self.executor.node);
        self.in_use.want(key, here && attaches);
        let grows = actual.is_some_and(|volume| volume.running.is_none())
            && self.writer(key).is_some()
            && self.growth(key).is_some();
        let decision = plan(desired, actual, Facts { grows, ..self.facts(key, attaches) }, now);
        self.timers.remove(key);
        let before = self.waiting.remove(key);
        let expected = desired.is_some();
        self.measured.awaits(key, matches!(decision, Decision::Wait(Wait::Attach)), expected, now);
        match decision {
            Decision::Rest => {
                if !expected {
                    self.actual.forget_if_unused(key);
                }
            }
            Decision::Run(operation) => self.start(key, operation, policy),
            Decision::Wait(wait) => {
                if wait == Wait::Driver && before != Some(Wait::Driver) {
                    self.report_missing_driver(key);
                }
                if let Wait::Until(at) = wait {
                    self.timers.insert(key.clone(), at);
                }
                self.waiting.insert(key.clone(), wait);
            }
        }
    }

    /// Sets the timers of a volume that needs planning without an event: because of its size limit, or because
    /// its driver requires republication.
    fn watch_over(&mut self, key: &VolumeKey, policy: Option<&DriverPolicy>, now: Moment) {
        let Some(desired) = self.desired.get(key) else { return };
        if let VolumeSpec::EmptyDir(EmptyDir { medium: Medium::Disk, limit: Some(limit) }) = &desired.spec {
            self.limits.watch(key, limit, now);
        }
        let mounted = self.actual.get(key).is_some_and(|v| v.running.is_none() && !v.pods.is_empty());
        if mounted && policy.is_some_and(|policy| policy.republish) {
            self.renewals.entry(key.clone()).or_insert(now + REPUBLISH);
        }
    }

    fn facts(&self, key: &VolumeKey, attaches: bool) -> Facts<'_> {
        Facts {
            has_device: matches!(key, VolumeKey::Csi { .. }),
            reachable: key.driver().is_none_or(|driver| self.drivers.contains_key(driver)),
            attached: !attaches || self.publish_context(key).is_some(),
            controller_attaches: self.controller_attaches,
            in_use: !attaches || self.in_use.promised(key),
            grows: false,
            content: self.objects.snapshot(key).is_some(),
            held: &self.held,
        }
    }

    fn start(&mut self, key: &VolumeKey, operation: Operation, policy: Option<DriverPolicy>) {
        let directory = operation.target().map(|pod| self.directory(key, pod)).unwrap_or_default();
        let Some(work) = self.work(key, &operation, policy, &directory) else { return };
        let span = tracing::info_span!("operation", volume = %key, ?operation);
        span.in_scope(|| tracing::debug!("start"));
        match &work {
            Work::Stage { volume, .. } => self.actual.set_form(key, volume.form.clone()),
            Work::Publish { mount, growth: None, .. } if mount.read_only && self.growth(key).is_some() => {
                self.report_expansion_failure(key, &operation);
            }
            _ => {}
        }
        self.actual.begin(key, operation);
        let (executor, notices, key) = (self.executor.clone(), self.notices.clone(), key.clone());
        let run = async move {
            let began = Instant::now();
            let result = executor.run(work).await;
            let took = began.elapsed();
            let outcome = result.as_ref().err().map_or(Outcome::Done, |error| error.outcome());
            let gain = result.as_ref().ok().copied().unwrap_or_default();
            let growth = match &result {
                Err(OperationError::Expand(failed)) if failed.is_final() => Some(Grew::Failed),
                _ => gain.expanded.map(Grew::Ended),
            };
            let (renew, error) = (gain.renew, result.err().map(|error| error.to_string()));
            // The receiver is gone when the agent stops.
            let finished = Finished { key, outcome, took, error, directory, renew, growth };
            let _ = notices.send(Notice::Finished(finished));
        };
        tokio::spawn(run.instrument(span));
    }

    fn finished(&mut self, finished: Finished, now: Moment) {
        let Finished { key, outcome, took, error, directory, renew, growth } = finished;
        let running = self.actual.get(&key).and_then(|volume| volume.running.clone());
        if let Some(operation) = &running {
            let block = self.actual.get(&key).is_some_and(|volume| volume.form != Form::Filesystem);
            let ended = Ended { key: &key, operation, block, took, success: error.is_none() };
            self.measured.ended(&ended, now);
        }
        if let (Some(operation), Some(error)) = (&running, &error) {
            tracing::warn!(volume = %key, ?operation, %error, "operation failed");
            self.report_failure(&key, operation, error);
        }
        self.actual.end(&key, outcome, &directory, now);
        if let (Some(operation), Some(growth)) = (&running, growth) {
            self.grew(&key, operation, growth);
        }
        self.touched.extend(running.as_ref().and_then(Operation::target).cloned());
        if let Some(renew) = renew.filter(|_| self.desired.get(&key).is_some()) {
            self.renewals.insert(key.clone(), now + renew);
        }
        self.due.insert(key);
    }

    /// Sends the next list of volumes in use, if one is due.
    ///
    /// The kubelet alone writes the list, so the patch carries no version: it would only collide with the
    /// attach/detach controller's writes to the same object.
    fn write_in_use(&mut self) {
        let Some(volumes) = self.in_use.begin() else { return };
        let api: Api<Node> = Api::all(self.client.clone());
        let (name, informer, notices) =
            (self.executor.node.clone(), self.informer.clone(), self.notices.clone());
        tokio::spawn(async move {
            let patch = Patch::Merge(json!({"status": {"volumesInUse": volumes}}));
            let result = api.patch_status(&name, &PatchParams::default(), &patch).await;
            let success = result.is_ok();
            match result {
                Ok(node) => informer.apply(node),
                Err(error) => tracing::warn!(%error, "cannot write volumesInUse; mounts wait for it"),
            }
            // The receiver is gone when the agent stops.
            let _ = notices.send(Notice::InUseWritten { success });
        });
    }
}

/// Removes and returns those with an expired timer.
fn expired(timers: &mut BTreeMap<VolumeKey, Moment>, now: Moment) -> BTreeSet<VolumeKey> {
    let expired: BTreeSet<VolumeKey> =
        timers.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
    timers.retain(|key, _| !expired.contains(key));
    expired
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
