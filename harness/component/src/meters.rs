//! Health and metrics of a component: a registry that is filled through a [`Meter`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use claimcheck_csi::tap::{NEWEST_LINE, NewestLine, TapRecord, code_name};
use claimcheck_model::{
    Meter,
    meter::{Collector, Recorder},
    metric::{self, Metric, MetricKind},
};
use futures::future::join_all;
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, Registry};
use tokio::sync::mpsc;

use claimcheck_telemetry::metrics::{Register, text};
use claimcheck_telemetry::serve::{Page, PageRequest, Site};

/// The path of metrics, unless another is set.
pub(super) const METRICS: &str = "/metrics";

/// Health and metrics of one process. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Meters(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Registry,
    /// By name: only metrics with observations, since empty ones are useless.
    families: Mutex<HashMap<&'static str, Family>>,
    collectors: Mutex<Vec<Collector>>,
    /// Computed gauges. Locked while they are computed again.
    collected: tokio::sync::Mutex<BTreeSet<&'static str>>,
    /// It is ready, or waits as a candidate.
    ready: AtomicBool,
    /// Of the calls on its standard output, if it writes them there.
    newest_line: OnceLock<NewestLine>,
}

#[derive(Clone)]
enum Family {
    Counter(IntCounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

impl Inner {
    /// The family of a metric.
    fn family(&self, metric: &'static Metric) -> Family {
        let register = Register(&self.registry);
        let make = || match metric.kind {
            MetricKind::Counter => Family::Counter(register.counter(metric)),
            MetricKind::Gauge => Family::Gauge(register.gauge(metric)),
            MetricKind::Histogram(_) => Family::Histogram(register.histogram(metric)),
        };
        locked(&self.families).entry(metric.name).or_insert_with(make).clone()
    }

    fn record(&self, metric: &'static Metric, labels: &[&str], value: f64) {
        match self.family(metric) {
            Family::Counter(family) => family.with_label_values(labels).inc_by(value as u64),
            Family::Gauge(family) => family.with_label_values(labels).set(value),
            Family::Histogram(family) => family.with_label_values(labels).observe(value),
        }
    }

    /// Computes gauges on a scrape; series of objects that no longer exist are removed.
    async fn collect_gauges(&self) {
        let mut collected = self.collected.lock().await;
        let collectors = locked(&self.collectors).clone();
        let readings = join_all(collectors.iter().map(Collector::read)).await;
        for name in collected.iter() {
            if let Some(Family::Gauge(gauge)) = locked(&self.families).get(name) {
                gauge.reset();
            }
        }
        for reading in readings.into_iter().flatten() {
            let labels: Vec<&str> = reading.labels.iter().map(String::as_str).collect();
            self.record(reading.metric, &labels, reading.value);
            collected.insert(reading.metric.name);
        }
    }
}

// Nothing panics while one is locked, so a poisoned one is consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder for Meters {
    fn record(&self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.0.record(metric, labels, value);
    }

    fn register(&self, collector: Collector) {
        locked(&self.0.collectors).push(collector);
    }

    fn ready(&self) {
        self.0.ready.store(true, Ordering::Relaxed);
    }
}

impl Meters {
    /// The meters of a new process.
    pub(super) fn new() -> Self {
        let this = Self::default();
        // A component does not know its cluster: those labels stay empty.
        this.record(&metric::BUILD_INFO, &[env!("CARGO_PKG_VERSION"), "", ""], 1.0);
        this
    }

    /// Whether the process holds the lease.
    pub(super) fn leads(&self, lease: &str, leads: bool) {
        self.record(&metric::LEADER_STATUS, &[lease], if leads { 1.0 } else { 0.0 });
        // A leader is ready when its cache has synced.
        self.0.ready.store(!leads, Ordering::Relaxed);
    }

    /// Serves the newest of the lines with its calls, if it writes any.
    pub(super) fn records_lines(&self, newest: Option<NewestLine>) {
        if let Some(newest) = newest {
            // A process has one standard output.
            let _ = self.0.newest_line.set(newest);
        }
    }

    /// The newest line, with which the harness compares how far it has read the log.
    async fn newest_line(&self) -> Option<Page> {
        let newest = self.0.newest_line.get()?.get().await;
        Some(match newest {
            Some(line) => Page::json(&serde_json::json!(line)),
            None => Page::unavailable("no call is recorded yet\n"),
        })
    }

    /// A meter that records into these.
    pub(super) fn meter(&self) -> Meter {
        Meter::new(self.clone())
    }

    /// Records CSI calls in one of the `csi_*` histograms, until the sender is dropped.
    pub(super) fn follow(&self, mut records: mpsc::UnboundedReceiver<TapRecord>, metric: &'static Metric) {
        let meters = self.clone();
        tokio::spawn(async move {
            while let Some(record) = records.recv().await {
                meters.called(&record, metric);
            }
        });
    }

