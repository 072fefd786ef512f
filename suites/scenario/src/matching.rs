//! Whether an object has what a step expects, and what differs if it has not.

use serde_json::Value;

/// Whether an object has all these fields; each item of a list must have a counterpart of its own. `null` stands for a field that
/// is absent, and the text `*` for any value.
pub fn matches(object: &Value, has: &Value) -> bool {
    match has {
        Value::Null => object.is_null(),
        Value::String(any) if any == "*" => !object.is_null(),
        Value::Object(fields) if fields.is_empty() => object.is_object(),
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| matches(object.get(key).unwrap_or(&Value::Null), value))
        }
        Value::Array(items) => {
            let of = object.as_array().map(Vec::as_slice).unwrap_or_default();
            if items.is_empty() {
                of.is_empty()
            } else {
                let fits: Vec<Vec<usize>> = items
                    .iter()
                    .map(|item| (0..of.len()).filter(|one| matches(&of[*one], item)).collect())
                    .collect();
                each_has_its_own(&fits, of.len())
            }
        }
        plain => object == plain,
    }
}

/// Whether each item can have another of the counterparts that fit it (augmenting paths of a bipartite graph).
fn each_has_its_own(fits: &[Vec<usize>], counterparts: usize) -> bool {
    fn take(item: usize, fits: &[Vec<usize>], tried: &mut [bool], taken: &mut [Option<usize>]) -> bool {
        fits[item].iter().any(|one| {
            if std::mem::replace(&mut tried[*one], true) {
                return false;
            }
            let is_free = taken[*one].is_none_or(|other| take(other, fits, tried, taken));
            if is_free {
                taken[*one] = Some(item);
            }
            is_free
        })
    }
    let mut taken = vec![None; counterparts];
    (0..fits.len()).all(|item| take(item, fits, &mut vec![false; counterparts], &mut taken))
}

/// The fields of `has` that an object does not have, each with what is expected and what was seen.
pub fn mismatches(object: &Value, has: &Value) -> Vec<Mismatch> {
    let mut found = Vec::new();
    collect(object, has, "", &mut found);
    found
}

/// A field that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its path, with dots.
    pub path: String,
    /// As JSON, or `nothing`.
    pub expected: String,
    /// As JSON, or `nothing`.
    pub seen: String,
}

fn collect(object: &Value, has: &Value, path: &str, found: &mut Vec<Mismatch>) {
    match has {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(object.get(key).unwrap_or(&Value::Null), value, &path, found);
            }
        }
        _ if matches(object, has) => {}
        _ => found.push(Mismatch { path: path.to_owned(), expected: words(has), seen: words(object) }),
    }
}

fn words(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_have_what_is_named_and_null_is_absent() {
        let object = json!({ "a": [{ "t": "x", "s": 1 }, { "t": "y" }], "b": "c" });
        for (has, expected) in [
            (json!({ "a": [{ "t": "y" }] }), true),
            (json!({ "a": [{ "t": "x", "s": 2 }] }), false),
            (json!({ "a": [] }), false),
            (json!({ "a": ["*", { "t": "x" }] }), true),
            (json!({ "a": [{ "t": "x" }, { "t": "x" }] }), false),
            (json!({ "a": ["*", "*", "*"] }), false),
            (json!({ "b": "c", "d": null }), true),
            (json!({ "b": null }), false),
            (json!({ "b": "*", "a": "*" }), true),
            (json!({ "d": "*" }), false),
        ] {
            assert_eq!(matches(&object, &has), expected, "{has}");
        }
    }

    #[test]
    fn a_mismatch_is_named_by_its_path() {
        let object = json!({ "status": { "phase": "Pending" } });
        let found =
            mismatches(&object, &json!({ "status": { "phase": "Bound", "capacity": {} }, "spec": null }));
        let of = |path: &str, expected: &str, seen: &str| Mismatch {
            path: path.to_owned(),
            expected: expected.to_owned(),
            seen: seen.to_owned(),
        };
        assert_eq!(
            found,
            [of("status.phase", "\"Bound\"", "\"Pending\""), of("status.capacity", "{}", "nothing")]
        );
    }
}
