//! The metrics of a monitor: those of its process, and those of volumes, which only the leader serves.

use claimcheck_informer::Kind;
use claimcheck_model::{ClusterKind, Event, Outcome, PhaseSample, TransitionKind, metric};
use claimcheck_report::metrics::{Register, text};
use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec, Registry};
use serde::Serialize;

use crate::stuck::{Status, counts, stuck_counts, unused_counts};

/// Two registries.
#[derive(Debug)]
pub(crate) struct Series {
    process: Registry,
    lists: IntCounterVec,
    leader: GaugeVec,
    volumes: Registry,
    durations: HistogramVec,
    attach: IntCounterVec,
    detach: IntCounterVec,
    waiting: GaugeVec,
    oldest: GaugeVec,
    stuck: GaugeVec,
    unused: GaugeVec,
    tracked: Gauge,
}

impl Series {
    /// Without values, for a cluster with this version of Kubernetes.
    pub fn new(kubernetes_version: &str) -> Self {
        let (process, volumes) = (Registry::new(), Registry::new());
        let of_process = Register(&process);
        let lists = of_process.counter(&metric::LISTS_AFTER_START);
        let leader = of_process.gauge(&metric::LEADER_STATUS);
        let build = of_process.gauge(&metric::BUILD_INFO);
        let labels = [env!("CARGO_PKG_VERSION"), kubernetes_version, ClusterKind::Existing.name()];
        build.with_label_values(&labels).set(1.0);
        let of_volumes = Register(&volumes);
        let durations = of_volumes.histogram(&metric::PHASE_DURATION);
        let attach = of_volumes.counter(&metric::ATTACH);
        let detach = of_volumes.counter(&metric::DETACH);
        let waiting = of_volumes.gauge(&metric::PHASE_WAITING);
        let oldest = of_volumes.gauge(&metric::PHASE_WAITING_OLDEST);
        let stuck = of_volumes.gauge(&metric::STUCK_VOLUMES);
        let unused = of_volumes.gauge(&metric::UNUSED_OBJECTS);
        let tracked = of_volumes.gauge(&metric::TRACKED).with_label_values::<&str>(&[]);
        Self {
            process,
            lists,
            leader,
            volumes,
            durations,
            attach,
            detach,
            waiting,
            oldest,
            stuck,
            unused,
            tracked,
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

    fn phase(&self, sample: &PhaseSample) {
        let (source, seconds) = match sample.outcome {
            Outcome::Ok { source, seconds, .. } => (source, seconds),
            // As in the metrics of a run: counted, and in no finite bucket.
            Outcome::Aborted { .. } | Outcome::Unobserved => (sample.phase.info().source, f64::INFINITY),
        };
        let labels = [
            sample.phase.name(),
            &sample.driver,
            &sample.class,
            sample.volume_mode.name(),
            ClusterKind::Existing.name(),
            source.name(),
            sample.outcome.name(),
        ];
        self.durations.with_label_values(&labels).observe(seconds);
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
