//! Takes the lease, holds it, and gives it back.

use std::time::Duration;

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
    plan::{Step, held, plan, released},
};

/// Why a leader is one no longer. What it did is another's duty now: its process must end.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// Somebody else has taken the lease.
    #[error("lease {lease} is held by {holder:?} now, so this process must not go on")]
    Taken {
        /// Namespace and name.
        lease: String,
        /// Who has it.
        holder: String,
    },
    /// The lease could not be renewed in time.
    #[error("lease {lease} could not be renewed for {waited:?}, so this process must not go on")]
    Silent {
        /// Namespace and name.
        lease: String,
        /// How long it was tried.
        waited: Duration,
        /// How the last attempt failed; none if it had no answer.
        #[source]
        source: Option<Box<kube::Error>>,
    },
}

/// A process that wants to lead, or does.
pub struct Elector {
    api: Api<Lease>,
    election: Election,
    /// The lease as it was seen last.
    seen: Option<Lease>,
    /// When it was first seen so.
    since: Instant,
}

impl Elector {
    /// A candidate.
    pub fn new(client: Client, election: Election) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        Self { api, election, seen: None, since: Instant::now() }
    }

    /// Returns once this process holds the lease. An API server that does not answer is waited for.
    pub async fn acquire(&mut self) {
        let lease = self.lease();
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.election.name));
        let mut events = watcher(self.api.clone(), only).default_backoff().boxed();
        self.look().await;
        loop {
            let pause = match plan(self.spec(), self.since.elapsed(), &self.election.identity) {
                Step::Wait(left) => {
                    let holder = self.spec().and_then(|lease| lease.holder_identity.as_deref());
                    debug!(lease, holder, "waits for the lease");
                    left
                }
                step => match self.write(step).await {
                    Ok(()) => {
                        info!(lease, identity = self.election.identity, "leads");
                        return;
                    }
                    Err(error) if is_conflict(&error) => {
                        self.look().await;
                        continue;
                    }
                    Err(error) => {
                        warn!(lease, %error, "the lease cannot be taken, which will be tried again");
                        self.election.timing.retry
                    }
                },
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease))) => self.see(Some(lease)),
                    Some(Ok(watcher::Event::Delete(_))) => self.see(None),
                    Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => {}
                    Some(Err(error)) => warn!(lease, %error, "the watch failed and will be taken up again"),
                    None => unreachable!("a watcher goes on for ever"),
                },
                () = sleep(pause) => {}
            }
        }
    }

    /// Renews the lease until that is no longer possible.
    pub async fn hold(&mut self) -> LeaderError {
        let timing = self.election.timing;
        let mut renewed = Instant::now();
        loop {
            sleep(timing.retry).await;
            let left = timing.deadline.saturating_sub(renewed.elapsed());
            let source = match timeout(left, self.renew()).await {
                Ok(Ok(None)) => {
                    renewed = Instant::now();
                    continue;
                }
                Ok(Ok(Some(holder))) => return LeaderError::Taken { lease: self.lease(), holder },
                Ok(Err(error)) => {
                    warn!(lease = self.lease(), %error, "the lease was not renewed, which will be tried again");
                    Some(Box::new(error))
                }
                Err(_) => None,
            };
            if renewed.elapsed() + timing.retry >= timing.deadline {
                return LeaderError::Silent { lease: self.lease(), waited: renewed.elapsed(), source };
            }
        }
    }

    /// Gives the lease back, so that another need not wait for its end. Best effort, for as long as a renewal is
    /// tried (as `release` in client-go's `leaderelection.go`): it ends by itself.
    pub async fn release(&mut self) {
        match timeout(self.election.timing.deadline, self.give_back()).await {
            Ok(Ok(())) => info!(lease = self.lease(), "leads no longer"),
            Ok(Err(error)) => warn!(lease = self.lease(), %error, "the lease was not released"),
            Err(_) => warn!(lease = self.lease(), "the lease was not released in time"),
        }
    }

    async fn give_back(&mut self) -> kube::Result<()> {
        loop {
            let Some(spec) = self.spec() else { return Ok(()) };
            if spec.holder_identity.as_deref() != Some(&self.election.identity) {
                return Ok(());
            }
            match self.put(released(spec, Timestamp::now())).await {
                // A renewal whose answer nobody waited for any more, or another's write.
                Err(error) if is_conflict(&error) => {
                    let found = self.api.get_opt(&self.election.name).await?;
                    self.see(found);
                }
                result => return result,
            }
        }
    }

    /// Renews once; who holds the lease instead, if somebody does.
    async fn renew(&mut self) -> kube::Result<Option<String>> {
        loop {
            match self.write(Step::Renew).await {
                Ok(()) => return Ok(None),
                Err(error) if is_conflict(&error) || is_missing(&error) => {}
                Err(error) => return Err(error),
            }
            // Somebody wrote it, or took it away; whoever it was, it may still be ours.
            let found = self.api.get_opt(&self.election.name).await?;
            self.see(found);
            let holder = self.spec().and_then(|lease| lease.holder_identity.clone()).unwrap_or_default();
            if self.seen.is_some() && holder != self.election.identity {
                return Ok(Some(holder));
            }
        }
    }

    /// Writes the lease as ours. `Create` and `Renew` of a lease that is gone make it.
    async fn write(&mut self, step: Step) -> kube::Result<()> {
        debug!(lease = self.lease(), ?step, "writes the lease");
        let wish = held(self.spec(), &self.election.identity, Timestamp::now(), self.election.timing);
        self.put(wish).await
    }

    async fn put(&mut self, spec: LeaseSpec) -> kube::Result<()> {
        let written = match self.seen.clone() {
            Some(lease) => {
                let lease = Lease { spec: Some(spec), ..lease };
                self.api.replace(&self.election.name, &PostParams::default(), &lease).await?
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.election.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(spec) };
                self.api.create(&PostParams::default(), &lease).await?
            }
        };
        self.see(Some(written));
        Ok(())
    }

    /// Reads the lease. Failing that, what is known stays.
    async fn look(&mut self) {
        match self.api.get_opt(&self.election.name).await {
            Ok(found) => self.see(found),
            Err(error) => warn!(lease = self.lease(), %error, "the lease cannot be read"),
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

/// Written, or created, by somebody else meanwhile.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
