//! Memory and CPU time of the observer of one node, with synthetic objects and a synthetic mount table:
//!
//! ```text
//! cargo bench -p claimcheck-observe --bench node -- --pods 250 --seconds 60
//! ```
//!
//! One pod starts and one ends each second, as on a busy node. API server and pods are those of a second process, which
//! prints each mount and unmount; the first one makes a table of all mounts of them, as the kernel does at each change.
//! Nothing is asserted, since speed is that of a machine.

#![expect(clippy::unwrap_used, reason = "a benchmark ends at the first error")]

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use claimcheck_apiserver as apiserver;
use claimcheck_model::Stamp;
use claimcheck_observe::{
    Change, Move, Record, Table,
    phases::{Series, follow},
};
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
use sha2::Digest;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{MissedTickBehavior, interval, sleep},
};

const CLUSTER: &str = "--cluster";
const NODE: &str = "n1";
const DRIVER: &str = "driver.csi.example.com";
const KUBELET: &str = "/var/lib/kubelet";
/// Mounts of a pod that are not volumes of a CSI driver: its token, its containers' file systems.
const OTHERS: usize = 6;

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Arguments {
    pods: usize,
    seconds: u64,
}

impl Arguments {
    fn parse(words: &[String]) -> Self {
        // For `cargo test`, which runs benchmarks to see that they run.
        let quick = !words.iter().any(|word| word == "--bench" || word == CLUSTER);
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

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let arguments = Arguments::parse(&words);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if words.iter().any(|word| word == CLUSTER) {
        runtime.block_on(cluster(arguments));
    } else {
        runtime.block_on(measure(arguments));
    }
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A line of the second process.
enum Line {
    Kubeconfig(String),
    /// The volume of this number is mounted in the pod with this uid.
    Mounted(String, usize),
    Unmounted(String, usize),
    /// All pods run.
    Filled,
    Done,
}

fn line(text: &str) -> Line {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["mounted", uid, number] => Line::Mounted(uid.to_owned(), number.parse().unwrap()),
        ["unmounted", uid, number] => Line::Unmounted(uid.to_owned(), number.parse().unwrap()),
        ["filled"] => Line::Filled,
        ["done"] => Line::Done,
        _ => Line::Kubeconfig(serde_json::from_str(text).unwrap()),
    }
}

/// The mounts of a node as the kernel lists them.
#[derive(Default)]
struct Mounts {
    /// The volumes in pods, with the numbers of their mounts.
    published: BTreeMap<(String, usize), usize>,
    next: usize,
    table: Table,
}

impl Mounts {
    fn apply(&mut self, change: &Line) -> Vec<Record> {
        match change {
            Line::Mounted(uid, number) => {
                self.next += OTHERS + 2;
                self.published.insert((uid.clone(), *number), self.next);
            }
            Line::Unmounted(uid, number) => {
                self.published.remove(&(uid.clone(), *number));
            }
            Line::Kubeconfig(_) | Line::Filled | Line::Done => return Vec::new(),
        }
        let mut text = String::new();
        for ((uid, number), id) in &self.published {
            let pod = format!("{KUBELET}/pods/{uid}");
            let digest = sha2::Sha256::digest(handle(*number));
            let sha: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let stage = format!("{KUBELET}/plugins/kubernetes.io/csi/{DRIVER}/{sha}/globalmount");
            let paths = [stage, format!("{pod}/volumes/kubernetes.io~csi/{}/mount", volume(*number))];
            let others = (0..OTHERS).map(|nth| format!("{pod}/volumes/kubernetes.io~projected/other-{nth}"));
            for (nth, path) in paths.into_iter().chain(others).enumerate() {
                writeln!(text, "{} 1 0:9 / {path} rw,relatime shared:1 - ext4 /dev/loop0 rw", id + nth)
                    .unwrap();
            }
        }
        let later = Table::read(text.as_bytes(), Path::new(KUBELET));
        let at = Stamp::now();
        let moves = self.table.moves_to(&later);
        self.table = later;
        let record = |change, place| Record { at, seq: 0, node: NODE.into(), change, place };
        let records = moves.into_iter().map(|step| match step {
            Move::Mounted(place) => record(Change::Mounted, place),
            Move::Unmounted(place) => record(Change::Unmounted, place),
        });
        records.collect()
    }
}

async fn measure(arguments: Arguments) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(CLUSTER).args(["--pods", &arguments.pods.to_string()]);
    command.args(["--seconds", &arguments.seconds.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, mut received) = unbounded_channel();
    std::thread::spawn(move || lines.map_while(Result::ok).all(|text| sender.send(line(&text)).is_ok()));

    let Some(Line::Kubeconfig(kubeconfig)) = received.recv().await else { panic!("no kubeconfig") };
    let series = Series::new("claimcheck-canary");
    let (records, of_task) = unbounded_channel();
    let (client, served) = (client(&kubeconfig).await, series.clone());
    let following = tokio::spawn(async move { follow(client, NODE, of_task, &served).await });
    while !series.is_synced() {
        sleep(Duration::from_millis(10)).await;
    }
    input.write_all(b"\n").unwrap();
    let mut mounts = Mounts::default();
    let mut forward = async |received: &mut UnboundedReceiver<Line>| {
        while let Some(line) = received.recv().await {
            if matches!(line, Line::Filled | Line::Done) {
                return;
            }
            mounts.apply(&line).into_iter().for_each(|record| records.send(record).unwrap());
        }
    };
    forward(&mut received).await;
    // What started is settled.
    sleep(Duration::from_secs(2)).await;
    let (before, started) = (cpu_seconds(), Instant::now());
    input.write_all(b"\n").unwrap();
    forward(&mut received).await;
    let share = (cpu_seconds() - before) / started.elapsed().as_secs_f64();
    let (resident, anonymous) = (memory("VmRSS:"), memory("RssAnon:"));
    let text = series.text();
    let ok = text.lines().filter(|line| line.contains("_count{") && line.contains("result=\"ok\""));
    println!("{} pods, one starts and one ends each second, {} s", arguments.pods, arguments.seconds);
    println!("{:<28}{:>10.2} %   1 %", "CPU of a core", share * 100.0);
    println!("{:<28}{resident:>10.1} MB  20 MB", "resident");
    println!("{:<28}{anonymous:>10.1} MB", "  of that anonymous");
    ok.for_each(|line| println!("  {line}"));
    following.abort();
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The CPU time of all threads so far, in steps of 10 ms (`man 5 proc_pid_stat`).
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    ticks.sum::<u64>() as f64 / 100.0
}

/// A field of `/proc/self/status` in megabytes.
fn memory(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
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

/// The second process.
async fn cluster(arguments: Arguments) {
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let kubeconfig = server.kubeconfig();
    let mut pods = Pods::new(client(&kubeconfig).await).await;
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

/// The pods of the node.
struct Pods {
    client: Client,
    /// Number and uid, the first one first.
    running: VecDeque<(usize, String)>,
    next: usize,
}

impl Pods {
    async fn new(client: Client) -> Self {
        let post = PostParams::default();
        let namespace: Namespace = object(json!({ "metadata": { "name": "default" } }));
        // There may be one already.
        let _ = Api::all(client.clone()).create(&post, &namespace).await;
        let node: Node = object(json!({ "metadata": { "name": NODE } }));
        Api::all(client.clone()).create(&post, &node).await.unwrap();
        let driver: CSIDriver =
            object(json!({ "metadata": { "name": DRIVER }, "spec": { "attachRequired": true } }));
        Api::all(client.clone()).create(&post, &driver).await.unwrap();
        Self { client, running: VecDeque::new(), next: 0 }
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
        let pod: Pod = object(json!({
            "metadata": { "name": format!("db-{number}") },
            "spec": {
                "nodeName": NODE,
                "containers": [{ "name": "c", "image": "registry.example.com/db:1" }],
                "volumes": [
                    { "name": "data", "persistentVolumeClaim": { "claimName": format!("data-{number}") } },
                    { "name": "scratch", "emptyDir": {} },
                ],
            },
        }));
        let uid = self.api().create(&post, &pod).await.unwrap().metadata.uid.unwrap();
        self.running.push_back((number, uid.clone()));
        self.attached().await;
        println!("mounted {uid} {number}");
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        self.status(number, &json!({ "phase": "Running", "conditions": ready })).await;
    }

    async fn end(&mut self) {
        let (number, uid) = self.running.pop_front().unwrap();
        self.status(number, &json!({ "phase": "Succeeded" })).await;
        println!("unmounted {uid} {number}");
        self.attached().await;
        let now = DeleteParams::default().grace_period(0);
        self.api().delete(&format!("db-{number}"), &now).await.unwrap();
    }

    async fn status(&self, number: usize, status: &Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let name = format!("db-{number}");
        self.api().patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Updates the Node's list of attached volumes.
    async fn attached(&self) {
        let listed = self.running.iter().map(|(number, _)| {
            json!({ "name": format!("kubernetes.io/csi/{DRIVER}^{}", handle(*number)), "devicePath": "" })
        });
        let patch = json!({ "status": { "volumesAttached": listed.collect::<Vec<_>>() } });
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}
