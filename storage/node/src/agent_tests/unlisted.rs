//! An agent that cannot read some objects, or not yet.

use claimcheck_apiserver::{Fault, FaultRule};
use claimcheck_model::Rate;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::LogParams;

use super::*;

impl Cluster {
    /// The next agent cannot read these resources.
    async fn restart_without(&mut self, resources: &[&str]) {
        self.stop_agent().await;
        self.fail_reads(resources);
        self.start_agent();
    }

    fn fail_reads(&self, resources: &[&str]) {
        let rule = |verb: &'static str| {
            move |resource: &&str| FaultRule {
                verb: Some(verb.to_owned()),
                resource: Some((*resource).to_owned()),
                fault: Fault::InternalError,
                rate: Rate::ALWAYS,
                count: None,
            }
        };
        // An agent that cannot list through a watch requests a plain list.
        let rules = ["watch", "list", "get"].into_iter().flat_map(|verb| resources.iter().map(rule(verb)));
        self.server.faults().set(rules.collect());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_cannot_be_read_stop_only_the_pods_that_need_them() {
    let mut cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let running = cluster.pod("running", "a", "Always").await;
    cluster.ready("running").await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    leases.delete(NODE, &DeleteParams::default()).await.unwrap();

    cluster.restart_without(&["persistentvolumeclaims"]).await;
    // The lease is renewed, a pod without volumes starts, and what runs has its log and its mount.
    wait(&leases, NODE, |lease: Option<&Lease>| lease.is_some()).await;
    cluster.pod_of("local", json!({"emptyDir": {}}), json!({})).await;
    cluster.ready("local").await;
    assert_eq!(cluster.namespaced::<Pod>().logs("running", &LogParams::default()).await.unwrap(), "");
    cluster.pod("waiting", "a", "Always").await;
    let failed = async {
        let cannot = "PersistentVolumeClaim default/a cannot be read: ";
        let reports = |event: &String| event.starts_with("FailedMount") && event.contains(cannot);
        while !cluster.events().await.iter().any(reports) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(LONG, failed).await.is_ok(), "no event: {:?}", cluster.events().await);
    assert!(cluster.host.is_mounted(&cluster.source(&running).canonicalize().unwrap()));
    assert_eq!(cluster.driver.calls().len(), 2, "{:?}", cluster.driver.calls());

    cluster.fail_reads(&[]);
    cluster.ready("waiting").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_not_unknown_before_its_volume_has_been_read() {
    let mut cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let uid = cluster.pod("p", "a", "Always").await;
    cluster.ready("p").await;
    cluster.stop_agent().await;
    let record = cluster.source(&uid).with_file_name("vol_data.json");
    std::fs::write(&record, b"{").unwrap();
    cluster.fail_reads(&["persistentvolumes"]);
    cluster.start_agent();
    // It is registered, and does not guess.
    cluster.node_status(json!({})).await;
    assert!(cluster.host.is_mounted(&cluster.source(&uid).canonicalize().unwrap()));
    cluster.fail_reads(&[]);
    let calls = cluster.driver.wait(4).await;
    assert_eq!(calls[2..], ["Stage a".into(), format!("Publish a {uid}")]);
}
