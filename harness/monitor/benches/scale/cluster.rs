//! The second process: the API server, the objects, and the life cycles. It is controlled by lines on its standard
//! input, and reports JSON lines on its standard output.
//!
//! ```text
//! measurement                       cluster
//!             <── Filled ──────────  the server runs, and half of the objects exist
//!             ─── "fill" ─────────>
//!             <── Filled ──────────  all objects exist
//!             ─── "run" ──────────>  life cycles at the rate, and watches are cut
//!             <── Ran ─────────────  all of them are over
//! ```

use std::{
    collections::BTreeMap,
    ops::Range,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use claimcheck_apiserver::{self as apiserver, Fault, FaultRule, Server};
use claimcheck_model::Rate;
use futures::{TryStreamExt, stream};
use http::{Method, Request, header::CONTENT_TYPE};
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    Arguments, Result,
    objects::{self, CLASSES, DRIVERS, NAMESPACES, Names},
};

/// The first argument of the second process.
pub const ARGUMENT: &str = "--cluster";

/// The number of concurrent requests while objects are created.
const CONCURRENCY: usize = 64;
/// How long the pod of a life cycle runs.
const RUNS_FOR: Duration = Duration::from_secs(1);
/// The resources that life cycles change.
const RESOURCES: [&str; 4] = ["persistentvolumeclaims", "persistentvolumes", "pods", "volumeattachments"];

/// A part of the objects, or all of them, exist.
#[derive(Debug, Serialize, Deserialize)]
pub struct Filled {
    /// The credentials of the server.
    pub kubeconfig: String,
    /// The seconds that their creation took.
    pub seconds: f64,
}

/// The objects of life cycles that exist although all are over.
pub type Remaining = BTreeMap<String, usize>;

/// All life cycles are over.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ran {
    /// Their number.
    pub cycles: usize,
    /// How often watches were cut.
    pub cuts: usize,
    /// The watches that started since, which continue those that were cut.
    pub watches: u64,
    /// All list requests since the server started, by resource.
    pub lists: BTreeMap<String, u64>,
    /// What remains of them.
    pub remaining: Remaining,
}

/// The second process, as the first one sees it; dropping it kills it.
pub struct Cluster {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    /// Starts it, and returns once half of the objects exist.
    pub async fn start(arguments: &Arguments) -> Result<(Self, Filled)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).args(arguments.words()).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("the second process has no standard input")?;
        let output = child.stdout.take().ok_or("the second process has no standard output")?;
        let mut cluster = Self { _child: child, input, output: BufReader::new(output).lines() };
        let filled = cluster.line().await?;
        Ok((cluster, filled))
    }

    /// Creates the other half.
    pub async fn fill(&mut self) -> Result<Filled> {
        self.input.write_all(b"fill\n").await?;
        self.line().await
    }

    /// Runs the life cycles.
    pub async fn run(&mut self) -> Result<Ran> {
        self.input.write_all(b"run\n").await?;
        self.line().await
    }

    async fn line<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.output.next_line().await?.ok_or("the second process ended: see its error above")?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// A client with these credentials.
pub async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The main function of the second process.
pub async fn main(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let server = apiserver::start(apiserver::Config::default()).await?;
    let kubeconfig = server.kubeconfig();
    let client = client(&kubeconfig).await?;
    let half = arguments.volumes / 2;
    fill(&client, arguments).await?;
    volumes(&client, arguments, 0..half).await?;
    report(&Filled { kubeconfig: kubeconfig.clone(), seconds: started.elapsed().as_secs_f64() })?;
    if next_line().await? {
        let started = Instant::now();
        volumes(&client, arguments, half..arguments.volumes).await?;
        report(&Filled { kubeconfig, seconds: started.elapsed().as_secs_f64() })?;
    }
    while next_line().await? {
        report(&run(&server, &client, arguments).await?)?;
    }
    Ok(())
}

fn report(what: &impl Serialize) -> Result<()> {
    // A line is flushed at its end.
    println!("{}", serde_json::to_string(what)?);
    Ok(())
}

