//! The reason why a driver is not registered with a kubelet: the last log lines of the node's registrar and kubelet.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tracing::debug;

use claimcheck_deploy::install;
use claimcheck_kind::Engine;

/// Finds the pods with a registrar.
const PODS: &str = "app.kubernetes.io/part-of=claimcheck,app.kubernetes.io/component=node";
/// The container name, common to all registrars.
const REGISTRAR: &str = "registrar";
/// How many lines of a log are searched.
const LINES: i64 = 500;
/// The maximum number of nodes in the report: many nodes have a common cause.
const NODES: usize = 3;
/// The same for a kubelet's log, which is more verbose.
const JOURNAL: &str = "journalctl --no-pager -u kubelet.service | tail -n 5000";
/// A registrar is only called by the kubelet: it cannot log why it was not called.
const SILENT: &str = "has an empty log: check the kubelet's log on this node (journalctl -u kubelet)";
/// Its log is not available.
const UNREAD: &str = "has a log that cannot be read";
/// The directory in which a kubelet looks for registrars; log lines contain this path or the driver.
const REGISTRY: &str = "plugins_registry";

/// A log line of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLogLine {
    /// The node.
    pub node: String,
    /// The component.
    pub who: &'static str,
    /// The most relevant line.
    pub line: String,
}

impl fmt::Display for NodeLogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}, {}: {}", self.node, self.who, self.line)
    }
}

/// The log lines of the registrars on these nodes, as far as available.
pub(crate) async fn by_registrars(
    client: &Client,
    components: &install::Options,
    nodes: &[String],
) -> Vec<NodeLogLine> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &components.namespace);
    let found = match pods.list(&ListParams::default().labels(PODS)).await {
        Ok(found) => found.items,
        Err(error) => {
            debug!(%error, "cannot list the registrars' pods");
            return Vec::new();
        }
    };
    let mut log_lines = Vec::new();
    for node in nodes.iter().take(NODES) {
        let on_node = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(node);
        let line = match found.iter().find(on_node) {
            None => format!("no pod of DaemonSet {} on this node", install::NODE),
            Some(pod) => registrar_log(&pods, &pod.name_any()).await,
        };
        log_lines.push(NodeLogLine { node: node.clone(), who: REGISTRAR, line });
    }
    log_lines
}

/// The log line of the registrar of a pod.
async fn registrar_log(pods: &Api<Pod>, pod: &str) -> String {
    let Some(now) = log(pods, pod, false).await else { return UNREAD.to_owned() };
    if let Some(line) = complaint(&now) {
        return line;
    }
    // A registrar that exited is restarted, and has not failed again yet.
    let before = log(pods, pod, true).await.as_deref().and_then(complaint);
    before.or_else(|| last(&now)).unwrap_or_else(|| SILENT.to_owned())
}

async fn log(pods: &Api<Pod>, pod: &str, previous: bool) -> Option<String> {
    let params = LogParams {
        container: Some(REGISTRAR.to_owned()),
        tail_lines: Some(LINES),
        previous,
        ..LogParams::default()
    };
    let text = pods.logs(pod, &params).await;
    text.inspect_err(|error| debug!(pod, %error, "cannot read the registrar's log")).ok()
}

/// The log lines of the kubelets of these kind nodes about the driver or its registration.
pub(crate) async fn by_kubelets(engine: &Engine, driver: &str, nodes: &[String]) -> Vec<NodeLogLine> {
    let mut log_lines = Vec::new();
    for node in nodes.iter().take(NODES) {
        match engine.exec(node, &["sh", "-c", JOURNAL]).await {
            Ok(journal) => {
                let about = |line: &&str| line.contains(driver) || line.contains(REGISTRY);
                let lines: Vec<&str> = journal.lines().filter(about).collect();
                let lines = lines.join("\n");
                let line = complaint(&lines).or_else(|| last(&lines));
                let line = line.unwrap_or_else(|| format!("no log line about {driver}"));
                log_lines.push(NodeLogLine { node: node.clone(), who: "kubelet", line });
            }
            Err(error) => debug!(node, %error, "cannot read the kubelet's journal"),
        }
    }
    log_lines
}

