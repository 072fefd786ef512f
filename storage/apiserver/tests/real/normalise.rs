//! Responses without what differs between any two servers.
//!
//! Uids, versions and generated names become symbols in the order of their first occurrence in a scenario, so
//! that it is still compared which of them are equal: a write without a change must not produce a new
//! version.

use serde_json::Value;

use crate::side::Answer;

/// The length of a uid.
const UID: usize = 36;
/// Times within this range around the present are those of the test, in seconds; samples have older ones.
const PRESENT: i64 = 7200;
/// The objects in which `resourceVersion` is that of the whole server.
const COLLECTIONS: [&str; 2] = ["List", "Table"];

/// The folder of the source of kube-apiserver in messages: that of its build.
const SOURCE: &str = "pkg/api/legacyscheme/";

/// The rules in a SelfSubjectRulesReview.
const RULES: [&str; 2] = ["resourceRules", "nonResourceRules"];

/// The symbols of one server in one scenario.
#[derive(Default)]
pub struct Symbols {
    uids: Vec<String>,
    versions: Vec<String>,
    names: Vec<String>,
}

impl Symbols {
    /// Continues with the same number as `other`, so that what one server alone returned changes no later symbol.
    pub fn align(&mut self, other: &mut Self) {
        let pad = |one: &mut Vec<String>, other: &mut Vec<String>| {
            let length = one.len().max(other.len());
            one.resize(length, String::new());
            other.resize(length, String::new());
        };
        pad(&mut self.uids, &mut other.uids);
        pad(&mut self.versions, &mut other.versions);
    }

    /// The response with symbols.
    pub fn normalise(&mut self, mut answer: Answer) -> Answer {
        self.learn_names(&answer.body);
        if let Value::Array(events) = &mut answer.body {
            // Others are sent when the server likes, e.g. shortly before the end.
            events.retain(|event| event["type"] != "BOOKMARK" || is_end_of_initial_events(event));
        }
        answer.body = self.value(&answer.body, "", false);
        for text in answer.headers.values_mut() {
            *text = self.text(text);
        }
        answer
    }

