//! The record of a scenario in a form that is equal on both sides if the controllers do the same.
//!
//! Uids are replaced by names, times by a mark. The versions of an object become one history per field, so that it
//! does not matter which fields were written together; the writes are kept for the reader of a report.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    kind::CAPACITY,
    name::scenario_of,
    record::{Call, Record, Store},
    reference::Key,
};

/// Lists of which each item is a field, with the key of their items.
const KEYED: [(&str, &str); 3] =
    [("conditions", "type"), ("volumesAttached", "name"), ("ownerReferences", "name")];
/// Lists of plain values of which each is a field.
const SETS: [&str; 2] = ["finalizers", "volumesInUse"];
/// Fields of metadata that are the API server's, or that only the name depends on.
const SERVER: [&str; 9] = [
    "generateName",
    "uid",
    "resourceVersion",
    "managedFields",
    "generation",
    "creationTimestamp",
    "name",
    "namespace",
    "selfLink",
];
/// Who made a volume: a time and a random number with stock controllers.
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";
/// Of this many calls or more, the number is a matter of time.
const MANY: usize = 5;
/// Calls that are repeated all the time: neither their number nor their order is compared, only with what they are made.
const POLLED: &str = "GetCapacity";

type Fields = BTreeMap<String, String>;

/// What happened in a scenario, in a form that is equal on both sides.
#[derive(Debug, Default)]
pub struct Normal {
    /// From object and field to the values that it had.
    pub fields: BTreeMap<(String, String), Vec<String>>,
    /// The fields that each write changed, by object.
    pub writes: BTreeMap<String, Vec<Vec<String>>>,
    /// From event to the components that emitted it.
    pub events: BTreeMap<String, BTreeSet<String>>,
    /// From volume (and node) and method to calls, without repetitions.
    pub calls: BTreeMap<(String, String), Vec<String>>,
    /// From volume and method to the number of calls, at most 5 (`MANY`).
    pub counts: BTreeMap<(String, String), usize>,
    /// The methods that were called for a volume, in order, without repetitions and cycles.
    pub order: BTreeMap<String, Vec<String>>,
    /// The last call that created or deleted a volume, attachment, snapshot or group.
    pub effects: BTreeMap<String, String>,
}

/// What happened in a scenario.
pub fn normal(record: &Record, scenario: &str) -> Normal {
    record.read(|store| of(store, scenario))
}

fn of(store: &Store, scenario: &str) -> Normal {
    let names = Names::of(store, scenario);
    let mut normal = Normal::default();
    let mut current: BTreeMap<String, Fields> = BTreeMap::new();
    for version in store.versions.iter().filter(|version| store.owner(&version.key) == Some(scenario)) {
        if version.key.0 == "Event" {
            if let Some(event) = &version.object {
                let (text, by) = event_text(event);
                normal.events.entry(names.replace(&text)).or_default().insert(by);
            }
            continue;
        }
        let name = names.replace(&title(&version.key));
        let mut fields = Fields::new();
        match &version.object {
            Some(object) => flatten(object, "", &names, &mut fields),
            None => drop(fields.insert("(object)".into(), "deleted".into())),
        }
        if version.object.is_some() {
            fields.insert("(object)".into(), "exists".into());
        }
        let before = current.insert(name.clone(), fields.clone()).unwrap_or_default();
        let deleted = version.object.is_none();
        let changes = changes(&before, &fields, deleted);
        for (field, value) in &changes {
            normal.fields.entry((name.clone(), field.clone())).or_default().push(value.clone());
        }
        if !changes.is_empty() {
            let write = changes.into_iter().map(|(field, value)| format!("{field}={value}")).collect();
            normal.writes.entry(name).or_default().push(write);
        }
    }
    for call in store.calls.iter().filter(|call| call.scenario == scenario) {
        // Calls for several nodes alternate, in an order that depends on timing.
        let of = match call.arguments.get("node").and_then(Value::as_str) {
            Some(node) => format!("{} on {node}", call.of),
            None => call.of.clone(),
        };
        let calls = normal.calls.entry((of, call.method.to_owned())).or_default();
        calls.push(names.replace(&without_nulls(&call.arguments).to_string()));
        if call.method == POLLED {
            continue;
        }
        if let Some(effect) = effect(call) {
            normal.effects.insert(effect, call.method.to_owned());
        }
        let count = normal.counts.entry((call.of.clone(), call.method.to_owned())).or_default();
        *count = MANY.min(*count + 1);
        let order = normal.order.entry(call.of.clone()).or_default();
        if order.last().is_none_or(|last| last != call.method) {
            order.push(call.method.to_owned());
        }
    }
    for values in normal.fields.values_mut() {
        *values = without_cycles(values);
    }
    for methods in normal.order.values_mut() {
        *methods = without_cycles(methods);
    }
    for (key, calls) in &mut normal.calls {
        if key.1 == POLLED {
            calls.sort();
        }
        calls.dedup();
    }
    normal
}

