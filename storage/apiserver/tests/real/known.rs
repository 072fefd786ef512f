//! The table of known differences, `differences.yaml`, and which of its entries occurred.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::compare::Difference;

const TABLE: &str = include_str!("differences.yaml");

/// A known difference. Patterns have `*` for any text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The scenario, such as `pods/create`.
    #[serde(default = "any")]
    pub scenario: String,
    #[serde(default = "any")]
    pub verb: String,
    /// The kind, such as `deployments.apps`.
    #[serde(default = "any")]
    pub kind: String,
    /// The request, as it is printed.
    #[serde(default = "any")]
    pub request: String,
    /// The path in the response.
    #[serde(default = "any")]
    pub path: String,
    /// The sort of the difference: `status`, `missing`, `additional`, `value` or `order`.
    #[serde(default = "any")]
    pub sort: String,
    /// The values; strings without quotes.
    #[serde(default = "any")]
    pub stock: String,
    #[serde(default = "any")]
    pub built_in: String,
    /// Why it is permitted.
    pub reason: String,
    /// It depends on timing or on the options of the run, so that it need not occur.
    #[serde(default)]
    pub sometimes: bool,
}

fn any() -> String {
    "*".to_owned()
}

/// Where a difference occurred.
#[derive(Clone, Debug)]
pub struct Place {
    pub scenario: String,
    pub kind: String,
    pub verb: &'static str,
    pub request: String,
}

/// The table.
pub struct Table {
    known: Vec<Known>,
    used: BTreeSet<usize>,
}

impl Table {
    /// Reads the table; an error is one of the file.
    pub fn read() -> Result<Self, String> {
        let known: Vec<Known> =
            serde_saphyr::from_str(TABLE).map_err(|error| format!("differences.yaml: {error}"))?;
        if let Some(empty) = known.iter().find(|known| known.reason.trim().is_empty()) {
            return Err(format!("differences.yaml: an entry without a reason: {empty:?}"));
        }
        match known.iter().find(|known| known.is_broad()) {
            Some(broad) => {
                let required =
                    "requires a sort, a value or a request, so that it covers no other differences";
                Err(format!("differences.yaml: an entry {required}: {broad:?}"))
            }
            None => Ok(Self { known, used: BTreeSet::new() }),
        }
    }

    /// The positions of the entries that cover a difference, all of which count as used.
    pub fn covering(&mut self, place: &Place, difference: &Difference) -> Vec<usize> {
        let entries = self.known.iter().enumerate();
        let covering: Vec<usize> =
            entries.filter(|(_, known)| known.covers(place, difference)).map(|(number, _)| number).collect();
        self.used.extend(&covering);
        covering
    }

    /// The entries that cover nothing any more.
    pub fn unused(&self) -> Vec<String> {
        let entries = self.known.iter().enumerate();
        let unused = entries.filter(|(number, known)| !self.used.contains(number) && !known.sometimes);
        unused.map(|(number, known)| format!("entry {}: {known:?}", number + 1)).collect()
    }
}

impl Known {
    /// Whether it covers any difference at its path, whatever the values are and however it came about.
    fn is_broad(&self) -> bool {
        [&self.sort, &self.stock, &self.built_in, &self.request].iter().all(|pattern| *pattern == "*")
    }

    fn covers(&self, place: &Place, difference: &Difference) -> bool {
        glob(&self.scenario, &place.scenario)
            && glob(&self.kind, &place.kind)
            && glob(&self.verb, place.verb)
            && glob(&self.path, &difference.path)
            && glob(&self.sort, difference.sort.name())
            && glob(&self.request, &place.request)
            && (self.stock == "*" || glob(&self.stock, &text(&difference.stock)))
            && (self.built_in == "*" || glob(&self.built_in, &text(&difference.built_in)))
    }
}

/// A value as it is printed; missing ones are `-`.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether a pattern with `*` matches the whole text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|head| text.strip_prefix(head)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn patterns_match_whole_texts() {
    for (pattern, text, expected) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*b", "ab", true),
        ("*a*c*", "xaxxcx", true),
        ("*a*c", "xaxxcx", false),
        ("a*a", "a", false),
    ] {
        assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
    }
}