    /// Generated names, which later occur without their prefix being known.
    fn learn_names(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let (prefix, name) = (&value["generateName"], &value["name"]);
                if let (Some(prefix), Some(name)) = (prefix.as_str(), name.as_str())
                    && !prefix.is_empty()
                    && name.len() == prefix.len() + 5
                    && name.starts_with(prefix)
                    && !self.names.iter().any(|known| known == name)
                {
                    self.names.push(name.to_owned());
                }
                fields.values().for_each(|value| self.learn_names(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn_names(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// The value of the field `name`; `of_collection` if it belongs to the metadata of a list.
    fn value(&mut self, value: &Value, name: &str, of_collection: bool) -> Value {
        match value {
            Value::Object(fields) => {
                let kind = value["kind"].as_str().unwrap_or_default();
                // The version of a bookmark is any of the server.
                let is_collection = marks_end(value) || COLLECTIONS.iter().any(|end| kind.ends_with(end));
                // The order of symbols must not depend on the order of fields.
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort_by_key(|name| (*name != "metadata", *name));
                let normalised = names.into_iter().map(|name| {
                    (
                        name.clone(),
                        self.value(
                            &fields[name],
                            name,
                            of_collection || (is_collection && name == "metadata"),
                        ),
                    )
                });
                Value::Object(normalised.collect())
            }
            Value::Array(items) => {
                let mut items: Vec<Value> =
                    items.iter().map(|item| self.value(item, name, of_collection)).collect();
                if name == "managedFields" {
                    // They are sorted by time, and a second may pass between two requests on one of the
                    // servers.
                    items.sort_by_key(|item| {
                        ["operation", "manager", "subresource", "apiVersion"]
                            .map(|field| item[field].to_string())
                    });
                }
                if RULES.contains(&name) {
                    // Upstream lists them in the order of a Go map.
                    items.sort_by_key(Value::to_string);
                }
                Value::Array(items)
            }
            Value::String(text) => self.string(text, name, of_collection).into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn string(&mut self, text: &str, name: &str, of_collection: bool) -> String {
        match name {
            "" => self.text(text),
            _ if text.is_empty() => String::new(),
            "resourceVersion" if of_collection => "<version of the server>".to_owned(),
            "resourceVersion" => symbol(&mut self.versions, text, "version"),
            "continue" => "<continue>".to_owned(),
            "token" if text.len() > 100 => "<token>".to_owned(),
            "serverAddress" => "<address>".to_owned(),
            "cells" if is_age(text) => "<age>".to_owned(),
            _ => self.text(text),
        }
    }

    /// A text, which may contain uids, versions, times and generated names.
    fn text(&mut self, text: &str) -> String {
        if let Some(format) = present(text) {
            return format.to_owned();
        }
        let mut normal = String::new();
        let mut rest = text;
        while let Some(at) = (0..rest.len()).find(|at| is_uid(rest, *at)) {
            normal += &rest[..at];
            normal += &symbol(&mut self.uids, &rest[at..at + UID], "uid");
            rest = &rest[at + UID..];
        }
        normal += rest;
        normal = self.with_sorted_object(&normal);
        for (number, name) in self.names.iter().enumerate() {
            normal = normal.replace(name, &format!("<name {number}>"));
        }
        if normal.contains("ersion") {
            normal = self.versions_in(&normal);
        }
        if let Some((before, (_, after))) = normal
            .split_once("in scheme \"")
            .and_then(|(before, rest)| Some((before, rest.split_once(SOURCE)?)))
        {
            normal = format!("{before}in scheme \"{SOURCE}{after}");
        }
        for start in ["current: ", "current resource version: ", "https://127.0.0.1:"] {
            if let Some((before, after)) = normal.split_once(start) {
                let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
                normal = format!("{before}{start}<number>{after}");
            }
        }
        normal
    }

    /// The text with its object sorted: upstream shows that of a patch in the order of the fields of its types.
    fn with_sorted_object(&mut self, text: &str) -> String {
        let start = "Invalid value: ";
        let Some((before, rest)) = text.split_once(start).filter(|(_, rest)| rest.starts_with("\"{")) else {
            return text.to_owned();
        };
        let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let Some(Ok(object)) = strings.next() else { return text.to_owned() };
        let after = &rest[strings.byte_offset()..];
        let Ok(mut object) = serde_json::from_str::<Value>(&object) else { return text.to_owned() };
        // Ownership is compared in responses, where its differences have entries.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let object = self.value(&object, "", false);
        format!("{before}{start}{}{after}", Value::from(object.to_string()))
    }

    /// Replaces known versions in a message about versions.
    fn versions_in(&self, text: &str) -> String {
        let mut normal = String::new();
        let mut digits = String::new();
        let flush = |digits: &mut String, normal: &mut String| {
            match self.versions.iter().position(|known| !digits.is_empty() && known == digits) {
                Some(number) => normal.push_str(&format!("<version {number}>")),
                None => normal.push_str(digits),
            }
            digits.clear();
        };
        for c in text.chars() {
            if c.is_ascii_digit() {
                digits.push(c);
            } else {
                flush(&mut digits, &mut normal);
                normal.push(c);
            }
        }
        flush(&mut digits, &mut normal);
        normal
    }
}

fn symbol(known: &mut Vec<String>, text: &str, of: &str) -> String {
    let number = known.iter().position(|other| other == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    });
    format!("<{of} {number}>")
}

/// The annotation is in the object, or in that of the only row of a table.
fn is_end_of_initial_events(event: &Value) -> bool {
    marks_end(&event["object"]) || marks_end(&event["object"]["rows"][0]["object"])
}

fn marks_end(object: &Value) -> bool {
    !object["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null()
}

fn is_uid(text: &str, at: usize) -> bool {
    text.as_bytes().get(at..at + UID).is_some_and(|uid| {
        uid.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

/// The format of a time of the test.
fn present(text: &str) -> Option<&'static str> {
    if !text.ends_with('Z') || text.as_bytes().get(10) != Some(&b'T') {
        return None;
    }
    let time: jiff::Timestamp = text.parse().ok()?;
    let distance = time.as_second() - jiff::Timestamp::now().as_second();
    match text.len() {
        _ if distance.abs() > PRESENT => None,
        20 => Some("<time>"),
        27 => Some("<time in microseconds>"),
        _ => Some("<time of another precision>"),
    }
}

fn is_age(text: &str) -> bool {
    text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
}
