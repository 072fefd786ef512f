//! Memory and CPU time of the observer of one node, with synthetic objects and real mounts:
//!
//! ```text
//! cargo bench -p claimcheck-node-phases --bench node -- --pods 250 --seconds 60
//! ```
//!
//! One pod starts and one ends each second, as on a busy node. One process has the API server, and makes the mounts of
//! the pods in its own mount namespace; the other one, which is measured, is the observer as the component runs it.
//! Nothing is asserted, since speed is that of a machine. Mounting requires root or user namespaces.

#![expect(clippy::unwrap_used, reason = "a benchmark ends at the first error")]

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Lines, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use claimcheck_apiserver as apiserver;
use clap::Parser as _;
use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolume, Pod},
    storage::v1::CSIDriver,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    runtime::Builder,
    time::{MissedTickBehavior, interval},
};

/// The first argument of the process with the cluster, and of the observer.
const CLUSTER: &str = "--cluster";
const OBSERVER: &str = "--observer";
const NODE: &str = "n1";
const DRIVER: &str = "driver.csi.example.com";
/// The layers of a container's image.
const LAYERS: usize = 10;

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Arguments {
    pods: usize,
    seconds: u64,
}

impl Arguments {
    fn parse(words: &[String]) -> Self {
        // For `cargo test`, which runs benchmarks to see that they run.
        let quick = !words.iter().any(|word| word == "--bench");
        let mut arguments =
            if quick { Self { pods: 5, seconds: 1 } } else { Self { pods: 250, seconds: 60 } };
        for pair in words.windows(2) {
            match &*pair[0] {
                "--pods" => arguments.pods = pair[1].parse().unwrap(),
                "--seconds" => arguments.seconds = pair[1].parse().unwrap(),
                _ => {}
            }
        }
        arguments
    }
}

/// The arguments of the component.
#[derive(clap::Parser)]
struct Observer {
    #[command(flatten)]
    watch: claimcheck_observe::Args,
    #[command(flatten)]
    phases: claimcheck_node_phases::Args,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(CLUSTER) => {
            let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(cluster(Path::new(&words[1]), Arguments::parse(&words)));
        }
        Some(OBSERVER) => {
            let observer = Observer::parse_from(words);
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let phases = observer.phases.start(observer.watch.node_name.clone()).await.unwrap();
                claimcheck_observe::run(observer.watch, phases, std::future::pending()).await.unwrap();
            });
        }
        _ => measure(Arguments::parse(&words)),
    }
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A process that ends with the benchmark.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process with the cluster, which proceeds at each line of its input.
struct Cluster {
    process: Process,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    /// In its own mount namespace; none if this machine does not permit that.
    fn start(kubelet_dir: &Path, arguments: Arguments) -> Option<Self> {
        let mut unshare = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--mount", "--propagation", "private"]);
        unshare.arg(std::env::current_exe().unwrap()).arg(CLUSTER).arg(kubelet_dir);
        unshare.args(["--pods", &arguments.pods.to_string(), "--seconds", &arguments.seconds.to_string()]);
        let mut child = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut started = Self { process: Process(child), input, lines: BufReader::new(output).lines() };
        (started.line()? == "mounted").then_some(started)
    }

    /// Its next line.
    fn line(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }

    /// Lets it proceed to its next line.
    fn proceed(&mut self) {
        self.input.write_all(b"\n").unwrap();
        self.line().unwrap();
    }
}

fn measure(arguments: Arguments) {
    let folder = tempfile::tempdir().unwrap();
    let kubelet_dir = folder.path().canonicalize().unwrap();
    let cluster = Cluster::start(&kubelet_dir, arguments);
    let mut cluster = cluster.expect("a mount namespace: run as root, in a container by --privileged");
    let kubeconfig: String = serde_json::from_str(&cluster.line().unwrap()).unwrap();
    let (file, address) = (folder.path().join("kubeconfig"), unused_address());
    fs::write(&file, kubeconfig).unwrap();
    let mut observer = Command::new(std::env::current_exe().unwrap());
    observer.arg(OBSERVER).args(["--node-name", NODE, "--metrics", &address.to_string()]);
    observer.arg("--mountinfo").arg(format!("/proc/{}/mountinfo", cluster.process.0.id()));
    observer.arg("--kubelet-dir").arg(&kubelet_dir).arg("--kubeconfig").arg(&file);
    let observer = Process(observer.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let pid = observer.0.id();
    while !get(address, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        std::thread::sleep(Duration::from_millis(10));
    }
    cluster.proceed();
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", cluster.process.0.id())).unwrap();
    // What started is settled.
    std::thread::sleep(Duration::from_secs(2));
    let (before, started) = (cpu_seconds(pid), Instant::now());
    cluster.proceed();
    let share = (cpu_seconds(pid) - before) / started.elapsed().as_secs_f64();
    let (resident, anonymous) = (memory(pid, "VmRSS:"), memory(pid, "RssAnon:"));
    let text = get(address, "/metrics").unwrap();
    let phases = text
        .lines()
        .filter(|line| line.starts_with("claimcheck_phase_duration_seconds_") && !line.contains("_bucket"));
    println!("{} pods, one starts and one ends each second, {} s", arguments.pods, arguments.seconds);
    println!("{:<28}{:>10} of {} kB", "mounts", mounts.lines().count(), mounts.len() / 1000);
    println!("{:<28}{:>10.2} %   1 %", "CPU of a core", share * 100.0);
    println!("{:<28}{resident:>10.1} MB  20 MB", "resident");
    println!("{:<28}{anonymous:>10.1} MB", "  of that anonymous");
    phases.for_each(|line| println!("  {line}"));
}

fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The CPU time of all threads so far, in steps of 10 ms (`man 5 proc_pid_stat`).
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    ticks.sum::<u64>() as f64 / 100.0
}