/// What a call creates or deletes.
fn effect(call: &Call) -> Option<String> {
    let text = |pointer: &str| call.arguments.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let of = &call.of;
    match call.method {
        "CreateVolume" | "DeleteVolume" | "CreateVolumeGroupSnapshot" | "DeleteVolumeGroupSnapshot" => {
            Some(of.clone())
        }
        "ControllerPublishVolume" | "ControllerUnpublishVolume" => Some(format!("{of} on {}", text("/node"))),
        // Its volume is known, and its identifier is made of its name.
        "CreateSnapshot" => {
            let name = text("/parameters/csi.storage.k8s.io~1volumesnapshot~1name");
            Some(format!("{}.snapshot-of-{name}", call.scenario))
        }
        "DeleteSnapshot" => Some(of.clone()),
        _ => None,
    }
}

/// Kind and name.
fn title((kind, namespace, name): &Key) -> String {
    let other = if scenario_of(namespace) == namespace { "" } else { "other/" };
    format!("{kind} {other}{name}")
}

/// Fields that changed and their values; `-` for one that is removed. The fields of a deleted object are not, nor is the
/// status of one that is being deleted, which some of upstream's controllers clear before they remove a finalizer.
fn changes(before: &Fields, after: &Fields, deleted: bool) -> Vec<(String, String)> {
    let changed = after.iter().filter(|(field, value)| before.get(*field) != Some(value));
    let mut changes: Vec<_> = changed.map(|(field, value)| (field.clone(), value.clone())).collect();
    // The last finalizer is removed by the write that deletes the object.
    let leaves = after.contains_key("metadata.deletionTimestamp");
    let ends = |field: &&String| match deleted {
        true => field.starts_with("metadata.finalizers"),
        false => !(leaves && field.starts_with("status.")),
    };
    let removed = before.keys().filter(|field| !after.contains_key(*field)).filter(ends);
    changes.extend(removed.map(|field| (field.clone(), "-".to_owned())));
    changes
}

/// How often a value changes to and fro depends on timing, as the number of retries does.
fn without_cycles(values: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for value in values {
        kept.push(value.clone());
        if let [.., a, b, c, d] = kept.as_slice()
            && a == c
            && b == d
        {
            kept.truncate(kept.len() - 2);
        }
    }
    kept
}

/// The event without counts and times, and its component.
fn event_text(event: &Value) -> (String, String) {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let by = [text("/reportingComponent"), text("/source/component")].into_iter().find(|by| !by.is_empty());
    // The sidecars of upstream add the name of their pod.
    let by = by.unwrap_or_default().split('_').next().unwrap_or_default();
    let event = format!(
        "{} {}: {} {}: {}",
        text("/involvedObject/kind"),
        text("/involvedObject/name"),
        text("/type"),
        text("/reason"),
        text("/message").trim_end()
    );
    (event, by.to_owned())
}

