//! What has happened to the objects of a driver, as far as the calls before showed. Pure: built from entries.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    fields::{at, text},
    row::{Of, State},
};

/// What all processes of a driver write to the common memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A process was started that serves this endpoint.
    Started(String),
    /// A call succeeded.
    Called { method: String, request: Value, answer: Value },
    /// Data is to be changed when its volume is published again.
    Pending(Pending),
    /// That was done.
    Applied(u64),
}

/// A change of data that is to show later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// The volume or snapshot.
    pub object: String,
    /// The rule and its action that describe the change.
    pub action: (usize, usize),
    /// The volume with the other content.
    pub from: Option<String>,
}

/// The first answer of a call, with its request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct First {
    pub request: Value,
    pub answer: Value,
    number: u64,
}

/// A volume, snapshot or group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub kind: Kind,
    pub name: String,
    /// What it was created from.
    pub source: Option<String>,
    /// The members of a group.
    members: Vec<String>,
    /// Its place in the order of creation.
    number: u64,
    states: BTreeSet<State>,
    /// The paths at which it is published and staged.
    pub published: BTreeSet<String>,
    pub staged: BTreeSet<String>,
    attached: BTreeSet<String>,
}

/// The kinds of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    #[default]
    Volume,
    Snapshot,
    Group,
}

/// All objects, and what was done.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    objects: BTreeMap<String, Object>,
    names: BTreeMap<(Kind, String), String>,
    /// What was done and not undone: the keys of calls, by method and [`what`] they are about.
    done: BTreeMap<(String, String), BTreeSet<String>>,
    firsts: BTreeMap<(String, String), First>,
    starts: BTreeMap<String, u32>,
    pending: BTreeMap<u64, Pending>,
    entries: u64,
}

/// What undoes what.
const INVERSE: [(&str, &str); 6] = [
    ("CreateVolume", "DeleteVolume"),
    ("CreateSnapshot", "DeleteSnapshot"),
    ("CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"),
    ("ControllerPublishVolume", "ControllerUnpublishVolume"),
    ("NodeStageVolume", "NodeUnstageVolume"),
    ("NodePublishVolume", "NodeUnpublishVolume"),
];

/// The kind of object that a method creates.
pub(crate) fn creates(method: &str) -> Option<Kind> {
    match method {
        "CreateVolume" => Some(Kind::Volume),
        "CreateSnapshot" => Some(Kind::Snapshot),
        "CreateVolumeGroupSnapshot" => Some(Kind::Group),
        _ => None,
    }
}

/// Whether a method changes an object.
pub(crate) fn changes(method: &str) -> bool {
    method == "ControllerExpandVolume"
        || INVERSE.iter().any(|(does, undoes)| method == *does || method == *undoes)
}

/// What a call is about, in words that are equal for a repeated call.
pub(crate) fn key(method: &str, request: &Value) -> String {
    if creates(method).is_some() {
        return text(request, "name").to_owned();
    }
    let fields = [
        "volume_id",
        "snapshot_id",
        "group_snapshot_id",
        "node_id",
        "staging_target_path",
        "target_path",
        "volume_path",
    ];
    // The staging path of a published volume is not part of what is done.
    let stages = ["NodeStageVolume", "NodeUnstageVolume"].contains(&method);
    let fields = fields.into_iter().filter(|field| stages || *field != "staging_target_path");
    let parts: Vec<&str> = fields.map(|field| text(request, field)).collect();
    parts.join(" ")
}

/// What a call with this [`key`] is about, also if its inverse has other fields.
fn what(method: &str, key: &str) -> (String, String) {
    (method.to_owned(), key.trim().to_owned())
}

impl World {
    /// Adds what has happened.
    pub fn apply(&mut self, entry: Entry) {
        self.entries += 1;
        match entry {
            Entry::Started(endpoint) => {
                let starts = self.starts.entry(endpoint).or_default();
                *starts += 1;
                if *starts > 1 {
                    self.objects.values_mut().for_each(|object| {
                        object.states.insert(State::Outlived);
                    });
                }
            }
            Entry::Called { method, request, answer } => self.called(&method, request, answer),
            Entry::Pending(pending) => drop(self.pending.insert(self.entries, pending)),
            Entry::Applied(number) => drop(self.pending.remove(&number)),
        }
    }

