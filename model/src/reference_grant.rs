//! `gateway.networking.k8s.io/v1beta1` ReferenceGrants: an owner of objects permits references to them from other
//! namespaces. Claims require one for a data source in another namespace (KEP-3294).
//!
//! Upstream: `apis/v1beta1/referencegrant_types.go` of kubernetes-sigs/gateway-api.

use serde::{Deserialize, Serialize};

use crate::custom_kinds::kinds;

/// The group.
pub const GROUP: &str = "gateway.networking.k8s.io";

kinds! {
    GROUP, "gateway.networking.k8s.io/v1beta1";
    /// Permits references from objects in other namespaces to objects in its own.
    ReferenceGrant in "referencegrants", NamespaceResourceScope {
        /// The permitted references.
        spec as "spec": ReferenceGrantSpec,
        ..
    }
}

/// The permitted references: from each of the first to each of the second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrantSpec {
    /// The objects that may refer.
    #[serde(default)]
    pub from: Vec<ReferenceGrantFrom>,
    /// The objects that may be referred to.
    #[serde(default)]
    pub to: Vec<ReferenceGrantTo>,
}

/// Objects that may refer to others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrantFrom {
    /// Their API group; empty for core.
    #[serde(default)]
    pub group: String,
    /// Their kind.
    pub kind: String,
    /// Their namespace.
    pub namespace: String,
}

/// Objects that may be referred to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrantTo {
    /// Their API group; empty for core.
    #[serde(default)]
    pub group: String,
    /// Their kind.
    pub kind: String,
    /// The name of the only one; all, if it is unset or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
