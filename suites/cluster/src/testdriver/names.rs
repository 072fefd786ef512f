//! The names in a driver file, compared with those that upstream knows.
//!
//! Upstream decodes the file without strictness and with regard to case (`loadDriverDefinition` in `external.go`:
//! `runtime.DecodeInto`, for a type that no scheme has: `kjson.UnmarshalCaseSensitivePreserveInts`): what it does not
//! know is ignored, and null leaves a field as it is. A slip would disable cases, so a name that resembles a known one, or
//! that belongs elsewhere, is an error here; any other is ignored, too, and listed.

use std::fmt;

use claimcheck_model::{Capability, nearest};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;

use super::{
    file::{DriverInfo, ExpectedMetrics, File, InlineVolume, PerformanceTestOptions, ProvisioningOptions},
    timeouts::Timeout,
};

/// A YAML document with the lines of its keys.
#[derive(Debug)]
pub(super) enum Node {
    Map(Vec<(Spanned<String>, Node)>),
    Seq(Vec<Node>),
    Scalar(Value),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::Seq(items))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        let number = serde_json::Number::from_f64(value).ok_or_else(|| E::custom("not a number"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }
}

impl Node {
    /// The document without its lines.
    fn value(&self) -> Value {
        match self {
            Self::Map(fields) => fields
                .iter()
                .map(|(key, node)| (key.value.clone(), node.value()))
                .collect::<Map<_, _>>()
                .into(),
            Self::Seq(items) => items.iter().map(Self::value).collect(),
            Self::Scalar(value) => value.clone(),
        }
    }

    /// The line of a field, if the document has it.
    pub(super) fn line(&self, path: &[&str]) -> Option<u64> {
        let (first, rest) = path.split_first()?;
        let Self::Map(fields) = self else { return None };
        let (key, node) = fields.iter().find(|(key, _)| key.value == *first)?;
        if rest.is_empty() { Some(key.referenced.line()) } else { node.line(rest) }
    }

    /// The path of the last field of a line.
    pub(super) fn field_at(&self, line: u64) -> Option<String> {
        let of = |node: &Self, key: Option<&Spanned<String>>| {
            let inner = node.field_at(line);
            match (key, inner) {
                (Some(key), Some(inner)) => Some(format!("{}.{inner}", key.value)),
                (Some(key), None) => (key.referenced.line() == line).then(|| key.value.clone()),
                (None, inner) => inner,
            }
        };
        match self {
            Self::Map(fields) => fields.iter().rev().find_map(|(key, node)| of(node, Some(key))),
            Self::Seq(items) => items.iter().find_map(|item| of(item, None)),
            Self::Scalar(_) => None,
        }
    }
}

/// A name that is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slip {
    pub line: u64,
    /// The name, and what is probably meant.
    pub what: String,
}

/// The fields of a driver file that upstream knows.
#[derive(Debug)]
pub(super) struct Known {
    /// The document with these fields only.
    pub value: Value,
    /// The others, with their lines.
    pub ignored: Vec<String>,
}

/// Separates known names from others.
///
/// # Errors
/// A name resembles a known one, or belongs elsewhere.
pub(super) fn known(document: &Node) -> Result<Known, Slip> {
    let every = every_field();
    let mut ignored = Vec::new();
    let value = compared(document, &every, "", &mut |path, key, siblings| {
        let line = key.referenced.line();
        match meant(&key.value, siblings, path, &every) {
            Some(meant) => Err(Slip { line, what: format!("unknown field {}: {meant}", key.value) }),
            None => {
                ignored.push(format!("{} (line {line})", joined(path, &key.value)));
                Ok(())
            }
        }
    })?;
    Ok(Known { value, ignored })
}

/// What is probably meant by an unknown name.
fn meant(name: &str, siblings: &Map<String, Value>, path: &str, every: &Value) -> Option<String> {
    if let Some(near) = nearest(name, siblings.keys().map(String::as_str)) {
        return Some(format!("did you mean {near}?"));
    }
    let mut homes = Vec::new();
    find(name, every, "", &mut homes);
    homes.sort();
    (!homes.is_empty()).then(|| {
        let place = if path.is_empty() { "the top level" } else { path };
        format!("it belongs to {}, not to {place}", homes.join(" or "))
    })
}

