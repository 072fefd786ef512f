//! The served kinds: one row per kind. Everything kind-specific is in its row; the handlers treat no kind
//! specially except Namespace and Pod.

mod cells;
mod cluster;
mod columns;
mod decode;
mod definitions;
mod events;
mod inert;
mod job;
mod node;
mod pod;
mod reviews;
mod roles;
mod service;
mod storage;

use std::borrow::Cow;
use std::sync::LazyLock;

use hyper::body::Bytes;
use serde_json::Value;

use crate::custom::{Kind, Shelf};
use crate::names::NameRule;
use crate::protobuf;
use crate::status::FieldError;
use crate::store::Object;

pub use cells::{Cell, labels::selector_text};
pub use columns::{CREATED, Column, NAME, of as columns_of};
pub use decode::{DecodeError, Decoded, check_types, decode, decode_metadata};
pub use inert::Inert;
pub use pod::validate_ephemeral_containers;

/// The storage of a kind's objects. Two resources may share one, being views of the same objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// `namespaces`
    Namespaces,
    /// `nodes`
    Nodes,
    /// `pods`
    Pods,
    /// `persistentvolumes`
    Volumes,
    /// `persistentvolumeclaims`
    Claims,
    /// `events`, of both groups
    Events,
    /// `configmaps`
    ConfigMaps,
    /// `secrets`
    Secrets,
    /// `serviceaccounts`
    ServiceAccounts,
    /// `services`
    Services,
    /// `storageclasses`
    Classes,
    /// `volumeattachments`
    Attachments,
    /// `csidrivers`
    Drivers,
    /// `csinodes`
    CsiNodes,
    /// `csistoragecapacities`
    Capacities,
    /// `volumeattributesclasses`
    AttributesClasses,
    /// `leases`
    Leases,
    /// `priorityclasses`
    PriorityClasses,
    /// `clusterrolebindings`
    ClusterRoleBindings,
    /// `clusterroles`
    ClusterRoles,
    /// `rolebindings`
    RoleBindings,
    /// `roles`
    Roles,
    /// Reviews, which are answered and never stored.
    Reviews,
    /// Reviews in a namespace, likewise.
    LocalReviews,
    /// `customresourcedefinitions`
    Definitions,
    /// The objects of a kind of `inert.yaml`.
    Inert {
        /// Its place in this file.
        place: u8,
        /// Whether its objects are namespaced.
        namespaced: bool,
    },
    /// The objects of a kind that a CustomResourceDefinition brings.
    Custom(Shelf),
}

impl Storage {
    /// The number of shelves of built-in kinds.
    pub fn count() -> usize {
        Self::Definitions.index() + 1 + inert::count()
    }

    /// The place among the shelves; those of custom kinds follow the built-in ones.
    pub const fn index(self) -> usize {
        match self {
            Self::Namespaces => 0,
            Self::Nodes => 1,
            Self::Pods => 2,
            Self::Volumes => 3,
            Self::Claims => 4,
            Self::Events => 5,
            Self::ConfigMaps => 6,
            Self::Secrets => 7,
            Self::ServiceAccounts => 8,
            Self::Classes => 9,
            Self::Attachments => 10,
            Self::Drivers => 11,
            Self::CsiNodes => 12,
            Self::Capacities => 13,
            Self::AttributesClasses => 14,
            Self::Leases => 15,
            Self::PriorityClasses => 16,
            Self::ClusterRoleBindings => 17,
            Self::ClusterRoles => 18,
            Self::RoleBindings => 19,
            Self::Roles => 20,
            Self::Reviews => 21,
            Self::LocalReviews => 22,
            Self::Services => 23,
            Self::Definitions => 24,
            Self::Inert { place, .. } => Self::Definitions.index() + 1 + place as usize,
            Self::Custom(shelf) => shelf.index(),
        }
    }

    /// Whether its objects are answers to a request, which are never stored.
    pub fn is_virtual(self) -> bool {
        matches!(self, Self::Reviews | Self::LocalReviews)
    }

