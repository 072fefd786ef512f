//! Secrets of snapshots, which a user's classes name: on a cluster for kubectl.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    Running, create,
    purposes::{OF_SNAPSHOTS, is_record, reached, required},
};

/// Longer than anything takes, also on a machine that has much else to do.
const LONG: Duration = Duration::from_secs(120);

struct Kubectl<'a> {
    kubeconfig: &'a Path,
    cache: &'a Path,
}

impl Kubectl<'_> {
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut kubectl = Command::new("kubectl");
        kubectl.arg("--kubeconfig").arg(self.kubeconfig).arg("--cache-dir").arg(self.cache);
        let output = kubectl.args(arguments).output().expect("kubectl: apt-get install kubernetes-client");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Waits until a field of an object has a value; returns that.
    fn value(&self, object: &str, path: &str, is_expected: impl Fn(&str) -> bool) -> String {
        let (began, output) = (Instant::now(), format!("jsonpath={{{path}}}"));
        loop {
            let value = self.run(&["get", object, "-o", &output]);
            match &value {
                Ok(value) if is_expected(value) => return value.clone(),
                _ => assert!(began.elapsed() < LONG, "{path} of {object} is {value:?}"),
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A class with the Secrets of the purposes; `kind` is of a group that kubectl finds by its API version.
fn class(version: &str, kind: &str, driver: &str) -> Value {
    let pairs = OF_SNAPSHOTS.iter().flat_map(|purpose| purpose.parameters());
    // Upstream rejects parameters of others.
    let own = |key: &str| key.contains("/group-") == kind.contains("Group");
    let parameters: serde_json::Map<String, Value> =
        pairs.filter(|(key, _)| own(key)).map(|(key, value)| (key, value.into())).collect();
    json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": { "name": "canary" },
        "driver": driver,
        "deletionPolicy": "Delete",
        "parameters": parameters,
    })
}

/// Takes, imports and deletes snapshots and a group of them; the run folder is `folder/run`. Returns the token of its
/// kubeconfig.
pub(super) fn on_a_cluster(folder: &Path) -> String {
    const SNAPSHOTS: &str = "snapshot.storage.k8s.io/v1";
    const GROUPS: &str = "groupsnapshot.storage.k8s.io/v1";
    const DRIVER: &str = "claimcheck.csi.dev";
    fs::create_dir_all(folder).expect("a folder");
    let (out, cache) = (folder.join("run"), folder.with_extension("cache"));
    let program = env!("CARGO_BIN_EXE_claimcheck");
    let driver = format!(
        "exec:{program} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} \
         --record-calls{}",
        required(OF_SNAPSHOTS)
    );
    let file = |name: &str| File::create(folder.join(name)).expect("a file");
    let mut command = Command::new(program);
    command.args(["cluster", "up", "--nodes", "1", "-vv", "--driver", &driver, "--out"]).arg(&out);
    command.stdout(file("stdout")).stderr(file("stderr"));
    let mut up = Running(command.spawn().expect("the binary runs"));
    let kubeconfig = out.join("kubeconfig");
    let secrets: Vec<Value> = OF_SNAPSHOTS.iter().map(super::purposes::Purpose::object).collect();
    let token = create(&secrets, &kubeconfig, &cache, &mut up);

    let kubectl = Kubectl { kubeconfig: &kubeconfig, cache: &cache };
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": "claim", "labels": { "canary": "yes" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    });
    let snapshot = |name: &str, source: Value| {
        json!({
            "apiVersion": SNAPSHOTS,
            "kind": "VolumeSnapshot",
            "metadata": { "name": name },
            "spec": { "volumeSnapshotClassName": "canary", "source": source },
        })
    };
    let group = json!({
        "apiVersion": GROUPS,
        "kind": "VolumeGroupSnapshot",
        "metadata": { "name": "group" },
        "spec": {
            "volumeGroupSnapshotClassName": "canary",
            "source": { "selector": { "matchLabels": { "canary": "yes" } } },
        },
    });
    let classes =
        [class(SNAPSHOTS, "VolumeSnapshotClass", DRIVER), class(GROUPS, "VolumeGroupSnapshotClass", DRIVER)];
    create(&[&classes[..], &[claim]].concat(), &kubeconfig, &cache, &mut up);
    kubectl.value("pvc/claim", ".status.phase", |phase| phase == "Bound");
    let taken = snapshot("taken", json!({ "persistentVolumeClaimName": "claim" }));
    create(&[taken, group], &kubeconfig, &cache, &mut up);
    let is_true = |ready: &str| ready == "true";
    kubectl.value("volumesnapshot/taken", ".status.readyToUse", is_true);
    kubectl.value("volumegroupsnapshot/group", ".status.readyToUse", is_true);
    // The same snapshot again, as an administrator imports it: that is requested with the secret for lists.
    let content =
        kubectl.value("volumesnapshot/taken", ".status.boundVolumeSnapshotContentName", |it| !it.is_empty());
    let handle = kubectl
        .value(&format!("volumesnapshotcontent/{content}"), ".status.snapshotHandle", |it| !it.is_empty());
    let imported = json!({
        "apiVersion": SNAPSHOTS,
        "kind": "VolumeSnapshotContent",
        "metadata": { "name": "imported" },
        "spec": {
            "driver": DRIVER,
            "deletionPolicy": "Retain",
            "volumeSnapshotClassName": "canary",
            "source": { "snapshotHandle": handle },
            "volumeSnapshotRef": { "name": "imported", "namespace": "default" },
        },
    });
    let of_import = snapshot("imported", json!({ "volumeSnapshotContentName": "imported" }));
    create(&[imported, of_import], &kubeconfig, &cache, &mut up);
    kubectl.value("volumesnapshot/imported", ".status.readyToUse", is_true);
    for object in [
        "volumesnapshot/imported",
        "volumesnapshotcontent/imported",
        "volumegroupsnapshot/group",
        "volumesnapshot/taken",
        "pvc/claim",
    ] {
        kubectl
            .run(&["delete", object, "--timeout=120s"])
            .unwrap_or_else(|error| panic!("{object}: {error}"));
    }
    let began = Instant::now();
    while kubectl.run(&["get", "pv,volumesnapshotcontents", "-o", "name"]).is_ok_and(|left| !left.is_empty())
    {
        assert!(began.elapsed() < LONG, "volumes or contents of snapshots remain");
        thread::sleep(Duration::from_millis(50));
    }
    kill(Pid::from_raw(up.0.id().cast_signed()), Signal::SIGINT).expect("it is ours");
    let status = up.0.wait().expect("it is ours");
    assert_eq!(status.code(), Some(0));
    let calls = fs::read_to_string(out.join("cluster/driver-node-1.log")).expect("the driver's log");
    reached(OF_SNAPSHOTS, &calls, is_record);
    token
}
