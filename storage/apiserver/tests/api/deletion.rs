//! Deletion: finalizers, grace periods, preconditions, owners, namespaces.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::harness::{Fixture, TIMEOUT, claim, create, pod, refusal};

/// Waits until the object is gone.
async fn until_deleted<K>(api: &Api<K>, name: &str, uid: &str)
where
    K: Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let deleted = await_condition(api.clone(), name, conditions::is_deleted(uid));
    tokio::time::timeout(TIMEOUT, deleted).await.unwrap_or_else(|_| panic!("{name} is still there")).unwrap();
}

fn owned(name: &str, owners: &[&ConfigMap]) -> Value {
    let owners: Vec<OwnerReference> = owners.iter().map(|owner| owner.owner_ref(&()).unwrap()).collect();
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "ownerReferences": owners } })
}

#[tokio::test]
async fn an_object_is_deleted_with_its_last_finalizer() {
    let fixture = Fixture::start().await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    create(&claims, claim("a")).await;
    let dying = claims.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(dying.finalizers(), ["kubernetes.io/pvc-protection"]);
    let version = claims.get("a").await.unwrap().resource_version();
    claims.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(
        claims.get("a").await.unwrap().resource_version(),
        version,
        "a second deletion changes nothing"
    );
    let more = json!({ "metadata": { "finalizers": ["kubernetes.io/pvc-protection", "x.y/z"] } });
    let more = claims.patch("a", &PatchParams::default(), &Patch::Merge(more)).await;
    assert_eq!(refusal(more), (422, "Invalid".to_owned()));
    let none = json!({ "metadata": { "finalizers": null } });
    claims.patch("a", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    assert_eq!(refusal(claims.get("a").await).0, 404);
}

#[tokio::test]
async fn a_pod_on_a_node_is_deleted_by_the_kubelet() {
    let fixture = Fixture::start().await;
    let pods = fixture.api::<Pod>();
    create(&pods, pod("unscheduled")).await;
    pods.delete("unscheduled", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(pods.get("unscheduled").await).0, 404);

    let mut scheduled = pod("p");
    scheduled["spec"]["nodeName"] = "n".into();
    let uid = create(&pods, scheduled).await.uid().unwrap();
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    let dying = pods.get("p").await.unwrap();
    assert_eq!(dying.metadata.deletion_grace_period_seconds, Some(30));
    assert_eq!(dying.metadata.generation, Some(2));
    // A label is still written, and does not end it.
    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    pods.patch("p", &PatchParams::default(), &label).await.unwrap();

    let longer = DeleteParams { grace_period_seconds: Some(60), ..DeleteParams::default() };
    pods.delete("p", &longer).await.unwrap();
    assert_eq!(pods.get("p").await.unwrap().metadata.deletion_grace_period_seconds, Some(30));
    let last = |uid: &str| DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    assert_eq!(refusal(pods.delete("p", &last("another")).await), (409, "Conflict".to_owned()));
    pods.delete("p", &last(&uid)).await.unwrap();
    assert_eq!(refusal(pods.get("p").await).0, 404);
}

#[tokio::test]
async fn dependents_go_after_their_last_owner() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let first = create(&maps, owned("first", &[])).await;
    let second = create(&maps, owned("second", &[])).await;
    let child = create(&maps, owned("child", &[&first, &second])).await;
    let grandchild = create(&maps, owned("grandchild", &[&child])).await;
    maps.delete("first", &DeleteParams::default()).await.unwrap();
    assert!(maps.get("child").await.is_ok(), "one owner is left");
    maps.delete("second", &DeleteParams::default()).await.unwrap();
    until_deleted(&maps, "child", &child.uid().unwrap()).await;
    until_deleted(&maps, "grandchild", &grandchild.uid().unwrap()).await;
    // Born without a living owner.
    let late = create(&maps, owned("late", &[&first])).await;
    until_deleted(&maps, "late", &late.uid().unwrap()).await;
}

