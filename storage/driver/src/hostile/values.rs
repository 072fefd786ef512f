//! Random values for the messages of CSI, within a limit for the size of a response.

use std::collections::BTreeMap;

use claimcheck_csi::v1::{
    self, controller_service_capability as controller, group_controller_service_capability as group,
    node_service_capability as node, plugin_capability as plugin,
};
use tonic::{Code, Status};

/// Names and texts that are likely to be mishandled. There are few, so that some are equal.
const WORDS: [&str; 14] = [
    "",
    "a",
    "b",
    "volume-1",
    "../../hostile",
    "a\0b",
    "\u{1b}[31m\u{7}\u{7f}\r\n\t",
    "</script><script>hostile()</script>",
    "]]>\"'&<!--",
    "{unique} %s%n $(hostile) `hostile`",
    "\u{202e}\u{feff}\u{e0001}\u{10ffff}",
    "| a | ``` |\n# hostile",
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJob3N0aWxlIn0.c2ln",
    "9223372036854775808",
];
/// Sizes, times and counts at and beyond the limits of their types and meanings: among others 64 MiB, and a time in
/// seconds and in milliseconds.
const NUMBERS: [i64; 12] = [
    0,
    1,
    -1,
    i64::MIN,
    i64::MAX,
    i64::MAX - 1,
    1 << 26,
    1 << 27,
    1 << 62,
    1_700_000_000,
    1_700_000_000_000,
    -62_135_596_801,
];

/// How a list continues.
#[derive(Clone, Copy, Debug)]
enum Pages {
    One,
    SameToken,
    Circle,
    WithoutEnd,
}

/// The source of the random values of a response.
#[derive(Debug)]
pub(super) struct Dice {
    random: fastrand::Rng,
    call: u64,
    pages: Pages,
    /// How many bytes the response may still have, roughly.
    room: usize,
}

impl Dice {
    pub(super) fn new(seed: u64, call: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ call.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let room = match random.u8(..) {
            // More than gRPC's clients accept.
            0 => 8 << 20,
            1..=7 => 1 << 20,
            _ => 1 << 16,
        };
        let pages = match seed % 4 {
            0 => Pages::One,
            1 => Pages::SameToken,
            2 => Pages::Circle,
            _ => Pages::WithoutEnd,
        };
        Self { random, call, pages, room }
    }

    /// The number of the call in its process.
    pub(super) fn call(&self) -> u64 {
        self.call
    }

    pub(super) fn limit(&mut self, room: usize) {
        self.room = room;
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.random.u64(..limit)
    }

    /// Any error.
    pub(super) fn status(&mut self) -> Status {
        Status::new(Code::from(self.random.i32(1..=16)), String::random(self))
    }

    /// Whether there is room for so many bytes.
    fn takes(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(0);
        left.is_some()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())]
    }

    fn token(&mut self) -> String {
        match self.pages {
            Pages::One => String::new(),
            Pages::SameToken => "same".to_owned(),
            Pages::Circle => (self.call % 2).to_string(),
            Pages::WithoutEnd => self.call.to_string(),
        }
    }
}

/// A type with random values.
pub(super) trait Random {
    fn random(dice: &mut Dice) -> Self;
}

impl Random for bool {
    fn random(dice: &mut Dice) -> Self {
        dice.random.bool()
    }
}

/// Mostly the values of enums, and some that they do not have.
impl Random for i32 {
    fn random(dice: &mut Dice) -> Self {
        match dice.below(16) {
            0 => dice.random.i32(..),
            _ => dice.random.i32(0..18),
        }
    }
}

impl Random for i64 {
    fn random(dice: &mut Dice) -> Self {
        match dice.below(8) {
            0 => dice.random.i64(..),
            _ => dice.pick(&NUMBERS),
        }
    }
}