/// Whether another line arrived; the input ends with the first process.
async fn next_line() -> Result<bool> {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(read > 0)
}

/// Sends a request, and returns the object of the response.
async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    let what = format!("{method} {path}");
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind).body(bytes)?;
    Ok(client.request(request).await.map_err(|error| format!("{what}: {error}"))?)
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<Value> {
    send(client, Method::POST, path, body).await
}

async fn patch(client: &Client, path: &str, body: &Value) -> Result<()> {
    send(client, Method::PATCH, path, body).await.map(drop)
}

async fn delete(client: &Client, path: &str) -> Result<()> {
    send(client, Method::DELETE, path, &Value::Null).await.map(drop)
}

const STORAGE: &str = "/apis/storage.k8s.io/v1";
const NODES: &str = "/api/v1/nodes";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// The path of the claims, or the pods, of a namespace.
fn path_in(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

/// Creates all objects but volumes and their users.
async fn fill(client: &Client, arguments: &Arguments) -> Result<()> {
    for index in 0..NAMESPACES {
        post(client, "/api/v1/namespaces", &objects::namespace(index)).await?;
    }
    for index in 0..DRIVERS {
        post(client, &format!("{STORAGE}/csidrivers"), &objects::driver(index)).await?;
    }
    for index in 0..CLASSES {
        post(client, &format!("{STORAGE}/storageclasses"), &objects::class(index)).await?;
    }
    concurrently(0..arguments.nodes, |index| async move {
        let status = format!("{NODES}/{}/status", objects::node_name(index));
        post(client, NODES, &objects::node(index)).await?;
        patch(client, &status, &objects::node_status()).await?;
        post(client, &format!("{STORAGE}/csinodes"), &objects::csi_node(index)).await.map(drop)
    })
    .await
}

/// Creates these volumes.
async fn volumes(client: &Client, arguments: &Arguments, numbers: Range<usize>) -> Result<()> {
    let nodes = arguments.nodes;
    concurrently(numbers, |index| async move { in_use(client, &Names::new("all", index, nodes)).await }).await
}

async fn concurrently<W: Future<Output = Result<()>>>(
    numbers: Range<usize>,
    work: impl FnMut(usize) -> W,
) -> Result<()> {
    stream::iter(numbers.map(Ok)).try_for_each_concurrent(CONCURRENCY, work).await
}

/// Creates a volume that a pod uses.
async fn in_use(client: &Client, names: &Names) -> Result<()> {
    let (claims, pods) = (path_in(&names.namespace, RESOURCES[0]), path_in(&names.namespace, "pods"));
    let claim = post(client, &claims, &names.claim(true)).await?;
    patch(client, &format!("{claims}/{}/status", names.claim), &objects::claim_status()).await?;
    post(client, VOLUMES, &names.volume(uid(&claim))).await?;
    patch(client, &format!("{VOLUMES}/{}/status", names.volume), &objects::volume_status("Bound")).await?;
    post(client, ATTACHMENTS, &names.attachment()).await?;
    patch(client, &format!("{ATTACHMENTS}/{}/status", names.attachment), &objects::attached()).await?;
    post(client, &pods, &names.pod(true)).await?;
    patch(client, &format!("{pods}/{}/status", names.pod), &objects::pod_running()).await
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The writes of all components in the life of a volume.
async fn life_cycle(client: &Client, names: &Names) -> Result<()> {
    let (claims, pods) = (path_in(&names.namespace, RESOURCES[0]), path_in(&names.namespace, "pods"));
    let claim_path = format!("{claims}/{}", names.claim);
    let volume_path = format!("{VOLUMES}/{}", names.volume);
    let attachment_path = format!("{ATTACHMENTS}/{}", names.attachment);
    let pod_path = format!("{pods}/{}", names.pod);
    let released = json!({ "metadata": { "finalizers": null } });

    let claim = post(client, &claims, &names.claim(false)).await?;
    post(client, VOLUMES, &names.volume(uid(&claim))).await?;
    patch(client, &format!("{volume_path}/status"), &objects::volume_status("Bound")).await?;
    patch(client, &claim_path, &names.binding()).await?;
    patch(client, &format!("{claim_path}/status"), &objects::claim_status()).await?;
    post(client, &pods, &names.pod(false)).await?;
    post(client, &format!("{pod_path}/binding"), &names.pod_binding()).await?;
    post(client, ATTACHMENTS, &names.attachment()).await?;
    patch(client, &format!("{attachment_path}/status"), &objects::attached()).await?;
    patch(client, &format!("{pod_path}/status"), &objects::pod_running()).await?;
    sleep(RUNS_FOR).await;
    delete(client, &pod_path).await?;
    patch(client, &format!("{pod_path}/status"), &objects::pod_ended()).await?;
    delete(client, &format!("{pod_path}?gracePeriodSeconds=0")).await?;
    delete(client, &attachment_path).await?;
    delete(client, &claim_path).await?;
    patch(client, &claim_path, &released).await?;
    patch(client, &format!("{volume_path}/status"), &objects::volume_status("Released")).await?;
    delete(client, &volume_path).await?;
    patch(client, &volume_path, &released).await
}

/// Runs life cycles at the rate, and cuts watches meanwhile.
async fn run(server: &Server, client: &Client, arguments: &Arguments) -> Result<Ran> {
    let watches = requests(server, "watch").values().sum::<u64>();
    let cuts = Arc::new(AtomicUsize::new(0));
    let cycles = tokio::select! {
        cycles = life_cycles(client, arguments) => cycles?,
        never = cut(server, arguments, &cuts) => match never {},
    };
    let lists = requests(server, "list");
    let watches = requests(server, "watch").values().sum::<u64>() - watches;
    let remaining = remaining(client).await?;
    Ok(Ran { cycles, cuts: cuts.load(Ordering::Relaxed), watches, lists, remaining })
}

/// What life cycles left in the server.
async fn remaining(client: &Client) -> Result<Remaining> {
    let mut remaining = Remaining::new();
    for (path, prefix) in [
        ("/api/v1/persistentvolumeclaims", "data-run-"),
        (VOLUMES, "pvc-run-"),
        ("/api/v1/pods", "run-"),
        (ATTACHMENTS, "csi-run"),
    ] {
        let list = send(client, Method::GET, path, &Value::Null).await?;
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        remaining.insert(path.to_owned(), names.filter(|name| name.starts_with(prefix)).count());
    }
    remaining.retain(|_, count| *count > 0);
    Ok(remaining)
}

async fn life_cycles(client: &Client, arguments: &Arguments) -> Result<usize> {
    let mut ticks = interval(Duration::from_secs(1) / arguments.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    let mut running: JoinSet<Result<()>> = JoinSet::new();
    let mut count = 0;
    while started.elapsed() < Duration::from_secs(arguments.seconds) {
        ticks.tick().await;
        let (client, names) = (client.clone(), Names::new("run", count, arguments.nodes));
        running.spawn(async move { life_cycle(&client, &names).await });
        count += 1;
        while let Some(ended) = running.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(count)
}

/// Cuts each watch of [`RESOURCES`] at its next change, again and again.
async fn cut(server: &Server, arguments: &Arguments, cuts: &AtomicUsize) -> std::convert::Infallible {
    loop {
        sleep(Duration::from_secs(arguments.cut)).await;
        let rule = |resource: &str| FaultRule {
            verb: None,
            resource: Some(resource.to_owned()),
            fault: Fault::DroppedWatch,
            rate: Rate::ALWAYS,
            count: Some(1),
        };
        server.faults().set(RESOURCES.map(rule).into());
        cuts.fetch_add(1, Ordering::Relaxed);
    }
}

/// The requests of all clients with a verb, by resource.
fn requests(server: &Server, verb: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for request in server.requests().into_iter().filter(|request| request.verb == verb) {
        *counts.entry(request.resource).or_default() += request.count;
    }
    counts
}
