//! The cost of requests in JSON and in protobuf, of pages during writes, and of memory per object and per watch.
//! `cargo bench -p claimcheck-apiserver` prints it; `lib.rs` states the figures.
//!
//! The server and its clients share the process: times and memory are those of both. Only ratios are asserted, with room
//! for noise: a copy of the objects per watch, or per page, exceeds them many times.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::fmt::Display;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use claimcheck_apiserver::{Config, Server, start};
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The encodings of watch streams.
const STREAMS: [&str; 2] = [JSON, "application/vnd.kubernetes.protobuf;stream=watch"];

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The annotation in the bookmark after the initial events.
const END: &[u8] = b"k8s.io/initial-events-end";
/// Objects in a page, and concurrent creations.
const PAGE: usize = 500;
const CREATORS: usize = 16;
/// The interval of writes during pages.
const WRITES: Duration = Duration::from_millis(1);
/// The number of watches that share the objects.
const WATCHES: usize = 50;
/// Rounds in each encoding, in turn; the fastest counts.
const ROUNDS: usize = 7;

/// The time of a request in protobuf over that in JSON.
const PROTOBUF_RATIO: f64 = 1.15;
/// The time of all pages during writes over that without.
const PAGES_RATIO: f64 = 10.0;
/// Bytes of a further watch: the connection on both sides, its buffers, and a pointer per object.
const PER_WATCH: f64 = 3.0 * MIB;
const MIB: f64 = 1024.0 * 1024.0;

/// The numbers of objects.
struct Sizes {
    /// Config maps, of which there are most.
    many: usize,
    /// Pods, claims and volumes.
    few: usize,
    rounds: usize,
}

struct Bench {
    server: Server,
    client: Client,
}

fn main() {
    // `cargo test` runs benchmarks to see that they run.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let sizes = match quick {
        true => Sizes { many: 1_500, few: 50, rounds: 1 },
        false => Sizes { many: 100_000, few: 1_000, rounds: ROUNDS },
    };
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        encodings(&sizes, quick).await;
        objects(&sizes, quick).await;
    });
}

/// Requests for pods, claims and volumes in both encodings.
async fn encodings(sizes: &Sizes, quick: bool) {
    let bench = Bench::start().await;
    row(&["kind", "request", "JSON", "protobuf", "ratio"]);
    for (kind, path, object) in kinds() {
        bench.create(path, sizes.few, object).await;
        // The first list encodes every object, all others copy.
        let first = [bench.time_list(path, JSON).await, bench.time_list(path, PROTOBUF).await];
        print_times(kind, &format!("first list of {}", sizes.few), first);
        let list = bench.rounds(sizes, async |encoding| bench.time_list(path, encoding).await).await;
        check(kind, &format!("list of {}", sizes.few), list, quick);
        let get = bench.rounds(sizes, async |encoding| bench.time_get(path, sizes.few, encoding).await).await;
        // The round trip is most of it, and varies more than the encodings differ.
        print_times(kind, "get", get);
        let watch = bench
            .rounds(sizes, async |encoding| {
                let stream = STREAMS[usize::from(encoding == PROTOBUF)];
                let begun = Instant::now();
                bench.watch(path, stream).await;
                begun.elapsed()
            })
            .await;
        check(kind, "watch with initial events", watch, quick);
    }
    bench.server.shutdown().await;
}

