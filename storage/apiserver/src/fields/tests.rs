//! The rules of server-side apply as tables, and properties for any sequence of writes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::kind_shape;

/// An object with several managers, and the owners of its fields.
#[derive(Clone, Debug)]
struct World {
    object: Value,
    owners: Owners,
}

impl World {
    fn new() -> Self {
        Self { object: json!({}), owners: Owners::default() }
    }

    fn write_context<T>(operation: Operation, name: &str, act: impl FnOnce(&WriteContext<'_>) -> T) -> T {
        let shape = kind_shape("", "Pod").unwrap();
        let manager = Manager { operation, name: name.to_owned(), subresource: String::new() };
        let (time, api_version) = ("2026-01-01T00:00:00Z".to_owned(), "v1".to_owned());
        act(&WriteContext { shape, manager, time, api_version, reset: &[&["status"]] })
    }

    fn try_apply(&mut self, name: &str, applied: &Value, force: bool) -> Result<(), Vec<Conflict>> {
        let (object, owners) = Self::write_context(Operation::Apply, name, |write_context| {
            write_context.apply(self.owners.clone(), &self.object, applied, force)
        })?;
        // A whole object that was emptied is still one: stored ones have names.
        let object = Some(tidy(object)).filter(|object| !object.is_null()).unwrap_or_else(|| json!({}));
        *self = Self { object, owners };
        Ok(())
    }

    fn apply(mut self, name: &str, applied: Value) -> Self {
        self.try_apply(name, &applied, false).unwrap();
        self
    }

    fn force(mut self, name: &str, applied: Value) -> Self {
        self.try_apply(name, &applied, true).unwrap();
        self
    }

    fn update(mut self, name: &str, object: Value) -> Self {
        self.owners = Self::write_context(Operation::Update, name, |write_context| {
            write_context.update(self.owners.clone(), &self.object, &object)
        });
        self.object = object;
        self
    }

    fn owned(&self, operation: Operation, name: &str) -> Vec<String> {
        let manager = Manager { operation, name: name.to_owned(), subresource: String::new() };
        self.owners.get(&manager).map(|holding| holding.fields.paths()).unwrap_or_default()
    }
}

/// Drops nulls and empty wholes, as storing an object does.
fn tidy(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, tidy(value)));
            Value::Object(fields.filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}

fn labels(labels: Value) -> Value {
    json!({ "metadata": { "labels": labels } })
}

#[test]
fn fields_that_are_no_longer_applied_are_removed() {
    let world =
        World::new().apply("a", labels(json!({"x": "1", "y": "2"}))).apply("a", labels(json!({"y": "2"})));
    assert_eq!(world.object, labels(json!({"y": "2"})));
    assert_eq!(world.owned(Operation::Apply, "a"), [".metadata.labels.y"]);
}

#[test]
fn fields_of_other_managers_remain() {
    let both =
        World::new().apply("a", labels(json!({"x": "1", "y": "2"}))).apply("b", labels(json!({"x": "1"})));
    let left = both.apply("a", labels(json!({"y": "2"})));
    assert_eq!(left.object, labels(json!({"x": "1", "y": "2"})), "b applies it too");
    let deleted = left.apply("b", json!({}));
    assert_eq!(deleted.object, labels(json!({"y": "2"})));
    assert!(deleted.owned(Operation::Apply, "b").is_empty());
}

#[test]
fn unowned_fields_remain() {
    let mut world = World::new().apply("a", json!({"spec": {"nodeName": "n", "hostname": "h"}}));
    // A default that the server has set.
    world.object["spec"]["dnsPolicy"] = "ClusterFirst".into();
    let world = world.apply("a", json!({"spec": {"hostname": "h"}}));
    assert_eq!(world.object, json!({"spec": {"hostname": "h", "dnsPolicy": "ClusterFirst"}}));
}

#[test]
fn items_are_removed_with_their_key_unless_another_manager_owns_a_field() {
    let item = |fields: Value| json!({"spec": {"containers": [fields]}});
    let world = World::new()
        .apply("a", item(json!({"name": "c", "image": "x"})))
        .apply("b", item(json!({"name": "c", "tty": true})))
        .apply("a", json!({"spec": {}}));
    assert_eq!(world.object, item(json!({"name": "c", "tty": true})));
    let world = world.apply("b", json!({}));
    assert_eq!(world.object, json!({}));
}

#[test]
fn a_different_value_for_a_field_of_another_manager_is_a_conflict() {
    let mut world =
        World::new().apply("a", labels(json!({"x": "1"}))).update("u", labels(json!({"x": "1", "y": "1"})));
    let conflicts = world.try_apply("b", &labels(json!({"x": "2", "y": "2"})), false).unwrap_err();
    let found: Vec<_> = conflicts.iter().map(|c| (c.manager.as_str(), c.field.as_str())).collect();
    assert_eq!(found, [("\"a\"", ".metadata.labels.x"), ("\"u\" using v1", ".metadata.labels.y")]);
    let world = world.force("b", labels(json!({"x": "2", "y": "2"})));
    assert_eq!(world.object, labels(json!({"x": "2", "y": "2"})));
    assert!(world.owned(Operation::Apply, "a").is_empty());
    assert_eq!(world.owned(Operation::Update, "u"), [""; 0]);
}

#[test]
fn fields_that_are_reset_cause_no_conflict() {
    let mut world = World::new();
    world.object = json!({"status": {"phase": "Running"}});
    world.owners = World::write_context(Operation::Update, "u", |context| {
        context.before_tracking(&json!({}), &world.object)
    });
    let owners = world.owners.clone();
    world.try_apply("a", &json!({"status": {"phase": "Other"}}), false).unwrap();
    assert_eq!(world.owners, owners);
}

