//! Updates of objects and of their subresources.

use serde_json::json;

use super::script::{APPLY, Body, Encoding, JSON, Kind, MERGE, PROTOBUF, STRATEGIC, Scenario, Script};

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    let mut all = vec![update(kind), immutable(kind), subresources(kind)];
    if !kind.sample.freeze.is_null() {
        all.push(freeze(kind));
    }
    if kind.has("status") {
        all.push(status(kind));
    }
    if kind.has("scale") {
        all.push(scale(kind));
    }
    if kind.plural == "persistentvolumeclaims" {
        all.push(attributes_class(kind));
    }
    all
}

/// Changes of the VolumeAttributesClass of a claim, before and after it is bound, and one is applied.
fn attributes_class(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "attributes-class");
    script.create("a", "");
    let status = format!("{}/status", script.path("a"));
    for (title, step) in [
        ("unbound", None),
        ("bound", Some(json!({ "phase": "Bound" }))),
        ("applied", Some(json!({ "currentVolumeAttributesClassName": "gold" }))),
    ] {
        if let Some(step) = step {
            script.patch("a", "", MERGE, &json!({ "status": step })).path.clone_from(&status);
        }
        for class in [json!("bad"), json!(null), json!(""), json!(null), json!("gold")] {
            let patch = json!({ "spec": { "volumeAttributesClassName": class } });
            script.patch("a", "", MERGE, &patch).titled(&format!("{title}: {class}"));
            script.update("a", "dryRun=All", &patch).titled(&format!("{title}: {class}"));
        }
    }
    script.finish()
}

fn update(kind: &Kind) -> Scenario {
    let change = &kind.sample.change;
    let mut script = Script::new(kind, "update");
    script.create("a", "").saved("first");
    script.update("a", "", &json!({})).titled("no change");
    script.update("a", "dryRun=All", change);
    script.get("a", "");
    script.update("a", "", change);
    script.update("a", "", change).titled("no change");
    script.update("a", "fieldManager=m", &json!({ "metadata": { "labels": { "k": "v" } } }));
    script.update("a", "", &json!({ "metadata": { "annotations": { "k": "v" }, "labels": { "k": null } } }));
    script.get("a", "");
    let stale = json!({ "metadata": { "resourceVersion": "{version:first}", "labels": { "stale": "yes" } } });
    script.update("a", "", &stale).titled("a stale version");
    script.update("a", "", &json!({ "metadata": { "resourceVersion": null } })).titled("no version");
    script.update("a", "", &json!({ "metadata": { "resourceVersion": "0" } })).titled("version 0");
    script.update("a", "", &json!({ "metadata": { "resourceVersion": "nope" } })).titled("no number");
    script.update("a", "", &json!({ "metadata": { "resourceVersion": "-1" } })).titled("a negative version");
    script.update("a", "", &json!({ "metadata": { "uid": "other" } })).titled("another uid");
    script.update("a", "", &json!({ "metadata": { "uid": null } })).titled("no uid");
    script.update("a", "", &json!({ "metadata": { "name": "other" } })).titled("another name");
    script.update("a", "", &json!({ "metadata": { "name": null } })).titled("no name");
    script.update("a", "", &json!({ "metadata": { "namespace": "other" } })).titled("another namespace");
    script.update("a", "", &json!({ "metadata": { "namespace": null } })).titled("no namespace");
    script.update("a", "", &json!({ "metadata": { "creationTimestamp": null } })).titled("no creation");
    let time = json!({ "metadata": { "creationTimestamp": "2020-01-01T00:00:00Z" } });
    script.update("a", "", &time).titled("another creation");
    let time = json!({ "metadata": { "deletionTimestamp": "2020-01-01T00:00:00Z" } });
    script.update("a", "", &time).titled("a deletion");
    script.update("a", "", &json!({ "metadata": { "generation": 99 } })).titled("another generation");
    script.update("a", "", &json!({ "metadata": { "generateName": "g-" } })).titled("a prefix");
    script.update("a", "", &json!({ "metadata": { "managedFields": null } })).titled("no managed fields");
    script.update("a", "", &json!({ "metadata": { "managedFields": [{}] } })).titled("reset managed fields");
    script.update("a", "", &json!({ "metadata": { "labels": { "bad key!": "v" } } })).titled("a bad label");
    script.update("a", "", &json!({ "metadata": { "finalizers": ["nope"] } })).titled("a bad finalizer");
    script.update("a", "", &json!({ "kind": "Nope" })).titled("another kind");
    script.update("a", "", &json!({ "apiVersion": "nope/v1" })).titled("another version");
    script.update("a", "dryRun=Nope", &json!({}));
    script.update("a", "", &json!({ "status": { "nope": 1, "phase": "Nope" } })).titled("with a status");
    script.update("a", "", &json!({ "metadata": { "labels": { "y": "aml" } } })).encoded(Encoding::Yaml);
    let missing = script.object("missing");
    let path = script.path("missing");
    let created = script.update("missing", "", &json!({})).titled("a missing object");
    (created.body, created.path) = (Body::Object(missing, Encoding::Json), path);
    script.get("missing", "");
    let mut with_uid = script.object("gone");
    with_uid["metadata"]["uid"] = "u".into();
    with_uid["metadata"]["resourceVersion"] = "1".into();
    let created = script.update("gone", "", &json!({})).titled("a missing object with uid and version");
    created.body = Body::Object(with_uid, Encoding::Json);
    script.update("a", "", &json!({})).titled("malformed").raw(JSON, "{\"a\":");
    script.update("a", "", &json!({})).titled("empty").raw(JSON, "");
    script.update("a", "", &json!({})).titled("a patch").content_type(MERGE);
    script.finish()
}

