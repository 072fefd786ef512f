//! The monitor against the embedded API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use claimcheck_apiserver as apiserver;
use claimcheck_informer::testing::{annotate, claim, claim_ref, class, volume};
use claimcheck_model::{PROVISIONED_BY, Phase, STORAGE_PROVISIONER, snapshot::VolumeSnapshot};
use claimcheck_monitor::{
    CanaryOptions, Election, FetchError, Monitor, Options, Scope, Timing, TraceOptions, fetch, look,
    stuck::Cause, table,
};
use jiff::SignedDuration;
use k8s_openapi::{
    api::{
        core::v1::{Event, Namespace, PersistentVolumeClaim, Pod},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
        storage::v1::StorageClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::{
        mpsc::{UnboundedReceiver, unbounded_channel},
        oneshot,
    },
    task::JoinHandle,
    time::{sleep, timeout},
};

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
        canary: None,
        event_thresholds: Vec::new(),
        traces: None,
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

/// More objects wait than a look requests one by one, and the last one has the Event.
#[tokio::test]
async fn each_of_many_waits_has_its_cause() {
    let (_server, client) = cluster().await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    for nth in 0..70 {
        let mut claim = claim(&format!("c-{nth}"), "missing", "1Gi");
        (claim.metadata.uid, claim.metadata.namespace, claim.status) = (None, None, None);
        claims.create(&PostParams::default(), &claim).await.expect("a claim");
    }
    create(&client, "last").await;
    let uid = claims.get("last").await.expect("it exists").metadata.uid;
    let text = "failed to get secret: secrets \"nope\" is forbidden: User \"system:serviceaccount:csi:provisioner\" \
                cannot get resource \"secrets\" in API group \"\" in the namespace \"default\"";
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "last.1"}, "type": "Warning", "reason": "ProvisioningFailed", "message": text,
        "involvedObject": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "last", "uid": uid},
        "source": {"component": "external-provisioner"},
    }))
    .expect("an Event");
    let events = Api::<Event>::default_namespaced(client.clone());
    events.create(&PostParams::default(), &event).await.expect("it is created");
    let status = look(&client, Scope::default(), SignedDuration::ZERO).await.expect("a status");
    assert_eq!(status.notes, Vec::<String>::new());
    let row = status.waiting.iter().find(|row| row.claim == "last").expect("it waits");
    assert_eq!(row.cause, Cause::Forbidden, "{row:?}");
    assert!(row.remedy.starts_with("permit ServiceAccount csi/provisioner to get secrets"), "{row:?}");
    let others = status.waiting.iter().filter(|row| row.cause == Cause::NoClass);
    assert_eq!(others.count(), 70);
}

/// A client of a service account without rights.
async fn unprivileged(server: &apiserver::Server) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.impersonate = Some("system:serviceaccount:default:reader".to_owned());
    }
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

/// Grants these rules to that service account.
async fn grant(client: &Client, rules: Value) {
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    });
    let params = PostParams::default();
    let role: ClusterRole = serde_json::from_value(role).expect("a role");
    Api::all(client.clone()).create(&params, &role).await.expect("it is created");
    let binding: ClusterRoleBinding = serde_json::from_value(binding).expect("a binding");
    Api::all(client.clone()).create(&params, &binding).await.expect("it is created");
}

#[tokio::test]
async fn a_missing_right_is_named_until_it_is_granted() {
    let (server, client) = cluster().await;
    create(&client, "c").await;
    let reader = unprivileged(&server).await;
    let rule = "{apiGroups: [\"\"], resources: [persistentvolumeclaims], verbs: [list, watch]}";
    let error = look(&reader, Scope::default(), SignedDuration::ZERO).await.expect_err("it may read nothing");
    let expected = "{apiGroups: [\"storage.k8s.io\"], resources: [storageclasses], verbs: [list, watch]}";
    assert!(error.to_string().contains(expected), "{error}");

    let monitor = Monitor::start(reader, options()).await.expect("it starts");
    let address = monitor.address();
    let ready = async || get(address, "/readyz").await;
    until("the rule is named", async || ready().await.contains(rule)).await;
    let rule = json!({
        "apiGroups": ["", "storage.k8s.io", "snapshot.storage.k8s.io"], "resources": ["*"],
        "verbs": ["get", "list", "watch"],
    });
    grant(&client, json!([rule])).await;
    until("every kind is listed", async || ready().await.contains("200 OK")).await;
    until("nothing is missing", async || monitor.status().notes.is_empty()).await;
    assert_eq!(claims(&monitor), BTreeSet::from(["c".to_owned()]));
}

