//! Each rule of the snapshot definitions in `manifests/snapshots/crds`, with an object that satisfies it and one that
//! does not.

use serde_json::{Value, json};

use super::check;
use crate::custom::schema::{Schema, list};

const GROUP_CLASSES: &str =
    include_str!("../../../../../manifests/snapshots/crds/volumegroupsnapshotclasses.yaml");
const GROUP_CONTENTS: &str =
    include_str!("../../../../../manifests/snapshots/crds/volumegroupsnapshotcontents.yaml");
const GROUPS: &str = include_str!("../../../../../manifests/snapshots/crds/volumegroupsnapshots.yaml");
const CLASSES: &str = include_str!("../../../../../manifests/snapshots/crds/volumesnapshotclasses.yaml");
const CONTENTS: &str = include_str!("../../../../../manifests/snapshots/crds/volumesnapshotcontents.yaml");
const SNAPSHOTS: &str = include_str!("../../../../../manifests/snapshots/crds/volumesnapshots.yaml");

/// The definition, the old object (null if the object is new), one that satisfies the rule, one that does not, and
/// the error of that.
type Row = (&'static str, Value, Value, Value, &'static str);

/// A change of a field from `a` to `b`.
fn change(definition: &'static str, of: fn(Value) -> Value, error: &'static str) -> Row {
    (definition, of(json!("a")), of(json!("a")), of(json!("b")), error)
}

fn source(fields: Value) -> Value {
    json!({ "spec": { "source": fields } })
}

fn classes() -> Vec<Row> {
    let parameters = |value: &str| json!({ "parameters": { "key": value } });
    vec![
        change(
            GROUP_CLASSES,
            |value| json!({ "deletionPolicy": value }),
            "deletionPolicy: Invalid value: \"b\": deletionPolicy is immutable once set",
        ),
        change(
            GROUP_CLASSES,
            |value| json!({ "driver": value }),
            "driver: Invalid value: \"b\": driver is immutable once set",
        ),
        (
            GROUP_CLASSES,
            parameters("a"),
            parameters("a"),
            parameters("b"),
            "parameters: Invalid value: parameters are immutable once set",
        ),
    ]
}

fn group_contents() -> Vec<Row> {
    let group = |handle: &str| {
        source(json!({ "groupSnapshotHandles": {
            "volumeGroupSnapshotHandle": handle, "volumeSnapshotHandles": ["s"] } }))
    };
    let volumes = |handle: &str| source(json!({ "volumeHandles": [handle] }));
    let bound = |reference: Value| json!({ "spec": { "volumeGroupSnapshotRef": reference } });
    let named = || bound(json!({ "name": "n", "namespace": "ns" }));
    let with_uid = |uid: &str| bound(json!({ "name": "n", "namespace": "ns", "uid": uid }));
    vec![
        change(
            GROUP_CONTENTS,
            |value| json!({ "spec": { "driver": value } }),
            "spec.driver: Invalid value: \"b\": driver is immutable once set",
        ),
        (
            GROUP_CONTENTS,
            group("a"),
            group("a"),
            group("b"),
            "spec.source.groupSnapshotHandles: Invalid value: groupSnapshotHandles is immutable",
        ),
        (
            GROUP_CONTENTS,
            volumes("a"),
            volumes("a"),
            volumes("b"),
            "spec.source.volumeHandles: Invalid value: volumeHandles is immutable",
        ),
        (
            GROUP_CONTENTS,
            volumes("a"),
            volumes("a"),
            group("a"),
            "spec.source: Invalid value: volumeHandles is required once set",
        ),
        (
            GROUP_CONTENTS,
            group("a"),
            group("a"),
            volumes("a"),
            "spec.source: Invalid value: groupSnapshotHandles is required once set",
        ),
        (
            GROUP_CONTENTS,
            Value::Null,
            volumes("a"),
            source(json!({})),
            "spec.source: Invalid value: exactly one of volumeHandles and groupSnapshotHandles must be set",
        ),
        change(
            GROUP_CONTENTS,
            |value| json!({ "spec": { "volumeGroupSnapshotClassName": value } }),
            "spec.volumeGroupSnapshotClassName: Invalid value: \"b\": volumeGroupSnapshotClassName is immutable once set",
        ),
        (
            GROUP_CONTENTS,
            Value::Null,
            named(),
            bound(json!({ "name": "n" })),
            "spec.volumeGroupSnapshotRef: Invalid value: both volumeGroupSnapshotRef.name and \
             volumeGroupSnapshotRef.namespace must be set",
        ),
        (
            GROUP_CONTENTS,
            named(),
            with_uid("a"),
            bound(json!({ "name": "n", "namespace": "other" })),
            "spec.volumeGroupSnapshotRef: Invalid value: volumeGroupSnapshotRef.name and \
             volumeGroupSnapshotRef.namespace are immutable",
        ),
        (
            GROUP_CONTENTS,
            with_uid("a"),
            with_uid("a"),
            with_uid("b"),
            "spec.volumeGroupSnapshotRef: Invalid value: volumeGroupSnapshotRef.uid is immutable once set",
        ),
        change(
            GROUP_CONTENTS,
            |value| json!({ "status": { "volumeGroupSnapshotHandle": value } }),
            "status.volumeGroupSnapshotHandle: Invalid value: \"b\": volumeGroupSnapshotHandle is immutable once set",
        ),
    ]
}

