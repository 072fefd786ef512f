//! Generates a driver file from the capabilities that a driver declares, with the origin of each value.
//!
//! ```text
//! Asked (calls) ─┐
//! Wishes (flags) ┼─ draft ──> Draft: File, and an Origin per capability ── Display ──> YAML with comments
//! Content (built-in) ┘
//! ```
//!
//! Unknown capabilities are false, as upstream treats a capability that a file does not name, unless there is a reason
//! to assume true.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use claimcheck_model::Capability;
use serde_json::{Map, Value};

use super::{
    builtin::{self, Content},
    file::{
        AttributesSource, ClassSource, DriverInfo, Empty, File, InlineVolume, SizeRange,
        SnapshotStressTestOptions, StressTestOptions,
    },
};
use claimcheck_cluster::{DriverDescription, declared_by};

/// `FileSizeMedium` of upstream's `test/e2e/storage/framework`, which upstream's CSI drivers use: its volumeIO suite
/// writes nothing without MaxFileSize.
const LARGEST_FILE: i64 = 100 << 20;

/// The source of storage classes, if the driver creates volumes at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClassOption {
    /// Only the driver's name.
    #[default]
    Name,
    /// An existing class of the cluster.
    Existing(String),
    /// The object in this file.
    File(String),
}

/// Settings that CSI calls do not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverOptions {
    /// The source of storage classes.
    pub class: ClassOption,
    /// An existing snapshot class of the cluster.
    pub snapshot_class: Option<String>,
    /// An existing group snapshot class of the cluster.
    pub group_snapshot_class: Option<String>,
    /// An existing VolumeAttributesClass of the cluster.
    pub attributes_class: Option<String>,
    /// File systems that a class can request.
    pub file_systems: BTreeSet<String>,
    /// Mount options that a class can request.
    pub mount_options: BTreeSet<String>,
    /// The minimum volume size, as a quantity.
    pub smallest: Option<String>,
    /// The maximum volume size, as a quantity.
    pub largest: Option<String>,
    /// The maximum file size, in bytes.
    pub largest_file: Option<i64>,
    /// The attributes of CSI inline volumes.
    pub inline_volumes: Vec<BTreeMap<String, String>>,
    /// The only node that pods run on.
    pub client_node: Option<String>,
    /// The number of pods and of restarts in the stress suites.
    pub stress: Option<usize>,
    /// Capabilities that override the driver's declaration.
    pub capabilities: BTreeMap<Capability, bool>,
}