#[tokio::test]
async fn a_right_that_only_messages_require_is_noted() {
    let (server, client) = cluster().await;
    create(&client, "c").await;
    grant(
        &client,
        json!([
            {
                "apiGroups": ["", "storage.k8s.io", "snapshot.storage.k8s.io"],
                "resources": [
                    "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "csidrivers", "csinodes",
                    "storageclasses", "volumeattachments", "volumesnapshots", "volumesnapshotcontents",
                ],
                "verbs": ["get", "list", "watch"],
            },
        ]),
    )
    .await;
    let reader = unprivileged(&server).await;
    let monitor = start(&reader, options()).await;
    let rule = "{apiGroups: [\"\"], resources: [events], verbs: [list]}";
    until("the rule is named", async || monitor.status().notes.iter().any(|note| note.contains(rule))).await;
    let status = look(&reader, Scope::default(), SignedDuration::ZERO).await.expect("a status");
    assert!(status.notes.iter().any(|note| note.contains(rule)), "{:?}", status.notes);
    assert_eq!(status.waiting.len(), 1);
}

#[tokio::test]
async fn snapshots_are_followed_once_their_definitions_exist() {
    let (_server, client) = cluster().await;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let mut removed = Vec::new();
    for kind in ["volumesnapshots", "volumesnapshotcontents"] {
        let name = format!("{kind}.snapshot.storage.k8s.io");
        removed.push(definitions.get(&name).await.expect("it exists from the start"));
        definitions.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
    }
    let monitor = start(&client, options()).await;
    assert_eq!(monitor.status().notes, Vec::<String>::new(), "a cluster without snapshots lacks nothing");
    for mut definition in removed {
        (definition.metadata.uid, definition.metadata.resource_version, definition.status) =
            (None, None, None);
        definitions.create(&PostParams::default(), &definition).await.expect("it is created");
    }
    let snapshot: VolumeSnapshot = serde_json::from_value(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s"},
        "spec": {"source": {"persistentVolumeClaimName": "c"}},
    }))
    .expect("a snapshot");
    let snapshots = Api::<VolumeSnapshot>::default_namespaced(client.clone());
    until("snapshots are served", async || snapshots.create(&PostParams::default(), &snapshot).await.is_ok())
        .await;
    until("the snapshot waits", async || {
        monitor.status().waiting.iter().any(|row| row.phase == Phase::SnapshotCreate)
    })
    .await;
    assert!(monitor.metrics().contains("claimcheck_lists_after_start_total{kind=\"VolumeSnapshot\"} 0"));
}

#[tokio::test]
async fn a_scope_that_matches_nothing_is_noted() {
    let (_server, client) = cluster().await;
    create(&client, "c").await;
    let names = |names: [&str; 2]| names.map(str::to_owned).into_iter().collect::<BTreeSet<_>>();
    let scope = Scope {
        namespaces: names(["default", "misspelled"]),
        classes: names(["fast", "fsat"]),
        ..Scope::default()
    };
    let status = look(&client, scope, SignedDuration::ZERO).await.expect("a status");
    let expected = [
        "namespace misspelled has no claim: check --namespace",
        "StorageClass fsat does not exist: check --storage-class",
    ];
    assert_eq!(status.notes, expected);
    assert_eq!(status.waiting.len(), 1);
}

