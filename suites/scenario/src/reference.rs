//! References in the texts of scenarios, to what is known only while it runs.
//!
//! | reference | stands for |
//! |---|---|
//! | `$s` | the namespace of the scenario |
//! | `$uid(claim data)` | the uid of an object; `data#1` is the first of the name `data`, if it was created again |
//! | `$volume(data)` | the name of the PersistentVolume that was provisioned for a claim |
//! | `$handle(data)` | its handle, which is its id for the driver; `$handle(snapshot snap)` is that of a snapshot |
//! | `$content(snap)` | the name of the content that was created for a snapshot |
//! | `$group-content(all)` | the same for a group of snapshots |
//! | `$member(data of all)` | the name of the snapshot of a claim in a group |
//! | `$in-use(data)` | the name of a volume in the status of nodes, with the handle `<scenario>.data` |
//! | `$node(p)` | the node of a pod |
//! | `$node-1`, `$node-2` .. | the nodes of the cluster |
//! | `$driver`, `$class`, `$default-class`, `$size`, `$larger-size`, `$image` | of the run; `$name` for each `--set name=value` |
//!
//! `$$` is a dollar. What is no reference stays as it is, for scripts.

use std::collections::{BTreeMap, HashMap};

use claimcheck_model::{attachment_name, sha256, unique_volume_name};
use serde_json::{Value, json};

use crate::{kind::Kind, name::Names};

/// The functions, with what the name of an object begins with that a controller made.
const FUNCTIONS: [(&str, &str, Option<&str>); 8] = [
    ("$uid(", "", None),
    ("$volume(", "=pvc-", Some("claim")),
    ("$content(", "=snapcontent-", Some("snapshot")),
    ("$group-content(", "=groupsnapcontent-", Some("group")),
    ("$member(", "snapshot-", None),
    ("$handle(", "", None),
    ("$in-use(", "", None),
    ("$node(", "", None),
];

/// What references of a scenario stand for.
#[derive(Debug)]
pub struct References {
    /// The names of its objects.
    pub names: Names,
    /// The driver of its volumes.
    pub driver: String,
    /// Texts by name, without the dollar.
    pub variables: BTreeMap<String, String>,
    /// The uids of each object that the scenario created, also again.
    uids: HashMap<(&'static str, String), Vec<String>>,
    /// The nodes of pods.
    nodes: HashMap<String, String>,
    /// The handles of the volumes of claims, by their names, and of snapshots, by `snapshot` and their names.
    handles: HashMap<String, String>,
}

impl References {
    /// References of a scenario without objects.
    pub fn new(names: Names, driver: impl Into<String>) -> Self {
        let variables = [("s".to_owned(), names.scenario.clone())].into();
        Self {
            names,
            driver: driver.into(),
            variables,
            uids: HashMap::new(),
            nodes: HashMap::new(),
            handles: HashMap::new(),
        }
    }

    /// An object was created.
    pub fn created(&mut self, kind: &Kind, name: &str, uid: String) {
        self.uids.entry((kind.short, name.to_owned())).or_default().push(uid);
    }

    /// A pod runs on a node.
    pub fn scheduled(&mut self, pod: &str, node: String) {
        self.nodes.insert(pod.to_owned(), node);
    }

    /// A claim has a volume with a handle.
    pub fn provisioned(&mut self, claim: &str, handle: String) {
        self.handles.insert(claim.to_owned(), handle);
    }

