//! RuntimeClasses. They are stored and validated only: all containers run in the same way.

use k8s_openapi::api::node::v1::RuntimeClass;

use super::columns;
use super::decode::decode;
use super::{BASE, Resource, Storage};
use crate::admission::runtime_class;

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
        validate: runtime_class::validate,
        warnings: |class, _| runtime_class::warnings(class),
        validate_update: runtime_class::validate_update,
        columns: columns::RUNTIME_CLASS,
        empty: r#","handler":"""#,
        ..BASE
    }
}