#[tokio::test]
async fn orphans_are_left_on_demand() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let owner = create(&maps, owned("owner", &[])).await;
    create(&maps, owned("child", &[&owner])).await;
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    let dying = maps.delete("owner", &orphan).await.unwrap().left().unwrap();
    assert_eq!(
        dying.finalizers(),
        ["orphan"],
        "the object is returned, and deleted by the garbage collector"
    );
    assert!(maps.get("child").await.unwrap().owner_references().is_empty());
    assert_eq!(refusal(maps.get("owner").await).0, 404);
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_content() {
    let fixture = Fixture::start().await;
    let namespaces = fixture.cluster::<Namespace>();
    let namespace = create(&namespaces, json!({ "metadata": { "name": "n" } })).await;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), "n");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(fixture.client.clone(), "n");
    let map = create(&maps, owned("m", &[])).await;
    create(&claims, claim("a")).await;
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    until_deleted(&maps, "m", &map.uid().unwrap()).await;
    let held = namespaces.get("n").await.unwrap();
    assert_eq!(held.status.unwrap().phase.as_deref(), Some("Terminating"), "a finalizer holds the claim");
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    tokio::time::timeout(TIMEOUT, async {
        await_condition(claims.clone(), "a", |claim: Option<&PersistentVolumeClaim>| {
            claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some())
        })
        .await
    })
    .await
    .unwrap()
    .unwrap();
    claims.patch("a", &PatchParams::default(), &none).await.unwrap();
    until_deleted(&namespaces, "n", &namespace.uid().unwrap()).await;
}

#[tokio::test]
async fn in_the_foreground_dependents_go_first() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let claims = fixture.api::<PersistentVolumeClaim>();
    let owner = create(&maps, owned("owner", &[])).await;
    let mut reference = owner.owner_ref(&()).unwrap();
    reference.block_owner_deletion = Some(true);
    let mut blocking = claim("blocking");
    blocking["metadata"]["ownerReferences"] = json!([reference]);
    create(&claims, blocking).await;
    let plain = create(&maps, owned("plain", &[&owner])).await;
    let deleted = maps.delete("owner", &DeleteParams::foreground()).await.unwrap().left().unwrap();
    assert_eq!(deleted.finalizers(), ["foregroundDeletion"]);
    until_deleted(&maps, "plain", &plain.uid().unwrap()).await;
    let dying = await_condition(claims.clone(), "blocking", |claim: Option<&PersistentVolumeClaim>| {
        claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some())
    });
    tokio::time::timeout(TIMEOUT, dying).await.unwrap().unwrap();
    assert!(maps.get("owner").await.is_ok(), "the claim's finalizer holds the owner too");
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    claims.patch("blocking", &PatchParams::default(), &none).await.unwrap();
    until_deleted(&maps, "owner", &owner.uid().unwrap()).await;
}

#[tokio::test]
async fn an_owner_without_dependents_is_deleted_in_the_foreground_too() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let first = create(&maps, owned("first", &[])).await;
    let second = create(&maps, owned("second", &[])).await;
    create(&maps, owned("shared", &[&first, &second])).await;
    maps.delete("first", &DeleteParams::foreground()).await.unwrap();
    until_deleted(&maps, "first", &first.uid().unwrap()).await;
    let shared = maps.get("shared").await.unwrap();
    let owners: Vec<_> = shared.owner_references().iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(owners, ["second"], "it has another owner, which keeps it");
}

#[tokio::test]
async fn a_terminating_namespace_reports_the_remaining_content() {
    let fixture = Fixture::start().await;
    let namespaces = fixture.cluster::<Namespace>();
    let namespace = create(&namespaces, json!({ "metadata": { "name": "n" } })).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(fixture.client.clone(), "n");
    create(&claims, claim("a")).await;
    namespaces.delete("n", &DeleteParams::background()).await.unwrap();
    let conditions_set = await_condition(namespaces.clone(), "n", |namespace: Option<&Namespace>| {
        let conditions = namespace.and_then(|namespace| namespace.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "NamespaceFinalizersRemaining"
                && condition.message.as_ref().is_some_and(|text| text.contains("pvc-protection in 1"))
        })
    });
    tokio::time::timeout(TIMEOUT, conditions_set).await.unwrap().unwrap();
    let late = claims.create(&Default::default(), &serde_json::from_value(claim("b")).unwrap()).await;
    assert_eq!(refusal(late), (403, "Forbidden".to_owned()));
    // Whoever may finalize it need not wait.
    let free = json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "n" }, "spec": {} });
    fixture.accept("PUT", "/api/v1/namespaces/n/finalize", "application/json", &free).await;
    until_deleted(&namespaces, "n", &namespace.uid().unwrap()).await;
}