fn groups() -> Vec<Row> {
    let selector = |label: &str| source(json!({ "selector": { "matchLabels": { "l": label } } }));
    let content = |name: &str| source(json!({ "volumeGroupSnapshotContentName": name }));
    vec![
        (
            GROUPS,
            selector("a"),
            selector("a"),
            selector("b"),
            "spec.source.selector: Invalid value: selector is immutable",
        ),
        (
            GROUPS,
            content("a"),
            content("a"),
            content("b"),
            "spec.source.volumeGroupSnapshotContentName: Invalid value: \"b\": volumeGroupSnapshotContentName is \
             immutable",
        ),
        (
            GROUPS,
            selector("a"),
            selector("a"),
            content("a"),
            "spec.source: Invalid value: selector is required once set",
        ),
        (
            GROUPS,
            content("a"),
            content("a"),
            selector("a"),
            "spec.source: Invalid value: volumeGroupSnapshotContentName is required once set",
        ),
        (
            GROUPS,
            Value::Null,
            selector("a"),
            source(json!({})),
            "spec.source: Invalid value: exactly one of selector and volumeGroupSnapshotContentName must be set",
        ),
        (
            GROUPS,
            Value::Null,
            json!({ "spec": { "volumeGroupSnapshotClassName": "c" } }),
            json!({ "spec": { "volumeGroupSnapshotClassName": "" } }),
            "spec.volumeGroupSnapshotClassName: Invalid value: \"\": volumeGroupSnapshotClassName must not be the \
             empty string when set",
        ),
        change(
            GROUPS,
            |value| json!({ "status": { "boundVolumeGroupSnapshotContentName": value } }),
            "status.boundVolumeGroupSnapshotContentName: Invalid value: \"b\": boundVolumeGroupSnapshotContentName \
             is immutable once set",
        ),
    ]
}

fn contents() -> Vec<Row> {
    let snapshot = |handle: &str| source(json!({ "snapshotHandle": handle }));
    let volume = |handle: &str| source(json!({ "volumeHandle": handle }));
    let bound = |reference: Value| json!({ "spec": { "volumeSnapshotRef": reference } });
    vec![
        (
            CONTENTS,
            snapshot("a"),
            snapshot("a"),
            snapshot("b"),
            "spec.source.snapshotHandle: Invalid value: \"b\": snapshotHandle is immutable",
        ),
        (
            CONTENTS,
            volume("a"),
            volume("a"),
            volume("b"),
            "spec.source.volumeHandle: Invalid value: \"b\": volumeHandle is immutable",
        ),
        (
            CONTENTS,
            volume("a"),
            volume("a"),
            snapshot("a"),
            "spec.source: Invalid value: volumeHandle is required once set",
        ),
        (
            CONTENTS,
            snapshot("a"),
            snapshot("a"),
            volume("a"),
            "spec.source: Invalid value: snapshotHandle is required once set",
        ),
        (
            CONTENTS,
            Value::Null,
            snapshot("a"),
            source(json!({ "snapshotHandle": "a", "volumeHandle": "a" })),
            "spec.source: Invalid value: exactly one of volumeHandle and snapshotHandle must be set",
        ),
        change(
            CONTENTS,
            |value| json!({ "spec": { "sourceVolumeMode": value } }),
            "spec.sourceVolumeMode: Invalid value: \"b\": sourceVolumeMode is immutable",
        ),
        (
            CONTENTS,
            Value::Null,
            bound(json!({ "name": "n", "namespace": "ns" })),
            bound(json!({ "namespace": "ns" })),
            "spec.volumeSnapshotRef: Invalid value: both spec.volumeSnapshotRef.name and \
             spec.volumeSnapshotRef.namespace must be set",
        ),
        (
            CONTENTS,
            json!({ "spec": { "sourceVolumeMode": "Block" } }),
            json!({ "spec": { "sourceVolumeMode": "Block" } }),
            json!({ "spec": {} }),
            "spec: Invalid value: sourceVolumeMode is required once set",
        ),
    ]
}

