//! The monitor against the embedded API server.

use std::{collections::BTreeSet, time::Duration};

use claimcheck_apiserver as apiserver;
use claimcheck_informer::testing::{claim, class};
use claimcheck_model::Phase;
use claimcheck_monitor::{Election, Monitor, Options, Scope, Timing, fetch, look, stuck::Cause, table};
use jiff::SignedDuration;
use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{sleep, timeout};

async fn cluster() -> (apiserver::Server, Client) {
    let server = apiserver::start(apiserver::Config::default()).await.expect("the API server starts");
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    let client = Client::try_from(config).expect("a client");
    let mut default = Namespace::default();
    default.metadata.name = Some("default".into());
    // There may be one already.
    let _ = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &default).await;
    let mut fast: StorageClass = class("fast", "csi.test");
    fast.metadata.uid = None;
    Api::all(client.clone()).create(&PostParams::default(), &fast).await.expect("a class");
    (server, client)
}

async fn create(client: &Client, name: &str) {
    let mut claim = claim(name, "fast", "1Gi");
    (claim.metadata.uid, claim.metadata.namespace, claim.status) = (None, None, None);
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    claims.create(&PostParams::default(), &claim).await.expect("a claim");
}

fn options() -> Options {
    Options {
        scope: Scope::default(),
        stuck_after: SignedDuration::from_mins(5),
        address: "127.0.0.1:0".parse().expect("an address"),
        election: None,
    }
}

async fn start(client: &Client, options: Options) -> Monitor {
    let monitor = Monitor::start(client.clone(), options).await.expect("it starts");
    timeout(Duration::from_secs(20), monitor.synced()).await.expect("every kind is listed");
    monitor
}

/// Waits until a condition holds; the monitor's watches have no other end.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if condition().await {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} in 20 s");
}

fn claims(monitor: &Monitor) -> BTreeSet<String> {
    monitor.status().waiting.into_iter().map(|row| row.claim).collect()
}

#[tokio::test]
async fn waiting_claims_are_listed_followed_and_served() {
    let (_server, client) = cluster().await;
    create(&client, "before").await;
    let monitor = start(&client, options()).await;
    assert_eq!(claims(&monitor), BTreeSet::from(["before".to_owned()]));
    create(&client, "after").await;
    until("the second claim is observed", async || claims(&monitor).len() == 2).await;

    let metrics = monitor.metrics();
    for line in [
        "claimcheck_phase_waiting{driver_name=\"csi.test\",phase=\"provision\",storage_class=\"fast\"} 2",
        "claimcheck_tracked_volumes 2",
        "claimcheck_lists_after_start_total{kind=\"PersistentVolumeClaim\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let status = fetch(&format!("http://{}", monitor.address())).await.expect("a status");
    assert_eq!(status.waiting.len(), 2);

    let claims_api = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    claims_api.delete("before", &DeleteParams::default()).await.expect("it is deleted");
    until("the deletion is observed", async || {
        let rows = monitor.status().waiting;
        rows.iter().all(|row| row.claim != "before" || row.phase == Phase::Delete)
    })
    .await;
}

#[tokio::test]
async fn a_single_look_has_the_same_rows() {
    let (_server, client) = cluster().await;
    create(&client, "c").await;
    let status = look(&client, Scope::default(), SignedDuration::ZERO).await.expect("a status");
    let [row] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
    assert_eq!((&*row.claim, row.phase, row.cause), ("c", Phase::Provision, Cause::NoProvisioner));
    assert!(table(&status).contains("external-provisioner"), "{}", table(&status));
    let elsewhere = Scope { namespaces: BTreeSet::from(["elsewhere".to_owned()]), ..Scope::default() };
    let status = look(&client, elsewhere, SignedDuration::ZERO).await.expect("a status");
    assert_eq!(status.waiting, []);
}

#[tokio::test]
async fn only_the_leader_serves_series_of_volumes() {
    let (_server, client) = cluster().await;
    create(&client, "c").await;
    let election = |identity: &str| Election {
        namespace: "default".into(),
        name: "claimcheck-monitor".into(),
        identity: identity.into(),
        timing: Timing::default(),
    };
    let first = start(&client, Options { election: Some(election("a")), ..options() }).await;
    let second = start(&client, Options { election: Some(election("b")), ..options() }).await;
    assert!(!first.metrics().contains("claimcheck_tracked_volumes"), "it has no lease yet");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let address = first.address();
    let running = tokio::spawn(first.run(async {
        let _ = stopped.await;
    }));
    until("the first leads", async || scrape(address).await.contains("claimcheck_tracked_volumes 1")).await;
    let of_second = second.metrics();
    assert!(!of_second.contains("claimcheck_tracked_volumes"), "{of_second}");
    assert!(of_second.contains("claimcheck_lists_after_start_total"), "{of_second}");
    assert_eq!(second.status().waiting.len(), 1, "it follows the volumes nevertheless");

    let address = second.address();
    let next = tokio::spawn(second.run(std::future::pending()));
    stop.send(()).expect("it runs");
    running.await.expect("it ends").expect("without an error");
    until("the second leads", async || scrape(address).await.contains("claimcheck_tracked_volumes 1")).await;
    next.abort();
}

async fn scrape(address: std::net::SocketAddr) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it serves");
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("a response");
    answer
}
