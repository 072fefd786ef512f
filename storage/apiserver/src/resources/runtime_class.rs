//! RuntimeClasses. They are stored only: all containers run in the same way.

use super::columns;
use super::{BASE, Resource, Storage};

pub(super) fn row() -> Resource {
    Resource {
        storage: Storage::RuntimeClasses,
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        singular: "runtimeclass",
        unconditional: false,
        created_by_update: true,
        columns: columns::RUNTIME_CLASS,
        empty: r#","handler":"""#,
        ..BASE
    }
}
