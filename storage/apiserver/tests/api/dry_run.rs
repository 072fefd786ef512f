//! Dry runs: the answer is that of the real thing, and nothing is stored.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::harness::{Fixture, claim, create, pod, refusal};

#[tokio::test]
async fn writes_are_admitted_and_forgotten() {
    let fixture = Fixture::start().await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object: PersistentVolumeClaim = serde_json::from_value(claim("a")).unwrap();
    let made = claims.create(&dry, &object).await.unwrap();
    assert_eq!(made.finalizers(), ["kubernetes.io/pvc-protection"], "admission has run");
    assert_eq!(refusal(claims.get("a").await).0, 404);
    let real = create(&claims, claim("a")).await;
    assert_eq!(refusal(claims.create(&dry, &object).await), (409, "AlreadyExists".to_owned()));

    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    let patched = claims.patch("a", &PatchParams { dry_run: true, ..PatchParams::default() }, &label).await;
    assert_eq!(patched.unwrap().labels()["a"], "b");
    let mut changed = real.clone();
    changed.labels_mut().insert("c".to_owned(), "d".to_owned());
    assert_eq!(claims.replace("a", &dry, &changed).await.unwrap().labels()["c"], "d");
    assert_eq!(claims.get("a").await.unwrap(), real);
}

#[tokio::test]
async fn deletions_are_tried() {
    let fixture = Fixture::start().await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    let real = create(&claims, claim("a")).await;
    let maps = fixture.api::<ConfigMap>();
    let owners = [real.owner_ref(&()).unwrap()];
    let owned = json!({ "metadata": { "name": "m", "ownerReferences": owners } });
    let map = create(&maps, owned).await;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let dying = claims.delete("a", &dry).await.unwrap().left().unwrap();
    assert!(dying.metadata.deletion_timestamp.is_some());
    claims.delete_collection(&dry, &ListParams::default()).await.unwrap();
    let orphan = DeleteParams { dry_run: true, ..DeleteParams::orphan() };
    claims.delete("a", &orphan).await.unwrap();
    maps.delete("m", &dry).await.unwrap();
    let other = dry
        .clone()
        .preconditions(kube::api::Preconditions { uid: Some("other".to_owned()), resource_version: None });
    assert_eq!(refusal(claims.delete("a", &other).await).0, 409);
    let pods = fixture.api::<Pod>();
    create(&pods, pod("p")).await;
    let eviction = json!({ "metadata": { "name": "p" }, "deleteOptions": { "dryRun": ["All"] } });
    let path = "/api/v1/namespaces/default/pods/p/eviction";
    fixture.accept("POST", path, "application/json", &eviction).await;
    assert!(pods.get("p").await.is_ok());
    pods.evict("p", &Default::default()).await.unwrap();
    assert_eq!(refusal(pods.get("p").await).0, 404);
    assert_eq!(claims.get("a").await.unwrap(), real);
    assert_eq!(maps.get("m").await.unwrap(), map);
}
