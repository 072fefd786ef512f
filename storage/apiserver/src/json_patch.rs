//! JSON patch as kube-apiserver applies it: `gopkg.in/evanphx/json-patch.v4`, which is more lenient than RFC 6902.
//!
//! `replace` of a member that an object lacks adds it (external-snapshotter relies on this for `metadata.annotations`),
//! indexes may be negative, a missing `value` is null, and `test` does not distinguish null from a missing member.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The largest number of operations in a patch: `maxJSONPatchOperations` in apiserver's `endpoints/handlers/patch.go`.
pub const MAX_OPERATIONS: usize = 10_000;

/// One operation. Fields of the wrong type fail when the operation is applied, as upstream.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Operation(Map<String, Value>);

/// A patch that does not apply. Upstream's response does not say why, so there is no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected;

type Result<T> = std::result::Result<T, Rejected>;

/// Applies the operations to `document` in order.
///
/// # Errors
/// An operation does not apply. `document` is then partly changed.
pub fn apply(document: &mut Value, patch: &[Operation]) -> Result<()> {
    patch.iter().try_for_each(|operation| operation.apply(document))
}

impl Operation {
    fn apply(&self, document: &mut Value) -> Result<()> {
        let path = self.text("path");
        match self.text("op")? {
            "add" => find(document, path?)?.add(self.value()),
            "remove" => find(document, path?)?.remove().map(drop),
            "replace" if path?.is_empty() => match self.value() {
                value @ (Value::Object(_) | Value::Array(_)) => {
                    *document = value;
                    Ok(())
                }
                _ => Err(Rejected),
            },
            "replace" => find(document, path?)?.replace(self.value()),
            "move" => {
                let value = find(document, self.text("from")?)?.remove()?;
                find(document, path?)?.add(value)
            }
            "copy" => {
                let value = find(document, self.text("from")?)?.get()?;
                find(document, path?)?.add(value)
            }
            "test" => {
                let found = if path?.is_empty() { document.clone() } else { find(document, path?)?.get()? };
                if found == self.value() { Ok(()) } else { Err(Rejected) }
            }
            _ => Err(Rejected),
        }
    }

    fn text(&self, field: &str) -> Result<&str> {
        self.0.get(field).and_then(Value::as_str).ok_or(Rejected)
    }

    fn value(&self) -> Value {
        self.0.get("value").cloned().unwrap_or_default()
    }
}

/// The place that the last segment of a path names, which need not exist.
enum Place<'a> {
    Member(&'a mut Map<String, Value>, String),
    Element(&'a mut Vec<Value>, String),
}

/// Upstream's `findObject`: all segments but the last must exist. What precedes the first slash is ignored.
fn find<'a>(document: &'a mut Value, path: &str) -> Result<Place<'a>> {
    let (_, path) = path.split_once('/').ok_or(Rejected)?;
    let (parents, last) = path.rsplit_once('/').map_or((None, path), |(parents, last)| (Some(parents), last));
    let mut container = document;
    for segment in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let key = unescape(segment);
        container = match container {
            Value::Object(members) => members.get_mut(&key).ok_or(Rejected)?,
            Value::Array(elements) => {
                let index = index(&key, elements.len())?;
                elements.get_mut(index).ok_or(Rejected)?
            }
            _ => return Err(Rejected),
        };
    }
    match container {
        Value::Object(members) => Ok(Place::Member(members, unescape(last))),
        Value::Array(elements) => Ok(Place::Element(elements, unescape(last))),
        _ => Err(Rejected),
    }
}

impl Place<'_> {
    /// The value; null for a member that does not exist.
    fn get(self) -> Result<Value> {
        match self {
            Self::Member(members, key) => Ok(members.get(&key).cloned().unwrap_or_default()),
            Self::Element(elements, key) => {
                let index = index(&key, elements.len())?;
                elements.get(index).cloned().ok_or(Rejected)
            }
        }
    }

    fn add(self, value: Value) -> Result<()> {
        match self {
            Self::Member(members, key) => drop(members.insert(key, value)),
            Self::Element(elements, key) if key == "-" => elements.push(value),
            Self::Element(elements, key) => {
                // Negative indexes count from the end of the longer array.
                let size = elements.len() + 1;
                elements.insert(index(&key, size)?, value);
            }
        }
        Ok(())
    }

    fn replace(self, value: Value) -> Result<()> {
        match self {
            Self::Member(members, key) => drop(members.insert(key, value)),
            Self::Element(elements, key) => {
                let index = index(&key, elements.len())?;
                elements[index] = value;
            }
        }
        Ok(())
    }

    fn remove(self) -> Result<Value> {
        match self {
            Self::Member(members, key) => members.remove(&key).ok_or(Rejected),
            Self::Element(elements, key) => Ok(elements.remove(index(&key, elements.len())?)),
        }
    }
}