#[tokio::test]
async fn only_the_leader_serves_series_of_volumes() {
    let (_server, client) = cluster().await;
    create(&client, "c").await;
    let election = |identity: &str| Election {
        namespace: "default".into(),
        name: "claimcheck-monitor".into(),
        identity: identity.into(),
        labels: BTreeMap::new(),
        timing: Timing::default(),
    };
    let first = start(&client, Options { election: Some(election("a")), ..options() }).await;
    let second = start(&client, Options { election: Some(election("b")), ..options() }).await;
    assert!(!first.metrics().contains("claimcheck_tracked_volumes"), "it has no lease yet");
    let (stop, stopped) = oneshot::channel::<()>();
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
    get(address, "/metrics").await
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it serves");
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("a response");
    answer
}

/// A monitor that leads, until it is stopped.
struct Leading {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Leading {
    async fn start(client: &Client, options: Options) -> Self {
        let monitor = start(client, options).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let address = monitor.address();
        let running = tokio::spawn(async move {
            let ended = async {
                let _ = stopped.await;
            };
            monitor.run(ended).await.expect("it ends without an error");
        });
        Self { address, stop, running }
    }

    async fn stop(self) {
        self.stop.send(()).expect("it runs");
        self.running.await.expect("it ends");
    }

    /// Waits until `/metrics` has this line.
    async fn until_line(&self, line: &str) {
        until(line, async || scrape(self.address).await.lines().any(|one| one.trim_end() == line)).await;
    }
}

const CANARY: &str = "claimcheck-canary";

fn canary() -> CanaryOptions {
    CanaryOptions {
        classes: vec!["fast=1h".parse().expect("a class")],
        topology: None,
        limit: 2,
        size: "1Gi".into(),
        namespace: CANARY.into(),
        image: "busybox:stable".into(),
        deadline: SignedDuration::from_mins(5),
    }
}

async fn canary_namespace(client: &Client) {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(CANARY.into());
    let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
    created.expect("a namespace");
}

/// The names of all objects of a kind in the canary's namespace.
async fn names<K>(client: &Client) -> Vec<String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), CANARY);
    let listed = api.list(&ListParams::default()).await.expect("a list");
    listed.items.iter().filter_map(|object| object.meta().name.clone()).collect()
}

/// Does what kubelet and controllers would do: the pod is Ready.
async fn set_ready(client: &Client, pod: &str) {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let pods = Api::<Pod>::namespaced(client.clone(), CANARY);
    let patched = pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await;
    patched.expect("the pod has a status");
}

/// Removes the finalizers of all claims of the canary.
async fn release(client: &Client) {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), CANARY);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for name in names::<PersistentVolumeClaim>(client).await {
        // It may have been deleted in the meantime.
        let _ = claims.patch(&name, &PatchParams::default(), &patch).await;
    }
}

#[tokio::test]
async fn the_canary_runs_a_life_cycle_and_reports_it_apart() {
    let (_server, client) = cluster().await;
    canary_namespace(&client).await;
    let leading = Leading::start(&client, Options { canary: Some(canary()), ..options() }).await;
    until("claim and pod exist", async || names::<Pod>(&client).await.len() == 1).await;
    let pods = names::<Pod>(&client).await;
    let [name] = &pods[..] else { panic!("{pods:?}") };
    assert_eq!(names::<PersistentVolumeClaim>(&client).await, std::slice::from_ref(name));
    assert!(
        !scrape(leading.address).await.contains("claimcheck_phase_waiting{"),
        "it is not a user's volume"
    );

    set_ready(&client, name).await;
    until("the pod is deleted", async || names::<Pod>(&client).await.is_empty()).await;
    release(&client).await;
    until("the claim is deleted", async || {
        release(&client).await;
        names::<PersistentVolumeClaim>(&client).await.is_empty()
    })
    .await;
    let line = |result: &str, count: u8| {
        format!(
            "claimcheck_canary_runs_total{{result=\"{result}\",storage_class=\"fast\",topology=\"any\"}} {count}"
        )
    };
    leading.until_line(&line("ok", 1)).await;
    leading.until_line(&line("failed", 0)).await;
    assert_eq!(names::<VolumeSnapshot>(&client).await, Vec::<String>::new());
    leading.stop().await;
}

