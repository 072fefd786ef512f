//! What of the driver's abilities can be turned off, so that clusters can be tried with lesser drivers.

use std::{collections::BTreeSet, fmt, str::FromStr};

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as ControllerType,
    node_service_capability::rpc::Type as NodeType,
};
use tonic::Status;

/// A capability of the CSI specification that the driver has unless told otherwise. Those that both services
/// have are turned off in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Volumes are made and deleted.
    CreateDeleteVolume,
    /// Volumes are attached to nodes.
    PublishUnpublishVolume,
    /// Volumes can be attached read-only.
    PublishReadonly,
    /// Volumes can be listed.
    ListVolumes,
    /// The list of volumes says where they are attached.
    ListVolumesPublishedNodes,
    /// The room for new volumes can be asked for.
    GetCapacity,
    /// The access modes for one node tell one pod from several.
    SingleNodeMultiWriter,
    /// A node mounts a volume once, and then binds it for each pod.
    StageUnstageVolume,
    /// How full a volume is can be asked for.
    GetVolumeStats,
    /// Volumes can be made larger.
    ExpandVolume,
    /// Volumes can be made larger while they are used. Not a name of the specification: without it the driver
    /// declares `VolumeExpansion` as `OFFLINE`.
    OnlineExpansion,
    /// A single volume can be asked for.
    GetVolume,
    /// Answers about volumes say whether they are healthy.
    VolumeCondition,
    /// Volumes have parameters that can be changed.
    ModifyVolume,
    /// Volumes can be had as devices. This and the following have no name in the specification's lists: a
    /// driver without them refuses what it is asked for.
    RawBlock,
    /// Volumes can be had by many nodes that read.
    MultiNodeReaderOnly,
    /// Volumes can be had by many nodes of which one writes.
    MultiNodeSingleWriter,
    /// Volumes can be had by many nodes that write.
    MultiNodeMultiWriter,
    /// Volumes can live as long as a pod, made as it publishes them (KEP-596).
    InlineEphemeral,
    /// Snapshots are made and deleted.
    CreateDeleteSnapshot,
    /// Snapshots can be listed.
    ListSnapshots,
    /// A single snapshot can be asked for.
    GetSnapshot,
    /// Volumes can be made as copies of others.
    CloneVolume,
    /// Snapshots of several volumes at one moment are made and deleted. Without it the driver does not declare
    /// `GROUP_CONTROLLER_SERVICE` either.
    GroupSnapshot,
    /// The blocks of snapshots can be asked for, and those in which two differ. A service, not an RPC.
    SnapshotMetadata,
}

impl Capability {
    /// All of them.
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

    /// What else makes no sense without it.
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

/// The capabilities that a driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities(BTreeSet<Capability>);

impl Default for Capabilities {
    fn default() -> Self {
        Self(Capability::ALL.into())
    }
}

impl Capabilities {
    /// All but these, and but what makes no sense without these.
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

    /// Whether the driver has it.
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }

    /// Refuses a call that belongs to a capability which is turned off, as a driver without it would.
    pub(crate) fn demand(&self, capability: Capability) -> Result<(), Status> {
        if self.has(capability) { Ok(()) } else { Err(undeclared(capability.name())) }
    }

    /// What the controller service declares.
    pub(crate) fn controller(&self) -> impl Iterator<Item = ControllerType> {
        self.0.iter().filter_map(|capability| capability.controller())
    }

    /// What the node service declares.
    pub(crate) fn node(&self) -> impl Iterator<Item = NodeType> {
        self.0.iter().filter_map(|capability| capability.node())
    }
}

/// The answer to a call whose capability the driver does not declare.
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
