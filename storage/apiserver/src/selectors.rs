//! Label and field selectors.
//!
//! The grammar of label selectors and the wording of errors mirror apimachinery pkg/labels/selector.go.

use std::borrow::Cow;

use serde_json::Value;

use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::store::Object;

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

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<FieldRequirement>> {
    let terms = text.split(',').filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let (name, value, equal) = [("!=", false), ("==", true), ("=", true)]
                .into_iter()
                .find_map(|(operator, equal)| {
                    term.split_once(operator).map(|(name, value)| (name, value, equal))
                })
                .ok_or_else(|| {
                    Status::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'"))
                })?;
            let (pointers, unset): (&'static [&'static str], _) = match name {
                "metadata.name" => (&["/metadata/name"], ""),
                "metadata.namespace" => (&["/metadata/namespace"], ""),
                _ => {
                    let field = resource.fields.iter().find(|field| field.name == name);
                    let field = field.ok_or_else(|| {
                        let known = "only \"metadata.name\", \"metadata.namespace\"";
                        Status::bad_request(format!("\"{name}\" is not a known field selector: {known}"))
                    })?;
                    (field.pointers, field.unset)
                }
            };
            Ok(FieldRequirement { pointers, unset, value: value.to_owned(), equal })
        })
        .collect()
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
        while !self.peek().is_empty() {
            requirements.push(self.requirement()?);
            match self.next() {
                "" => break,
                "," if self.peek() != "" && self.peek() != "," => {}
                "," => return Err(format!("found '{}', expected: identifier after ','", self.peek())),
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == "!";
        if negated {
            self.next();
        }
        let key = self.next();
        if !is_word(key) {
            return Err(format!("found '{key}', expected: !, identifier, or 'end of string'"));
        }
        let key = key.to_owned();
        if negated {
            return Ok(Requirement { key, test: Test::Absent });
        }
        let test = match self.peek() {
            "" | "," => Test::Exists,
            "=" | "==" => {
                self.next();
                Test::In(vec![self.value()])
            }
            "!=" => {
                self.next();
                Test::NotIn(vec![self.value()])
            }
            "in" => {
                self.next();
                Test::In(self.values()?)
            }
            "notin" => {
                self.next();
                Test::NotIn(self.values()?)
            }
            operator @ (">" | "<") => {
                self.next();
                let value = self.value();
                let bound = value.parse().map_err(|_| {
                    format!("values: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
                })?;
                if operator == ">" { Test::Above(bound) } else { Test::Below(bound) }
            }
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Ok(Requirement { key, test })
    }

    /// A single value, which may be empty.
    fn value(&mut self) -> String {
        if is_word(self.peek()) { self.next().to_owned() } else { String::new() }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = vec![self.value()];
        loop {
            match self.next() {
                ")" => return Ok(values),
                "," => values.push(self.value()),
                other => return Err(format!("found '{other}', expected: ',', or ')'")),
            }
        }
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
        for selector in ["==", "app in a", "app in (a", "a b", "a=b c", ",a", "n>x"] {
            assert!(selects(selector, &labels).is_err(), "{selector}");
        }
    }
}
