//! What users do in a namespace is written down as a scenario, which passes.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Read},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::{DeleteParams, DynamicObject, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{PROGRAM, claimcheck, printed};

const LIMIT: Duration = Duration::from_secs(60);

/// A command that is interrupted at its end.
struct Running(Child);

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(args).env("CLAIMCHECK_NO_HISTORY", "1");
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs"))
    }

    fn interrupt(&self) {
        // It may have ended.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupt();
        let _ = self.0.wait();
    }
}

fn wait_for<R: Read>(lines: &mut Lines<BufReader<R>>, part: &str) {
    assert!(lines.map_while(Result::ok).any(|line| line.contains(part)), "it ends without {part}");
}

async fn client(kubeconfig: &Path) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the cluster wrote it");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("", "v1", kind);
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&gvk))
}

async fn create(client: &Client, kind: &str, name: &str, spec: Value) {
    let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    api(client, kind).create(&PostParams::default(), &object).await.expect("it is created");
}

async fn until(client: &Client, kind: &str, name: &str, phase: Option<&str>) {
    let reached = async {
        loop {
            let object = api(client, kind).get_opt(name).await.expect("the API server responds");
            let now = object.as_ref().and_then(|object| object.data["status"]["phase"].as_str());
            if now == phase && object.is_some() == phase.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, reached).await.unwrap_or_else(|_| panic!("{kind} {name} never is {phase:?}"));
}

/// A claim and a pod of a person, from creation to deletion.
async fn use_storage(client: &Client) {
    let resources = json!({ "requests": { "storage": "64Mi" } });
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": resources });
    create(client, "PersistentVolumeClaim", "annas-data", spec).await;
    let spec = json!({
        "containers": [{ "name": "c", "image": "secret-project", "command": ["sh", "-c", "sleep 600 & wait"],
                         "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "annas-data" } }],
        "terminationGracePeriodSeconds": 1,
    });
    create(client, "Pod", "annas-app", spec).await;
    until(client, "Pod", "annas-app", Some("Running")).await;
    for (kind, name) in [("Pod", "annas-app"), ("PersistentVolumeClaim", "annas-data")] {
        api(client, kind).delete(name, &DeleteParams::default()).await.expect("it is deleted");
        until(client, kind, name, None).await;
    }
}

#[test]
fn what_users_do_is_recorded_as_a_scenario_that_passes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (cluster, file) = (path("cluster"), path("recorded.yaml"));
    let mut up = Running::start(&["cluster", "up", "--nodes", "1", "--out", &cluster]);
    wait_for(&mut BufReader::new(up.0.stdout.take().expect("piped")).lines(), "Ctrl-C");
    let kubeconfig = path("cluster/kubeconfig");
    let record = [
        "scenario",
        "record",
        "--cluster",
        "existing",
        "--namespace",
        "default",
        "--kubeconfig",
        &kubeconfig,
    ];

    let nothing = claimcheck(&[&record[..], &["--for", "1s"]].concat());
    assert_eq!(nothing.status.code(), Some(1), "{}", printed(&nothing));
    assert!(printed(&nothing).contains("nothing happened in namespace default"), "{}", printed(&nothing));

    let mut recording = Running::start(&[&record[..], &["--out", &file]].concat());
    let mut lines = BufReader::new(recording.0.stderr.take().expect("piped")).lines();
    wait_for(&mut lines, "recording namespace default: Ctrl-C ends it");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { use_storage(&client(Path::new(&kubeconfig)).await).await });
    recording.interrupt();
    wait_for(&mut lines, "left out:");
    assert!(recording.0.wait().expect("it ends").success());

    let text = fs::read_to_string(&file).expect("it was written");
    assert!(!text.contains("anna") && !text.contains("secret-project"), "{text}");
    for part in ["create: claim claim-1", "create: pod pod-1", "delete: pod pod-1", "delete: claim claim-1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let again = claimcheck(&[&record[..], &["--out", &file]].concat());
    assert_eq!(again.status.code(), Some(2), "{}", printed(&again));
    let output = claimcheck(&["run", "--scenario", &file, "--out", &path("run")]);
    assert_eq!(output.status.code(), Some(0), "{}\n{text}", printed(&output));
}