    /// Whether its objects are namespaced.
    pub fn namespaced(self) -> bool {
        match self {
            Self::Pods
            | Self::Claims
            | Self::Events
            | Self::ConfigMaps
            | Self::Secrets
            | Self::ServiceAccounts
            | Self::Services
            | Self::Capacities
            | Self::Leases
            | Self::RoleBindings
            | Self::Roles
            | Self::LocalReviews => true,
            Self::Namespaces
            | Self::Nodes
            | Self::Volumes
            | Self::Classes
            | Self::Attachments
            | Self::Drivers
            | Self::CsiNodes
            | Self::AttributesClasses
            | Self::PriorityClasses
            | Self::ClusterRoleBindings
            | Self::ClusterRoles
            | Self::Reviews
            | Self::Definitions => false,
            Self::Inert { namespaced, .. } => namespaced,
            Self::Custom(shelf) => shelf.namespaced(),
        }
    }
}

/// A path below an object.
#[derive(Debug)]
pub struct Subresource {
    /// The last segment of the path.
    pub name: &'static str,
    /// The kind of its body.
    pub kind: &'static str,
    /// The group and version of that kind, if they are not those of the objects.
    pub foreign: Option<(&'static str, &'static str)>,
    /// Its verbs.
    pub verbs: &'static [&'static str],
}

/// `scale`, the number of replicas.
pub const fn scale() -> Subresource {
    let foreign = Some(("autoscaling", "v1"));
    Subresource { name: "scale", kind: "Scale", foreign, verbs: &["get", "patch", "update"] }
}

/// `status`, of objects of `kind`.
pub const fn status_of(kind: &'static str) -> Subresource {
    Subresource { name: "status", kind, foreign: None, verbs: &["get", "patch", "update"] }
}

/// A field for field selectors, in addition to `metadata.name` and `metadata.namespace`.
#[derive(Debug)]
pub struct Field {
    /// Its name in a field selector.
    pub name: &'static str,
    /// JSON pointers: the first that is set is used.
    pub pointers: &'static [&'static str],
    /// Its value when it is not set.
    pub unset: &'static str,
}

/// What `metadata.generation` of a kind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Nothing: it stays as the client that created the object has set it.
    AsGiven,
    /// The changes of its spec, from 0, or from the value that the client that created the object has set.
    Changes,
    /// The versions of its spec, from 1.
    Versions,
}

/// A write that may cause warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Create,
    /// Of the spec: the generation changes.
    Update,
    /// Of something else.
    UpdateOfMetadata,
}

