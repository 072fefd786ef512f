//! RuntimeClasses. They are stored only: all containers run in the same way.

use k8s_openapi::api::node::v1::RuntimeClass;

use super::columns;
use super::decode::decode;
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
        decode: decode::<RuntimeClass>,
        quantities: &["overhead/podFixed/*"],
        columns: columns::RUNTIME_CLASS,
        empty: r#","handler":"""#,
        ..BASE
    }
}
