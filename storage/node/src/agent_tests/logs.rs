//! Logs of containers, asked of the API server.

use std::{fs::OpenOptions, io::Write};

use futures::{AsyncBufReadExt, AsyncReadExt, TryStreamExt};
use kube::api::LogParams;

use super::*;

impl Cluster {
    /// A container writes to its log.
    fn log(&self, id: &str, text: &str) {
        let path = self.runtime.spec(id).unwrap().log_path;
        OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    async fn logs(&self, pod: &str, options: LogParams) -> String {
        self.namespaced::<Pod>().logs(pod, &options).await.unwrap()
    }

    /// The code and words with which a log is refused.
    async fn refused(&self, pod: &str, options: LogParams) -> (u16, String) {
        let error = self.namespaced::<Pod>().logs(pod, &options).await.unwrap_err();
        let kube::Error::Api(status) = error else { panic!("{error}") };
        (status.code, status.message.clone())
    }

    async fn ended(&self, pod: &str, exit: Exit) {
        let uid = self.namespaced::<Pod>().get(pod).await.unwrap().metadata.uid.unwrap();
        self.runtime.end(&format!("{uid}/c/0"), exit);
        wait(&self.namespaced::<Pod>(), pod, |pod: Option<&Pod>| phase(pod) == Some("Succeeded")).await;
    }
}

fn empty_dir() -> Value {
    json!({"emptyDir": {}})
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_read_while_the_container_runs_and_after() {
    let cluster = Cluster::start().await;
    let uid = cluster.pod_of("p", empty_dir(), json!({"restartPolicy": "Never"})).await;
    cluster.ready("p").await;
    let id = format!("{uid}/c/0");
    assert_eq!(cluster.logs("p", LogParams::default()).await, "");
    cluster.log(&id, "one\ntwo\n");
    assert_eq!(cluster.logs("p", LogParams::default()).await, "one\ntwo\n");
    let tail = LogParams { tail_lines: Some(1), ..LogParams::default() };
    assert_eq!(cluster.logs("p", tail).await, "two\n");
    let limit = LogParams { limit_bytes: Some(5), ..LogParams::default() };
    assert_eq!(cluster.logs("p", limit).await, "one\nt");
    let recent = LogParams { since_seconds: Some(3600), ..LogParams::default() };
    assert_eq!(cluster.logs("p", recent).await, "one\ntwo\n");
    let future = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let none = LogParams { since_time: Some(future), ..LogParams::default() };
    assert_eq!(cluster.logs("p", none).await, "");

    let stamped = cluster.logs("p", LogParams { timestamps: true, ..LogParams::default() }).await;
    let times: Vec<jiff::Timestamp> =
        stamped.lines().map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect();
    assert_eq!(times.len(), 2, "{stamped}");
    let age = jiff::Timestamp::now().duration_since(times[0]);
    assert!(!age.is_negative() && age < jiff::SignedDuration::from_mins(5), "{stamped}");

    cluster.ended("p", Exit::Code(0)).await;
    assert_eq!(cluster.logs("p", LogParams::default()).await, "one\ntwo\n");
    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.becomes_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_followed_until_its_container_ends() {
    let cluster = Cluster::start().await;
    let uid = cluster.pod_of("p", empty_dir(), json!({"restartPolicy": "Never"})).await;
    cluster.ready("p").await;
    let id = format!("{uid}/c/0");
    cluster.log(&id, "before\n");
    let follow = LogParams { follow: true, ..LogParams::default() };
    let log = cluster.namespaced::<Pod>().log_stream("p", &follow).await.unwrap();
    let mut lines = log.lines();
    assert_eq!(lines.try_next().await.unwrap().as_deref(), Some("before"));
    cluster.log(&id, "then\n");
    assert_eq!(lines.try_next().await.unwrap().as_deref(), Some("then"));
    cluster.log(&id, "last");
    cluster.runtime.end(&id, Exit::Code(0));
    assert_eq!(lines.try_next().await.unwrap().as_deref(), Some("last"));
    assert_eq!(lines.try_next().await.unwrap(), None);

    // Nothing is waited for where the container has ended.
    wait(&cluster.namespaced::<Pod>(), "p", |pod: Option<&Pod>| phase(pod) == Some("Succeeded")).await;
    let mut text = String::new();
    let mut log = cluster.namespaced::<Pod>().log_stream("p", &follow).await.unwrap();
    timeout(LONG, log.read_to_string(&mut text)).await.unwrap().unwrap();
    assert_eq!(text, "before\nthen\nlast");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_before_a_restart_remains_until_the_next() {
    let cluster = Cluster::start().await;
    let uid = cluster.pod_of("p", empty_dir(), json!({"restartPolicy": "Always"})).await;
    cluster.ready("p").await;
    let previous = || LogParams { previous: true, ..LogParams::default() };
    let missing = "previous terminated container \"c\" in pod \"p\" not found";
    assert_eq!(cluster.refused("p", previous()).await, (400, missing.to_owned()));
    cluster.log(&format!("{uid}/c/0"), "first\n");
    cluster.runtime.end(&format!("{uid}/c/0"), Exit::Code(1));
    let restarted = |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        statuses.is_some_and(|all| all[0].restart_count == 1 && all[0].ready)
    };
    wait(&cluster.namespaced::<Pod>(), "p", restarted).await;
    cluster.log(&format!("{uid}/c/1"), "second\n");
    assert_eq!(cluster.logs("p", LogParams::default()).await, "second\n");
    assert_eq!(cluster.logs("p", previous()).await, "first\n");
    cluster.delete("p").await;
    cluster.deleted("p").await;
    cluster.becomes_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_that_cannot_be_read_yet_are_refused_with_the_reason() {
    let cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.pod("p", "a", "Always").await;
    // It waits for its volume.
    let waits = |pod: Option<&Pod>| condition(pod, "Ready") == Some("False");
    wait(&cluster.namespaced::<Pod>(), "p", waits).await;
    let waiting = "container \"c\" in pod \"p\" is waiting to start: ContainerCreating";
    assert_eq!(cluster.refused("p", LogParams::default()).await, (400, waiting.to_owned()));
    let other = LogParams { container: Some("x".into()), ..LogParams::default() };
    assert_eq!(cluster.refused("p", other).await, (400, "container x is not valid for pod p".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_reports_where_it_listens_and_keeps_the_times_of_lines() {
    let mut cluster = Cluster::start().await;
    let uid = cluster.pod_of("p", empty_dir(), json!({})).await;
    cluster.ready("p").await;
    let id = format!("{uid}/c/0");
    cluster.log(&id, "before\n");
    cluster.stop_agent().await;
    cluster.log(&id, "between\n");
    let port = |node: Option<&Node>| {
        let endpoints = node?.status.as_ref()?.daemon_endpoints.as_ref()?;
        Some(endpoints.kubelet_endpoint.as_ref()?.port)
    };
    let before = port(Some(&cluster.all::<Node>().get(NODE).await.unwrap()));
    cluster.start_agent();
    wait(&cluster.all::<Node>(), NODE, |node: Option<&Node>| port(node) != before).await;
    let stamps = || LogParams { timestamps: true, ..LogParams::default() };
    let two = cluster.logs("p", stamps()).await;
    assert!(two.lines().nth(1).is_some_and(|line| line.ends_with(" between")), "{two}");
    cluster.log(&id, "after\n");
    let three = cluster.logs("p", stamps()).await;
    assert!(three.starts_with(&two) && three.ends_with(" after\n"), "{three}");
}
