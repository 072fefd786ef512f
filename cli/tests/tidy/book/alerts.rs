//! The runbook has a section for each alert, and for no other.

use std::{collections::BTreeSet, fs};

use crate::{files, workspace};

#[test]
fn runbook_has_a_section_per_alert() {
    let rules = files(|name| name.ends_with(".rules.yaml"));
    let alerts: BTreeSet<String> = rules
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).expect("rules are text");
            let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: "));
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert!(alerts.len() > 5, "only {alerts:?}: the search itself is broken");
    let page = fs::read_to_string(workspace().join("docs/operators/runbook.md")).expect("the runbook");
    let sections: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
    assert_eq!(sections, alerts, "docs/operators/runbook.md has other sections than there are alerts");
}
