//! Fields of messages by path, and the changes that rows make to them.

use serde_json::{Map, Value, json};

use crate::row::{Change, Like, Predicate};

/// The fields at a path: several, if it contains `*`.
pub(crate) fn at<'a>(message: &'a Value, path: &str) -> Vec<&'a Value> {
    if path.is_empty() {
        return vec![message];
    }
    walk(message, &parts(path))
}

/// The parts of a path. A dot within a name has a backslash before it.
fn parts(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in path.split('.') {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push('.');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

fn walk<'a>(message: &'a Value, parts: &[String]) -> Vec<&'a Value> {
    let step = |found: Vec<&'a Value>, part: &String| {
        found.into_iter().flat_map(|value| step(value, part)).collect()
    };
    parts.iter().fold(vec![message], step)
}

fn step<'a>(value: &'a Value, part: &str) -> Vec<&'a Value> {
    match value {
        Value::Array(entries) if part == "*" => entries.iter().collect(),
        Value::Array(entries) => {
            part.parse().ok().and_then(|nth: usize| entries.get(nth)).into_iter().collect()
        }
        Value::Object(fields) => fields.get(part).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The text at a path; empty if there is none.
pub(crate) fn text<'a>(message: &'a Value, path: &str) -> &'a str {
    at(message, path).first().and_then(|value| value.as_str()).unwrap_or_default()
}

/// Applies `change` to the fields at a path; creates messages on the way.
fn change_at(value: &mut Value, path: &[String], change: &mut dyn FnMut(&mut Value)) {
    let Some((part, rest)) = path.split_first() else { return change(value) };
    match value {
        Value::Array(entries) if part == "*" => {
            entries.iter_mut().for_each(|entry| change_at(entry, rest, change));
        }
        Value::Array(entries) => {
            let entry = part.parse().ok().and_then(|nth: usize| entries.get_mut(nth));
            entry.into_iter().for_each(|entry| change_at(entry, rest, change));
        }
        Value::Object(fields) => {
            let field = fields.entry(part.to_owned()).or_insert(Value::Null);
            change_at(field, rest, change);
        }
        Value::Null => {
            *value = Value::Object(Map::new());
            change_at(value, std::slice::from_ref(part), &mut |field| change_at(field, rest, change));
        }
        _ => {}
    }
}

/// Removes the fields at a path.
fn remove(value: &mut Value, path: &[String]) {
    let [parents @ .., last] = path else { return };
    if walk(value, parents).is_empty() {
        return;
    }
    change_at(value, parents, &mut |parent| {
        if let Value::Object(fields) = parent {
            fields.remove(last);
        }
    });
}

/// What a change may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    pub request: &'a Value,
    /// The first answer for the same object.
    pub first: Option<&'a Value>,
    /// The answer for the other object that the change names.
    pub other: Option<&'a Value>,
}

/// Makes the changes of a row.
pub(crate) fn change(message: &mut Value, change: &Change, around: Around<'_>) {
    if let (Some(_), Some(other)) = (change.from, around.other) {
        *message = other.clone();
    }
    for path in &change.drop {
        remove(message, &parts(path));
    }
    let mut lists = |paths: Vec<&String>, edit: &mut dyn FnMut(&str, &mut Vec<Value>)| {
        for path in paths {
            change_at(message, &parts(path), &mut |value| {
                if let Value::Array(entries) = value {
                    edit(path, entries);
                }
            });
        }
    };
    lists(change.keep.keys().collect(), &mut |path, entries| entries.truncate(change.keep[path]));
    lists(change.shorten.iter().collect(), &mut |_, entries| drop(entries.pop()));
    lists(change.double.iter().collect(), &mut |_, entries| {
        let first = entries.first().cloned();
        entries.extend(first);
    });
    lists(change.without.keys().collect(), &mut |path, entries| {
        let lost = |entry: &Value| {
            change.without[path].iter().all(|(field, value)| at(entry, field).contains(&value))
        };
        entries.retain(|entry| !lost(entry));
    });
    lists(change.add.keys().collect(), &mut |path, entries| entries.push(change.add[path].clone()));
    lists(change.reverse.iter().collect(), &mut |_, entries| entries.reverse());
    for (path, value) in &change.set {
        change_at(message, &parts(path), &mut |field| {
            *field = new_value(field, value, around);
        });
    }
    prune(message);
}

/// Messages that are null are not set.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(prune);
        }
        Value::Array(entries) => entries.iter_mut().for_each(prune),
        _ => {}
    }
}

/// The value that a row sets.
fn new_value(old: &Value, value: &Value, around: Around<'_>) -> Value {
    let [(key, operand)] = &value.as_object().into_iter().flatten().collect::<Vec<_>>()[..] else {
        return value.clone();
    };
    let number = old.as_i64().unwrap_or_default();
    match key.as_str() {
        "times" => json!((number as f64 * operand.as_f64().unwrap_or(1.0)) as i64),
        "plus" => json!(number.saturating_add(operand.as_i64().unwrap_or_default())),
        "append" => {
            json!(format!("{}{}", old.as_str().unwrap_or_default(), operand.as_str().unwrap_or_default()))
        }
        "replace" => {
            let word = |nth: usize| operand[nth].as_str().unwrap_or_default();
            json!(old.as_str().unwrap_or_default().replace(word(0), word(1)))
        }
        "fill" => {
            json!("x".repeat(operand.as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or_default()))
        }
        "request" => one(around.request, operand),
        "first" => around.first.map_or(Value::Null, |first| one(first, operand)),
        _ => value.clone(),
    }
}

