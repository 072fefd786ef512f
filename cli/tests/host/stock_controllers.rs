//! A stock kube-controller-manager and kube-scheduler on an embedded cluster.

use std::{env, fs, path::Path};

use nix::unistd::geteuid;

use crate::leaves_nothing::{Run, alone, claimcheck, nothing_left};

/// The folder with the programs.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

const PROGRAMS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

#[test]
fn volumes_are_bound_and_attached_by_stock_controllers() {
    let _alone = alone();
    let folder = env::var_os(ASSETS).unwrap_or_default();
    if let Some(missing) = PROGRAMS.iter().find(|program| !Path::new(&folder).join(program).is_file()) {
        println!("skipped: {ASSETS} names no folder with {missing}");
        return;
    }
    if !geteuid().is_root() {
        println!("skipped: without root, cases that require loop devices are skipped");
        return;
    }
    let args = ["run", "provisioning::", "--controllers", "stock"];
    let mut run = Run::start("stock-controllers", &mut claimcheck(), &args);
    let (stdout, stderr) = (run.child.stdout.take(), run.child.stderr.take());
    // Both are read at once, so that neither fills up.
    let errors = std::thread::spawn(|| std::io::read_to_string(stderr.expect("piped")).expect("text"));
    let printed = std::io::read_to_string(stdout.expect("piped")).expect("text");
    let code = run.child.wait().expect("it was ours").code();
    assert_eq!(code, Some(0), "{printed}{}", errors.join().expect("it reads"));
    let summary = fs::read(run.folder().join("summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("JSON");
    assert!(summary["cases"]["passed"].as_u64() > Some(0), "{}", summary["cases"]);
    let events = fs::read_to_string(run.folder().join("events.ndjson")).expect("events");
    assert!(!events.contains(r#""event":"component_exited""#), "a component has exited");
    for program in PROGRAMS {
        let log = run.folder().join(format!("cluster/{program}.log"));
        assert!(fs::metadata(&log).is_ok_and(|log| log.len() > 0), "{} is empty", log.display());
    }
    // The built-in controllers would otherwise do the same work.
    let requests = fs::read_to_string(run.folder().join("cluster/api.ndjson")).expect("an audit log");
    for user in ["kube-controller-manager", "kube-scheduler"] {
        assert!(requests.contains(user), "no request of {user} was served");
    }
    nothing_left(&run.tag);
}
