//! Strategic merge patch: a merge patch that uses the merge keys of Kubernetes lists.
//!
//! Mirrors apimachinery pkg/util/strategicpatch. The keys are in `schema`; a list without one is replaced.

use serde_json::{Map, Value};

use crate::schema::{Patch, Shape};

/// Why a patch cannot be applied.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum MergeError {
    /// An item of a keyed list lacks its key.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoKey {
        /// The item.
        item: String,
        /// The field that identifies items.
        key: &'static str,
    },
    /// An unknown `$patch` directive.
    #[error("unknown patch type: {0}")]
    UnknownDirective(String),
}

/// The patch strategy of a list: a field without a schema is replaced.
fn patch_of(shape: Option<&Shape>, field: &str) -> &'static Patch {
    let object = shape.and_then(Shape::object);
    object.and_then(|object| object.fields.get(field)).map_or(&Patch::Replace, |field| &field.patch)
}

/// The type of a field, or of the items of a list.
fn below<'a>(shape: Option<&'a Shape>, field: &str) -> Option<&'a Shape> {
    match shape?.field(field)? {
        Shape::List { item, .. } => Some(item),
        shape => Some(shape),
    }
}

/// `original`, an object of type `shape`, with `patch` applied.
pub fn merge(original: Value, patch: &Value, shape: Option<&Shape>) -> Result<Value, MergeError> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => {
            Ok(Value::Object(merge_objects(original, patch, shape)?))
        }
        (_, Value::Object(patch)) => Ok(Value::Object(merge_objects(Map::new(), patch, shape)?)),
        (_, other) => Ok(other.clone()),
    }
}