    /// The uid of an object; `no-uid` if it was not created.
    pub fn uid(&self, kind: &str, name: &str) -> String {
        let (name, number) = match name.split_once('#') {
            Some((name, number)) => {
                (name, number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)))
            }
            None => (name, None),
        };
        let uids = Kind::named(kind).and_then(|kind| self.uids.get(&(kind.short, name.to_owned())));
        let uids = uids.map(Vec::as_slice).unwrap_or_default();
        number.map_or(uids.last(), |number| uids.get(number)).cloned().unwrap_or_else(|| "no-uid".to_owned())
    }

    /// The value with all references replaced.
    pub fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(fields) => Value::Object(
                fields.iter().map(|(key, value)| (self.fill(key), self.filled(value))).collect(),
            ),
            other => other.clone(),
        }
    }

    /// The text with all references replaced.
    pub fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (function, prefix, kind) in FUNCTIONS {
            while let Some(begin) = text.find(function) {
                let Some(length) = text[begin..].find(')') else { break };
                let argument = text[begin + function.len()..begin + length].to_owned();
                let value = match (function, kind) {
                    ("$in-use(", _) => unique_volume_name(&self.driver, &self.names.cluster(&argument)),
                    ("$member(", _) => self.member(&argument),
                    ("$handle(", _) => {
                        self.handles.get(&argument).cloned().unwrap_or_else(|| "no-handle".to_owned())
                    }
                    ("$node(", _) => {
                        self.nodes.get(&argument).cloned().unwrap_or_else(|| "no-node".to_owned())
                    }
                    (_, Some(kind)) => self.uid(kind, &argument),
                    (_, None) => {
                        let (kind, name) = argument.split_once(' ').unwrap_or((&argument, ""));
                        self.uid(kind, name)
                    }
                };
                // Only the name of an object that a step names needs the mark of a shared name.
                let is_name = names_kind(&text[..begin]);
                let prefix = if is_name { prefix } else { prefix.trim_start_matches('=') };
                text.replace_range(begin..=begin + length, &format!("{prefix}{value}"));
            }
        }
        self.with_variables(&text)
    }

    fn with_variables(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            filled.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                filled.push('$');
                rest = after;
                continue;
            }
            // The longest name that is no part of a longer word: `$s-other` is `$s`, `$sum` is not.
            let ends = |name: &str| {
                let after = rest.strip_prefix(name)?;
                let next = after.chars().next();
                next.is_none_or(|next| !next.is_ascii_alphanumeric() && next != '_').then_some(after)
            };
            let found = self.variables.iter().filter_map(|(name, value)| Some((name, value, ends(name)?)));
            match found.max_by_key(|(name, ..)| name.len()) {
                Some((_, value, after)) => {
                    filled.push_str(value);
                    rest = after;
                }
                None => filled.push('$'),
            }
        }
        filled + rest
    }

    /// The hash in the names of the member of a group: of `<claim> of <group>`. A scripted driver has handles of names.
    fn member(&self, argument: &str) -> String {
        let (claim, group) = argument.split_once(" of ").unwrap_or((argument, ""));
        let handle = self.handles.get(claim).cloned().unwrap_or_else(|| self.names.cluster(claim));
        sha256(format!("{}{handle}", self.uid("group", group)))
    }

    /// The kind, namespace and name of an object that a step names.
    ///
    /// # Errors
    /// There is no such kind.
    pub fn key(&self, object: &str) -> Result<Key, String> {
        let object = self.fill(object);
        let (kind, name) = split(&object)?;
        // `attachment data on a by other.csi`: of the claim `data`, or the handle is `data` of the scenario. Its driver may be
        // omitted.
        if let (true, Some((handle, node))) = (kind.short == "attachment", name.split_once(" on ")) {
            let (node, driver) = node.split_once(" by ").unwrap_or((node, &self.driver));
            let handle = self.handles.get(handle).cloned().unwrap_or_else(|| self.names.cluster(handle));
            let node = self.node(node);
            return Ok((kind.kind, String::new(), attachment_name(&handle, driver, &node)));
        }
        if kind.namespaced {
            let (namespace, name) = self.names.namespaced(name);
            return Ok((kind.kind, namespace, name));
        }
        let name = match kind.short {
            "node" | "csi-node" => self.node(name),
            "driver" if name == self.driver => name.to_owned(),
            _ => self.names.cluster(name),
        };
        Ok((kind.kind, String::new(), name))
    }

    /// The full name of a node: those of a cluster have names of their own.
    fn node(&self, name: &str) -> String {
        let is_known = self.variables.values().chain(self.nodes.values()).any(|known| known == name);
        if is_known { name.to_owned() } else { self.names.cluster(name) }
    }
}

