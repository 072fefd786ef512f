//! Driver files: the YAML (or JSON) that vendors have for upstream's external storage suite
//! (`-storage.testdriver`), and what our cases make of it.
//!
//! ```text
//! text ──file──> File (strict) ──TestDriver::parse──> checked values ──> plan: which rows run
//!                                                                    └─> fixture: classes, claims, pods
//! ```
//!
//! Every field has an effect on cases, or [`TestDriver::without_effect`] names it. The way back, from what a driver
//! declares to such a file, is [`draft`].

mod error;
mod file;
mod ours;
#[cfg(test)]
mod tests;
mod timeouts;
mod write;
#[cfg(test)]
mod write_tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_informer::quantity;
use claimcheck_model::Capability;
use k8s_openapi::{api::storage::v1::StorageClass, apimachinery::pkg::api::resource::Quantity};

pub use error::TestDriverError;
pub use file::{AccessMode, ClassSource, File, InlineVolume, StressTestOptions};
pub use ours::Content;
pub use write::{ClassWish, Draft, Origin, Wishes, class, draft};

/// The smallest volume of a driver whose file names none (`loadDriverDefinition` in upstream's `external.go`).
const SMALLEST: &str = "5Gi";

/// A driver as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TestDriver {
    file: File,
    class: Class,
    smallest: i64,
    largest: Option<i64>,
    patience: Option<Duration>,
}

/// What the driver's storage classes are made from.
#[derive(Clone, Debug, PartialEq)]
pub enum Class {
    /// There is none: volumes are not made for claims.
    None,
    /// The driver's name alone.
    Name,
    /// This object.
    Object(Box<StorageClass>),
    /// One that the cluster has.
    Existing(String),
}