fn merge_objects(
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
    shape: Option<&Shape>,
) -> Result<Map<String, Value>, MergeError> {
    match patch.get("$patch").and_then(Value::as_str) {
        None | Some("merge") => {}
        Some("replace") => return Ok(without_directives(patch)),
        Some("delete") => return Ok(Map::new()),
        Some(other) => return Err(MergeError::UnknownDirective(other.to_owned())),
    }
    if let Some(Value::Array(keys)) = patch.get("$retainKeys") {
        original.retain(|name, _| keys.iter().any(|key| key == name));
    }
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(deleted)) = (original.get_mut(field), value) {
                items.retain(|item| !deleted.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        if value.is_null() {
            original.shift_remove(name);
            continue;
        }
        let old = original.get_mut(name).map(Value::take).unwrap_or_default();
        let below = below(shape, name);
        let new = match (old, value) {
            (Value::Array(old), Value::Array(items)) => {
                let order = patch.get(&format!("$setElementOrder/{name}")).and_then(Value::as_array);
                Value::Array(merge_lists(patch_of(shape, name), old, items, order, below)?)
            }
            (Value::Null, Value::Array(items)) => {
                Value::Array(merge_lists(patch_of(shape, name), Vec::new(), items, None, below)?)
            }
            (old, value) => merge(old, value, below)?,
        };
        original.insert(name.clone(), new);
    }
    // An order may be given for a list that is otherwise left alone.
    for (name, order) in patch {
        let field = name.strip_prefix("$setElementOrder/").filter(|field| !patch.contains_key(*field));
        if let (Some(field), Value::Array(order)) = (field, order)
            && let Some(Value::Array(items)) = original.get_mut(field)
        {
            let merged = std::mem::take(items);
            *items = arrange(patch_of(shape, field), merged.clone(), &merged, order);
        }
    }
    Ok(original)
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(name, _)| !name.starts_with('$')).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn merge_lists(
    strategy: &Patch,
    original: Vec<Value>,
    patch: &[Value],
    order: Option<&Vec<Value>>,
    below: Option<&Shape>,
) -> Result<Vec<Value>, MergeError> {
    let merged = match strategy {
        Patch::Replace => return Ok(patch.to_vec()),
        Patch::Merge => {
            let mut merged = original.clone();
            for item in patch {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            merged
        }
        Patch::ByKey { key, .. } => match merge_keyed(key, original.clone(), patch, below)? {
            Keyed::Merged(merged) => merged,
            Keyed::Replaced(items) => return Ok(items),
        },
    };
    Ok(arrange(strategy, merged, &original, order.map_or(patch, Vec::as_slice)))
}

enum Keyed {
    Merged(Vec<Value>),
    Replaced(Vec<Value>),
}

fn merge_keyed(
    key: &'static str,
    original: Vec<Value>,
    patch: &[Value],
    below: Option<&Shape>,
) -> Result<Keyed, MergeError> {
    // One directive among the items turns the whole list into a replacement.
    if patch.iter().any(|item| item["$patch"] == "replace") {
        let items = patch.iter().filter(|item| item["$patch"] != "replace");
        return Ok(Keyed::Replaced(items.cloned().collect()));
    }
    let mut merged = original;
    for item in patch {
        let id = &item[key];
        if id.is_null() {
            return Err(MergeError::NoKey { item: item.to_string(), key });
        }
        let place = merged.iter().position(|other| other[key] == *id);
        match (place, item["$patch"].as_str()) {
            (Some(place), Some("delete")) => drop(merged.remove(place)),
            (None, Some("delete")) => {}
            (Some(place), _) => merged[place] = merge(merged[place].take(), item, below)?,
            (None, _) => merged.push(merge(Value::Null, item, below)?),
        }
    }
    Ok(Keyed::Merged(merged))
}

/// Orders merged items: those in `order` as listed there, the others as before, and of two candidates the
/// listed one first unless the original had them the other way round.
fn arrange(strategy: &Patch, merged: Vec<Value>, original: &[Value], order: &[Value]) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match strategy {
        Patch::ByKey { key, .. } => a[*key] == b[*key],
        Patch::Merge | Patch::Replace => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    for other in others {
        while let Some(candidate) = named.peek() {
            let before = match (place(original, &other), place(original, candidate)) {
                (Some(other), Some(candidate)) => other < candidate,
                _ => false,
            };
            if before {
                break;
            }
            arranged.extend(named.next());
        }
        arranged.push(other);
    }
    arranged.extend(named);
    arranged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::kind_shape;

    /// The part of a pod with the field `name`.
    fn shape_with(name: &str) -> Option<&'static Shape> {
        let pod = kind_shape("", "Pod").unwrap();
        let spec = pod.field("spec");
        let parts = [spec, pod.field("metadata"), pod.field("status"), below(spec, "containers")];
        parts.into_iter().flatten().find(|shape| shape.field(name).is_some())
    }

    #[test]
    fn patches() {
        let table = [
            (
                "a map merges",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"c": null, "d": 3}}),
                json!({"a": {"b": 1, "d": 3}}),
            ),
            ("a plain list is replaced", json!({"args": [1, 2]}), json!({"args": [3]}), json!({"args": [3]})),
            (
                "finalizers are a set",
                json!({"finalizers": ["a"]}),
                json!({"finalizers": ["b", "a"]}),
                json!({"finalizers": ["b", "a"]}),
            ),
            (
                "a new finalizer goes first",
                json!({"finalizers": ["a"]}),
                json!({"finalizers": ["b"]}),
                json!({"finalizers": ["b", "a"]}),
            ),
            (
                "scalars leave a set",
                json!({"finalizers": ["a", "b"]}),
                json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}),
                json!({"finalizers": ["b"]}),
            ),
            (
                "conditions merge by type",
                json!({"conditions": [{"type": "A", "status": "False", "x": 1}, {"type": "B"}]}),
                json!({"conditions": [{"type": "A", "status": "True"}], "$setElementOrder/conditions": [{"type": "A"}, {"type": "B"}]}),
                json!({"conditions": [{"type": "A", "status": "True", "x": 1}, {"type": "B"}]}),
            ),
            (
                "an item is deleted",
                json!({"volumes": [{"name": "a"}, {"name": "b"}]}),
                json!({"volumes": [{"name": "a", "$patch": "delete"}]}),
                json!({"volumes": [{"name": "b"}]}),
            ),
            (
                "a list is replaced on demand",
                json!({"volumes": [{"name": "a"}, {"name": "b"}]}),
                json!({"volumes": [{"$patch": "replace"}, {"name": "c"}]}),
                json!({"volumes": [{"name": "c"}]}),
            ),
            (
                "a map is replaced on demand",
                json!({"spec": {"a": 1}}),
                json!({"spec": {"$patch": "replace", "b": 2}}),
                json!({"spec": {"b": 2}}),
            ),
            (
                "other keys of a union go",
                json!({"volumes": [{"name": "a", "emptyDir": {}}]}),
                json!({"volumes": [{"name": "a", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}),
                json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
            ),
            (
                "an order alone",
                json!({"env": [{"name": "a"}, {"name": "b"}]}),
                json!({"$setElementOrder/env": [{"name": "b"}, {"name": "a"}]}),
                json!({"env": [{"name": "b"}, {"name": "a"}]}),
            ),
        ];
        for (what, original, patch, expected) in table {
            let shape = shape_with(original.as_object().unwrap().keys().next().unwrap());
            assert_eq!(merge(original, &patch, shape).unwrap(), expected, "{what}");
        }
    }

    #[test]
    fn errors_name_the_fault() {
        let patch = json!({"volumes": [{"emptyDir": {}}]});
        let error = merge(json!({"volumes": []}), &patch, shape_with("volumes")).unwrap_err();
        assert!(matches!(error, MergeError::NoKey { key: "name", .. }));
        let error = merge(json!({}), &json!({"$patch": "x"}), None).unwrap_err();
        assert_eq!(error, MergeError::UnknownDirective("x".to_owned()));
    }
}
