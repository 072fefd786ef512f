//! The metrics of an observer. Bounded: no label is the name of an object, and the number of classes is limited.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use claimcheck_model::{
    ClusterKind, Outcome, PhaseSample, Source, Stamp, class_label,
    metric::{self, Metric, MetricKind},
};
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder, core::Collector,
};
use tracing::warn;

use super::Leftover;

/// The number of combinations of driver and storage class with separate series. Any user who may create a
/// PersistentVolume can invent storage classes.
const CLASSES: usize = 32;
/// The kind of unused objects that an observer counts.
const WITHOUT_POD: &str = "mount_without_pod";
const DECLARED: &str = "declarations have valid, unique names";

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pod,
    Node,
}

impl Kind {
    /// All of them.
    const ALL: [Self; 2] = [Self::Pod, Self::Node];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Node => "Node",
        }
    }
}

/// The series of one process. Clones are the same.
#[derive(Clone, Debug)]
pub struct Series {
    registry: Registry,
    durations: HistogramVec,
    without_duration: IntCounterVec,
    lists: IntCounterVec,
    restarts: IntCounterVec,
    memory: GaugeVec,
    unused: GaugeVec,
    /// The namespace of the monitor's canary.
    canary: Arc<str>,
    classes: Arc<Mutex<BTreeSet<(String, String)>>>,
    /// The number of kinds that were listed.
    listed: Arc<AtomicUsize>,
    /// The mounts without a pod.
    leftovers: Arc<Mutex<Vec<Leftover>>>,
}

impl Series {
    /// Without samples. Phases of claims in this namespace, that of the monitor's canary, are separate from those of all
    /// others.
    pub fn new(canary: &str) -> Self {
        let registry = Registry::new();
        let started = register(&registry, gauge(&metric::PROCESS_START));
        started.with_label_values::<&str>(&[]).set(Stamp::now().wall_ns as f64 / 1e9);
        let series = Self {
            durations: register(&registry, histogram(&metric::PHASE_DURATION)),
            without_duration: register(&registry, counter(&metric::PHASE_WITHOUT_DURATION)),
            lists: register(&registry, counter(&metric::LISTS_AFTER_START)),
            restarts: register(&registry, counter(&metric::WATCH_RESTARTS)),
            memory: register(&registry, gauge(&metric::PROCESS_MEMORY)),
            unused: register(&registry, gauge(&metric::UNUSED_OBJECTS)),
            canary: canary.into(),
            classes: Arc::default(),
            listed: Arc::default(),
            leftovers: Arc::default(),
            registry,
        };
        series.without_pod(Vec::new());
        for kind in Kind::ALL {
            series.lists.with_label_values(&[kind.name()]);
            series.restarts.with_label_values(&[kind.name()]);
        }
        series
    }

    /// Records samples.
    pub fn observe(&self, samples: &[PhaseSample]) {
        for sample in samples {
            let labels = [
                sample.phase.name(),
                &sample.driver,
                self.class(&sample.driver, &sample.class),
                sample.volume_mode.name(),
                ClusterKind::Existing.name(),
                self.source(&sample.claim),
                sample.outcome.name(),
            ];
            match sample.outcome {
                Outcome::Ok { seconds, .. } => self.durations.with_label_values(&labels).observe(seconds),
                Outcome::Aborted { .. } | Outcome::Unobserved => {
                    self.without_duration.with_label_values(&labels).inc();
                }
            }
        }
    }

    /// The label value for the source of a phase of this claim.
    fn source(&self, claim: &str) -> &'static str {
        match claim.split_once('/') {
            Some((namespace, _)) if namespace == &*self.canary => metric::CANARY,
            Some(_) | None => Source::Mount.name(),
        }
    }

    /// The label value for a storage class.
    fn class<'a>(&self, driver: &str, class: &'a str) -> &'a str {
        let class = class_label(class);
        let mut known = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = (driver.to_owned(), class.to_owned());
        if known.contains(&pair) || (known.len() < CLASSES && known.insert(pair)) {
            class
        } else {
            metric::OTHER
        }
    }

    /// These mounts have no pod. A new one is logged.
    pub(super) fn without_pod(&self, found: Vec<Leftover>) {
        self.unused.with_label_values(&[WITHOUT_POD]).set(found.len() as f64);
        let mut known = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        for Leftover { pod, volume } in found.iter().filter(|one| !known.contains(one)) {
            warn!(
                pod,
                volume,
                "the volume is mounted in a pod that does not exist: look at the kubelet's log, and restart it: it \
                 unmounts what no pod uses"
            );
        }
        *known = found;
    }

    /// The mounts without a pod, as JSON.
    pub fn leftovers(&self) -> String {
        let known = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_string(&*known).expect("two texts each")
    }

    /// A kind was listed for the first time.
    pub(super) fn listed(&self) {
        self.listed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether every kind was listed: starts of phases are observed from then on.
    pub fn is_synced(&self) -> bool {
        self.listed.load(Ordering::Relaxed) >= Kind::ALL.len()
    }

    /// A kind was listed again after its first list.
    pub(super) fn listed_again(&self, kind: Kind) {
        self.lists.with_label_values(&[kind.name()]).inc();
    }

    /// A watch failed, and is started again.
    pub(super) fn restarted(&self, kind: Kind) {
        self.restarts.with_label_values(&[kind.name()]).inc();
    }

    /// All series in the text format of Prometheus.
    pub fn text(&self) -> String {
        if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident) {
            self.memory.with_label_values::<&str>(&[]).set(bytes);
        }
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect("declared metrics have names")
    }
}

