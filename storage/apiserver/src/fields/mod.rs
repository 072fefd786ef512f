//! Field ownership: the managers of an object's fields, and server-side apply.
//!
//! Mirrors structured-merge-diff merge/update.go and the managers around it in apimachinery
//! pkg/util/managedfields. If the ownership of an object was not tracked so far (`handlers/ownership` decides
//! when that begins), its fields are ascribed to the manager `before-first-apply`.

mod check;
mod merge;
mod owners;
mod set;
mod values;

use serde_json::Value;

pub use check::check;
pub use owners::{Manager, Operation, Owners};
pub use set::Set;
pub use values::{Changes, set_of};

use crate::schema::Shape;
use owners::{Holding, strip};
use values::{with_ancestors, without};

/// The manager of all fields that an object had before its owners were tracked.
const BEFORE: &str = "before-first-apply";

/// A write: its manager, time, and path.
#[derive(Debug)]
pub struct WriteContext<'a> {
    /// The object's schema.
    pub shape: &'a Shape,
    /// The manager.
    pub manager: Manager,
    /// The time, in RFC 3339.
    pub time: String,
    /// The API version of the write.
    pub api_version: String,
    /// Fields that cannot be written on this path, and so are not owned by the writer.
    pub reset: &'a [&'a [&'a str]],
}

/// Another manager owns a field, with another value.
#[derive(Debug, PartialEq)]
pub struct Conflict {
    /// The manager.
    pub manager: String,
    /// The field, e.g. `.spec.volumeMode`.
    pub field: String,
}

impl WriteContext<'_> {
    /// The owners after `live` has become `new` by an ordinary write.
    pub fn update(&self, mut owners: Owners, live: &Value, new: &Value) -> Owners {
        let changes = Changes::between(live, new, self.shape);
        owners.take(&changes.gained().union(&changes.removed), &self.manager);
        let mut fields = changes.gained();
        strip(&mut fields, self.reset);
        let held = owners.get(&self.manager).cloned();
        let (before, time) = held.map(|held| (held.fields, held.time)).unwrap_or_default();
        let time = if fields.is_empty() { time } else { self.time.clone() };
        let fields = before.difference(&changes.removed).union(&fields);
        owners.set(self.manager.clone(), Holding { fields, time, api_version: self.api_version.clone() });
        owners.cap();
        owners
    }

    /// The owners of an object that were not tracked: one manager owns everything. `empty` is an empty object
    /// of this kind.
    pub fn before_tracking(&self, empty: &Value, live: &Value) -> Owners {
        let manager =
            Manager { operation: Operation::Update, name: BEFORE.to_owned(), subresource: String::new() };
        let earlier = WriteContext {
            manager,
            time: self.time.clone(),
            api_version: self.api_version.clone(),
            reset: &[],
            ..*self
        };
        earlier.update(Owners::default(), empty, live)
    }

    /// The result of applying `applied` to `live`, and the owners of its fields.
    ///
    /// # Errors
    /// The fields that other managers own, unless the apply is forced.
    pub fn apply(
        &self,
        mut owners: Owners,
        live: &Value,
        applied: &Value,
        force: bool,
    ) -> Result<(Value, Owners), Vec<Conflict>> {
        let merged = merge::merge(live, applied, self.shape);
        let mut fields = set_of(applied, self.shape);
        strip(&mut fields, self.reset);
        let (last, last_time) =
            owners.get(&self.manager).map(|held| (held.fields.clone(), held.time.clone())).unzip();
        let holding = Holding { fields, time: self.time.clone(), api_version: self.api_version.clone() };
        owners.set(self.manager.clone(), holding.clone());
        let new = match last {
            Some(last) => prune(&merged, &last, &owners.all(), self.shape),
            None => merged,
        };
        let changes = Changes::between(live, &new, self.shape);
        // Fields that are reset change nothing, so that they cause no conflict.
        let without_reset = |mut set: Set| {
            self.reset.iter().for_each(|path| set.cut(path));
            set
        };
        let gained = without_reset(changes.gained());
        let conflicts = owners.iter().filter(|(manager, _)| **manager != self.manager);
        let conflicts: Vec<Conflict> = conflicts
            .flat_map(|(manager, holding)| {
                let fields = holding.fields.intersection(&gained).paths();
                let manager = describe(manager, holding);
                fields.into_iter().map(move |field| Conflict { manager: manager.clone(), field })
            })
            .collect();
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        if changes.gained().is_empty() && changes.removed.is_empty() {
            // managedfieldsupdater.go: the time is that of the last apply with a change.
            owners.set(self.manager.clone(), Holding { time: last_time.unwrap_or_default(), ..holding });
        }
        owners.take(&gained.union(&without_reset(changes.removed)), &self.manager);
        Ok((new, owners))
    }
}

/// `merged` without the fields that the applier had applied `last` and that no manager owns any longer.
fn prune(merged: &Value, last: &Set, owned: &Set, shape: &Shape) -> Value {
    let ancestors = |set: &Set| with_ancestors(set, Some(shape));
    let last = ancestors(last);
    let all = ancestors(&set_of(merged, shape));
    let pruned = without(merged, shape, &last);
    // Owned fields are restored, including those of the applier itself,
    let kept = ancestors(&set_of(&pruned, shape)).union(&ancestors(owned));
    let pruned = without(merged, shape, &all.difference(&kept));
    // and what was never his.
    let kept = ancestors(&set_of(&pruned, shape));
    without(merged, shape, &all.difference(&kept).intersection(&last))
}

/// A manager in conflict messages; never with its time (`BuildManagerIdentifier` in apimachinery's managedfields).
fn describe(manager: &Manager, holding: &Holding) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text += &format!(" with subresource {:?}", manager.subresource);
    }
    match manager.operation {
        Operation::Apply => text,
        Operation::Update => format!("{text} using {}", holding.api_version),
    }
}

#[cfg(test)]
mod tests;
