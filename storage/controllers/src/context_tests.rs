//! The cache after a write that was decided on an outdated state.

use claimcheck_apiserver as apiserver;
use claimcheck_informer::{Informer, Kind, KindSet, Options, key_of, testing::volume};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::Status,
};
use serde_json::json;

use crate::context::{Context, Error, Failure, Verb};

/// A cache that nothing is watched for, so that only the context fills it; and a volume in both.
async fn cluster() -> (apiserver::Server, Context, Api<PersistentVolume>, PersistentVolume) {
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let informer = Informer::start(client.clone(), KindSet::default(), &Options::default());
    let context = Context::new(client.clone(), informer, "tester");
    let volumes = Api::<PersistentVolume>::all(client);
    let mut fresh = volume("v", "", "1Gi");
    fresh.metadata.uid = None;
    let created = volumes.create(&PostParams::default(), &fresh).await.unwrap();
    context.informer.apply(created.clone());
    (server, context, volumes, created)
}

fn label(context: &Context) -> Option<String> {
    let world = context.informer.read();
    world.volumes.named("v")?.metadata.labels.as_ref()?.get("by").cloned()
}

fn labelled(by: &str) -> serde_json::Value {
    json!({"metadata": {"labels": {"by": by}}})
}

#[tokio::test]
async fn a_write_is_in_the_cache_at_once() {
    let (_server, context, _, volume) = cluster().await;
    context.patch(&volume, labelled("us")).await.unwrap();
    assert_eq!(label(&context).as_deref(), Some("us"));
    let version = context.informer.read().volumes.named("v").unwrap().metadata.resource_version.clone();
    assert_ne!(version, volume.metadata.resource_version);
}

#[tokio::test]
async fn an_outdated_write_is_refused_and_refreshes_the_cache() {
    let (_server, context, volumes, volume) = cluster().await;
    let patch = Patch::Merge(labelled("them"));
    volumes.patch("v", &PatchParams::default(), &patch).await.unwrap();
    assert!(matches!(context.patch(&volume, labelled("us")).await, Err(Failure::Conflict)));
    assert_eq!(label(&context).as_deref(), Some("them"));
    let status = json!({"phase": "Failed"});
    assert!(matches!(context.patch_status(&volume, status).await, Err(Failure::Conflict)));
}

#[tokio::test]
async fn removing_a_finalizer_ignores_other_changes_and_keeps_other_finalizers_and_successors() {
    let (_server, context, volumes, volume) = cluster().await;
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["a.io/ours", "b.io/theirs"]}}));
    volumes.patch("v", &PatchParams::default(), &hold).await.unwrap();
    context.release(&volume, "a.io/ours").await.unwrap();
    context.release(&volume, "a.io/ours").await.expect("the finalizer was removed already");
    let held = context.informer.read().volumes.named("v").unwrap().metadata.finalizers.clone();
    assert_eq!(held.unwrap(), ["b.io/theirs"]);
    let mut predecessor = volume;
    predecessor.metadata.uid = Some("another".into());
    assert!(matches!(context.release(&predecessor, "b.io/theirs").await, Err(Failure::Conflict)));
    assert!(volumes.get("v").await.unwrap().metadata.finalizers.is_some());
}

#[tokio::test]
async fn a_write_to_a_deleted_object_removes_it_from_the_cache() {
    let (_server, context, volumes, volume) = cluster().await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch("v", &PatchParams::default(), &free).await.unwrap();
    volumes.delete("v", &DeleteParams::default()).await.unwrap();
    assert!(matches!(context.patch(&volume, labelled("us")).await, Err(Failure::Conflict)));
    assert!(context.informer.read().volumes.is_empty());
    context.informer.apply(volume.clone());
    context.delete(&volume).await.expect("deleting a deleted object succeeds");
}

#[tokio::test]
async fn a_deletion_spares_the_successor_and_what_finalizers_hold() {
    let (_server, context, volumes, volume) = cluster().await;
    let mut predecessor = volume.clone();
    predecessor.metadata.uid = Some("another".into());
    assert!(matches!(context.delete(&predecessor).await, Err(Failure::Conflict)));
    assert!(volumes.get("v").await.unwrap().metadata.deletion_timestamp.is_none());

    context.delete(&volume).await.unwrap();
    let held = context.informer.read().volumes.named("v").cloned().expect("its finalizer holds it");
    assert!(held.metadata.deletion_timestamp.is_some());
    context.patch(&*held, json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert!(context.informer.read().volumes.is_empty(), "the write let it go");
}

#[tokio::test]
async fn an_object_that_exists_already_is_read_instead() {
    let (_server, context, _, created) = cluster().await;
    context.informer.forget(Kind::Volume, &key_of(&created));
    let mut again = volume("v", "", "1Gi");
    again.metadata.uid = None;
    assert!(matches!(context.create(&again).await, Err(Failure::Conflict)));
    again.metadata.name = Some("w".into());
    context.create(&again).await.unwrap();
    assert!(context.informer.read().volumes.named("w").is_some());
}

#[test]
fn a_missing_permission_is_distinguished_from_other_failures() {
    let rejected = |reason: &str, code| {
        let source = kube::Error::Api(Status::failure("rejected", reason).with_code(code).boxed());
        let key = key_of(&volume("v", "", "1Gi"));
        Failure::from(Error::Request { verb: Verb::Patch, kind: Kind::Volume, key, source })
    };
    assert!(rejected("Forbidden", 403).is_forbidden());
    assert!(!rejected("Invalid", 422).is_forbidden());
    assert!(!Failure::from(std::io::Error::other("no disk")).is_forbidden());
    assert!(!Failure::Conflict.is_forbidden());
}
