//! Label and field selectors.
//!
//! The grammar of label selectors and the wording of errors mirror apimachinery pkg/labels/selector.go.

use std::borrow::Cow;

use serde_json::Value;

use crate::admission::labels;
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::store::{Object, Topic};

/// The selectors of a list or watch.
#[derive(Debug, Default)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Debug)]
struct FieldRequirement {
    pointers: &'static [&'static str],
    unset: &'static str,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both selectors of a request.
    pub fn parse(resource: &Resource, labels: Option<&str>, fields: Option<&str>) -> Result<Self> {
        let labels = Parser::new(labels.unwrap_or_default()).requirements().map_err(Status::bad_request)?;
        let fields = parse_fields(resource, fields.unwrap_or_default())?;
        Ok(Self { labels, fields })
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// What all matching objects have in common.
    pub fn topic(&self) -> Option<Topic> {
        self.fields.iter().filter(|field| field.equal).find_map(|field| match field.pointers {
            ["/metadata/name"] => Some(Topic::Name(field.value.as_str().into())),
            ["/spec/nodeName"] if !field.value.is_empty() => Some(Topic::Node(field.value.as_str().into())),
            _ => None,
        })
    }

    /// Whether `object` matches.
    pub fn matches(&self, object: &Object) -> bool {
        let labels = &object.value["metadata"]["labels"];
        self.labels.iter().all(|requirement| requirement.matches(labels))
            && self.fields.iter().all(|requirement| requirement.matches(&object.value))
    }
}

impl Requirement {
    fn matches(&self, labels: &Value) -> bool {
        let label = labels.get(&self.key).and_then(Value::as_str);
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
            Test::NotIn(values) => label.is_none_or(|label| values.iter().all(|value| value != label)),
            Test::Exists => label.is_some(),
            Test::Absent => label.is_none(),
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Value) -> bool {
        let found = self.pointers.iter().find_map(|pointer| match object.pointer(pointer)? {
            Value::String(text) => Some(Cow::Borrowed(text.as_str())),
            Value::Null => None,
            other => Some(Cow::Owned(other.to_string())),
        });
        (found.as_deref().unwrap_or(self.unset) == self.value) == self.equal
    }
}

/// Mirrors apimachinery pkg/fields/selector.go. A backslash escapes itself, commas and equals signs.
fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<FieldRequirement>> {
    let terms = split_terms(text).into_iter().filter(|term| !term.is_empty());
    let mut requirements = Vec::new();
    for term in terms {
        let (name, value, equal) = split_term(term).ok_or_else(|| {
            Status::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'"))
        })?;
        let value = unescape(value).map_err(Status::bad_request)?;
        // Upstream drops a term without field and value.
        if name.is_empty() && value.is_empty() {
            continue;
        }
        let (pointers, unset): (&'static [&'static str], _) = match name {
            "metadata.name" => (&["/metadata/name"], ""),
            "metadata.namespace" => (&["/metadata/namespace"], ""),
            _ => match resource.fields.iter().find(|field| field.name == name) {
                Some(field) => (field.pointers, field.unset),
                // Kinds with fields of their own have another conversion.
                None if resource.custom.is_some() || !resource.fields.is_empty() => {
                    return Err(Status::bad_request(format!("field label not supported: {name}")));
                }
                None => {
                    let known = "only \"metadata.name\", \"metadata.namespace\"";
                    return Err(Status::bad_request(format!(
                        "{name:?} is not a known field selector: {known}"
                    )));
                }
            },
        };
        requirements.push(FieldRequirement { pointers, unset, value, equal });
    }
    Ok(requirements)
}

/// The terms of a field selector, still escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        if byte == b',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

