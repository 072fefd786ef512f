//! Deletions: options, preconditions, finalizers, collections.

use serde_json::{Value, json};

use super::script::{Body, JSON, Kind, MERGE, Scenario, Script, YAML};

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    vec![delete(kind), rejected(kind), propagation(kind), finalizers(kind), collection(kind)]
}

fn options(more: Value) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    json_patch::merge(&mut options, &more);
    options
}

fn delete(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "delete");
    for short in ["a", "b", "c", "d", "e", "f"] {
        script.create(short, "");
    }
    script.delete("a", "dryRun=All", &Value::Null);
    script.delete("a", "", &options(json!({ "dryRun": ["All"] })));
    script.get("a", "");
    script.delete("a", "", &Value::Null);
    script.get("a", "");
    script.delete("a", "", &Value::Null).titled("again");
    script.create("a", "").titled("again");
    script.delete("b", "", &options(json!({ "preconditions": { "uid": "{uid:b}" } })));
    script.delete("c", "", &options(json!({ "preconditions": { "resourceVersion": "{version:c}" } })));
    script.delete("d", "gracePeriodSeconds=0", &Value::Null);
    script.delete("e", "", &options(json!({ "gracePeriodSeconds": 5 })));
    script.delete("f", "", &json!({}));
    script.list("");
    script.finish()
}

/// Deletions that are rejected.
fn rejected(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "rejected");
    script.create("a", "");
    for more in [
        json!({ "preconditions": { "uid": "other" } }),
        json!({ "preconditions": { "resourceVersion": "1" } }),
        json!({ "preconditions": { "uid": "{uid:a}", "resourceVersion": "1" } }),
        json!({ "preconditions": [] }),
        json!({ "propagationPolicy": "Nope" }),
        json!({ "propagationPolicy": 1 }),
        json!({ "propagationPolicy": "Orphan", "orphanDependents": true }),
        json!({ "gracePeriodSeconds": "1" }),
        json!({ "dryRun": ["Nope"] }),
        json!({ "dryRun": "All" }),
        json!({ "kind": "Nope" }),
        json!({ "kind": "Pod" }),
        json!({ "apiVersion": "nope/v1" }),
        json!({ "ignoreStoreReadErrorWithClusterBreakingPotential": true, "gracePeriodSeconds": 1 }),
    ] {
        script.delete("a", "", &options(more.clone())).titled(&more.to_string());
    }
    for query in [
        "propagationPolicy=Nope",
        "dryRun=Nope",
        "gracePeriodSeconds=nope",
        "orphanDependents=nope",
        "propagationPolicy=Orphan&orphanDependents=true",
    ] {
        script.delete("a", query, &Value::Null);
    }
    for text in ["[]", "null", "1"] {
        script.delete("a", "dryRun=All", &Value::Null).titled(text).raw(JSON, text);
    }
    script.delete("a", "dryRun=All", &Value::Null).titled("YAML").raw(YAML, "gracePeriodSeconds: 3\n");
    script.delete("a", "dryRun=All", &Value::Null).titled("another type").raw("text/plain", "{}");
    script.delete("a", "dryRun=All", &json!({ "gracePeriodSeconds": 7 })).titled("without a kind");
    script.delete("a", "gracePeriodSeconds=-1&dryRun=All", &Value::Null);
    script.get("a", "");
    script.finish()
}

fn propagation(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "propagation");
    for (short, query, body) in [
        ("background", "propagationPolicy=Background", Value::Null),
        ("foreground", "propagationPolicy=Foreground", Value::Null),
        ("orphan", "propagationPolicy=Orphan", Value::Null),
        ("dependents", "orphanDependents=true", Value::Null),
        ("no-dependents", "orphanDependents=false", Value::Null),
        ("body", "", options(json!({ "propagationPolicy": "Background" }))),
        ("both", "propagationPolicy=Background", options(json!({ "propagationPolicy": "Foreground" }))),
    ] {
        script.create(short, "");
        script.delete(short, query, &body);
    }
    script.finish()
}

fn finalizers(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "finalizers");
    let body = script.with("a", &json!({ "metadata": { "finalizers": ["example.com/a", "example.com/b"] } }));
    script.post("", body).saved("a");
    script.delete("a", "dryRun=All", &Value::Null);
    script.delete("a", "", &Value::Null).saved("a");
    script.get("a", "");
    script.delete("a", "", &Value::Null).titled("again");
    script.delete("a", "gracePeriodSeconds=0", &Value::Null).titled("again");
    script.create("a", "").titled("it is being deleted");
    let add = json!({ "metadata": { "finalizers": ["example.com/a", "example.com/b", "example.com/c"] } });
    script.patch("a", "", MERGE, &add).titled("adds a finalizer");
    script.patch("a", "", MERGE, &json!({ "metadata": { "deletionTimestamp": null } })).titled("undeletes");
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "k": "v" } } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "finalizers": ["example.com/b"] } }));
    script.patch("a", "dryRun=All", MERGE, &json!({ "metadata": { "finalizers": null } }));
    script.update("a", "", &json!({ "metadata": { "finalizers": null } })).titled("removes the last one");
    script.get("a", "");
    script.list("");
    script.finish()
}

fn collection(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "collection");
    for short in ["a", "b", "c", "d"] {
        let body = script.with(short, &json!({ "metadata": { "labels": { "each": short } } }));
        script.post("", body).saved(short);
    }
    let selector = script.selector();
    script.delete_collection(&format!("{selector}&dryRun=All"), &Value::Null);
    script.list("");
    script.delete_collection(&format!("{selector}%2Ceach%3Da"), &Value::Null);
    script.list("");
    let name = format!("{selector}&fieldSelector=metadata.name%3D{}", script.name("b"));
    script.delete_collection(&name, &options(json!({ "propagationPolicy": "Background" })));
    script.delete_collection(&format!("{selector}%2Ceach%3Dz"), &Value::Null).titled("no object");
    for query in [
        "labelSelector=a%3D%3D%3Db",
        "fieldSelector=nope%3D1",
        "fieldSelector=nope",
        "propagationPolicy=Nope",
    ] {
        script.delete_collection(&format!("{query}&dryRun=All"), &Value::Null);
    }
    script.delete_collection(&selector, &options(json!({ "preconditions": { "uid": "other" } })));
    let malformed = script.delete_collection(&format!("{selector}&dryRun=All"), &Value::Null);
    (malformed.body, malformed.content_type) = (Body::Raw(b"{".to_vec()), Some(JSON));
    script.list("");
    script.delete_collection(&format!("{selector}&limit=1"), &Value::Null);
    script.delete_collection(&selector, &Value::Null);
    script.list("");
    script.finish()
}
