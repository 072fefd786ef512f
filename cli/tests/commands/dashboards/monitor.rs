//! The dashboards of the monitor, and the rules that they use: `promtool` evaluates each expression with the series of
//! six hours of a cluster (`monitor_series.yaml`). `ci/panels` draws the same.

use std::fs;

use claimcheck_model::Phase;
use serde_json::{Value, json};

use super::{
    expressions::promtool,
    files::{Dashboard, OF_THE_MONITOR, dashboards, list, rule_files, rules, text, yaml},
};

/// Minutes 200 to 239 of the series are an incident.
const INCIDENT: &str = "235m";
const END: &str = "355m";

/// An expression with the values that Grafana fills in when a user opens the dashboard.
fn filled(dashboard: &Dashboard, expr: &str) -> String {
    let mut names: Vec<_> = dashboard.variables().iter().map(|variable| text(variable, "name")).collect();
    // One name may begin another.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let expr = expr.replace("$__range", "6h");
    let expr = names.iter().fold(expr, |expr, name| expr.replace(&format!("${name}"), ".*"));
    assert!(!expr.contains('$'), "{expr}");
    expr
}

/// A test that expects a number. `group` has the value 1, and NaN is not greater than anything.
fn has_number(expr: &str, at: &str) -> Value {
    json!({
        "expr": format!("group(({expr}) > -Inf)"),
        "eval_time": at,
        "exp_samples": [{"labels": "{}", "value": 1}],
    })
}

#[test]
#[ignore = "requires prometheus"]
fn every_expression_of_the_monitor_has_an_answer() {
    claimcheck_needs::require("prometheus");
    let all = dashboards();
    let of_the_monitor = all.iter().filter(|dashboard| OF_THE_MONITOR.contains(&dashboard.file.as_str()));
    let mut expected = Vec::new();
    for dashboard in of_the_monitor {
        for target in dashboard.targets() {
            let expr = filled(dashboard, target.expr);
            // Lines of what goes wrong exist during the incident.
            expected.push(has_number(&expr, if target.instant { END } else { INCIDENT }));
        }
    }
    assert!(expected.len() > 50, "{}", expected.len());
    let series = yaml("prometheus/monitor_series.yaml");
    let test =
        json!({"interval": "1m", "input_series": series["input_series"], "promql_expr_test": expected});
    // JSON is YAML.
    let document = json!({"rule_files": rule_files(), "evaluation_interval": "1m", "tests": [test]});
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("test.yaml");
    fs::write(&file, document.to_string()).expect("a file");
    let output = promtool(&["test", "rules", &file.display().to_string()]);
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
}

#[test]
fn each_phase_is_joined_with_its_call() {
    let joined = rules().iter().filter(|rule| rule["record"] == "claimcheck:phase_call:info");
    let joined: Vec<_> = joined
        .map(|rule| {
            let label = |name: &str| text(&rule["labels"], name).to_owned();
            (label("phase"), label("method_name"))
        })
        .collect();
    // The others share their call with one of these.
    let shared = [Phase::SnapshotReady, Phase::Restore, Phase::Clone];
    let phases = Phase::ALL.iter().filter(|phase| !shared.contains(phase));
    let expected: Vec<_> = phases
        .filter_map(|phase| Some((phase.name().to_owned(), phase.info().rpc?.path().to_owned())))
        .collect();
    assert_eq!(joined, expected);
}

#[test]
fn panels_with_driver_time_state_its_precision() {
    for dashboard in dashboards().iter().filter(|dashboard| OF_THE_MONITOR.contains(&dashboard.file.as_str()))
    {
        for panel in dashboard.panels() {
            let exprs = || list(panel, "targets").iter().map(|target| text(target, "expr"));
            let description = text(panel, "description");
            let place = format!("{}: {}", dashboard.file, text(panel, "title"));
            if exprs().any(|expr| expr.contains("phase_driver_seconds")) {
                assert!(description.contains("Exact") && description.contains("estimated"), "{place}");
            } else if exprs().any(|expr| {
                expr.contains("phase_waiting_oldest")
                    || expr.contains("claimcheck_phase_duration_seconds_bucket")
            }) {
                assert!(description.contains("not split into driver and Kubernetes"), "{place}");
            }
        }
    }
}
