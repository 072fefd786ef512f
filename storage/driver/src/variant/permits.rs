//! Why each variant is legal: the sentence of the CSI specification that permits it.

use super::Variant;

/// A sentence of the CSI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Its section.
    pub section: &'static str,
    /// The sentence, without line breaks and comment marks.
    pub sentence: &'static str,
}

const fn permit(section: &'static str, sentence: &'static str) -> Permit {
    Permit { section, sentence }
}

const CONTROLLER: Permit = permit(
    "ControllerGetCapabilities",
    "All the capabilities that the controller service supports. This field is OPTIONAL.",
);
const NODE: Permit = permit(
    "NodeGetCapabilities",
    "All the capabilities that the node service supports. This field is OPTIONAL.",
);
const ACCESS: Permit = permit(
    "CreateVolume",
    "If ANY of the specified volume capabilities are not supported by the SP, the call MUST return the appropriate \
     gRPC error code.",
);
const STRING: Permit = permit("Size Limits", "| 128 bytes | string |");
const PAGES: Permit =
    permit("ListVolumes", "This token allows you to get the next page of entries for `ListVolumes` request.");
const MAX_RESULTS: Permit = permit(
    "GetMetadataAllocated",
    "The plugin will determine an appropriate value if 0, and is always free to send less than the requested value.",
);
const CONCURRENCY: Permit = permit(
    "Concurrency",
    "The error code `ABORTED` MAY be returned by the plugin in this case (see the [Error Scheme](#error-scheme) section \
     for details).",
);
const TIMEOUTS: Permit =
    permit("Timeouts", "Any of the RPCs defined in this spec MAY timeout and MAY be retried.");
const USAGE: Permit = permit("NodeGetVolumeStats", "usage: This field is OPTIONAL.");
const TIME: Permit = permit(
    "CreateSnapshot",
    "Timestamp when the point-in-time snapshot is taken on the storage system. This field is REQUIRED.",
);
const BLOCKS: Permit = permit(
    "GetMetadataAllocated",
    "If block_metadata_type is FIXED_LENGTH, then the size_bytes field of each message in the block_metadata list MUST \
     be constant.",
);
const SNAPSHOT_SIZE: Permit =
    permit("CreateSnapshot", "If this field is not set, it indicates that this size is unknown.");
const CAPACITY: Permit = permit(
    "CreateVolume",
    "This field is OPTIONAL. If not set (value of 0), it indicates that the capacity of the volume is unknown (e.g., \
     NFS share).",
);