impl Random for String {
    fn random(dice: &mut Dice) -> Self {
        let text = match dice.random.u8(..) {
            0 => "x".repeat(300_000),
            1..=3 => (0..dice.below(500)).map(|_| dice.random.char(..)).collect(),
            _ => dice.pick(&WORDS).to_owned(),
        };
        if dice.takes(text.len()) { text } else { Self::new() }
    }
}

impl Random for (String, String) {
    fn random(dice: &mut Dice) -> Self {
        (String::random(dice), String::random(dice))
    }
}

impl Random for BTreeMap<String, String> {
    fn random(dice: &mut Dice) -> Self {
        Vec::<(String, String)>::random(dice).into_iter().collect()
    }
}

impl<T: Random> Random for Option<T> {
    fn random(dice: &mut Dice) -> Self {
        (dice.below(8) > 0).then(|| T::random(dice))
    }
}

impl<T: Random> Random for Vec<T> {
    fn random(dice: &mut Dice) -> Self {
        let length = match dice.random.u8(..) {
            0 => 100_000,
            1..=9 => dice.below(300),
            _ => dice.below(4),
        };
        (0..length).map_while(|_| dice.takes(8).then(|| T::random(dice))).collect()
    }
}

/// Messages, and their fields.
macro_rules! messages {
    ($($message:ty { $($field:ident),* })*) => {
        $(impl Random for $message {
            fn random(dice: &mut Dice) -> Self {
                Self { $($field: Random::random(dice)),* }
            }
        })*
    };
}

