//! Sets of fields, and their `fieldsV1` representation.
//!
//! Mirrors structured-merge-diff fieldpath: a trie in which each node may be a member itself.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// One step of a path. Keys and values are kept as their JSON text, with the fields of keys ordered by name, so
/// that equal ones are equal texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A field of an object, or a key of a map.
    Field(String),
    /// An item of a list, by its keys: an object.
    Key(String),
    /// An item of a set, by its value.
    Value(String),
    /// An item of a list, by its position.
    Index(String),
}

impl Step {
    /// The field `name`.
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    fn read(text: &str) -> Option<Self> {
        let (sort, rest) = text.split_once(':')?;
        match sort {
            "f" => Some(Self::field(rest)),
            "k" => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                serde_json::to_string(&keys).ok().map(Self::Key)
            }
            "v" => serde_json::from_str::<Value>(rest).ok().map(|value| Self::Value(value.to_string())),
            "i" => Some(Self::Index(rest.to_owned())),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(BTreeMap<Step, SetEntry>);

/// The set's data at a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetEntry {
    /// Whether the path that ends here is in the set.
    pub member: bool,
    /// Longer paths through here.
    pub below: Set,
}

impl Set {
    /// Parses `fieldsV1`; `None` if it is invalid.
    pub fn read(value: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (step, below) in value.as_object()?.iter().filter(|(step, _)| *step != ".") {
            let member = below.as_object().is_some_and(|below| below.is_empty() || below.contains_key("."));
            set.put(Step::read(step)?, SetEntry { member, below: Self::read(below)? });
        }
        Some(set)
    }

    /// Formats the set as `fieldsV1`.
    pub fn write(&self) -> Value {
        let write = |place: &SetEntry| {
            let mut value = place.below.write();
            if let (true, Value::Object(below)) = (place.member && !place.below.is_empty(), &mut value) {
                below.shift_insert(0, ".".to_owned(), Value::Object(Map::new()));
            }
            value
        };
        Value::Object(self.0.iter().map(|(step, place)| (step.text(), write(place))).collect())
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its first steps.
    pub fn places(&self) -> impl Iterator<Item = (&Step, &SetEntry)> {
        self.0.iter()
    }

    /// Whether the path of this one step is in it.
    pub fn has(&self, step: &Step) -> bool {
        self.0.get(step).is_some_and(|place| place.member)
    }

    /// The remainders of the longer paths that begin with `step`.
    pub fn below(&self, step: &Step) -> Option<&Set> {
        self.0.get(step).map(|place| &place.below).filter(|below| !below.is_empty())
    }

    /// Adds one path.
    pub fn insert(&mut self, path: &[Step]) {
        if let [step, rest @ ..] = path {
            let place = self.0.entry(step.clone()).or_default();
            match rest {
                [] => place.member = true,
                rest => place.below.insert(rest),
            }
        }
    }

    /// Sets the data at `step`; empty data remove the step.
    pub fn put(&mut self, step: Step, place: SetEntry) {
        if place.member || !place.below.is_empty() {
            self.0.insert(step, place);
        }
    }

    /// Removes the path of field names `path`, and all paths that begin with it.
    pub fn cut(&mut self, path: &[&str]) {
        let [name, rest @ ..] = path else { return };
        let step = Step::field(name);
        let Some(mut place) = self.0.remove(&step) else { return };
        if !rest.is_empty() {
            place.below.cut(rest);
            self.put(step, place);
        }
    }

    /// Removes the path of field names `path`, but not those that continue from there.
    pub fn leave(&mut self, path: &[&str]) {
        let [name, rest @ ..] = path else { return };
        let step = Step::field(name);
        let Some(mut place) = self.0.remove(&step) else { return };
        match rest {
            [] => place.member = false,
            rest => place.below.leave(rest),
        }
        self.put(step, place);
    }

    /// The union.
    pub fn union(mut self, other: &Self) -> Self {
        for (step, right) in &other.0 {
            let left = self.0.entry(step.clone()).or_default();
            left.member |= right.member;
            left.below = std::mem::take(&mut left.below).union(&right.below);
        }
        self
    }

    /// The intersection.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |left, right| left && right, Self::intersection, |_| Self::default())
    }

    /// The difference.
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| left && !right, Self::difference, Self::clone)
    }

    fn combine(
        &self,
        other: &Self,
        member: fn(bool, bool) -> bool,
        both: fn(&Self, &Self) -> Self,
        alone: fn(&Self) -> Self,
    ) -> Self {
        let mut set = Self::default();
        for (step, left) in &self.0 {
            let place = match other.0.get(step) {
                Some(right) => SetEntry {
                    member: member(left.member, right.member),
                    below: both(&left.below, &right.below),
                },
                None => SetEntry { member: member(left.member, false), below: alone(&left.below) },
            };
            set.put(step.clone(), place);
        }
        set
    }

    /// All paths in the format of messages, the shorter of two first.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        let members = self.0.iter().filter(|(_, place)| place.member);
        paths.extend(members.map(|(step, _)| format!("{prefix}{step}")));
        for (step, place) in &self.0 {
            place.below.collect(&format!("{prefix}{step}"), paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Set {
        Set::read(&value).unwrap()
    }

    #[test]
    fn written_and_read_again_it_is_the_same() {
        for value in [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}),
            json!({"f:l": {"k:{\"name\":\"x\",\"port\":1}": {".": {}, "f:a": {}}, "v:\"s\"": {}, "i:3": {}}}),
        ] {
            assert_eq!(set(value.clone()).write(), value);
        }
        let unordered = set(json!({"k:{\"b\": 1, \"a\": 2}": {}}));
        assert_eq!(unordered, set(json!({"k:{\"a\":2,\"b\":1}": {}})));
        assert_eq!(Set::read(&json!({"x": {}})), None);
        assert_eq!(Set::read(&json!({"f:a": 1})), None);
    }

    #[test]
    fn operations() {
        let a = set(json!({"f:x": {".": {}, "f:y": {}}, "f:z": {}}));
        let b = set(json!({"f:x": {"f:y": {}, "f:w": {}}}));
        let union = json!({"f:x": {".": {}, "f:w": {}, "f:y": {}}, "f:z": {}});
        assert_eq!(a.clone().union(&b).write(), union);
        assert_eq!(a.intersection(&b).write(), json!({"f:x": {"f:y": {}}}));
        assert_eq!(a.difference(&b).write(), json!({"f:x": {}, "f:z": {}}));
        assert!(a.difference(&a).is_empty() && a.intersection(&Set::default()).is_empty());
    }

    #[test]
    fn parts_are_taken_out() {
        let mut all = set(json!({"f:metadata": {".": {}, "f:name": {}, "f:labels": {"f:a": {}}}, "f:s": {}}));
        all.leave(&["metadata"]);
        all.leave(&["metadata", "name"]);
        all.cut(&["s"]);
        assert_eq!(all.write(), json!({"f:metadata": {"f:labels": {"f:a": {}}}}));
        all.cut(&["metadata", "labels"]);
        assert!(all.is_empty());
    }

    #[test]
    fn paths_are_formatted_as_upstream() {
        let value = json!({"f:l": {"k:{\"name\":\"x\",\"port\":1}": {"f:a": {}}, "v:\"s\"": {}}, "f:z": {}});
        assert_eq!(set(value).paths(), [".z", ".l[=\"s\"]", ".l[name=\"x\",port=1].a"]);
    }
}
