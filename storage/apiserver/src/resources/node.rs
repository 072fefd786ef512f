//! Nodes.

use k8s_openapi::api::core::v1::Node;

use super::decode::decode;
use super::{BASE, Field, Resource, Storage, columns, status_of};

pub(super) fn row() -> Resource {
    Resource {
        storage: Storage::Nodes,
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        subresources: const { &[status_of("Node")] },
        decode: decode::<Node>,
        quantities: &["status/capacity/*", "status/allocatable/*"],
        fields: &[Field { name: "spec.unschedulable", pointers: &["/spec/unschedulable"], unset: "false" }],
        columns: columns::NODE,
        empty: r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{}}"#,
        ..BASE
    }
}
