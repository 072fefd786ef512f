//! Server-side apply as kube-rs and kubectl use it: owners, conflicts, removal of fields without owners.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{Fixture, create};

/// Applies data as a given manager.
async fn apply(maps: &Api<ConfigMap>, manager: &str, data: Value, force: bool) -> kube::Result<ConfigMap> {
    let applied = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": data,
    });
    let params = PatchParams { force, ..PatchParams::apply(manager) };
    maps.patch("m", &params, &Patch::Apply(applied)).await
}

fn data(map: &ConfigMap) -> Value {
    serde_json::to_value(&map.data).unwrap()
}

/// The managers with what they own of the data.
fn owners(map: &ConfigMap) -> Vec<(String, String, Value)> {
    let entries = map.meta().managed_fields.iter().flatten();
    entries
        .map(|entry| {
            let fields = serde_json::to_value(&entry.fields_v1).unwrap();
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (text(&entry.manager), text(&entry.operation), fields["f:data"].clone())
        })
        .collect()
}

fn entry(manager: &str, operation: &str, data: Value) -> (String, String, Value) {
    (manager.to_owned(), operation.to_owned(), data)
}

#[tokio::test]
async fn two_managers_share_an_object() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    apply(&maps, "one", json!({ "a": "1" }), false).await.unwrap();
    let both = apply(&maps, "two", json!({ "b": "2" }), false).await.unwrap();
    assert_eq!(data(&both), json!({ "a": "1", "b": "2" }));
    let expected = [entry("one", "Apply", json!({ "f:a": {} })), entry("two", "Apply", json!({ "f:b": {} }))];
    assert_eq!(owners(&both), expected);
    let again = apply(&maps, "two", json!({ "b": "2" }), false).await.unwrap();
    assert_eq!(again.meta().resource_version, both.meta().resource_version, "nothing has changed");
    let without = apply(&maps, "one", json!({}), false).await.unwrap();
    assert_eq!(data(&without), json!({ "b": "2" }), "what its owner no longer wants is gone");
}

#[tokio::test]
async fn a_conflict_names_manager_and_field_and_can_be_forced() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    apply(&maps, "one", json!({ "a": "1" }), false).await.unwrap();
    let refused = apply(&maps, "two", json!({ "a": "2" }), false).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    let causes = status.details.as_ref().unwrap().causes.clone();
    assert_eq!((causes[0].reason.as_str(), causes[0].field.as_str()), ("FieldManagerConflict", ".data.a"));
    let forced = apply(&maps, "two", json!({ "a": "2" }), true).await.unwrap();
    assert_eq!(data(&forced), json!({ "a": "2" }));
    assert_eq!(owners(&forced), [entry("two", "Apply", json!({ "f:a": {} }))]);
}

#[tokio::test]
async fn what_a_named_manager_creates_or_updates_is_his() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let named = |manager: &str| PostParams { field_manager: Some(manager.to_owned()), ..Default::default() };
    let object = json!({ "metadata": { "name": "m" }, "data": { "a": "1" } });
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    let made = maps.create(&named("maker"), &object).await.unwrap();
    assert_eq!(owners(&made), [entry("maker", "Update", json!({ ".": {}, "f:a": {} }))]);
    let mut changed = made.clone();
    changed.data.as_mut().unwrap().insert("b".to_owned(), "2".to_owned());
    maps.replace("m", &named("changer"), &changed).await.unwrap();
    let refused = apply(&maps, "third", json!({ "a": "9", "b": "9" }), false).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes_listed: Vec<_> = causes.map(|cause| (cause.message.as_str(), cause.field.as_str())).collect();
    let [(changer, ".data.b"), (maker, ".data.a")] = causes_listed[..] else { panic!("{causes_listed:?}") };
    assert_eq!(changer, "conflict with \"changer\" using v1");
    assert_eq!(maker, "conflict with \"maker\" using v1");
}

#[tokio::test]
async fn an_untracked_object_belongs_to_the_before_first_apply_manager() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let made = create(&maps, json!({ "metadata": { "name": "m" }, "data": { "a": "1" } })).await;
    assert_eq!(owners(&made), [], "controllers' objects carry no owners");
    let refused = apply(&maps, "one", json!({ "a": "2" }), false).await.unwrap_err().to_string();
    assert!(refused.contains("conflict with \"before-first-apply\""), "{refused}");
    let applied = apply(&maps, "one", json!({ "b": "2" }), false).await.unwrap();
    assert_eq!(data(&applied), json!({ "a": "1", "b": "2" }));
}

#[tokio::test]
async fn an_unknown_field_is_rejected_or_warned_about() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "dtaa": {} });
    let path = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict";
    let (code, answer) = fixture.send("POST", path, "application/json", &object).await;
    assert_eq!(code, 400, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("unknown field \"dtaa\""), "{answer}");
    fixture.accept("POST", &path.replace("Strict", "Warn"), "application/json", &object).await;
    let stored = serde_json::to_value(maps.get("m").await.unwrap()).unwrap();
    assert!(stored.get("dtaa").is_none());
}
