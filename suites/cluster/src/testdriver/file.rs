//! The fields of a driver file, spelled as upstream spells them.
//!
//! Upstream: `driverDefinition` in `test/e2e/storage/external/external.go`, `DriverInfo` and what it holds in
//! `test/e2e/storage/framework/testdriver.go`, `SizeRange` in `test/e2e/framework/volume/fixtures.go`. Which other
//! names are accepted is decided in `names.rs`.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::Capability;
use serde::{Deserialize, Serialize};

use super::timeouts::Timeout;

/// A driver file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct File {
    /// The source of storage classes.
    pub storage_class: ClassSource,
    /// The source of snapshot classes.
    pub snapshot_class: ClassSource,
    /// The source of group snapshot classes.
    pub group_snapshot_class: ClassSource,
    /// The source of VolumeAttributesClasses.
    pub volume_attributes_class: AttributesSource,
    /// CSI inline volumes.
    pub inline_volumes: Vec<InlineVolume>,
    /// The only node that pods run on.
    pub client_node_name: String,
    /// Labels of the nodes that pods run on.
    pub node_selectors: BTreeMap<String, String>,
    /// Timeouts of steps, as Go durations.
    pub timeouts: BTreeMap<Timeout, String>,
    /// The driver's properties.
    pub driver_info: DriverInfo,
}

/// The source of a class; all fields empty means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClassSource {
    /// Created from the driver's name, without parameters.
    pub from_name: bool,
    /// An object in a file.
    pub from_file: String,
    /// A copy of an existing class of the cluster.
    pub from_existing_class_name: String,
}

/// The source of a VolumeAttributesClass: the driver's name is not sufficient.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AttributesSource {
    /// An object in a file.
    pub from_file: String,
    /// A copy of an existing class of the cluster.
    pub from_existing_class_name: String,
}

/// A CSI inline volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InlineVolume {
    /// The volume context for the driver.
    pub attributes: BTreeMap<String, String>,
    /// All pods share one volume.
    pub shared: bool,
    /// The driver cannot mount it for writing.
    pub read_only: bool,
}

/// Properties of the driver.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DriverInfo {
    /// Its name, as returned by GetPluginInfo.
    pub name: String,
    /// The in-tree plugin that it replaces.
    pub in_tree_plugin_name: String,
    /// Labels of upstream's test runner.
    pub test_tags: Vec<serde_json::Value>,
    /// The maximum file size in bytes; zero means unlimited.
    pub max_file_size: i64,
    /// The sizes of its volumes.
    pub supported_size_range: SizeRange,
    /// Its file systems; the empty name is the driver's default.
    pub supported_fs_type: BTreeMap<String, Option<Empty>>,
    /// Mount options that it supports.
    pub supported_mount_option: BTreeMap<String, Option<Empty>>,
    /// Mount options that it requires.
    pub required_mount_option: BTreeMap<String, Option<Empty>>,
    /// Its capabilities; those not named are false.
    pub capabilities: BTreeMap<Capability, bool>,
    /// The access modes of claims.
    pub required_access_modes: BTreeSet<AccessMode>,
    /// Topology keys of its volumes.
    pub topology_keys: Vec<String>,
    /// The number of topology segments of a volume.
    pub num_allowed_topologies: u32,
    /// The scale of stress.
    pub stress_test_options: Option<StressTestOptions>,
    /// The scale of stress with snapshots.
    pub volume_snapshot_stress_test_options: Option<SnapshotStressTestOptions>,
    /// The scale of stress with modifications.
    pub volume_modify_stress_test_options: Option<ModifyStressTestOptions>,
    /// The scale of stress with group snapshots.
    pub volume_group_snapshot_stress_test_options: Option<SnapshotStressTestOptions>,
    /// Expected performance.
    pub performance_test_options: Option<PerformanceTestOptions>,
}

/// A member of a Go set in YAML: `ext4: {}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Empty {}

/// Volume sizes, as Kubernetes quantities; empty means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SizeRange {
    /// The maximum.
    pub max: String,
    /// The minimum.
    pub min: String,
    /// The step between sizes.
    pub step: String,
}

/// The access mode of a volume.
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
#[serde(rename_all = "PascalCase", default)]
pub struct StressTestOptions {
    /// How many pods, each with a volume.
    pub num_pods: usize,
    /// How often each pod is recreated.
    pub num_restarts: usize,
}

/// The scale of stress with snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SnapshotStressTestOptions {
    /// How many pods, each with a volume.
    pub num_pods: usize,
    /// How many snapshots of each volume.
    pub num_snapshots: usize,
}

/// The scale of stress with modifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ModifyStressTestOptions {
    /// How many pods, each with a volume.
    pub num_pods: usize,
}

/// Expected performance.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PerformanceTestOptions {
    /// Expected performance of provisioning.
    pub provisioning_options: Option<ProvisioningOptions>,
}

/// Expected performance of provisioning.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ProvisioningOptions {
    /// The size of each volume.
    pub volume_size: String,
    /// The number of volumes.
    pub count: usize,
    /// Expected latency and throughput.
    pub expected_metrics: Option<ExpectedMetrics>,
}

/// Expected latency and throughput of provisioning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExpectedMetrics {
    /// In nanoseconds, the numeric form of a Go duration.
    pub avg_latency: i64,
    /// Claims bound per second.
    pub throughput: f64,
}
