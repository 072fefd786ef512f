//! How a component tells what it measures, without knowing who keeps it: a process that serves metrics gives
//! its parts a [`Meter`] that leads into its registry, and everybody else one that leads nowhere.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::metric::Metric;

/// Keeps what is told. Its methods must not wait: they are called between two steps of a volume.
pub trait Recorder: Send + Sync {
    /// Observes `value` in a histogram, adds it to a counter, or sets a gauge to it. The labels are values, in
    /// the order in which the metric declares them.
    fn record(&self, metric: &'static Metric, labels: &[&str], value: f64);

    /// Adds gauges that are counted whenever somebody reads.
    fn count(&self, census: Census);

    /// The component works: its cache is complete.
    fn ready(&self);
}

/// One value of a gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Of which gauge.
    pub metric: &'static Metric,
    /// The values of its labels, in order.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
}

impl Reading {
    /// A value.
    pub fn new(metric: &'static Metric, labels: &[&str], value: f64) -> Self {
        Self { metric, labels: labels.iter().map(|label| (*label).to_owned()).collect(), value }
    }
}

type Count = dyn Fn() -> Pin<Box<dyn Future<Output = Vec<Reading>> + Send>> + Send + Sync;

/// Counts things when somebody reads the metrics, and costs nothing while nobody does.
#[derive(Clone)]
pub struct Census(Arc<Count>);

impl Census {
    /// What there is now; what was there before and is not among it has no value any longer.
    pub async fn read(&self) -> Vec<Reading> {
        (self.0)().await
    }
}

/// Whom a component tells; nobody by default. Clones are the same.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<dyn Recorder>>);

impl Meter {
    /// Tells this recorder.
    pub fn new(recorder: impl Recorder + 'static) -> Self {
        Self(Some(Arc::new(recorder)))
    }

    /// Observes a value of a histogram, or sets a gauge to it.
    pub fn record(&self, metric: &'static Metric, labels: &[&str], value: f64) {
        if let Some(recorder) = &self.0 {
            recorder.record(metric, labels, value);
        }
    }

    /// Counts one more.
    pub fn increment(&self, metric: &'static Metric, labels: &[&str]) {
        self.record(metric, labels, 1.0);
    }

    /// Has `count` asked whenever somebody reads the metrics.
    pub fn count<F>(&self, count: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Vec<Reading>> + Send + 'static,
    {
        if let Some(recorder) = &self.0 {
            recorder.count(Census(Arc::new(move || Box::pin(count()))));
        }
    }

    /// Tells that the component works.
    pub fn ready(&self) {
        if let Some(recorder) = &self.0 {
            recorder.ready();
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.0.is_some()).finish()
    }
}
