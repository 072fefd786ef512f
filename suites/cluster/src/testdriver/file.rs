//! The fields of a driver file, spelled as upstream spells them.
//!
//! Upstream: `driverDefinition` in `test/e2e/storage/external/external.go`, `DriverInfo` and what it holds in
//! `test/e2e/storage/framework/testdriver.go`, `SizeRange` in `test/e2e/framework/volume/fixtures.go`. Upstream
//! takes unknown fields for nothing; here each is an error, since a field that nobody reads is a case that
//! nobody runs.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::Capability;
use serde::{Deserialize, Serialize};

use super::timeouts::Timeout;

/// A driver file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct File {
    /// What storage classes are made from.
    pub storage_class: ClassSource,
    /// The same of snapshots.
    pub snapshot_class: ClassSource,
    /// The same of group snapshots.
    pub group_snapshot_class: ClassSource,
    /// The same of what volumes can be changed to.
    pub volume_attributes_class: AttributesSource,
    /// Volumes that are part of a pod.
    pub inline_volumes: Vec<InlineVolume>,
    /// The only node that pods run on.
    pub client_node_name: String,
    /// Labels of the nodes that pods run on.
    pub node_selectors: BTreeMap<String, String>,
    /// How long steps may take, as Go writes durations.
    pub timeouts: BTreeMap<Timeout, String>,
    /// The driver itself.
    pub driver_info: DriverInfo,
}

/// Where a class comes from; nowhere where all is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct ClassSource {
    /// Made from the driver's name, without parameters.
    pub from_name: bool,
    /// An object in a file.
    pub from_file: String,
    /// A copy of one that the cluster has.
    pub from_existing_class_name: String,
}

/// Where a VolumeAttributesClass comes from: never from the driver's name alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct AttributesSource {
    /// An object in a file.
    pub from_file: String,
    /// A copy of one that the cluster has.
    pub from_existing_class_name: String,
}

/// A volume that is part of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct InlineVolume {
    /// What the driver is given as volume context.
    pub attributes: BTreeMap<String, String>,
    /// All pods see one and the same volume.
    pub shared: bool,
    /// The driver cannot mount it for writing.
    pub read_only: bool,
}

/// What is known of the driver.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct DriverInfo {
    /// Its name, as GetPluginInfo says it.
    pub name: String,
    /// The plugin that it replaces.
    pub in_tree_plugin_name: String,
    /// Labels of upstream's test runner.
    pub test_tags: Vec<serde_json::Value>,
    /// The largest file that it takes, bytes; any where zero.
    pub max_file_size: i64,
    /// The sizes of its volumes.
    pub supported_size_range: SizeRange,
    /// Its file systems; the empty name is the driver's own choice.
    pub supported_fs_type: BTreeMap<String, Option<Empty>>,
    /// Mount options that it can be given.
    pub supported_mount_option: BTreeMap<String, Option<Empty>>,
    /// Mount options that it must be given.
    pub required_mount_option: BTreeMap<String, Option<Empty>>,
    /// What it can do; what is not named it cannot.
    pub capabilities: BTreeMap<Capability, bool>,
    /// The access modes of claims.
    pub required_access_modes: BTreeSet<AccessMode>,
    /// Labels that say where a volume can be reached.
    pub topology_keys: Vec<String>,
    /// How many places a volume is made in.
    pub num_allowed_topologies: u32,
    /// The scale of stress.
    pub stress_test_options: Option<StressTestOptions>,
    /// The same of snapshots.
    pub volume_snapshot_stress_test_options: Option<SnapshotStressTestOptions>,
    /// The same of changes.
    pub volume_modify_stress_test_options: Option<ModifyStressTestOptions>,
    /// The same of group snapshots.
    pub volume_group_snapshot_stress_test_options: Option<SnapshotStressTestOptions>,
    /// What is expected of its speed.
    pub performance_test_options: Option<PerformanceTestOptions>,
}

/// What Go writes for a member of a set: `ext4: {}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// Sizes of volumes, as Kubernetes quantities; unlimited where empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct SizeRange {
    /// The largest.
    pub max: String,
    /// The smallest.
    pub min: String,
    /// What sizes are multiples of.
    pub step: String,
}

/// Who may use a volume at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[expect(clippy::enum_variant_names, reason = "the names are Kubernetes'")]
pub enum AccessMode {
    /// Pods of one node.
    ReadWriteOnce,
    /// Pods of all nodes, for reading.
    ReadOnlyMany,
    /// Pods of all nodes.
    ReadWriteMany,
    /// One pod.
    ReadWriteOncePod,
}

/// The scale of stress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct StressTestOptions {
    /// How many pods, each with a volume.
    pub num_pods: usize,
    /// How often each is made again.
    pub num_restarts: usize,
}

/// The scale of stress with snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct SnapshotStressTestOptions {
    /// How many pods, each with a volume.
    pub num_pods: usize,
    /// How many snapshots of each volume.
    pub num_snapshots: usize,
}

/// The scale of stress with changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct ModifyStressTestOptions {
    /// How many pods, each with a volume.
    pub num_pods: usize,
}

/// What is expected of its speed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct PerformanceTestOptions {
    /// When volumes are made.
    pub provisioning_options: Option<ProvisioningOptions>,
}

/// What is expected when volumes are made.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct ProvisioningOptions {
    /// The size of each.
    pub volume_size: String,
    /// How many.
    pub count: usize,
    /// How fast.
    pub expected_metrics: Option<ExpectedMetrics>,
}

/// How fast volumes are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct ExpectedMetrics {
    /// Nanoseconds, as Go writes a duration that is a number.
    pub avg_latency: i64,
    /// Claims bound in a second.
    pub throughput: f64,
}
