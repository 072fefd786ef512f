//! Server-side apply, by one manager and by several.

use serde_json::{Value, json};

use super::script::{APPLY, Encoding, Kind, MERGE, Scenario, Script};

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    vec![apply(kind), apply_conflicts(kind)]
}

/// Server-side apply by one manager.
fn apply(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "apply");
    let object = script.object("a");
    script.patch("a", "", APPLY, &object).titled("no manager");
    script.patch("a", "fieldManager=m&dryRun=All", APPLY, &object);
    script.get("a", "");
    script.patch("a", "fieldManager=m", APPLY, &object).titled("creates").saved("first");
    script.patch("a", "fieldManager=m", APPLY, &object).titled("no change");
    let changed = script.with("a", &kind.sample.change);
    script.patch("a", "fieldManager=m", APPLY, &changed);
    script.patch("a", "fieldManager=m", APPLY, &object).titled("back");
    let labelled =
        script.with("a", &json!({ "metadata": { "labels": { "k": "v" }, "annotations": { "a": "b" } } }));
    script.patch("a", "fieldManager=m", APPLY, &labelled);
    script.patch("a", "fieldManager=m", APPLY, &object).titled("removes");
    script.get("a", "");
    let with = |patch: Value| {
        let mut object = object.clone();
        json_patch::merge(&mut object, &patch);
        object
    };
    for patch in [
        json!({ "metadata": { "managedFields": [{}] } }),
        json!({ "metadata": { "resourceVersion": "{version:first}" } }),
        json!({ "metadata": { "resourceVersion": "{version:a}" } }),
        json!({ "metadata": { "uid": "other" } }),
        json!({ "metadata": { "uid": "{uid:a}" } }),
        json!({ "metadata": { "name": "other" } }),
        json!({ "metadata": { "name": null } }),
        json!({ "metadata": { "namespace": "other" } }),
        json!({ "metadata": { "labels": { "bad key!": "v" } } }),
        json!({ "metadata": { "labels": { "k": 1 } } }),
        json!({ "metadata": { "finalizers": ["example.com/a", "example.com/b"] } }),
        json!({ "metadata": { "finalizers": ["example.com/b"] } }),
        json!({ "metadata": { "finalizers": ["example.com/b", "example.com/b"] } }),
        json!({ "metadata": { "finalizers": [] } }),
        json!({ "metadata": null }),
        json!({ "kind": "Nope" }),
        json!({ "kind": null }),
        json!({ "apiVersion": null }),
        json!({ "apiVersion": "nope/v1" }),
        json!({ "nope": 1 }),
        json!({ "status": { "phase": "Nope" } }),
    ] {
        script.patch("a", "fieldManager=m", APPLY, &with(patch.clone())).titled(&patch.to_string());
    }
    for patch in
        kind.sample.wrong.iter().chain(&kind.sample.immutable).chain(kind.sample.invalid.iter().take(4))
    {
        let applied = script.with("a", patch);
        script.patch("a", "fieldManager=m&dryRun=All", APPLY, &applied).titled(&patch.to_string());
    }
    for text in ["", "{", "[]", "null", "text", "a: [", "a: 1\na: 2\n"] {
        script.patch("a", "fieldManager=m", APPLY, &Value::Null).titled(text).raw(APPLY, text);
    }
    let yaml = script.patch("a", "fieldManager=yaml&force=true", APPLY, &object).titled("as YAML");
    yaml.encoded(Encoding::Yaml).content_type(APPLY);
    script.patch("a", "fieldManager=m", APPLY, &object).content_type("application/apply-patch+cbor");
    script.patch("a", &format!("fieldManager={}", "m".repeat(129)), APPLY, &object);
    script.get("a", "");
    script.finish()
}

/// Server-side apply by several managers.
fn apply_conflicts(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "conflicts");
    let labels = |value: &str| json!({ "metadata": { "labels": { "k": value } } });
    let (one, other) = (script.with("a", &labels("1")), script.with("a", &labels("2")));
    script.patch("a", "fieldManager=one", APPLY, &one);
    script.patch("a", "fieldManager=two", APPLY, &one).titled("shared");
    script.patch("a", "fieldManager=two", APPLY, &other).titled("a conflict");
    script.patch("a", "fieldManager=two&force=false", APPLY, &other).titled("a conflict");
    script.patch("a", "fieldManager=two&force=true", APPLY, &other);
    script.patch("a", "fieldManager=two&force=nope", APPLY, &other);
    script.patch("a", "fieldManager=one", APPLY, &one).titled("a conflict");
    let bare = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": script.name("a") },
    });
    script.patch("a", "fieldManager=one", APPLY, &bare).titled("gives up all fields");
    script.get("a", "");
    script.patch("a", "fieldManager=three", MERGE, &kind.sample.change);
    let changed = script.with("a", &kind.sample.change);
    script.patch("a", "fieldManager=two", APPLY, &changed).titled("the fields of an update");
    script.patch("a", "fieldManager=two&force=true", APPLY, &changed);
    script.patch("a", "fieldManager=two", APPLY, &bare).titled("gives up all fields");
    script.update("a", "fieldManager=four", &labels("4"));
    script.patch("a", "fieldManager=one", APPLY, &one).titled("a conflict");
    script.delete("a", "", &Value::Null);
    script.patch("a", "fieldManager=one", APPLY, &one).titled("creates again");
    script.finish()
}
