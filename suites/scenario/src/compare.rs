//! Compares the two sides, and knows which differences are permitted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde::Deserialize;

use crate::normalise::Normal;

/// What can differ. A pattern begins with one of these, so that none permits whatever a scenario does.
const KINDS: [&str; 10] = [
    "step",
    "object",
    "field",
    "event",
    "call",
    "more calls",
    "fewer calls",
    "more writes",
    "order",
    "last call",
];

/// Of these a pattern says by how many they may differ.
const NUMBERS: [&str; 3] = ["more calls", "fewer calls", "more writes"];

/// How many writes to an object a report has.
const WRITES: usize = 40;

/// What came of each step: its title, and "done" or what happened instead.
pub type Outcome = Vec<(String, String)>;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// What differs: step, object, field, event, call, number or order of calls, and which.
    pub what: String,
    /// On the first side: the built-in controllers.
    pub one: String,
    /// On the second side.
    pub other: String,
}

impl Difference {
    /// It, with the names of the sides.
    pub fn text(&self, sides: [&str; 2]) -> String {
        let width = sides.map(str::len).into_iter().max().unwrap_or_default() + 1;
        let [one, other] = sides.map(|side| format!("{:width$}", format!("{side}:")));
        format!("{}\n    {one} {}\n    {other} {}", self.what, self.one, self.other)
    }
}

/// All differences of a scenario.
pub fn differences(built_in: &(Outcome, Normal), stock: &(Outcome, Normal)) -> Vec<Difference> {
    let mut found = Vec::new();
    for ((title, one), (_, other)) in built_in.0.iter().zip(&stock.0) {
        push(&mut found, format!("step {title}"), one.clone(), other.clone());
    }
    let (built_in, stock) = (&built_in.1, &stock.1);
    let objects = |normal: &Normal| -> BTreeSet<String> { normal.writes.keys().cloned().collect() };
    let (of_built_in, of_stock) = (objects(built_in), objects(stock));
    for object in of_built_in.symmetric_difference(&of_stock) {
        let has =
            |objects: &BTreeSet<String>| if objects.contains(object) { "exists" } else { "-" }.to_owned();
        push(&mut found, format!("object {object}"), has(&of_built_in), has(&of_stock));
    }
    let both: BTreeSet<&String> = of_built_in.intersection(&of_stock).collect();
    let histories = |normal: &Normal| -> BTreeMap<String, String> {
        let fields = normal.fields.iter().filter(|((object, _), _)| both.contains(object));
        fields
            .map(|((object, field), values)| (format!("field {object} {field}"), values.join(" > ")))
            .collect()
    };
    each(&mut found, &histories(built_in), &histories(stock));
    let events = |normal: &Normal| -> BTreeMap<String, String> {
        let by = |by: &BTreeSet<String>| by.iter().cloned().collect::<Vec<_>>().join(", ");
        normal.events.iter().map(|(event, from)| (format!("event {event}"), by(from))).collect()
    };
    each(&mut found, &events(built_in), &events(stock));
    let calls = |normal: &Normal| -> BTreeMap<String, String> {
        let calls = normal.calls.iter();
        calls.map(|((of, method), calls)| (format!("call {method} {of}"), calls.join(" > "))).collect()
    };
    each(&mut found, &calls(built_in), &calls(stock));
    for (key, &count) in &built_in.counts {
        let other = stock.counts.get(key).copied().unwrap_or(count);
        let which = if count > other { "more" } else { "fewer" };
        push(&mut found, format!("{which} calls {} {}", key.1, key.0), count.to_string(), other.to_string());
    }
    for object in &both {
        let count = |normal: &Normal| normal.writes[*object].len();
        let (count, other) = (count(built_in), count(stock));
        // Fewer are what the built-in controllers are for.
        if count > other {
            push(&mut found, format!("more writes {object}"), count.to_string(), other.to_string());
        }
    }
    let order = |normal: &Normal| -> BTreeMap<String, String> {
        normal.order.iter().map(|(of, methods)| (format!("order {of}"), methods.join(" > "))).collect()
    };
    each(&mut found, &order(built_in), &order(stock));
    found
}

