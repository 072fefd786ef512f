//! Disruptions of a kind cluster: the scripts, executed on this machine, and the API requests.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use insta::assert_snapshot;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::{
    disrupt::{on_containers, on_kubelet},
    nodes::{KindCluster, KindEnvironment},
    nodes_tests::{environment, options},
};
use crate::{
    disruption::{DisruptError, Disruption, Victim},
    real_nodes::controllers::Components,
};
use claimcheck_kind::testing::Fake;

const COMPONENTS: Components =
    Components { namespace: "claimcheck", controllers: "controllers", replicas: 2, driver: "driver" };

const LABELS: [&str; 2] = ["io.kubernetes.container.name=driver", "io.kubernetes.pod.namespace=claimcheck"];

#[test]
fn scripts_for_a_node() {
    let scripts = [
        on_kubelet(Disruption::Kill),
        on_kubelet(Disruption::Stop),
        on_kubelet(Disruption::Start),
        on_kubelet(Disruption::Pause),
        on_kubelet(Disruption::Resume),
        on_kubelet(Disruption::Configure(&["--enable-controller-attach-detach=false", "--v=4"])),
        on_kubelet(Disruption::Configure(&[])),
        on_containers("KILL", &LABELS),
    ];
    for script in &scripts {
        let parsed = Command::new("sh").args(["-nc", script]).output().unwrap();
        assert!(parsed.status.success(), "{script}: {parsed:?}");
    }
    assert_snapshot!(scripts.join("\n\n"));
}

/// Runs a script as in a node, with a fake `crictl`.
fn run(fake: &Fake, script: &str) -> Output {
    let path = format!("{}:/usr/bin:/bin", fake.path("bin").display());
    let mut sh = Command::new("/bin/sh");
    sh.args(["-euc", script]).env("PATH", path).env("FAKE", fake.path("")).output().unwrap()
}

#[test]
fn the_processes_of_containers_are_signalled() {
    let fake = Fake::with(&["crictl"]);
    let mut victim = Command::new("sleep").arg("1000").spawn().unwrap();
    fake.rule("crictl ps", "echo 0123; exit 0");
    fake.rule("crictl inspect", &format!("echo {}; exit 0", victim.id()));
    let done = run(&fake, &on_containers("KILL", &LABELS));
    assert!(done.status.success(), "{done:?}");
    assert_eq!(victim.wait().unwrap().signal(), Some(9));
    assert_snapshot!(fake.calls(), @r"
    crictl ps --quiet --label io.kubernetes.container.name=driver --label io.kubernetes.pod.namespace=claimcheck
    crictl inspect --output go-template --template {{.info.pid}} 0123
    ");
    fake.rule("crictl ps", "exit 0");
    let output = run(&fake, &on_containers("KILL", &LABELS));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("no container runs with"), "{output:?}");
}

#[test]
fn a_disruption_of_a_kubelet_that_had_no_effect_is_an_error() {
    let fake = Fake::with(&["pkill", "pgrep", "systemctl"]);
    let works = |disruption| run(&fake, &on_kubelet(disruption)).status.success();
    fake.rule("systemctl stop", "exit 0");
    for (signalled, runs, killed, stopped) in [(0, 1, true, true), (1, 1, false, true), (0, 0, true, false)] {
        fake.rule("pkill -KILL", &format!("exit {signalled}"));
        fake.rule("pkill -CONT", &format!("exit {signalled}"));
        fake.rule("pgrep -x", &format!("exit {runs}"));
        assert_eq!((works(Disruption::Kill), works(Disruption::Stop)), (killed, stopped));
    }
}

