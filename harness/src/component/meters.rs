//! What a process of controllers tells probes and scrapers.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use claimcheck_controllers::{Meter, Told};
use claimcheck_csi::tap::{CallId, Edge, TapRecord, code_name};
use claimcheck_model::metric;
use prometheus::{GaugeVec, HistogramVec, Registry};
use tokio::sync::mpsc;

use crate::{
    metrics::{Register, text},
    serve::{Page, Site},
};

/// Health and metrics of one process. Clones are the same.
#[derive(Clone)]
pub(super) struct Meters {
    registry: Registry,
    reconciles: HistogramVec,
    calls: HistogramVec,
    leader: GaugeVec,
    /// It works, or waits for its turn to.
    ready: Arc<AtomicBool>,
}

impl Default for Meters {
    fn default() -> Self {
        let registry = Registry::new();
        let register = Register(&registry);
        let (reconciles, calls, leader) = (
            register.histogram(&metric::RECONCILE_DURATION),
            register.histogram(&metric::CSI_SIDECAR_OPERATIONS),
            register.gauge(&metric::LEADER_STATUS),
        );
        // A component does not know what its cluster is called: those labels stay empty.
        register.gauge(&metric::BUILD_INFO).with_label_values(&[env!("CARGO_PKG_VERSION"), "", ""]).set(1.0);
        Self { registry, reconciles, calls, leader, ready: Arc::default() }
    }
}

impl Meters {
    /// Whether the process holds the lease.
    pub(super) fn leads(&self, lease: &str, leads: bool) {
        self.leader.with_label_values(&[lease]).set(if leads { 1.0 } else { 0.0 });
        // A leader is ready when its cache is complete.
        self.ready.store(!leads, Ordering::Relaxed);
    }

    /// What the controllers tell goes into these.
    pub(super) fn meter(&self) -> Meter {
        let this = self.clone();
        Meter::new(move |told| this.hear(told))
    }

    fn hear(&self, told: Told) {
        match told {
            Told::Synced => self.ready.store(true, Ordering::Relaxed),
            Told::Reconciled { controller, failed, took } => {
                let labels = [controller, if failed { "failed" } else { "done" }];
                self.reconciles.with_label_values(&labels).observe(took.as_secs_f64());
            }
        }
    }

    /// Enters the calls to the driver for as long as there can be any.
    pub(super) fn follow(&self, mut records: mpsc::UnboundedReceiver<TapRecord>) {
        let calls = Calls { calls: self.calls.clone(), began: HashMap::new() };
        tokio::spawn(async move {
            let mut calls = calls;
            while let Some(record) = records.recv().await {
                calls.enter(&record);
            }
        });
    }
}

/// Turns the two records of a call into one observation.
struct Calls {
    calls: HistogramVec,
    /// When each call began that has not ended.
    began: HashMap<CallId, u64>,
}

impl Calls {
    fn enter(&mut self, record: &TapRecord) {
        let now = record.at.mono_ns;
        match &record.edge {
            Edge::Start => drop(self.began.insert(record.id, now)),
            Edge::End { code, .. } => {
                let Some(began) = self.began.remove(&record.id) else { return };
                let seconds = now.saturating_sub(began) as f64 / 1e9;
                let driver = record.driver.as_deref().unwrap_or("unknown-driver");
                let labels = [driver, record.method.as_str(), code_name(*code), "false"];
                self.calls.with_label_values(&labels).observe(seconds);
            }
        }
    }
}

impl Site for Meters {
    async fn page(&self, path: &str) -> Option<Page> {
        match path {
            // A process that has lost its lease, or its controllers, has ended.
            "/healthz" | "/livez" => Some(Page::ok("ok\n")),
            "/readyz" if self.ready.load(Ordering::Relaxed) => Some(Page::ok("ok\n")),
            "/readyz" => Some(Page::unavailable("the cache is not complete yet\n")),
            "/metrics" => Some(Page::ok(text(&self.registry))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use claimcheck_csi::Code;
    use claimcheck_model::Stamp;

    use super::*;

    fn record(mono_ns: u64, edge: Edge) -> TapRecord {
        TapRecord {
            at: Stamp { mono_ns, wall_ns: 0 },
            id: CallId { pid: 1, seq: 1 },
            edge,
            component: "provisioner".into(),
            method: "/csi.v1.Controller/CreateVolume".into(),
            driver: Some("d".into()),
            volume_id: None,
            volume_name: None,
            node: None,
            target: None,
        }
    }

    async fn ready(meters: &Meters) -> bool {
        meters.page("/readyz").await == Some(Page::ok("ok\n"))
    }

    #[tokio::test]
    async fn a_process_is_ready_when_it_works_or_waits_for_its_turn() {
        let meters = Meters::default();
        assert!(!ready(&meters).await);
        meters.leads("lease", false);
        assert!(ready(&meters).await);
        meters.leads("lease", true);
        assert!(!ready(&meters).await, "its cache is empty");
        meters.hear(Told::Synced);
        assert!(ready(&meters).await);
        assert_eq!(meters.page("/nothing").await, None);
    }

    #[tokio::test]
    async fn what_it_did_is_in_its_metrics() {
        let meters = Meters::default();
        meters.leads("lease", true);
        meters.hear(Told::Reconciled { controller: "binder", failed: true, took: Duration::from_millis(3) });
        let mut calls = Calls { calls: meters.calls.clone(), began: HashMap::new() };
        let ended = Edge::End { code: Code::Ok, message: None, injected: false };
        for record in [record(1_000_000_000, Edge::Start), record(1_250_000_000, ended)] {
            calls.enter(&record);
        }
        let text = text(&meters.registry);
        for line in [
            "leader_election_master_status{name=\"lease\"} 1",
            "claimcheck_reconcile_duration_seconds_count{controller=\"binder\",result=\"failed\"} 1",
            "csi_sidecar_operations_seconds_sum{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\",migrated=\"false\"} 0.25",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.contains("claimcheck_build_info"));
        assert!(calls.began.is_empty());
    }
}
