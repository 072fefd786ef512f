//! The `claimcheck_*` metrics: a Prometheus registry fed by events, served while a run lasts
//! ([`Metrics::serve`]) and written into its folder at the end ([`Metrics::text`]).
//!
//! Names, labels and buckets are declared in `model::metric`; this module maps events to metrics.

mod components;
pub mod push;
mod register;

pub use crate::serve::{ServeError, Serving};

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use claimcheck_model::{
    CapabilityPlan, CaseId, CaseResult, Event, LeakKind, Outcome, Phase, PhaseSample, Rule, RunInfo,
    Transition, TransitionKind, VolumeMode, class_label, metric,
};
pub use components::Components;
use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounterVec, Registry, TextEncoder, proto::MetricFamily,
};
pub use register::Register;

use crate::serve::{Page, PageRequest, Site, serve};

/// The metrics of one run. Clones are the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    families: Arc<Families>,
    run: Arc<Mutex<RunInfo>>,
    /// Whether a case passed in its last run.
    passed: Arc<Mutex<HashMap<CaseId, bool>>>,
}

#[derive(Debug)]
struct Families {
    phase_duration: HistogramVec,
    phase_without_duration: IntCounterVec,
    phase_overhead: HistogramVec,
    attach: IntCounterVec,
    detach: IntCounterVec,
    mount: IntCounterVec,
    unmount: IntCounterVec,
    attached: GaugeVec,
    mounted: GaugeVec,
    leaked: GaugeVec,
    violations: IntCounterVec,
    retries: IntCounterVec,
    case_result: IntCounterVec,
    case_duration: HistogramVec,
    case_flips: IntCounterVec,
    capability_result: IntCounterVec,
    watch_lag: Histogram,
    build_info: GaugeVec,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        let register = Register(&registry);
        let families = Families {
            phase_duration: register.histogram(&metric::PHASE_DURATION),
            phase_without_duration: register.counter(&metric::PHASE_WITHOUT_DURATION),
            phase_overhead: register.histogram(&metric::PHASE_OVERHEAD),
            attach: register.counter(&metric::ATTACH),
            detach: register.counter(&metric::DETACH),
            mount: register.counter(&metric::MOUNT),
            unmount: register.counter(&metric::UNMOUNT),
            attached: register.gauge(&metric::ATTACHED),
            mounted: register.gauge(&metric::MOUNTED),
            leaked: register.gauge(&metric::LEAKED),
            violations: register.counter(&metric::VIOLATIONS),
            retries: register.counter(&metric::RETRIES),
            case_result: register.counter(&metric::CASE_RESULT),
            case_duration: register.histogram(&metric::CASE_DURATION),
            case_flips: register.counter(&metric::CASE_FLIPS),
            capability_result: register.counter(&metric::CAPABILITY_RESULT),
            watch_lag: register.histogram(&metric::WATCH_LAG).with_label_values::<&str>(&[]),
            build_info: register.gauge(&metric::BUILD_INFO),
        };
        Self { registry, families: Arc::new(families), run: Arc::default(), passed: Arc::default() }
    }
}

impl Metrics {
    /// Records an event.
    pub fn observe(&self, event: &Event) {
        let families = &self.families;
        match event {
            Event::RunStarted(run) => self.begin(run),
            Event::CaseFinished { case, result, seconds } => self.case(case, result, *seconds),
            Event::Phase(sample) => self.phase(sample),
            Event::Transition(transition) => self.transition(transition),
            Event::Rpc(rpc) if rpc.retry => families.retries.with_label_values(&[rpc.method.as_str()]).inc(),
            Event::Violation { rule, .. } => families.violations.with_label_values(&[rule.name()]).inc(),
            Event::Leak(leak) => families.leaked.with_label_values(&[leak.kind.name()]).inc(),
            Event::WatchLag { seconds } => families.watch_lag.observe(*seconds),
            Event::CaseStarted { .. }
            | Event::Warning { .. }
            | Event::Denied(_)
            | Event::Unserved(_)
            | Event::ComponentFault(_)
            | Event::Rpc(_)
            | Event::ApiWrite(_)
            | Event::Load(_)
            | Event::Clock(_)
            | Event::Stock(_)
            | Event::ComponentExited(_)
            | Event::Step { .. }
            | Event::FailureDump(_)
            | Event::RunFinished { .. }
            | Event::RunAborted { .. } => {}
        }
    }

