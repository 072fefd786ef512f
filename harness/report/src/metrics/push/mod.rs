//! Sends a run's metrics to those who do not scrape it: every few seconds, and once more at its end, when the
//! last number is known.
//!
//! ```text
//! Metrics ──text──> gateway       PUT    job, cluster, driver, instance
//!         ──series─> remote_write POST   protobuf, snappy
//!                        └──> send: again after 5xx, 429, no answer
//! ```
//!
//! What does not arrive is told of and changes nothing about the run.

mod gateway;
mod remote_write;
mod send;
mod target;
#[cfg(test)]
mod tests;

pub use send::PushError;
pub(crate) use target::percent_decoded;
pub use target::{CredentialsError, NotAnUrl, PushUrl};

use std::time::Duration;

use claimcheck_model::{Backoff, Stamp};
use futures::future::join_all;
use reqwest::Client;
use tokio_util::task::AbortOnDropHandle;

use super::Metrics;

/// The pauses between two tries.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(5) };

/// Who is sent the metrics, and how often.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// A Pushgateway.
    pub gateway: Option<PushUrl>,
    /// At the end the gateway is to forget the run, instead of keeping its last numbers.
    pub delete: bool,
    /// Somebody who takes remote writes: Prometheus, Mimir, VictoriaMetrics, ...
    pub remote_write: Option<PushUrl>,
    /// How often.
    pub every: Duration,
}

impl PushOptions {
    /// Whether anybody is sent anything.
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

/// Which of them is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Meanwhile,
    AtTheEnd,
}

impl Push {
    /// Begins to send, if there is anybody to send to.
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
                for error in each.send(When::Meanwhile).await {
                    tracing::warn!(%error, "metrics did not arrive");
                }
            }
        };
        Some(Self { sender, _each: AbortOnDropHandle::new(tokio::spawn(each)) })
    }

    /// Sends the last numbers; returns what did not arrive.
    pub async fn finish(self) -> Vec<PushError> {
        let Self { sender, _each } = self;
        // One that is under way would come after the last.
        drop(_each);
        sender.send(When::AtTheEnd).await
    }
}

impl Sender {
    async fn send(&self, when: When) -> Vec<PushError> {
        let run = self.metrics.run();
        // Before it is known of what the numbers are, there are none.
        if run.driver.is_empty() {
            return Vec::new();
        }
        let mut letters = Vec::new();
        if let Some(to) = &self.options.gateway {
            letters.push(match when {
                When::AtTheEnd if self.options.delete => gateway::delete(to, &run, &self.instance),
                When::AtTheEnd | When::Meanwhile => {
                    gateway::put(to, &run, &self.instance, self.metrics.text())
                }
            });
        }
        if let Some(to) = &self.options.remote_write {
            let labels = [("job", "claimcheck"), ("instance", self.instance.as_str())];
            let now = i64::try_from(Stamp::now().wall_ns / 1_000_000).unwrap_or(i64::MAX);
            letters.push(remote_write::write(to, &self.metrics.gather(), &labels, now));
        }
        let sent = letters.iter().map(|letter| send::send(&self.client, letter, BACKOFF));
        join_all(sent).await.into_iter().filter_map(Result::err).collect()
    }
}