fn flatten(value: &Value, path: &str, names: &Names, fields: &mut Fields) {
    let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(of) => {
            for (key, value) in of {
                let server = path == "metadata" && SERVER.contains(&key.as_str());
                if server || (path.is_empty() && matches!(key.as_str(), "apiVersion" | "kind")) {
                    continue;
                }
                if key == "resourceVersion" {
                    fields.insert(at(key), "<version>".into());
                } else if key == IDENTITY {
                    fields.insert(at(key), "<identity>".into());
                } else if let Some((_, of_item)) = KEYED.iter().find(|(list, _)| list == key) {
                    for item in value.as_array().into_iter().flatten() {
                        let name = names.replace(item[of_item].as_str().unwrap_or_default());
                        flatten(item, &format!("{}[{name}]", at(key)), names, fields);
                    }
                } else if SETS.contains(&key.as_str()) {
                    for item in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                        fields.insert(format!("{}[{}]", at(key), names.replace(item)), "yes".into());
                    }
                } else {
                    flatten(value, &at(key), names, fields);
                }
            }
        }
        Value::Null => {}
        Value::String(text) if is_time(text) => drop(fields.insert(path.to_owned(), "<time>".into())),
        Value::String(text) => drop(fields.insert(path.to_owned(), names.replace(text))),
        // In nanoseconds; of an existing snapshot the time at which its object was seen.
        Value::Number(_) if path == "status.creationTime" => {
            drop(fields.insert(path.to_owned(), "<time>".into()))
        }
        other => drop(fields.insert(path.to_owned(), names.replace(&other.to_string()))),
    }
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T' && text.as_bytes()[4] == b'-'
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let empty = |value: &Value| {
                value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) || *value == 0
            };
            let kept = fields.iter().filter(|(_, value)| !empty(value));
            let value_of =
                |key: &str, value| if key == IDENTITY { "<identity>".into() } else { without_nulls(value) };
            let mut kept: Vec<_> = kept.map(|(key, value)| (key.clone(), value_of(key, value))).collect();
            kept.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(kept.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Names instead of uids, and of names that depend on uids or chance.
struct Names(Vec<(String, String)>);

impl Names {
    fn of(store: &Store, scenario: &str) -> Self {
        let mut names: Vec<(String, String)> = Vec::new();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for version in store.versions.iter().filter(|version| store.owner(&version.key) == Some(scenario)) {
            if let Some(object) = &version.object
                && let Some((generated, name)) = stable_name(version.key.0, object)
                && names.iter().all(|(known, _)| *known != generated)
            {
                names.push((generated, name));
            }
            let uid = version.object.as_ref().and_then(|object| object["metadata"]["uid"].as_str());
            let Some(uid) = uid.filter(|uid| names.iter().all(|(known, _)| known != uid)) else { continue };
            if version.key.0 == "Event" {
                continue;
            }
            let name = title(&version.key);
            let name = names.iter().fold(name, |name, (uid, other)| name.replace(uid.as_str(), other));
            let count = seen.entry(name.clone()).or_default();
            *count += 1;
            let number = if *count > 1 { format!("#{count}") } else { String::new() };
            let short = name.split_once(' ').map_or(name.as_str(), |(_, name)| name);
            names.push((uid.to_owned(), format!("<{short}{number}>")));
        }
        Self(names)
    }

    fn replace(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (uid, name)| text.replace(uid.as_str(), name))
    }
}

/// The part of an object's name that differs between the sides, and what stands for it. The name of a capacity is random,
/// that of a member of a group, and of its content, has a hash of the group's uid.
fn stable_name(kind: &str, object: &Value) -> Option<(String, String)> {
    let name = object["metadata"]["name"].as_str()?;
    match kind {
        CAPACITY => {
            let segment = object["nodeTopology"]["matchLabels"].as_object();
            let segment: Vec<&str> =
                segment.into_iter().flatten().filter_map(|(_, value)| value.as_str()).collect();
            let class = object["storageClassName"].as_str()?;
            Some((name.to_owned(), format!("<capacity of {class} in {}>", segment.join(","))))
        }
        "VolumeSnapshot" => {
            let owners = object["metadata"]["ownerReferences"].as_array()?;
            let group =
                owners.iter().find(|owner| owner["kind"] == "VolumeGroupSnapshot")?["name"].as_str()?;
            let claim = object["spec"]["source"]["persistentVolumeClaimName"].as_str()?;
            Some((name.strip_prefix("snapshot-")?.to_owned(), format!("<member {claim} of {group}>")))
        }
        _ => None,
    }
}