/// Whether this is what stands before the name of an object: `volume `, or `event volume `.
fn names_kind(before: &str) -> bool {
    let before = before.strip_prefix("event ").unwrap_or(before);
    before.strip_suffix(' ').is_some_and(|kind| Kind::named(kind).is_some())
}

/// The objects that the references of a text name.
pub(crate) fn named_by(text: &str) -> Vec<(&'static Kind, String)> {
    let arguments = FUNCTIONS.iter().flat_map(|(function, _, _)| {
        let calls = text.split(function).skip(1);
        calls.filter_map(move |rest| Some((*function, rest.split_once(')')?.0)))
    });
    let named = |(function, argument): (&str, &str)| {
        let (kind, name) = match function {
            "$uid(" => argument.split_once(' ')?,
            "$handle(" if argument.contains(' ') => argument.split_once(' ')?,
            "$node(" => ("pod", argument),
            "$content(" => ("snapshot", argument),
            "$group-content(" => ("group", argument),
            "$member(" => ("claim", argument.split_once(" of ")?.0),
            _ => ("claim", argument),
        };
        let name = name.split_once('#').map_or(name, |(name, _)| name);
        Some((Kind::named(kind)?, name.to_owned()))
    };
    arguments.filter_map(named).collect()
}

/// Kind, namespace and name.
pub type Key = (&'static str, String, String);

/// The kind and name of an object in its short form.
///
/// # Errors
/// There is no such kind.
pub fn split(object: &str) -> Result<(&'static Kind, &str), String> {
    let (kind, name) = object.split_once(' ').unwrap_or((object, ""));
    let known = || crate::kind::KINDS.iter().map(|kind| kind.short);
    let kind = Kind::named(kind).ok_or_else(|| match claimcheck_model::nearest(kind, known()) {
        Some(near) => format!("{object}: there is no kind {kind}: did you mean {near}?"),
        None => {
            format!("{object}: there is no kind {kind}: known are {}", known().collect::<Vec<_>>().join(", "))
        }
    })?;
    Ok((kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references() -> References {
        let mut references = References::new(Names::with_dots("one"), "main.csi");
        references.variables.insert("size".to_owned(), "64Mi".to_owned());
        references.provisioned("data", "vol-1".to_owned());
        references.scheduled("app", "worker".to_owned());
        references.created(Kind::named("claim").unwrap(), "data", "u1".to_owned());
        references.created(Kind::named("claim").unwrap(), "data", "u2".to_owned());
        references
    }

    #[test]
    fn references_are_replaced_and_other_dollars_stay() {
        for (text, filled) in [
            ("$s.a and $s-other", "one.a and one-other"),
            ("$size of $sum is $1 $(date) $$s", "64Mi of $sum is $1 $(date) $s"),
            ("$uid(claim data), $uid(claim data#1)", "u2, u1"),
            ("volume $volume(data)", "volume =pvc-u2"),
            ("event volume $volume(data)", "event volume =pvc-u2"),
            ("/pv/$volume(data)/mount", "/pv/pvc-u2/mount"),
            ("$volume(data)", "pvc-u2"),
            ("$volume(other)", "pvc-no-uid"),
            ("$handle(data) $handle(other)", "vol-1 no-handle"),
            ("$uid(", "$uid("),
        ] {
            assert_eq!(references().fill(text), filled);
        }
    }

    #[test]
    fn nodes_of_the_cluster_and_attachments_of_claims_are_found() {
        let key = |object: &str| references().key(object).unwrap();
        assert_eq!(key("csi-node $node(app)"), ("CSINode", String::new(), "worker".to_owned()));
        let name = attachment_name("vol-1", "main.csi", "worker");
        assert_eq!(key("attachment data on $node(app)"), ("VolumeAttachment", String::new(), name));
        let name = attachment_name("one.static", "other.csi", "one.a");
        assert_eq!(key("attachment static on a by other.csi"), ("VolumeAttachment", String::new(), name));
    }

    #[test]
    fn a_kind_that_does_not_exist_is_an_error_with_a_suggestion() {
        let error = references().key("clam data").unwrap_err();
        assert_eq!(error, "clam data: there is no kind clam: did you mean claim?");
    }
}
