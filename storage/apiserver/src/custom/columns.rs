//! The columns that a definition declares, and their JSON paths.
//!
//! Mirrors pkg/registry/customresource/tableconvertor/tableconvertor.go, and the simple paths of client-go
//! util/jsonpath: fields, indexes, `[*]`, and filters that compare a field with a value.

use serde_json::Value;

use crate::time;

/// A cell that is read by a path.
#[derive(Debug)]
pub struct DeclaredCell {
    /// The path.
    pub path: JsonPath,
    /// The column's type.
    pub kind: CellType,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellType {
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
    /// A text; other values are shown as JSON.
    Text,
    /// A time, shown as an age.
    Date,
}

impl CellType {
    /// The type `name` of a definition.
    pub fn of(name: &str) -> Self {
        match name {
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            _ => Self::Text,
        }
    }
}

impl DeclaredCell {
    /// The cell of one object; null if it has no such value.
    pub fn of(&self, object: &Value) -> Value {
        let Some(found) = self.path.find(object).into_iter().next() else { return Value::Null };
        match (self.kind, found) {
            (CellType::Text, Value::Null) => "<nil>".into(),
            (CellType::Text, Value::String(text)) => text.as_str().into(),
            (CellType::Text, other) => other.to_string().into(),
            (CellType::Integer, Value::Number(number)) => {
                number.as_i64().or(number.as_f64().map(|number| number as i64)).into()
            }
            (CellType::Number, Value::Number(_)) | (CellType::Boolean, Value::Bool(_)) => found.clone(),
            (CellType::Date, Value::String(moment)) => match time::seconds_since(moment) {
                Some(seconds) => time::human(seconds).into(),
                None => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

/// Why a path cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with a dot or a bracket.
    #[error("is not a JSON path: begin with a dot, as in .spec.replicas")]
    Start,
    /// A bracket is not closed.
    #[error("unterminated array")]
    Unclosed,
    /// A bracket has a content that is not supported.
    #[error("invalid array index {0}")]
    Index(String),
}

/// A path to values in an object.
#[derive(Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// Items in which the field at the path has the value.
    Filter(Vec<String>, Value),
}

impl JsonPath {
    /// Parses e.g. `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// [`PathError`], the reason.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut rest = text.trim();
        let mut steps = Vec::new();
        if !rest.starts_with(['.', '[']) {
            return Err(PathError::Start);
        }
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let end = close(inside).ok_or(PathError::Unclosed)?;
                steps.push(bracket(&inside[..end])?);
                rest = &inside[end + 1..];
                continue;
            }
            let after = rest.strip_prefix('.').unwrap_or(rest);
            let (name, end) = field(after);
            match name.as_str() {
                "" => {}
                "*" => steps.push(Step::Every),
                _ => steps.push(Step::Field(name)),
            }
            // A dot at the end is the whole object.
            rest = if end == 0 && after.len() == rest.len() { "" } else { &after[end..] };
        }
        Ok(Self(steps))
    }

    /// The JSON pointer, if it has fields only.
    pub fn pointer(&self) -> Option<String> {
        let field = |step: &Step| match step {
            Step::Field(name) => Some(format!("/{}", name.replace('~', "~0").replace('/', "~1"))),
            Step::Index(_) | Step::Every | Step::Filter(..) => None,
        };
        self.0.iter().map(field).collect()
    }

    /// The values at this path.
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.find(value)).collect();
        }
        found
    }
}

impl Step {
    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let index = if *index < 0 { *index + items.len() as i64 } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            (Self::Every, Value::Array(items)) => items.iter().collect(),
            (Self::Every, Value::Object(fields)) => fields.values().collect(),
            (Self::Filter(path, expected), Value::Array(items)) => items
                .iter()
                .filter(|item| {
                    let mut names = path.iter();
                    names.try_fold(*item, |at, name| at.get(name)).is_some_and(|found| found == expected)
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// The name at the start of `text`, in which a backslash escapes a dot, and its length there.
fn field(text: &str) -> (String, usize) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, at),
            other => name.push(other),
        }
    }
    (name, text.len())
}

/// The place of the bracket that closes `text`, outside of quotes.
fn close(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return Some(at),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), character) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Result<Step, PathError> {
    let invalid = || PathError::Index(text.to_owned());
    let text = text.trim();
    if text == "*" {
        return Ok(Step::Every);
    }
    if let Some(name) = unquote(text) {
        return Ok(Step::Field(name.to_owned()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        let (path, value) = filter.split_once("==").ok_or_else(invalid)?;
        let path = path.trim().strip_prefix("@.").ok_or_else(invalid)?;
        let value = value.trim();
        let value = match unquote(value) {
            Some(text) => text.into(),
            None => serde_json::from_str(value).map_err(|_| invalid())?,
        };
        return Ok(Step::Filter(path.split('.').map(str::to_owned).collect(), value));
    }
    text.parse().map(Step::Index).map_err(|_| invalid())
}

fn unquote(text: &str) -> Option<&str> {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inside('\'').or_else(|| inside('"'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_columns() {
        let object = json!({
            "metadata": { "annotations": { "a.b/c": "x" } },
            "spec": { "n": 3, "list": [{ "v": 1 }, { "v": 2 }], "flag": true, "part": { "a": 1.5 } },
            "status": { "conditions": [{ "type": "A", "status": "no" }, { "type": "Ready", "status": "yes" }] },
        });
        let table = [
            (".spec.n", "integer", json!(3)),
            (".spec.n", "string", json!("3")),
            (".spec.n", "boolean", Value::Null),
            (".spec.missing", "string", Value::Null),
            (".spec.list[1].v", "integer", json!(2)),
            (".spec.list[-1].v", "integer", json!(2)),
            (".spec.list[*].v", "integer", json!(1)),
            (".spec.list[9].v", "integer", Value::Null),
            (".spec.flag", "boolean", json!(true)),
            (".spec.part", "string", json!("{\"a\":1.5}")),
            (".spec.part.a", "number", json!(1.5)),
            (".spec.part.a", "integer", json!(1)),
            (".metadata.annotations.a\\.b/c", "string", json!("x")),
            (".metadata.annotations['a.b/c']", "string", json!("x")),
            (".status.conditions[?(@.type==\"Ready\")].status", "string", json!("yes")),
            (".status.conditions[?(@.type=='None')].status", "string", Value::Null),
            (".spec.n", "date", Value::Null),
            (".metadata.annotations['a.b/c']", "date", json!("<invalid>")),
        ];
        for (path, kind, expected) in table {
            let cell = DeclaredCell { path: JsonPath::parse(path).unwrap(), kind: CellType::of(kind) };
            assert_eq!(cell.of(&object), expected, "{path} as {kind}");
        }
        assert_eq!(JsonPath::parse(".spec.color").unwrap().pointer(), Some("/spec/color".to_owned()));
        assert_eq!(JsonPath::parse(".spec[0]").unwrap().pointer(), None);
    }

    #[test]
    fn invalid_paths_are_rejected() {
        assert_eq!(JsonPath::parse("spec"), Err(PathError::Start));
        assert_eq!(JsonPath::parse(".spec[0"), Err(PathError::Unclosed));
        assert_eq!(JsonPath::parse(".spec[x]"), Err(PathError::Index("x".to_owned())));
    }
}