/// A field of `/proc/<pid>/status` in megabytes.
fn memory(pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
}

fn volume(number: usize) -> String {
    format!("pvc-{number:032x}")
}

fn handle(number: usize) -> String {
    format!("vol-{number:017x}")
}

fn object<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The process with the API server and the mounts.
async fn cluster(kubelet_dir: &Path, arguments: Arguments) {
    let mounts = Mounts::new(kubelet_dir);
    println!("mounted");
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let kubeconfig = server.kubeconfig();
    let mut pods = Pods::new(client(&kubeconfig).await, mounts).await;
    println!("{}", json!(kubeconfig));
    wait();
    for _ in 0..arguments.pods {
        pods.start().await;
    }
    println!("filled");
    wait();
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..arguments.seconds {
        ticks.tick().await;
        pods.start().await;
        pods.end().await;
    }
    println!("done");
    wait();
}

/// Waits for a line of the first process.
fn wait() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// The mounts of the node, as kubelet, driver and containerd make them.
struct Mounts {
    kubelet_dir: PathBuf,
}

impl Mounts {
    fn new(kubelet_dir: &Path) -> Self {
        let mounts = Self { kubelet_dir: kubelet_dir.to_owned() };
        let layers: String = (0..LAYERS).map(|nth| format!("mkdir -p {}; ", layer(nth))).collect();
        mounts.run(&format!("mount -t tmpfs none .; cd .; mkdir state; mount -t tmpfs none state; {layers}"));
        mounts
    }

    fn run(&self, commands: &str) {
        // The second `cd` enters what is mounted there.
        let commands = format!("set -e; cd {0}; {commands}", self.kubelet_dir.display());
        let status = Command::new("sh").args(["-c", &commands]).status().unwrap();
        assert!(status.success(), "{commands}");
    }

    /// Staging path, target path, and the other mounts of a pod with two containers: its token, and in containerd's
    /// directories the network namespace, shared memory and a file system per container and for the sandbox.
    fn pod_paths(&self, uid: &str, number: usize) -> [String; 8] {
        let sha = claimcheck_model::sha256(handle(number));
        let volumes = format!("pods/{uid}/volumes");
        let container =
            |nth: usize| format!("state/io.containerd.runtime.v2.task/k8s.io/{nth}{}/rootfs", &sha[1..]);
        [
            format!("{volumes}/kubernetes.io~projected/kube-api-access"),
            format!("state/netns/cni-{uid}"),
            format!("state/io.containerd.grpc.v1.cri/sandboxes/{sha}/shm"),
            container(0),
            format!("plugins/kubernetes.io/csi/{DRIVER}/{sha}/globalmount"),
            format!("{volumes}/kubernetes.io~csi/{}/mount", volume(number)),
            container(1),
            container(2),
        ]
    }

    fn start(&self, uid: &str, number: usize) {
        let lower: Vec<String> =
            (0..LAYERS).map(|nth| format!("{}/{}", self.kubelet_dir.display(), layer(nth))).collect();
        let all = self.pod_paths(uid, number);
        let stage = &all[4];
        let commands = all.iter().enumerate().map(|(nth, path)| {
            let mount = match nth {
                1 => format!("touch {path}; mount --bind /proc/self/ns/net {path}"),
                3 | 6 | 7 => format!("mount -t overlay overlay -o lowerdir={} {path}", lower.join(":")),
                5 => format!("mount --bind {stage} {path}"),
                _ => format!("mount -t tmpfs none {path}"),
            };
            match nth {
                1 => format!("mkdir -p state/netns; {mount}; "),
                _ => format!("mkdir -p {path}; {mount}; "),
            }
        });
        self.run(&commands.collect::<String>());
    }

