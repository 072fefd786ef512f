//! A stock kube-controller-manager and kube-scheduler on an embedded cluster.

use std::{env, fs, path::Path};

use nix::unistd::geteuid;

use crate::leaves_nothing::{Run, alone, nothing_left};

/// The folder with the programs.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

const PROGRAMS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Whether the programs are there and may run.
pub fn has_programs() -> bool {
    let folder = env::var_os(ASSETS).unwrap_or_default();
    if let Some(missing) = PROGRAMS.iter().find(|program| !Path::new(&folder).join(program).is_file()) {
        println!("skipped: {ASSETS} names no folder with {missing}");
        return false;
    }
    if !geteuid().is_root() {
        println!("skipped: without root, cases that require loop devices are skipped");
        return false;
    }
    true
}

#[test]
fn volumes_are_bound_and_attached_by_stock_controllers() {
    if !has_programs() {
        return;
    }
    let _alone = alone();
    let args = ["run", "provisioning::", "--controllers", "stock"];
    let run = Run::passes("stock-controllers", &args);
    for program in PROGRAMS {
        run.has_logged(&format!("cluster/{program}.log"));
    }
    // The built-in controllers would otherwise do the same work.
    let requests = fs::read_to_string(run.folder().join("cluster/api.ndjson")).expect("an audit log");
    for user in ["kube-controller-manager", "kube-scheduler"] {
        assert!(requests.contains(user), "no request of {user} was served");
    }
    nothing_left(&run.tag);
}