impl TestDriver {
    /// Reads a driver file, and the files that it names: those that are not absolute lie beside it.
    ///
    /// # Errors
    /// [`TestDriverError`] says where the mistake is, and what was probably meant.
    pub fn read(path: &Path) -> Result<Self, TestDriverError> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| TestDriverError::Read { path: path.to_owned(), source })
        };
        Self::parse(path, &read(path)?, |name| {
            let path = path.parent().unwrap_or(Path::new("")).join(name);
            Ok((path.clone(), read(&path)?))
        })
    }

    /// The same of a text; `beside` reads the files that it names.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(
        path: &Path,
        text: &str,
        beside: impl Fn(&str) -> Result<(PathBuf, String), TestDriverError>,
    ) -> Result<Self, TestDriverError> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error::form(path, &error))?;
        let value = |what: String| TestDriverError::Value { path: path.to_owned(), what };
        if file.driver_info.name.is_empty() {
            return Err(value(
                "DriverInfo.Name is missing: write the name that GetPluginInfo answers".into(),
            ));
        }
        let class = match &file.storage_class {
            ClassSource { from_name: true, .. } => Class::Name,
            ClassSource { from_file, .. } if !from_file.is_empty() => {
                let (path, text) = beside(from_file)?;
                let class: StorageClass =
                    serde_saphyr::from_str(&text).map_err(|error| error::form(&path, &error))?;
                if class.provisioner != file.driver_info.name {
                    let what = format!(
                        "its provisioner is {:?}, the driver is {:?}",
                        class.provisioner, file.driver_info.name
                    );
                    return Err(TestDriverError::Value { path, what });
                }
                Class::Object(Box::new(class))
            }
            ClassSource { from_existing_class_name: name, .. } if !name.is_empty() => {
                Class::Existing(name.clone())
            }
            ClassSource { .. } => Class::None,
        };
        let range = &file.driver_info.supported_size_range;
        let size = |field: &str, text: &str| {
            let bytes = quantity::bytes(&Quantity(text.to_owned())).filter(|bytes| *bytes > 0);
            bytes.ok_or_else(|| {
                value(format!("SupportedSizeRange.{field} is {text:?}: write a quantity, for example 1Gi"))
            })
        };
        let no_range = range.min.is_empty() && range.max.is_empty();
        let smallest = match (no_range, range.min.as_str()) {
            (true, _) => size("Min", SMALLEST)?,
            (false, "") => 1,
            (false, min) => size("Min", min)?,
        };
        let largest = (!range.max.is_empty()).then(|| size("Max", &range.max)).transpose()?;
        if largest.is_some_and(|largest| largest < smallest) {
            return Err(value(format!("SupportedSizeRange: Min {} is above Max {}", range.min, range.max)));
        }
        let mut patience = None;
        for (name, text) in &file.timeouts {
            let time = timeouts::duration(text).ok_or_else(|| {
                value(format!("Timeouts: {text:?} is no duration: write it as Go does, for example 5m"))
            })?;
            patience = patience.max(name.is_waited().then_some(time));
        }
        Ok(Self { file, class, smallest, largest, patience })
    }

    /// The driver's name.
    pub fn name(&self) -> &str {
        &self.file.driver_info.name
    }

    /// What its storage classes are made from.
    pub fn class(&self) -> &Class {
        &self.class
    }

    /// All fields, as they are written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What it can do. A capability that the file does not name it lacks; expansion is online and offline where
    /// the file does not say otherwise, as upstream has it.
    pub fn capabilities(&self) -> BTreeMap<Capability, bool> {
        let named = &self.file.driver_info.capabilities;
        let grows = named.get(&Capability::ControllerExpansion).copied().unwrap_or_default();
        let default = |capability: Capability| match capability {
            Capability::OnlineExpansion | Capability::OfflineExpansion => grows,
            _ => false,
        };
        let value = |capability: Capability| named.get(&capability).copied().unwrap_or(default(capability));
        Capability::ALL.iter().map(|&capability| (capability, value(capability))).collect()
    }

    /// A size that the driver makes, as near to the wanted one as can be; bytes.
    pub fn fit(&self, bytes: i64) -> i64 {
        bytes.max(self.smallest).min(self.largest.unwrap_or(i64::MAX))
    }

    /// The access modes that claims ask for.
    pub fn access_modes(&self) -> BTreeSet<AccessMode> {
        match &self.file.driver_info.required_access_modes {
            none if none.is_empty() => BTreeSet::from([AccessMode::ReadWriteOnce]),
            required => required.clone(),
        }
    }

    /// Mount options without which nothing works.
    pub fn mount_options(&self) -> Vec<String> {
        self.file.driver_info.required_mount_option.keys().cloned().collect()
    }

    /// The file systems that it can make, beside its own choice.
    pub fn file_systems(&self) -> impl Iterator<Item = &str> {
        self.file.driver_info.supported_fs_type.keys().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// How long a step may take, where the file gives one more time than it has anyway.
    pub fn patience(&self) -> Option<Duration> {
        self.patience
    }

    /// Fields that the file has and that no case looks at.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let File { storage_class: class, snapshot_class, group_snapshot_class, .. } = &self.file;
        let info = &self.file.driver_info;
        let given = |source: &ClassSource| *source != ClassSource::default();
        let doubled =
            [class.from_name, !class.from_file.is_empty(), !class.from_existing_class_name.is_empty()];
        let fields = [
            ("the second source of StorageClass", doubled.iter().filter(|given| **given).count() > 1),
            ("SnapshotClass", given(snapshot_class)),
            ("GroupSnapshotClass", given(group_snapshot_class)),
            ("VolumeAttributesClass", self.file.volume_attributes_class != file::AttributesSource::default()),
            ("Timeouts of what no case waits for", self.file.timeouts.keys().any(|name| !name.is_waited())),
            ("InTreePluginName", !info.in_tree_plugin_name.is_empty()),
            ("TestTags", !info.test_tags.is_empty()),
            ("SupportedMountOption", !info.supported_mount_option.is_empty()),
            (
                "SupportedFsType beyond ext3, ext4 and xfs",
                self.file_systems().any(|name| !KNOWN.contains(&name)),
            ),
            ("SupportedSizeRange.Step", !info.supported_size_range.step.is_empty()),
            ("TopologyKeys", !info.topology_keys.is_empty()),
            ("NumAllowedTopologies", info.num_allowed_topologies > 0),
            ("VolumeSnapshotStressTestOptions", info.volume_snapshot_stress_test_options.is_some()),
            ("VolumeModifyStressTestOptions", info.volume_modify_stress_test_options.is_some()),
            (
                "VolumeGroupSnapshotStressTestOptions",
                info.volume_group_snapshot_stress_test_options.is_some(),
            ),
            ("PerformanceTestOptions", info.performance_test_options.is_some()),
        ];
        fields.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

/// File systems that cases ask for.
const KNOWN: [&str; 3] = ["ext3", "ext4", "xfs"];
