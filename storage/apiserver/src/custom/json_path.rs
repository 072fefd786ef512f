//! The JSON paths of columns and selectable fields.
//!
//! Mirrors client-go util/jsonpath (parser.go, jsonpath.go) for one action, with missing keys allowed.

use std::cmp::Ordering;

use serde_json::Value;

/// Why a path cannot be used; with upstream's messages.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PathError {
    /// A bracket is not closed.
    #[error("unterminated array")]
    Array,
    /// A bracket has a content that is none of an index, a slice, a key, a union or a filter.
    #[error("invalid array index {0}")]
    Index(String),
    /// A filter is not closed.
    #[error("unterminated filter")]
    Filter,
    /// A filter is not followed by a bracket.
    #[error("unclosed array expect ]")]
    Unclosed,
    /// A quote is not closed.
    #[error("unterminated quoted string")]
    Quote,
    /// `....`
    #[error("invalid multiple recursive descent")]
    Recursive,
    /// A word that is none.
    #[error("unrecognized identifier {0}")]
    Word(String),
    /// A number that is none.
    #[error("cannot parse number {0}")]
    Number(String),
    /// A character that begins nothing.
    #[error("unrecognized character in action: {0:?}")]
    Character(char),
    /// An operator of a filter that does not exist.
    #[error("unrecognized filter operator {0}")]
    Operator(String),
}

/// A path to values in an object.
#[derive(Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// `[start:end:step]`, or `[start]`, of which the end is derived.
    Slice {
        start: Option<i64>,
        end: End,
        step: Option<i64>,
    },
    Every,
    /// `..`: the value, and all objects and lists in it.
    Recursive,
    Union(Vec<JsonPath>),
    /// Items for which this is true.
    Filter(Condition),
    /// A value that is no part of the object.
    Literal(Value),
}

#[derive(Debug, PartialEq)]
enum End {
    Open,
    At(i64),
    /// One item.
    AfterStart,
}

