//! The JSON paths of columns and selectable fields: fields, items of lists, and items of which a field has a value.
//!
//! Like client-go util/jsonpath, without slices, unions, `..` and other comparisons than `==`. A column with such a path is
//! not shown.

use serde_json::Value;

/// A path to values in an object.
#[derive(Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// An item of a list; negative from its end.
    Item(i64),
    /// All items.
    Every,
    /// The items of which the path has the value.
    Where(JsonPath, Value),
}

impl JsonPath {
    /// Parses e.g. `.status.conditions[?(@.type=="Ready")].status`; none if the path is invalid or not supported.
    pub fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(bracket) = rest.strip_prefix('[') {
                let (inner, after) = split_bracket(bracket)?;
                steps.extend(parse_bracket(inner)?);
                rest = after;
            } else {
                let (name, after) = split_field(rest.strip_prefix('.')?);
                match name.as_str() {
                    // The whole object.
                    "" if after.is_empty() || after.starts_with('[') => {}
                    "" => return None,
                    "*" => steps.push(Step::Every),
                    _ => steps.push(Step::Field(name)),
                }
                rest = after;
            }
        }
        Some(Self(steps))
    }

    /// The JSON pointer of a path of fields only.
    pub fn pointer(&self) -> Option<String> {
        let parts = self.0.iter().map(|step| match step {
            Step::Field(name) => Some(format!("/{}", name.replace('~', "~0").replace('/', "~1"))),
            Step::Item(_) | Step::Every | Step::Where(..) => None,
        });
        parts.collect()
    }

    /// The values in an object.
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut values = vec![object];
        for step in &self.0 {
            values = values.into_iter().flat_map(|value| step.find(value)).collect();
        }
        values
    }
}

impl Step {
    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Every, Value::Object(fields)) => fields.values().collect(),
            (Self::Every, Value::Array(items)) => items.iter().collect(),
            (Self::Item(index), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { length.saturating_add(*index) } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            (Self::Where(path, expected), Value::Array(items)) => {
                items.iter().filter(|item| path.find(item).contains(&expected)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The name of a field, in which a backslash escapes a dot, and what follows it.
fn split_field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// The content of a bracket, and what follows it.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return Some((&text[..at], &text[at + 1..])),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

fn parse_bracket(text: &str) -> Option<Vec<Step>> {
    if text == "*" {
        return Some(vec![Step::Every]);
    }
    if let Some(condition) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let (left, right) = condition.split_once("==")?;
        let path = JsonPath::parse(left.trim().strip_prefix('@')?)?;
        let value = match quoted(right.trim()) {
            Some(text) => text.into(),
            None => serde_json::from_str(right.trim()).ok()?,
        };
        return Some(vec![Step::Where(path, value)]);
    }
    match quoted(text) {
        // As upstream, a dot in a key is escaped here, too.
        Some(key) => Some(JsonPath::parse(&format!(".{key}"))?.0),
        None => Some(vec![Step::Item(text.parse().ok()?)]),
    }
}

/// The text between quotes.
fn quoted(text: &str) -> Option<&str> {
    let inner =
        |quote: char| text.strip_prefix(quote)?.strip_suffix(quote).filter(|text| !text.contains(quote));
    inner('\'').or_else(|| inner('"'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_values() {
        let object = json!({
            "metadata": { "annotations": { "a.b/c": "x" } },
            "list": [{ "v": 1, "ok": true }, { "v": 2 }, { "v": 3.5, "name": "c" }],
            "status": { "conditions": [{ "type": "A", "status": "no" }, { "type": "Ready", "status": "yes" }] },
        });
        let table = [
            (".list[0].v", json!([1])),
            (".list[-1].v", json!([3.5])),
            (".list[9].v", json!([])),
            (".list[*].v", json!([1, 2, 3.5])),
            (".list[?(@.ok==true)].v", json!([1])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["yes"])),
            (".status.conditions[?(@.type == 'Ready')].status", json!(["yes"])),
            (".status.conditions[?(@.type=='None')].status", json!([])),
            (".metadata.annotations.a\\.b/c", json!(["x"])),
            (".metadata.annotations['a\\.b/c']", json!(["x"])),
            (".missing.more", json!([])),
            (".metadata.annotations.*", json!(["x"])),
        ];
        for (path, expected) in table {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            let found: Value = parsed.find(&object).into_iter().cloned().collect();
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(JsonPath::parse(".").unwrap().find(&object), [&object]);
        assert_eq!(JsonPath::parse(".spec.color").unwrap().pointer(), Some("/spec/color".to_owned()));
        assert_eq!(JsonPath::parse(".spec[0]").unwrap().pointer(), None);
    }

    #[test]
    fn other_paths_are_not_parsed() {
        for path in [".a[0", ".a[x]", ".a[?(@.b", ".a[?(@.b!='c')]", ".a[0:2]", ".a['b','c']", "..a", "spec"]
        {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
