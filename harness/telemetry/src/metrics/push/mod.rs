//! Pushes a run's metrics to a remote write endpoint: every few seconds, and once more at its end, when the final values are
//! known. Requests are retried after 5xx, 429 and no response. Failures are reported and do not affect the run.

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
use reqwest::Client;
use tokio_util::task::AbortOnDropHandle;

use super::Metrics;

/// The delays between two attempts.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(5) };

/// The target of the metrics, and the interval.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// A remote write endpoint: Prometheus, Mimir, VictoriaMetrics, ...
    pub to: PushUrl,
    /// The interval.
    pub every: Duration,
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

impl Push {
    /// Starts sending.
    pub fn start(options: &PushOptions, metrics: &Metrics) -> Self {
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
                if let Err(error) = each.send().await {
                    tracing::warn!(%error, "metrics were not delivered");
                }
            }
        };
        Self { sender, _each: AbortOnDropHandle::new(tokio::spawn(each)) }
    }

    /// Sends the final values.
    ///
    /// # Errors
    /// They could not be delivered.
    pub async fn finish(self) -> Result<(), PushError> {
        let Self { sender, _each } = self;
        // A request in progress would arrive after the last one.
        drop(_each);
        sender.send().await
    }
}

impl Sender {
    async fn send(&self) -> Result<(), PushError> {
        let run = self.metrics.run();
        // There are no values before the run is known.
        if run.driver.is_empty() {
            return Ok(());
        }
        let labels = [
            ("job", "claimcheck"),
            ("instance", self.instance.as_str()),
            ("cluster_kind", run.cluster.name()),
            ("driver", &run.driver),
        ];
        let now = i64::try_from(Stamp::now().wall_ns / 1_000_000).unwrap_or(i64::MAX);
        let body = remote_write::body(&self.metrics.gather(), &labels, now);
        send::send(&self.client, &self.options.to, body, BACKOFF).await
    }
}