#[derive(Debug, PartialEq)]
enum Condition {
    Exists(JsonPath),
    Compares(JsonPath, Operator, JsonPath),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses e.g. `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// [`PathError`], the reason.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut steps = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            rest = if let Some(filter) = rest.strip_prefix("[?(") {
                parse_filter(filter, &mut steps)?
            } else if let Some(after) = rest.strip_prefix("..") {
                if steps.last() == Some(&Step::Recursive) {
                    return Err(PathError::Recursive);
                }
                steps.push(Step::Recursive);
                match after.starts_with(is_word) {
                    true => parse_field(after, &mut steps),
                    false => after,
                }
            } else {
                match first {
                    ' ' | '@' | '$' => &rest[1..],
                    '[' => {
                        let end = rest.find(']').ok_or(PathError::Array)?;
                        parse_bracket(&rest[1..end], &mut steps)?;
                        &rest[end + 1..]
                    }
                    '"' | '\'' => parse_quote(rest, first, &mut steps)?,
                    '.' => parse_field(&rest[1..], &mut steps),
                    '+' | '-' | '0'..='9' => {
                        let end = rest[1..].find(|c: char| !c.is_ascii_digit() && c != '.');
                        let (text, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
                        let whole = text.parse::<i64>().map(Value::from);
                        let number = whole.or_else(|_| text.parse::<f64>().map(Value::from));
                        steps.push(Step::Literal(number.map_err(|_| PathError::Number(text.to_owned()))?));
                        after
                    }
                    _ if is_word(first) => {
                        let (word, after) = rest.split_at(terminator(rest));
                        match word {
                            "true" | "false" => steps.push(Step::Literal((word == "true").into())),
                            _ => return Err(PathError::Word(word.to_owned())),
                        }
                        after
                    }
                    _ => return Err(PathError::Character(first)),
                }
            };
        }
        Ok(Self(steps))
    }

    /// The JSON pointer, if it has fields only.
    pub fn pointer(&self) -> Option<String> {
        let field = |step: &Step| match step {
            Step::Field(name) => Some(format!("/{}", name.replace('~', "~0").replace('/', "~1"))),
            _ => None,
        };
        self.0.iter().map(field).collect()
    }

    /// The values at this path; none if it cannot be applied to the object, for example an index that it lacks.
    pub fn find<'a>(&'a self, object: &'a Value) -> Option<Vec<&'a Value>> {
        let mut found = vec![object];
        for step in &self.0 {
            found = step.find(found)?;
        }
        Some(found)
    }
}

impl Step {
    fn find<'a>(&'a self, values: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
        let mut found = Vec::new();
        match self {
            Self::Literal(literal) => return Some(vec![literal]),
            Self::Union(paths) => {
                // Each path applies to all values.
                for path in paths {
                    let start = Some(values.clone());
                    found.extend(path.0.iter().fold(start, |values, step| step.find(values?))?);
                }
                return Some(found);
            }
            _ => {}
        }
        for value in values.into_iter().filter(|value| !value.is_null()) {
            match (self, value) {
                // A name without letters, as in `.`, is the value itself.
                (Self::Field(name), value) if name.is_empty() => found.push(value),
                (Self::Field(name), Value::Object(fields)) => found.extend(fields.get(name)),
                (Self::Every, Value::Array(items)) => found.extend(items),
                (Self::Every, Value::Object(fields)) => found.extend(fields.values()),
                (Self::Recursive, value) => descend(value, &mut found),
                (Self::Slice { start, end, step }, Value::Array(items)) => {
                    found.extend(slice(items, *start, end, *step)?);
                }
                (Self::Filter(condition), Value::Array(items)) => {
                    for item in items {
                        if condition.holds(item)? {
                            found.push(item);
                        }
                    }
                }
                (Self::Slice { .. } | Self::Filter(_), _) => return None,
                (Self::Field(_) | Self::Every | Self::Union(_) | Self::Literal(_), _) => {}
            }
        }
        Some(found)
    }
}

/// The value and all in it that have parts.
fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let parts: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => return,
    };
    if !parts.is_empty() {
        found.push(value);
        parts.into_iter().for_each(|part| descend(part, found));
    }
}

fn slice<'a>(items: &'a [Value], start: Option<i64>, end: &End, step: Option<i64>) -> Option<Vec<&'a Value>> {
    let length = i64::try_from(items.len()).ok()?;
    let from_end = |index: i64| if index < 0 { index + length } else { index };
    let from = from_end(start.unwrap_or(0));
    let to = match end {
        End::Open => length,
        End::At(end) => from_end(*end),
        End::AfterStart => from + 1,
    };
    if from == to {
        return Some(Vec::new());
    }
    let is_valid = (0..length).contains(&from) && (from..=length).contains(&to);
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
    let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
    is_valid.then(|| items[from..to].iter().step_by(step).collect())
}

impl Condition {
    /// Whether it is true for an item; none if it cannot be evaluated.
    fn holds(&self, item: &Value) -> Option<bool> {
        let (left, operator, right) = match self {
            Self::Exists(path) => return path.find(item).map(|found| !found.is_empty()),
            Self::Compares(left, operator, right) => (left.find(item)?, operator, right.find(item)?),
        };
        let (left, right) = match (&left[..], &right[..]) {
            ([], _) => return Some(false),
            ([left], [right]) => (left, right),
            ([_], []) => return Some(false),
            _ => return None,
        };
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            // As in Go's templates, whole numbers are not comparable with others.
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
                _ => return None,
            },
            (Value::Bool(left), Value::Bool(right)) => match (operator, left == right) {
                (Operator::Equal | Operator::NotEqual, true) => Ordering::Equal,
                (Operator::Equal | Operator::NotEqual, false) => Ordering::Less,
                _ => return None,
            },
            _ => return None,
        };
        Some(match operator {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
        })
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The length of a name at the start of `text`, in which a backslash escapes the next character.
fn terminator(text: &str) -> usize {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' | ' ' | '\t' | '\r' | '\n' => return at,
            _ => {}
        }
    }
    text.len()
}

/// A field, without its dot; what follows it.
fn parse_field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (name, rest) = text.split_at(terminator(text));
    steps.push(match name {
        "*" => Step::Every,
        name => Step::Field(name.replace('\\', "")),
    });
    rest
}

fn parse_quote<'a>(text: &'a str, quote: char, steps: &mut Vec<Step>) -> Result<&'a str, PathError> {
    let mut characters = text[1..].char_indices();
    let mut literal = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => literal.extend(characters.next().map(|(_, escaped)| match escaped {
                'n' => '\n',
                't' => '\t',
                other => other,
            })),
            _ if character == quote => {
                steps.push(Step::Literal(literal.into()));
                return Ok(&text[at + 2..]);
            }
            other => literal.push(other),
        }
    }
    Err(PathError::Quote)
}

/// What is in brackets.
fn parse_bracket(text: &str, steps: &mut Vec<Step>) -> Result<(), PathError> {
    let text = if text == "*" { ":" } else { text };
    if text.contains(',') {
        let part = |part: &str| JsonPath::parse(&format!("[{}]", part.trim_matches(' ')));
        steps.push(Step::Union(text.split(',').map(part).collect::<Result<_, _>>()?));
        return Ok(());
    }
    let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    if let Some(key) = key.filter(|key| !key.contains('\'')) {
        // As upstream, a dot in a key has to be escaped here, too.
        steps.extend(JsonPath::parse(&format!(".{key}"))?.0);
        return Ok(());
    }
    let invalid = || PathError::Index(text.to_owned());
    let number = |digits: &str| match digits {
        "" => Ok(None),
        "-" => Err(invalid()),
        _ if digits.trim_start_matches('-').bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().map(Some).map_err(|_| invalid())
        }
        _ => Err(invalid()),
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (start, end, step) = match parts[..] {
        [start] => (start, None, ""),
        [start, end] => (start, Some(end), ""),
        [start, end, step] => (start, Some(end), step),
        _ => return Err(invalid()),
    };
    let end = match end.map(number).transpose()? {
        None => End::AfterStart,
        Some(None) => End::Open,
        Some(Some(end)) => End::At(end),
    };
    steps.push(Step::Slice { start: number(start)?, end, step: number(step)? });
    Ok(())
}

/// A filter, without its start; what follows its end.
fn parse_filter<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, PathError> {
    let mut quote = None;
    let mut before = None;
    let mut end = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ')') => {
                end = Some(at);
                break;
            }
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character && before != Some('\\') => quote = None,
            _ => {}
        }
        before = Some(character);
    }
    let end = end.ok_or(PathError::Filter)?;
    let rest = text[end + 1..].strip_prefix(']').ok_or(PathError::Unclosed)?;
    let condition = &text[..end];
    let is_operator = |c: char| "!<>=".contains(c);
    let start = condition.find(is_operator).filter(|start| *start > 0);
    let length = start.and_then(|start| condition[start..].find(|c| !is_operator(c)));
    let condition = match (start, length) {
        (Some(start), Some(length)) => {
            let (left, right) = (&condition[..start], &condition[start + length..]);
            let operator = match &condition[start..start + length] {
                "==" => Operator::Equal,
                "!=" => Operator::NotEqual,
                "<" => Operator::Less,
                "<=" => Operator::LessOrEqual,
                ">" => Operator::Greater,
                ">=" => Operator::GreaterOrEqual,
                other => return Err(PathError::Operator(other.to_owned())),
            };
            Condition::Compares(JsonPath::parse(left)?, operator, JsonPath::parse(right)?)
        }
        _ => Condition::Exists(JsonPath::parse(condition)?),
    };
    steps.push(Step::Filter(condition));
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_values_as_upstream() {
        let object = json!({
            "metadata": { "annotations": { "a.b/c": "x" } },
            "list": [{ "v": 1, "ok": true }, { "v": 2 }, { "v": 3.5, "name": "c" }],
            "status": { "conditions": [{ "type": "A", "status": "no" }, { "type": "Ready", "status": "yes" }] },
        });
        let table = [
            (".list[0].v", Some(json!([1]))),
            (".list[-1].v", Some(json!([3.5]))),
            (".list[9].v", None),
            (".list[*].v", Some(json!([1, 2, 3.5]))),
            (".list[0:2].v", Some(json!([1, 2]))),
            (".list[:-1].v", Some(json!([1, 2]))),
            (".list[::2].v", Some(json!([1, 3.5]))),
            (".list[0,2].v", Some(json!([1, 3.5]))),
            (".list[0]['v','ok']", Some(json!([1, true]))),
            (".list[?(@.name)].v", Some(json!([3.5]))),
            (".list[?(@.ok==true)].v", Some(json!([1]))),
            (".list[0:2][?(@.v>1)]", None),
            (".list[?(@.v > 1)].v", None),
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!(["yes"]))),
            (".status.conditions[?(@.type == 'Ready')].status", Some(json!(["yes"]))),
            (".status.conditions[?(@.type!='Ready')].status", Some(json!(["no"]))),
            (".status.conditions[?(@.type<='A')].status", Some(json!(["no"]))),
            (".status.conditions[?(@.type=='None')].status", Some(json!([]))),
            (".metadata[?(@.type)]", None),
            ("..status", Some(json!([{ "conditions": object["status"]["conditions"] }, "no", "yes"]))),
            (".status.conditions..type", Some(json!(["A", "Ready"]))),
            (".metadata.annotations.a\\.b/c", Some(json!(["x"]))),
            (".metadata.annotations['a\\.b/c']", Some(json!(["x"]))),
            (".metadata.annotations['a.b/c']", Some(json!([]))),
            (".missing.more", Some(json!([]))),
            (".metadata.annotations.*", Some(json!(["x"]))),
        ];
        for (path, expected) in table {
            let path_ = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let found = path_.find(&object).map(|found| found.into_iter().cloned().collect::<Value>());
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(JsonPath::parse(".spec.color").unwrap().pointer(), Some("/spec/color".to_owned()));
        assert_eq!(JsonPath::parse(".spec[0]").unwrap().pointer(), None);
        let whole = JsonPath::parse(".").unwrap();
        assert_eq!(whole.find(&object), Some(vec![&object]));
    }

    #[test]
    fn invalid_paths_are_rejected() {
        let table = [
            (".spec[0", PathError::Array),
            (".spec[x]", PathError::Index("x".to_owned())),
            (".spec[\"x\"]", PathError::Index("\"x\"".to_owned())),
            (".a[?(@.b", PathError::Filter),
            (".a[?(@.b)", PathError::Unclosed),
            (".a[?(@.b==c)]", PathError::Word("c".to_owned())),
            (".a[?(@.b=~'c')]", PathError::Operator("=".to_owned())),
            (".a[?(@.b=>'c')]", PathError::Operator("=>".to_owned())),
            ("....a", PathError::Recursive),
            ("spec", PathError::Word("spec".to_owned())),
            (".a}", PathError::Character('}')),
        ];
        for (path, expected) in table {
            assert_eq!(JsonPath::parse(path), Err(expected), "{path}");
        }
    }
}
