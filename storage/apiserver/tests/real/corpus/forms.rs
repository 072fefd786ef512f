//! Content types of requests and responses: JSON, YAML, protobuf, tables, metadata only.

use serde_json::{Value, json};

use super::script::{Encoding, Kind, PROTOBUF, Scenario, Script};

/// What clients accept.
const ACCEPT: [&str; 14] = [
    "",
    "*/*",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/cbor",
    "text/html",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=Nope;v=v1;g=meta.k8s.io",
];
/// What unusual clients accept; it is sent for few kinds, since negotiation depends on the kind no further.
const ACCEPT_MORE: &[&str] = &[
    "application/*",
    "application/json",
    "application/json;charset=utf-8",
    "application/json;pretty=1",
    "application/json;q=0.5, application/vnd.kubernetes.protobuf",
    "application/cbor,application/json",
    "text/html,*/*;q=0.1",
    "text/plain",
    "nope",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=Table",
    "application/json;as=Table;v=v2;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=nope",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
    "application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=Nope;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
    "application/json;stream=watch",
    "application/json;stream=nope",
];
const MORE_FOR: [&str; 3] = ["configmaps", "pods", "persistentvolumeclaims"];
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    if kind.sample.asynchronous || !kind.is_stored() {
        return vec![requests(kind)];
    }
    vec![accepted(kind), tables(kind), requests(kind), protobuf(kind)]
}

/// All forms of an object, a list, a failure and a deletion.
fn accepted(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "forms");
    for short in ["a", "b"] {
        script.create(short, "");
    }
    let more = if MORE_FOR.contains(&kind.qualified().as_str()) { ACCEPT_MORE } else { &[] };
    for accept in ACCEPT.iter().chain(more) {
        script.get("a", "").accept(accept);
        script.list("").accept(accept);
        script.get("missing", "").accept(accept);
    }
    for accept in [TABLE, METADATA, "application/yaml", PROTOBUF, "text/html"] {
        script.create("new", "dryRun=All").accept(accept);
        script.update("a", "dryRun=All", &kind.sample.change).accept(accept);
        script.patch("a", "dryRun=All", super::script::MERGE, &kind.sample.change).accept(accept);
        script.delete("a", "dryRun=All", &Value::Null).accept(accept);
        let selector = script.selector();
        script.delete_collection(&format!("{selector}&dryRun=All"), &Value::Null).accept(accept);
    }
    script.finish()
}

fn tables(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "tables");
    for short in ["a", "b"] {
        script.create(short, "");
    }
    if kind.has("status") && kind.sample.status.is_object() {
        let path = format!("{}/status", script.path("a"));
        script.patch("a", "", super::script::MERGE, &kind.sample.status).path = path;
    }
    for include in ["None", "Metadata", "Object", "Nope", ""] {
        script.list(&format!("includeObject={include}")).accept(TABLE);
        script.get("a", &format!("includeObject={include}")).accept(TABLE);
    }
    script.list("includeObject=None").accept("application/json");
    script.list("limit=1").accept(TABLE);
    script.list("labelSelector=suite%3Dnope").accept(TABLE).titled("no object");
    script.list("labelSelector=suite%3Dnope").titled("no object");
    script.list("labelSelector=suite%3Dnope").accept(PROTOBUF).titled("no object");
    script.list("labelSelector=suite%3Dnope").accept(METADATA).titled("no object");
    script.delete("a", "", &Value::Null).accept(TABLE);
    script.delete("b", "", &Value::Null).accept(METADATA);
    script.finish()
}

/// Encodings and types of bodies.
fn requests(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "types");
    for content_type in [
        "application/json; charset=utf-8",
        "application/json;charset=UTF-16",
        "application/json;",
        "APPLICATION/JSON",
        "text/json",
        "text/plain",
        "text/yaml",
        "application/cbor",
        "application/x-www-form-urlencoded",
        "application/merge-patch+json",
        "application/vnd.kubernetes.protobuf",
        "*/*",
        "nope",
        "",
        ";",
    ] {
        let object = script.object("x");
        script.post("dryRun=All", object).content_type(content_type);
    }
    let object = script.object("x");
    script.post("dryRun=All", object.clone()).encoded(Encoding::Yaml);
    script.post("dryRun=All", object.clone()).encoded(Encoding::Yaml).accept("application/yaml");
    script.post("dryRun=All", object.clone()).titled("no type").content_type = None;
    script.post("dryRun=All", object).encoded(Encoding::Protobuf);
    script.finish()
}

/// Bodies and responses in protobuf.
fn protobuf(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "protobuf");
    let object = script.object("a");
    script.post("", object).encoded(Encoding::Protobuf).accept(PROTOBUF);
    script.get("a", "");
    script.get("a", "").accept(PROTOBUF);
    script.update("a", "", &json!({})).encoded(Encoding::Protobuf).titled("no change");
    script.update("a", "", &kind.sample.change).encoded(Encoding::Protobuf).accept(PROTOBUF);
    script.get("a", "");
    if kind.has("status") && kind.sample.status.is_object() {
        let path = format!("{}/status", script.path("a"));
        let step = script.update("a", "", &kind.sample.status).encoded(Encoding::Protobuf).accept(PROTOBUF);
        step.path = path;
        script.get("a", "").accept(PROTOBUF);
    }
    for (number, patch) in kind.sample.invalid.iter().enumerate() {
        let body = script.with(&format!("x{number}"), patch);
        let step = script.post("dryRun=All", body).encoded(Encoding::Protobuf).accept(PROTOBUF);
        step.titled(&patch.to_string());
    }
    script.list("").accept(PROTOBUF);
    let another = script.with("b", &json!({ "kind": "ConfigMap", "apiVersion": "v1" }));
    script.post("dryRun=All", another).titled("another kind").encoded(Encoding::Protobuf);
    let bodies: [(&str, &[u8]); 5] = [
        ("no magic", b"\x08\x01"),
        ("nothing", b""),
        ("the magic only", b"k8s\0"),
        ("an unknown kind", b"k8s\0\x0a\x0a\x0a\x02v1\x12\x04Nope"),
        ("truncated", b"k8s\0\x0a\x7f\x0a\x02v1"),
    ];
    for (title, body) in bodies {
        script.post("dryRun=All", Value::Null).titled(title).raw(PROTOBUF, body);
    }
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": "other" }, "dryRun": ["All"],
    });
    script.delete("a", "", &options).encoded(Encoding::Protobuf).accept(PROTOBUF);
    let options =
        json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": "{uid:a}" } });
    script.delete("a", "", &options).encoded(Encoding::Protobuf).accept(PROTOBUF);
    script.get("a", "").accept(PROTOBUF);
    script.finish()
}
