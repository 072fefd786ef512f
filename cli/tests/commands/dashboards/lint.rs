//! `promtool check metrics` over everything that is exposed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::{Command, Stdio},
};

use claimcheck_model::{
    StorageOperation,
    metric::{self, ALL, Metric, STORAGE_OPERATION_DURATION},
};
use serde_json::Value;

use crate::http::get;

/// What Prometheus finds wrong with names that are Kubernetes' own, and kept here.
const UPSTREAM: [&str; 6] = [
    r#"pv_collector_total_pv_count non-histogram and non-summary metrics should not have "_count" suffix"#,
    r#"pv_collector_bound_pv_count non-histogram and non-summary metrics should not have "_count" suffix"#,
    r#"pv_collector_unbound_pv_count non-histogram and non-summary metrics should not have "_count" suffix"#,
    r#"pv_collector_bound_pvc_count non-histogram and non-summary metrics should not have "_count" suffix"#,
    r#"pv_collector_unbound_pvc_count non-histogram and non-summary metrics should not have "_count" suffix"#,
    r#"attach_detach_controller_attachdetach_controller_forced_detaches counter metrics should have "_total" suffix"#,
];

/// What is exposed only once something has gone wrong, or elsewhere: with a lease, by the monitor, of cases that are
/// not run here.
const ELSEWHERE: [&Metric; 20] = [
    &metric::CANARY_RUNS,
    &metric::CASE_FLIPS,
    &metric::DATA_SOURCE_VALIDATIONS,
    &metric::DELETE_FAILED,
    &metric::FORCED_DETACHES,
    &metric::LEADER_STATUS,
    &metric::LISTS_AFTER_START,
    &metric::PHASE_WAITING,
    &metric::PHASE_WITHOUT_DURATION,
    &metric::PHASE_WAITING_OLDEST,
    &metric::TRACKED,
    &metric::PROCESS_MEMORY,
    &metric::PROCESS_START,
    &metric::PROVISION_FAILED,
    &metric::QUEUE_RETRIES,
    &metric::SNAPSHOT_OPERATION,
    &metric::STUCK_VOLUMES,
    &metric::UNUSED_OBJECTS,
    &metric::VOLUME_OPERATION_ERRORS,
    &metric::WATCH_RESTARTS,
];

/// What the run and its components, as it lists them, expose.
#[derive(Default)]
pub struct Exposed {
    /// The last text of each.
    pub texts: BTreeMap<String, String>,
    /// The names of all metrics that a component has exposed.
    names: BTreeSet<String>,
    /// The names of all operations that a component has reported.
    operations: BTreeSet<String>,
}

impl Exposed {
    /// Looks again at a run that lasts.
    pub fn look(&mut self, address: &str) {
        let page = |path: &str| get(address, path).filter(|(status, _)| *status == 200).map(|(_, text)| text);
        let targets = page("/targets").and_then(|text| serde_json::from_str(&text).ok());
        let targets: Vec<Value> = targets.unwrap_or_default();
        let listed = targets.iter().filter_map(|target| target["labels"]["__metrics_path__"].as_str());
        for path in listed.chain(["/metrics"]) {
            if let Some(text) = page(path) {
                let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
                self.names.extend(types.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())));
                let timed = text.lines().filter(|line| line.starts_with(STORAGE_OPERATION_DURATION.name));
                let operation =
                    |line: &str| Some(line.split_once("operation_name=\"")?.1.split_once('"')?.0.to_owned());
                self.operations.extend(timed.filter_map(operation));
                self.texts.insert(path.to_owned(), text);
            }
        }
    }

    /// Metrics that are declared, and that no component has exposed.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = ALL.iter().filter(|metric| !self.names.contains(metric.name));
        missing.filter(|metric| !ELSEWHERE.contains(metric)).map(|metric| metric.name).collect()
    }

    /// Operations on volumes that no component has reported.
    pub fn missing_operations(&self) -> Vec<&'static str> {
        let names = StorageOperation::ALL.iter().map(|operation| operation.name());
        names.filter(|name| !self.operations.contains(*name)).collect()
    }

    /// What is wrong with them, and not upstream's.
    pub fn problems(&self) -> Vec<String> {
        let problems = self.texts.iter().flat_map(|(path, text)| {
            assert!(text.contains("claimcheck_build_info"), "{path} exposes\n{text}");
            lint(text).into_iter().map(move |line| format!("{path}: {line}"))
        });
        problems.collect()
    }
}

fn lint(text: &str) -> Vec<String> {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    promtool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("promtool reads");
    let printed = promtool.wait_with_output().expect("promtool ends").stderr;
    let printed = String::from_utf8_lossy(&printed);
    printed.lines().filter(|line| !line.is_empty() && !UPSTREAM.contains(line)).map(str::to_owned).collect()
}
