//! A stock kube-controller-manager and kube-scheduler on an embedded cluster.

use std::fs;

use crate::leaves_nothing::{Run, alone, nothing_left};

const PROGRAMS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

#[test]
#[ignore = "requires root, stock"]
fn volumes_are_bound_and_attached_by_stock_controllers() {
    claimcheck_needs::require("root, stock");
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