/// The index that `key` means in an array of `size` elements.
fn index(key: &str, size: usize) -> Result<usize> {
    let given: i64 = key.parse().map_err(|_| Rejected)?;
    let size = i64::try_from(size).map_err(|_| Rejected)?;
    let index = if given < 0 { given.saturating_add(size) } else { given };
    usize::try_from(index).ok().filter(|_| index < size).ok_or(Rejected)
}

fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: Value, patch: Value) -> Option<Value> {
        let patch: Vec<Operation> = serde_json::from_value(patch).unwrap();
        let mut document = document;
        apply(&mut document, &patch).ok().map(|()| document)
    }

    #[test]
    fn operations_do_what_upstreams_library_does() {
        let op = |op: &str, path: &str, value: Value| json!([{ "op": op, "path": path, "value": value }]);
        let table = [
            // As external-snapshotter marks a content that has no annotations yet.
            (
                json!({ "m": {} }),
                op("replace", "/m/a", json!({ "k": "v" })),
                Some(json!({ "m": { "a": { "k": "v" } } })),
            ),
            (json!({ "m": {} }), op("replace", "/n/a", json!(1)), None),
            (json!({ "m": null }), op("add", "/m/a", json!(1)), None),
            (json!({}), op("add", "/a~1b~0c", json!(1)), Some(json!({ "a/b~c": 1 }))),
            (json!({}), json!([{ "op": "add", "path": "/a" }]), Some(json!({ "a": null }))),
            (json!({ "a": 1 }), op("remove", "/a", json!(null)), Some(json!({}))),
            (json!({}), op("remove", "/a", json!(null)), None),
            (json!({ "a": [1, 2] }), op("add", "/a/-", json!(3)), Some(json!({ "a": [1, 2, 3] }))),
            (json!({ "a": [1, 2] }), op("add", "/a/0", json!(3)), Some(json!({ "a": [3, 1, 2] }))),
            (json!({ "a": [1, 2] }), op("add", "/a/2", json!(3)), Some(json!({ "a": [1, 2, 3] }))),
            (json!({ "a": [1, 2] }), op("add", "/a/3", json!(3)), None),
            (json!({ "a": [1, 2] }), op("add", "/a/-1", json!(3)), Some(json!({ "a": [1, 2, 3] }))),
            (json!({ "a": [1, 2] }), op("replace", "/a/-1", json!(3)), Some(json!({ "a": [1, 3] }))),
            (json!({ "a": [1, 2] }), op("replace", "/a/2", json!(3)), None),
            (json!({ "a": [1, 2] }), op("remove", "/a/-2", json!(null)), Some(json!({ "a": [2] }))),
            (json!({ "a": [{}] }), op("add", "/a/0/b", json!(1)), Some(json!({ "a": [{ "b": 1 }] }))),
            (json!({ "a": 1 }), op("test", "/a", json!(1)), Some(json!({ "a": 1 }))),
            (json!({ "a": 1 }), op("test", "/a", json!(2)), None),
            (json!({}), op("test", "/a", json!(null)), Some(json!({}))),
            (json!({}), op("test", "", json!({})), Some(json!({}))),
            (json!({ "a": 1 }), op("replace", "", json!({ "b": 1 })), Some(json!({ "b": 1 }))),
            (json!({ "a": 1 }), op("replace", "", json!("b")), None),
            (json!({ "a": 1 }), op("merge", "/a", json!("b")), None),
            (
                json!({ "a": 1 }),
                json!([{ "op": "move", "from": "/a", "path": "/b" }]),
                Some(json!({ "b": 1 })),
            ),
            (
                json!({ "a": 1 }),
                json!([{ "op": "copy", "from": "/a", "path": "/b" }]),
                Some(json!({ "a": 1, "b": 1 })),
            ),
            (json!({}), json!([{ "op": "copy", "from": "/a", "path": "/b" }]), Some(json!({ "b": null }))),
            (json!({}), json!([{ "op": "move", "from": "/a", "path": "/b" }]), None),
            (json!({}), json!([{ "op": "add", "path": 1 }]), None),
        ];
        for (document, patch, expected) in table {
            assert_eq!(patched(document.clone(), patch.clone()), expected, "{patch} on {document}");
        }
    }
}
