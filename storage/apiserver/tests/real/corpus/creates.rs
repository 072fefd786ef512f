//! Creations: options, names, metadata, invalid objects, and bodies that are no objects.

use serde_json::{Value, json};

use super::script::{Body, Encoding, JSON, Kind, Scenario, Script, YAML};

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    let mut all = vec![names(kind), metadata(kind), invalid(kind), wrong(kind), bodies(kind)];
    if !kind.sample.asynchronous {
        all.extend([create(kind), strict(kind)]);
    }
    all
}

/// Options and repetition.
fn create(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "create");
    script.create("a", "");
    script.create("a", "").titled("it exists");
    script.create("a", "dryRun=All").titled("it exists");
    script.get("a", "");
    script.get("a", "pretty=true");
    script.get("missing", "");
    script.create("b", "dryRun=All");
    script.get("b", "");
    script.create("b", "dryRun=Nope");
    script.create("b", "dryRun=All&dryRun=All");
    script.create("b", "dryRun=");
    script.create("c", "fieldManager=m");
    script.create("d", &format!("dryRun=All&fieldManager={}", "m".repeat(129)));
    script.create("d", "dryRun=All&fieldManager=a%07b");
    script.create("d", "nope=1");
    script.list("");
    script.finish()
}

fn names(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "names");
    let long = [253, 254, 64, 63].map(|length| "a".repeat(length));
    let names = ["Bad_Name", "-a", "a-", "a.", "a/b", "a b", "a%b", ".", "..", "ü", "a.b", "a_b", "", "1"];
    // Their suffix would be missing.
    let names = if kind.sample.suffix.is_empty() { &names[..] } else { &["nope", ""] };
    let all = names.iter().copied().chain(long.iter().map(String::as_str));
    for name in all {
        let body = script.with("x", &json!({ "metadata": { "name": name } }));
        script.post("dryRun=All", body).titled(&format!("name {name}"));
    }
    for prefix in ["g-", "Bad_", "", &"g".repeat(60), &"g".repeat(300)] {
        let body = script.with("x", &json!({ "metadata": { "name": null, "generateName": prefix } }));
        script.post("dryRun=All", body).titled(&format!("generateName {prefix}"));
    }
    if !kind.sample.asynchronous && kind.is_stored() {
        let body = script.with("x", &json!({ "metadata": { "name": null, "generateName": "names-g-" } }));
        script.post("", body).saved("g");
        let path = format!("{}/{{name:g}}", script.collection());
        script.get("g", "").path = path;
        script.list("");
        let body = script.with("x", &json!({ "metadata": { "generateName": "names-h-" } }));
        script.post("", body).titled("name and generateName");
    }
    for namespace in ["other", "Bad_", ""] {
        let body = script.with("x", &json!({ "metadata": { "namespace": namespace } }));
        script.post("dryRun=All", body).titled(&format!("namespace {namespace}"));
    }
    if kind.namespaced {
        let object = script.object("x");
        let missing = script.collection().replace(&script.namespace(), "missing");
        script.post("", object.clone()).titled("a missing namespace").path = missing;
        script.post("", object).titled("no namespace in the path").path = script_everywhere(kind);
    }
    script.finish()
}

fn script_everywhere(kind: &Kind) -> String {
    Script::new(kind, "").everywhere()
}

