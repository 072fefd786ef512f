//! Upstream's own sidecars with upstream's hostpath driver, as programs on an embedded cluster.

use std::{collections::BTreeMap, env, fs, path::Path};

use serde_json::{Value, json};

use crate::leaves_nothing::{Run, alone, nothing_left};

/// The variable with the folder of the programs. Not `CLAIMCHECK_SIDECARS`, which is the variable of `--sidecars`.
const FOLDER: &str = "CLAIMCHECK_STOCK_SIDECARS";

/// The driver, and each sidecar with its command line. The provisioner has a kubeconfig; the others have the arguments of
/// pods, and find the service account there.
const DRIVER: &str = "exec:hostpathplugin --endpoint {endpoint} --nodeid {node_id} --statedir {state_dir} \
                      --enable-attach";
const SIDECARS: [(&str, &str); 6] = [
    ("provisioner", "csi-provisioner --csi-address={socket} --kubeconfig={kubeconfig} -v=5"),
    ("attacher", "csi-attacher --csi-address={socket} -v=5"),
    ("resizer", "csi-resizer --csi-address={socket} -v=5"),
    (
        "snapshotter",
        "csi-snapshotter --csi-address={socket} --feature-gates=CSIVolumeGroupSnapshot=true -v=5",
    ),
    ("snapshot-controller", "snapshot-controller --feature-gates=CSIVolumeGroupSnapshot=true -v=5"),
    (
        "registrar",
        "csi-node-driver-registrar --csi-address={socket} --kubelet-registration-path={socket} \
         --plugin-registration-path={registration_dir} -v=5",
    ),
];

/// The folder with the programs. For tests that require them.
pub fn folder() -> String {
    claimcheck_needs::require("sidecars");
    env::var(FOLDER).expect("it is required")
}

/// The arguments for the driver in [`folder`], and those for the sidecars. The driver mounts.
fn arguments() -> ([String; 2], Vec<String>) {
    claimcheck_needs::require("root");
    let folder = folder();
    let driver = ["--driver".to_owned(), DRIVER.replace("exec:", &format!("exec:{folder}/"))];
    let sidecars =
        SIDECARS.map(|(name, command)| ["--sidecar".to_owned(), format!("{name}=exec:{folder}/{command}")]);
    (driver, sidecars.into_iter().flatten().collect())
}

/// A run with these arguments, in which no case fails.
fn run<'a>(tag: &str, words: &[&'a str], arguments: impl Iterator<Item = &'a String>) -> Run {
    let arguments = arguments.map(String::as_str);
    Run::passes(tag, &words.iter().copied().chain(arguments).collect::<Vec<_>>())
}

/// The verdict of each case of a run that does not depend on chance, by suite and name.
fn verdicts(run: &Run) -> BTreeMap<(String, String), String> {
    let text = |case: &Value, field: &str| case[field].as_str().expect("text").to_owned();
    let summary = run.summary();
    let cases = summary["results"].as_array().expect("a list").iter();
    let verdict = |case: &Value| match case["reason"].as_str() {
        Some(reason) if reason.starts_with(DIFFERENT) => DIFFERENT.to_owned(),
        _ => text(case, "result"),
    };
    let verdicts = cases.map(|case| ((text(case, "suite"), text(case, "name")), verdict(case)));
    verdicts.filter(|((_, name), _)| !name.starts_with(BY_CHANCE)).collect()
}

/// The driver returns NotFound from ControllerUnpublishVolume for a node that is not its own.
const FINDING: &str = "a volume is detached from a node that no longer exists and attaches to another node [dynamic, default fs, Immediate]";

/// The skip reason of a case that upstream's sidecars fail, as docs/contributors/differences.md lists.
const DIFFERENT: &str = "kubernetes-csi's sidecars behave differently";

/// The driver copies the volumes of a group one after another: whether their data differ depends on the moment.
const BY_CHANCE: &str = "members of a group snapshot have the data of one point in time";

#[test]
#[ignore = "requires root, sidecars"]
fn verdicts_are_the_same_with_stock_and_built_in_sidecars() {
    let _alone = alone();
    let (driver, sidecars) = arguments();
    let run = |tag, arguments: Vec<&str>| verdicts(&Run::ends(tag, &[&["run"], &*arguments].concat()));
    let all = driver.iter().chain(&sidecars).map(String::as_str).collect();
    let mut built_in = run("built-in-sidecars", driver.iter().map(String::as_str).collect());
    let mut stock = run("all-stock-sidecars", all);
    stock.retain(|_, verdict| verdict != DIFFERENT);
    built_in.retain(|case, _| stock.contains_key(case));
    assert_eq!(built_in, stock);
    let failed = built_in.iter().filter(|(_, verdict)| *verdict == "failed");
    let failed: Vec<&str> = failed.map(|((_, name), _)| name.as_str()).collect();
    assert_eq!(failed, [FINDING]);
}

/// Built-in components remove the secrets of a call from the driver's error; upstream's provisioner copies it to its log and
/// to Events.
#[test]
#[ignore = "requires sidecars"]
fn secrets_that_a_driver_quotes_to_stock_sidecars_are_in_no_report() {
    const CANARY: &str = "canary-\"<&>9d41c7e2";
    let _alone = alone();
    let folder = folder();
    let files = tempfile::tempdir().expect("a folder");
    let secret = files.path().join("secret.json");
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "canary", "namespace": "default" },
        "stringData": { "password": CANARY },
    });
    fs::write(&secret, object.to_string()).expect("a file");
    let secret = secret.to_str().expect("text");
    let program = env!("CARGO_BIN_EXE_claimcheck");
    let driver = format!(
        "exec:{program} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} \
         --require-secret CreateVolume:absent=x"
    );
    let provisioner = format!("provisioner=exec:{folder}/csi-provisioner --csi-address={{socket}} -v=5");
    let class = ["name=canary", "namespace=default"]
        .map(|parameter| format!("csi.storage.k8s.io/provisioner-secret-{parameter}"));
    let case = "provisioning::a volume is provisioned, used by a pod and deleted with each CSI call exactly once \
         [dynamic, default fs, Immediate]";
    let run = Run::ends(
        "canary-of-stock-sidecars",
        &[
            "run",
            case,
            "--driver",
            &driver,
            "--sabotage",
            "secret-in-error",
            "--deployment",
            secret,
            "--sidecar",
            &provisioner,
            "--driver-param",
            &class[0],
            "--driver-param",
            &class[1],
        ],
    );
    let events = fs::read_to_string(run.folder().join("events.ndjson")).expect("events");
    assert!(events.contains("[hidden by claimcheck]"), "no error quoted the secret: {events}");
    let mut searched = Vec::new();
    search(&run.folder(), &mut searched);
    for (path, text) in searched.iter().filter(|(path, _)| !path.ends_with("kubeconfig")) {
        assert!(!text.contains("9d41c7e2"), "{} contains the secret", path.display());
    }
    assert!(searched.iter().any(|(path, text)| {
        path.ends_with("cluster/sidecar-provisioner.log") && text.contains("[hidden by claimcheck]")
    }));
    nothing_left(&run.tag);
}

/// All files below a folder.
fn search(folder: &Path, found: &mut Vec<(std::path::PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        match path.is_dir() {
            true => search(&path, found),
            false => {
                let bytes = fs::read(&path).expect("readable");
                found.push((path, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }
}

#[test]
#[ignore = "requires root, sidecars"]
fn volumes_are_provisioned_by_stock_sidecars() {
    let _alone = alone();
    let (driver, sidecars) = arguments();
    let run = run("stock-sidecars", &["run", "provisioning::"], driver.iter().chain(&sidecars));
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