/// The origin of a capability's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The driver declares it.
    Declared(&'static str),
    /// The driver does not declare it.
    NotDeclared(&'static str),
    /// Known for the built-in driver.
    Known(&'static str),
    /// Assumed, with a reason.
    Assumed(&'static str),
    /// Unknown; what it depends on.
    Unknown(&'static str),
    /// Set by the caller.
    Override,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared(by) => write!(f, "declared: {by}"),
            Self::NotDeclared(by) => write!(f, "not declared: {by}"),
            Self::Known(why) => write!(f, "built-in driver: {why}"),
            Self::Assumed(why) => write!(f, "assumed: {why}"),
            Self::Unknown(what) => write!(f, "unknown: {what}"),
            Self::Override => f.write_str("given by --capability"),
        }
    }
}

/// A driver file to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Its fields.
    pub file: File,
    /// The origin of each capability's value.
    pub origins: BTreeMap<Capability, Origin>,
    /// Omitted fields, and the reasons.
    pub left_out: Vec<&'static str>,
}

/// The file of a driver; `ours` is the backend of the built-in driver, if it is that one.
pub fn draft(description: &DriverDescription, options: &DriverOptions, content: Option<Content>) -> Draft {
    let settled = Capability::ALL.iter().map(|&of| (of, settle(of, description, options, content)));
    let (mut capabilities, mut origins) = (BTreeMap::new(), BTreeMap::new());
    for (capability, (value, origin)) in settled {
        capabilities.insert(capability, value);
        origins.insert(capability, origin);
    }
    let can = |capability| capabilities.get(&capability) == Some(&true);
    let storage_class = match &options.class {
        ClassOption::Existing(name) => existing(name),
        ClassOption::File(path) => ClassSource { from_file: path.clone(), ..ClassSource::default() },
        ClassOption::Name => from_name(description.declared.supported_calls.create),
    };
    let of_snapshots = |named: &Option<String>, needs| match named {
        Some(name) => existing(name),
        None => from_name(can(needs)),
    };
    let stress = options.stress.map(|n| StressTestOptions { num_pods: n, num_restarts: n });
    let snapshot_stress = options.stress.map(|n| SnapshotStressTestOptions { num_pods: n, num_snapshots: n });
    let driver_info = DriverInfo {
        name: description.name.clone(),
        max_file_size: options.largest_file.unwrap_or(LARGEST_FILE),
        supported_size_range: SizeRange {
            min: options
                .smallest
                .clone()
                .or(content.map(|_| builtin::SMALLEST.to_owned()))
                .unwrap_or_default(),
            max: options.largest.clone().unwrap_or_default(),
            ..SizeRange::default()
        },
        supported_fs_type: set([String::new()]
            .into_iter()
            .chain(options.file_systems.iter().cloned())
            .chain(content.map(Content::file_systems).unwrap_or_default())),
        supported_mount_option: set(options
            .mount_options
            .iter()
            .cloned()
            .chain(content.map(|_| builtin::MOUNT_OPTION.to_owned()))),
        topology_keys: description.topology_keys.clone(),
        stress_test_options: stress,
        volume_snapshot_stress_test_options: snapshot_stress.filter(|_| can(Capability::SnapshotDataSource)),
        ..DriverInfo::default()
    };
    let file = File {
        storage_class,
        snapshot_class: of_snapshots(&options.snapshot_class, Capability::SnapshotDataSource),
        group_snapshot_class: of_snapshots(&options.group_snapshot_class, Capability::GroupSnapshot),
        volume_attributes_class: AttributesSource {
            from_existing_class_name: options.attributes_class.clone().unwrap_or_default(),
            ..AttributesSource::default()
        },
        inline_volumes: inline_volumes(options, content.is_some()),
        client_node_name: options.client_node.clone().unwrap_or_default(),
        driver_info: DriverInfo { capabilities, ..driver_info },
        ..File::default()
    };
    let left_out = left_out(&file);
    Draft { file, origins, left_out }
}

/// The CSI inline volumes. Those of the built-in driver need no attributes.
fn inline_volumes(options: &DriverOptions, is_builtin: bool) -> Vec<InlineVolume> {
    let plain = (is_builtin && options.inline_volumes.is_empty()).then(InlineVolume::default);
    let inline = options.inline_volumes.iter();
    let inline =
        inline.map(|attributes| InlineVolume { attributes: attributes.clone(), ..InlineVolume::default() });
    inline.chain(plain).collect()
}

/// Fields that the file omits, and the reasons.
fn left_out(file: &File) -> Vec<&'static str> {
    let info = &file.driver_info;
    let none = ClassSource::default();
    let is_zoned = info.capabilities.get(&Capability::Topology) == Some(&true);
    let table = [
        (file.storage_class == none, "StorageClass: the driver does not declare CREATE_DELETE_VOLUME"),
        (file.snapshot_class == none, "SnapshotClass: snapshotDataSource is false"),
        (file.group_snapshot_class == none, "GroupSnapshotClass: groupSnapshot is false"),
        (
            file.volume_attributes_class == AttributesSource::default(),
            "VolumeAttributesClass: mutable parameters are not available through CSI; use --volume-attributes-class",
        ),
        (
            file.inline_volumes.is_empty(),
            "InlineVolumes: supported attributes are not available through CSI; use --inline-volume",
        ),
        (
            info.supported_size_range == SizeRange::default(),
            "SupportedSizeRange: not available through CSI; upstream assumes at least 5Gi; use --min-size, --max-size",
        ),
        (
            is_zoned && info.topology_keys.is_empty(),
            "TopologyKeys: NodeGetInfo returns none, so upstream skips its topology suite",
        ),
        (
            info.stress_test_options.is_none(),
            "StressTestOptions, VolumeSnapshotStressTestOptions: upstream skips its stress suites; use --stress",
        ),
    ];
    table.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect()
}

