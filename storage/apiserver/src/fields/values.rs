//! Values as sets of fields: the fields of an object, removal of fields, and comparison.
//!
//! Mirrors structured-merge-diff typed (toset.go, remove.go, compare.go). Values without a schema are atomic,
//! as upstream.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::{Set, SetEntry, Step};
use crate::schema::{Identity, Shape};

/// The step to an item of a list.
pub fn step_to(item: &Value, shape: &Shape, identity: &Identity) -> Step {
    match identity {
        Identity::Atomic | Identity::Value => Step::Value(item.to_string()),
        Identity::Keys(keys) => {
            let default = |key: &&'static str| {
                let field = shape.object().and_then(|object| object.fields.get(key));
                field.and_then(|field| field.default).map_or(Value::Null, Value::from)
            };
            let value = |key: &&'static str| match item.get(*key) {
                None | Some(Value::Null) => default(key),
                Some(value) => value.clone(),
            };
            let keys: BTreeMap<&str, Value> = keys.iter().map(|key| (*key, value(key))).collect();
            Step::Key(serde_json::to_string(&keys).expect("keys are texts"))
        }
    }
}

/// The fields that `value` has.
pub fn set_of(value: &Value, shape: &Shape) -> Set {
    entry_of(value, shape).below
}

fn entry_of(value: &Value, shape: &Shape) -> SetEntry {
    let whole = SetEntry { member: true, below: Set::default() };
    if shape.is_atomic() || value.is_null() {
        return whole;
    }
    let mut place = SetEntry::default();
    match (value, shape) {
        (Value::Array(items), Shape::List { item: item_shape, identity }) => {
            for item in items {
                let below = SetEntry { member: true, ..entry_of(item, item_shape) };
                place.below.put(step_to(item, item_shape, identity), below);
            }
        }
        (Value::Object(fields), _) if fields.is_empty() => return whole,
        (Value::Object(fields), _) => {
            for (name, value) in fields {
                let below = shape.field(name).map_or_else(|| whole.clone(), |shape| entry_of(value, shape));
                // The keys of a map are the author's too, the names of fields are not.
                let member = below.member || !shape.declares(name);
                place.below.put(Step::field(name), SetEntry { member, ..below });
            }
        }
        _ => return whole,
    }
    place
}

/// `set` with the fields of known objects on the path to its members: the owner of a field also owns, in this
/// sense, the objects around it.
pub fn with_ancestors(set: &Set, shape: Option<&Shape>) -> Set {
    let mut wider = Set::default();
    for (step, place) in set.places() {
        let below = match (step, shape) {
            (Step::Field(name), Some(shape)) => shape.field(name),
            (_, Some(Shape::List { item, .. })) => Some(&**item),
            _ => None,
        };
        let named = matches!(step, Step::Field(_))
            && shape.is_some_and(|shape| shape.object().is_some())
            && below.is_some()
            && !place.below.is_empty();
        let place = SetEntry { member: place.member || named, below: with_ancestors(&place.below, below) };
        wider.put(step.clone(), place);
    }
    wider
}

/// `value` without the fields in `removed`. An object that becomes empty is replaced by null.
pub fn without(value: &Value, shape: &Shape, removed: &Set) -> Value {
    if shape.is_atomic() {
        return value.clone();
    }
    match (value, shape) {
        (Value::Array(items), Shape::List { item: item_shape, identity }) => {
            let mut left = Vec::new();
            for item in items {
                let step = step_to(item, item_shape, identity);
                if removed.has(&step) {
                    continue;
                }
                left.push(
                    removed
                        .below(&step)
                        .map_or_else(|| item.clone(), |removed| without(item, item_shape, removed)),
                );
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (Value::Object(fields), _) => {
            let mut left = Map::new();
            for (name, value) in fields {
                let step = Step::field(name);
                if removed.has(&step) {
                    continue;
                }
                let value = match (removed.below(&step), shape.field(name)) {
                    (Some(removed), Some(shape)) => without(value, shape, removed),
                    _ => value.clone(),
                };
                left.insert(name.clone(), value);
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (value, _) => value.clone(),
    }
}

/// The difference of two objects.
#[derive(Debug, Default)]
pub struct Changes {
    /// Fields that only the new one has.
    pub added: Set,
    /// Fields that both have, with different values.
    pub modified: Set,
    /// Fields that only the old one has.
    pub removed: Set,
}

impl Changes {
    /// Compares two objects.
    pub fn between(old: &Value, new: &Value, shape: &Shape) -> Self {
        let mut changes = Self::default();
        changes.compare(Some(old), Some(new), Some(shape), &mut Vec::new());
        changes
    }

    /// The fields that the new object has and the old one had not.
    pub fn gained(&self) -> Set {
        self.added.clone().union(&self.modified)
    }

    fn compare(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: Option<&Shape>,
        path: &mut Vec<Step>,
    ) {
        if old.is_none() && new.is_none() {
            return;
        }
        let is_list = |value: Option<&Value>| value.is_some_and(Value::is_array);
        // A list without a schema is one value.
        let whole =
            |shape: &Shape| shape.is_atomic() || (*shape == Shape::Deduced && (is_list(old) || is_list(new)));
        if let Some(shape) = shape.filter(|shape| !whole(shape) && has_parts(old, new)) {
            self.compare_parts(old, new, shape, path);
        } else if let (Some(old), Some(new)) = (old, new) {
            if old != new {
                self.modified.insert(path);
            }
            return;
        }
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(_), Some(_)) => {}
        }
    }

    fn compare_parts(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: &Shape,
        path: &mut Vec<Step>,
    ) {
        if let Shape::List { item: item_shape, identity } = shape {
            let steps = |list: Option<&'_ Value>| -> Vec<Step> {
                items(list).iter().map(|item| step_to(item, item_shape, identity)).collect()
            };
            let (olds, news) = (steps(old), steps(new));
            let find = |list, steps: &[Step], step: &Step| {
                steps.iter().position(|other| other == step).map(|place| &items(list)[place])
            };
            let additional = news.iter().filter(|step| !olds.contains(step));
            for step in olds.iter().chain(additional) {
                path.push(step.clone());
                self.compare(find(old, &olds, step), find(new, &news, step), Some(item_shape), path);
                path.pop();
            }
            return;
        }
        let had = |name: &str| old.and_then(|old| old.get(name));
        let has = |name: &str| new.and_then(|new| new.get(name));
        let additional = fields(new).filter(|(name, _)| had(name).is_none());
        for (name, _) in fields(old).chain(additional) {
            path.push(Step::field(name));
            self.compare(had(name), has(name), shape.field(name), path);
            path.pop();
        }
    }
}

fn fields(object: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    object.and_then(Value::as_object).into_iter().flatten()
}

fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether it has anything inside to compare: two empty values are compared as a whole.
fn has_parts(old: Option<&Value>, new: Option<&Value>) -> bool {
    [old, new].into_iter().flatten().any(|value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    })
}
