//! What happened in a scenario on a cluster, as a file, and the comparison of two of them.
//!
//! Two clusters give other names to nodes, volumes, handles and namespaces: these are replaced by what they stand for. What
//! only kubelets and images decide is left out, such as addresses and the events of containers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use claimcheck_model::CsiMethod;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    compare::{Difference, Outcome, final_differences},
    kind::Kind,
    normalise::{Normal, normal},
    record::{Call, Record, Scope},
};

/// What happened in a scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The cluster's nodes.
    pub nodes: Vec<String>,
    /// What came of each step.
    pub outcome: Outcome,
    /// Each version of each object: kind, namespace, name, and the object unless it was deleted.
    pub versions: Vec<(String, String, String, Option<Value>)>,
    /// The calls that succeeded, by claim.
    pub calls: BTreeMap<String, Vec<CsiMethod>>,
}

/// Fields that depend on the cluster.
const LEFT_OUT: [&str; 8] = [
    "allowedTopologies",
    "nodeAffinity",
    "matchLabels",
    "snapshotHandle",
    "creationTime",
    "restoreSize",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];
/// Annotations that name nodes or times.
const ANNOTATIONS: [&str; 1] = ["volume.kubernetes.io/selected-node"];
/// Of pods only events with these words in their reason are compared: others are about images and containers.
const OF_PODS: [&str; 3] = ["Mount", "Attach", "Map"];

impl Saved {
    /// Adds what a record has seen.
    #[must_use]
    pub fn with_record(self, record: &Record) -> Self {
        let versions = record.read(|store| {
            let versions = store.versions.iter().map(|version| {
                let (kind, namespace, name) = version.key.clone();
                (kind.to_owned(), namespace, name, version.object.clone())
            });
            versions.collect()
        });
        Self { versions, ..self }
    }

    /// Writes it into a folder, under its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(format!("{}.json", self.name)), serde_json::to_string(self)?)
    }

    /// Reads all of a folder, by name.
    ///
    /// # Errors
    /// The folder, or a file in it, cannot be read.
    pub fn read_all(folder: &Path) -> io::Result<BTreeMap<String, Self>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let saved: Self = serde_json::from_str(&fs::read_to_string(entry?.path())?)?;
            all.insert(saved.name.clone(), saved);
        }
        Ok(all)
    }

    /// With what names stand for in place of them.
    fn normal(&self) -> Normal {
        let names = self.names();
        let text = |text: &str| {
            names.iter().fold(text.to_owned(), |text, (name, of)| text.replace(name.as_str(), of))
        };
        let record = Record::new(Scope::All);
        for (kind, namespace, name, object) in &self.versions {
            let Some(kind) = Kind::named(kind).filter(|kind| kind.compared && kind.short != "csi-node")
            else {
                continue;
            };
            let object = object.as_ref().map(|object| self.plain(kind, object, &text));
            if object.as_ref().is_some_and(is_left_out) {
                continue;
            }
            let name = match kind.short {
                "attachment" => text(&self.attached(name)),
                _ => text(name),
            };
            record.version((kind.kind, text(namespace), name), object, &self.name);
        }
        for (claim, methods) in &self.calls {
            for method in methods {
                record.call(Call {
                    scenario: self.name.clone(),
                    method: method.as_str(),
                    of: text(claim),
                    arguments: json!({}),
                });
            }
        }
        normal(&record, &self.name)
    }

    /// The name of an attachment has a hash of handle and node: its volume stands for it.
    fn attached(&self, name: &str) -> String {
        let of = self.versions.iter().find_map(|(_, _, other, object)| {
            let source = &object.as_ref()?["spec"]["source"]["persistentVolumeName"];
            (other == name).then(|| format!("of {}", source.as_str().unwrap_or_default()))
        });
        of.unwrap_or_else(|| name.to_owned())
    }

    /// What names of this cluster stand for, the longest first.
    fn names(&self) -> Vec<(String, String)> {
        let mut names = BTreeMap::from([(self.namespace.clone(), self.name.clone())]);
        for (kind, _, name, object) in &self.versions {
            let Some(object) = object else { continue };
            let handle = match kind.as_str() {
                "PersistentVolume" => &object["spec"]["csi"]["volumeHandle"],
                "VolumeSnapshotContent" => &object["status"]["snapshotHandle"],
                _ => continue,
            };
            names.extend(handle.as_str().map(|handle| (handle.to_owned(), format!("<handle of {name}>"))));
        }
        let mut names: Vec<(String, String)> =
            names.into_iter().filter(|(name, _)| !name.is_empty()).collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names
    }

    /// An object without what depends on the cluster.
    fn plain(&self, kind: &Kind, object: &Value, text: &impl Fn(&str) -> String) -> Value {
        let object = match kind.short {
            "pod" => json!({
                "metadata": { "name": object["metadata"]["name"], "uid": object["metadata"]["uid"] },
                "status": { "phase": object["status"]["phase"] },
            }),
            "event" => {
                let message = object["message"].as_str().unwrap_or_default();
                let message = self
                    .nodes
                    .iter()
                    .fold(message.to_owned(), |message, node| message.replace(node, "<node>"));
                let mut event = object.clone();
                event["message"] = json!(message);
                event
            }
            _ => object.clone(),
        };
        self.without(&object, text)
    }

    fn without(&self, value: &Value, text: &impl Fn(&str) -> String) -> Value {
        match value {
            Value::String(name) if self.nodes.contains(name) => json!("<node>"),
            Value::String(other) => json!(text(other)),
            Value::Array(items) => items.iter().map(|item| self.without(item, text)).collect(),
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(key, _)| {
                    !LEFT_OUT.contains(&key.as_str()) && !ANNOTATIONS.contains(&key.as_str())
                });
                Value::Object(kept.map(|(key, value)| (text(key), self.without(value, text))).collect())
            }
            other => other.clone(),
        }
    }
}

/// An event that is not about storage.
fn is_left_out(object: &Value) -> bool {
    let of = &object["involvedObject"]["kind"];
    let reason = object["reason"].as_str().unwrap_or_default();
    *of == "Pod" && !OF_PODS.iter().any(|word| reason.contains(word))
}

/// What differs at the end of a scenario that was played on two clusters: steps, objects, events, calls.
pub fn end_differences(one: &Saved, other: &Saved) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut push = |what: String, one: String, other: String| {
        if one != other {
            found.push(Difference { what, one, other });
        }
    };
    for ((title, of_one), (_, of_other)) in one.outcome.iter().zip(&other.outcome) {
        push(format!("step {title}"), of_one.clone(), of_other.clone());
    }
    let (one, other) = (one.normal(), other.normal());
    let all: BTreeSet<&String> = one.events.keys().chain(other.events.keys()).collect();
    for key in all {
        let seen = |normal: &Normal| if normal.events.contains_key(key) { "seen" } else { "-" }.to_owned();
        push(format!("event {key}"), seen(&one), seen(&other));
    }
    let keys: BTreeSet<_> = one.counts.keys().chain(other.counts.keys()).collect();
    for key in keys {
        let count = |normal: &Normal| normal.counts.get(key).copied().unwrap_or_default();
        let (of_one, of_other) = (count(&one), count(&other));
        let which = if of_one > of_other { "more" } else { "fewer" };
        push(format!("{which} calls {} {}", key.1, key.0), of_one.to_string(), of_other.to_string());
    }
    found.extend(final_differences(&one, &other));
    found
}
