//! The metrics of a monitor: those of its process, and those of volumes, which only the leader serves.

use claimcheck_informer::Kind;
use claimcheck_model::{
    ClusterKind, Event, Outcome, PhaseSample, TransitionKind,
    metric::{self, CANARY, VOLUMES},
};
use claimcheck_telemetry::metrics::{Register, text};
use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec, Registry};
use serde::Serialize;

use crate::{
    canary::RunResult,
    stuck::{Status, counts, stuck_counts, unused_counts},
};

/// The kind of the lists that are not made for a watch.
const EVENT: &str = "Event";

/// Two registries.
#[derive(Debug)]
pub(crate) struct Series {
    process: Registry,
    lists: IntCounterVec,
    leader: GaugeVec,
    volumes: Registry,
    durations: HistogramVec,
    without_duration: IntCounterVec,
    attach: IntCounterVec,
    detach: IntCounterVec,
    waiting: GaugeVec,
    oldest: GaugeVec,
    stuck: GaugeVec,
    unused: GaugeVec,
    tracked: Gauge,
    canary_runs: IntCounterVec,
    /// The namespace of the canary.
    canary: Option<String>,
}

impl Series {
    /// Without values, for a cluster with this version of Kubernetes; the phases of claims in the namespace of the
    /// canary are separate from those of all others.
    pub fn new(kubernetes_version: &str, canary: Option<String>) -> Self {
        let (process, volumes) = (Registry::new(), Registry::new());
        let of_process = Register(&process);
        let lists = of_process.counter(&metric::LISTS_AFTER_START);
        let leader = of_process.gauge(&metric::LEADER_STATUS);
        let build = of_process.gauge(&metric::BUILD_INFO);
        let labels = [env!("CARGO_PKG_VERSION"), kubernetes_version, ClusterKind::Existing.name()];
        build.with_label_values(&labels).set(1.0);
        let of_volumes = Register(&volumes);
        let durations = of_volumes.histogram(&metric::PHASE_DURATION);
        let without_duration = of_volumes.counter(&metric::PHASE_WITHOUT_DURATION);
        let attach = of_volumes.counter(&metric::ATTACH);
        let detach = of_volumes.counter(&metric::DETACH);
        let waiting = of_volumes.gauge(&metric::PHASE_WAITING);
        let oldest = of_volumes.gauge(&metric::PHASE_WAITING_OLDEST);
        let stuck = of_volumes.gauge(&metric::STUCK_VOLUMES);
        let unused = of_volumes.gauge(&metric::UNUSED_OBJECTS);
        let tracked = of_volumes.gauge(&metric::TRACKED).with_label_values::<&str>(&[]);
        let canary_runs = of_volumes.counter(&metric::CANARY_RUNS);
        Self {
            process,
            lists,
            leader,
            volumes,
            durations,
            without_duration,
            attach,
            detach,
            waiting,
            oldest,
            stuck,
            unused,
            tracked,
            canary_runs,
            canary,
        }
    }

    /// The kind is watched: its series exists before its first list after the start.
    pub fn watches(&self, kind: Kind) {
        self.lists.with_label_values(&[kind.name()]);
    }

    /// The kind was listed again.
    pub fn listed_again(&self, kind: Kind) {
        self.lists.with_label_values(&[kind.name()]).inc();
    }

    /// The Events about an object that waits are listed.
    pub fn events_listed(&self) {
        self.lists.with_label_values(&[EVENT]).inc();
    }

