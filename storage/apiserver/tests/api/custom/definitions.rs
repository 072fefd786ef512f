//! The life cycle of definitions: served, rejected, deleted with their objects.

use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, WatchEvent, WatchParams};
use kube::client::Body;
use kube::runtime::wait::{await_condition, conditions::is_crd_established};
use serde_json::{Value, json};

use super::{DEFINITIONS, JSON, MERGE, THINGS, definition, fetch, get, names, served, thing};
use crate::harness::{Fixture, TIMEOUT};

#[tokio::test]
async fn a_definition_serves_its_kind() {
    let fixture = Fixture::start().await;
    let (code, _) = fixture.send("GET", THINGS, JSON, &Value::Null).await;
    assert_eq!(code, 404);
    let created = fixture.accept("POST", DEFINITIONS, JSON, &definition()).await;
    assert_eq!(created["spec"]["names"]["listKind"], "ThingList");
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    let definitions: Api<CustomResourceDefinition> = Api::all(fixture.client.clone());
    let waited = await_condition(definitions, "things.example.com", is_crd_established());
    tokio::time::timeout(TIMEOUT, waited).await.unwrap().unwrap();

    let group = fetch(&fixture, "/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    let resources = fetch(&fixture, "/apis/example.com/v1").await;
    let listed: Vec<_> =
        resources["resources"].as_array().unwrap().iter().map(|r| r["name"].clone()).collect();
    assert_eq!(listed, ["things", "things/status", "things/scale"]);
    assert_eq!(resources["resources"][0]["shortNames"], json!(["th"]));
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, groups, _) = get(&fixture, "/apis", aggregated).await;
    let group =
        groups["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "example.com");
    let group = group.unwrap();
    assert_eq!(
        (&group["versions"][0]["version"], &group["versions"][1]["version"]),
        (&json!("v1"), &json!("v1beta1"))
    );
    assert_eq!(group["versions"][0]["resources"][0]["categories"], json!(["all"]));
    let document = fetch(&fixture, "/openapi/v3/apis/example.com/v1").await;
    let schema = &document["components"]["schemas"]["com.example.v1.Thing"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["minimum"], 1);
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Thing");
    assert!(document["components"]["schemas"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].is_object());
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_and_watches_with_it() {
    let fixture = served().await;
    fixture.accept("POST", THINGS, JSON, &thing("a", json!({ "size": 1 }))).await;
    let mut held = thing("held", json!({ "size": 1 }));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    fixture.accept("POST", THINGS, JSON, &held).await;
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "things");
    let things: Api<DynamicObject> = Api::default_namespaced_with(fixture.client.clone(), &kind);
    let watch = things.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap();
    let path = format!("{DEFINITIONS}/things.example.com");
    let deleted = fixture.accept("DELETE", &path, JSON, &Value::Null).await;
    assert_eq!(deleted["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));

    let waiting = fetch(&fixture, &path).await;
    let conditions = waiting["status"]["conditions"].as_array().unwrap();
    let terminating = conditions.iter().find(|condition| condition["type"] == "Terminating").unwrap();
    assert_eq!(terminating["reason"], "InstanceDeletionInProgress");
    assert_eq!(names(&fetch(&fixture, THINGS).await), ["held"]);
    let (code, answer) = fixture.send("POST", THINGS, JSON, &thing("late", json!({ "size": 1 }))).await;
    assert_eq!(code, 403);
    assert!(answer["message"].as_str().unwrap().contains("definition is terminating"), "{answer}");

    let free = json!({ "metadata": { "finalizers": null } });
    fixture.accept("PATCH", &format!("{THINGS}/held"), MERGE, &free).await;
    let events = tokio::time::timeout(TIMEOUT, watch.try_collect::<Vec<_>>()).await.expect("the watch ends");
    let events: Vec<String> = events
        .unwrap()
        .into_iter()
        .map(|event| match event {
            WatchEvent::Added(object) => format!("ADDED {}", object.metadata.name.unwrap()),
            WatchEvent::Modified(object) => format!("MODIFIED {}", object.metadata.name.unwrap()),
            WatchEvent::Deleted(object) => format!("DELETED {}", object.metadata.name.unwrap()),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(events, ["ADDED a", "ADDED held", "DELETED a", "MODIFIED held", "DELETED held"]);
    for path in [path.as_str(), THINGS, "/apis/example.com", "/openapi/v3/apis/example.com/v1"] {
        let (code, _) = fixture.send("GET", path, JSON, &Value::Null).await;
        assert_eq!(code, 404, "{path}");
    }
    fixture.accept("POST", DEFINITIONS, JSON, &definition()).await;
    assert_eq!(names(&fetch(&fixture, THINGS).await), Vec::<&str>::new(), "it begins empty");
}

#[tokio::test]
async fn a_terminating_namespace_deletes_custom_objects() {
    let fixture = served().await;
    let namespace = json!({ "metadata": { "name": "n" } });
    fixture.accept("POST", "/api/v1/namespaces", JSON, &namespace).await;
    let path = THINGS.replace("default", "n");
    fixture.accept("POST", &path, JSON, &thing("a", json!({ "size": 1 }))).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(fixture.client.clone());
    let mut events =
        namespaces.watch(&WatchParams::default().fields("metadata.name=n"), "0").await.unwrap().boxed();
    fixture.accept("DELETE", "/api/v1/namespaces/n", JSON, &Value::Null).await;
    let removed = async {
        while let Some(event) = events.next().await {
            if matches!(event.unwrap(), WatchEvent::Deleted(_)) {
                return true;
            }
        }
        false
    };
    assert!(tokio::time::timeout(TIMEOUT, removed).await.unwrap());
    assert_eq!(names(&fetch(&fixture, "/apis/example.com/v1/things").await), Vec::<&str>::new());
}

#[tokio::test]
async fn invalid_definitions_are_rejected_and_conflicting_names_not_served() {
    let fixture = served().await;
    let mut conflicting = definition();
    conflicting["metadata"]["name"] = "others.example.com".into();
    conflicting["spec"]["names"] = json!({ "kind": "Thing", "plural": "others", "singular": "other" });
    fixture.accept("POST", DEFINITIONS, JSON, &conflicting).await;
    let stored = fetch(&fixture, &format!("{DEFINITIONS}/others.example.com")).await;
    assert_eq!(stored["status"]["conditions"][0]["reason"], "ListKindConflict");
    let (code, _) = fixture.send("GET", "/apis/example.com/v1/others", JSON, &Value::Null).await;
    assert_eq!(code, 404);
    // The names are free once the other definition is deleted.
    fixture.accept("DELETE", &format!("{DEFINITIONS}/things.example.com"), JSON, &Value::Null).await;
    fetch(&fixture, "/apis/example.com/v1/others").await;
}

#[tokio::test]
async fn objects_that_a_webhook_would_convert_are_served_as_they_are_stored() {
    let fixture = Fixture::start().await;
    let mut definition = definition();
    definition["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
        "clientConfig": { "service": { "namespace": "n", "name": "s" } }, "conversionReviewVersions": ["v1"],
    } });
    let created = fixture.accept("POST", DEFINITIONS, JSON, &definition).await;
    assert_eq!(created["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"], 443);
    let beta = THINGS.replace("/v1/", "/v1beta1/");
    assert_eq!(names(&fetch(&fixture, &beta).await), Vec::<&str>::new(), "nothing to convert");
    fixture.accept("POST", THINGS, JSON, &thing("a", json!({ "size": 1 }))).await;
    assert_eq!(names(&fetch(&fixture, THINGS).await), ["a"]);
    let mut other = thing("b", json!({ "size": 1 }));
    other["apiVersion"] = "example.com/v1beta1".into();
    let (one, none, nothing) = (format!("{beta}/a"), format!("{beta}/none"), Value::Null);
    for (method, path, body, code) in [
        ("GET", &beta, &nothing, 500),
        ("GET", &one, &nothing, 500),
        ("DELETE", &one, &nothing, 500),
        ("POST", &beta, &other, 500),
        ("GET", &none, &nothing, 404),
    ] {
        let (status, answer) = fixture.send(method, path, JSON, body).await;
        assert_eq!(status, code, "{method} {path}: {answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(
            code == 404 || message.ends_with("does not call conversion webhooks: use version v1"),
            "{message}"
        );
    }
    // Objects that are stored in two versions could not be served.
    let path = format!("{DEFINITIONS}/things.example.com");
    let change = json!([
        { "op": "replace", "path": "/spec/versions/0/storage", "value": true },
        { "op": "replace", "path": "/spec/versions/1/storage", "value": false },
    ]);
    let (code, answer) = fixture.send("PATCH", &path, "application/json-patch+json", &change).await;
    assert_eq!(code, 422, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("objects may be stored in version v1, and claimcheck's API server"),
        "{message}"
    );
    fixture.accept("DELETE", &path, JSON, &Value::Null).await;
}

#[tokio::test]
async fn a_rule_that_cannot_be_evaluated_is_a_warning() {
    let fixture = Fixture::start().await;
    let mut definition = definition();
    let path = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/color";
    let color = definition.pointer_mut(path).unwrap();
    color["x-kubernetes-validations"] =
        json!([{ "rule": "self.size() > 2" }, { "rule": "type(ip(self)) == net.IP" }]);
    let warnings = warnings_of(&fixture, &definition).await;
    let at = "properties[spec].properties[color].x-kubernetes-validations[1].rule: ";
    assert!(warnings.len() == 1 && warnings[0].contains(at), "{warnings:?}");
    assert!(warnings[0].contains("does not evaluate"), "{warnings:?}");
}

/// The warnings about a new definition.
async fn warnings_of(fixture: &Fixture, definition: &Value) -> Vec<String> {
    let request = Request::post(DEFINITIONS).header("content-type", JSON);
    let request = request.body(Body::from(definition.to_string().into_bytes())).unwrap();
    let response = fixture.client.send(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 201);
    let warnings = response.headers().get_all("warning").iter();
    warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn unknown_formats_and_sets_of_objects_are_warnings() {
    let fixture = Fixture::start().await;
    let mut definition = definition();
    let path = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";
    let fields = definition.pointer_mut(path).unwrap();
    fields["size"] = json!({ "type": "string", "format": "quantity" });
    fields["when"] = json!({ "type": "string", "format": "date-time" });
    fields["parts"] = json!({ "type": "array", "x-kubernetes-list-type": "set", "items": {
        "type": "object", "x-kubernetes-map-type": "atomic", "properties": { "a": { "type": "string" } } } });
    let warnings = warnings_of(&fixture, &definition).await;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("unrecognized format"), "{warnings:?}");
    assert!(warnings[1].contains("set for items of type"), "{warnings:?}");
}

#[tokio::test]
async fn the_definitions_of_snapshots_exist_and_can_be_created_again() {
    let fixture = Fixture::start().await;
    let list = fetch(&fixture, DEFINITIONS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 6);
    let path = format!("{DEFINITIONS}/volumesnapshots.snapshot.storage.k8s.io");
    let mut definition = fetch(&fixture, &path).await;
    let established = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array().unwrap().clone();
        conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    assert!(established(&definition));
    let metadata = definition["metadata"].clone();
    definition["metadata"] = json!({
        "name": metadata["name"], "annotations": metadata["annotations"], "labels": { "from": "vendor" },
    });
    let again = fixture.accept("POST", DEFINITIONS, JSON, &definition).await;
    assert_eq!(
        (&again["metadata"]["uid"], &again["metadata"]["labels"]["from"]),
        (&metadata["uid"], &json!("vendor"))
    );
    assert!(established(&again));
    let snapshots = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": { "name": "s" },
        "spec": { "source": { "persistentVolumeClaimName": "c" } },
    });
    fixture.accept("POST", snapshots, JSON, &snapshot).await;
}

#[tokio::test]
async fn the_definition_of_an_older_release_replaces_that_of_group_snapshots() {
    let fixture = Fixture::start().await;
    let path = format!("{DEFINITIONS}/volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io");
    let mut definition = fetch(&fixture, &path).await;
    definition["metadata"] = json!({
        "name": definition["metadata"]["name"], "annotations": definition["metadata"]["annotations"],
    });
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.retain(|version| version["name"] == "v1beta1");
    versions[0]["storage"] = true.into();
    let replaced = fixture.accept("POST", DEFINITIONS, JSON, &definition).await;
    assert_eq!(replaced["spec"]["versions"].as_array().unwrap().len(), 1);
    assert_eq!(fetch(&fixture, &path).await["status"]["storedVersions"], json!(["v1beta1"]));
    let classes =
        |version: &str| format!("/apis/groupsnapshot.storage.k8s.io/{version}/volumegroupsnapshotclasses");
    fetch(&fixture, &classes("v1beta1")).await;
    let (code, _) = fixture.send("GET", &classes("v1"), JSON, &Value::Null).await;
    assert_eq!(code, 404);
}
