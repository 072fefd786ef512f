//! Acquires, renews and releases the lease.

use std::{pin::pin, time::Duration};

use claimcheck_informer::response;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::{
    Election,
    plan::{Step, held, plan, released, until_renewal},
};

/// Why leadership was lost. Another process may be active now: this process must exit.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// Another process has acquired the lease.
    #[error("lease {lease} is held by {holder:?} now, so this process must exit")]
    Taken {
        /// Namespace and name.
        lease: String,
        /// Its holder.
        holder: String,
    },
    /// The lease could not be renewed in time.
    #[error("lease {lease} could not be renewed for {waited:?}, so this process must exit")]
    Silent {
        /// Namespace and name.
        lease: String,
        /// Duration of the attempts.
        waited: Duration,
        /// The last error; `None` if there was no response.
        #[source]
        source: Option<Box<kube::Error>>,
    },
}

/// A process that is a candidate, or the leader.
pub struct Elector {
    api: Api<Lease>,
    election: Election,
    /// The lease as observed last.
    seen: Option<Lease>,
    /// When it was first observed so.
    since: Instant,
}

impl Elector {
    /// A candidate.
    pub fn new(client: Client, election: Election) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        Self { api, election, seen: None, since: Instant::now() }
    }

    /// Returns once this process holds the lease. An unresponsive API server is waited for.
    pub async fn acquire(&mut self) {
        let lease = self.lease();
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.election.name));
        let mut events = watcher(self.api.clone(), only).default_backoff().boxed();
        // The error that was reported last: one that lasts is reported once.
        let mut reported = None;
        self.look().await;
        loop {
            let pause = match plan(self.spec(), self.since.elapsed(), &self.election.identity) {
                Step::Wait(left) => {
                    let holder = self.spec().and_then(|lease| lease.holder_identity.as_deref());
                    debug!(lease, holder, "waiting for the lease");
                    left
                }
                step => match self.write(step).await {
                    Ok(()) => {
                        info!(lease, identity = self.election.identity, "leads");
                        return;
                    }
                    // The second: it was deleted while the watch was interrupted.
                    Err(error) if is_conflict(&error) || (is_missing(&error) && self.seen.is_some()) => {
                        self.look().await;
                        continue;
                    }
                    Err(error) => {
                        let error = response::message(&error);
                        if reported.as_ref() == Some(&error) {
                            debug!(lease, error, "cannot acquire the lease, retrying");
                        } else {
                            warn!(lease, error, "cannot acquire the lease, retrying");
                            reported = Some(error);
                        }
                        self.election.timing.retry
                    }
                },
            };
            // Only a changed lease is a reason to decide earlier: the events of a watch that fails are not.
            let mut pause = pin!(sleep(pause));
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease))) => {
                            self.see(Some(lease));
                            break;
                        }
                        Some(Ok(watcher::Event::Delete(_))) => {
                            self.see(None);
                            break;
                        }
                        Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => {}
                        Some(Err(error)) => {
                            let error = response::watch_error(&error);
                            debug!(lease, error, "the watch failed and will be restarted");
                        }
                        None => unreachable!("a watcher goes on for ever"),
                    },
                    () = &mut pause => break,
                }
            }
        }
    }

    /// Renews the lease until that fails.
    pub async fn hold(&mut self) -> LeaderError {
        let timing = self.election.timing;
        let mut renewed = Instant::now();
        let mut failed = false;
        loop {
            sleep(until_renewal(timing, failed)).await;
            let left = timing.deadline.saturating_sub(renewed.elapsed());
            let source = match timeout(left, self.renew()).await {
                Ok(Ok(None)) => {
                    (renewed, failed) = (Instant::now(), false);
                    continue;
                }
                Ok(Ok(Some(holder))) => return LeaderError::Taken { lease: self.lease(), holder },
                Ok(Err(error)) => {
                    let message = response::message(&error);
                    warn!(lease = self.lease(), error = message, "cannot renew the lease, retrying");
                    Some(Box::new(error))
                }
                Err(_) => None,
            };
            failed = true;
            if renewed.elapsed() + until_renewal(timing, failed) >= timing.deadline {
                return LeaderError::Silent { lease: self.lease(), waited: renewed.elapsed(), source };
            }
        }
    }

    /// Releases the lease, so that another process need not wait for its expiry. Best effort, for as long as a
    /// renewal is tried (as `release` in client-go's `leaderelection.go`): it expires by itself.
    pub async fn release(&mut self) {
        match timeout(self.election.timing.deadline, self.give_back()).await {
            Ok(Ok(())) => info!(lease = self.lease(), "released the lease"),
            Ok(Err(error)) => {
                let error = response::message(&error);
                warn!(lease = self.lease(), error, "cannot release the lease");
            }
            Err(_) => warn!(lease = self.lease(), "releasing the lease timed out"),
        }
    }

    async fn give_back(&mut self) -> kube::Result<()> {
        loop {
            let Some(spec) = self.spec() else { return Ok(()) };
            if spec.holder_identity.as_deref() != Some(&self.election.identity) {
                return Ok(());
            }
            match self.put(released(spec, Timestamp::now())).await {
                // A renewal that was abandoned before its response, or the write of another process.
                Err(error) if is_conflict(&error) => {
                    let found = self.api.get_opt(&self.election.name).await?;
                    self.see(found);
                }
                result => return result,
            }
        }
    }

    /// Renews once; returns the current holder, if it is another process.
    async fn renew(&mut self) -> kube::Result<Option<String>> {
        loop {
            match self.write(Step::Renew).await {
                Ok(()) => return Ok(None),
                Err(error) if is_conflict(&error) || is_missing(&error) => {}
                Err(error) => return Err(error),
            }
            // It was written or deleted by another client; this process may still be the holder.
            let found = self.api.get_opt(&self.election.name).await?;
            self.see(found);
            let holder = self.spec().and_then(|lease| lease.holder_identity.clone()).unwrap_or_default();
            if self.seen.is_some() && holder != self.election.identity {
                return Ok(Some(holder));
            }
        }
    }

    /// Writes the lease as held by this process. `Create`, and `Renew` of a deleted lease, create it.
    async fn write(&mut self, step: Step) -> kube::Result<()> {
        debug!(lease = self.lease(), ?step, "writing the lease");
        let desired = held(self.spec(), &self.election.identity, Timestamp::now(), self.election.timing);
        self.put(desired).await
    }

    async fn put(&mut self, spec: LeaseSpec) -> kube::Result<()> {
        let name = &self.election.name;
        let known = self.seen.is_some();
        let mut lease = self.seen.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        lease.spec = Some(spec);
        if !self.election.labels.is_empty() {
            lease.metadata.labels.get_or_insert_default().extend(self.election.labels.clone());
        }
        let written = match known {
            true => self.api.replace(name, &PostParams::default(), &lease).await?,
            false => self.api.create(&PostParams::default(), &lease).await?,
        };
        self.see(Some(written));
        Ok(())
    }

    /// Reads the lease. On failure the known state is kept.
    async fn look(&mut self) {
        match self.api.get_opt(&self.election.name).await {
            Ok(found) => self.see(found),
            Err(error) => {
                let error = response::message(&error);
                warn!(lease = self.lease(), error, "cannot read the lease");
            }
        }
    }

    fn see(&mut self, found: Option<Lease>) {
        let version =
            |lease: &Option<Lease>| lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if version(&self.seen) != version(&found) {
            self.since = Instant::now();
        }
        self.seen = found;
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.seen.as_ref()?.spec.as_ref()
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.election.namespace, self.election.name)
    }
}

/// Written, or created, by another process meanwhile.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
