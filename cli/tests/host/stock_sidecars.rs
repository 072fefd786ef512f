//! Upstream's own sidecars with upstream's hostpath driver, as programs on an embedded cluster.

use std::{env, fs, path::Path};

use nix::unistd::geteuid;

use crate::leaves_nothing::{Run, alone, claimcheck, nothing_left};

/// The folder with the programs. Not `CLAIMCHECK_SIDECARS`, which is the variable of `--sidecars`.
pub const FOLDER: &str = "CLAIMCHECK_STOCK_SIDECARS";

/// The driver, and each sidecar with its command line.
const DRIVER: &str = "exec:hostpathplugin --endpoint {endpoint} --nodeid {node_id} --statedir {state_dir} \
                      --enable-attach";
const SIDECARS: [(&str, &str); 6] = [
    ("provisioner", "csi-provisioner --csi-address={socket} --kubeconfig={kubeconfig} -v=5"),
    ("attacher", "csi-attacher --csi-address={socket} --kubeconfig={kubeconfig} -v=5"),
    ("resizer", "csi-resizer --csi-address={socket} --kubeconfig={kubeconfig} -v=5"),
    ("snapshotter", "csi-snapshotter --csi-address={socket} --kubeconfig={kubeconfig} -v=5"),
    ("snapshot-controller", "snapshot-controller --kubeconfig={kubeconfig} -v=5"),
    (
        "registrar",
        "csi-node-driver-registrar --csi-address={socket} --kubelet-registration-path={socket} \
         --plugin-registration-path={registration_dir} -v=5",
    ),
];

#[test]
fn volumes_are_provisioned_by_stock_sidecars() {
    let _alone = alone();
    let Some(folder) = env::var_os(FOLDER) else {
        println!("skipped: set {FOLDER} to a folder with hostpathplugin and the sidecars of kubernetes-csi");
        return;
    };
    if !geteuid().is_root() {
        println!("skipped: the hostpath driver mounts, which requires root");
        return;
    }
    let folder = Path::new(&folder).display().to_string();
    let driver = DRIVER.replace("exec:", &format!("exec:{folder}/"));
    let sidecars = SIDECARS.map(|(name, command)| format!("{name}=exec:{folder}/{command}"));
    let mut args = vec!["run", "provisioning::", "--driver", &driver];
    for sidecar in &sidecars {
        args.extend(["--sidecar", sidecar]);
    }
    let mut run = Run::start("stock-sidecars", &mut claimcheck(), &args);
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
    for method in ["CreateVolume", "ControllerPublishVolume", "DeleteVolume"] {
        assert!(events.contains(&format!(r#""method":"{method}""#)), "no {method} was recorded");
    }
    assert!(!events.contains(r#""event":"component_exited""#), "a component has exited");
    for (name, _) in SIDECARS {
        let per_node = if name == "registrar" { "-node-1" } else { "" };
        let log = run.folder().join(format!("cluster/sidecar-{name}{per_node}.log"));
        assert!(fs::metadata(&log).is_ok_and(|log| log.len() > 0), "{} is empty", log.display());
    }
    nothing_left(&run.tag);
}