/// The paths of the objects that have this field.
fn find(name: &str, of: &Value, path: &str, found: &mut Vec<String>) {
    let fields = match of {
        Value::Object(fields) => fields,
        Value::Array(items) => return items.iter().for_each(|item| find(name, item, path, found)),
        _ => return,
    };
    if fields.keys().any(|key| key.eq_ignore_ascii_case(name)) {
        found.push(if path.is_empty() { "the top level".to_owned() } else { path.to_owned() });
    }
    fields.iter().for_each(|(key, inner)| find(name, inner, &joined(path, key), found));
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The fields of a document that `every` has; the others are given to `unknown`, with the names next to them. A map in
/// which every name is permitted is empty in `every`.
fn compared(
    document: &Node,
    every: &Value,
    path: &str,
    unknown: &mut impl FnMut(&str, &Spanned<String>, &Map<String, Value>) -> Result<(), Slip>,
) -> Result<Value, Slip> {
    let (fields, known) = match (document, every) {
        (Node::Map(fields), Value::Object(known)) if !known.is_empty() => (fields, known),
        (Node::Map(fields), Value::Object(_)) => {
            // In a set, null is a member; in a map of texts it is the empty one.
            let is_set = path.contains("FsType") || path.contains("MountOption");
            let value = |node: &Node| match node.value() {
                Value::Null if !is_set => "".into(),
                value => value,
            };
            return Ok(fields
                .iter()
                .map(|(key, node)| (key.value.clone(), value(node)))
                .collect::<Map<_, _>>()
                .into());
        }
        (Node::Seq(items), Value::Array(known)) if known.len() == 1 => {
            let items = items.iter().map(|item| compared(item, &known[0], path, unknown));
            return items.collect::<Result<Vec<_>, _>>().map(Value::from);
        }
        (document, _) => return Ok(document.value()),
    };
    let mut accepted = Map::new();
    for (key, node) in fields {
        // The names of timeouts are decoded by encoding/json, which disregards case (`GetTimeouts`).
        let is_same = |known: &&String| match path {
            "Timeouts" => known.eq_ignore_ascii_case(&key.value),
            _ => **known == key.value,
        };
        let Some(name) = known.keys().find(is_same) else {
            unknown(path, key, known)?;
            continue;
        };
        let inner = &known[name];
        let value = compared(node, inner, &joined(path, name), unknown)?;
        match (value.is_null(), inner) {
            (false, _) => drop(accepted.insert(name.clone(), value)),
            // A capability is false then, and not absent.
            (true, Value::Bool(_)) => drop(accepted.insert(name.clone(), false.into())),
            (true, _) => {}
        }
    }
    Ok(accepted.into())
}

/// A document with every field that upstream knows.
fn every_field() -> Value {
    let file = File {
        inline_volumes: vec![InlineVolume::default()],
        timeouts: Timeout::ALL.into_iter().map(|timeout| (timeout, String::new())).collect(),
        driver_info: DriverInfo {
            capabilities: Capability::ALL.iter().map(|&capability| (capability, false)).collect(),
            stress_test_options: Some(Default::default()),
            volume_snapshot_stress_test_options: Some(Default::default()),
            volume_modify_stress_test_options: Some(Default::default()),
            volume_group_snapshot_stress_test_options: Some(Default::default()),
            performance_test_options: Some(PerformanceTestOptions {
                provisioning_options: Some(ProvisioningOptions {
                    expected_metrics: Some(ExpectedMetrics::default()),
                    ..ProvisioningOptions::default()
                }),
            }),
            ..DriverInfo::default()
        },
        ..File::default()
    };
    json!(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Known, Slip> {
        known(&serde_saphyr::from_str(text).unwrap())
    }

    #[test]
    fn names_that_resemble_nothing_are_ignored_as_upstream_does() {
        let known = names(
            "ShortName: x\nStorageClass: {FromName: true, Comment: c}\nDriverInfo:\n  Name: d\n  FeatureTag: '[F]'\n  \
             Capabilities: {replication: true, block: true, exec: }\nTimeouts: {podstart: 5m, Reboot: 1m}\n\
             InlineVolumes:\n- {Attributes: {a: }, Kind: k}\n",
        )
        .unwrap();
        let expected = [
            "ShortName (line 1)",
            "StorageClass.Comment (line 2)",
            "DriverInfo.FeatureTag (line 5)",
            "DriverInfo.Capabilities.replication (line 6)",
            "Timeouts.Reboot (line 7)",
            "InlineVolumes.Kind (line 9)",
        ];
        assert_eq!(known.ignored, expected);
        let expected = json!({
            "StorageClass": { "FromName": true },
            "DriverInfo": { "Name": "d", "Capabilities": { "block": true, "exec": false } },
            "Timeouts": { "PodStart": "5m" },
            "InlineVolumes": [{ "Attributes": { "a": "" } }],
        });
        assert_eq!(known.value, expected);
    }

    #[test]
    fn null_leaves_a_field_as_it_is() {
        let known = names(
            "StorageClass:\nClientNodeName:\nDriverInfo: {Name: d, MaxFileSize: , SupportedFsType: {ext4: }}\n",
        );
        let expected = json!({ "DriverInfo": { "Name": "d", "SupportedFsType": { "ext4": null } } });
        assert_eq!(known.unwrap().value, expected);
    }

    #[test]
    fn slips_are_errors() {
        let table = [
            ("storageclass: {}", 1, "unknown field storageclass: did you mean StorageClass?"),
            ("\nName: d", 2, "unknown field Name: it belongs to DriverInfo, not to the top level"),
            ("DriverInfo:\n  ClientNodeName: n", 2, "it belongs to the top level, not to DriverInfo"),
            (
                "DriverInfo: {StressTestOptions: {NumSnapshots: 1}}",
                1,
                "it belongs to DriverInfo.VolumeGroupSnapshotStressTestOptions or \
                 DriverInfo.VolumeSnapshotStressTestOptions, not to DriverInfo.StressTestOptions",
            ),
            ("DriverInfo: {Capabilities: {presistence: true}}", 1, "did you mean persistence?"),
        ];
        for (text, line, what) in table {
            let slip = names(text).unwrap_err();
            assert!(slip.line == line && slip.what.ends_with(what), "{slip:?}");
        }
    }

    #[test]
    fn fields_have_lines() {
        let node: Node = serde_saphyr::from_str("DriverInfo:\n  Name: d\n  TopologyKeys:\n  - a\n").unwrap();
        assert_eq!(node.line(&["DriverInfo", "Name"]), Some(2));
        assert_eq!(node.line(&["DriverInfo", "Max"]), None);
        assert_eq!(node.field_at(3).as_deref(), Some("DriverInfo.TopologyKeys"));
        assert_eq!(node.field_at(4), None);
    }
}
