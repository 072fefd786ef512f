//! Legal variants: the built-in driver with other answers that the specification also permits, to test that a
//! conformance suite fails no driver for them. The counterpart of the seeded defects.
//!
//! A variant changes the configuration of the driver, or it is implemented in a layer in front of its services
//! ([`Varied`]), which writes messages differently, delays calls, and rejects what a driver may reject. The driver
//! itself has no code for them.

mod blocks;
mod controller;
mod messages;
mod node;
mod pages;
mod permits;
mod plugin;
mod service;
mod turns;

use std::collections::BTreeSet;

use clap::ValueEnum;
use serde::Deserialize;

pub use self::{permits::Permit, service::Varied};
use crate::{
    capability::{Capabilities, Capability},
    driver::{Config, Driver},
    topology::Segment,
};

/// A legal variant of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The driver creates no volumes: it has only those that administrators create
    WithoutCreateDeleteVolume,
    /// The driver does not attach volumes
    WithoutPublishUnpublishVolume,
    /// The driver cannot attach volumes read-only
    WithoutPublishReadonly,
    /// The driver does not list volumes
    WithoutListVolumes,
    /// The driver does not list the nodes that volumes are published to
    WithoutListVolumesPublishedNodes,
    /// The driver does not report its capacity
    WithoutGetCapacity,
    /// The driver does not distinguish one pod of a node from several
    WithoutSingleNodeMultiWriter,
    /// The driver does not stage volumes
    WithoutStageUnstageVolume,
    /// The driver has no statistics of volumes
    WithoutGetVolumeStats,
    /// The driver does not expand volumes
    WithoutExpandVolume,
    /// The driver expands only volumes that are not in use
    WithoutOnlineExpansion,
    /// The driver has no ControllerGetVolume
    WithoutGetVolume,
    /// The driver does not report conditions of volumes
    WithoutVolumeCondition,
    /// The driver has no mutable parameters
    WithoutModifyVolume,
    /// The driver has no raw block volumes
    WithoutRawBlock,
    /// The driver has no volumes that many nodes read
    WithoutMultiNodeReaderOnly,
    /// The driver has no volumes that many nodes read and one writes
    WithoutMultiNodeSingleWriter,
    /// The driver has no volumes that many nodes write
    WithoutMultiNodeMultiWriter,
    /// The driver has no inline ephemeral volumes
    WithoutInlineEphemeral,
    /// The driver has no snapshots
    WithoutCreateDeleteSnapshot,
    /// The driver does not list snapshots
    WithoutListSnapshots,
    /// The driver has no GetSnapshot
    WithoutGetSnapshot,
    /// The driver does not clone volumes
    WithoutCloneVolume,
    /// The driver has no group snapshots
    WithoutGroupSnapshot,
    /// The driver has no snapshot metadata
    WithoutSnapshotMetadata,
    /// The plugin has no controller service
    WithoutController,
    /// The plugin declares no topology
    WithoutTopology,
    /// The plugin declares topology, but NodeGetInfo returns none
    NodeTopologyUnset,
    /// The plugin declares topology, but volumes have none
    VolumeTopologyUnset,
    /// A volume is also accessible from a topology that was not requested
    VolumeTopologyWider,
    /// NodeGetInfo returns no max_volumes_per_node
    NodeLimitUnset,
    /// NodeGetInfo returns a node_id of 128 bytes
    LongestNodeId,
    /// GetPluginInfo returns a manifest
    ManifestSet,
    /// Probe does not set `ready`
    ReadyUnset,
    /// Probe returns ready=false at first
    ReadyLate,
    /// The capacity of volumes is unknown
    CapacityUnknown,
    /// The capacity of a new volume is unknown to the first CreateVolume, and known later
    CapacityLate,
    /// Sizes of volumes are multiples of 1 GiB
    SizesInGibibytes,
    /// CreateVolume returns no content_source
    ContentSourceUnset,
    /// Volumes have no volume_context
    VolumeContextUnset,
    /// Volumes have a volume_context of 4 KiB
    LongestVolumeContext,
    /// ControllerPublishVolume returns a publish_context
    PublishContextSet,
    /// Ids of volumes, snapshots and groups have 128 bytes
    LongestIds,
    /// Ids of volumes, snapshots and groups contain slashes
    IdsWithSlashes,
    /// Lists have pages of one entry, also without max_entries
    ManyPages,
    /// Lists begin with a page without entries
    EmptyFirstPage,
    /// Lists end with a page without entries
    EmptyLastPage,
    /// Tokens of pages are positions, so that a list that changes meanwhile is wrong
    PagesByPosition,
    /// Tokens of pages have 128 bytes
    LongestTokens,
    /// ListVolumes returns no status of volumes
    ListStatusUnset,
    /// ListVolumes and ControllerGetVolume return a node that the volume is not published to
    PublishedNodesStale,
    /// GetCapacity returns neither minimum_volume_size nor maximum_volume_size
    CapacityLimitsUnset,
    /// ValidateVolumeCapabilities confirms the capabilities without parameters and volume_context
    ConfirmedWithoutContext,
    /// DeleteVolume returns FailedPrecondition for a volume with snapshots
    DeleteRefusedWithSnapshots,
    /// Volumes, snapshots and groups cannot be deleted while a volume created from them exists
    SourcesInUse,
    /// ControllerExpandVolume returns OutOfRange for a smaller size
    ExpandSmallerRefused,
    /// ControllerExpandVolume always requires NodeExpandVolume
    NodeExpansionRequired,
    /// Calls that undo something return NotFound for a volume or node that does not exist
    NotFoundWhenGone,
    /// Snapshots have no size_bytes
    SnapshotSizeUnknown,
    /// CreateSnapshot returns no size_bytes, which is known later
    SnapshotSizeLate,
    /// Creation times of snapshots and groups are in whole seconds
    TimesInSeconds,
    /// Creation times of snapshots are in whole seconds, except in the response of CreateSnapshot
    ListedTimesInSeconds,
    /// Snapshots become ready_to_use after a second, and cannot be restored before
    ReadyToUseLate,
    /// Snapshot metadata has blocks of 4 KiB
    MetadataFixedBlocks,
    /// Snapshot metadata has blocks of 8 MiB
    MetadataLargeBlocks,
    /// Snapshot metadata has one block per message
    MetadataSingleBlocks,
    /// Snapshot metadata has messages without blocks
    MetadataEmptyMessages,
    /// The blocks that change in volumes are not tracked
    MetadataUntracked,
    /// Only one volume can be in a group snapshot
    GroupsOfOneVolume,
    /// CreateSnapshot returns FailedPrecondition for a volume that a node uses
    SnapshotsOfUnusedVolumes,
    /// CreateSnapshot and CreateVolumeGroupSnapshot return FailedPrecondition for a volume that no node uses
    SnapshotsOfUsedVolumes,
    /// NodeGetVolumeStats returns no usage
    StatsUnset,
    /// NodeGetVolumeStats returns bytes only
    StatsOfBytes,
    /// NodeGetVolumeStats returns inodes only
    StatsOfInodes,
    /// NodeGetVolumeStats returns totals without `used` and `available`
    StatsOfTotals,
    /// NodeExpandVolume returns no capacity_bytes
    NodeExpandedSizeUnset,
    /// Calls about an object begin 50 ms late
    Slow,
    /// Responses of calls about an object are 50 ms late
    SlowResponses,
    /// The driver executes one call at a time
    SerialCalls,
    /// A call about an object that another call is busy with returns Aborted
    AbortedWhileBusy,
    /// The same, and a call that its caller cancels stays busy for 4 s
    BusyAfterCancel,
}