/// Field, value and whether they are to be equal, at the first operator.
fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let operators = [("!=", false), ("==", true), ("=", true)];
    term.char_indices().find_map(|(at, _)| {
        let (operator, equal) =
            operators.into_iter().find(|(operator, _)| term[at..].starts_with(operator))?;
        Some((&term[..at], &term[at + operator.len()..], equal))
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {character}"));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

/// Splits a label selector into words and operators, one ahead.
struct Parser<'a> {
    rest: &'a str,
}

const OPERATORS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.rest = &self.rest.trim_start()[token.len()..];
        token
    }

    fn peek(&self) -> &'a str {
        let text = self.rest.trim_start();
        if let Some(operator) = OPERATORS.iter().find(|operator| text.starts_with(**operator)) {
            return &text[..operator.len()];
        }
        let special = |c: char| c.is_whitespace() || OPERATORS.iter().any(|operator| operator.starts_with(c));
        &text[..text.find(special).unwrap_or(text.len())]
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                "" => return Ok(requirements),
                token if token == "!" || is_word(token) => {}
                other => return Err(format!("found '{other}', expected: !, identifier, or 'end of string'")),
            }
            let requirement =
                self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.next() {
                "" => return Ok(requirements),
                "," => {
                    let token = self.peek();
                    if token != "!" && !is_word(token) {
                        return Err(format!("found '{token}', expected: identifier after ','"));
                    }
                }
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == "!";
        if negated {
            self.next();
        }
        let key = self.next();
        if !is_word(key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let faults = labels::key_faults(key);
        if !faults.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", faults.join("; ")));
        }
        let key = key.to_owned();
        if negated {
            return Ok(Requirement { key, test: Test::Absent });
        }
        if matches!(self.peek(), "" | ",") {
            return Ok(Requirement { key, test: Test::Exists });
        }
        let test = match self.next() {
            "=" | "==" => Test::In(vec![self.value()?]),
            "!=" => Test::NotIn(vec![self.value()?]),
            "in" => Test::In(self.values()?),
            "notin" => Test::NotIn(self.values()?),
            operator @ (">" | "<") => {
                let value = self.value()?;
                let bound = value.parse().map_err(|_| {
                    format!(
                        "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                })?;
                if operator == ">" { Test::Above(bound) } else { Test::Below(bound) }
            }
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        if let Test::In(values) | Test::NotIn(values) = &test {
            check_values(&key, values)?;
        }
        Ok(Requirement { key, test })
    }

    /// A single value, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            "" | "," => Ok(String::new()),
            token if is_word(token) => Ok(self.next().to_owned()),
            other => Err(format!("found '{other}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = Vec::new();
        match self.peek() {
            ")" => {
                self.next();
                return Ok(vec![String::new()]);
            }
            token if token == "," || is_word(token) => {}
            other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
        }
        loop {
            match self.next() {
                token if is_word(token) => {
                    values.push(token.to_owned());
                    match self.peek() {
                        "," => {}
                        ")" => break,
                        other => return Err(format!("found '{other}', expected: ',' or ')'")),
                    }
                }
                "," => {
                    let next = self.peek();
                    // An empty value before, after or between commas.
                    if values.is_empty() || matches!(next, "," | ")") {
                        values.push(String::new());
                    }
                    if next == ")" {
                        break;
                    }
                }
                other => return Err(format!("found '{other}', expected: ',', or identifier")),
            }
        }
        self.next();
        Ok(values)
    }
}

/// Rejects what cannot be the value of a label. Upstream checks the values in their order.
fn check_values(key: &str, values: &[String]) -> Result<(), String> {
    let mut sorted: Vec<&String> = values.iter().collect();
    sorted.sort();
    let faults = sorted.into_iter().enumerate().flat_map(|(index, value)| {
        let faults = labels::value_faults(value);
        let why = faults.join("; ");
        (!faults.is_empty()).then(|| format!("values[{index}][{key}]: Invalid value: {value:?}: {why}"))
    });
    let faults: Vec<String> = faults.collect();
    match &faults[..] {
        [] => Ok(()),
        [fault] => Err(fault.clone()),
        faults => Err(format!("[{}]", faults.join(", "))),
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !OPERATORS.contains(&token)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &Value) -> Result<bool, String> {
        let requirements = Parser::new(selector).requirements()?;
        Ok(requirements.iter().all(|requirement| requirement.matches(labels)))
    }

    #[test]
    fn label_selectors() {
        let labels = json!({ "app": "a", "n": "5", "empty": "" });
        for (selector, expected) in [
            ("", true),
            ("app=a", true),
            ("app==b", false),
            ("app != b", true),
            ("other!=b", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app in (a, b)", true),
            ("app notin (a,b)", false),
            ("other notin (a)", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app=a,other", false),
            ("empty=", true),
            ("example.com/x in (1)", false),
        ] {
            assert_eq!(selects(selector, &labels), Ok(expected), "{selector}");
        }
        for (selector, expected) in [
            ("==", "found '==', expected: !, identifier, or 'end of string'"),
            ("app in a", "unable to parse requirement: found 'a' expected: '('"),
            ("app in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("app in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,=x", "found '=', expected: identifier after ','"),
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            (
                "n>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must \
                 be an integer",
            ),
        ] {
            assert_eq!(selects(selector, &labels), Err(expected.to_owned()), "{selector}");
        }
        let why = selects("a/b/c=v", &labels).unwrap_err();
        assert!(
            why.starts_with(
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key"
            )
        );
        let why = selects("a=-", &labels).unwrap_err();
        assert!(
            why.starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label")
        );
    }

    #[test]
    fn field_selectors() {
        let claims = crate::resources::stored(crate::resources::Storage::Claims);
        let pods = crate::resources::stored(crate::resources::Storage::Pods);
        let parse = |resource: &Resource, text: &str| {
            let found =
                parse_fields(resource, text).map_err(|status| status.to_value()["message"].clone())?;
            Ok::<_, Value>(found.into_iter().map(|field| field.value).collect::<Vec<_>>())
        };
        assert_eq!(
            parse(claims, r"metadata.name=a\,b,metadata.namespace!=c"),
            Ok(vec!["a,b".into(), "c".into()])
        );
        assert_eq!(parse(claims, "="), Ok(Vec::new()));
        for (resource, text, expected) in [
            (claims, r"metadata.name=a\", r"invalid field selector: invalid escape sequence: \"),
            (
                claims,
                "nope=1",
                "\"nope\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
            (pods, "nope=1", "field label not supported: nope"),
            (pods, "nope", "invalid selector: 'nope'; can't understand 'nope'"),
        ] {
            assert_eq!(parse(resource, text), Err(expected.into()), "{text}");
        }
    }
}