/// Memory, pages and watches of many objects.
async fn objects(sizes: &Sizes, quick: bool) {
    let bench = Bench::start().await;
    let count = sizes.many as f64;
    let mut memory = resident();
    let mut grown = || {
        let now = resident();
        now - std::mem::replace(&mut memory, now)
    };
    bench.create(CONFIG_MAPS, sizes.many, config_map).await;
    println!();
    row(&["memory of", &format!("{} config maps", sizes.many), "bytes each"]);
    print_row("", "value, key and indexes", &[per(grown(), count)]);
    let alone = bench.pages(JSON).await;
    print_row("", "JSON", &[per(grown(), count)]);
    bench.pages(PROTOBUF).await;
    print_row("", "protobuf", &[per(grown(), count)]);

    let alone = alone.min(bench.pages(JSON).await);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(update(bench.client.clone(), sizes.many, stop.clone()));
    let during = bench.pages(JSON).await;
    stop.store(true, Ordering::Relaxed);
    let writes = writer.await.unwrap();
    let ratio = during.as_secs_f64() / alone.as_secs_f64();
    println!();
    row(&["pages of", &format!("{PAGE} objects"), "all pages", "ratio", "writes"]);
    print_row("", "without writes", &[millis(alone)]);
    print_row("", "during writes", &[millis(during), format!("{ratio:.2}"), writes.to_string()]);
    assert!(quick || ratio < PAGES_RATIO, "pages take {ratio:.1} times as long during writes");

    println!();
    row(&["watches", "", "MiB", "KiB per further watch", "all initial events"]);
    for stream in STREAMS {
        let mut open = JoinSet::new();
        grown();
        let begun = Instant::now();
        open.spawn(bench.watch_open(CONFIG_MAPS, stream));
        let mut bodies = vec![open.join_next().await.unwrap().unwrap()];
        let first = grown();
        print_row(stream, "1", &[format!("{:.1}", first / MIB), String::new(), millis(begun.elapsed())]);
        let begun = Instant::now();
        for _ in 1..WATCHES {
            open.spawn(bench.watch_open(CONFIG_MAPS, stream));
        }
        while let Some(body) = open.join_next().await {
            bodies.push(body.unwrap());
        }
        let all = begun.elapsed();
        let each = grown() / (WATCHES - 1) as f64;
        let cells = [format!("{:.1}", each * (WATCHES - 1) as f64 / MIB), per(each, 1024.0), millis(all)];
        print_row(stream, &WATCHES.to_string(), &cells);
        assert!(quick || each < PER_WATCH, "a further watch has {:.1} MiB", each / MIB);
        // Those that read nothing hold back no one, and hold a piece of their stream.
        drop(bodies);
        let mut silent = Vec::new();
        for _ in 0..WATCHES {
            silent.push(bench.send(Request::get(watch_path(CONFIG_MAPS)).header("accept", stream)).await);
        }
        let each = grown().max(0.0) / WATCHES as f64;
        print_row(
            stream,
            &format!("{WATCHES}, not read"),
            &[format!("{:.1}", each * WATCHES as f64 / MIB), per(each, 1024.0)],
        );
        assert!(quick || each < PER_WATCH, "a watch that is not read has {:.1} MiB", each / MIB);
    }
    bench.server.shutdown().await;
}

/// Updates one object after the other, at the rate of a busy cluster, until it has to stop; returns the number of writes.
async fn update(client: Client, objects: usize, stop: Arc<AtomicBool>) -> usize {
    let mut writes = 0;
    let mut interval = tokio::time::interval(WRITES);
    while !stop.load(Ordering::Relaxed) {
        interval.tick().await;
        let path = format!("{CONFIG_MAPS}/o{:06}", (writes * 7919) % objects);
        let patch = json!({ "data": { "written": writes.to_string() } });
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        let response = client.send(request.body(Body::from(patch.to_string().into_bytes())).unwrap()).await;
        assert!(response.unwrap().status().is_success());
        writes += 1;
    }
    writes
}

impl Bench {
    async fn start() -> Self {
        // Pages of one list show the same state, however many writes come in between.
        let server = start(Config { history: 200_000, ..Config::default() }).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        Self { server, client }
    }

    /// Creates objects `o000000`, `o000001` and so on.
    async fn create(&self, path: &'static str, count: usize, object: fn(usize) -> Value) {
        let mut creators = JoinSet::new();
        for creator in 0..CREATORS {
            let client = self.client.clone();
            creators.spawn(async move {
                for number in (creator..count).step_by(CREATORS) {
                    let body = Body::from(object(number).to_string().into_bytes());
                    let request = Request::post(path).header("content-type", JSON).body(body).unwrap();
                    let response = client.send(request).await.unwrap();
                    assert!(response.status().is_success(), "{path}: {}", response.status());
                    response.into_body().collect().await.unwrap();
                }
            });
        }
        while let Some(created) = creators.join_next().await {
            created.unwrap();
        }
    }

    async fn send(&self, request: http::request::Builder) -> Body {
        let response = self.client.send(request.body(Body::empty()).unwrap()).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        response.into_body()
    }

    async fn read(&self, path: &str, accept: &str) -> Vec<u8> {
        let body = self.send(Request::get(path).header("accept", accept)).await;
        body.collect().await.unwrap().to_bytes().to_vec()
    }

    async fn time_list(&self, path: &str, accept: &str) -> Duration {
        let begun = Instant::now();
        self.read(path, accept).await;
        begun.elapsed()
    }

    /// The time of one of many gets.
    async fn time_get(&self, path: &str, objects: usize, accept: &str) -> Duration {
        let begun = Instant::now();
        for number in 0..objects {
            self.read(&format!("{path}/o{number:06}"), accept).await;
        }
        begun.elapsed() / u32::try_from(objects).unwrap()
    }

