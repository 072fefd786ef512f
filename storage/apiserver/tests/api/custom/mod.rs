//! CustomResourceDefinitions and the objects of their kinds, as kubectl and operators use them.

mod definitions;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::harness::Fixture;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// A definition with two versions, subresources, columns and a schema.
fn definition() -> Value {
    let schema = json!({ "type": "object", "required": ["spec"], "properties": {
        "spec": { "type": "object", "required": ["size"], "properties": {
            "size": { "type": "integer", "minimum": 1 },
            "color": { "type": "string", "enum": ["red", "blue"], "default": "red" },
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string" }, "value": { "type": "string" } } },
            },
            "fixed": { "type": "string", "x-kubernetes-validations": [
                { "rule": "self == oldSelf", "message": "fixed is immutable" }] },
        } },
        "status": { "type": "object", "properties": {
            "ready": { "type": "integer" }, "selector": { "type": "string" } } },
    } });
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema },
            "subresources": { "status": {}, "scale": {
                "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready",
                "labelSelectorPath": ".status.selector" } },
            "selectableFields": [{ "jsonPath": ".spec.color" }],
            "additionalPrinterColumns": [
                { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                { "name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1 },
            ],
        })
    };
    let mut old = version("v1beta1", false);
    old["deprecated"] = true.into();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Thing", "plural": "things", "shortNames": ["th"], "categories": ["all"] },
            "versions": [old, version("v1", true)],
        },
    })
}

fn thing(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": name }, "spec": spec })
}

async fn served() -> Fixture {
    let fixture = Fixture::start().await;
    fixture.accept("POST", DEFINITIONS, JSON, &definition()).await;
    fixture
}

/// The body and the warnings of a request with an `Accept`.
async fn get(fixture: &Fixture, path: &str, accept: &str) -> (u16, Value, Vec<String>) {
    let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
    let response = fixture.client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings)
}

async fn fetch(fixture: &Fixture, path: &str) -> Value {
    let (code, body, _) = get(fixture, path, JSON).await;
    assert_eq!(code, 200, "{path}: {body}");
    body
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn objects_are_validated_pruned_and_completed() {
    let fixture = served().await;
    let mut object = thing("a", json!({ "size": 2, "unknown": 1 }));
    object["status"] = json!({ "ready": 1 });
    let created = fixture.accept("POST", THINGS, JSON, &object).await;
    assert_eq!(created["spec"], json!({ "size": 2, "color": "red" }));
    assert_eq!((&created["status"], &created["metadata"]["generation"]), (&Value::Null, &json!(1)));
    let strict = format!("{THINGS}?fieldValidation=Strict");
    let (code, answer) = fixture.send("POST", &strict, JSON, &object).await;
    assert_eq!(code, 400);
    assert!(answer["message"].as_str().unwrap().contains("unknown field \"spec.unknown\""), "{answer}");
    let bad = thing("b", json!({ "size": "big", "color": "green" }));
    let (code, answer) = fixture.send("POST", THINGS, JSON, &bad).await;
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")));
    assert_eq!(
        answer["message"],
        "Thing.example.com \"b\" is invalid: [spec.size: Invalid value: \"string\": spec.size in body must be of type \
         integer: \"string\", spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\", \
         .spec.size: Invalid value: 0: .spec.size accessor error: big is of the type string, expected int64, \
         <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
         correct the existing errors to complete validation]"
    );
    let (code, answer) = fixture.send("POST", THINGS, JSON, &thing("c", json!({}))).await;
    assert_eq!(code, 422);
    assert!(answer["message"].as_str().unwrap().contains("[spec.size: Required value, <nil>: "), "{answer}");
}