#[tokio::test]
async fn the_canary_is_cleaned_up_at_the_end() {
    let (_server, client) = cluster().await;
    canary_namespace(&client).await;
    let leading = Leading::start(&client, Options { canary: Some(canary()), ..options() }).await;
    until("claim and pod exist", async || names::<Pod>(&client).await.len() == 1).await;
    leading.stop().await;
    assert_eq!(names::<Pod>(&client).await, Vec::<String>::new());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), CANARY);
    for claim in claims.list(&ListParams::default()).await.expect("a list") {
        assert!(claim.metadata.deletion_timestamp.is_some(), "{:?}", claim.metadata);
    }
}

#[tokio::test]
async fn the_canary_also_deletes_what_it_does_not_know_to_exist() {
    let (_server, client) = cluster().await;
    canary_namespace(&client).await;
    let mut canary = canary();
    // Nothing else is created.
    canary.classes = vec!["absent=1h".parse().expect("a class")];
    let leading = Leading::start(&client, Options { canary: Some(canary), ..options() }).await;
    leading.until_line("claimcheck_tracked_volumes 0").await;
    // As by a request that was abandoned before its response: at the end of the process, the watch has not delivered it.
    let mut pod = Pod::default();
    pod.metadata.name = Some("late".to_owned());
    pod.metadata.labels = Some(BTreeMap::from([("claimcheck.dev/canary".to_owned(), "late".to_owned())]));
    let spec = json!({
        "containers": [{"name": "c", "image": "busybox:stable"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "late"}}],
    });
    pod.spec = serde_json::from_value(spec).expect("a spec");
    Api::<Pod>::namespaced(client.clone(), CANARY).create(&PostParams::default(), &pod).await.expect("a pod");
    leading.stop().await;
    assert_eq!(names::<Pod>(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_claim_that_waits_too_long_has_one_event() {
    let (_server, client) = cluster().await;
    create(&client, "c").await;
    let events = Api::<Event>::default_namespaced(client.clone());
    let of_monitor = ListParams::default().fields("reason=ClaimWaits");
    let listed = async || events.list(&of_monitor).await.expect("a list").items;
    // Creation times have whole seconds: the claim is older than a nanosecond as soon as it is observed.
    let thresholds = || vec!["*=1ns".parse().expect("a threshold")];
    let leading = Leading::start(&client, Options { event_thresholds: thresholds(), ..options() }).await;
    until("an Event is emitted", async || listed().await.len() == 1).await;
    leading.stop().await;
    let emitted = listed().await;
    let [event] = &emitted[..] else { panic!("{emitted:?}") };
    assert_eq!(event.involved_object.name.as_deref(), Some("c"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let message = event.message.as_deref().unwrap_or_default();
    assert!(message.starts_with("phase provision has lasted "), "{message}");

    // The next leader has no memory of it; a second claim shows that it has looked.
    create(&client, "later").await;
    let leading = Leading::start(&client, Options { event_thresholds: thresholds(), ..options() }).await;
    until("the second claim has an Event", async || listed().await.len() == 2).await;
    leading.stop().await;
    let names: BTreeSet<_> = listed().await.into_iter().map(|event| event.involved_object.name).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// A server that returns this response to each request.
async fn answering(response: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let length = response.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
            let (status, rest) = response.split_once("\r\n").expect("a status line");
            let text = format!("{status}\r\nContent-Length: {length}\r\nConnection: close\r\n{rest}");
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn what_is_no_status_is_named() {
    let unready = answering("HTTP/1.1 503 Service Unavailable\r\n\r\nnot every kind was listed yet\n").await;
    let error = fetch(&format!("http://{unready}")).await.expect_err("it is not ready");
    assert!(error.to_string().ends_with("returned no status: 503 not every kind was listed yet"), "{error}");
    let other = answering("HTTP/1.1 200 OK\r\n\r\n[]").await;
    let error = fetch(&format!("http://{other}/")).await.expect_err("it is no monitor");
    assert!(matches!(error, FetchError::Answer { .. }), "{error}");
    let error = fetch("http://user:secret@localhost:1").await.expect_err("it has credentials");
    assert!(!error.to_string().contains("secret"), "{error}");
}

/// A collector: the bodies of the requests that it has accepted. They are protobuf, in which texts are as they are.
async fn collector() -> (std::net::SocketAddr, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, bodies) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            // Until the body is as long as its header declares.
            let body = loop {
                let count = stream.read(&mut part).await.expect("a request");
                request.extend_from_slice(&part[..count]);
                let Some(head) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
                let (head, body) = request.split_at(head + 4);
                let head = String::from_utf8_lossy(head).to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if count == 0 || length.and_then(|length| length.parse().ok()) == Some(body.len()) {
                    break String::from_utf8_lossy(body).into_owned();
                }
            };
            // The test may have ended.
            let _ = sender.send(body);
            let response = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    (address, bodies)
}

/// What a monitor exports of a claim that is provisioned.
async fn exported(ratio: f64, slow: SignedDuration, names: bool) -> String {
    let (_server, client) = cluster().await;
    let (address, mut bodies) = collector().await;
    let collector = format!("http://{address}/v1/traces").parse().expect("an address");
    let traces = TraceOptions { collector, ratio, slow, names };
    let leading = Leading::start(&client, Options { traces: Some(traces), ..options() }).await;
    create(&client, "hidden-name").await;
    leading.until_line("claimcheck_tracked_volumes 1").await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    // As the volume controller does for the provisioner.
    let annotated = Patch::Merge(json!({"metadata": {"annotations": {STORAGE_PROVISIONER: "csi.test"}}}));
    let claim = claims.patch("hidden-name", &PatchParams::default(), &annotated).await.expect("it exists");
    let mut provisioned = volume("v", "fast", "1Gi");
    (provisioned.metadata.uid, provisioned.metadata.resource_version, provisioned.status) =
        (None, None, None);
    annotate(&mut provisioned.metadata, PROVISIONED_BY, "csi.test");
    provisioned.spec.get_or_insert_default().claim_ref = Some(claim_ref(&claim));
    Api::all(client.clone()).create(&PostParams::default(), &provisioned).await.expect("a volume");
    until("the phase is over", async || {
        scrape(leading.address).await.contains("phase=\"provision\",result=\"ok\"")
    })
    .await;
    // The lease passes to another process: what is not over is exported now.
    leading.stop().await;
    let mut all = String::new();
    while let Ok(body) = bodies.try_recv() {
        all.push_str(&body);
    }
    all
}

#[tokio::test]
async fn a_slow_volume_is_a_trace_whatever_the_ratio_and_without_names() {
    let text = exported(0.0, SignedDuration::ZERO, false).await;
    assert!(text.contains("provision") && text.contains("csi.test"), "{text:?}");
    assert!(!text.contains("hidden-name"), "{text:?}");
}

#[tokio::test]
async fn volumes_that_are_not_sampled_have_no_trace() {
    assert_eq!(exported(0.0, SignedDuration::from_mins(1), true).await, "");
}

#[tokio::test]
async fn a_trace_has_the_names_that_are_requested() {
    let text = exported(1.0, SignedDuration::from_mins(1), true).await;
    assert!(text.contains("hidden-name"), "{text:?}");
}

#[tokio::test]
async fn a_monitor_with_traces_starts_without_a_collector() {
    let (_server, client) = cluster().await;
    let traces = TraceOptions {
        // Nothing listens there.
        collector: "http://127.0.0.1:9/v1/traces".parse().expect("an address"),
        ratio: 1.0,
        slow: SignedDuration::from_mins(1),
        names: false,
    };
    let leading = Leading::start(&client, Options { traces: Some(traces), ..options() }).await;
    create(&client, "c").await;
    leading.until_line("claimcheck_tracked_volumes 1").await;
    leading.stop().await;
}
