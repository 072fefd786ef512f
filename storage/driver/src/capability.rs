//! Capabilities of the driver that can be disabled, to test clusters with drivers that lack them.

use std::{collections::BTreeSet, fmt, str::FromStr};

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as ControllerType,
    node_service_capability::rpc::Type as NodeType,
};
use serde::Deserialize;
use tonic::Status;

/// A capability of the CSI specification that the driver declares unless it is disabled. A capability that both
/// services declare is disabled in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    /// CreateVolume and DeleteVolume.
    CreateDeleteVolume,
    /// ControllerPublishVolume and ControllerUnpublishVolume.
    PublishUnpublishVolume,
    /// Volumes can be attached read-only.
    PublishReadonly,
    /// ListVolumes.
    ListVolumes,
    /// ListVolumes returns the nodes to which volumes are attached.
    ListVolumesPublishedNodes,
    /// GetCapacity.
    GetCapacity,
    /// Single-node access modes distinguish one pod from several.
    SingleNodeMultiWriter,
    /// A node mounts a volume once (NodeStageVolume) and bind mounts it for each pod.
    StageUnstageVolume,
    /// NodeGetVolumeStats.
    GetVolumeStats,
    /// Volumes can be expanded.
    ExpandVolume,
    /// Volumes can be expanded while in use. Not a name of the specification: without it the driver declares
    /// `VolumeExpansion` as `OFFLINE`.
    OnlineExpansion,
    /// ControllerGetVolume.
    GetVolume,
    /// Responses about volumes contain their condition.
    VolumeCondition,
    /// ControllerModifyVolume.
    ModifyVolume,
    /// Raw block volumes. This and the following have no name in the specification's lists: a driver without
    /// them rejects such requests.
    RawBlock,
    /// Volumes can be used by many nodes, all read-only.
    MultiNodeReaderOnly,
    /// Volumes can be used by many nodes, one of which writes.
    MultiNodeSingleWriter,
    /// Volumes can be used by many nodes that write.
    MultiNodeMultiWriter,
    /// Inline ephemeral volumes, created by NodePublishVolume (KEP-596).
    InlineEphemeral,
    /// CreateSnapshot and DeleteSnapshot.
    CreateDeleteSnapshot,
    /// ListSnapshots.
    ListSnapshots,
    /// GetSnapshot.
    GetSnapshot,
    /// Volumes can be created as copies of others.
    CloneVolume,
    /// Snapshots of several volumes at one point in time. Without it the driver does not declare
    /// `GROUP_CONTROLLER_SERVICE` either.
    #[serde(rename = "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT")]
    GroupSnapshot,
    /// Allocated blocks of a snapshot and changed blocks between two. A service, not an RPC.
    #[serde(rename = "SNAPSHOT_METADATA_SERVICE")]
    SnapshotMetadata,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Self; 25] = [
        Self::CreateDeleteVolume,
        Self::PublishUnpublishVolume,
        Self::PublishReadonly,
        Self::ListVolumes,
        Self::ListVolumesPublishedNodes,
        Self::GetCapacity,
        Self::SingleNodeMultiWriter,
        Self::StageUnstageVolume,
        Self::GetVolumeStats,
        Self::ExpandVolume,
        Self::OnlineExpansion,
        Self::GetVolume,
        Self::VolumeCondition,
        Self::ModifyVolume,
        Self::RawBlock,
        Self::MultiNodeReaderOnly,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
        Self::InlineEphemeral,
        Self::CreateDeleteSnapshot,
        Self::ListSnapshots,
        Self::GetSnapshot,
        Self::CloneVolume,
        Self::GroupSnapshot,
        Self::SnapshotMetadata,
    ];

    /// As the specification spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateDeleteVolume => "CREATE_DELETE_VOLUME",
            Self::PublishUnpublishVolume => "PUBLISH_UNPUBLISH_VOLUME",
            Self::PublishReadonly => "PUBLISH_READONLY",
            Self::ListVolumes => "LIST_VOLUMES",
            Self::ListVolumesPublishedNodes => "LIST_VOLUMES_PUBLISHED_NODES",
            Self::GetCapacity => "GET_CAPACITY",
            Self::SingleNodeMultiWriter => "SINGLE_NODE_MULTI_WRITER",
            Self::StageUnstageVolume => "STAGE_UNSTAGE_VOLUME",
            Self::GetVolumeStats => "GET_VOLUME_STATS",
            Self::ExpandVolume => "EXPAND_VOLUME",
            Self::OnlineExpansion => "ONLINE_EXPANSION",
            Self::GetVolume => "GET_VOLUME",
            Self::VolumeCondition => "VOLUME_CONDITION",
            Self::ModifyVolume => "MODIFY_VOLUME",
            Self::RawBlock => "RAW_BLOCK",
            Self::MultiNodeReaderOnly => "MULTI_NODE_READER_ONLY",
            Self::MultiNodeSingleWriter => "MULTI_NODE_SINGLE_WRITER",
            Self::MultiNodeMultiWriter => "MULTI_NODE_MULTI_WRITER",
            Self::InlineEphemeral => "INLINE_EPHEMERAL",
            Self::CreateDeleteSnapshot => "CREATE_DELETE_SNAPSHOT",
            Self::ListSnapshots => "LIST_SNAPSHOTS",
            Self::GetSnapshot => "GET_SNAPSHOT",
            Self::CloneVolume => "CLONE_VOLUME",
            Self::GroupSnapshot => "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",
            Self::SnapshotMetadata => "SNAPSHOT_METADATA_SERVICE",
        }
    }

    /// Capabilities that depend on this one.
    fn dependents(self) -> &'static [Self] {
        match self {
            Self::PublishUnpublishVolume => &[Self::PublishReadonly, Self::ListVolumesPublishedNodes],
            Self::ListVolumes => &[Self::ListVolumesPublishedNodes],
            Self::ExpandVolume => &[Self::OnlineExpansion],
            Self::CreateDeleteSnapshot => {
                &[Self::ListSnapshots, Self::GetSnapshot, Self::GroupSnapshot, Self::SnapshotMetadata]
            }
            _ => &[],
        }
    }

    fn controller(self) -> Option<ControllerType> {
        Some(match self {
            Self::CreateDeleteVolume => ControllerType::CreateDeleteVolume,
            Self::PublishUnpublishVolume => ControllerType::PublishUnpublishVolume,
            Self::PublishReadonly => ControllerType::PublishReadonly,
            Self::ListVolumes => ControllerType::ListVolumes,
            Self::ListVolumesPublishedNodes => ControllerType::ListVolumesPublishedNodes,
            Self::GetCapacity => ControllerType::GetCapacity,
            Self::SingleNodeMultiWriter => ControllerType::SingleNodeMultiWriter,
            Self::ExpandVolume => ControllerType::ExpandVolume,
            Self::GetVolume => ControllerType::GetVolume,
            Self::VolumeCondition => ControllerType::VolumeCondition,
            Self::ModifyVolume => ControllerType::ModifyVolume,
            Self::CreateDeleteSnapshot => ControllerType::CreateDeleteSnapshot,
            Self::ListSnapshots => ControllerType::ListSnapshots,
            Self::GetSnapshot => ControllerType::GetSnapshot,
            Self::CloneVolume => ControllerType::CloneVolume,
            Self::StageUnstageVolume
            | Self::GetVolumeStats
            | Self::OnlineExpansion
            | Self::RawBlock
            | Self::MultiNodeReaderOnly
            | Self::MultiNodeSingleWriter
            | Self::MultiNodeMultiWriter
            | Self::InlineEphemeral
            | Self::GroupSnapshot
            | Self::SnapshotMetadata => return None,
        })
    }

    fn node(self) -> Option<NodeType> {
        Some(match self {
            Self::StageUnstageVolume => NodeType::StageUnstageVolume,
            Self::GetVolumeStats => NodeType::GetVolumeStats,
            Self::SingleNodeMultiWriter => NodeType::SingleNodeMultiWriter,
            Self::ExpandVolume => NodeType::ExpandVolume,
            Self::VolumeCondition => NodeType::VolumeCondition,
            _ => return None,
        })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Capability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|capability| capability.name() == text)
            .ok_or_else(|| format!("{text:?} is not one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The driver's enabled capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities(BTreeSet<Capability>);

impl Default for Capabilities {
    fn default() -> Self {
        Self(Capability::ALL.into())
    }
}

impl Capabilities {
    /// All except these and those that depend on them.
    pub fn without(disabled: impl IntoIterator<Item = Capability>) -> Self {
        let mut all = Self::default();
        for capability in disabled {
            all.0.remove(&capability);
            for dependent in capability.dependents() {
                all.0.remove(dependent);
            }
        }
        all
    }

    /// Whether the capability is enabled.
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }

    /// Rejects a call that belongs to a disabled capability, as a driver without it would.
    pub(crate) fn demand(&self, capability: Capability) -> Result<(), Status> {
        if self.has(capability) { Ok(()) } else { Err(undeclared(capability.name())) }
    }

    /// The capabilities that the controller service declares.
    pub(crate) fn controller(&self) -> impl Iterator<Item = ControllerType> {
        self.0.iter().filter_map(|capability| capability.controller())
    }

    /// The capabilities that the node service declares.
    pub(crate) fn node(&self) -> impl Iterator<Item = NodeType> {
        self.0.iter().filter_map(|capability| capability.node())
    }
}

/// The response to a call that belongs to an undeclared capability.
pub(crate) fn undeclared(capability: &str) -> Status {
    Status::unimplemented(format!("the driver does not declare the capability {capability}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for capability in Capability::ALL {
            assert_eq!(capability.name().parse(), Ok(capability));
        }
        assert!("EXPAND".parse::<Capability>().unwrap_err().contains("GET_VOLUME_STATS"));
    }

    #[test]
    fn what_makes_no_sense_alone_goes_too() {
        let lesser = Capabilities::without([Capability::PublishUnpublishVolume]);
        assert!(
            !lesser.has(Capability::PublishReadonly) && !lesser.has(Capability::ListVolumesPublishedNodes)
        );
        assert_eq!(lesser.controller().count(), 12);
        assert_eq!(lesser.node().count(), 5);
        assert_eq!(Capabilities::default().controller().count(), 15);
        assert_eq!(
            lesser.demand(Capability::PublishReadonly).unwrap_err().code(),
            tonic::Code::Unimplemented
        );
    }
}