/// The differences at the end: objects that exist and their fields, and the volumes, attachments and snapshots that the
/// driver was left with.
pub fn final_differences(built_in: &Normal, stock: &Normal) -> Vec<Difference> {
    let last = |normal: &Normal| -> BTreeMap<String, String> {
        let exists = |object: &str| {
            let key = (object.to_owned(), "(object)".to_owned());
            normal.fields.get(&key).and_then(|values| values.last()).is_some_and(|last| last == "exists")
        };
        let fields = normal.fields.iter().filter(|((object, _), _)| exists(object));
        let fields = fields.filter_map(|((object, field), values)| {
            let last = values.last().filter(|value| *value != "-")?;
            Some((format!("field {object} {field}"), last.clone()))
        });
        let calls = normal.effects.iter().map(|(of, method)| (format!("last call {of}"), method.clone()));
        fields.chain(calls).collect()
    };
    let mut found = Vec::new();
    each(&mut found, &last(built_in), &last(stock));
    found
}

fn each(found: &mut Vec<Difference>, built_in: &BTreeMap<String, String>, stock: &BTreeMap<String, String>) {
    let keys: BTreeSet<&String> = built_in.keys().chain(stock.keys()).collect();
    for key in keys {
        let value = |of: &BTreeMap<String, String>| of.get(key).cloned().unwrap_or_else(|| "-".into());
        push(found, key.clone(), value(built_in), value(stock));
    }
}

fn push(found: &mut Vec<Difference>, what: String, built_in: String, stock: String) {
    if built_in != stock {
        found.push(Difference { what, one: built_in, other: stock });
    }
}

/// Permitted differences with one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The scenarios, with `*` for any text.
    pub scenarios: Vec<String>,
    /// What differs in each of them.
    pub differ: Vec<Permitted>,
    /// Why it is permitted.
    pub reason: String,
    /// The file and function, or the issue, of upstream.
    pub upstream: String,
    /// The versions of Kubernetes that differ, as `1.34`; all if there are none.
    #[serde(default)]
    pub versions: Vec<String>,
    /// It depends on timing, so that it need not occur in every run.
    #[serde(default)]
    pub sometimes: bool,
}

/// A permitted difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permitted {
    /// What differs, with `*` for any text.
    pub what: String,
    /// The value on the first side, with `*` for any text.
    #[serde(default = "any", alias = "built_in")]
    pub one: String,
    /// The value on the second side.
    #[serde(default = "any", alias = "stock")]
    pub other: String,
    /// Of numbers: by how many they may differ.
    pub at_most: Option<usize>,
    /// Of histories: only if both end with the same value.
    #[serde(default)]
    pub same_end: bool,
}

fn any() -> String {
    "*".to_owned()
}

impl Permitted {
    fn covers(&self, difference: &Difference) -> bool {
        glob(&self.what, &difference.what)
            && glob(&self.one, &difference.one)
            && glob(&self.other, &difference.other)
            && self.at_most.is_none_or(|most| distance(difference).is_some_and(|by| by <= most))
            && (!self.same_end || end(&difference.one) == end(&difference.other))
    }

    /// Whether it is for one kind of difference, and for numbers says how much.
    fn is_exact(&self) -> bool {
        let of = |kind: &str| self.what.strip_prefix(kind).is_some_and(|rest| rest.starts_with(' '));
        let Some(kind) = KINDS.into_iter().find(|kind| of(kind)) else { return false };
        !NUMBERS.contains(&kind) || self.at_most.is_some()
    }
}

/// By how many two numbers differ.
fn distance(difference: &Difference) -> Option<usize> {
    let number = |text: &String| text.parse::<usize>().ok();
    Some(number(&difference.one)?.abs_diff(number(&difference.other)?))
}

/// The last value of a history.
fn end(history: &str) -> &str {
    history.rsplit(" > ").next().unwrap_or(history)
}

/// An entry of the table, a scenario of it, and a difference of it.
type Place = (usize, usize, usize);

/// A table of permitted differences cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TableError(String);

