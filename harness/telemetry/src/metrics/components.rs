//! The metrics of an embedded cluster's components, each of which serves its own at a unix socket: one port, that
//! of the run, proxies all of them.
//!
//! ```text
//! Prometheus ──/targets──────────────────────> the list of targets, in http_sd format
//!            ──/components/node@node-1/metrics─> /cc/m/node@node-1.sock ──> the node agent
//! ```
//!
//! Components are discovered in the directory of the sockets, so those that start later, or again, are found
//! without registration.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_model::{METRICS_SOCKETS, RunInfo};
use http::{Request, header::HOST};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::UnixStream, time::timeout};

use crate::serve::{Page, PageRequest};

/// The timeout of a component: one that hangs, maybe on purpose, must not block the scraper.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The separator between component and node in the name of a socket.
const AT: char = '@';

/// The sockets at which the components of a cluster serve their metrics.
#[derive(Clone, Debug)]
pub struct Components {
    sockets: PathBuf,
}

/// A component cannot be scraped.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("cannot connect to it: {0}")]
    Connect(#[from] io::Error),
    #[error("it does not respond: {0}")]
    Answer(#[from] hyper::Error),
    #[error("its response is not text")]
    Text,
    #[error("it did not respond within {} s", TIMEOUT.as_secs())]
    Late,
}

impl Default for Components {
    /// The components of this run's embedded cluster, if it has one.
    fn default() -> Self {
        Self { sockets: METRICS_SOCKETS.into() }
    }
}

impl Components {
    /// Creates the directory of the sockets.
    pub fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.sockets)
    }

    /// The arguments with which a component serves its metrics here.
    pub fn args(&self, component: &str, node: Option<&str>) -> [String; 2] {
        let name = match node {
            Some(node) => format!("{component}{AT}{node}"),
            None => component.to_owned(),
        };
        let socket = self.sockets.join(format!("{name}.sock"));
        ["--http-endpoint".to_owned(), format!("unix://{}", socket.display())]
    }

    /// The names of the serving components, in order.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.sockets).into_iter().flatten().filter_map(Result::ok);
        let name = |file: String| Some(file.strip_suffix(".sock")?.to_owned());
        let mut names: Vec<String> =
            entries.filter_map(|entry| name(entry.file_name().into_string().ok()?)).collect();
        names.sort();
        names
    }

    /// The targets for Prometheus' `http_sd_configs`; `host` is this server's address. A component does not know its
    /// cluster; until that is known here, there are no targets.
    fn targets(&self, host: &str, run: &RunInfo) -> Value {
        if run.driver.is_empty() {
            return Value::Array(Vec::new());
        }
        let target = |name: &String| {
            let (component, node) = name.split_once(AT).unwrap_or((name, ""));
            let path = format!("/components/{name}/metrics");
            json!({
                "targets": [host],
                "labels": {
                    "cluster_kind": run.cluster.name(),
                    "component": component,
                    "node": node,
                    "__metrics_path__": path,
                },
            })
        };
        self.names().iter().map(target).collect()
    }

    /// The requested page, if it is one of these.
    pub async fn page(&self, request: PageRequest<'_>, run: &RunInfo) -> Option<Page> {
        if request.path == "/targets" {
            return Some(Page::json(&self.targets(request.host, run)));
        }
        let name = request.path.strip_prefix("/components/")?.strip_suffix("/metrics")?;
        if !self.names().iter().any(|known| known == name) {
            return None;
        }
        let socket = self.sockets.join(format!("{name}.sock"));
        let answer = timeout(TIMEOUT, get(&socket)).await.unwrap_or(Err(ScrapeError::Late));
        Some(answer.map_or_else(|why| Page::unavailable(format!("{name}: {why}\n")), Page::ok))
    }
}

/// A component's metrics.
async fn get(socket: &Path) -> Result<String, ScrapeError> {
    let stream = TokioIo::new(UnixStream::connect(socket).await?);
    let (mut sender, connection) = http1::handshake(stream).await?;
    let request = Request::get("/metrics").header(HOST, "component").body(Empty::<Bytes>::new());
    let asked = async {
        let answer = sender.send_request(request.expect("a request")).await?;
        let body = answer.into_body().collect().await?.to_bytes();
        String::from_utf8(body.into()).map_err(|_| ScrapeError::Text)
    };
    tokio::select! {
        answer = asked => answer,
        Err(error) = connection => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::ClusterKind;

    use super::*;
    use crate::serve::{Site, serve_unix};

    /// A component that returns its name.
    #[derive(Clone)]
    struct Named(&'static str);

    impl Site for Named {
        async fn page(&self, request: PageRequest<'_>) -> Option<Page> {
            (request.path == "/metrics").then(|| Page::ok(self.0))
        }
    }

    #[tokio::test]
    async fn those_that_serve_are_listed_and_reached() {
        let folder = tempfile::tempdir().unwrap();
        let components = Components { sockets: folder.path().join("m") };
        let run = RunInfo { driver: "d".into(), cluster: ClusterKind::Envtest, ..RunInfo::default() };
        let page = async |path: &str| components.page(PageRequest { path, host: "h:1" }, &run).await;
        assert_eq!(page("/targets").await, Some(Page::json(&json!([]))), "no cluster exists yet");
        components.prepare().unwrap();
        let serve = |component: &str, node, says| {
            let [_, endpoint] = components.args(component, node);
            serve_unix(Path::new(endpoint.strip_prefix("unix://").unwrap()), Named(says)).unwrap()
        };
        let _controllers = serve("controllers", None, "c");
        let node = serve("node", Some("node-1"), "n");
        let target = |component, node, path| {
            let labels = json!({ "cluster_kind": "envtest", "component": component, "node": node, "__metrics_path__": path });
            json!({ "targets": ["h:1"], "labels": labels })
        };
        let expected = json!([
            target("controllers", "", "/components/controllers/metrics"),
            target("node", "node-1", "/components/node@node-1/metrics"),
        ]);
        assert_eq!(page("/targets").await, Some(Page::json(&expected)));
        let unknown =
            components.page(PageRequest { path: "/targets", host: "h:1" }, &RunInfo::default()).await;
        assert_eq!(unknown, Some(Page::json(&json!([]))), "their cluster is not known yet");
        assert_eq!(page("/components/controllers/metrics").await, Some(Page::ok("c")));
        assert_eq!(page("/components/node@node-1/metrics").await, Some(Page::ok("n")));
        for absent in
            ["/components/node@node-2/metrics", "/components/../m/controllers/metrics", "/components/"]
        {
            assert_eq!(page(absent).await, None, "{absent}");
        }
        drop(node);
        let deleted = page("/components/node@node-1/metrics").await.unwrap();
        assert!(
            format!("{deleted:?}").contains("503") && format!("{deleted:?}").contains("cannot connect"),
            "{deleted:?}"
        );
        let _again = serve("node", Some("node-1"), "n2");
        assert_eq!(
            page("/components/node@node-1/metrics").await,
            Some(Page::ok("n2")),
            "it was started again"
        );
    }
}