/// The resident memory in the text of `/proc/<pid>/status`, bytes.
fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn register<F: Collector + Clone + 'static>(registry: &Registry, family: F) -> F {
    registry.register(Box::new(family.clone())).expect(DECLARED);
    family
}

fn counter(metric: &Metric) -> IntCounterVec {
    IntCounterVec::new(Opts::new(metric.name, metric.help), &metric.label_names()).expect(DECLARED)
}

fn gauge(metric: &Metric) -> GaugeVec {
    GaugeVec::new(Opts::new(metric.name, metric.help), &metric.label_names()).expect(DECLARED)
}

fn histogram(metric: &Metric) -> HistogramVec {
    let MetricKind::Histogram(buckets) = metric.kind else { panic!("{} is no histogram", metric.name) };
    let options = HistogramOpts::new(metric.name, metric.help).buckets(buckets.to_vec());
    HistogramVec::new(options, &metric.label_names()).expect(DECLARED)
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{Phase, SubjectIds, VolumeMode};

    use super::*;

    fn sample(class: &str, outcome: Outcome) -> PhaseSample {
        PhaseSample {
            phase: Phase::Stage,
            subject: SubjectIds { volume: "pv-1".into(), node: "n".into(), ..SubjectIds::default() },
            claim: "ns/c".into(),
            handle: "h".into(),
            driver: "d".into(),
            class: class.into(),
            volume_mode: VolumeMode::Filesystem,
            outcome,
        }
    }

    fn ok(seconds: f64) -> Outcome {
        let at = Stamp { mono_ns: 1, wall_ns: 1 };
        let (driver_seconds, overhead_seconds) = (None, None);
        Outcome::Ok { start: at, end: at, source: Source::Mount, seconds, driver_seconds, overhead_seconds }
    }

    #[test]
    fn samples_are_observed_with_the_labels_of_the_monitor() {
        let series = Series::new("canary");
        series.observe(&[sample("fast", ok(0.2)), sample("fast", Outcome::Unobserved)]);
        let text = series.text();
        let labels = |result: &str| {
            format!(
                "cluster_kind=\"existing\",driver_name=\"d\",phase=\"stage\",result=\"{result}\",source=\"mount\",\
                 storage_class=\"fast\",volume_mode=\"Filesystem\""
            )
        };
        for line in [
            format!("claimcheck_phase_duration_seconds_bucket{{{},le=\"0.25\"}} 1", labels("ok")),
            format!("claimcheck_phase_duration_seconds_count{{{}}} 1", labels("ok")),
            format!("claimcheck_phase_duration_seconds_sum{{{}}} 0.2", labels("ok")),
            format!("claimcheck_phase_without_duration_total{{{}}} 1", labels("unobserved")),
            "claimcheck_lists_after_start_total{kind=\"Pod\"} 0".to_owned(),
            "claimcheck_watch_restarts_total{kind=\"Node\"} 0".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("pv-1") && !text.contains("ns/c"), "{text}");
        for name in ["process_resident_memory_bytes ", "process_start_time_seconds "] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            assert!(value.parse::<f64>().unwrap() > 1.0, "{name}{value}");
        }
    }

    #[test]
    fn phases_of_the_canary_are_separate() {
        let series = Series::new("canary");
        let of = |claim: &str| PhaseSample { claim: claim.into(), ..sample("fast", ok(0.1)) };
        series.observe(&[of("canary/a"), of("canary-2/b"), of("default/canary"), of("canary/c"), of("")]);
        let text = series.text();
        let count = |source: &str| {
            let is_it = |line: &&str| {
                line.starts_with("claimcheck_phase_duration_seconds_count") && line.contains(source)
            };
            text.lines().find(is_it).and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        };
        assert_eq!((count("source=\"canary\""), count("source=\"mount\"")), (Some(2), Some(3)), "{text}");
        assert!(text.contains("claimcheck_unused_objects{kind=\"mount_without_pod\"} 0"), "{text}");
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let series = Series::new("canary");
        for nth in 0..(CLASSES * 3) {
            series.observe(&[sample(&format!("class-{nth}"), ok(0.1))]);
        }
        let text = series.text();
        let counts = text.lines().filter(|line| line.starts_with("claimcheck_phase_duration_seconds_count"));
        assert_eq!(counts.count(), CLASSES + 1);
        assert!(text.contains("storage_class=\"(other)\""), "{text}");
    }

    #[test]
    fn mounts_without_pods_are_counted_and_listed() {
        let series = Series::new("canary");
        assert_eq!(series.leftovers(), "[]");
        series.without_pod(vec![Leftover { pod: "u1".into(), volume: "pv-1".into() }]);
        assert_eq!(series.leftovers(), r#"[{"pod":"u1","volume":"pv-1"}]"#);
        let text = series.text();
        assert!(text.contains("claimcheck_unused_objects{kind=\"mount_without_pod\"} 1"), "{text}");
        series.without_pod(Vec::new());
        assert_eq!(series.leftovers(), "[]");
    }

    #[test]
    fn resident_memory_is_read() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t 1 kB\n";
        assert_eq!(resident(status), Some(2048.0 * 1024.0));
        assert_eq!(resident("Name:\tx\n"), None);
    }
}