    /// The fastest rounds in each encoding.
    async fn rounds(&self, sizes: &Sizes, time: impl AsyncFn(&'static str) -> Duration) -> [Duration; 2] {
        let mut best = [Duration::MAX; 2];
        for _ in 0..sizes.rounds {
            for (best, encoding) in best.iter_mut().zip([JSON, PROTOBUF]) {
                *best = time(encoding).await.min(*best);
            }
        }
        best
    }

    /// The time of reading all objects in pages.
    async fn pages(&self, accept: &'static str) -> Duration {
        let begun = Instant::now();
        let mut token = String::new();
        loop {
            let page = self.read(&format!("{CONFIG_MAPS}?limit={PAGE}&continue={token}"), accept).await;
            match next_page(&page) {
                Some(next) => token = next,
                None => return begun.elapsed(),
            }
        }
    }

    /// Reads the initial events.
    async fn watch(&self, path: &'static str, stream: &'static str) {
        self.watch_open(path, stream).await;
    }

    /// Reads the initial events, and returns the open watch.
    fn watch_open(
        &self,
        path: &'static str,
        stream: &'static str,
    ) -> impl Future<Output = Body> + Send + use<> {
        let client = self.client.clone();
        async move {
            let request =
                Request::get(watch_path(path)).header("accept", stream).body(Body::empty()).unwrap();
            let mut body = client.send(request).await.unwrap().into_body();
            // The end may be in two frames.
            let mut tail = Vec::new();
            loop {
                let frame = body.frame().await.expect("not the end").unwrap();
                let data = frame.into_data().unwrap();
                tail.extend_from_slice(&data[data.len().saturating_sub(1024)..]);
                if contains(&tail, END) {
                    return body;
                }
                tail.drain(..tail.len().saturating_sub(1024));
            }
        }
    }
}

fn watch_path(path: &str) -> String {
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    format!("{path}?watch=true&{initial}")
}

/// The token of the next page. Both encodings have it near the beginning as text: base64url of a JSON object.
fn next_page(page: &[u8]) -> Option<String> {
    const START: &[u8] = b"eyJ2Ijoi";
    let head = &page[..page.len().min(512)];
    let at = head.windows(START.len()).position(|window| window == START)?;
    let token = head[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    Some(token.map(|byte| char::from(*byte)).collect())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

type Kind = (&'static str, &'static str, fn(usize) -> Value);

fn kinds() -> [Kind; 3] {
    [
        ("pods", "/api/v1/namespaces/default/pods", pod),
        ("persistentvolumeclaims", "/api/v1/namespaces/default/persistentvolumeclaims", claim),
        ("persistentvolumes", "/api/v1/persistentvolumes", volume),
    ]
}

fn metadata(number: usize) -> Value {
    json!({ "name": format!("o{number:06}"), "labels": { "app": "bench", "number": number.to_string() } })
}

fn config_map(number: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(number), "data": { "key": "x".repeat(200) } })
}

fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata(number),
        "spec": {
            "containers": [{ "name": "c", "image": "image", "command": ["sh", "-c", "sleep 1000"],
                "volumeMounts": [{ "name": "v", "mountPath": "/data" }] }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": format!("o{number:06}") } }],
        },
    })
}

fn claim(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(number),
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "64Mi" } } },
    })
}

fn volume(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata(number),
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "64Mi" }, "storageClassName": "none",
            "csi": { "driver": "example.com", "volumeHandle": format!("handle-{number}"),
                "volumeAttributes": { "pool": "p", "segment": "s" } },
            "claimRef": { "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default",
                "name": format!("o{number:06}") },
        },
    })
}

/// The resident memory of this process, in bytes.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap() * 1024.0
}

fn check(kind: &str, request: &str, times: [Duration; 2], quick: bool) {
    let ratio = print_times(kind, request, times);
    assert!(
        quick || ratio < PROTOBUF_RATIO,
        "{request} of {kind} takes {ratio:.2} times as long in protobuf"
    );
}

fn print_times(kind: &str, request: &str, [json, protobuf]: [Duration; 2]) -> f64 {
    let ratio = protobuf.as_secs_f64() / json.as_secs_f64();
    print_row(kind, request, &[micros(json), micros(protobuf), format!("{ratio:.2}")]);
    ratio
}

fn per(bytes: f64, count: f64) -> String {
    format!("{:.0}", bytes / count)
}

fn micros(time: Duration) -> String {
    format!("{:.0} us", time.as_secs_f64() * 1e6)
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

fn row(cells: &[&str]) {
    print_row(cells[0], cells[1], &cells[2..]);
}

fn print_row<T: Display>(what: &str, which: &str, cells: &[T]) {
    let cells: String = cells.iter().map(|cell| format!("{:>24}", cell.to_string())).collect();
    println!("{what:<52}{which:<28}{cells}");
}
