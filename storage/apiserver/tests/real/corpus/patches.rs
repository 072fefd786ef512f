//! Patches of the three types that kube-apiserver does not merge by managers.

use serde_json::{Value, json};

use super::script::{JSON, JSON_PATCH, Kind, MERGE, STRATEGIC, Scenario, Script, YAML};

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    vec![merge(kind), json_patch(kind), strategic(kind)]
}

fn merge(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "merge");
    script.create("a", "").saved("first");
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "k": "v" } } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "k": "v" } } })).titled("no change");
    script.patch("a", "", MERGE, &json!({})).titled("nothing");
    script.patch("a", "dryRun=All", MERGE, &kind.sample.change);
    script.patch("a", "fieldManager=m", MERGE, &kind.sample.change);
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "k": null } } })).titled("removes");
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": null, "annotations": {} } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "suite": "merge" } } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "finalizers": ["example.com/f"] } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "finalizers": null } }));
    script
        .patch("a", "", MERGE, &json!({ "metadata": { "resourceVersion": "{version:first}" } }))
        .titled("stale");
    script.patch(
        "a",
        "",
        MERGE,
        &json!({ "metadata": { "resourceVersion": "{version:a}", "labels": { "l": "m" } } }),
    );
    script.patch("a", "", MERGE, &json!({ "metadata": { "resourceVersion": "nope" } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "uid": "other" } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "uid": "{uid:a}" } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "name": "other" } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "namespace": "other" } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "generation": 99 } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "creationTimestamp": "2020-01-01T00:00:00Z" } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "bad key!": "v" } } }));
    script.patch("a", "", MERGE, &json!({ "metadata": null }));
    script.patch("a", "", MERGE, &json!({ "metadata": "text" }));
    script.patch("a", "", MERGE, &json!({ "kind": "Nope" }));
    script.patch("a", "", MERGE, &json!({ "apiVersion": "nope/v1" }));
    script.patch("a", "", MERGE, &json!({ "kind": null, "apiVersion": null }));
    script.patch("a", "", MERGE, &json!({ "status": { "phase": "Nope" } }));
    script.patch("missing", "", MERGE, &json!({ "metadata": { "labels": { "k": "v" } } }));
    script.patch("a", "dryRun=Nope", MERGE, &json!({}));
    script.patch("a", "force=true", MERGE, &json!({}));
    for text in ["[]", "null", "\"text\"", "1"] {
        script.patch("a", "", MERGE, &Value::Null).titled(text).raw(MERGE, text);
    }
    for media_type in [JSON, YAML, "text/plain", "application/nope-patch+json", "nope"] {
        script.patch("a", "", MERGE, &json!({})).content_type(media_type);
    }
    script.get("a", "");
    script.finish()
}

