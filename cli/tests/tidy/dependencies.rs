//! Dependencies between crates point down only.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

use crate::workspace;

/// The crates by floor: each depends on crates of lower floors alone.
const FLOORS: [&[&str]; 9] = [
    &["model", "files", "kind", "needs"],
    &["substrate", "csi", "engine", "informer", "apiserver", "observe", "runtime"],
    &["controllers", "node", "driver", "saboteur", "scenario", "stock", "node-phases"],
    &["timeline", "telemetry", "conformance", "deploy", "differential"],
    &["report", "component", "monitor", "monitor-install", "vendor"],
    &["cluster"],
    &["harness"],
    &["suites"],
    &["run"],
];
/// Crates that more crates wait for, or that stand alone on purpose, with all that they may depend on, also through
/// others.
const NARROW: [(&str, &[&str]); 8] = [
    // It forks, and holds nearly all of the `unsafe`.
    ("substrate", &["files"]),
    // A few functions of the file system.
    ("files", &[]),
    // A program driven as a user would.
    ("kind", &[]),
    // Every component serves its metrics with it.
    ("telemetry", &["model"]),
    // Compiled beside the components, and without a cluster of any kind.
    ("report", &["model", "files", "telemetry"]),
    ("timeline", &["model", "csi", "informer", "observe"]),
    // It knows neither clusters nor drivers.
    ("engine", &["model"]),
    // No cluster is needed to speak to a driver.
    ("conformance", &["engine", "model", "csi", "observe", "files"]),
];
/// Crates that change often, with all that may depend on them, also through others: an edit compiles no more than these.
const WIDE: [(&str, &[&str]); 3] = [
    // A run has outputs; components, clusters, the monitor and the cases do not know of them.
    ("report", &["run", "cli"]),
    // The monitor of clusters in use can be removed: no run needs it.
    ("monitor", &["cli"]),
    ("monitor-install", &["cli"]),
];

/// The packages of the workspace, as cargo describes them.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]);
    let output = cargo.current_dir(workspace()).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("there are packages").clone()
}

/// What each crate of the workspace depends on directly in the workspace, without the prefix of their names.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let short =
        |name: &Value| name.as_str().unwrap_or_default().strip_prefix("claimcheck-").map(str::to_owned);
    let packages = packages();
    let of_package = packages.iter().map(|package| {
        let listed = package["dependencies"].as_array().expect("a package lists its dependencies").iter();
        // Tests may look further.
        let normal = listed.filter(|dependency| dependency["kind"].is_null());
        let name = short(&package["name"]).unwrap_or_else(|| "cli".to_owned());
        (name, normal.filter_map(|dependency| short(&dependency["name"])).collect())
    });
    of_package.collect()
}

/// All crates that a crate depends on, directly or through others.
fn reached<'a>(dependencies: &'a BTreeMap<String, Vec<String>>, name: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut todo = vec![name];
    while let Some(name) = todo.pop() {
        let of = dependencies.get(name).unwrap_or_else(|| panic!("there is no crate {name}"));
        todo.extend(of.iter().map(String::as_str).filter(|other| found.insert(*other)));
    }
    found
}

/// With several programs in the workspace, cargo needs the choice: README starts claimcheck with `cargo run`.
#[test]
fn cargo_run_starts_claimcheck() {
    let packages = packages();
    let chosen: Vec<&Value> =
        packages.iter().map(|package| &package["default_run"]).filter(|run| !run.is_null()).collect();
    assert_eq!(chosen, ["claimcheck"]);
}

#[test]
fn dependencies_point_down() {
    let floor = |name: &str| {
        let floor = FLOORS.iter().position(|crates| crates.contains(&name));
        floor.unwrap_or_else(|| panic!("{name} has no floor in this test"))
    };
    for (name, of) in dependencies() {
        for other in of.iter().filter(|_| name != "cli") {
            assert!(floor(other) < floor(&name), "{name} must not depend on {other}: see FLOORS");
        }
    }
}

#[test]
fn narrow_crates_stay_narrow() {
    let dependencies = dependencies();
    for (name, allowed) in NARROW {
        let mut more = reached(&dependencies, name);
        more.retain(|other| !allowed.contains(other));
        assert!(more.is_empty(), "{name} depends on {more:?}, directly or through others: see NARROW");
    }
}

#[test]
fn only_listed_crates_depend_on_those_that_change_often() {
    let dependencies = dependencies();
    for (name, allowed) in WIDE {
        let others = dependencies.keys().filter(|other| reached(&dependencies, other).contains(name));
        let found: BTreeSet<&str> = others.map(String::as_str).collect();
        assert_eq!(found, allowed.iter().copied().collect(), "what depends on {name}: see WIDE");
    }
}