fn metadata(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "metadata");
    let owner = |more: Value| {
        let mut owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u" });
        json_patch::merge(&mut owner, &more);
        owner
    };
    let entry = json!([{
        "manager": "m", "operation": "Update", "apiVersion": kind.api_version(), "fieldsType": "FieldsV1",
        "fieldsV1": { "f:metadata": { "f:labels": { "f:suite": {} } } }, "time": "2020-01-01T00:00:00Z",
    }]);
    let patches = [
        json!({ "labels": { "bad key!": "v" } }),
        json!({ "labels": { "k": "bad value!" } }),
        json!({ "labels": { "k": "v".repeat(64) } }),
        json!({ "labels": { "k/l/m": "v" } }),
        json!({ "labels": { "Example.com/k": "" } }),
        json!({ "annotations": { "bad key!": "v" } }),
        json!({ "annotations": { "EXAMPLE.com/k": "any value!\n" } }),
        json!({ "annotations": { "k": "v".repeat(256 * 1024) } }),
        json!({ "finalizers": ["example.com/f"] }),
        json!({ "finalizers": ["nope"] }),
        json!({ "finalizers": ["bad finalizer!"] }),
        json!({ "finalizers": ["orphan", "foregroundDeletion"] }),
        json!({ "finalizers": ["example.com/f", "example.com/f"] }),
        json!({ "ownerReferences": [owner(json!({}))] }),
        json!({ "ownerReferences": [owner(json!({})), owner(json!({}))] }),
        json!({ "ownerReferences": [owner(json!({ "uid": "" }))] }),
        json!({ "ownerReferences": [owner(json!({ "name": "" }))] }),
        json!({ "ownerReferences": [owner(json!({ "kind": "" }))] }),
        json!({ "ownerReferences": [owner(json!({ "apiVersion": "" }))] }),
        json!({ "ownerReferences": [owner(json!({ "apiVersion": "a/b/c" }))] }),
        json!({ "ownerReferences": [owner(json!({ "kind": "Event" }))] }),
        json!({ "ownerReferences": [
            owner(json!({ "controller": true })), owner(json!({ "controller": true, "uid": "w" })),
        ] }),
        json!({ "uid": "chosen" }),
        json!({ "resourceVersion": "1" }),
        json!({ "resourceVersion": "nope" }),
        json!({ "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5 }),
        json!({ "creationTimestamp": "2020-01-01T00:00:00Z" }),
        json!({ "creationTimestamp": "yesterday" }),
        json!({ "generation": 7 }),
        json!({ "generation": -1 }),
        json!({ "selfLink": "/nope" }),
        json!({ "managedFields": entry }),
        json!({ "managedFields": [{ "manager": "m", "operation": "Nope" }] }),
        json!({ "managedFields": [{}] }),
        json!({ "labels": null, "annotations": {} }),
        json!({ "labels": ["a"] }),
        json!({ "labels": { "a": 1 } }),
        json!({ "annotations": { "a": true } }),
        json!({ "finalizers": "f" }),
        json!({ "ownerReferences": {} }),
        json!({ "name": 1 }),
    ];
    for patch in patches {
        let body = script.with("x", &json!({ "metadata": patch }));
        let text = patch.to_string();
        script.post("dryRun=All", body).titled(&text.chars().take(80).collect::<String>());
    }
    for metadata in [json!(null), json!([]), json!("text"), json!(1)] {
        let mut body = script.object("x");
        body["metadata"] = metadata.clone();
        script.post("dryRun=All", body).titled(&format!("metadata {metadata}"));
    }
    script.finish()
}

/// Objects that validation rejects.
fn invalid(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "invalid");
    for (number, patch) in kind.sample.invalid.iter().enumerate() {
        let body = script.with(&format!("x{number}"), patch);
        script.post("dryRun=All", body).titled(&patch.to_string());
    }
    // Several faults at once.
    let mut all = script.object("x");
    for patch in kind.sample.invalid.iter().take(3) {
        json_patch::merge(&mut all, patch);
    }
    script.post("dryRun=All", all).titled("the first three together");
    let bare = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": script.name("bare") },
    });
    script.post("dryRun=All", bare.clone()).titled("without a spec");
    for empty in [json!({}), json!(null), json!([]), json!("text")] {
        let mut body = bare.clone();
        body["spec"] = empty.clone();
        script.post("dryRun=All", body).titled(&format!("spec {empty}"));
    }
    script.finish()
}

/// Values of wrong types, in two encodings.
fn wrong(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "wrong");
    for (number, patch) in kind.sample.wrong.iter().enumerate() {
        let body = script.with(&format!("x{number}"), patch);
        script.post("dryRun=All", body.clone()).titled(&patch.to_string());
        script.post("dryRun=All", body).titled(&patch.to_string()).encoded(Encoding::Yaml);
    }
    script.finish()
}