#[tokio::test]
async fn patches_apply_and_strategic_ones_are_not_supported() {
    let fixture = served().await;
    fixture.accept("POST", THINGS, JSON, &thing("a", json!({ "size": 1, "fixed": "x" }))).await;
    let path = format!("{THINGS}/a");
    let patched =
        fixture.accept("PATCH", &path, MERGE, &json!({ "spec": { "size": 3, "color": null } })).await;
    assert_eq!(patched["spec"], json!({ "size": 3, "fixed": "x", "color": "red" }), "the default returns");
    assert_eq!(patched["metadata"]["generation"], 2);
    let replace = json!([{ "op": "replace", "path": "/spec/color", "value": "blue" }]);
    let patched = fixture.accept("PATCH", &path, "application/json-patch+json", &replace).await;
    assert_eq!(patched["spec"]["color"], "blue");
    let (code, answer) =
        fixture.send("PATCH", &path, "application/strategic-merge-patch+json", &json!({})).await;
    assert_eq!((code, &answer["reason"]), (415, &json!("UnsupportedMediaType")));
    let (code, answer) = fixture.send("PATCH", &path, MERGE, &json!({ "spec": { "fixed": "y" } })).await;
    assert_eq!(code, 422);
    assert!(answer["message"].as_str().unwrap().contains("fixed is immutable"), "{answer}");
    let labelled =
        fixture.accept("PATCH", &path, MERGE, &json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(labelled["metadata"]["generation"], 3, "metadata is no change of the object");
}

#[tokio::test]
async fn status_and_scale_are_written_through_their_paths() {
    let fixture = served().await;
    fixture.accept("POST", THINGS, JSON, &thing("a", json!({ "size": 1 }))).await;
    let status =
        json!({ "metadata": { "labels": { "l": "x" } }, "spec": { "size": 9 }, "status": { "ready": 1 } });
    let written = fixture.accept("PATCH", &format!("{THINGS}/a/status"), MERGE, &status).await;
    assert_eq!((&written["spec"]["size"], &written["status"]), (&json!(1), &json!({ "ready": 1 })));
    assert_eq!(
        (&written["metadata"]["labels"], &written["metadata"]["generation"]),
        (&Value::Null, &json!(1))
    );
    let bad = json!({ "status": { "ready": "yes" } });
    let (code, answer) = fixture.send("PATCH", &format!("{THINGS}/a/status"), MERGE, &bad).await;
    assert_eq!(code, 422);
    assert!(
        answer["message"].as_str().unwrap().contains("ready in body must be of type integer"),
        "{answer}"
    );
    let ignored =
        fixture.accept("PATCH", &format!("{THINGS}/a"), MERGE, &json!({ "status": { "ready": 5 } })).await;
    assert_eq!(ignored["status"]["ready"], 1);

    let scale = format!("{THINGS}/a/scale");
    let mut shown = fetch(&fixture, &scale).await;
    assert_eq!((&shown["kind"], &shown["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    assert_eq!(shown["status"]["replicas"], 1);
    shown["spec"]["replicas"] = 4.into();
    fixture.accept("PUT", &scale, JSON, &shown).await;
    shown["spec"]["replicas"] = 5.into();
    let (code, _) = fixture.send("PUT", &scale, JSON, &shown).await;
    assert_eq!(code, 409, "the version is outdated");
    let patched = fixture.accept("PATCH", &scale, MERGE, &json!({ "spec": { "replicas": 6 } })).await;
    assert_eq!(patched["spec"]["replicas"], 6);
    let (code, _) = fixture.send("PATCH", &scale, MERGE, &json!({ "spec": { "replicas": -1 } })).await;
    assert_eq!(code, 422);
    let object = fetch(&fixture, &format!("{THINGS}/a")).await;
    assert_eq!((&object["spec"]["size"], &object["metadata"]["generation"]), (&json!(6), &json!(3)));
}

#[tokio::test]
async fn lists_have_tables_and_selectors() {
    let fixture = served().await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        fixture.accept("POST", THINGS, JSON, &thing(name, json!({ "size": 2, "color": color }))).await;
    }
    let list = fetch(&fixture, "/apis/example.com/v1/things").await;
    assert_eq!((&list["kind"], names(&list)), (&json!("ThingList"), vec!["a", "b"]));
    let blue = fetch(&fixture, &format!("{THINGS}?fieldSelector=spec.color%3Dblue")).await;
    assert_eq!(names(&blue), ["b"]);
    let (code, _) =
        fixture.send("GET", &format!("{THINGS}?fieldSelector=spec.size%3D2"), JSON, &Value::Null).await;
    assert_eq!(code, 400, "the field is not selectable");
    let (_, table, _) = get(&fixture, THINGS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let headings: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].clone()).collect();
    assert_eq!(headings, ["Name", "Size", "Color"]);
    assert_eq!(table["rows"][1]["cells"], json!(["b", 2, "blue"]));
}

#[tokio::test]
async fn versions_share_objects_and_a_deprecated_one_warns() {
    let fixture = served().await;
    fixture.accept("POST", THINGS, JSON, &thing("a", json!({ "size": 2 }))).await;
    let path = "/apis/example.com/v1beta1/namespaces/default/things/a";
    let (code, object, warnings) = get(&fixture, path, JSON).await;
    assert_eq!((code, &object["apiVersion"]), (200, &json!("example.com/v1beta1")));
    assert_eq!(warnings, ["299 - \"example.com/v1beta1 Thing is deprecated; use example.com/v1 Thing\""]);
    let (_, _, warnings) = get(&fixture, &format!("{THINGS}/a"), JSON).await;
    assert_eq!(warnings, Vec::<String>::new());
}

#[tokio::test]
async fn objects_are_read_by_the_current_schema_of_their_version() {
    let fixture = served().await;
    fixture.accept("POST", THINGS, JSON, &thing("a", json!({ "size": 1, "fixed": "x" }))).await;
    let definition = format!("{DEFINITIONS}/things.example.com");
    let schema = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";
    let change = json!([
        { "op": "remove", "path": format!("{schema}/fixed") },
        { "op": "add", "path": format!("{schema}/fresh"), "value": { "type": "string", "default": "new" } },
        { "op": "replace", "path": "/spec/versions/1/additionalPrinterColumns/1/jsonPath", "value": ".spec.fresh" },
    ]);
    fixture.accept("PATCH", &definition, "application/json-patch+json", &change).await;
    let path = format!("{THINGS}/a");
    let read = json!({ "size": 1, "color": "red", "fresh": "new" });
    assert_eq!(fetch(&fixture, &path).await["spec"], read);
    assert_eq!(fetch(&fixture, THINGS).await["items"][0]["spec"], read);
    let table = get(&fixture, THINGS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.1;
    assert_eq!(table["rows"][0]["cells"][2], "new");
    // The other version has the schema as it was.
    let beta = fetch(&fixture, "/apis/example.com/v1beta1/namespaces/default/things/a").await;
    assert_eq!(beta["spec"], json!({ "size": 1, "color": "red", "fixed": "x" }));
    // A patch applies to what is read, so that it removes what the schema does not have.
    let patched = fixture.accept("PATCH", &path, MERGE, &json!({ "spec": { "color": "blue" } })).await;
    assert_eq!(patched["spec"], json!({ "size": 1, "color": "blue", "fresh": "new" }));
    let beta = fetch(&fixture, "/apis/example.com/v1beta1/namespaces/default/things/a").await;
    assert_eq!(beta["spec"], json!({ "size": 1, "color": "blue" }));
}

#[tokio::test]
async fn server_side_apply_merges_by_the_schema() {
    let fixture = served().await;
    let apply = |part: &str, manager: &str| {
        let object = thing("a", json!({ "size": 1, "parts": [{ "name": part, "value": manager }] }));
        (format!("{THINGS}/a?fieldManager={manager}"), object)
    };
    let media = "application/apply-patch+yaml";
    for (part, manager) in [("x", "one"), ("y", "two")] {
        let (path, object) = apply(part, manager);
        fixture.accept("PATCH", &path, media, &object).await;
    }
    let merged = fetch(&fixture, &format!("{THINGS}/a")).await;
    assert_eq!(
        merged["spec"]["parts"],
        json!([{ "name": "x", "value": "one" }, { "name": "y", "value": "two" }])
    );
    let (_, mut object) = apply("x", "two");
    object["spec"]["parts"][0]["value"] = "other".into();
    let (code, answer) = fixture.send("PATCH", &format!("{THINGS}/a?fieldManager=two"), media, &object).await;
    assert_eq!(code, 409);
    assert!(answer["message"].as_str().unwrap().contains(".spec.parts[name=\"x\"].value"), "{answer}");
}