/// The table of permitted differences, and which of them occurred.
#[derive(Debug)]
pub struct Table {
    known: Vec<Known>,
    used: Mutex<BTreeSet<Place>>,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// It cannot be read, or an entry has no reason or permits too much.
    pub fn read(file: &Path) -> Result<Self, TableError> {
        let unusable = |what: String| TableError(format!("{}: {what}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| unusable(error.to_string()))?;
        let known: Vec<Known> = serde_saphyr::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        if let Some(empty) = known.iter().find(|known| known.reason.is_empty() || known.upstream.is_empty()) {
            return Err(unusable(format!("an entry without reason or upstream: {empty:?}")));
        }
        let vague = known.iter().flat_map(|known| &known.differ).find(|permitted| !permitted.is_exact());
        if let Some(vague) = vague {
            return Err(unusable(format!("for more than one kind of difference, or any number: {vague:?}")));
        }
        Ok(Self { known, used: Mutex::default() })
    }

    /// The table without the entries that are for other versions of Kubernetes than this, as `1.34`.
    #[must_use]
    pub fn of_version(mut self, version: &str) -> Self {
        self.known.retain(|known| known.versions.is_empty() || known.versions.iter().any(|of| of == version));
        self
    }

    /// A table that permits nothing.
    pub fn empty() -> Self {
        Self { known: Vec::new(), used: Mutex::default() }
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Those that the table does not have.
    pub fn unknown(&self, scenario: &str, found: Vec<Difference>) -> Vec<Difference> {
        let covered = |difference: &Difference| {
            let matching: Vec<Place> = self
                .places()
                .filter(|(_, pattern, permitted)| glob(pattern, scenario) && permitted.covers(difference))
                .map(|(place, ..)| place)
                .collect();
            self.used.lock().unwrap_or_else(PoisonError::into_inner).extend(&matching);
            !matching.is_empty()
        };
        found.into_iter().filter(|difference| !covered(difference)).collect()
    }

    /// Scenarios and differences of entries that match nothing any more.
    pub fn unused(&self) -> Vec<String> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.places().filter(|((entry, ..), ..)| !self.known[*entry].sometimes);
        places
            .filter(|(place, ..)| !used.contains(place))
            .map(|(_, scenario, permitted)| format!("{scenario} / {}", permitted.what))
            .collect()
    }

    fn places(&self) -> impl Iterator<Item = (Place, &str, &Permitted)> {
        self.known.iter().enumerate().flat_map(|(entry, known)| {
            let scenarios = known.scenarios.iter().enumerate();
            scenarios.flat_map(move |(scenario, pattern)| {
                let differ = known.differ.iter().enumerate();
                differ
                    .map(move |(number, permitted)| ((entry, scenario, number), pattern.as_str(), permitted))
            })
        })
    }
}

/// The report about a scenario: its differences, and the writes to objects that differ.
pub fn report(found: &[Difference], sides: [&str; 2], built_in: &Normal, stock: &Normal) -> String {
    let mut text = String::new();
    for difference in found {
        let _ = writeln!(text, "{}", difference.text(sides));
    }
    for object in built_in.writes.keys().chain(stock.writes.keys()).collect::<BTreeSet<_>>() {
        let field = format!("field {object} ");
        if !found.iter().any(|difference| difference.what.starts_with(&field)) {
            continue;
        }
        for (side, normal) in sides.into_iter().zip([built_in, stock]) {
            let _ = writeln!(text, "  writes to {object}, {side}:");
            for write in normal.writes.get(object).into_iter().flatten().take(WRITES) {
                let created = write.iter().any(|change| change == "(object)=exists");
                let write = if created { "created".to_owned() } else { write.join(", ") };
                let _ = writeln!(text, "    {write}");
            }
            let more = normal.writes.get(object).map_or(0, Vec::len).saturating_sub(WRITES);
            if more > 0 {
                let _ = writeln!(text, "    and {more} more");
            }
        }
    }
    text
}

/// Whether a pattern with `*` matches the whole text.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            let Some(rest) = text.strip_prefix(head) else { return false };
            tail.is_empty() || rest.char_indices().any(|(at, _)| glob(tail, &rest[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_entry_of_some_versions_permits_nothing_on_others_and_is_not_missed_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = |what: &str, versions: &str| {
            format!(
                "- {{ scenarios: [one], differ: [{{ what: 'event {what}' }}], reason: r, upstream: u{versions} }}\n"
            )
        };
        fs::write(file.path(), entry("always", "") + &entry("old", ", versions: ['1.32', '1.34']")).unwrap();
        let found = || {
            let difference =
                |what: &str| Difference { what: what.into(), one: "a".into(), other: "b".into() };
            vec![difference("event always"), difference("event old")]
        };
        for (version, unknown) in [("1.34", &[][..]), ("1.36", &["event old"])] {
            let table = Table::read(file.path()).unwrap().of_version(version);
            let left: Vec<String> = table.unknown("one", found()).into_iter().map(|one| one.what).collect();
            assert_eq!(left, unknown, "{version}");
            assert_eq!(table.unused(), Vec::<String>::new(), "{version}");
        }
    }
}
