//! A scenario from what was seen in a namespace: what its users created, changed and deleted, and what came of it.
//!
//! Only fields that storage reads are written. Names of objects are replaced by numbers; images, commands, environments,
//! labels, annotations and parameters are left out. What of that matters to a reader is listed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    file::{API_VERSION, KIND},
    kind::Kind,
    record::Version,
    reference::Key,
};

/// The kinds that are recorded.
pub const RECORDED: [&str; 6] = ["class", "attributes-class", "snapshot-class", "claim", "pod", "snapshot"];

/// A scenario, and what it lacks.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file.
    pub text: String,
    /// The number of its steps.
    pub steps: usize,
    /// What was left out, in sentences.
    pub left_out: BTreeSet<String>,
}

/// The scenario of these versions; the first `before` of them were there when recording began.
pub fn recording(name: &str, versions: &[Version], before: usize) -> Recording {
    let (old, new) = versions.split_at(before.min(versions.len()));
    let mut writer = Writer::default();
    for version in old {
        writer.existed(version);
    }
    let mut new: Vec<&Version> = new.iter().collect();
    if new.iter().all(|version| version.number.is_some()) {
        new.sort_by_key(|version| version.number);
    }
    for version in new {
        writer.happened(version);
    }
    writer.finish(name)
}

#[derive(Debug, Default)]
struct Writer {
    /// What an object is called in the scenario.
    names: BTreeMap<Key, String>,
    counts: BTreeMap<&'static str, usize>,
    /// The last version of each object.
    latest: BTreeMap<Key, Value>,
    /// Objects that were there from the start, of which something uses those in `given`.
    old: BTreeSet<Key>,
    given: Vec<Value>,
    steps: Vec<Value>,
    left_out: BTreeSet<String>,
}

impl Writer {
    fn existed(&mut self, version: &Version) {
        match &version.object {
            Some(object) => {
                self.latest.insert(version.key.clone(), object.clone());
                self.old.insert(version.key.clone());
            }
            None => {
                self.latest.remove(&version.key);
                self.old.remove(&version.key);
            }
        }
    }

    fn happened(&mut self, version: &Version) {
        let key = &version.key;
        let former = self.latest.get(key).cloned();
        match (former, &version.object) {
            (None, Some(object)) => self.created(key, object),
            (Some(former), Some(object)) => self.changed(key, &former, object),
            (Some(former), None) => self.gone(key, &former),
            (None, None) => {}
        }
        match &version.object {
            Some(object) => drop(self.latest.insert(key.clone(), object.clone())),
            None => drop(self.latest.remove(key)),
        }
    }

    fn created(&mut self, key: &Key, object: &Value) {
        let Some(kind) = Kind::named(key.0) else { return };
        if let Some(owner) = object["metadata"]["ownerReferences"][0]["kind"].as_str() {
            match (kind.short, owner) {
                // Its pod makes it.
                ("claim", "Pod") => return,
                _ => self
                    .leave_out(format!("a {owner}, which creates {}s: they are written as such", kind.short)),
            }
        }
        let step = self.object(kind, key, object);
        // Of a claim that is bound already, for example, the wait follows.
        self.steps.push(step);
        self.waits(kind, key, &Value::Null, object);
    }

    fn changed(&mut self, key: &Key, former: &Value, object: &Value) {
        let Some(kind) = Kind::named(key.0) else { return };
        let patch = changes(kind, former, object);
        let is_deleted = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        let is_deleting = is_deleted(object) && !is_deleted(former);
        if (patch.is_some() || is_deleting) && !self.is_named(key) {
            self.give(kind, key, former);
        }
        if !self.is_named(key) {
            return;
        }
        if let Some(mut patch) = patch {
            self.rename(&mut patch);
            let step = json!({ "patch": self.reference(kind, key), "with": patch });
            self.steps.push(step);
        }
        if is_deleting {
            let step = json!({ "delete": self.reference(kind, key) });
            self.steps.push(step);
        }
        // How an object ends differs between kinds of clusters.
        if !is_deleted(object) {
            self.waits(kind, key, former, object);
        }
    }

