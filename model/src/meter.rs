//! The metrics interface of components, independent of the registry: a process that serves metrics gives
//! its parts a [`Meter`] that writes to its registry, all others use one that discards everything.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::metric::Metric;

/// Stores observations. Its methods must not block: they are called between two steps of a volume.
pub trait Recorder: Send + Sync {
    /// Observes `value` in a histogram, adds it to a counter, or sets a gauge to it. The labels are values, in
    /// the order in which the metric declares them.
    fn record(&self, metric: &'static Metric, labels: &[&str], value: f64);

    /// Adds gauges that are computed on every scrape.
    fn register(&self, collector: Collector);

    /// The component is ready: its cache has synced.
    fn ready(&self);
}

/// One value of a gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The gauge.
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

type Collect = dyn Fn() -> Pin<Box<dyn Future<Output = Vec<Reading>> + Send>> + Send + Sync;

/// Computes gauges on a scrape; costs nothing between scrapes.
#[derive(Clone)]
pub struct Collector(Arc<Collect>);

impl Collector {
    /// The current values; label sets that are missing from them are removed.
    pub async fn read(&self) -> Vec<Reading> {
        (self.0)().await
    }
}

/// A handle to a recorder; by default observations are discarded. Clones share the recorder.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<dyn Recorder>>);

impl Meter {
    /// Writes to this recorder.
    pub fn new(recorder: impl Recorder + 'static) -> Self {
        Self(Some(Arc::new(recorder)))
    }

    /// Observes a value of a histogram, or sets a gauge to it.
    pub fn record(&self, metric: &'static Metric, labels: &[&str], value: f64) {
        if let Some(recorder) = &self.0 {
            recorder.record(metric, labels, value);
        }
    }

    /// Increments a counter.
    pub fn increment(&self, metric: &'static Metric, labels: &[&str]) {
        self.record(metric, labels, 1.0);
    }

    /// Exposes a counter that may never be incremented, so that a query for it has an answer.
    pub fn expose(&self, metric: &'static Metric, labels: &[&str]) {
        self.record(metric, labels, 0.0);
    }

    /// Calls `count` on every scrape.
    pub fn collect<F>(&self, collect: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Vec<Reading>> + Send + 'static,
    {
        if let Some(recorder) = &self.0 {
            recorder.register(Collector(Arc::new(move || Box::pin(collect()))));
        }
    }

    /// Reports that the component is ready.
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
