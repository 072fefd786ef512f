//! Upstream's own sidecars with upstream's hostpath driver, as programs on an embedded cluster.

use std::{env, fs, path::Path};

use nix::unistd::geteuid;

use crate::leaves_nothing::{Run, alone, nothing_left};

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
    let run = Run::passes("stock-sidecars", &args);
    let events = fs::read_to_string(run.folder().join("events.ndjson")).expect("events");
    for method in ["CreateVolume", "ControllerPublishVolume", "DeleteVolume"] {
        assert!(events.contains(&format!(r#""method":"{method}""#)), "no {method} was recorded");
    }
    for (name, _) in SIDECARS {
        let per_node = if name == "registrar" { "-node-1" } else { "" };
        run.has_logged(&format!("cluster/sidecar-{name}{per_node}.log"));
    }
    nothing_left(&run.tag);
}