    fn called(&mut self, method: &str, request: Value, answer: Value) {
        let key = key(method, &request);
        self.undo(method, &request);
        if let Some(kind) = creates(method) {
            self.created(kind, &key, &request, &answer);
        } else if let Some(id) = self.object_of(method, &request) {
            self.changed(method, &id, &request);
        }
        self.done.entry(what(method, &key)).or_default().insert(key.clone());
        let number = self.entries;
        self.firsts.entry((method.to_owned(), key)).or_insert(First { request, answer, number });
    }

    fn created(&mut self, kind: Kind, name: &str, request: &Value, answer: &Value) {
        let id = match kind {
            Kind::Volume => text(answer, "volume.volume_id"),
            Kind::Snapshot => text(answer, "snapshot.snapshot_id"),
            Kind::Group => text(answer, "group_snapshot.group_snapshot_id"),
        };
        let of_snapshot = text(request, "volume_content_source.snapshot.snapshot_id");
        let of_volume = text(request, "volume_content_source.volume.volume_id");
        let of_create = text(request, "source_volume_id");
        let source = [of_snapshot, of_volume, of_create].into_iter().find(|id| !id.is_empty());
        let known = self.names.insert((kind, name.to_owned()), id.to_owned());
        if known.as_deref() == Some(id) && self.is(id, State::Exists) {
            self.mark(id, State::Recreated);
            return;
        }
        let mut states = BTreeSet::from([State::Exists]);
        states.extend((!of_snapshot.is_empty()).then_some(State::Restored));
        states.extend((!of_volume.is_empty()).then_some(State::Cloned));
        let is_block = !at(request, "volume_capabilities.*.block").is_empty();
        states.extend((kind == Kind::Volume).then_some(if is_block { State::Block } else { State::Mount }));
        let members = at(answer, "group_snapshot.snapshots.*");
        let members: Vec<String> = members.iter().map(|it| text(it, "snapshot_id").to_owned()).collect();
        for member in at(answer, "group_snapshot.snapshots.*") {
            let source = Some(text(member, "source_volume_id").to_owned());
            let object = Object { kind: Kind::Snapshot, source, number: self.entries, ..Object::default() };
            let object = Object { states: BTreeSet::from([State::Exists]), ..object };
            self.objects.insert(text(member, "snapshot_id").to_owned(), object);
        }
        if let Some(source) = source {
            self.mark(source, if kind == Kind::Volume { State::Copied } else { State::Snapshotted });
            // What is wrong with a snapshot is wrong with its copies.
            if self.objects.get(source).is_some_and(|it| it.kind == Kind::Snapshot) {
                let mut inherited: Vec<Pending> = Vec::new();
                inherited.extend(self.pending.values().filter(|it| it.object == source).cloned());
                for (nth, pending) in inherited.into_iter().enumerate() {
                    // Unique, since entries are fewer than this.
                    let number = (self.entries << 16) + nth as u64 + (1 << 48);
                    self.pending.insert(number, Pending { object: id.to_owned(), ..pending });
                }
            }
        }
        let source = source.map(str::to_owned);
        let object = Object {
            kind,
            name: name.to_owned(),
            source,
            members,
            number: self.entries,
            states,
            ..Object::default()
        };
        self.objects.insert(id.to_owned(), object);
    }

    fn changed(&mut self, method: &str, id: &str, request: &Value) {
        let Some(object) = self.objects.get_mut(id) else { return };
        let field = |name| text(request, name).to_owned();
        match method {
            "DeleteVolume" | "DeleteSnapshot" | "DeleteVolumeGroupSnapshot" => {
                object.states.remove(&State::Exists);
                object.states.insert(State::Deleted);
            }
            "ControllerPublishVolume" => drop(object.attached.insert(field("node_id"))),
            "ControllerUnpublishVolume" if field("node_id").is_empty() => object.attached.clear(),
            "ControllerUnpublishVolume" => drop(object.attached.remove(&field("node_id"))),
            "NodeStageVolume" => drop(object.staged.insert(field("staging_target_path"))),
            "NodeUnstageVolume" => drop(object.staged.remove(&field("staging_target_path"))),
            "NodePublishVolume" => {
                let again = object.states.contains(&State::Used) && object.published.is_empty();
                object.states.extend(again.then_some(State::Reused));
                object.published.insert(field("target_path"));
                object.states.insert(State::Used);
            }
            "NodeUnpublishVolume" => drop(object.published.remove(&field("target_path"))),
            "ControllerExpandVolume" => drop(object.states.insert(State::Expanded)),
            _ => {}
        }
    }