/// Changes of immutable fields, which validation rejects.
fn immutable(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "immutable");
    script.create("a", "");
    for patch in &kind.sample.immutable {
        script.update("a", "dryRun=All", patch).titled(&patch.to_string());
        script.patch("a", "dryRun=All", MERGE, patch).titled(&patch.to_string());
    }
    for patch in &kind.sample.invalid {
        script.patch("a", "dryRun=All", MERGE, patch).titled(&patch.to_string());
    }
    for patch in &kind.sample.wrong {
        script.patch("a", "dryRun=All", MERGE, patch).titled(&patch.to_string());
        script.patch("a", "dryRun=All", STRATEGIC, patch).titled(&patch.to_string());
        script.update("a", "dryRun=All", patch).titled(&patch.to_string());
    }
    let mut all = json!({});
    kind.sample.immutable.iter().take(2).for_each(|patch| json_patch::merge(&mut all, patch));
    script.update("a", "dryRun=All", &all).titled("the first two together");
    script.get("a", "");
    script.finish()
}

fn freeze(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "freeze");
    script.create("a", "");
    script.patch("a", "", MERGE, &kind.sample.freeze);
    script.patch("a", "", MERGE, &kind.sample.change);
    script.update("a", "", &kind.sample.change);
    let thaw = script.with("a", &json!({}));
    script.update("a", "", &json!({})).titled("thaw").body = Body::Object(thaw, Encoding::Json);
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "k": "v" } } }));
    script.finish()
}

fn status(kind: &Kind) -> Scenario {
    let status = &kind.sample.status;
    let mut script = Script::new(kind, "status");
    script.create("a", "").saved("first");
    script.below("a", "status", "get", "GET");
    script.below("missing", "status", "get", "GET");
    let path = format!("{}/status", script.path("a"));
    script.patch("a", "", MERGE, status).path.clone_from(&path);
    script.get("a", "");
    script.patch("a", "", MERGE, status).titled("no change").path.clone_from(&path);
    script.patch("a", "", STRATEGIC, status).path.clone_from(&path);
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "k": "v" } } })).path.clone_from(&path);
    script.patch("a", "", MERGE, &kind.sample.change).titled("a change of the spec").path.clone_from(&path);
    script.patch("a", "", MERGE, &json!({ "status": null })).path.clone_from(&path);
    script.patch("a", "", MERGE, &json!({ "status": "text" })).path.clone_from(&path);
    script.patch("a", "", MERGE, &json!({ "status": { "nope": 1 } })).path.clone_from(&path);
    script.patch("a", "", MERGE, &json!({ "status": { "conditions": {} } })).path.clone_from(&path);
    script.update("a", "", status).path.clone_from(&path);
    script.update("a", "", &kind.sample.change).titled("a change of the spec").path.clone_from(&path);
    let stale = json!({ "metadata": { "resourceVersion": "{version:first}" } });
    script.update("a", "", &stale).titled("stale").path.clone_from(&path);
    script.update("a", "", &json!({ "status": null })).titled("no status").path.clone_from(&path);
    let mut applied = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": script.name("a") },
    });
    json_patch::merge(&mut applied, &script.filled(status, "a"));
    let query = format!("{path}?fieldManager=s&force=true");
    script.patch("a", "", APPLY, &applied).path.clone_from(&query);
    script.get("a", "");
    script.update("a", "", &json!({ "status": null })).titled("the status is not part of the object");
    let created = script.with("b", status);
    script.post("", created).titled("created with a status");
    for (verb, method) in [("create", "POST"), ("delete", "DELETE")] {
        script.below("a", "status", verb, method);
    }
    script.list("").accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    script.finish()
}

