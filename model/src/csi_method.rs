//! The RPCs of CSI 1.12: their names and full gRPC paths, written down only here.
//!
//! A socket may serve more than CSI: an RPC of a later version, or of a vendor. So a recorded call has an
//! [`RpcMethod`], one of these or another.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! methods {
    ($($service:ident: $($method:ident),+;)+) => {
        /// An RPC of the CSI specification, 1.12.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CsiMethod {
            $($(#[doc = concat!("Of the service `", stringify!($service), "`.")] $method,)+)+
        }

        impl CsiMethod {
            /// All of them, in the order of the specification's services.
            pub const ALL: &'static [Self] = &[$($(Self::$method,)+)+];

            /// The name without its service: `NodeStageVolume`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$method => stringify!($method),)+)+
                }
            }

            /// The name of its service: `Node`.
            pub const fn service(self) -> &'static str {
                match self {
                    $($(Self::$method)|+ => stringify!($service),)+
                }
            }

            /// The full gRPC method: `/csi.v1.Node/NodeStageVolume`.
            pub const fn path(self) -> &'static str {
                match self {
                    $($(Self::$method => concat!("/csi.v1.", stringify!($service), "/", stringify!($method)),)+)+
                }
            }
        }
    };
}

methods! {
    Identity: GetPluginInfo, GetPluginCapabilities, Probe;
    Controller: CreateVolume, DeleteVolume, ControllerPublishVolume, ControllerUnpublishVolume,
        ValidateVolumeCapabilities, ListVolumes, GetCapacity, ControllerGetCapabilities, CreateSnapshot,
        DeleteSnapshot, ListSnapshots, GetSnapshot, ControllerExpandVolume, ControllerGetVolume,
        ControllerModifyVolume;
    GroupController: GroupControllerGetCapabilities, CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot,
        GetVolumeGroupSnapshot;
    SnapshotMetadata: GetMetadataAllocated, GetMetadataDelta;
    Node: NodeStageVolume, NodeUnstageVolume, NodePublishVolume, NodeUnpublishVolume, NodeGetVolumeStats,
        NodeExpandVolume, NodeGetCapabilities, NodeGetInfo;
}

impl CsiMethod {
    /// The method with this name or full path.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.as_str() == name || method.path() == name)
    }

    /// Whether it only queries the driver.
    pub fn is_read_only(self) -> bool {
        let name = self.as_str();
        name.contains("Get") || name.starts_with("List") || name.starts_with("Validate") || name == "Probe"
    }

    /// Whether it belongs to the Node service.
    pub fn is_node(self) -> bool {
        self.service() == "Node"
    }
}

impl fmt::Display for CsiMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<CsiMethod> for String {
    fn from(method: CsiMethod) -> Self {
        method.as_str().to_owned()
    }
}

impl Serialize for CsiMethod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CsiMethod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// There is no such RPC in the specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no CSI call {name}{}", .near.map(|near| format!(": did you mean {near}?")).unwrap_or_default())]
pub struct UnknownMethod {
    name: String,
    near: Option<&'static str>,
}

impl FromStr for CsiMethod {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let known = Self::ALL.iter().map(|method| method.as_str());
        let unknown = || UnknownMethod { name: name.to_owned(), near: crate::nearest(name, known) };
        Self::from_name(name).ok_or_else(unknown)
    }
}

/// In JSON a name, which newer versions of CSI may add to.
impl JsonSchema for CsiMethod {
    fn schema_name() -> Cow<'static, str> {
        "CsiMethod".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// The method of a call. In JSON the name without its service: `NodeStageVolume`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RpcMethod {
    /// One of CSI.
    Csi(CsiMethod),
    /// Any other, as it was received: a full path, or only its name.
    Other(String),
}

impl RpcMethod {
    /// The method of CSI, if it is one.
    pub const fn csi(&self) -> Option<CsiMethod> {
        match self {
            Self::Csi(method) => Some(*method),
            Self::Other(_) => None,
        }
    }

    /// The name without its service: `NodeStageVolume`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Csi(method) => method.as_str(),
            Self::Other(path) => path.rsplit('/').next().unwrap_or_default(),
        }
    }

    /// The full path, `/csi.v1.Node/NodeStageVolume`; of another method what was received.
    pub fn path(&self) -> &str {
        match self {
            Self::Csi(method) => method.path(),
            Self::Other(path) => path,
        }
    }

    /// Whether it belongs to CSI's Node service.
    pub fn is_node(&self) -> bool {
        match self {
            Self::Csi(method) => method.is_node(),
            Self::Other(path) => path.starts_with("/csi.v1.Node/"),
        }
    }
}

impl PartialEq<CsiMethod> for RpcMethod {
    fn eq(&self, other: &CsiMethod) -> bool {
        self.csi() == Some(*other)
    }
}

impl fmt::Display for RpcMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<CsiMethod> for RpcMethod {
    fn from(method: CsiMethod) -> Self {
        Self::Csi(method)
    }
}

impl From<&str> for RpcMethod {
    fn from(name: &str) -> Self {
        CsiMethod::from_name(name).map_or_else(|| Self::Other(name.to_owned()), Self::Csi)
    }
}

impl Serialize for RpcMethod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RpcMethod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?.as_str().into())
    }
}

impl JsonSchema for RpcMethod {
    fn schema_name() -> Cow<'static, str> {
        "RpcMethod".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_of_the_specification_is_listed_with_its_service() {
        let proto = include_str!("../../storage/csi/proto/csi.proto");
        let mut service = "";
        let mut paths = Vec::new();
        for line in proto.lines() {
            let name = |rest: &'static str| rest.split([' ', '(']).next().unwrap();
            if let Some(rest) = line.strip_prefix("service ") {
                service = name(rest);
            } else if let Some(rest) = line.strip_prefix("  rpc ") {
                paths.push(format!("/csi.v1.{service}/{}", name(rest)));
            }
        }
        assert_eq!(CsiMethod::ALL.iter().map(|method| method.path()).collect::<Vec<_>>(), paths);
    }

    #[test]
    fn a_method_is_recognised_by_name_and_by_path_and_keeps_its_name_otherwise() {
        for &method in CsiMethod::ALL {
            assert_eq!(RpcMethod::from(method.as_str()), method);
            assert_eq!(RpcMethod::from(method.path()), method);
        }
        for (received, name, is_node) in [
            ("/csi.v1.Node/NodeFromTheFuture", "NodeFromTheFuture", true),
            ("/vendor.v1.Private/CreateVolume", "CreateVolume", false),
            ("/csi.v1.Node/CreateVolume", "CreateVolume", true),
            ("Anything", "Anything", false),
        ] {
            let method = RpcMethod::from(received);
            assert_eq!((method.csi(), method.as_str(), method.path()), (None, name, received));
            assert_eq!(method.is_node(), is_node, "{received}");
        }
    }

    #[test]
    fn json_has_the_name_alone() {
        let method = RpcMethod::from("/csi.v1.Node/NodeStageVolume");
        assert_eq!(serde_json::to_value(&method).unwrap(), "NodeStageVolume");
        assert_eq!(serde_json::from_str::<RpcMethod>("\"NodeStageVolume\"").unwrap(), method);
        assert!(method.is_node() && method == CsiMethod::NodeStageVolume);
    }
}
