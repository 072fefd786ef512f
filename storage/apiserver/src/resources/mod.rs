//! What is served: one row per kind. Everything that is peculiar to a kind hangs on its row; the handlers
//! know no kind but Namespace and Pod.

mod cells;
mod cluster;
mod columns;
mod decode;
mod events;
mod node;
mod pod;
mod snapshots;
mod storage;
mod workloads;

use std::sync::LazyLock;

use serde_json::Value;

use crate::status::FieldError;

pub use columns::Column;
pub use decode::{DecodeError, Decoded};

/// Where objects of a kind are stored. Two resources may share a shelf, being views of the same objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shelf {
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
    /// `daemonsets`
    DaemonSets,
    /// `deployments`
    Deployments,
    /// `clusterrolebindings`
    ClusterRoleBindings,
    /// `clusterroles`
    ClusterRoles,
    /// `rolebindings`
    RoleBindings,
    /// `roles`
    Roles,
    /// `volumesnapshots`
    Snapshots,
    /// `volumesnapshotcontents`
    SnapshotContents,
    /// `volumesnapshotclasses`
    SnapshotClasses,
}

impl Shelf {
    /// How many there are.
    pub const COUNT: usize = Self::SnapshotClasses as usize + 1;

    /// Whether its objects live in namespaces.
    pub fn namespaced(self) -> bool {
        match self {
            Self::Pods
            | Self::Claims
            | Self::Events
            | Self::ConfigMaps
            | Self::Secrets
            | Self::ServiceAccounts
            | Self::Capacities
            | Self::Leases
            | Self::DaemonSets
            | Self::Deployments
            | Self::RoleBindings
            | Self::Roles
            | Self::Snapshots => true,
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
            | Self::SnapshotContents
            | Self::SnapshotClasses => false,
        }
    }
}

/// A path below an object.
#[derive(Debug)]
pub struct Subresource {
    /// The last segment of the path.
    pub name: &'static str,
    /// The kind that is sent there.
    pub kind: &'static str,
    /// The group and version of that kind, where they are not those of the objects.
    pub foreign: Option<(&'static str, &'static str)>,
    /// What may be done with it.
    pub verbs: &'static [&'static str],
}

/// `status`, of objects of `kind`.
const fn status_of(kind: &'static str) -> Subresource {
    Subresource { name: "status", kind, foreign: None, verbs: &["get", "patch", "update"] }
}

/// A field that lists may be filtered by, beside `metadata.name` and `metadata.namespace`.
#[derive(Debug)]
pub struct Field {
    /// Its name in a field selector.
    pub name: &'static str,
    /// JSON pointers: the first that is set counts.
    pub pointers: &'static [&'static str],
    /// Its value when it is not set.
    pub unset: &'static str,
}

/// A kind of object, and what is peculiar to it.
#[derive(Debug)]
pub struct Resource {
    /// Where its objects are stored.
    pub shelf: Shelf,
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
    /// What kubectl users type.
    pub short_names: &'static [&'static str],
    /// Groups of resources, e.g. `all`.
    pub categories: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The paths below its objects.
    pub subresources: &'static [Subresource],
    /// Whether a deletion is answered with the object rather than a `Status`.
    pub returns_deleted: bool,
    /// Fields of the spec that stay as they are when an update leaves them out.
    pub kept: &'static [&'static str],
    /// Whether `metadata.generation` counts the changes of its spec.
    pub generation: bool,
    /// Whether names are DNS labels, which have no dots.
    pub label_names: bool,
    /// Reads a body by the types of the kind: unknown fields go, wrong types are errors.
    pub decode: fn(&Resource, Value) -> Result<Decoded, DecodeError>,
    /// Patterns of fields that hold quantities, e.g. `spec/capacity/*`.
    pub quantities: &'static [&'static str],
    /// Sets the fields that a caller may leave out.
    pub default: fn(&mut Value),
    /// Sets the status that a new object starts with.
    pub begin: fn(&mut Value),
    /// Completes a new status, from the object as it was to what it becomes.
    pub settle_status: fn(&Value, &mut Value),
    /// Looks for what may not be stored.
    pub validate: fn(&Value) -> Vec<FieldError>,
    /// Looks for what may not change, from the first to the second.
    pub validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// Further fields for selectors.
    pub fields: &'static [Field],
    /// The columns of its table.
    pub columns: &'static [Column],
    /// The cells of one object, under `columns`.
    pub cells: fn(&Value) -> Vec<Value>,
    /// Makes this resource's shape of a stored object; unset where objects are stored in this very shape.
    pub view: Option<fn(Value) -> Value>,
    /// The body of an object with nothing in it, as bookmarks carry it.
    pub empty: &'static str,
}

/// What most kinds have in common.
const BASE: Resource = Resource {
    shelf: Shelf::Namespaces,
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
    kept: &[],
    generation: false,
    label_names: false,
    decode: |_, value| Ok(Decoded { value, faults: Vec::new() }),
    quantities: &[],
    default: |_| {},
    begin: |_| {},
    settle_status: |_, _| {},
    validate: |_| Vec::new(),
    validate_update: |_, _| Vec::new(),
    fields: &[],
    columns: columns::NAME_AND_AGE,
    cells: cells::name_and_age,
    view: None,
    empty: "",
};

impl Resource {
    /// `v1` or `storage.k8s.io/v1`.
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
        qualified(self.kind, self.group)
    }

    /// The verbs on the resource itself.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.shelf {
            // Upstream spares namespaces from being deleted wholesale.
            Shelf::Namespaces => &["create", "delete", "get", "list", "patch", "update", "watch"],
            _ => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether the status is written through its own path only.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// A stored object's JSON text in this resource's shape, with its kind.
    pub fn write_json(&self, object: &crate::store::Object, text: &mut Vec<u8>) {
        text.extend_from_slice(b"{\"kind\":\"");
        text.extend_from_slice(self.kind.as_bytes());
        text.extend_from_slice(b"\",\"apiVersion\":\"");
        text.extend_from_slice(self.api_version().as_bytes());
        text.extend_from_slice(b"\",");
        self.write_item(object, text, 1);
    }

    /// As [`Resource::write_json`] without kind; the first `skip` bytes are left out.
    pub fn write_item(&self, object: &crate::store::Object, text: &mut Vec<u8>, skip: usize) {
        match &self.view {
            None => text.extend_from_slice(&object.json()[skip..]),
            Some(view) => {
                let value = view(object.value.clone()).to_string();
                text.extend_from_slice(&value.as_bytes()[skip..]);
            }
        }
    }

    /// A stored object in this resource's shape, with its kind.
    pub fn present(&self, value: &Value) -> Value {
        let mut value = match &self.view {
            None => value.clone(),
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
        vec![node::row(), pod::row()],
        events::rows(),
        workloads::rows(),
        snapshots::rows(),
    ]
    .into_iter()
    .flatten()
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

/// The row in whose shape the objects of `shelf` are stored.
pub fn stored(shelf: Shelf) -> &'static Resource {
    ALL.iter().find(|r| r.shelf == shelf && r.view.is_none()).expect("every shelf has a row without a view")
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
            assert_eq!(row.namespaced, row.shelf.namespaced(), "{}", row.plural);
            assert_eq!(stored(row.shelf).shelf, row.shelf);
            let empty = format!("{{\"metadata\":{{}}{}}}", row.empty);
            assert!(serde_json::from_str::<Value>(&empty).is_ok(), "{}", row.plural);
        }
    }
}