    /// A call undoes its inverse.
    fn undo(&mut self, method: &str, request: &Value) {
        let inverse = INVERSE.iter().find_map(|(does, undoes)| match method {
            _ if method == *does => Some(*undoes),
            _ if method == *undoes => Some(*does),
            _ => None,
        });
        let Some(inverse) = inverse else { return };
        let object = self.object_of(method, request);
        let name = object.as_ref().and_then(|id| self.objects.get(id)).map(|object| object.name.clone());
        let key = match (creates(inverse), creates(method)) {
            (Some(_), _) => name.unwrap_or_default(),
            (None, Some(_)) => object.unwrap_or_default(),
            (None, None) => key(inverse, request),
        };
        self.done.remove(&what(inverse, &key));
    }

    fn mark(&mut self, id: &str, state: State) {
        if let Some(object) = self.objects.get_mut(id) {
            object.states.insert(state);
        }
    }

    /// The id of the object that a call is about.
    pub fn object_of(&self, method: &str, request: &Value) -> Option<String> {
        if let Some(kind) = creates(method) {
            return self.names.get(&(kind, text(request, "name").to_owned())).cloned();
        }
        let fields = ["volume_id", "snapshot_id", "group_snapshot_id"];
        fields.into_iter().map(|field| text(request, field)).find(|id| !id.is_empty()).map(str::to_owned)
    }

    /// An object.
    pub fn object(&self, id: &str) -> Option<&Object> {
        self.objects.get(id)
    }

    /// Whether this has happened to an object.
    pub fn is(&self, id: &str, state: State) -> bool {
        let Some(object) = self.objects.get(id) else { return false };
        match state {
            State::Attached => !object.attached.is_empty(),
            State::Staged => !object.staged.is_empty(),
            State::Published => !object.published.is_empty(),
            State::Shared => object.published.len() > 1,
            _ => object.states.contains(&state),
        }
    }

    /// Whether this very thing was done, and not undone since.
    pub fn repeated(&self, method: &str, key: &str) -> bool {
        self.done.get(&what(method, key)).is_some_and(|keys| keys.contains(key))
    }

    /// Whether a method was called with success.
    pub fn called_before(&self, method: &str) -> bool {
        self.firsts.keys().any(|(called, _)| called == method)
    }

    /// The first call of this kind.
    pub fn first(&self, method: &str, key: &str) -> Option<&First> {
        self.firsts.get(&(method.to_owned(), key.to_owned()))
    }

    /// The last answer for another object.
    pub fn another_first(&self, method: &str, key: &str) -> Option<&First> {
        let others = self.firsts.iter().filter(|((other, of), _)| other == method && of != key);
        others.map(|(_, first)| first).max_by_key(|first| first.number)
    }

    /// Whether a process of this endpoint was started again.
    pub fn restarted(&self, endpoint: &str) -> bool {
        self.starts.get(endpoint).is_some_and(|starts| *starts > 1)
    }

    /// The volume from which an object has its data.
    pub fn source_volume(&self, id: &str) -> Option<String> {
        let source = self.objects.get(id)?.source.clone()?;
        match self.objects.get(&source) {
            Some(object) if object.kind == Kind::Snapshot => object.source.clone(),
            _ => Some(source),
        }
    }

    /// Objects in relation to one.
    pub fn related(&self, id: &str, of: Of) -> Vec<String> {
        let kind = self.objects.get(id).map(|object| object.kind).unwrap_or_default();
        let same = |other: &str| {
            let block = |id: &str| self.is(id, State::Block);
            kind == Kind::Snapshot || block(other) == block(id)
        };
        let mut others: Vec<(&String, &Object)> = self.objects.iter().collect();
        others.retain(|(other, object)| {
            object.kind == kind && *other != id && object.states.contains(&State::Exists) && same(other)
        });
        others.sort_by_key(|(_, object)| object.number);
        match of {
            Of::This if kind == Kind::Group => self.objects[id].members.clone(),
            Of::This => vec![id.to_owned()],
            Of::Source => self.source_volume(id).into_iter().collect(),
            Of::Other => others.last().map(|(other, _)| (*other).clone()).into_iter().collect(),
            Of::LongerNames => {
                let name = self.objects.get(id).map(|object| object.name.as_str()).unwrap_or_default();
                others.retain(|(_, object)| object.name.starts_with(name));
                others.into_iter().map(|(other, _)| other.clone()).collect()
            }
            Of::All => others.into_iter().map(|(other, _)| other.clone()).collect(),
            Of::Copies => {
                let is_copy = |other: &&String| {
                    let source = self.objects.get(*other).and_then(|object| object.source.as_deref());
                    source == Some(id) || self.source_volume(other).as_deref() == Some(id)
                };
                let volumes = self.objects.iter().filter(|(_, object)| object.kind == Kind::Volume);
                volumes.map(|(other, _)| other).filter(is_copy).cloned().collect()
            }
        }
    }

