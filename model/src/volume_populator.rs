//! `populator.storage.k8s.io/v1beta1` VolumePopulators: which kinds of data sources have a populator.
//!
//! Upstream: `client/apis/volumepopulator/v1beta1/types.go` of kubernetes-csi/volume-data-source-validator.

use serde::{Deserialize, Serialize};

use crate::custom_kinds::kinds;

/// The group.
pub const GROUP: &str = "populator.storage.k8s.io";

kinds! {
    GROUP, "populator.storage.k8s.io/v1beta1";
    /// The registration of a volume populator.
    VolumePopulator in "volumepopulators", ClusterResourceScope {
        /// The kind of data sources that it supports.
        source_kind as "sourceKind": GroupKind,
        ..
    }
}

/// A kind of an API group, in any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupKind {
    /// The API group; empty for core.
    #[serde(default)]
    pub group: String,
    /// The kind.
    pub kind: String,
}
