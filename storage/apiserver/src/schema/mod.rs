//! One schema, four uses: what server-side apply merges (`fields`), by which keys strategic merge patches
//! find items (`strategic`), which fields an applied object may have (`fields::check`), and what clients are
//! told of it all (`openapi`).
//!
//! The fields of all kinds that are served stand in `types.txt`, which `generate.py` makes, and those of kinds
//! that CRDs bring to other clusters in `extensions.txt`; this reads both once, when they are first needed.

mod text;

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The form of a value.
#[derive(Debug, PartialEq)]
pub enum Shape {
    /// A value without parts.
    Scalar(Scalar),
    /// Anything at all.
    Any,
    /// A list.
    List {
        /// The form of its items.
        item: Box<Shape>,
        /// What tells its items apart.
        identity: Identity,
    },
    /// Values under keys that the author chooses.
    Map {
        /// The form of its values.
        value: Box<Shape>,
        /// Whether it is replaced as a whole.
        atomic: bool,
    },
    /// An object whose fields are known: its place in the table of types.
    Object(usize),
}

/// Sorts of values without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A text.
    Text,
    /// Bytes in base64.
    Bytes,
    /// A moment in whole seconds.
    Time,
    /// A moment in microseconds.
    MicroTime,
    /// A truth value.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A number.
    Double,
    /// An amount with a unit: a text, or a number.
    Quantity,
    /// A text or a number.
    IntOrText,
}

/// What tells the items of a list apart.
#[derive(Debug, PartialEq)]
pub enum Identity {
    /// Nothing: the list is replaced as a whole.
    Atomic,
    /// Their value.
    Value,
    /// The fields with these names.
    Keys(Vec<&'static str>),
}

/// How a strategic merge patch merges a list.
#[derive(Debug, Default, PartialEq)]
pub enum Patch {
    /// It replaces it.
    #[default]
    Replace,
    /// It adds items that are not there; they are scalars.
    Merge,
    /// It merges items with the same value in this field.
    ByKey {
        /// The field.
        key: &'static str,
        /// Whether items are unions, of which a patch may say what stays.
        union: bool,
    },
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// Its JSON name.
    pub name: &'static str,
    /// The form of its value.
    pub shape: Shape,
    /// Whether it must be there.
    pub required: bool,
    /// How strategic merge patches treat it, if it is a list.
    pub patch: Patch,
    /// Its value when it is left out, as far as it is part of a key.
    pub default: Option<&'static str>,
}

/// A type of objects.
#[derive(Debug)]
pub struct Object {
    /// The package, e.g. `io.k8s.api.core.v1`.
    pub package: &'static str,
    /// Its name there, e.g. `PodSpec`.
    pub name: &'static str,
    /// Whether objects are replaced as a whole.
    pub atomic: bool,
    /// Its fields by name.
    pub fields: BTreeMap<&'static str, Field>,
}

/// All types.
#[derive(Debug)]
pub struct Schema {
    objects: Vec<Object>,
    /// By package and name.
    kinds: BTreeMap<&'static str, BTreeMap<&'static str, Shape>>,
}

static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| text::read(concat!(include_str!("types.txt"), include_str!("extensions.txt"))));

/// All types that are served, and those that they are made of.
pub fn objects() -> &'static [Object] {
    &SCHEMA.objects
}

/// The form of objects of a kind; `None` for one that is not in the table.
pub fn of_kind(group: &str, kind: &str) -> Option<&'static Shape> {
    // Packages are called after the first part of their group's name.
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    SCHEMA.kinds.get(package)?.get(kind)
}

impl Shape {
    /// The type, of an object with known fields.
    pub fn object(&self) -> Option<&'static Object> {
        match self {
            Self::Object(place) => Some(&objects()[*place]),
            _ => None,
        }
    }

    /// The form of the field `name` of an object or map.
    pub fn field(&self, name: &str) -> Option<&Shape> {
        match self {
            Self::Object(place) => objects()[*place].fields.get(name).map(|field| &field.shape),
            Self::Map { value, .. } => Some(value),
            Self::Scalar(_) | Self::Any | Self::List { .. } => None,
        }
    }

    /// Whether values are replaced as a whole.
    pub fn is_atomic(&self) -> bool {
        match self {
            Self::Scalar(_) | Self::Any | Self::List { identity: Identity::Atomic, .. } => true,
            Self::List { .. } => false,
            Self::Map { atomic, .. } => *atomic,
            Self::Object(place) => objects()[*place].atomic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    #[test]
    fn every_served_kind_is_described() {
        for row in resources::all() {
            let shape = of_kind(row.group, row.kind);
            let shape = shape.unwrap_or_else(|| panic!("{}: add it to generate.py", row.qualified_kind()));
            assert!(shape.field("metadata").is_some(), "{}", row.kind);
            assert_eq!(row.has_status(), row.has_status() && shape.field("status").is_some(), "{}", row.kind);
        }
    }

    #[test]
    fn keys_are_fields_of_the_items() {
        for object in objects() {
            for field in object.fields.values() {
                let Shape::List { item, identity } = &field.shape else { continue };
                if let Identity::Keys(keys) = identity {
                    assert!(
                        keys.iter().all(|key| item.field(key).is_some()),
                        "{}.{}",
                        object.name,
                        field.name
                    );
                }
                if let Patch::ByKey { key, .. } = field.patch {
                    assert!(item.field(key).is_some(), "{}.{}", object.name, field.name);
                }
            }
        }
    }

    #[test]
    fn known_lists_merge_as_upstream_says() {
        let pod = of_kind("", "Pod").unwrap();
        let spec = pod.field("spec").unwrap();
        let list = |name: &str| match spec.field(name) {
            Some(Shape::List { identity, .. }) => identity,
            other => panic!("{name} is {other:?}"),
        };
        assert_eq!(list("containers"), &Identity::Keys(vec!["name"]));
        assert_eq!(list("tolerations"), &Identity::Atomic);
        assert!(spec.field("nodeSelector").unwrap().is_atomic(), "the selector goes as a whole");
        let volumes = &spec.object().unwrap().fields["volumes"];
        assert_eq!(volumes.patch, Patch::ByKey { key: "name", union: true });
        assert!(of_kind("events.k8s.io", "Event").unwrap().field("regarding").is_some());
        assert!(of_kind("", "Deployment").is_none(), "it is in another group");
    }
}
