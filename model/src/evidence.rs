//! The evidence of a failed case: objects, Events and logs at the moment of the failure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::CaseId;

/// The state of the cluster when a case failed; its objects are deleted a moment later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureDump {
    /// The case.
    pub case: CaseId,
    /// Its pods, claims, volumes, attachments and snapshots, as returned by the API, without managed fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<Value>,
    /// Their Events, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<ObjectEvent>,
    /// The logs of its containers, and the components' log lines about its objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<Log>,
}

/// A Kubernetes Event, as `kubectl describe` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectEvent {
    /// The last occurrence, in RFC 3339; empty if not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The reason, one CamelCase word.
    pub reason: String,
    /// The involved object: `Pod/name`.
    pub object: String,
    /// The message.
    pub message: String,
    /// The number of occurrences.
    pub count: i32,
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Log {
    /// The source: `pod/container`, or a component.
    pub of: String,
    /// Its last lines.
    pub text: String,
}

impl Log {
    /// How many lines of a log are kept.
    pub const LINES: usize = 60;

    /// The last [`LINES`](Self::LINES) of some lines; none if there are none.
    pub fn from_lines<'a>(of: impl Into<String>, lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let lines: Vec<&str> = lines.collect();
        let last = &lines[lines.len().saturating_sub(Self::LINES)..];
        (!last.is_empty()).then(|| Self { of: of.into(), text: last.join("\n") })
    }

    /// The last lines of a text that name one of some objects.
    pub fn about(of: impl Into<String>, text: &str, names: &[String]) -> Option<Self> {
        let named = |line: &&str| names.iter().any(|name| !name.is_empty() && line.contains(name.as_str()));
        Self::from_lines(of, text.lines().filter(named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_log_lines_about_some_objects_are_selected() {
        let lines: String = (0..100).map(|n| format!("{n} volume=pv-{}\n", n % 2)).collect();
        let log = Log::about("driver", &lines, &["pv-1".to_owned(), String::new()]).unwrap();
        assert_eq!((log.text.lines().count(), log.text.lines().next()), (50, Some("1 volume=pv-1")));
        let log = Log::about("driver", &lines, &["pv-0".to_owned(), "pv-1".to_owned()]).unwrap();
        assert_eq!((log.text.lines().count(), log.text.lines().next()), (60, Some("40 volume=pv-0")));
        assert_eq!(Log::about("driver", &lines, &["pv-2".to_owned()]), None);
        assert_eq!(Log::about("driver", &lines, &[]), None);
    }
}
