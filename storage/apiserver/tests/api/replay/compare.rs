//! Compares two answers, blind for what differs between any two clusters: uids, times, versions, ages,
//! generated names, tokens, managed fields.

use std::fmt;

use serde_json::Value;

use super::RecordedResponse;

/// One difference, at a path of the answer.
#[derive(Debug)]
pub struct Difference {
    pub path: String,
    pub recorded: Value,
    pub returned: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, recorded, returned } = self;
        write!(f, "{path}: recorded {recorded}, returned {returned}")
    }
}

/// All differences between a recorded response and the embedded server's.
pub fn compare(recorded: &RecordedResponse, returned: &RecordedResponse) -> Vec<Difference> {
    let mut found = Vec::new();
    differ("status", &recorded.status.into(), &returned.status.into(), &mut found);
    for header in ["content-type", "cache-control", "warning", "retry-after"] {
        let value = |answer: &RecordedResponse| {
            answer.headers.get(header).map_or(Value::Null, |value| value.as_str().into())
        };
        differ(&format!("headers.{header}"), &value(recorded), &value(returned), &mut found);
    }
    differ("body", &blind(&recorded.body, ""), &blind(&returned.body, ""), &mut found);
    found
}

/// `value` without what may differ; `name` is the field that holds it.
fn blind(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let generated = fields.contains_key("generateName");
            let kept = fields.iter().filter(|(name, value)| *name != "managedFields" && !value.is_null());
            kept.map(|(name, value)| {
                let value =
                    if generated && name == "name" { Value::from("<generated>") } else { blind(value, name) };
                (name.clone(), value)
            })
            .collect()
        }
        Value::Array(items) => items.iter().map(|item| blind(item, name)).collect(),
        Value::String(text) => match name {
            "uid" | "resourceVersion" | "continue" | "serverAddress" => format!("<{name}>").into(),
            "cells" if is_age(text) => "<age>".into(),
            // Cells carry generated names too, without saying so.
            "cells" if text.starts_with("g-") => "<generated>".into(),
            "message" => blind_uids(&blind_message(text)).into(),
            _ if is_time(text) => "<time>".into(),
            _ => blind_uids(text).into(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn is_time(text: &str) -> bool {
    text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}

fn is_age(text: &str) -> bool {
    text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
}

/// Current versions in a message.
fn blind_message(text: &str) -> String {
    match text.split_once("current: ") {
        Some((head, _)) => format!("{head}current: <version>"),
        None => text.to_owned(),
    }
}

/// Uids occur within names and messages too.
fn blind_uids(text: &str) -> String {
    const UID: usize = 36;
    let is_uid = |at: usize| {
        text.as_bytes().get(at..at + UID).is_some_and(|uid| {
            uid.iter().enumerate().all(|(index, byte)| match index {
                8 | 13 | 18 | 23 => *byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
        })
    };
    match (0..text.len()).find(|at| is_uid(*at)) {
        Some(at) => format!("{}<uid>{}", &text[..at], blind_uids(&text[at + UID..])),
        None => text.to_owned(),
    }
}

fn differ(path: &str, recorded: &Value, returned: &Value, found: &mut Vec<Difference>) {
    match (recorded, returned) {
        (Value::Object(a), Value::Object(b)) => {
            let additional = b.keys().filter(|name| !a.contains_key(*name));
            for name in a.keys().chain(additional) {
                differ(&format!("{path}.{name}"), &recorded[name], &returned[name], found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            // What has a name is compared by it, everything else by position.
            let key = |item: &Value, index: usize| {
                let names = ["name", "resource", "subresource", "version"];
                let name = names.iter().find_map(|name| item[name].as_str());
                name.map_or(index.to_string(), str::to_owned)
            };
            let keys = |items: &[Value]| -> Vec<String> {
                items.iter().enumerate().map(|(index, item)| key(item, index)).collect()
            };
            let (recorded, returned) = (keys(a), keys(b));
            let at = |items: &[Value], keys: &[String], key: &String| {
                keys.iter().position(|other| other == key).map_or(Value::Null, |index| items[index].clone())
            };
            let additional = returned.iter().filter(|key| !recorded.contains(key));
            for key in recorded.iter().chain(additional) {
                differ(&format!("{path}[{key}]"), &at(a, &recorded, key), &at(b, &returned, key), found);
            }
        }
        _ if recorded != returned => {
            found.push(Difference {
                path: path.to_owned(),
                recorded: recorded.clone(),
                returned: returned.clone(),
            });
        }
        _ => {}
    }
}