/// An API server with one Deployment, which scales its pods immediately.
#[derive(Clone)]
struct Api {
    replicas: Arc<Mutex<u32>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Api {
    fn with(replicas: u32) -> Self {
        Self { replicas: Arc::new(Mutex::new(replicas)), asked: Arc::default() }
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, io::Error>(api.answer(request).await) }
        });
        Client::new(serve, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let asked = format!("{} {} {}", head.method, head.uri, String::from_utf8_lossy(&body));
        self.asked.lock().unwrap().push(asked.trim().to_owned());
        if head.method == Method::PATCH {
            let scale: Value = serde_json::from_slice(&body).unwrap();
            *self.replicas.lock().unwrap() =
                u32::try_from(scale["spec"]["replicas"].as_u64().unwrap()).unwrap();
        }
        let replicas = *self.replicas.lock().unwrap();
        let labels = json!({ "app": "controllers", "tier": "storage" });
        let deployment = json!({
            "metadata": { "name": "controllers", "namespace": "claimcheck", "uid": "d" },
            "spec": { "selector": { "matchLabels": labels }, "template": {} },
            "status": { "availableReplicas": replicas },
        });
        let pods = (0..replicas).map(|number| {
            json!({
                "metadata": { "name": format!("controllers-{number}"), "uid": format!("u{number}") },
                "spec": { "nodeName": format!("claimcheck-a-worker{number}"), "containers": [] },
            })
        });
        let list = |items: Vec<Value>| json!({ "metadata": { "resourceVersion": "1" }, "items": items });
        let answer = match head.uri.path().rsplit('/').next().unwrap() {
            "controllers" => deployment,
            "scale" => json!({ "metadata": { "name": "controllers" }, "spec": { "replicas": replicas } }),
            "deployments" => list(vec![deployment]),
            "pods" => list(pods.collect()),
            other => panic!("{other} is asked"),
        };
        Response::new(Body::from(serde_json::to_vec(&answer).unwrap()))
    }
}

async fn cluster(fake: &Fake) -> KindCluster {
    let environment = KindEnvironment { images: Vec::new(), ..environment(fake) };
    KindCluster::up(&options(), &environment).await.unwrap()
}

#[tokio::test]
async fn kubelets_and_drivers_are_hit_in_their_nodes() {
    let fake = Fake::new();
    let cluster = cluster(&fake).await;
    let api = Api::with(0);
    let node = || "claimcheck-a-worker".to_owned();
    let client = api.client();
    let hit = async |victim, disruption| cluster.disrupt(&client, &COMPONENTS, &victim, disruption).await;
    hit(Victim::NodeAgent(node()), Disruption::Stop).await.unwrap();
    hit(Victim::Driver(node()), Disruption::Kill).await.unwrap();
    // The kubelet restarts it in any case.
    let cannot = hit(Victim::Driver(node()), Disruption::Stop).await.unwrap_err();
    assert!(matches!(cannot, DisruptError::Cannot { .. }), "{cannot}");
    fake.fails("docker exec", "no container runs with --label io.kubernetes.container.name=driver");
    let absent = hit(Victim::Driver(node()), Disruption::Pause).await.unwrap_err().to_string();
    assert!(absent.contains("no container runs with"), "{absent}");
    let calls = fake.calls();
    let hits = calls.lines().filter(|line| line.contains("-euc") && !line.contains("mknod"));
    let hits: Vec<_> = hits.collect();
    assert_eq!(hits.len(), 3, "{calls}");
    assert!(
        hits[0].starts_with("docker exec --privileged claimcheck-a-worker sh -euc pkill -CONT -x kubelet"),
        "{calls}"
    );
    assert!(api.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn controllers_are_scaled_away_and_back_and_killed_where_they_are() {
    let fake = Fake::new();
    let cluster = cluster(&fake).await;
    let api = Api::with(COMPONENTS.replicas);
    let client = api.client();
    let hit = async |disruption| {
        cluster.disrupt(&client, &COMPONENTS, &Victim::Controllers, disruption).await.unwrap();
    };
    hit(Disruption::Stop).await;
    assert_eq!(*api.replicas.lock().unwrap(), 0);
    hit(Disruption::Start).await;
    assert_eq!(*api.replicas.lock().unwrap(), 2);
    hit(Disruption::Kill).await;
    let calls = fake.calls();
    for (number, node) in ["worker0", "worker1"].into_iter().enumerate() {
        let script = format!(
            "exec --privileged claimcheck-a-{node} sh -euc ids=$(crictl ps --quiet --label \
             io.kubernetes.pod.uid=u{number})"
        );
        assert!(calls.contains(&script), "{calls}");
    }
    let asked = api.asked.lock().unwrap();
    // The watch may or may not start before the list has completed.
    let asked: Vec<_> = asked.iter().filter(|line| !line.contains("watch=true")).cloned().collect();
    assert_snapshot!(asked.join("\n"));
}
