//! The layout of upstream's hostpath manifests, with upstream's own programs in place of their images.

use std::{fs, path::Path};

use crate::{
    leaves_nothing::{Run, alone, nothing_left},
    stock_sidecars::folder,
};

/// The manifests, which the planner's tests read, too.
const MANIFESTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../harness/vendor/src/deployment/hostpath.yaml");
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
#[ignore = "requires root, sidecars"]
fn a_vendors_manifests_run_with_programs_in_place_of_their_images() {
    let _alone = alone();
    // The driver mounts.
    claimcheck_needs::require("root");
    let folder = folder();
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
    let run = Run::passes("deployment", &args);
    let events = fs::read_to_string(run.folder().join("events.ndjson")).expect("events");
    for method in ["CreateVolume", "NodePublishVolume", "DeleteVolume"] {
        assert!(events.contains(&format!(r#""method":"{method}""#)), "no {method} was recorded");
    }
    let sidecars = ["attacher", "provisioner", "resizer", "snapshotter"].map(str::to_owned);
    let on_nodes = ["registrar", "livenessprobe"].map(|name| format!("{name}-node-1"));
    for name in sidecars.iter().chain(&on_nodes) {
        run.has_logged(&format!("cluster/sidecar-{name}.log"));
    }
    // The driver's default directory was a link into the state directory of the run.
    assert!(!Path::new("/csi-data-dir").exists(), "the run has created /csi-data-dir on the host");
    nothing_left(&run.tag);
}
