//! The data source validator as it runs: over HTTPS, against the embedded API server.

use std::time::Duration;

use claimcheck_controllers::{Name, Options};
use claimcheck_informer::testing::{self, Notes};
use claimcheck_model::{Meter, metric::DATA_SOURCE_VALIDATIONS, volume_populator::VolumePopulator};
use k8s_openapi::{
    api::core::v1::Event, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    cluster::{Cluster, LONG, until},
    is_asked,
};

const REASON: &str = "UnrecognizedDataSourceKind";

/// As `client/config/crd/populator.storage.k8s.io_volumepopulators.yaml` of volume-data-source-validator.
async fn serve_populators(cluster: &Cluster) {
    let string = json!({ "type": "string" });
    let source_kind = json!({
        "type": "object", "required": ["group", "kind"], "properties": { "group": string, "kind": string },
    });
    let schema =
        json!({ "type": "object", "required": ["sourceKind"], "properties": { "sourceKind": source_kind } });
    let definition = json!({
        "metadata": {
            "name": "volumepopulators.populator.storage.k8s.io",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/2934",
            },
        },
        "spec": {
            "group": "populator.storage.k8s.io", "scope": "Cluster",
            "names": { "kind": "VolumePopulator", "plural": "volumepopulators" },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    Api::all(cluster.client.clone()).create(&PostParams::default(), &definition).await.unwrap();
}

/// Registers a populator of images.
async fn register(cluster: &Cluster) {
    let mut populator = testing::volume_populator("images", "example.com", "Image");
    populator.metadata.uid = None;
    let populators = Api::<VolumePopulator>::all(cluster.client.clone());
    populators.create(&PostParams::default(), &populator).await.unwrap();
}

/// Creates a claim with a data source of this kind, or of none.
async fn create(cluster: &Cluster, name: &str, kind: Option<&str>) {
    let source = kind.map(|kind| json!({ "apiGroup": "example.com", "kind": kind, "name": "any" }));
    let claim = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "dataSourceRef": source,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    let claim = serde_json::from_value(claim).unwrap();
    cluster.claims().create(&PostParams::default(), &claim).await.unwrap();
}

async fn run(cluster: &mut Cluster, names: &'static [Name], notes: &Notes) {
    let options = Options { meter: Meter::new(notes.clone()), ..Options::default() };
    cluster.run_with(names, options).await;
}

/// The results in the metric, sorted.
fn results(notes: &Notes) -> Vec<String> {
    let recorded = notes.recorded().into_iter().filter(|(name, ..)| *name == DATA_SOURCE_VALIDATIONS.name);
    let mut results: Vec<String> = recorded.map(|(_, labels, _)| labels).collect();
    results.sort();
    results
}

/// Waits until the metric has these results.
async fn validated(notes: &Notes, expected: &[&str]) {
    let waiting = async {
        while results(notes).len() < expected.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, waiting).await.is_ok(), "{:?} for {expected:?}", results(notes));
    assert_eq!(results(notes), expected);
}

/// The events of the validator: source, type, claim and message.
async fn events(cluster: &Cluster) -> Vec<[String; 4]> {
    let events = Api::<Event>::default_namespaced(cluster.client.clone());
    let found = events.list(&ListParams::default().fields(&format!("reason={REASON}"))).await.unwrap();
    let line = |event: Event| {
        let source = event.source.and_then(|source| source.component);
        [source, event.type_, event.involved_object.name, event.message].map(Option::unwrap_or_default)
    };
    found.items.into_iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_without_a_populator_gets_an_event_and_every_version_of_a_claim_is_counted_once() {
    let mut cluster = Cluster::prepare().await;
    serve_populators(&cluster).await;
    register(&cluster).await;
    for (name, kind) in [("plain", None), ("image", Some("Image")), ("other", Some("Other"))] {
        create(&cluster, name, kind).await;
    }
    let notes = Notes::default();
    run(&mut cluster, &[Name::DataSourceValidator], &notes).await;
    validated(&notes, &["empty", "invalid", "populator"]).await;
    cluster.events("other", &[REASON]).await;
    let message = "The datasource for this PVC does not match any registered VolumePopulator";
    assert_eq!(events(&cluster).await, [["volume-data-source-validator", "Warning", "other", message]]);

    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    cluster.claims().patch("image", &PatchParams::default(), &label).await.unwrap();
    validated(&notes, &["empty", "invalid", "populator", "populator"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_validated_until_populators_are_served() {
    let mut cluster = Cluster::prepare().await;
    cluster.class("fast", "Immediate").await;
    create(&cluster, "other", Some("Other")).await;
    let notes = Notes::default();
    run(&mut cluster, &[Name::Binder, Name::DataSourceValidator], &notes).await;
    // The binder begins when all caches of the process are complete, and so would the validator.
    for name in ["first", "second"] {
        cluster.claim(name, "fast").await;
        until(&cluster.claims(), name, is_asked).await;
    }
    assert_eq!(results(&notes), [""; 0]);
    serve_populators(&cluster).await;
    cluster.events("other", &[REASON]).await;
    assert!(results(&notes).contains(&"invalid".to_owned()));
}