    /// Records a call, if it has ended.
    fn called(&self, call: &TapRecord, metric: &'static Metric) {
        let Some(end) = &call.end else { return };
        let seconds = end.at.mono_ns.saturating_sub(call.start.mono_ns) as f64 / 1e9;
        let driver = call.driver.as_deref().unwrap_or("unknown-driver");
        // The last label means that no in-tree plugin was migrated; drivers do not have it.
        let labels = [driver, call.method.path(), code_name(end.code), "false"];
        self.record(metric, &labels[..metric.labels.len()], seconds);
    }
}

impl Site for Meters {
    async fn page(&self, request: PageRequest<'_>) -> Option<Page> {
        match request.path {
            // A process that lost its lease, or had failing controllers, has exited. The last is that of upstream's
            // sidecars (`HealthCheck` in csi-lib-utils `leaderelection`).
            "/healthz" | "/livez" | "/healthz/leader-election" => Some(Page::ok("ok\n")),
            "/readyz" if self.0.ready.load(Ordering::Relaxed) => Some(Page::ok("ok\n")),
            "/readyz" => Some(Page::unavailable("the cache has not synced yet\n")),
            METRICS => {
                self.0.collect_gauges().await;
                Some(Page::ok(text(&self.0.registry)))
            }
            NEWEST_LINE => self.newest_line().await,
            _ => None,
        }
    }
}

/// The site of the meters with the metrics at another path: `--metrics-path`.
#[derive(Clone)]
pub(super) struct Pages {
    pub(super) meters: Meters,
    pub(super) metrics_path: String,
}

impl Site for Pages {
    async fn page(&self, request: PageRequest<'_>) -> Option<Page> {
        let path = match request.path {
            path if path == self.metrics_path => METRICS,
            METRICS => return None,
            path => path,
        };
        self.meters.page(PageRequest { path, ..request }).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use claimcheck_csi::{
        Code,
        tap::{CallEnd, CallId},
    };
    use claimcheck_model::{CsiMethod, Stamp, meter::Reading};

    use super::*;

    fn call(end: Option<CallEnd>) -> TapRecord {
        let (id, start) = (CallId { pid: 1, seq: 1 }, at(1_000));
        let started = TapRecord::started(id, "provisioner", CsiMethod::CreateVolume, start);
        TapRecord { driver: Some("d".into()), end, ..started }
    }

    fn at(ms: u64) -> Stamp {
        Stamp { mono_ns: ms * 1_000_000, wall_ns: 0 }
    }

    async fn page(meters: &Meters, path: &str) -> Option<Page> {
        meters.page(PageRequest { path, host: "" }).await
    }

    async fn ready(meters: &Meters) -> bool {
        page(meters, "/readyz").await == Some(Page::ok("ok\n"))
    }

    #[tokio::test]
    async fn a_process_is_ready_when_it_works_or_waits_for_its_turn() {
        let meters = Meters::new();
        assert!(!ready(&meters).await);
        meters.leads("lease", false);
        assert!(ready(&meters).await);
        meters.leads("lease", true);
        assert!(!ready(&meters).await, "its cache is empty");
        meters.meter().ready();
        assert!(ready(&meters).await);
        assert_eq!(page(&meters, "/nothing").await, None);
    }

    #[tokio::test]
    async fn the_newest_line_of_calls_is_served_where_lines_are_written() {
        let meters = Meters::new();
        let newest = async || page(&meters, NEWEST_LINE).await;
        assert_eq!(newest().await, None);
        let (records, received) = mpsc::unbounded_channel();
        let (writer, line) = claimcheck_csi::tap::LineWriter::new(received);
        tokio::spawn(writer.write(tokio::io::sink()));
        meters.records_lines(Some(line));
        assert_eq!(newest().await, Some(Page::unavailable("no call is recorded yet\n")));
        records.send(call(None)).unwrap();
        let text = format!("{:?}", newest().await);
        assert!(text.contains("\\\"seq\\\":0"), "{text}");
    }

    #[tokio::test]
    async fn metrics_move_and_health_stays() {
        let pages = Pages { meters: Meters::new(), metrics_path: "/stats".to_owned() };
        for (path, is_served) in
            [("/stats", true), ("/metrics", false), ("/healthz", true), ("/healthz/leader-election", true)]
        {
            let page = pages.page(PageRequest { path, host: "" }).await;
            assert_eq!(page.is_some(), is_served, "{path}");
        }
    }

    #[tokio::test]
    async fn what_it_did_is_in_its_metrics() {
        let meters = Meters::new();
        meters.leads("lease", true);
        let meter = meters.meter();
        meter.record(&metric::RECONCILE_DURATION, &["binder", "failed"], 0.003);
        meter.increment(&metric::FORCED_DETACHES, &["timeout"]);
        meter.increment(&metric::FORCED_DETACHES, &["timeout"]);
        for metric in [&metric::CSI_SIDECAR_OPERATIONS, &metric::CSI_PLUGIN_OPERATIONS] {
            // Its start, and its end.
            meters.called(&call(None), metric);
            meters.called(&call(Some(CallEnd::new(at(1_250), Code::Ok))), metric);
        }
        let text = text(&meters.0.registry);
        for line in [
            "leader_election_master_status{name=\"lease\"} 1",
            "claimcheck_reconcile_duration_seconds_count{controller=\"binder\",result=\"failed\"} 1",
            "attach_detach_controller_attachdetach_controller_forced_detaches{reason=\"timeout\"} 2",
            "csi_sidecar_operations_seconds_sum{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\",migrated=\"false\"} 0.25",
            "csi_plugin_operations_seconds_sum{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\"} 0.25",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.contains("claimcheck_build_info"));
    }

    #[tokio::test]
    async fn what_is_counted_at_each_reading_goes_when_it_is_gone() {
        let meters = Meters::new();
        let seen = Arc::new(AtomicU64::new(0));
        let counter = seen.clone();
        meters.meter().collect(move || {
            let nth = counter.fetch_add(1, Ordering::Relaxed);
            let node = format!("node-{nth}");
            std::future::ready(vec![Reading::new(&metric::ATTACHABLE_IN_USE, &[node.as_str(), "p"], 2.0)])
        });
        for nth in 0..2 {
            page(&meters, "/metrics").await;
            let text = text(&meters.0.registry);
            let of = |nth| {
                format!(
                    "storage_count_attachable_volumes_in_use{{node=\"node-{nth}\",volume_plugin=\"p\"}} 2"
                )
            };
            assert!(text.contains(&of(nth)) && !text.contains(&of(1 - nth)), "{text}");
        }
    }
}