fn scale(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "scale");
    script.create("a", "").saved("first");
    let path = format!("{}/scale", script.path("a"));
    script.below("a", "scale", "get", "GET").saved("a");
    script.below("a", "scale", "get", "GET").accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    script.below("a", "scale", "get", "GET").accept(PROTOBUF);
    script.below("missing", "scale", "get", "GET");
    let of = |replicas: i64| json!({ "spec": { "replicas": replicas } });
    script.update("a", "", &of(5)).path.clone_from(&path);
    script.update("a", "", &of(5)).titled("no change").path.clone_from(&path);
    script.update("a", "", &of(4)).encoded(Encoding::Protobuf).path.clone_from(&path);
    for content_type in [MERGE, STRATEGIC] {
        script.patch("a", "", content_type, &of(6)).path.clone_from(&path);
        script.patch("a", "", content_type, &of(-1)).path.clone_from(&path);
        script.patch("a", "", content_type, &json!({ "spec": { "replicas": "x" } })).path.clone_from(&path);
    }
    script.update("a", "", &of(-1)).path.clone_from(&path);
    script.update("a", "", &json!({ "metadata": { "name": "other" } })).path.clone_from(&path);
    script.update("a", "", &json!({ "metadata": { "uid": "other" } })).path.clone_from(&path);
    script.update("a", "", &json!({ "metadata": { "resourceVersion": "1" } })).path.clone_from(&path);
    script.update("a", "", &json!({ "metadata": { "resourceVersion": null } })).path.clone_from(&path);
    script.update("a", "", &json!({ "spec": null })).path.clone_from(&path);
    script.patch("a", "", MERGE, &of(2)).path = format!("{path}?dryRun=All");
    script.patch("a", "", MERGE, &of(3)).path = format!("{path}?fieldManager=m");
    for (verb, method) in [("create", "POST"), ("delete", "DELETE")] {
        script.below("a", "scale", verb, method);
    }
    script.get("a", "");
    script.finish()
}

/// Subresources that do not exist, and methods that are not allowed.
fn subresources(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "below");
    script.create("a", "");
    for subresource in
        ["nope", "status", "scale", "log", "token", "finalize", "binding", "eviction", "status/x"]
    {
        // Bindings and evictions are in the scenarios of pods.
        let methods: &[(&'static str, &'static str)] = match subresource {
            _ if kind.has(subresource) => continue,
            "nope" => &[
                ("get", "GET"),
                ("update", "PUT"),
                ("patch", "PATCH"),
                ("create", "POST"),
                ("delete", "DELETE"),
            ],
            _ => &[("get", "GET"), ("create", "POST")],
        };
        for &(verb, method) in methods {
            let step = script.below("a", subresource, verb, method);
            if verb != "get" && verb != "delete" {
                step.raw(if verb == "patch" { MERGE } else { JSON }, "{}");
            }
        }
    }
    let object = script.object("a");
    for (verb, method) in [("update", "PUT"), ("patch", "PATCH")] {
        let step = script.post("", object.clone()).titled("of the collection");
        (step.verb, step.method) = (verb, method);
    }
    let path = script.path("a");
    script.post("", object).titled("of the object").path = path;
    script.finish()
}