impl Variant {
    /// All variants.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The variant's name on the command line.
    pub fn name(self) -> String {
        self.value().get_name().to_owned()
    }

    /// The variant's effect, in a sentence.
    pub fn effect(self) -> String {
        self.value().get_help().map(ToString::to_string).unwrap_or_default()
    }

    fn value(self) -> clap::builder::PossibleValue {
        self.to_possible_value().expect("no variant is hidden")
    }
}

/// The variants of one driver. Several may be combined, unless they contradict each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variants(BTreeSet<Variant>);

impl Variants {
    /// These variants.
    pub fn new(variants: impl IntoIterator<Item = Variant>) -> Self {
        Self(variants.into_iter().collect())
    }

    /// Whether the driver has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one of them.
    pub(crate) fn has(&self, variant: Variant) -> bool {
        self.0.contains(&variant)
    }

    /// Applies the variants of the configuration.
    pub fn configure(&self, config: &mut Config) {
        let lacks: Vec<Capability> = self.0.iter().flat_map(|variant| variant.lacks()).copied().collect();
        config.capabilities = Capabilities::without(
            Capability::ALL.into_iter().filter(|it| !config.capabilities.has(*it)).chain(lacks),
        );
        if self.has(Variant::WithoutTopology) {
            config.topology = Segment::default();
        }
        if self.has(Variant::NodeLimitUnset) {
            config.max_volumes_per_node = 0;
        }
    }

    /// The driver's services with these variants.
    pub fn before(&self, driver: Driver) -> Varied {
        Varied::new(driver, self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_many_and_each_has_a_name_and_an_effect() {
        assert!(Variant::all().len() >= 40, "{}", Variant::all().len());
        for variant in Variant::all() {
            assert!(!variant.name().is_empty() && variant.effect().len() > 10, "{variant:?}");
        }
    }
}