/// A kind of object, with its kind-specific code.
#[derive(Debug)]
pub struct Resource {
    /// The storage of its objects.
    pub storage: Storage,
    /// The API group; empty for core.
    pub group: &'static str,
    /// The version in its group.
    pub version: &'static str,
    /// E.g. `Pod`.
    pub kind: &'static str,
    /// E.g. `pods`, as in paths.
    pub plural: &'static str,
    /// E.g. `pod`.
    pub singular: &'static str,
    /// Short names in kubectl.
    pub short_names: &'static [&'static str],
    /// Categories, e.g. `all`.
    pub categories: &'static [&'static str],
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// The paths below its objects.
    pub subresources: &'static [Subresource],
    /// Whether a deletion returns the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether an update without a version replaces any version (`AllowUnconditionalUpdate`).
    pub unconditional: bool,
    /// Whether an update creates a missing object (`AllowCreateOnUpdate`).
    pub created_by_update: bool,
    /// Fields of the spec that keep their value when an update omits them.
    pub retained: &'static [&'static str],
    /// What `metadata.generation` counts.
    pub generation: Generation,
    /// What its names are.
    pub names: NameRule,
    /// Decodes a body by the schema of the kind: unknown fields are dropped, wrong types are errors.
    pub decode: fn(&Resource, Value) -> Result<Decoded, DecodeError>,
    /// Sets the default values of optional fields.
    pub default: fn(&mut Value),
    /// Sets the initial status of a new object.
    pub begin: fn(&mut Value),
    /// Completes a changed object, from the old one to the new one.
    pub settle: fn(&Value, &mut Value),
    /// Completes a new status, from the old object to the new one.
    pub settle_status: fn(&Value, &mut Value),
    /// Validates a new status, of the object with it.
    pub validate_status: fn(&Value) -> Vec<FieldError>,
    /// Validates a part of a new object of which the errors precede those of its metadata.
    pub validate_first: fn(&Value) -> Vec<FieldError>,
    /// Validates a new object.
    pub validate: fn(&Value) -> Vec<FieldError>,
    /// Validates a change, from the first to the second.
    pub validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// Warnings about an object that is written.
    pub warnings: fn(&Value, Write) -> Vec<String>,
    /// The warning with which every request about the kind is answered.
    pub deprecation: Option<&'static str>,
    /// Additional fields for selectors.
    pub fields: &'static [Field],
    /// The columns of its table, each with its cell.
    pub columns: &'static [Column],
    /// Of a kind that a CustomResourceDefinition brings: its schema and subresources.
    pub custom: Option<&'static Kind>,
    /// Of a kind without code: its data.
    pub inert: Option<&'static Inert>,
    /// Converts a stored object to this resource's shape; unset if that is the stored shape.
    pub view: Option<fn(Value) -> Value>,
    /// An empty object's body, for bookmarks.
    pub empty: &'static str,
}

/// The defaults of most kinds.
pub const BASE: Resource = Resource {
    storage: Storage::Namespaces,
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: false,
    subresources: &[],
    returns_deleted: false,
    unconditional: true,
    created_by_update: false,
    retained: &[],
    generation: Generation::AsGiven,
    names: NameRule::Subdomain,
    decode,
    default: |_| {},
    begin: |_| {},
    settle: |_, _| {},
    settle_status: |_, _| {},
    validate_status: |_| Vec::new(),
    validate_first: |_| Vec::new(),
    validate: |_| Vec::new(),
    validate_update: |_, _| Vec::new(),
    warnings: |_, _| Vec::new(),
    deprecation: None,
    fields: &[],
    columns: &[],
    custom: None,
    inert: None,
    view: None,
    empty: "",
};

impl Resource {
    /// The apiVersion, `v1` or `storage.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods` or `storageclasses.storage.k8s.io`.
    pub fn qualified_plural(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// `Pod` or `StorageClass.storage.k8s.io`.
    pub fn qualified_kind(&self) -> String {
        qualified(self.kind, self.strategy_group())
    }

    /// The group in errors of validation and of deletions: both kinds of events have the strategy of the core group
    /// (pkg/registry/core/event/strategy.go).
    pub fn strategy_group(&self) -> &'static str {
        if self.storage == Storage::Events { "" } else { self.group }
    }

    /// Sets the default values of optional fields.
    pub fn set_defaults(&self, object: &mut Value) {
        match self.inert {
            Some(inert) => inert.set_defaults(object),
            None => (self.default)(object),
        }
    }

    /// Sets the initial status of a new object.
    pub fn set_first_status(&self, object: &mut Value) {
        if let Some(inert) = self.inert {
            inert.begin(object);
        }
        (self.begin)(object);
    }

    /// Completes a new status, from the old object to the new one.
    pub fn complete_status(&self, old: &Value, new: &mut Value) {
        if let Some(inert) = self.inert {
            inert.complete_status(new);
        }
        (self.settle_status)(old, new);
    }

    /// Warnings about an object that is written.
    pub fn warnings_about(&self, object: &Value, write: Write) -> Vec<String> {
        let inert = self.inert.and_then(Inert::warning);
        inert.into_iter().chain((self.warnings)(object, write)).collect()
    }