    fn gone(&mut self, key: &Key, former: &Value) {
        let Some(kind) = Kind::named(key.0) else { return };
        let was_deleting = !former["metadata"]["deletionTimestamp"].is_null();
        if !self.is_named(key) {
            // What was being deleted from the start is no step of a user's.
            if was_deleting || self.is_owned(former) {
                return;
            }
            self.give(kind, key, former);
        }
        let object = self.reference(kind, key);
        match was_deleting {
            true => self.steps.push(json!({ "until": object, "gone": true })),
            false => self.steps.push(json!({ "delete": object, "until": object, "gone": true })),
        }
        // An object of the same name that is created later is another.
        self.names.remove(key);
    }

    fn is_owned(&self, object: &Value) -> bool {
        object["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    }

    /// What the object reached in this version.
    fn waits(&mut self, kind: &'static Kind, key: &Key, former: &Value, object: &Value) {
        for reached in reached(kind) {
            let value = object.pointer(reached).unwrap_or(&Value::Null);
            let is_end = match *reached {
                "/status/phase" => {
                    ["Bound", "Running", "Succeeded", "Failed"].iter().any(|phase| value == phase)
                }
                "/status/readyToUse" => value == true,
                // The first one follows from the phase.
                _ => !value.is_null() && former.pointer(reached).is_some_and(|former| !former.is_null()),
            };
            if is_end && former.pointer(reached) != Some(value) {
                let mut has = value.clone();
                for field in reached.split('/').skip(1).collect::<Vec<_>>().into_iter().rev() {
                    has = json!({ field: has });
                }
                self.rename(&mut has);
                let step = json!({ "until": self.reference(kind, key), "has": has });
                self.steps.push(step);
            }
        }
    }

    fn is_named(&self, key: &Key) -> bool {
        self.names.contains_key(key)
    }

    /// The name of an object in the scenario: a new one if it has none.
    fn name(&mut self, kind: &'static Kind, key: &Key) -> String {
        if let Some(name) = self.names.get(key) {
            return name.clone();
        }
        let count = self.counts.entry(kind.short).or_default();
        *count += 1;
        let name = format!("{}-{count}", kind.short);
        self.names.insert(key.clone(), name.clone());
        name
    }

    fn reference(&mut self, kind: &'static Kind, key: &Key) -> String {
        format!("{} {}", kind.short, self.name(kind, key))
    }

    /// Adds an object to those that exist from the start.
    fn give(&mut self, kind: &'static Kind, key: &Key, object: &Value) {
        let step = self.object(kind, key, object);
        let given = match step.get("with") {
            Some(with) if kind.short != "pod" => json!({ "object": step["create"], "with": with }),
            _ => step["create"].clone(),
        };
        if step.get("uses").is_some() {
            // Only a step can say which claims a pod uses.
            self.steps.insert(0, step);
        } else {
            self.given.push(given);
        }
    }

    /// The step that creates an object.
    fn object(&mut self, kind: &'static Kind, key: &Key, object: &Value) -> Value {
        let mut uses = Vec::new();
        let mut with = match kind.short {
            "claim" => self.claim(key, object),
            "pod" => self.pod(key, object, &mut uses),
            "snapshot" => self.snapshot(key, object),
            _ => self.class(kind, object),
        };
        self.rename(&mut with);
        let mut step = Map::new();
        step.insert("create".to_owned(), json!(self.reference(kind, key)));
        if with.as_object().is_some_and(|with| !with.is_empty()) {
            step.insert("with".to_owned(), with);
        }
        if !uses.is_empty() {
            step.insert("uses".to_owned(), json!(uses));
        }
        Value::Object(step)
    }

    fn claim(&mut self, key: &Key, object: &Value) -> Value {
        let spec = &object["spec"];
        let mut written = only(
            spec,
            &[
                "accessModes",
                "resources",
                "storageClassName",
                "volumeMode",
                "volumeAttributesClassName",
                "dataSource",
            ],
        );
        if spec["volumeMode"] == "Filesystem" {
            written.remove("volumeMode");
        }
        for (field, kind) in
            [("storageClassName", "class"), ("volumeAttributesClassName", "attributes-class")]
        {
            self.use_cluster_object(kind, &spec[field]);
        }
        if let Some(class) = spec["storageClassName"].as_str()
            && !self.exists("class", "", class)
        {
            written.remove("storageClassName");
        }
        if let Some(source) = spec["dataSource"].as_object() {
            let kind = source["kind"].as_str().unwrap_or_default();
            self.use_object(kind, &key.1, &source["name"]);
        }
        if spec["volumeName"].as_str().is_some_and(|name| !name.starts_with("pvc-")) {
            self.leave_out("spec.volumeName of a claim, which names a volume of the cluster");
        }
        if !spec["selector"].is_null() {
            self.leave_out("spec.selector of a claim, which selects volumes of the cluster");
        }
        if !spec["dataSourceRef"]["namespace"].is_null() {
            self.leave_out("spec.dataSourceRef of a claim to another namespace");
        }
        json!({ "spec": written })
    }

    fn pod(&mut self, key: &Key, object: &Value, uses: &mut Vec<Value>) -> Value {
        let spec = &object["spec"];
        let claim = Kind::named("claim").expect("it is in the table");
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            match volume["persistentVolumeClaim"]["claimName"].as_str() {
                Some(name) => {
                    self.use_object("claim", &key.1, &json!(name));
                    let claim_key = (claim.kind, key.1.clone(), name.to_owned());
                    let name = self.name(claim, &claim_key);
                    uses.push(match volume["persistentVolumeClaim"]["readOnly"] == true {
                        true => json!({ "claim": name, "readOnly": true }),
                        false => json!(name),
                    });
                }
                None if !volume["ephemeral"].is_null() => {
                    self.leave_out("an ephemeral volume of a pod: write it in a manifest");
                }
                None if !volume["csi"].is_null() => {
                    self.leave_out("an inline CSI volume of a pod: write it in a manifest");
                }
                None => {}
            }
        }
        uses.sort_by_key(Value::to_string);
        uses.dedup();
        if spec["containers"].as_array().is_some_and(|containers| containers.len() > 1)
            || !spec["initContainers"].is_null()
        {
            self.leave_out("all containers of a pod but one");
        }
        let placed = ["nodeSelector", "affinity", "topologySpreadConstraints"];
        if placed.iter().any(|field| !spec[field].is_null()) {
            self.leave_out(
                "what chooses the node of a pod: nodeSelector, affinity, topologySpreadConstraints",
            );
        }
        self.leave_out("images, commands and environments of containers: each pod runs until it is deleted");
        let security = only(
            &spec["securityContext"],
            &["fsGroup", "fsGroupChangePolicy", "supplementalGroups", "seLinuxOptions"],
        );
        match security.is_empty() {
            true => json!({}),
            false => json!({ "spec": { "securityContext": security } }),
        }
    }

    fn snapshot(&mut self, key: &Key, object: &Value) -> Value {
        let spec = &object["spec"];
        self.use_cluster_object("snapshot-class", &spec["volumeSnapshotClassName"]);
        self.use_object("claim", &key.1, &spec["source"]["persistentVolumeClaimName"]);
        if !spec["source"]["volumeSnapshotContentName"].is_null() {
            self.leave_out(
                "spec.source.volumeSnapshotContentName of a snapshot, which names a content of the cluster",
            );
        }
        let mut written = only(spec, &["volumeSnapshotClassName"]);
        written.insert("source".to_owned(), json!(only(&spec["source"], &["persistentVolumeClaimName"])));
        json!({ "spec": written })
    }

    fn class(&mut self, kind: &Kind, object: &Value) -> Value {
        let parameters = object.get("parameters").and_then(Value::as_object);
        if parameters.is_some_and(|parameters| !parameters.is_empty()) {
            self.leave_out(format!(
                "parameters of a {}: a class has those of the driver under test",
                kind.kind
            ));
        }
        json!(only(
            object,
            &["volumeBindingMode", "reclaimPolicy", "allowVolumeExpansion", "mountOptions", "deletionPolicy"]
        ))
    }

    fn use_cluster_object(&mut self, kind: &str, name: &Value) {
        self.use_object(kind, "", name);
    }

    /// An object that was there from the start is given once something uses it.
    fn use_object(&mut self, kind: &str, namespace: &str, name: &Value) {
        let (Some(kind), Some(name)) = (Kind::named(kind), name.as_str()) else { return };
        let key = (kind.kind, namespace.to_owned(), name.to_owned());
        if self.is_named(&key) || !self.old.contains(&key) {
            return;
        }
        if let Some(object) = self.latest.get(&key).cloned() {
            self.give(kind, &key, &object);
        }
    }

    fn exists(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let kind = Kind::named(kind).expect("it is in the table");
        self.latest.contains_key(&(kind.kind, namespace.to_owned(), name.to_owned()))
    }

    /// Replaces the names of objects in a value.
    fn rename(&mut self, value: &mut Value) {
        const FIELDS: [(&str, &str); 5] = [
            ("storageClassName", "class"),
            ("volumeAttributesClassName", "attributes-class"),
            ("currentVolumeAttributesClassName", "attributes-class"),
            ("volumeSnapshotClassName", "snapshot-class"),
            ("persistentVolumeClaimName", "claim"),
        ];
        match value {
            Value::Object(fields) => {
                let source = fields.get("kind").and_then(Value::as_str).and_then(Kind::named);
                for (field, value) in fields {
                    let known = FIELDS.iter().find(|(known, _)| known == field);
                    let kind = known.and_then(|(_, kind)| Kind::named(kind));
                    let kind = kind.or_else(|| source.filter(|_| field == "name"));
                    match (kind, value.as_str().map(str::to_owned)) {
                        (Some(kind), Some(name)) if !name.is_empty() => {
                            *value = json!(self.renamed(kind, &name))
                        }
                        _ => self.rename(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename(item)),
            _ => {}
        }
    }

    fn renamed(&mut self, kind: &'static Kind, name: &str) -> String {
        // All namespaced ones are of the same namespace.
        let known = self.names.iter().find(|(key, _)| key.0 == kind.kind && key.2 == name);
        let own = match known {
            Some((_, own)) => own.clone(),
            None => self.name(kind, &(kind.kind, String::new(), name.to_owned())),
        };
        if kind.namespaced { own } else { format!("$s-{own}") }
    }

    fn leave_out(&mut self, what: impl Into<String>) {
        self.left_out.insert(what.into());
    }

    fn finish(self, name: &str) -> Recording {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
        let mut text = format!(
            "apiVersion: {API_VERSION}\nkind: {KIND}\nname: {name}\n\
             about: What users did in a namespace, and what came of it.\n"
        );
        let steps = self.steps.len();
        for (field, items) in [("given", self.given), ("steps", self.steps)] {
            if !items.is_empty() {
                let part = serde_saphyr::to_string_with_options(&json!({ field: items }), options.clone());
                text += &part.expect("maps with names for keys");
            }
        }
        Recording { text, steps, left_out: self.left_out }
    }
}

/// Where a kind shows what came of a request.
fn reached(kind: &Kind) -> &'static [&'static str] {
    match kind.short {
        "claim" => &["/status/phase", "/status/capacity/storage", "/status/currentVolumeAttributesClassName"],
        "pod" => &["/status/phase"],
        "snapshot" => &["/status/readyToUse"],
        _ => &[],
    }
}

/// What a user changed, as a patch.
fn changes(kind: &Kind, former: &Value, object: &Value) -> Option<Value> {
    let fields: &[&str] = match kind.short {
        "claim" => &["resources", "volumeAttributesClassName"],
        _ => &[],
    };
    let changed = fields.iter().filter(|field| former["spec"][**field] != object["spec"][**field]);
    let spec: Map<String, Value> =
        changed.map(|field| ((*field).to_owned(), object["spec"][*field].clone())).collect();
    (!spec.is_empty()).then(|| json!({ "spec": spec }))
}

/// The fields of an object that have a value.
fn only(object: &Value, fields: &[&str]) -> Map<String, Value> {
    let set = fields.iter().filter(|field| object.get(**field).is_some_and(|value| !value.is_null()));
    set.map(|field| ((*field).to_owned(), object[*field].clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::read::parse;

    /// A version of an object in the namespace `team`, or in none.
    fn version(kind: &'static str, name: &str, object: Value) -> Version {
        let of = Kind::named(kind).unwrap();
        let namespace = if of.namespaced { "team" } else { "" };
        let object = (!object.is_null()).then(|| {
            let mut whole = json!({ "kind": of.kind, "metadata": { "name": name } });
            json_patch::merge(&mut whole, &object);
            whole
        });
        Version { key: (of.kind, namespace.to_owned(), name.to_owned()), object, number: None }
    }

    fn claim(size: &str, status: Value) -> Value {
        json!({
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": size } },
                "storageClassName": "fast",
                "volumeMode": "Filesystem",
            },
            "status": status,
        })
    }

    fn pod(phase: &str) -> Value {
        json!({
            "metadata": { "labels": { "team": "anna" }, "annotations": { "mail": "anna@example.com" } },
            "spec": {
                "securityContext": { "fsGroup": 1000, "runAsUser": 7 },
                "nodeSelector": { "rack": "r1" },
                "containers": [{
                    "name": "db", "image": "registry.example.com/secret-project:1",
                    "env": [{ "name": "PASSWORD", "value": "hunter2" }],
                }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "anna-db" } }],
            },
            "status": { "phase": phase },
        })
    }

    #[test]
    fn what_users_do_becomes_steps_in_their_order_without_names_and_data() {
        let mut deleting = pod("Running");
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let bound =
            |size, capacity| claim(size, json!({ "phase": "Bound", "capacity": { "storage": capacity } }));
        let snapshot = |ready| {
            json!({
                "spec": { "source": { "persistentVolumeClaimName": "anna-db" }, "volumeSnapshotClassName": "daily" },
                "status": { "readyToUse": ready },
            })
        };
        let mut restored = claim("2Gi", json!({}));
        restored["spec"]["dataSource"] =
            json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday" });
        let fast = json!({
            "provisioner": "x", "parameters": { "pool": "p1" }, "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": true,
        });
        let mut versions = [
            version("class", "fast", fast),
            version("class", "slow", json!({ "provisioner": "x" })),
            version("snapshot-class", "daily", json!({ "driver": "x", "deletionPolicy": "Delete" })),
            version("claim", "unrelated", bound("1Gi", "1Gi")),
            // Recording begins.
            version("claim", "anna-db", claim("1Gi", json!({ "phase": "Pending" }))),
            version("pod", "anna-0", pod("Pending")),
            version("claim", "anna-db", bound("1Gi", "1Gi")),
            version("pod", "anna-0", pod("Running")),
            version("claim", "anna-db", bound("2Gi", "1Gi")),
            version("claim", "anna-db", bound("2Gi", "2Gi")),
            version("snapshot", "monday", snapshot(false)),
            version("snapshot", "monday", snapshot(true)),
            version("claim", "copy", restored),
            version("pod", "anna-0", deleting.clone()),
            version("pod", "anna-0", {
                deleting["status"]["phase"] = json!("Failed");
                deleting
            }),
            version("pod", "anna-0", Value::Null),
        ];
        for (index, version) in versions.iter_mut().enumerate() {
            version.number = u64::try_from(index).ok();
        }
        // The watch of claims is behind that of pods.
        versions[4..].sort_by_key(|version| version.key.0 != "Pod");
        let recording = recording("recorded", &versions, 4);
        let expected = "\
apiVersion: claimcheck.dev/v1alpha1
kind: Scenario
name: recorded
about: What users did in a namespace, and what came of it.
given:
";
        assert!(recording.text.starts_with(expected), "{}", recording.text);
        let read = parse(Path::new("recorded.yaml"), &recording.text).expect(&recording.text);
        let titles: Vec<String> = read[0].scenario.steps.iter().map(crate::Step::title).collect();
        assert_eq!(
            titles,
            [
                "create claim claim-1",
                "create pod pod-1",
                r#"until claim claim-1 {"status":{"phase":"Bound"}}"#,
                r#"until pod pod-1 {"status":{"phase":"Running"}}"#,
                "patch claim claim-1",
                r#"until claim claim-1 {"status":{"capacity":{"storage":"2Gi"}}}"#,
                "create snapshot snapshot-1",
                r#"until snapshot snapshot-1 {"status":{"readyToUse":true}}"#,
                "create claim claim-2",
                "delete pod pod-1",
                "until pod pod-1 gone",
            ]
        );
        let given: Vec<&Value> = read[0].scenario.given.iter().map(|object| &object.0).collect();
        let class = json!({ "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true });
        assert_eq!(given[0], &json!({ "object": "class class-1", "with": class }));
        assert_eq!(given[1]["object"], "snapshot-class snapshot-class-1");
        assert_eq!(given.len(), 2);
        let steps = &read[0].scenario.steps;
        assert_eq!(steps[0].with["spec"]["storageClassName"], "$s-class-1");
        assert_eq!(steps[1].uses[0].claim, "claim-1");
        assert_eq!(steps[1].with, json!({ "spec": { "securityContext": { "fsGroup": 1000 } } }));
        assert_eq!(steps[8].with["spec"]["dataSource"]["name"], "snapshot-1");
        for secret in
            ["anna", "monday", "daily", "fast", "team", "registry", "PASSWORD", "hunter2", "p1", "r1", "db"]
        {
            assert!(!recording.text.contains(secret), "{secret}: {}", recording.text);
        }
        let left_out: Vec<&str> = recording.left_out.iter().map(String::as_str).collect();
        assert_eq!(
            left_out,
            [
                "images, commands and environments of containers: each pod runs until it is deleted",
                "parameters of a StorageClass: a class has those of the driver under test",
                "what chooses the node of a pod: nodeSelector, affinity, topologySpreadConstraints",
            ]
        );
    }

    #[test]
    fn what_was_there_before_is_given_once_it_is_used_or_changed() {
        let mut set = pod("Running");
        set["metadata"]["ownerReferences"] = json!([{ "kind": "StatefulSet", "name": "anna" }]);
        let mut ephemeral = claim("1Gi", json!({ "phase": "Bound" }));
        ephemeral["metadata"]["ownerReferences"] = json!([{ "kind": "Pod", "name": "anna-0" }]);
        let versions = [
            version("claim", "anna-db", claim("1Gi", json!({ "phase": "Bound" }))),
            version("pod", "old", pod("Running")),
            version("pod", "anna-0", set),
            version("claim", "anna-0-scratch", ephemeral),
            version("pod", "old", Value::Null),
        ];
        let recording = recording("recorded", &versions, 2);
        let read = parse(Path::new("recorded.yaml"), &recording.text).expect(&recording.text);
        let titles: Vec<String> = read[0].scenario.steps.iter().map(crate::Step::title).collect();
        let expected = [
            "create pod pod-2",
            "create pod pod-1",
            r#"until pod pod-1 {"status":{"phase":"Running"}}"#,
            "delete pod pod-2",
        ];
        assert_eq!(titles, expected, "{}", recording.text);
        assert_eq!(read[0].scenario.given.len(), 1);
        assert!(recording.left_out.contains("a StatefulSet, which creates pods: they are written as such"));
    }
}
