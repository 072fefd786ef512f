//! Clones of claims in other namespaces, which a ReferenceGrant permits.

use std::time::Duration;

use claimcheck_informer::testing;
use claimcheck_model::{CLONE_PROTECTION, reference_grant::ReferenceGrant};
use k8s_openapi::{
    api::core::v1::{Namespace, PersistentVolumeClaim, TypedObjectReference},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;

use crate::cluster::Cluster;

/// Much longer than it takes.
const LIMIT: Duration = Duration::from_secs(90);
/// The namespace of the source.
const THERE: &str = "there";
const CLAIM: &str = "PersistentVolumeClaim";
const DENIED: &str =
    "accessing there/data of PersistentVolumeClaim dataSource from default/copy isn't allowed";

/// The definition of ReferenceGrants, without the limits of gateway-api's.
async fn serve_grants(cluster: &Cluster) {
    let string = json!({ "type": "string" });
    let list = |required: &[&str], more: &str| {
        let properties = json!({ "group": string, "kind": string, more: string });
        let items = json!({ "type": "object", "required": required, "properties": properties });
        json!({ "type": "array", "items": items })
    };
    let lists = json!({
        "from": list(&["group", "kind", "namespace"], "namespace"),
        "to": list(&["group", "kind"], "name"),
    });
    let spec = json!({ "type": "object", "required": ["from", "to"], "properties": lists });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let definition = json!({
        "metadata": {
            "name": "referencegrants.gateway.networking.k8s.io",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/1538",
            },
        },
        "spec": {
            "group": "gateway.networking.k8s.io", "scope": "Namespaced",
            "names": { "kind": "ReferenceGrant", "plural": "referencegrants" },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    Api::all(cluster.client.clone()).create(&PostParams::default(), &definition).await.unwrap();
}

fn is_bound(claim: Option<&PersistentVolumeClaim>) -> bool {
    let status = claim.and_then(|claim| claim.status.as_ref());
    status.and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Creates the bound claim `there/data`.
async fn source(cluster: &Cluster) -> Api<PersistentVolumeClaim> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(THERE.into());
    cluster.create(namespace).await;
    let mut claim = testing::claim("data", "fast", "64Mi");
    (claim.metadata.uid, claim.metadata.namespace) = (None, Some(THERE.into()));
    let claims = Api::<PersistentVolumeClaim>::namespaced(cluster.client.clone(), THERE);
    claims.create(&PostParams::default(), &claim).await.unwrap();
    let bound = await_condition(claims.clone(), "data", is_bound);
    tokio::time::timeout(LIMIT, bound).await.expect("the source is bound").unwrap();
    claims
}

/// Creates the claim `default/copy` of it.
async fn clone(cluster: &Cluster) {
    let mut claim = testing::claim("copy", "fast", "64Mi");
    claim.spec.get_or_insert_default().data_source_ref = Some(TypedObjectReference {
        api_group: None,
        kind: CLAIM.into(),
        name: "data".into(),
        namespace: Some(THERE.into()),
    });
    cluster.create_in_namespace(claim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_is_provisioned_once_a_grant_permits_it() {
    let mut cluster = Cluster::prepare().await;
    serve_grants(&cluster).await;
    cluster.run_across_namespaces();
    let sources = source(&cluster).await;
    clone(&cluster).await;
    cluster.wait_for_event("ProvisioningFailed", DENIED).await;
    assert_eq!(cluster.driver.counts()["CreateVolume"], [1], "that of the source");

    let mut grant: ReferenceGrant = testing::reference_grant("clones", THERE, "", CLAIM);
    grant.metadata.uid = None;
    let grants = Api::<ReferenceGrant>::namespaced(cluster.client.clone(), THERE);
    grants.create(&PostParams::default(), &grant).await.unwrap();
    cluster.bound("copy").await;
    let data = sources.get("data").await.unwrap();
    assert!(data.metadata.finalizers.unwrap_or_default().contains(&CLONE_PROTECTION.to_owned()));

    cluster.delete_claim("copy").await;
    sources.delete("data", &DeleteParams::default()).await.unwrap();
    cluster.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_definition_no_grant_exists_and_other_claims_are_provisioned() {
    let mut cluster = Cluster::prepare().await;
    cluster.run_across_namespaces();
    source(&cluster).await;
    clone(&cluster).await;
    cluster.wait_for_event("ProvisioningFailed", DENIED).await;
    cluster.bound_claim("plain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_feature_the_namespace_is_refused() {
    let cluster = Cluster::start().await;
    source(&cluster).await;
    clone(&cluster).await;
    let message =
        "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled";
    cluster.wait_for_event("ProvisioningFailed", message).await;
}
