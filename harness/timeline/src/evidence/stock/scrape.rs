//! Scrapes `/metrics` of upstream components through the API server's proxies.

use std::{collections::BTreeMap, time::Duration};

use claimcheck_model::{StockComponent, StockMetrics};
use futures::{StreamExt, future::join_all, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use tokio::time::timeout;

use super::{Reading, measured};
use crate::evidence::reason;

/// The timeout of a component.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many kubelets are scraped concurrently: a response has a megabyte or two.
const AT_A_TIME: usize = 16;
/// The namespace of the control plane in kubeadm clusters.
const NAMESPACE: &str = "kube-system";
/// The label of kubeadm's controller managers.
const SELECTOR: &str = "component=kube-controller-manager";
/// The port of a controller manager's metrics, with TLS.
const PORT: u16 = 10257;

/// The metrics of all components at one time.
#[derive(Clone, Debug, Default)]
pub struct Stock {
    kubelets: BTreeMap<String, Result<Reading, String>>,
    managers: BTreeMap<String, Result<Reading, String>>,
}

/// Reads the metrics of the kubelets of `nodes` and the controller managers for volumes of `driver`.
///
/// If a component cannot be scraped, the reason is recorded: nothing here fails a run.
pub async fn scrape(client: &Client, nodes: &[String], driver: &str) -> Stock {
    let kubelets = nodes.iter().map(async |node| {
        let path = format!("/api/v1/nodes/{node}/proxy/metrics");
        (node.clone(), read(client, path, driver).await)
    });
    let kubelets = stream::iter(kubelets).buffer_unordered(AT_A_TIME).collect();
    let (kubelets, managers) = tokio::join!(kubelets, managers(client, driver));
    Stock { kubelets, managers }
}

async fn managers(client: &Client, driver: &str) -> BTreeMap<String, Result<Reading, String>> {
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let found = match timeout(TIMEOUT, pods.list(&ListParams::default().labels(SELECTOR))).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return BTreeMap::from([(NAMESPACE.to_owned(), Err(reason(&error)))]),
        Err(_) => return BTreeMap::from([(NAMESPACE.to_owned(), Err(late()))]),
    };
    let names = found.into_iter().filter_map(|pod| pod.metadata.name);
    let read = join_all(names.map(async |name| {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/https:{name}:{PORT}/proxy/metrics");
        let read = read(client, path, driver).await;
        (name, read)
    }));
    read.await.into_iter().collect()
}

async fn read(client: &Client, path: String, driver: &str) -> Result<Reading, String> {
    let request = http::Request::get(path).body(Vec::new()).expect("names of objects need no escapes");
    match timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(text)) => Ok(Reading::of(&text, driver)),
        Ok(Err(error)) => Err(reason(&error)),
        Err(_) => Err(late()),
    }
}

fn late() -> String {
    format!("no response within {} s", TIMEOUT.as_secs())
}

impl Stock {
    /// The difference since `before`.
    pub fn since(&self, before: &Self) -> [StockMetrics; 2] {
        [
            measured(StockComponent::Kubelet, &before.kubelets, &self.kubelets),
            measured(StockComponent::KubeControllerManager, &before.managers, &self.managers),
        ]
    }
}