fn one(message: &Value, path: &Value) -> Value {
    at(message, path.as_str().unwrap_or_default()).first().map_or(Value::Null, |value| (*value).clone())
}

/// Whether fields satisfy a condition; `first` is the request of the first call for the same object.
pub(crate) fn satisfies(request: &Value, path: &str, predicate: &Predicate, first: Option<&Value>) -> bool {
    let found = at(request, path);
    match predicate {
        Predicate::Present => found.iter().any(|value| is_set(value)),
        Predicate::Absent => !found.iter().any(|value| is_set(value)),
        Predicate::Is(expected) if !is_set(expected) => !found.iter().any(|value| is_set(value)),
        Predicate::Is(expected) => found.contains(&expected),
        Predicate::Like(like) => {
            let null = Value::Null;
            let value = found.first().copied().unwrap_or(&null);
            let before = first.map(|first| at(first, path).first().copied().unwrap_or(&null));
            let same = like.same_as.as_ref().is_none_or(|other| at(request, other).contains(&value));
            same && is_like(value, like, before)
        }
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(entries) => !entries.is_empty(),
        Value::Object(_) | Value::Bool(true) => true,
    }
}

fn is_like(value: &Value, like: &Like, first: Option<&Value>) -> bool {
    let text = value.as_str().unwrap_or_default();
    let number = value.as_i64().unwrap_or_default();
    let words = |expected: &Option<String>, is: fn(&str, &str) -> bool| {
        expected.as_ref().is_none_or(|expected| is(text, expected))
    };
    words(&like.starts_with, |text, start| text.starts_with(start))
        && words(&like.ends_with, |text, end| text.ends_with(end))
        && words(&like.contains, |text, part| text.contains(part))
        && like.less.is_none_or(|limit| number < limit)
        && like.more.is_none_or(|limit| number > limit)
        && like.one_of.as_ref().is_none_or(|values| values.contains(value))
        && like.is_not.as_ref().is_none_or(|other| other != value)
        && like.differs.is_none_or(|differs| first.is_some_and(|first| (first != value) == differs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(request: &Value) -> Around<'_> {
        Around { request, first: None, other: None }
    }

    #[test]
    fn fields_are_changed_by_path() {
        let request = json!({ "name": "a" });
        let apply = |message: Value, row: Value| {
            let mut message = message;
            change(&mut message, &serde_json::from_value(row).unwrap(), around(&request));
            message
        };
        let table = [
            (json!({"v": {"n": 8}}), json!({"set": {"v.n": {"times": 0.5}}}), json!({"v": {"n": 4}})),
            (json!({}), json!({"set": {"v.n": 1}}), json!({"v": {"n": 1}})),
            (json!({"v": {"n": 1, "m": 2}}), json!({"drop": ["v.n", "w.x"]}), json!({"v": {"m": 2}})),
            (json!({"e": [1, 2, 3]}), json!({"keep": {"e": 1}}), json!({"e": [1]})),
            (json!({"e": [1, 2]}), json!({"double": "e"}), json!({"e": [1, 2, 1]})),
            (json!({"e": [{"a": {"b": 1}}, {}]}), json!({"without": {"e": {"a.b": 1}}}), json!({"e": [{}]})),
            (json!({"e": [1, 2]}), json!({"reverse": ["e"]}), json!({"e": [2, 1]})),
            (
                json!({"e": [{"v": {"id": "x"}}, {"v": {"id": "y"}}]}),
                json!({"set": {"e.*.v.id": {"append": "2"}}}),
                json!({"e": [{"v": {"id": "x2"}}, {"v": {"id": "y2"}}]}),
            ),
            (json!({}), json!({"set": {"of": {"request": "name"}}}), json!({"of": "a"})),
            (json!({}), json!({"set": {"of": {"fill": 3}}}), json!({"of": "xxx"})),
            (json!({"a": 1}), json!({"set": {"b.c": {"first": "none"}}}), json!({"a": 1, "b": {}})),
        ];
        for (before, row, after) in table {
            assert_eq!(apply(before.clone(), row.clone()), after, "{before} {row}");
        }
    }

    #[test]
    fn conditions_are_about_fields() {
        let request =
            json!({"name": "pvc-a1", "readonly": true, "range": {"required_bytes": 7}, "source": {"a": {}}});
        let first = json!({"name": "pvc-a1", "readonly": false, "range": {"required_bytes": 7}});
        let holds = |path: &str, predicate: Value| {
            satisfies(&request, path, &serde_json::from_value(predicate).unwrap(), Some(&first))
        };
        let yes = [
            ("name", json!({"ends_with": "-a1"})),
            ("readonly", json!(true)),
            ("readonly", json!({"differs": true})),
            ("name", json!({"same_as": "name"})),
            ("range.required_bytes", json!({"more": 6, "less": 8, "differs": false})),
            ("source.a", json!("present")),
            ("source.b", json!("absent")),
            ("missing", json!(false)),
        ];
        let no = [
            ("name", json!({"starts_with": "x"})),
            ("readonly", json!(false)),
            ("name", json!({"same_as": "source"})),
            ("source.a", json!("absent")),
            ("range.required_bytes", json!({"more": 7})),
        ];
        for (path, predicate) in yes {
            assert!(holds(path, predicate.clone()), "{path} {predicate}");
        }
        for (path, predicate) in no {
            assert!(!holds(path, predicate.clone()), "{path} {predicate}");
        }
    }
}
