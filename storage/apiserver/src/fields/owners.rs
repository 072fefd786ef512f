//! The owners of an object's fields, and `metadata.managedFields`, their representation.
//!
//! Mirrors apimachinery pkg/util/managedfields/internal (managedfields.go, capmanagers.go, stripmeta.go).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::Set;

/// Maximum number of managers by updates; beyond that, the oldest are merged into one.
const UPDATERS: usize = 10;

/// The manager of the merged oldest updates.
const ANCIENT: &str = "ancient-changes";

/// The operation of a manager. Applies are listed before updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An owner of fields: the same name may own some by each operation and through each subresource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// The operation.
    pub operation: Operation,
    /// The client's manager name.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
}

/// The fields of one manager.
#[derive(Clone, Debug, PartialEq)]
pub struct Holding {
    /// The fields.
    pub fields: Set,
    /// Time of its last change.
    pub time: String,
    /// The API version of its last write.
    pub api_version: String,
}

/// The managers of an object with their fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owners(BTreeMap<Manager, Holding>);

impl Owners {
    /// Parses `managedFields`; `None` if an entry is invalid.
    pub fn read(entries: &Value) -> Option<Self> {
        let mut owners = Self::default();
        for entry in entries.as_array().map_or(&[][..], Vec::as_slice) {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let operation = match entry["operation"].as_str()? {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let manager = Manager { operation, name: text("manager"), subresource: text("subresource") };
            let fields = Set::read(&entry["fieldsV1"])?;
            let holding = Holding { fields, time: text("time"), api_version: text("apiVersion") };
            owners.0.insert(manager, holding);
        }
        Some(owners)
    }

    /// Writes `managedFields`: applies first, each group in order of time.
    pub fn write(&self) -> Value {
        let mut entries: Vec<(&Manager, &Holding)> = self.0.iter().collect();
        entries.sort_by_key(|(manager, holding)| (manager.operation, &holding.time, &manager.name));
        let write = |(manager, holding): (&Manager, &Holding)| {
            let mut entry = Map::new();
            let mut put = |field: &str, value: Value| drop(entry.insert(field.to_owned(), value));
            put("manager", manager.name.as_str().into());
            put("operation", manager.operation.name().into());
            put("apiVersion", holding.api_version.as_str().into());
            if !holding.time.is_empty() {
                put("time", holding.time.as_str().into());
            }
            put("fieldsType", "FieldsV1".into());
            put("fieldsV1", holding.fields.write());
            if !manager.subresource.is_empty() {
                put("subresource", manager.subresource.as_str().into());
            }
            Value::Object(entry)
        };
        entries.into_iter().map(write).collect()
    }

    /// The same owners, without times.
    pub fn without_times(mut self) -> Self {
        self.0.values_mut().for_each(|holding| holding.time.clear());
        self
    }

    /// Whether no manager owns any field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All managers.
    pub fn iter(&self) -> impl Iterator<Item = (&Manager, &Holding)> {
        self.0.iter()
    }

    /// The fields of `manager`.
    pub fn get(&self, manager: &Manager) -> Option<&Holding> {
        self.0.get(manager)
    }

    /// Sets the fields of `manager`, which may be none.
    pub fn set(&mut self, manager: Manager, holding: Holding) {
        if holding.fields.is_empty() {
            self.0.remove(&manager);
        } else {
            self.0.insert(manager, holding);
        }
    }

    /// Removes `fields` from all managers except `except`.
    pub fn take(&mut self, fields: &Set, except: &Manager) {
        for (manager, holding) in &mut self.0 {
            if manager != except {
                holding.fields = holding.fields.difference(fields);
            }
        }
        self.0.retain(|_, holding| !holding.fields.is_empty());
    }

    /// All owned fields.
    pub fn all(&self) -> Set {
        self.0.values().fold(Set::default(), |all, holding| all.union(&holding.fields))
    }

    /// Merges the oldest updaters into one manager, if they are too many.
    pub fn cap(&mut self) {
        let mut updaters: Vec<(Manager, String)> = self
            .0
            .iter()
            .filter(|(manager, _)| manager.operation == Operation::Update)
            .map(|(manager, holding)| (manager.clone(), holding.time.clone()))
            .collect();
        if updaters.len() <= UPDATERS {
            return;
        }
        updaters.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
        let merged = updaters.len() - UPDATERS + 1;
        let ancient =
            Manager { operation: Operation::Update, name: ANCIENT.to_owned(), subresource: String::new() };
        let oldest = updaters.into_iter().take(merged).filter_map(|(manager, _)| self.0.remove(&manager));
        let together = oldest.reduce(|older, newer| Holding {
            fields: older.fields.union(&newer.fields),
            time: newer.time,
            api_version: newer.api_version,
        });
        if let Some(mut holding) = together {
            if let Some(already) = self.0.remove(&ancient) {
                holding.fields = holding.fields.union(&already.fields);
            }
            self.set(ancient, holding);
        }
    }
}

/// Fields without owners: they identify the object, or only the server writes them.
pub fn strip(fields: &mut Set, reset: &[&[&str]]) {
    const NAMES: [&str; 8] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    for name in ["apiVersion", "kind", "metadata"] {
        fields.leave(&[name]);
    }
    for name in NAMES {
        fields.leave(&["metadata", name]);
    }
    fields.cut(&["metadata", "managedFields"]);
    for path in reset {
        fields.cut(path);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn updater(name: &str) -> Manager {
        Manager { operation: Operation::Update, name: name.to_owned(), subresource: String::new() }
    }

    fn holding(field: &str, time: usize) -> Holding {
        Holding {
            fields: Set::read(&json!({ format!("f:{field}"): {} })).unwrap(),
            time: format!("2026-01-01T00:00:{time:02}Z"),
            api_version: "v1".to_owned(),
        }
    }

    #[test]
    fn the_oldest_of_many_updaters_become_one() {
        let mut owners = Owners::default();
        for index in 0..13 {
            owners.set(updater(&format!("u{index:02}")), holding(&format!("x{index:02}"), index));
        }
        let applier = Manager { operation: Operation::Apply, ..updater("a") };
        owners.set(applier.clone(), holding("a", 0));
        let before = owners.all();
        owners.cap();
        assert_eq!(owners.iter().count(), UPDATERS + 1);
        assert_eq!(owners.all(), before, "nothing is lost");
        assert_eq!(owners.get(&updater(ANCIENT)).unwrap().fields.paths(), [".x00", ".x01", ".x02", ".x03"]);
        assert!(owners.get(&applier).is_some() && owners.get(&updater("u04")).is_some());
        owners.set(updater("late"), holding("late", 20));
        owners.cap();
        assert_eq!(owners.iter().count(), UPDATERS + 1, "and the next one joins them");
        assert!(owners.get(&updater(ANCIENT)).unwrap().fields.paths().contains(&".x04".to_owned()));
    }

    #[test]
    fn written_and_read_again_it_is_the_same() {
        let mut owners = Owners::default();
        owners.set(updater("u"), holding("a", 1));
        owners.set(Manager { subresource: "status".to_owned(), ..updater("u") }, holding("b", 2));
        owners.set(Manager { operation: Operation::Apply, ..updater("u") }, holding("c", 3));
        let written = owners.write();
        assert_eq!(written[0]["operation"], "Apply");
        assert_eq!(written[2]["subresource"], "status");
        assert_eq!(Owners::read(&written), Some(owners));
        assert_eq!(Owners::read(&json!([{ "operation": "Guess" }])), None);
    }
}
