//! A whole run on a cluster of kind, from `kind create` to `kind delete`. Its API server, nodes and driver are
//! those of an embedded cluster in a process of its own; `kind` and `docker` are fakes.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use claimcheck_cluster::KIND_FAULTS;
use claimcheck_deploy::install::{self, Variant};
use claimcheck_kind::Store;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

/// Cases that need no loop devices and disrupt no component.
const CASES: &str = "each CSI call exactly once [dynamic, default fs";

/// What `docker info` says where all is well.
const INFO: &str = r#"{"ServerVersion":"28.2.2","CgroupDriver":"systemd","CgroupVersion":"2",
    "MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"DockerRootDir":"/no/such/folder"}"#;

fn claimcheck() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    command
}

/// The embedded cluster behind the nodes of kind.
struct Behind {
    child: Child,
    /// Open for what it says later.
    _printed: BufReader<ChildStdout>,
}

impl Behind {
    fn up(out: &Path) -> Self {
        let mut command = claimcheck();
        command.args(["cluster", "up", "--out"]).arg(out).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut printed = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = printed.by_ref().lines().map_while(Result::ok);
        let ready = lines.any(|line| line.starts_with("export KUBECONFIG="));
        assert!(ready, "the embedded cluster does not come up");
        Self { child, _printed: printed }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Says of our components what the controllers of a real cluster would: that they run. They are applied before,
/// since an installation that changes nothing finds them as they are.
async fn complete(kubeconfig: &Path) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a kubeconfig")).expect("a client");
    let faults = Some(KIND_FAULTS.to_owned());
    let components = install::Options { faults, ..install::Options::new(Variant::Kind) };
    install::apply(&client, &components).await.expect("the components are applied");
    let set = json!({ "status": {
        "observedGeneration": 1, "currentNumberScheduled": 2, "desiredNumberScheduled": 2,
        "numberMisscheduled": 0, "numberReady": 2, "numberAvailable": 2, "updatedNumberScheduled": 2,
    }});
    let deployment = json!({ "status": {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
    }});
    let namespace = &components.namespace;
    let (sets, deployments): (Api<DaemonSet>, Api<Deployment>) =
        (Api::namespaced(client.clone(), namespace), Api::namespaced(client, namespace));
    let params = PatchParams::default();
    for object in install::objects(&components) {
        let name = object.metadata.name.expect("it has a name");
        match object.types.expect("it has a kind").kind.as_str() {
            "DaemonSet" => {
                drop(sets.patch_status(&name, &params, &Patch::Merge(&set)).await.expect("it is there"))
            }
            "Deployment" => {
                let patched = deployments.patch_status(&name, &params, &Patch::Merge(&deployment)).await;
                drop(patched.expect("it is there"));
            }
            _ => {}
        }
    }
}

struct Machine(tempfile::TempDir);

impl Machine {
    /// With a `kind` that stands for the one cluster behind it.
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().expect("a folder"));
        for folder in ["bin", "rules"] {
            fs::create_dir(machine.path(folder)).expect("a folder");
        }
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/kind/src/testing.sh");
        for name in ["kind", "docker"] {
            symlink(&program, machine.path("bin").join(name)).expect("a link");
        }
        fs::write(machine.path("info"), INFO).expect("a file");
        let create = "echo \"$name-worker|$name|Up 1 second|ours\" >>\"$FAKE/containers\"\n\
                      cp \"$FAKE/up/kubeconfig\" \"$(after --kubeconfig \"$@\")\"; exit 0\n";
        fs::write(machine.path("rules/kind-create"), create).expect("a file");
        let get = "if [ \"$2\" = kubeconfig ]; then cat \"$FAKE/up/kubeconfig\"; exit 0; fi\n";
        fs::write(machine.path("rules/kind-get"), get).expect("a file");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, out: &str, args: &[&str]) -> Output {
        let mut command = claimcheck();
        command.args(["run", "--cluster", "kind", CASES, "--out"]).arg(self.path(out)).args(args);
        command.env_remove("KIND_EXPERIMENTAL_PROVIDER").env("PATH", self.path("bin"));
        command.env("FAKE", self.0.path()).env("XDG_STATE_HOME", self.0.path());
        command.output().expect("the binary runs")
    }

    fn summary(&self, out: &str) -> Value {
        let text = fs::read(self.path(out).join("summary.json")).expect("a summary");
        serde_json::from_slice(&text).expect("JSON")
    }

    fn containers(&self) -> String {
        fs::read_to_string(self.path("containers")).expect("kind was called")
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path("log")).expect("kind was called")
    }
}

#[tokio::test]
async fn cases_run_on_a_cluster_of_kind_and_nothing_of_it_is_left() {
    let machine = Machine::new();
    let _behind = Behind::up(&machine.path("up"));
    complete(&machine.path("up/kubeconfig")).await;

    let output = machine.run("run", &["--name", "ci"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = machine.summary("run");
    assert_eq!(summary["environment"]["cluster"], "kind", "{summary}");
    assert!(summary["cases"]["passed"].as_u64() >= Some(2), "{summary}");
    assert_eq!((&summary["cases"]["failed"], &summary["leaks"]), (&json!(0), &json!([])), "{summary}");
    assert_eq!(machine.containers(), "");
    assert_eq!(Store::at(machine.path("claimcheck/kind")).records().len(), 0);
    let calls = machine.calls();
    let steps = ["kind create cluster", "kind load docker-image claimcheck:dev", "kind delete cluster"];
    let places: Vec<_> =
        steps.iter().map(|step| calls.find(step).unwrap_or_else(|| panic!("{calls}"))).collect();
    assert!(places.is_sorted(), "{calls}");
    assert!(!calls.contains("export logs"), "nothing failed: {calls}");

    // Made by the first of two, and used by both.
    for out in ["first", "second"] {
        let output = machine.run(out, &["--name", "stays", "--reuse", "--controllers", "ours"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("`claimcheck cluster down claimcheck-stays` deletes it"), "{printed}");
    }
    assert!(machine.containers().starts_with("claimcheck-stays-worker|"), "{}", machine.containers());
    assert_eq!(machine.calls().matches("kind create cluster").count(), 2, "{}", machine.calls());
}
