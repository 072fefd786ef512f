//! Starting, tokens, files, counters.

use std::os::unix::fs::PermissionsExt;

use claimcheck_apiserver::{Config, StartError, start};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::harness::{Fixture, claim, client, create, refusal};

#[tokio::test]
async fn a_cluster_begins_with_its_namespaces() {
    let fixture = Fixture::start().await;
    let namespaces = fixture.cluster::<Namespace>().list(&ListParams::default()).await.unwrap();
    let names: Vec<_> =
        namespaces.iter().filter_map(|namespace| namespace.metadata.name.as_deref()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let version = fixture.client.apiserver_version().await.unwrap();
    assert_eq!((version.git_version.as_str(), version.minor.as_str()), ("v1.36.2", "36"));
}

#[tokio::test]
async fn an_occupied_port_is_named_with_the_remedy() {
    let first = start(Config::default()).await.unwrap();
    let occupied = Config { listen: first.address(), ..Config::default() };
    let error = start(occupied).await.err().unwrap();
    assert!(matches!(error, StartError::Occupied { .. }));
    let message = error.to_string();
    assert!(message.contains(&first.address().to_string()) && message.contains("another port"), "{message}");
    // Once the first is gone the port is free again.
    let address = first.address();
    first.shutdown().await;
    start(Config { listen: address, ..Config::default() }).await.unwrap();
}

#[tokio::test]
async fn unauthenticated_clients_are_rejected() {
    let fixture = Fixture::start().await;
    let stranger = client(&fixture.server, false).await;
    let pods: Api<Pod> = Api::all(stranger.clone());
    assert_eq!(refusal(pods.list(&ListParams::default()).await), (403, "Forbidden".to_owned()));
    assert!(stranger.apiserver_version().await.is_ok(), "the version is for everybody");
    let kubeconfig = fixture.server.kubeconfig().replace(fixture.server.token(), "wrong");
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let pods: Api<Pod> = Api::all(kube::Client::try_from(config).unwrap());
    assert_eq!(refusal(pods.list(&ListParams::default()).await), (401, "Unauthorized".to_owned()));
}

#[tokio::test]
async fn the_kubeconfig_is_for_its_owner_only() {
    let fixture = Fixture::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "an older, longer and readable file".repeat(100)).unwrap();
    fixture.server.write_kubeconfig(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), fixture.server.kubeconfig());
}

#[tokio::test]
async fn requests_are_counted_and_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.ndjson");
    let fixture = Fixture::with(Config { audit_log: Some(log.clone()), ..Config::default() }).await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    create(&claims, claim("a")).await;
    claims.get("a").await.unwrap();
    claims.get("a").await.unwrap();
    let counts = fixture.server.requests();
    let count = |verb: &str| {
        counts
            .iter()
            .find(|count| count.verb == verb && count.resource == "persistentvolumeclaims")
            .map(|c| c.count)
    };
    assert_eq!((count("create"), count("get"), count("delete")), (Some(1), Some(2), None));
    let text = std::fs::read_to_string(log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let write = lines.iter().find(|line| line["verb"] == "create").unwrap();
    assert_eq!(
        (write["code"].as_u64(), write["resource"].as_str()),
        (Some(201), Some("persistentvolumeclaims"))
    );
    assert!(
        write["request_bytes"].as_u64() > Some(100) && write["response_bytes"].as_u64() > Some(100),
        "{write}"
    );
}