    /// Whether this process holds the lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.leader.with_label_values(&[lease]).set(f64::from(u8::from(leads)));
    }

    /// Records events of the timeline.
    pub fn observe(&self, events: &[Event]) {
        for event in events {
            match event {
                Event::Phase(sample) => self.phase(sample),
                Event::Transition(change) if change.kind == TransitionKind::Attach => {
                    self.attach.with_label_values(&[&change.driver]).inc();
                }
                Event::Transition(change) if change.kind == TransitionKind::Detach => {
                    self.detach.with_label_values(&[&change.driver]).inc();
                }
                _ => {}
            }
        }
    }

    /// A run of the canary starts: its series exist before they increase, or Prometheus has no rate of the first
    /// failure.
    pub fn canary_starts(&self, class: &str, topology: &str) {
        for result in [RunResult::Ok, RunResult::Failed] {
            self.canary_runs.with_label_values(&[class, topology, result.name()]);
        }
    }

    /// A run of the canary has this result.
    pub fn canary_run(&self, class: &str, topology: &str, result: RunResult) {
        self.canary_runs.with_label_values(&[class, topology, result.name()]).inc();
    }

    fn phase(&self, sample: &PhaseSample) {
        let namespace = sample.claim.split_once('/').map(|(namespace, _)| namespace);
        // All times are those of watches, so the label has room for the population.
        let source =
            if namespace.is_some() && namespace == self.canary.as_deref() { CANARY } else { VOLUMES };
        let labels = [
            sample.phase.name(),
            &sample.driver,
            &sample.class,
            sample.volume_mode.name(),
            ClusterKind::Existing.name(),
            source,
            sample.outcome.name(),
        ];
        match sample.outcome {
            Outcome::Ok { seconds, .. } => self.durations.with_label_values(&labels).observe(seconds),
            Outcome::Aborted { .. } | Outcome::Unobserved => {
                self.without_duration.with_label_values(&labels).inc();
            }
        }
    }

    /// All series in the text format of Prometheus: those of the process, and with a status those of volumes.
    pub fn text(&self, of_volumes: Option<(&Status, usize)>) -> String {
        let mut all = text(&self.process);
        if let Some((status, tracked)) = of_volumes {
            self.tracked.set(tracked as f64);
            self.waiting.reset();
            self.oldest.reset();
            for ((phase, driver, class), (count, oldest)) in counts(status) {
                let labels = [phase.name(), driver, class];
                self.waiting.with_label_values(&labels).set(count as f64);
                self.oldest.with_label_values(&labels).set(oldest);
            }
            self.stuck.reset();
            for ((phase, driver, class, cause), count) in stuck_counts(status) {
                let labels = [phase.name(), driver, class, &name(&cause)];
                self.stuck.with_label_values(&labels).set(count as f64);
            }
            for (kind, count) in unused_counts(status) {
                self.unused.with_label_values(&[&*name(&kind)]).set(count as f64);
            }
            all.push_str(&text(&self.volumes));
        }
        all
    }
}

/// The name of a variant in JSON: `no_capacity`.
fn name(variant: &impl Serialize) -> String {
    let json = serde_json::to_value(variant).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{Phase, Source, Stamp, SubjectIds, VolumeMode};

    use super::*;

    fn bound(claim: &str) -> Event {
        let outcome = Outcome::Ok {
            start: Stamp::default(),
            end: Stamp::default(),
            source: Source::Watch,
            seconds: 1.0,
            driver_seconds: None,
            overhead_seconds: None,
        };
        Event::Phase(PhaseSample {
            phase: Phase::Bind,
            subject: SubjectIds::default(),
            claim: claim.into(),
            handle: String::new(),
            driver: "csi.test".into(),
            class: "fast".into(),
            volume_mode: VolumeMode::Filesystem,
            outcome,
        })
    }

    /// The number of phases of the canary and of other volumes.
    fn counts_of(canary: Option<&str>, claims: &[&str]) -> [u64; 2] {
        let series = Series::new("v1", canary.map(str::to_owned));
        series.observe(&claims.iter().map(|claim| bound(claim)).collect::<Vec<_>>());
        let count = |source: &str| {
            let labels = ["bind", "csi.test", "fast", "Filesystem", "existing", source, "ok"];
            series.durations.with_label_values(&labels).get_sample_count()
        };
        [count("canary"), count("volumes")]
    }

    #[test]
    fn phases_of_the_canary_are_separate() {
        let claims = ["canary/a", "canary/b", "default/canary", "canary-2/c", ""];
        assert_eq!(counts_of(Some("canary"), &claims), [2, 3]);
        assert_eq!(counts_of(None, &claims), [0, 5]);
    }
}