/// A Go set.
fn set(names: impl Iterator<Item = String>) -> BTreeMap<String, Option<Empty>> {
    names.map(|name| (name, Some(Empty {}))).collect()
}

fn from_name(from_name: bool) -> ClassSource {
    ClassSource { from_name, ..ClassSource::default() }
}

fn existing(name: &str) -> ClassSource {
    ClassSource { from_existing_class_name: name.to_owned(), ..ClassSource::default() }
}

/// The value of a capability, by precedence: set by the caller, known, declared, assumed; otherwise false.
fn settle(
    capability: Capability,
    description: &DriverDescription,
    options: &DriverOptions,
    content: Option<Content>,
) -> (bool, Origin) {
    if let Some(&value) = options.capabilities.get(&capability) {
        return (value, Origin::Override);
    }
    if let Some((value, why)) = content.and_then(|content| builtin::known(content, capability)) {
        return (value, Origin::Known(why));
    }
    let declared = description.declared.capabilities.get(&capability);
    match (declared, declared_by(capability)) {
        (Some(true), Some(by)) => (true, Origin::Declared(by)),
        (Some(false), Some(by)) => (false, Origin::NotDeclared(by)),
        (Some(_) | None, _) => guess(capability, description, options, content),
    }
}

/// The value of a capability that the driver does not report.
fn guess(
    capability: Capability,
    description: &DriverDescription,
    options: &DriverOptions,
    content: Option<Content>,
) -> (bool, Origin) {
    let assumed = |why| (true, Origin::Assumed(why));
    let unknown = |what| (false, Origin::Unknown(what));
    let can = |other| settle(other, description, options, content).0;
    match capability {
        Capability::Persistence => assumed("expected of persistent volumes"),
        Capability::Exec => assumed("file systems are mounted without noexec"),
        Capability::MultiplePvsSameId => assumed("a CSI driver does not see PersistentVolumes"),
        Capability::Multipods if description.declared.supported_calls.stage => {
            assumed("with STAGE_UNSTAGE_VOLUME a volume is staged once and published for each pod")
        }
        Capability::Multipods => unknown("whether NodePublishVolume of one volume works for a second pod"),
        Capability::FsGroup if can(Capability::VolumeMountGroup) => {
            assumed("upstream requires it with volumeMountGroup")
        }
        Capability::FsGroup if !options.file_systems.is_empty() => assumed(
            "the kubelet changes the group in file systems, unless fsGroupPolicy of the CSIDriver is None",
        ),
        Capability::FsGroup => unknown("depends on fsGroupPolicy of the CSIDriver"),
        // Upstream's default.
        Capability::OnlineExpansion | Capability::OfflineExpansion => (
            can(Capability::ControllerExpansion),
            Origin::Assumed("as controllerExpansion, since the driver declares no VolumeExpansion"),
        ),
        Capability::Block => unknown("whether volumes can be raw devices"),
        Capability::Rwx => unknown("whether pods of several nodes can write to a volume"),
        Capability::CapReadOnlyMany => unknown("whether pods of several nodes can read a volume"),
        Capability::SingleNodeVolume => unknown("true if a volume can never be on a second node"),
        Capability::FsResizeFromSourceNotSupported => {
            unknown("true if a restored file system keeps the size of its source")
        }
        Capability::SeLinuxMount => unknown("depends on seLinuxMount of the CSIDriver"),
        Capability::VolumeMountGroup
        | Capability::SnapshotDataSource
        | Capability::SnapshotMetadata
        | Capability::GroupSnapshot
        | Capability::PvcDataSource
        | Capability::ControllerExpansion
        | Capability::NodeExpansion
        | Capability::VolumeLimits
        | Capability::Topology
        | Capability::Capacity
        | Capability::ReadWriteOncePod => unknown("the driver was not queried"),
    }
}

