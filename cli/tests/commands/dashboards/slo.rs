//! `claimcheck slo rules`, as users call it. What it prints is tested in `claimcheck-report`, and by `promtool`.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use super::files::folder;

fn slo_rules(file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.args(["slo", "rules"]).arg(file).args(more).output().expect("the binary runs")
}

#[test]
fn slo_rules_prints_the_rules_next_to_the_dashboards() {
    let folder = folder().join("prometheus");
    let output = slo_rules(&folder.join("slo.yaml"), &["--by", "cluster"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stored = fs::read_to_string(folder.join("slo.rules.yaml")).expect("a file");
    assert_eq!(String::from_utf8_lossy(&output.stdout), stored);
    let output = slo_rules(&folder.join("slo.yaml"), &["--output", "prometheusrule", "--source", "all"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("\nkind: PrometheusRule\n") && !printed.contains("source!="), "{printed}");
}

#[test]
fn slo_rules_rejects_what_it_cannot_turn_into_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("slo.yaml");
    let slos = "slos:\n  - {phase: stage, quantile: P95, max: 2s}\n  - {count: errors, max: 0}\n";
    fs::write(&file, slos).expect("a file");
    let output = slo_rules(&file, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let printed = String::from_utf8_lossy(&output.stderr);
    for words in ["cannot be turned into rules", "line 2: stage P95", "use 1s or 2.5s", "\nline 3: errors"] {
        assert!(printed.contains(words), "{printed}");
    }
    let output = slo_rules(&folder.path().join("missing.yaml"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read"));
}