/// Bodies of other kinds, and texts that are no objects.
fn bodies(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "bodies");
    let object = script.object("x");
    for patch in [
        json!({ "kind": "Nope" }),
        json!({ "kind": "Status", "apiVersion": "v1" }),
        json!({ "kind": "Pod", "apiVersion": "v1", "spec": null }),
        json!({ "apiVersion": "nope/v1" }),
        json!({ "apiVersion": "v1beta9" }),
        json!({ "apiVersion": "a/b/c" }),
        json!({ "kind": null }),
        json!({ "apiVersion": null }),
        json!({ "kind": null, "apiVersion": null }),
        json!({ "kind": 1 }),
        json!({ "apiVersion": [] }),
        json!({ "kind": format!("{}List", kind.kind), "items": [] }),
    ] {
        let mut body = object.clone();
        json_patch::merge(&mut body, &patch);
        script.post("dryRun=All", body).titled(&patch.to_string());
    }
    let text = object.to_string();
    let texts = [
        String::new(),
        "{}".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "\"text\"".to_owned(),
        "1".to_owned(),
        text.replace("\"name\"", "\"Name\""),
    ];
    for body in texts {
        let title: String = body.chars().take(40).collect();
        script.post("dryRun=All", Value::Null).titled(&title).raw(JSON, body);
    }
    let invalid: Vec<u8> =
        text.replace("bodies-x", "\u{1}").bytes().map(|b| if b == 1 { 0xff } else { b }).collect();
    script.post("dryRun=All", Value::Null).titled("no UTF-8").raw(JSON, invalid);
    for body in ["", "a: [", "a: b: c", "- a", "---\n---\n", "\ta: b", "a: *nope", "a: &x [*x]"] {
        script.post("dryRun=All", Value::Null).titled(body).raw(YAML, body);
    }
    let no_body = script.post("dryRun=All", Value::Null).titled("no body and no type");
    (no_body.body, no_body.content_type) = (Body::Empty, None);
    script.finish()
}

/// fieldValidation, for unknown and duplicate fields.
fn strict(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "strict");
    script.create("a", "");
    for validation in [
        "",
        "fieldValidation=Strict",
        "fieldValidation=Warn",
        "fieldValidation=Ignore",
        "fieldValidation=Nope",
    ] {
        let query = format!("dryRun=All&{validation}");
        let query = query.trim_end_matches('&');
        let unknown = script.with("x", &json!({ "nope": 1, "metadata": { "nope": { "deeper": 1 } } }));
        script.post(query, unknown.clone()).titled("unknown fields");
        script.post(query, unknown).titled("unknown fields").encoded(Encoding::Yaml);
        let twice = script.object("x").to_string();
        let twice = format!("{{\"kind\":\"{}\",{}", kind.kind, &twice[1..]);
        let twice = twice.replace("\"labels\":", "\"labels\":{\"a\":\"b\"},\"labels\":");
        script.post(query, Value::Null).titled("duplicate fields").raw(JSON, twice);
        let case = script.object("x").to_string().replace("\"labels\":", "\"Labels\":");
        script.post(query, Value::Null).titled("a field in another case").raw(JSON, case);
        script.update("a", query, &json!({ "nope": 1 }));
        script.patch("a", query, super::script::MERGE, &json!({ "nope": 1, "metadata": { "nope": 1 } }));
        script.patch("a", query, super::script::STRATEGIC, &json!({ "nope": 1 }));
        let add = json!([{ "op": "add", "path": "/nope", "value": 1 }]);
        script.patch("a", query, super::script::JSON_PATCH, &add);
        let applied = script.with("a", &json!({ "nope": 1 }));
        script.patch("a", &format!("{query}&fieldManager=m&force=true"), super::script::APPLY, &applied);
    }
    script.finish()
}