#[test]
fn the_same_value_is_shared() {
    let world = World::new().apply("a", labels(json!({"x": "1"}))).apply("b", labels(json!({"x": "1"})));
    assert_eq!(world.owned(Operation::Apply, "a"), world.owned(Operation::Apply, "b"));
}

#[test]
fn an_update_owns_the_changed_fields() {
    let world = World::new()
        .apply("a", json!({"metadata": {"labels": {"x": "1", "y": "1"}, "finalizers": ["f"]}}))
        .update("u", json!({"metadata": {"labels": {"x": "2"}, "finalizers": ["f", "g"]}}));
    assert_eq!(world.owned(Operation::Apply, "a"), [".metadata.finalizers[=\"f\"]"]);
    let updated = world.owned(Operation::Update, "u");
    assert_eq!(updated, [".metadata.finalizers[=\"g\"]", ".metadata.labels.x"]);
}

#[test]
fn wholes_belong_to_one() {
    let mut world = World::new().apply("a", json!({"spec": {"nodeSelector": {"x": "1"}}}));
    let other = json!({"spec": {"nodeSelector": {"y": "1"}}});
    let conflicts = world.try_apply("b", &other, false).unwrap_err();
    assert_eq!(conflicts[0].field, ".spec.nodeSelector");
}

#[test]
fn the_object_itself_has_no_owner() {
    let world = World::new().apply(
        "a",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "status": {"phase": "x"}}),
    );
    assert!(world.owners.is_empty());
}

#[test]
fn existing_fields_are_assigned_to_the_before_first_apply_manager() {
    // As a stock server tracks the creation of this very claim.
    let shape = kind_shape("", "PersistentVolumeClaim").unwrap();
    let live = json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": {"name": "c", "uid": "u", "labels": {"app": "x"}, "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
    });
    let empty = json!({"metadata": {}, "spec": {"resources": {}}, "status": {}});
    let manager = Manager { operation: Operation::Apply, name: "a".to_owned(), subresource: String::new() };
    let (time, api_version) = ("2026-01-01T00:00:00Z".to_owned(), "v1".to_owned());
    let write_context = WriteContext { shape, manager, time, api_version, reset: &[] };
    let written = write_context.before_tracking(&empty, &live).write();
    assert_eq!(written[0]["manager"], "before-first-apply");
    assert_eq!(
        written[0]["fieldsV1"],
        json!({
            "f:metadata": {
                "f:finalizers": {".": {}, "v:\"kubernetes.io/pvc-protection\"": {}},
                "f:labels": {".": {}, "f:app": {}},
            },
            "f:spec": {
                "f:accessModes": {},
                "f:resources": {"f:requests": {".": {}, "f:storage": {}}},
                "f:volumeMode": {},
            },
        })
    );
}

/// Parts of pods, with lists of every sort.
fn objects() -> impl Strategy<Value = Value> {
    let label = prop::collection::btree_map("[ab]", "[12]", 0..3);
    let containers = prop::collection::btree_map(
        "[cd]",
        (prop::option::of("[xy]"), prop::option::of(any::<bool>())),
        0..3,
    );
    let finalizers = prop::collection::btree_set("[fg]", 0..3);
    let node = prop::option::of("[mn]");
    (label, containers, finalizers, node).prop_map(|(labels, containers, finalizers, node)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .map(|(name, (image, tty))| tidy(json!({ "name": name, "image": image, "tty": tty })))
            .collect();
        let mut object = json!({});
        if !labels.is_empty() {
            object["metadata"]["labels"] = json!(labels);
        }
        if !finalizers.is_empty() {
            object["metadata"]["finalizers"] = json!(finalizers);
        }
        if !containers.is_empty() {
            object["spec"]["containers"] = json!(containers);
        }
        if let Some(node) = node {
            object["spec"]["nodeName"] = node.into();
        }
        object
    })
}

fn worlds() -> impl Strategy<Value = World> {
    prop::collection::vec(("[abu]", objects()), 0..5).prop_map(|writes| {
        writes.into_iter().fold(World::new(), |world, (name, object)| match name.as_str() {
            "u" => world.update("u", object),
            name => world.force(name, object),
        })
    })
}

proptest! {
    #[test]
    fn applying_again_changes_nothing(world in worlds(), applied in objects()) {
        let once = world.force("a", applied.clone());
        let twice = once.clone().apply("a", applied);
        prop_assert_eq!(&once.object, &twice.object);
        prop_assert_eq!(once.owners, twice.owners);
    }

    #[test]
    fn applied_fields_exist_and_are_owned(world in worlds(), applied in objects()) {
        let world = world.force("a", applied.clone());
        let shape = kind_shape("", "Pod").unwrap();
        let mut expected = set_of(&applied, shape);
        strip(&mut expected, &[]);
        prop_assert!(expected.difference(&set_of(&world.object, shape)).is_empty());
        prop_assert_eq!(expected.paths(), world.owned(Operation::Apply, "a"));
    }

    #[test]
    fn an_empty_apply_removes_all_owned_fields(applied in objects()) {
        let world = World::new().apply("a", applied).apply("a", json!({}));
        prop_assert!(world.owners.is_empty());
        prop_assert_eq!(set_of(&world.object, kind_shape("", "Pod").unwrap()).paths().iter()
            .filter(|path| !matches!(path.as_str(), ".metadata" | ".spec")).count(), 0);
    }

    #[test]
    fn missing_fields_have_no_owner(world in worlds()) {
        let present = set_of(&world.object, kind_shape("", "Pod").unwrap());
        let owned = world.owned(Operation::Apply, "a");
        let paths = present.paths();
        prop_assert!(owned.iter().all(|path| paths.contains(path)), "{:?} of {:?}", owned, paths);
    }
}