impl Variant {
    /// The sentence that permits it.
    pub const fn permit(self) -> Permit {
        match self {
            Self::WithoutCreateDeleteVolume
            | Self::WithoutPublishUnpublishVolume
            | Self::WithoutPublishReadonly
            | Self::WithoutListVolumes
            | Self::WithoutListVolumesPublishedNodes
            | Self::WithoutGetCapacity
            | Self::WithoutSingleNodeMultiWriter
            | Self::WithoutExpandVolume
            | Self::WithoutGetVolume
            | Self::WithoutVolumeCondition
            | Self::WithoutModifyVolume
            | Self::WithoutCreateDeleteSnapshot
            | Self::WithoutListSnapshots
            | Self::WithoutCloneVolume => CONTROLLER,
            Self::WithoutStageUnstageVolume | Self::WithoutGetVolumeStats => NODE,
            Self::WithoutRawBlock
            | Self::WithoutMultiNodeReaderOnly
            | Self::WithoutMultiNodeSingleWriter
            | Self::WithoutMultiNodeMultiWriter => ACCESS,
            Self::WithoutOnlineExpansion => permit(
                "GetPluginCapabilities",
                "OFFLINE indicates that volumes currently published and available on a node SHALL NOT be expanded via \
                 ControllerExpandVolume.",
            ),
            Self::WithoutInlineEphemeral => permit(
                "Error Scheme",
                "Indicates that the one or more fields in this field is either not allowed by the Plugin or has an \
                 invalid value.",
            ),
            Self::WithoutGetSnapshot => permit(
                "GetSnapshot",
                "A Controller Plugin MUST implement this `GetSnapshot` RPC call if it has `GET_SNAPSHOT` capability.",
            ),
            Self::WithoutGroupSnapshot => {
                permit("GetPluginCapabilities", "Plugins MAY provide this capability.")
            }
            Self::WithoutSnapshotMetadata => permit(
                "GetPluginCapabilities",
                "attempt to invoke the OPTIONAL SnapshotMetadata service RPCs.",
            ),
            Self::WithoutController => permit(
                "GetPluginCapabilities",
                "In rare cases certain plugins MAY wish to omit the ControllerService entirely from their implementation",
            ),
            Self::WithoutTopology => permit(
                "GetPluginCapabilities",
                "All the capabilities that the controller service supports. This field is OPTIONAL.",
            ),
            Self::NodeTopologyUnset => permit(
                "NodeGetInfo",
                "This field is OPTIONAL. If it is not specified, the CO MAY assume the node is not subject to any \
                 topological constraint",
            ),
            Self::VolumeTopologyUnset => permit(
                "CreateVolume",
                "This field is OPTIONAL. If it is not specified, the CO MAY assume the volume is equally accessible from \
                 all nodes in the cluster",
            ),
            Self::VolumeTopologyWider => permit(
                "CreateVolume",
                "An SP MAY specify multiple topologies to indicate the volume is accessible from multiple locations.",
            ),
            Self::NodeLimitUnset => permit(
                "NodeGetInfo",
                "If value is not set or zero CO SHALL decide how many volumes of this type can be published by the \
                 controller to the node.",
            ),
            Self::LongestNodeId => permit(
                "NodeGetInfo",
                "This field overrides the general CSI size limit. The size of this field SHALL NOT exceed 256 bytes.",
            ),
            Self::ManifestSet => {
                permit("GetPluginInfo", "This field is OPTIONAL. Values are opaque to the CO.")
            }
            Self::ReadyUnset => permit(
                "Probe",
                "This field is OPTIONAL. If not present, the caller SHALL assume that the plugin is in a ready state",
            ),
            Self::ReadyLate => permit(
                "Probe",
                "The plugin is still initializing, but is otherwise perfectly healthy. In this case a successful response \
                 SHALL be returned with a readiness value of `false`.",
            ),
            Self::CapacityUnknown | Self::CapacityLate => CAPACITY,
            Self::SizesInGibibytes => {
                permit("CreateVolume", "Volume MUST be at least this big. This field is OPTIONAL.")
            }
            Self::ContentSourceUnset => permit(
                "CreateVolume",
                "If specified, indicates that the volume is not empty and is pre-populated with data from the specified \
                 source. This field is OPTIONAL.",
            ),
            Self::VolumeContextUnset => permit(
                "CreateVolume",
                "This field is OPTIONAL and when present MUST be passed to volume validation and publishing calls.",
            ),
            Self::LongestVolumeContext => permit("Size Limits", "| 4 KiB | map<string, string> |"),
            Self::PublishContextSet => permit(
                "ControllerPublishVolume",
                "SP MAY use this field to ensure subsequent `NodeStageVolume` or `NodePublishVolume` calls calls have \
                 contextual information.",
            ),
            Self::LongestIds | Self::LongestTokens => STRING,
            Self::IdsWithSlashes => permit(
                "CreateVolume",
                "This field MUST contain enough information to uniquely identify this specific volume vs all other \
                 volumes supported by this plugin.",
            ),
            Self::ManyPages | Self::EmptyFirstPage | Self::EmptyLastPage => PAGES,
            Self::PagesByPosition => permit(
                "ListVolumes",
                "If volumes are created and/or deleted while the CO is concurrently paging through `ListVolumes` results \
                 then it is possible that the CO MAY either witness duplicate volumes in the list, not witness existing \
                 volumes, or both.",
            ),
            Self::ListStatusUnset => permit(
                "ListVolumes",
                "This field is OPTIONAL. This field MUST be specified if the LIST_VOLUMES_PUBLISHED_NODES controller \
                 capability is supported.",
            ),
            Self::PublishedNodesStale => permit(
                "ListVolumes",
                "published_node_ids MAY include nodes not published to or reported by the SP. The CO MUST be resilient to \
                 that.",
            ),
            Self::CapacityLimitsUnset => permit(
                "GetCapacity",
                "The Plugin SHOULD provide a value for this field if it has a maximum size for individual volumes and \
                 leave it unset otherwise.",
            ),
            Self::ConfirmedWithoutContext => permit(
                "ValidateVolumeCapabilities",
                "Volume context validated by the plugin. This field is OPTIONAL.",
            ),
            Self::DeleteRefusedWithSnapshots => permit(
                "DeleteVolume",
                "When a Controller Plugin does not support deleting a volume without affecting its existing snapshots, \
                 then the volume MUST NOT be altered in any way by the request and the operation must return the \
                 `FAILED_PRECONDITION` error code",
            ),
            Self::SourcesInUse => permit(
                "DeleteVolume",
                "Indicates that the volume corresponding to the specified `volume_id` could not be deleted because it is \
                 in use by another resource",
            ),
            Self::ExpandSmallerRefused => permit(
                "ControllerExpandVolume",
                "Indicates that the capacity range is not allowed by the Plugin.",
            ),
            Self::NodeExpansionRequired => permit(
                "ControllerExpandVolume",
                "Whether node expansion is required for the volume. When true the CO MUST make NodeExpandVolume RPC call \
                 on the node.",
            ),
            Self::NotFoundWhenGone => permit(
                "NodeUnpublishVolume",
                "Indicates that a volume corresponding to the specified `volume_id` does not exist.",
            ),
            Self::SnapshotSizeUnknown | Self::SnapshotSizeLate => SNAPSHOT_SIZE,
            Self::TimesInSeconds | Self::ListedTimesInSeconds => TIME,
            Self::ReadyToUseLate => permit(
                "CreateSnapshot",
                "CO MAY continue to call CreateSnapshot while waiting for the process to complete until `ready_to_use` \
                 becomes `true`.",
            ),
            Self::MetadataFixedBlocks | Self::MetadataLargeBlocks => BLOCKS,
            Self::MetadataSingleBlocks | Self::MetadataEmptyMessages => MAX_RESULTS,
            Self::MetadataUntracked => permit(
                "GetMetadataAllocated",
                "Changed block tracking has not been enabled in the underlying storage subsystem.",
            ),
            Self::GroupsOfOneVolume => permit(
                "CreateVolumeGroupSnapshot",
                "Indicates that the specified volumes cannot be snapshotted together because the volumes are not \
                 configured properly based on requirements from the SP.",
            ),
            Self::SnapshotsOfUnusedVolumes | Self::SnapshotsOfUsedVolumes => permit(
                "CreateSnapshot",
                "If an error occurs before a snapshot is cut, `CreateSnapshot` SHOULD return a corresponding gRPC error \
                 code that reflects the error condition.",
            ),
            Self::StatsUnset | Self::StatsOfInodes => USAGE,
            Self::StatsOfBytes => permit(
                "NodeGetVolumeStats",
                "Similarly, inode information MAY be omitted from `NodeGetVolumeStatsResponse` when unavailable.",
            ),
            Self::StatsOfTotals => {
                permit("NodeGetVolumeStats", "The used capacity in specified Unit. This field is OPTIONAL.")
            }
            Self::NodeExpandedSizeUnset => {
                permit("NodeExpandVolume", "The capacity of the volume in bytes. This field is OPTIONAL.")
            }
            Self::Slow | Self::SlowResponses | Self::SerialCalls => TIMEOUTS,
            Self::AbortedWhileBusy | Self::BusyAfterCancel => CONCURRENCY,
        }
    }
}