fn snapshots() -> Vec<Row> {
    let claim = |name: &str| source(json!({ "persistentVolumeClaimName": name }));
    let content = |name: &str| source(json!({ "volumeSnapshotContentName": name }));
    vec![
        (
            SNAPSHOTS,
            claim("a"),
            claim("a"),
            claim("b"),
            "spec.source.persistentVolumeClaimName: Invalid value: \"b\": persistentVolumeClaimName is immutable",
        ),
        (
            SNAPSHOTS,
            content("a"),
            content("a"),
            content("b"),
            "spec.source.volumeSnapshotContentName: Invalid value: \"b\": volumeSnapshotContentName is immutable",
        ),
        (
            SNAPSHOTS,
            claim("a"),
            claim("a"),
            content("a"),
            "spec.source: Invalid value: persistentVolumeClaimName is required once set",
        ),
        (
            SNAPSHOTS,
            content("a"),
            content("a"),
            claim("a"),
            "spec.source: Invalid value: volumeSnapshotContentName is required once set",
        ),
        (
            SNAPSHOTS,
            Value::Null,
            claim("a"),
            source(json!({})),
            "spec.source: Invalid value: exactly one of volumeSnapshotContentName and persistentVolumeClaimName must \
             be set",
        ),
        (
            SNAPSHOTS,
            Value::Null,
            json!({ "spec": { "volumeSnapshotClassName": "c" } }),
            json!({ "spec": { "volumeSnapshotClassName": "" } }),
            "spec.volumeSnapshotClassName: Invalid value: \"\": volumeSnapshotClassName must not be the empty string \
             when set",
        ),
    ]
}

fn table() -> Vec<Row> {
    [classes(), group_contents(), groups(), contents(), snapshots()].concat()
}

/// The schemas of a definition, as they are declared.
fn schemas(definition: &str) -> Vec<Value> {
    let definition: Value = serde_saphyr::from_str(definition).unwrap();
    let versions = list(&definition["spec"]["versions"]).iter();
    versions.map(|version| version["schema"]["openAPIV3Schema"].clone()).collect()
}

#[test]
fn each_rule_accepts_and_rejects() {
    for (definition, old, valid, invalid, error) in table() {
        for document in schemas(definition) {
            let schema = Schema::read(&document);
            let texts = |object: &Value| -> Vec<String> {
                let old = Some(&old).filter(|old| !old.is_null());
                check(object, old, &schema).iter().map(ToString::to_string).collect()
            };
            assert_eq!(texts(&valid), Vec::<String>::new(), "{error}: {valid}");
            assert_eq!(texts(&invalid), [error], "{invalid}");
        }
    }
}

/// The messages of the rules of a schema, and of its parts.
fn messages(document: &Value, found: &mut Vec<String>) {
    for rule in list(&document["x-kubernetes-validations"]) {
        found.push(rule["message"].as_str().unwrap().to_owned());
    }
    for below in document["properties"].as_object().into_iter().flatten().map(|(_, below)| below) {
        messages(below, found);
    }
    for below in ["items", "additionalProperties"].iter().filter_map(|name| document.get(name)) {
        messages(below, found);
    }
}

#[test]
fn the_table_has_each_rule() {
    let table = table();
    let mut total = 0;
    for definition in [GROUP_CLASSES, GROUP_CONTENTS, GROUPS, CLASSES, CONTENTS, SNAPSHOTS] {
        let rows: Vec<&Row> = table.iter().filter(|row| row.0 == definition).collect();
        let documents = schemas(definition);
        assert!(documents.iter().all(|document| *document == documents[0]), "all versions have one schema");
        let mut found = Vec::new();
        messages(&documents[0], &mut found);
        total += found.len();
        for message in found {
            assert!(rows.iter().any(|row| row.4.ends_with(&message)), "no row for: {message}");
        }
    }
    assert_eq!(total, table.len(), "a row for each rule");
}