fn json_patch(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "json");
    script.create("a", "").saved("first");
    for operations in [
        json!([{ "op": "add", "path": "/metadata/labels/k", "value": "v" }]),
        json!([{ "op": "add", "path": "/metadata/labels/a~1b", "value": "v" }]),
        json!([{ "op": "replace", "path": "/metadata/labels/k", "value": "w" }]),
        json!([{ "op": "test", "path": "/metadata/labels/k", "value": "w" }]),
        json!([{ "op": "test", "path": "/metadata/labels/k", "value": "nope" }]),
        json!([{ "op": "test", "path": "/metadata/labels/nope", "value": "w" }]),
        json!([{ "op": "test", "path": "/metadata/nope", "value": null }]),
        json!([{ "op": "copy", "from": "/metadata/labels/k", "path": "/metadata/labels/l" }]),
        json!([{ "op": "move", "from": "/metadata/labels/l", "path": "/metadata/labels/m" }]),
        json!([{ "op": "move", "from": "/metadata/labels/nope", "path": "/metadata/labels/m" }]),
        json!([{ "op": "copy", "from": "/metadata/labels/nope", "path": "/metadata/labels/m" }]),
        json!([{ "op": "remove", "path": "/metadata/labels/k" }]),
        json!([{ "op": "remove", "path": "/metadata/labels/nope" }]),
        json!([{ "op": "replace", "path": "/metadata/labels/nope", "value": "v" }]),
        json!([{ "op": "add", "path": "/metadata/nope/deeper", "value": "v" }]),
        json!([{ "op": "add", "path": "/metadata/annotations", "value": { "a": "b" } }]),
        json!([{ "op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"] }]),
        json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b" }]),
        json!([{ "op": "add", "path": "/metadata/finalizers/0", "value": "example.com/c" }]),
        json!([{ "op": "add", "path": "/metadata/finalizers/9", "value": "example.com/d" }]),
        json!([{ "op": "remove", "path": "/metadata/finalizers/-1" }]),
        json!([{ "op": "remove", "path": "/metadata/finalizers/9" }]),
        json!([{ "op": "remove", "path": "/metadata/finalizers" }]),
        json!([{ "op": "nope", "path": "/metadata/labels/k" }]),
        json!([{ "op": "add", "path": "metadata/labels/k", "value": "v" }]),
        json!([{ "op": "add", "path": "/metadata/labels/n" }]),
        json!([{ "op": "add", "value": "v" }]),
        json!([{ "path": "/metadata/labels/k", "value": "v" }]),
        json!([{ "op": "replace", "path": "", "value": {} }]),
        json!([{ "op": "remove", "path": "" }]),
        json!([{ "op": "replace", "path": "/metadata/name", "value": "other" }]),
        json!([{ "op": "replace", "path": "/metadata/uid", "value": "other" }]),
        json!([{ "op": "replace", "path": "/metadata/resourceVersion", "value": "{version:first}" }]),
        json!([{ "op": "test", "path": "/metadata/resourceVersion", "value": "{version:a}" }]),
        json!([{ "op": "replace", "path": "/kind", "value": "Nope" }]),
        json!([{ "op": "add", "path": "/metadata/labels/k", "value": 1 }]),
        json!([
            { "op": "add", "path": "/metadata/labels/p", "value": "q" },
            { "op": "test", "path": "/metadata/labels/p", "value": "nope" },
        ]),
        json!([]),
        json!({}),
        json!([1]),
        json!("text"),
    ] {
        let title = operations.to_string();
        script.patch("a", "", JSON_PATCH, &operations).titled(&title);
    }
    script.patch("a", "", JSON_PATCH, &Value::Null).titled("null").raw(JSON_PATCH, "null");
    if kind.plural == "configmaps" {
        let operation = json!({ "op": "test", "path": "/kind", "value": kind.kind });
        script.patch("a", "", JSON_PATCH, &vec![operation; 10_001].into()).titled("10001 operations");
    }
    script.patch("missing", "", JSON_PATCH, &json!([]));
    script.get("a", "");
    script.finish()
}

fn strategic(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "strategic");
    script.create("a", "").saved("first");
    for patch in [
        json!({ "metadata": { "labels": { "k": "v" } } }),
        json!({ "metadata": { "labels": { "k": null } } }),
        json!({ "metadata": { "finalizers": ["example.com/a"] } }),
        json!({ "metadata": { "finalizers": ["example.com/b"] } }),
        json!({ "metadata": { "$setElementOrder/finalizers": ["example.com/b", "example.com/a"] } }),
        json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/a"] } }),
        json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/b", "example.com/z"] } }),
        json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u" }] } }),
        json!({ "metadata": { "ownerReferences": [{ "uid": "u", "name": "q" }] } }),
        json!({ "metadata": { "ownerReferences": [{ "uid": "u", "$patch": "delete" }] } }),
        json!({ "metadata": { "ownerReferences": [{ "name": "no key" }] } }),
        json!({ "metadata": { "annotations": { "a": "b" } } }),
        json!({ "metadata": { "annotations": { "$patch": "replace", "c": "d" } } }),
        json!({ "metadata": { "annotations": { "$patch": "delete" } } }),
        json!({ "metadata": { "annotations": { "$patch": "nope" } } }),
        json!({ "metadata": { "resourceVersion": "{version:first}" } }),
        json!({ "metadata": { "resourceVersion": "{version:a}" } }),
        json!({ "metadata": { "name": "other" } }),
        json!({ "kind": "Nope" }),
        json!({ "nope": 1 }),
        json!({ "metadata": "text" }),
        json!({ "metadata": { "labels": [] } }),
        json!({}),
    ]
    .iter()
    .chain(&kind.sample.strategic)
    .chain([&kind.sample.change])
    .chain(&kind.sample.immutable)
    {
        script.patch("a", "", STRATEGIC, patch).titled(&patch.to_string());
    }
    for text in ["[]", "null"] {
        script.patch("a", "", STRATEGIC, &Value::Null).titled(text).raw(STRATEGIC, text);
    }
    script.patch("missing", "", STRATEGIC, &json!({}));
    script.get("a", "");
    script.finish()
}
