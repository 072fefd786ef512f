//! From a declaration to a registered Prometheus family.

use claimcheck_model::metric::{Metric, MetricKind};
use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// Registers families. A declaration that Prometheus rejects is a bug in `model::metric`, found by
/// the first test that creates a registry.
pub struct Register<'a>(pub &'a Registry);

const DECLARED: &str = "declarations have valid, unique names";

impl Register<'_> {
    /// A counter.
    pub fn counter(&self, metric: &Metric) -> IntCounterVec {
        assert_eq!(metric.kind, MetricKind::Counter, "{}", metric.name);
        let family = IntCounterVec::new(Opts::new(metric.name, metric.help), &metric.label_names());
        self.enter(family.expect(DECLARED))
    }

    /// A gauge.
    pub fn gauge(&self, metric: &Metric) -> GaugeVec {
        assert_eq!(metric.kind, MetricKind::Gauge, "{}", metric.name);
        let family = GaugeVec::new(Opts::new(metric.name, metric.help), &metric.label_names());
        self.enter(family.expect(DECLARED))
    }

    /// A histogram with the buckets of its declaration.
    pub fn histogram(&self, metric: &Metric) -> HistogramVec {
        let MetricKind::Histogram(buckets) = metric.kind else { panic!("{} is no histogram", metric.name) };
        let options = HistogramOpts::new(metric.name, metric.help).buckets(buckets.to_vec());
        self.enter(HistogramVec::new(options, &metric.label_names()).expect(DECLARED))
    }

    fn enter<F: Collector + Clone + 'static>(&self, family: F) -> F {
        self.0.register(Box::new(family.clone())).expect(DECLARED);
        family
    }
}
