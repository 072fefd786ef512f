//! Merges an applied object into the existing one.
//!
//! Mirrors structured-merge-diff typed/merge.go.

use serde_json::{Map, Value};

use super::set::Step;
use super::values::step_to;
use crate::schema::{Identity, Shape};

/// `live` with all fields of `applied`.
pub fn merge(live: &Value, applied: &Value, shape: &Shape) -> Value {
    if shape.is_atomic() {
        return applied.clone();
    }
    match (live, applied, shape) {
        (Value::Array(live), Value::Array(applied), Shape::List { item, identity }) => {
            Value::Array(merge_lists(live, applied, item, identity))
        }
        (Value::Object(live), Value::Object(applied), _) => {
            let mut merged: Map<String, Value> = live.clone();
            for (name, value) in applied {
                let below = live.get(name).zip(shape.field(name));
                let value = below.map_or_else(|| value.clone(), |(live, shape)| merge(live, value, shape));
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        // Null leaves a value with parts unchanged.
        (Value::Array(_) | Value::Object(_), Value::Null, _) => live.clone(),
        (_, applied, _) => applied.clone(),
    }
}

/// Items are ordered as in the applied list. Those that only the live list has keep their place before the item
/// that followed them.
fn merge_lists(live: &[Value], applied: &[Value], shape: &Shape, identity: &Identity) -> Vec<Value> {
    let steps =
        |items: &[Value]| -> Vec<Step> { items.iter().map(|item| step_to(item, shape, identity)).collect() };
    let (live_steps, applied_steps) = (steps(live), steps(applied));
    let only_live = |place: usize| !applied_steps.contains(&live_steps[place]);
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    let mut next = 0;
    for (item, step) in applied.iter().zip(&applied_steps) {
        let mut found = live_steps.iter().enumerate().filter(|(_, other)| *other == step);
        let (place, duplicate) = (found.next().map(|(place, _)| place), found.next().is_some());
        let end = match place {
            Some(place) => place.max(next),
            None => (next..live.len()).find(|place| !only_live(*place)).unwrap_or(live.len()),
        };
        merged.extend((next..end).filter(|place| only_live(*place)).map(|place| live[place].clone()));
        next = next.max(place.map_or(end, |place| place + 1));
        merged.push(match place {
            // Of two live items with the same key none is the one that is meant.
            Some(place) if !duplicate => merge(&live[place], item, shape),
            _ => item.clone(),
        });
    }
    merged.extend((next..live.len()).filter(|place| only_live(*place)).map(|place| live[place].clone()));
    merged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::kind_shape;

    #[test]
    fn objects_merge_by_their_shape() {
        let shape = kind_shape("", "Pod").unwrap();
        let spec = |live: Value, applied: Value| {
            merge(&json!({ "spec": live }), &json!({ "spec": applied }), shape)["spec"].clone()
        };
        let table = [
            (
                "atomic lists are replaced",
                json!({"tolerations": [{"key": "a"}]}),
                json!({"tolerations": [{"key": "b"}]}),
                json!({"tolerations": [{"key": "b"}]}),
            ),
            (
                "atomic maps are replaced",
                json!({"nodeSelector": {"a": "1"}}),
                json!({"nodeSelector": {"b": "2"}}),
                json!({"nodeSelector": {"b": "2"}}),
            ),
            (
                "keyed items merge",
                json!({"containers": [{"name": "a", "image": "x", "tty": true}]}),
                json!({"containers": [{"name": "a", "image": "y"}]}),
                json!({"containers": [{"name": "a", "image": "y", "tty": true}]}),
            ),
            (
                "two keys",
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "protocol": "TCP"}]}]}),
                json!({"containers": [{"name": "a", "ports": [
                    {"containerPort": 1, "name": "n"}, {"containerPort": 1, "protocol": "UDP"}]}]}),
                json!({"containers": [{"name": "a", "ports": [
                    {"containerPort": 1, "protocol": "TCP", "name": "n"}, {"containerPort": 1, "protocol": "UDP"}]}]}),
            ),
            (
                "objects that are references are replaced",
                json!({"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "a"}}}]}),
                json!({"volumes": [{"name": "v", "csi": {"nodePublishSecretRef": {}}}]}),
                json!({"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {}}}]}),
            ),
            (
                "null says nothing",
                json!({"volumes": [{"name": "v"}]}),
                json!({"volumes": null}),
                json!({"volumes": [{"name": "v"}]}),
            ),
        ];
        for (what, live, applied, expected) in table {
            assert_eq!(spec(live, applied), expected, "{what}");
        }
    }

    #[test]
    fn lists_keep_the_applied_order() {
        let shape = kind_shape("", "Pod").unwrap();
        let names = |names: &str| -> Value {
            names.chars().map(|name| json!({ "name": name.to_string() })).collect()
        };
        for (live, applied, expected) in [
            ("", "ab", "ab"),
            ("ab", "", "ab"),
            ("abc", "ca", "bca"),
            ("xa", "na", "xna"),
            ("ab", "ba", "ba"),
            ("axb", "ab", "axb"),
            ("axbyc", "cb", "axycb"),
            ("aabc", "a", "abc"),
        ] {
            let object = |list| json!({ "spec": { "volumes": names(list) } });
            let merged = merge(&object(live), &object(applied), shape);
            assert_eq!(merged["spec"]["volumes"], names(expected), "{live} and {applied}");
        }
    }
}
