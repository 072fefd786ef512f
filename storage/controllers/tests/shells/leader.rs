//! Leader election against the embedded API server: who leads, for how long, and what ends it.

use std::time::Duration;

use claimcheck_apiserver as apiserver;
use claimcheck_controllers::leader::{Election, Elector, LeaderError, Timing};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::timeout;

use crate::cluster::{LONG, connect};

/// Renewed so often that tests need not wait. No process loses it, however busy the machine is.
const PATIENT: Timing = Timing {
    lease: Duration::from_secs(600),
    deadline: Duration::from_secs(300),
    retry: Duration::from_millis(20),
};
/// Lost as soon as can be; whole seconds only where they stand in the lease.
const BRISK: Timing =
    Timing { lease: Duration::from_secs(1), deadline: Duration::from_millis(300), ..PATIENT };

async fn server() -> (apiserver::Server, Client, Api<Lease>) {
    let server = apiserver::start(apiserver::Config::default()).await.expect("the API server starts");
    let client = connect(&server).await;
    let leases = Api::namespaced(client.clone(), "kube-system");
    (server, client, leases)
}

fn candidate(client: &Client, identity: &str, timing: Timing) -> Elector {
    labelled_candidate(client, identity, timing, &[])
}

fn labelled_candidate(client: &Client, identity: &str, timing: Timing, labels: &[(&str, &str)]) -> Elector {
    let labels = labels.iter().map(|(key, value)| (String::from(*key), String::from(*value))).collect();
    let (namespace, name) = ("kube-system".into(), "work".into());
    let election = Election { namespace, name, identity: identity.into(), labels, timing };
    Elector::new(client.clone(), election)
}

async fn spec(leases: &Api<Lease>) -> LeaseSpec {
    leases.get("work").await.unwrap().spec.unwrap()
}

#[tokio::test]
async fn a_leader_adds_its_labels_to_those_of_the_lease() {
    let (_server, client, leases) = server().await;
    let mut first = labelled_candidate(&client, "a", PATIENT, &[("team", "storage")]);
    first.acquire().await;
    first.release().await;
    labelled_candidate(&client, "b", PATIENT, &[("tier", "one")]).acquire().await;
    let labels = leases.get("work").await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels, [("team", "storage"), ("tier", "one")].map(|(k, v)| (k.into(), v.into())).into());
}

#[tokio::test]
async fn a_released_lease_is_taken_at_once() {
    let (_server, client, leases) = server().await;
    let mut first = candidate(&client, "first", PATIENT);
    timeout(LONG, first.acquire()).await.unwrap();
    assert_eq!(spec(&leases).await.holder_identity.as_deref(), Some("first"));

    let mut second = candidate(&client, "second", PATIENT);
    let waiting = tokio::spawn(async move {
        second.acquire().await;
        second
    });
    first.release().await;
    let mut second = timeout(LONG, waiting).await.unwrap().unwrap();
    let taken = spec(&leases).await;
    assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("second"), Some(1)));

    // What is not held cannot be released.
    first.release().await;
    assert_eq!(spec(&leases).await, taken);
    second.release().await;
    assert_eq!(spec(&leases).await.holder_identity.as_deref(), Some(""));
}

#[tokio::test]
async fn the_lease_of_an_exited_leader_expires() {
    let (_server, client, leases) = server().await;
    timeout(LONG, candidate(&client, "dead", BRISK).acquire()).await.unwrap();
    timeout(LONG, candidate(&client, "next", BRISK).acquire()).await.unwrap();
    assert_eq!(spec(&leases).await.holder_identity.as_deref(), Some("next"));
}

#[tokio::test]
async fn a_leader_renews_and_makes_a_lost_lease_again() {
    let (_server, client, leases) = server().await;
    let mut leader = candidate(&client, "leader", PATIENT);
    timeout(LONG, leader.acquire()).await.unwrap();
    let first = spec(&leases).await;
    let watched =
        kube::runtime::wait::await_condition(leases.clone(), "work", move |lease: Option<&Lease>| {
            lease.and_then(|lease| lease.spec.as_ref()).is_some_and(|spec| spec.renew_time > first.renew_time)
        });
    tokio::select! {
        lost = leader.hold() => panic!("{lost}"),
        renewed = timeout(LONG, watched) => drop(renewed.unwrap().unwrap()),
    }
    assert_eq!(spec(&leases).await.acquire_time, first.acquire_time, "the term goes on");

    leases.delete("work", &DeleteParams::default()).await.unwrap();
    let again =
        kube::runtime::wait::await_condition(leases.clone(), "work", |lease: Option<&Lease>| lease.is_some());
    tokio::select! {
        lost = leader.hold() => panic!("{lost}"),
        made = timeout(LONG, again) => drop(made.unwrap().unwrap()),
    }
}

#[tokio::test]
async fn a_leader_ends_when_another_has_the_lease() {
    let (_server, client, leases) = server().await;
    let mut leader = candidate(&client, "leader", PATIENT);
    timeout(LONG, leader.acquire()).await.unwrap();
    let usurp = json!({ "spec": { "holderIdentity": "usurper" } });
    leases.patch("work", &PatchParams::default(), &Patch::Merge(usurp)).await.unwrap();
    let lost = timeout(LONG, leader.hold()).await.unwrap();
    let LeaderError::Taken { lease, holder } = lost else { panic!("{lost}") };
    assert_eq!((lease.as_str(), holder.as_str()), ("kube-system/work", "usurper"));
}

#[tokio::test]
async fn a_leader_ends_when_it_cannot_renew() {
    let (server, client, _) = server().await;
    let mut leader = candidate(&client, "leader", BRISK);
    timeout(LONG, leader.acquire()).await.unwrap();
    server.shutdown().await;
    let lost = timeout(LONG, leader.hold()).await.unwrap();
    assert!(matches!(lost, LeaderError::Silent { .. }), "{lost}");
}