/// The last line that reports an error.
fn complaint(text: &str) -> Option<String> {
    let words = ["error", "err=", "fail", "refused", "denied", "timed out", "cannot"];
    let complains = |line: &&str| {
        let line = line.to_lowercase();
        words.iter().any(|word| line.contains(word))
    };
    text.lines().rev().find(complains).map(|line| line.trim().to_owned())
}

/// The last non-empty line.
fn last(text: &str) -> Option<String> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use claimcheck_kind::testing::Fake;

    #[test]
    fn the_last_error_line_is_quoted() {
        let klog = "I1122 11:00:00 1 main.go:1] registered\nE1122 11:00:01 1 plugin.go:2] \"bad\" err=\"first\"\n\
                    E1122 11:00:02 1 plugin.go:2] \"bad\" err=\"second\"\nI1122 11:00:03 1 main.go:9] waits\n";
        assert_eq!(complaint(klog).as_deref(), Some("E1122 11:00:02 1 plugin.go:2] \"bad\" err=\"second\""));
        assert_eq!(last(klog).as_deref(), Some("I1122 11:00:03 1 main.go:9] waits"));
        assert_eq!(
            (complaint("all is well\n\n"), last("all is well\n\n")),
            (None, Some("all is well".to_owned()))
        );
        assert_eq!((complaint(""), last("\n")), (None, None));
    }

    /// A client of a server with one pod on each of two nodes, with this log of their registrars.
    fn with_log(text: Option<&'static str>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let is_log = request.uri().path().ends_with("/log");
            let before = request.uri().query().unwrap_or_default().contains("previous=true");
            let pod = |name: &str, node: &str| json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "containers": [] } });
            let answer = match (is_log, text) {
                (false, _) => {
                    json!({ "metadata": {}, "items": [pod("p1", "n1"), pod("p2", "n2")] }).to_string()
                }
                (true, Some(_)) if before => "I1 began\nE1 cannot listen\n".to_owned(),
                (true, Some(text)) => text.to_owned(),
                (true, None) => {
                    let failed = Response::builder().status(500).body(Body::empty());
                    return failed.map_err(|error| error.to_string());
                }
            };
            Ok(Response::new(Body::from(answer.into_bytes())))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_registrar_reports_its_last_log_line() {
        let components = install::Options::new(install::Variant::Kind);
        for (text, expected) in [
            (Some("I1 began\nE2 registration failed\nI3 waits\n"), "E2 registration failed"),
            (Some("I1 began\n"), "E1 cannot listen"),
            (None, UNREAD),
        ] {
            let log_lines =
                by_registrars(&with_log(text), &components, &["n2".to_owned(), "n3".to_owned()]).await;
            let lines: Vec<String> = log_lines.iter().map(NodeLogLine::to_string).collect();
            let missing = "node n3, registrar: no pod of DaemonSet claimcheck-node on this node";
            assert_eq!(lines, [format!("node n2, registrar: {expected}"), missing.to_owned()]);
        }
    }

    #[tokio::test]
    async fn a_kubelets_log_is_searched_for_the_driver_and_its_registration() {
        let fake = Fake::new();
        fake.rule(
            "docker exec",
            "cat <<'WORDS'\nE1122 11:00:01 plugin d.example: err=\"socket\"\nE1122 11:00:02 another: err=\"other\"\n\
             I1122 11:00:03 /var/lib/kubelet/plugins_registry is watched\nWORDS\nexit 0",
        );
        let nodes: Vec<String> = (0..5).map(|number| format!("n{number}")).collect();
        let log_lines = by_kubelets(&fake.engine(), "d.example", &nodes).await;
        assert_eq!(log_lines.len(), 3, "{log_lines:?}");
        assert_eq!(
            log_lines[0].to_string(),
            "node n0, kubelet: E1122 11:00:01 plugin d.example: err=\"socket\""
        );
        fake.rule("docker exec", "echo nothing of interest; exit 0");
        let log_lines = by_kubelets(&fake.engine(), "d.example", &nodes[..1]).await;
        assert_eq!(log_lines[0].to_string(), "node n0, kubelet: no log line about d.example");
        fake.fails("docker exec", "Error: No such container: n0");
        assert_eq!(by_kubelets(&fake.engine(), "d.example", &nodes).await, []);
    }
}