    /// Everything known from the start gets its series then, so that "none" can be distinguished from "not
    /// measured", and rates have a first sample.
    fn begin(&self, run: &RunInfo) {
        let families = &self.families;
        let (driver, cluster) = (run.driver.as_str(), run.cluster.name());
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = run.clone();
        for phase in Phase::ALL {
            let (mode, source) = (VolumeMode::default().name(), phase.info().source.name());
            let labels = [phase.name(), driver, "", mode, cluster, source, "ok"];
            families.phase_duration.with_label_values(&labels);
            families.phase_overhead.with_label_values(&[phase.name(), driver, cluster]);
        }
        for counter in [&families.attach, &families.detach, &families.mount, &families.unmount] {
            counter.with_label_values(&[driver]);
        }
        for method in Phase::ALL.iter().filter_map(|phase| phase.info().rpc) {
            families.retries.with_label_values(&[method.as_str()]);
        }
        for rule in Rule::ALL {
            families.violations.with_label_values(&[rule.name()]);
        }
        for kind in LeakKind::ALL {
            families.leaked.with_label_values(&[kind.name()]);
        }
        for plan in &run.capabilities {
            for result in ["passed", "failed", "skipped"] {
                let labels = [plan.capability.name(), declared(plan), result];
                families.capability_result.with_label_values(&labels);
            }
        }
        let labels = [run.version.as_str(), run.kubernetes_version.as_str(), cluster];
        families.build_info.with_label_values(&labels).set(1.0);
    }

    fn case(&self, case: &CaseId, result: &CaseResult, seconds: f64) {
        let families = &self.families;
        let labels = [case.suite.as_str(), result.name()];
        families.case_result.with_label_values(&labels).inc();
        for plan in &self.run.lock().unwrap_or_else(PoisonError::into_inner).capabilities {
            if plan.cases.contains(case) {
                let labels = [plan.capability.name(), declared(plan), result.name()];
                families.capability_result.with_label_values(&labels).inc();
            }
        }
        let passed = match result {
            CaseResult::Skipped { .. } => return,
            CaseResult::Passed => true,
            CaseResult::Failed { .. } => false,
        };
        families.case_duration.with_label_values(&labels).observe(seconds);
        let before = self.passed.lock().unwrap_or_else(PoisonError::into_inner).insert(case.clone(), passed);
        if before.is_some_and(|before| before != passed) {
            families.case_flips.with_label_values(&[&case.suite, &case.name]).inc();
        }
    }

    fn phase(&self, sample: &PhaseSample) {
        let cluster = self.run.lock().unwrap_or_else(PoisonError::into_inner).cluster.name();
        let PhaseSample { phase, driver, class, volume_mode, outcome, .. } = sample;
        let (source, observed) = match outcome {
            Outcome::Ok { source, seconds, overhead_seconds, .. } => {
                (*source, Some((seconds, overhead_seconds)))
            }
            Outcome::Aborted { .. } | Outcome::Unobserved => (phase.info().source, None),
        };
        let labels = [
            phase.name(),
            driver,
            class_label(class),
            volume_mode.name(),
            cluster,
            source.name(),
            outcome.name(),
        ];
        match observed {
            Some((seconds, overhead)) => {
                self.families.phase_duration.with_label_values(&labels).observe(*seconds);
                let labels = [phase.name(), driver.as_str(), cluster];
                if let Some(overhead) = overhead {
                    self.families.phase_overhead.with_label_values(&labels).observe(*overhead);
                }
            }
            // Any value would be part of the sum, and so of each mean.
            None => self.families.phase_without_duration.with_label_values(&labels).inc(),
        }
    }

    fn transition(&self, transition: &Transition) {
        let families = &self.families;
        let driver = [transition.driver.as_str()];
        let place = [transition.driver.as_str(), transition.node.as_str()];
        match transition.kind {
            TransitionKind::Attach => {
                families.attach.with_label_values(&driver).inc();
                families.attached.with_label_values(&place).inc();
            }
            TransitionKind::Detach => {
                families.detach.with_label_values(&driver).inc();
                families.attached.with_label_values(&place).dec();
            }
            TransitionKind::Mount => {
                families.mount.with_label_values(&driver).inc();
                families.mounted.with_label_values(&place).inc();
            }
            TransitionKind::Unmount => {
                families.unmount.with_label_values(&driver).inc();
                families.mounted.with_label_values(&place).dec();
            }
            TransitionKind::Stage | TransitionKind::Unstage => {}
        }
    }

    /// The number of series: bounded, independent of the duration of a run.
    pub fn series(&self) -> usize {
        self.registry.gather().iter().map(|family| family.get_metric().len()).sum()
    }

    /// The run of these metrics.
    fn run(&self) -> RunInfo {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All current series.
    fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// All series in the text format of Prometheus.
    pub fn text(&self) -> String {
        text(&self.registry)
    }

    /// Serves these metrics at `http://<address>/metrics`; Prometheus discovers those of the components of an
    /// embedded cluster at `/targets`.
    ///
    /// # Errors
    /// If it cannot listen there; see [`ServeError`].
    pub async fn serve(&self, address: SocketAddr) -> Result<Serving, ServeError> {
        serve(address, self.clone()).await
    }
}

impl Site for Metrics {
    async fn page(&self, request: PageRequest<'_>) -> Option<Page> {
        match request.path {
            "/metrics" => Some(Page::ok(self.text())),
            _ => Components::default().page(request, &self.run()).await,
        }
    }
}

/// The label value for the declaration of a capability.
fn declared(plan: &CapabilityPlan) -> &'static str {
    match plan.declared {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    }
}

/// All series of a registry in the text format of Prometheus.
pub fn text(registry: &Registry) -> String {
    TextEncoder::new().encode_to_string(&registry.gather()).expect("declared metrics have names and values")
}

#[cfg(test)]
mod tests;
