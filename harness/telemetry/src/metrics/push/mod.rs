//! Pushes a run's metrics to a gateway or remote write endpoint: every few seconds, and once more at its end, when the
//! final values are known.
//!
//! ```text
//! Metrics ──text──> gateway       PUT    job, cluster, driver, instance
//!         ──series─> remote_write POST   protobuf, snappy
//!                        └──> send: retries after 5xx, 429, no response
//! ```
//!
//! Failures are reported and do not affect the run.

mod gateway;
mod remote_write;
mod send;
mod target;
#[cfg(test)]
mod tests;

pub use send::PushError;
pub(crate) use target::percent_decoded;
pub use target::{CredentialsError, InvalidUrl, PushUrl};

use std::time::Duration;

use claimcheck_model::{Backoff, Stamp};
use futures::future::join_all;
use reqwest::Client;
use tokio_util::task::AbortOnDropHandle;

use super::Metrics;

/// The delays between two attempts.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(5) };

/// The targets of the metrics, and the interval.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// A Pushgateway.
    pub gateway: Option<PushUrl>,
    /// Whether to delete the run's group from the gateway at the end, instead of keeping its last values.
    pub delete: bool,
    /// A remote write endpoint: Prometheus, Mimir, VictoriaMetrics, ...
    pub remote_write: Option<PushUrl>,
    /// The interval.
    pub every: Duration,
}

impl PushOptions {
    /// Whether there is any target.
    fn is_empty(&self) -> bool {
        self.gateway.is_none() && self.remote_write.is_none()
    }
}

/// Sends until it is finished, or dropped.
#[derive(Debug)]
pub struct Push {
    sender: Sender,
    _each: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug)]
struct Sender {
    options: PushOptions,
    metrics: Metrics,
    client: Client,
    /// This machine.
    instance: String,
}

/// The current target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushTime {
    Periodic,
    AtEnd,
}

impl Push {
    /// Starts sending, if there is a target.
    pub fn start(options: &PushOptions, metrics: &Metrics) -> Option<Self> {
        if options.is_empty() {
            return None;
        }
        let host = nix::unistd::gethostname().unwrap_or_default();
        let sender = Sender {
            options: options.clone(),
            metrics: metrics.clone(),
            client: Client::new(),
            instance: host.to_string_lossy().into_owned(),
        };
        let each = sender.clone();
        let each = async move {
            let mut ticks = tokio::time::interval(each.options.every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                for error in each.send(PushTime::Periodic).await {
                    tracing::warn!(%error, "metrics were not delivered");
                }
            }
        };
        Some(Self { sender, _each: AbortOnDropHandle::new(tokio::spawn(each)) })
    }

    /// Sends the final values; returns the failures.
    pub async fn finish(self) -> Vec<PushError> {
        let Self { sender, _each } = self;
        // A request in progress would arrive after the last one.
        drop(_each);
        sender.send(PushTime::AtEnd).await
    }
}

impl Sender {
    async fn send(&self, when: PushTime) -> Vec<PushError> {
        let run = self.metrics.run();
        // There are no values before the run is known.
        if run.driver.is_empty() {
            return Vec::new();
        }
        let mut requests = Vec::new();
        if let Some(to) = &self.options.gateway {
            requests.push(match when {
                PushTime::AtEnd if self.options.delete => gateway::delete(to, &run, &self.instance),
                PushTime::AtEnd | PushTime::Periodic => {
                    gateway::put(to, &run, &self.instance, self.metrics.text())
                }
            });
        }
        if let Some(to) = &self.options.remote_write {
            let labels = [("job", "claimcheck"), ("instance", self.instance.as_str())];
            let now = i64::try_from(Stamp::now().wall_ns / 1_000_000).unwrap_or(i64::MAX);
            requests.push(remote_write::write(to, &self.metrics.gather(), &labels, now));
        }
        let sent = requests.iter().map(|request| send::send(&self.client, request, BACKOFF));
        join_all(sent).await.into_iter().filter_map(Result::err).collect()
    }
}