messages! {
    v1::GetPluginInfoResponse { name, vendor_version, manifest }
    v1::PluginCapability { r#type }
    plugin::Service { r#type }
    plugin::VolumeExpansion { r#type }
    v1::CreateVolumeResponse { volume }
    v1::Volume { capacity_bytes, volume_id, volume_context, content_source, accessible_topology }
    v1::VolumeContentSource { r#type }
    v1::volume_content_source::SnapshotSource { snapshot_id }
    v1::volume_content_source::VolumeSource { volume_id }
    v1::Topology { segments }
    v1::VolumeCondition { abnormal, message }
    v1::ControllerPublishVolumeResponse { publish_context }
    v1::ValidateVolumeCapabilitiesResponse { confirmed, message }
    v1::validate_volume_capabilities_response::Confirmed {
        volume_context, volume_capabilities, parameters, mutable_parameters
    }
    v1::VolumeCapability { access_mode, access_type }
    v1::volume_capability::AccessMode { mode }
    v1::volume_capability::MountVolume { fs_type, mount_flags, volume_mount_group }
    v1::list_volumes_response::Entry { volume, status }
    v1::list_volumes_response::VolumeStatus { published_node_ids, volume_condition }
    v1::GetCapacityResponse { available_capacity, maximum_volume_size, minimum_volume_size }
    v1::ControllerServiceCapability { r#type }
    controller::Rpc { r#type }
    v1::CreateSnapshotResponse { snapshot }
    v1::list_snapshots_response::Entry { snapshot }
    v1::GetSnapshotResponse { snapshot }
    v1::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required }
    v1::ControllerGetVolumeResponse { volume, status }
    v1::controller_get_volume_response::VolumeStatus { published_node_ids, volume_condition }
    v1::GroupControllerServiceCapability { r#type }
    group::Rpc { r#type }
    v1::CreateVolumeGroupSnapshotResponse { group_snapshot }
    v1::GetVolumeGroupSnapshotResponse { group_snapshot }
    v1::BlockMetadata { byte_offset, size_bytes }
    v1::GetMetadataAllocatedResponse { block_metadata_type, volume_capacity_bytes, block_metadata }
    v1::GetMetadataDeltaResponse { block_metadata_type, volume_capacity_bytes, block_metadata }
    v1::NodeGetVolumeStatsResponse { usage, volume_condition }
    v1::VolumeUsage { available, total, used, unit }
    v1::NodeExpandVolumeResponse { capacity_bytes }
    v1::NodeServiceCapability { r#type }
    node::Rpc { r#type }
}

/// Messages without fields.
macro_rules! empty {
    ($($message:ty;)*) => {
        $(impl Random for $message {
            fn random(_: &mut Dice) -> Self {
                Self {}
            }
        })*
    };
}

empty! {
    v1::DeleteVolumeResponse;
    v1::ControllerUnpublishVolumeResponse;
    v1::volume_capability::BlockVolume;
    v1::DeleteSnapshotResponse;
    v1::ControllerModifyVolumeResponse;
    v1::DeleteVolumeGroupSnapshotResponse;
    v1::NodeStageVolumeResponse;
    v1::NodeUnstageVolumeResponse;
    v1::NodePublishVolumeResponse;
    v1::NodeUnpublishVolumeResponse;
}

/// Messages of one of several types.
macro_rules! choices {
    ($($choice:ty { $first:ident $(, $second:ident)? })*) => {
        $(impl Random for $choice {
            fn random(dice: &mut Dice) -> Self {
                $(if bool::random(dice) {
                    return Self::$second(Random::random(dice));
                })?
                Self::$first(Random::random(dice))
            }
        })*
    };
}

choices! {
    plugin::Type { Service, VolumeExpansion }
    v1::volume_content_source::Type { Snapshot, Volume }
    v1::volume_capability::AccessType { Mount, Block }
    controller::Type { Rpc }
    group::Type { Rpc }
    node::Type { Rpc }
}

/// Lists of capabilities: long enough to have most of them, and some twice.
macro_rules! declarations {
    ($($message:ident)*) => {
        $(impl Random for v1::$message {
            fn random(dice: &mut Dice) -> Self {
                let length = 30 + dice.below(50);
                Self { capabilities: (0..length).map(|_| Random::random(dice)).collect() }
            }
        })*
    };
}

declarations! {
    GetPluginCapabilitiesResponse
    ControllerGetCapabilitiesResponse
    GroupControllerGetCapabilitiesResponse
    NodeGetCapabilitiesResponse
}

/// Lists, which continue as the seed has it.
macro_rules! lists {
    ($($message:ident)*) => {
        $(impl Random for v1::$message {
            fn random(dice: &mut Dice) -> Self {
                Self { next_token: dice.token(), entries: Random::random(dice) }
            }
        })*
    };
}

lists! { ListVolumesResponse ListSnapshotsResponse }

/// Callers wait until it is ready.
impl Random for v1::ProbeResponse {
    fn random(dice: &mut Dice) -> Self {
        Self { ready: dice.pick(&[None, Some(true), Some(true), Some(false)]) }
    }
}

/// Without the small limits with which callers would make one call after the other.
impl Random for v1::NodeGetInfoResponse {
    fn random(dice: &mut Dice) -> Self {
        let max_volumes_per_node = i64::random(dice);
        Self {
            max_volumes_per_node: if max_volumes_per_node == 1 { 0 } else { max_volumes_per_node },
            node_id: Random::random(dice),
            accessible_topology: Random::random(dice),
        }
    }
}

impl Random for v1::Snapshot {
    fn random(dice: &mut Dice) -> Self {
        let mut snapshot = Self {
            size_bytes: Random::random(dice),
            snapshot_id: Random::random(dice),
            source_volume_id: Random::random(dice),
            creation_time: None,
            ready_to_use: Random::random(dice),
            group_snapshot_id: Random::random(dice),
        };
        if bool::random(dice) {
            let time = snapshot.creation_time.get_or_insert_default();
            (time.seconds, time.nanos) = (Random::random(dice), dice.random.i32(..));
        }
        snapshot
    }
}

impl Random for v1::VolumeGroupSnapshot {
    fn random(dice: &mut Dice) -> Self {
        let mut group = Self {
            group_snapshot_id: Random::random(dice),
            snapshots: Random::random(dice),
            creation_time: None,
            ready_to_use: Random::random(dice),
        };
        if bool::random(dice) {
            let time = group.creation_time.get_or_insert_default();
            (time.seconds, time.nanos) = (Random::random(dice), dice.random.i32(..));
        }
        group
    }
}