    /// The changes of the data of a volume that are to show when it is published again.
    pub fn pending(&self, volume: &str) -> Vec<(u64, Pending)> {
        let of_volume = self.pending.iter().filter(|(_, pending)| pending.object == volume);
        of_volume.map(|(number, pending)| (*number, pending.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn world(calls: &[(&str, Value, Value)]) -> World {
        let mut world = World::default();
        for (method, request, answer) in calls.iter().cloned() {
            world.apply(Entry::Called { method: method.to_owned(), request, answer });
        }
        world
    }

    fn create(name: &str, id: &str) -> (&'static str, Value, Value) {
        ("CreateVolume", json!({ "name": name }), json!({ "volume": { "volume_id": id } }))
    }

    #[test]
    fn what_was_done_and_not_undone_is_repeated() {
        let stage = ("NodeStageVolume", json!({"volume_id": "v", "staging_target_path": "/s"}), json!({}));
        let unstage = ("NodeUnstageVolume", stage.1.clone(), json!({}));
        let delete = ("DeleteVolume", json!({"volume_id": "v"}), json!({}));
        let repeated = |calls: &[(&str, Value, Value)], next: &(&str, Value, Value)| {
            world(calls).repeated(next.0, &key(next.0, &next.1))
        };
        let made = create("a", "v");
        assert!(!repeated(&[], &made) && repeated(std::slice::from_ref(&made), &made));
        assert!(!repeated(&[made.clone(), delete.clone()], &made));
        assert!(repeated(&[made.clone(), stage.clone()], &stage));
        assert!(!repeated(&[made.clone(), stage.clone(), unstage.clone()], &stage));
        assert!(repeated(&[made.clone(), stage, unstage.clone()], &unstage));
        assert!(repeated(&[made, delete.clone()], &delete));
    }

    #[test]
    fn publications_are_counted_by_path_and_time() {
        let at = |method: &'static str, path: &str| {
            (method, json!({"volume_id": "v", "target_path": path}), json!({}))
        };
        let (publish, unpublish) = ("NodePublishVolume", "NodeUnpublishVolume");
        let mut calls = vec![create("a", "v"), at(publish, "/one"), at(publish, "/two")];
        let both = world(&calls);
        assert!(both.is("v", State::Shared) && !both.is("v", State::Reused));
        calls.extend([at(unpublish, "/one"), at(unpublish, "/two"), at(publish, "/one")]);
        let again = world(&calls);
        assert!(again.is("v", State::Reused) && !again.is("v", State::Shared));
        assert!(again.called_before(unpublish) && !again.called_before("NodeStageVolume"));
    }

    #[test]
    fn what_is_wrong_with_a_snapshot_is_wrong_with_its_copies() {
        let snapshot = json!({"name": "s", "source_volume_id": "v"});
        let mut world = world(&[
            create("a", "v"),
            ("CreateSnapshot", snapshot, json!({"snapshot": {"snapshot_id": "snap"}})),
        ]);
        world.apply(Entry::Pending(Pending { object: "snap".into(), action: (0, 0), from: None }));
        let from = json!({"name": "b", "volume_content_source": {"snapshot": {"snapshot_id": "snap"}}});
        world.apply(Entry::Called {
            method: "CreateVolume".into(),
            request: from,
            answer: json!({"volume": {"volume_id": "w"}}),
        });
        assert_eq!(world.pending("w").len(), 1);
        assert_eq!(world.source_volume("w").as_deref(), Some("v"));
        assert!(
            world.is("w", State::Restored)
                && world.is("snap", State::Copied)
                && world.is("v", State::Snapshotted)
        );
        assert_eq!(world.related("v", Of::Copies), ["w"]);
        let (number, _) = world.pending("w")[0].clone();
        world.apply(Entry::Applied(number));
        assert_eq!((world.pending("w").len(), world.pending("snap").len()), (0, 1));
    }

    #[test]
    fn the_youngest_of_the_same_kind_is_the_other() {
        let mut block = create("c", "x");
        block.1["volume_capabilities"] = json!([{"block": {}}]);
        let world = world(&[create("a", "v"), create("b", "w"), block]);
        assert_eq!(world.related("v", Of::Other), ["w"]);
        assert_eq!(world.related("w", Of::All), ["v"]);
        assert!(world.related("x", Of::Other).is_empty());
    }
}