/// Requirements of a capability in addition to the driver, if it is true.
fn additional_requirement(capability: Capability) -> Option<&'static str> {
    Some(match capability {
        Capability::SnapshotDataSource => "needs the snapshot CRDs and controllers",
        Capability::GroupSnapshot => "needs the group snapshot CRDs and controllers",
        Capability::SnapshotMetadata => "needs external-snapshot-metadata",
        Capability::Capacity => "needs storageCapacity of the CSIDriver",
        Capability::VolumeLimits => "slow",
        _ => return None,
    })
}

impl Draft {
    /// The comment of a capability's line.
    fn comment(&self, capability: Capability) -> Option<String> {
        let origin = self.origins.get(&capability)?;
        let is = self.file.driver_info.capabilities.get(&capability) == Some(&true);
        let besides = additional_requirement(capability).filter(|_| is);
        Some(besides.map_or(origin.to_string(), |besides| format!("{origin}; {besides}")))
    }
}

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# For Kubernetes' e2e storage suite (e2e.test -storage.testdriver=FILE) and")?;
        writeln!(f, "# `claimcheck run --driver-config FILE`; generated by `claimcheck testdriver`.")?;
        if !self.left_out.is_empty() {
            writeln!(f, "#\n# Omitted:")?;
            self.left_out.iter().try_for_each(|what| writeln!(f, "#   {what}"))?;
        }
        let text = yaml(&self.file);
        let Some((before, after)) = text.split_once(CAPABILITIES) else { return f.write_str(&text) };
        write!(f, "{before}{CAPABILITIES}")?;
        // Names of capabilities need no quotes, so each line begins with one.
        for line in after.lines() {
            let name = line.strip_prefix("    ").and_then(|line| line.split(':').next());
            let comment =
                name.and_then(|name| name.parse().ok()).and_then(|capability| self.comment(capability));
            match comment {
                Some(comment) => writeln!(f, "{line:<43} # {comment}")?,
                None => writeln!(f, "{line}")?,
            }
        }
        Ok(())
    }
}

/// The start of the capabilities in the text. Values contain no line breaks, so the match is unambiguous.
const CAPABILITIES: &str = "\n  Capabilities:\n";

/// The fields that differ from the defaults.
fn yaml(file: &File) -> String {
    let value = |file: &File| serde_json::to_value(file).expect("maps with names for keys");
    let mut fields = value(file);
    if let (Value::Object(fields), Value::Object(defaults)) = (&mut fields, value(&File::default())) {
        prune(fields, &defaults);
    }
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
    serde_saphyr::to_string_with_options(&fields, options).expect("maps with names for keys")
}

/// Removes fields that equal the defaults.
fn prune(fields: &mut Map<String, Value>, defaults: &Map<String, Value>) {
    fields.retain(|name, value| match (value, defaults.get(name)) {
        (Value::Object(fields), Some(Value::Object(defaults))) => {
            prune(fields, defaults);
            !fields.is_empty()
        }
        (value, default) => Some(&*value) != default,
    });
}

/// A storage class of the driver with parameters, for [`ClassOption::File`].
pub fn class(driver: &str, parameters: &BTreeMap<String, String>) -> String {
    let class = serde_json::json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": "testdriver" },
        "provisioner": driver,
        "parameters": parameters,
    });
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&class, options).expect("maps with names for keys")
}