    fn end(&self, uid: &str, number: usize) {
        // The containers first, and the staging path last.
        let mut all = self.pod_paths(uid, number);
        all.swap(0, 4);
        self.run(&all.iter().rev().map(|path| format!("umount {path}; ")).collect::<String>());
    }
}

/// A layer of an image, as its snapshotter names it.
fn layer(nth: usize) -> String {
    format!("state/io.containerd.snapshotter.v1.overlayfs/snapshots/{nth}/fs")
}

/// The pods of the node.
struct Pods {
    client: Client,
    mounts: Mounts,
    /// Number and uid, the first one first.
    running: VecDeque<(usize, String)>,
    next: usize,
}

impl Pods {
    async fn new(client: Client, mounts: Mounts) -> Self {
        let post = PostParams::default();
        let namespace: Namespace = object(json!({ "metadata": { "name": "default" } }));
        // There may be one already.
        let _ = Api::all(client.clone()).create(&post, &namespace).await;
        let node: Node = object(json!({ "metadata": { "name": NODE } }));
        let nodes = Api::<Node>::all(client.clone());
        nodes.create(&post, &node).await.unwrap();
        let images = (0..50).map(|nth| {
            let name = format!("registry.example.com/team/service-{nth}");
            json!({ "names": [format!("{name}@sha256:{nth:064x}"), format!("{name}:v1")], "sizeBytes": 50_000_000 })
        });
        let patch = json!({ "status": { "images": images.collect::<Vec<_>>() } });
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let driver: CSIDriver =
            object(json!({ "metadata": { "name": DRIVER }, "spec": { "attachRequired": true } }));
        Api::all(client.clone()).create(&post, &driver).await.unwrap();
        Self { client, mounts, running: VecDeque::new(), next: 0 }
    }

    fn api(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn start(&mut self) {
        let (number, post) = (self.next, PostParams::default());
        self.next += 1;
        let created: PersistentVolume = object(json!({
            "metadata": { "name": volume(number) },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "fast",
                "csi": { "driver": DRIVER, "volumeHandle": handle(number) },
                "claimRef": { "namespace": "default", "name": format!("data-{number}") },
            },
        }));
        Api::all(self.client.clone()).create(&post, &created).await.unwrap();
        // About as large as pods are.
        let variable =
            |nth| json!({ "name": format!("SETTING_{nth}"), "value": format!("value of setting {nth}") });
        let environment: Vec<Value> = (0..40).map(variable).collect();
        let container =
            |name: &str| json!({ "name": name, "image": "registry.example.com/db:1", "env": environment });
        let pod: Pod = object(json!({
            "metadata": { "name": format!("db-{number}") },
            "spec": {
                "nodeName": NODE,
                "containers": [container("db"), container("proxy")],
                "volumes": [
                    { "name": "data", "persistentVolumeClaim": { "claimName": format!("data-{number}") } },
                    { "name": "scratch", "emptyDir": {} },
                ],
            },
        }));
        let uid = self.api().create(&post, &pod).await.unwrap().metadata.uid.unwrap();
        self.running.push_back((number, uid.clone()));
        self.node("volumesInUse").await;
        self.node("volumesAttached").await;
        self.mounts.start(&uid, number);
        for (phase, ready) in [("Pending", "False"), ("Running", "False"), ("Running", "True")] {
            self.status(number, phase, ready).await;
        }
    }

    async fn end(&mut self) {
        let (number, uid) = self.running.pop_front().unwrap();
        for (phase, ready) in [("Running", "False"), ("Succeeded", "False")] {
            self.status(number, phase, ready).await;
        }
        self.mounts.end(&uid, number);
        self.node("volumesInUse").await;
        self.node("volumesAttached").await;
        let now = DeleteParams::default().grace_period(0);
        self.api().delete(&format!("db-{number}"), &now).await.unwrap();
    }

    async fn status(&self, number: usize, phase: &str, ready: &str) {
        let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"]
            .map(|name| json!({ "type": name, "status": "True" }));
        let conditions: Vec<Value> =
            conditions.into_iter().chain([json!({ "type": "Ready", "status": ready })]).collect();
        let patch = Patch::Merge(json!({ "status": { "phase": phase, "conditions": conditions } }));
        let name = format!("db-{number}");
        self.api().patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Updates one of the Node's lists of volumes.
    async fn node(&self, list: &str) {
        let names =
            self.running.iter().map(|(number, _)| format!("kubernetes.io/csi/{DRIVER}^{}", handle(*number)));
        let listed = names.map(|name| match list {
            "volumesAttached" => json!({ "name": name, "devicePath": "" }),
            _ => json!(name),
        });
        let patch = json!({ "status": { list: listed.collect::<Vec<_>>() } });
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}
