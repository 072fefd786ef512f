//! The layout of upstream's hostpath manifests, with upstream's own programs in place of their images.

use std::{env, fs, path::Path};

use nix::unistd::geteuid;

use crate::{
    leaves_nothing::{Run, alone, claimcheck, nothing_left},
    stock_sidecars::FOLDER,
};

/// The manifests, which the planner's tests read, too.
const MANIFESTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../harness/cluster/src/deployment/hostpath.yaml");
/// Images by the name of their program.
const PROGRAMS: [&str; 7] = [
    "hostpathplugin",
    "csi-node-driver-registrar",
    "livenessprobe",
    "csi-attacher",
    "csi-provisioner",
    "csi-resizer",
    "csi-snapshotter",
];

#[test]
fn a_vendors_manifests_run_with_programs_in_place_of_their_images() {
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
    let images = PROGRAMS.map(|program| match program {
        // Its folder stands for one image, so that both forms are used.
        "csi-resizer" => format!("{program}={folder}"),
        _ => format!("{program}=exec:{folder}/{program}"),
    });
    let mut args = vec!["run", "provisioning::", "--deployment", MANIFESTS];
    args.extend(["--image-rootfs", "csi-external-health-monitor-controller=none"]);
    for image in &images {
        args.extend(["--image-rootfs", image]);
    }
    let mut run = Run::start("deployment", &mut claimcheck(), &args);
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
    for method in ["CreateVolume", "NodePublishVolume", "DeleteVolume"] {
        assert!(events.contains(&format!(r#""method":"{method}""#)), "no {method} was recorded");
    }
    assert!(!events.contains(r#""event":"component_exited""#), "a component has exited");
    let sidecars = ["attacher", "provisioner", "resizer", "snapshotter"].map(str::to_owned);
    let on_nodes = ["registrar", "livenessprobe"].map(|name| format!("{name}-node-1"));
    for name in sidecars.iter().chain(&on_nodes) {
        let log = run.folder().join(format!("cluster/sidecar-{name}.log"));
        assert!(fs::metadata(&log).is_ok_and(|log| log.len() > 0), "{} is empty", log.display());
    }
    // The driver's default directory was a link into the state directory of the run.
    assert!(!Path::new("/csi-data-dir").exists(), "the run has created /csi-data-dir on the host");
    nothing_left(&run.tag);
}