    /// The verbs on the resource itself.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.storage {
            // Upstream spares namespaces from being deleted wholesale.
            Storage::Namespaces => &["create", "delete", "get", "list", "patch", "update", "watch"],
            Storage::Reviews | Storage::LocalReviews => &["create"],
            _ => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }
    }

    /// The subresource with this name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether the status can be written through its own path only.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// A stored object's JSON text in this resource's shape, with its kind.
    pub fn write_json(&self, object: &Object, text: &mut Vec<u8>) {
        text.extend_from_slice(b"{\"kind\":\"");
        text.extend_from_slice(self.kind.as_bytes());
        text.extend_from_slice(b"\",\"apiVersion\":\"");
        text.extend_from_slice(self.api_version().as_bytes());
        text.extend_from_slice(b"\",");
        self.write_item(object, text, 1);
    }

    /// Like [`Resource::write_json`] without kind; the first `skip` bytes are omitted.
    pub fn write_item(&self, object: &Object, text: &mut Vec<u8>, skip: usize) {
        match self.as_read(&object.value) {
            Cow::Borrowed(_) => text.extend_from_slice(&self.shaped(object).json()[skip..]),
            Cow::Owned(read) => text.extend_from_slice(&read.to_string().as_bytes()[skip..]),
        }
    }

    /// A stored object as it is read; only those of custom kinds may differ.
    pub fn as_read<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        self.custom.and_then(|kind| kind.as_read(value)).map_or(Cow::Borrowed(value), Cow::Owned)
    }

    /// A stored object in this resource's shape.
    fn shaped<'a>(&self, object: &'a Object) -> &'a Object {
        self.view.map_or(object, |view| object.view(view))
    }

    /// Whether its objects have protobuf, which those of CRDs have not.
    pub fn has_protobuf(&self) -> bool {
        self.custom.is_none() && protobuf::supports(self.group, self.kind)
    }

    /// The kind of a list of its objects.
    pub fn list_kind(&self) -> String {
        self.custom.map_or_else(|| format!("{}List", self.kind), |kind| kind.list_kind.clone())
    }

    /// A stored object's protobuf message in this resource's shape, without its kind.
    pub fn protobuf<'a>(&self, object: &'a Object) -> &'a Bytes {
        self.shaped(object).protobuf(|value| protobuf::message(self.group, self.kind, value))
    }

    /// A stored object in this resource's shape, with its kind.
    pub fn present(&self, value: &Value) -> Value {
        let mut value = match &self.view {
            None => self.as_read(value).into_owned(),
            Some(view) => view(value.clone()),
        };
        value["kind"] = self.kind.into();
        value["apiVersion"] = self.api_version().into();
        value
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

static ALL: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    [
        cluster::rows(),
        storage::rows(),
        vec![node::row(), pod::row(), service::row()],
        events::rows(),
        roles::rows(),
        reviews::rows(),
        inert::rows(),
        vec![definitions::row()],
    ]
    .into_iter()
    .flatten()
    .map(|row| if row.columns.is_empty() { Resource { columns: columns_of(row.kind), ..row } } else { row })
    .collect()
});

/// All rows.
pub fn all() -> &'static [Resource] {
    &ALL
}

/// The row at a path.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    ALL.iter().find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// The row with the stored shape of the objects of `shelf`.
pub fn stored(storage: Storage) -> &'static Resource {
    if let Storage::Custom(shelf) = storage {
        return shelf.row();
    }
    ALL.iter()
        .find(|r| r.storage == storage && r.view.is_none())
        .expect("every shelf has a row without a view")
}

/// Sets `object[field]` unless it is set.
fn default_to(object: &mut Value, field: &str, value: impl Into<Value>) {
    if object[field].is_null() {
        object[field] = value.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_shelves_agree() {
        for row in all() {
            assert_eq!(row.namespaced, row.storage.namespaced(), "{}", row.plural);
            assert_eq!(stored(row.storage).storage, row.storage);
            let empty = format!("{{\"metadata\":{{}}{}}}", row.empty);
            assert!(serde_json::from_str::<Value>(&empty).is_ok(), "{}", row.plural);
        }
    }
}
