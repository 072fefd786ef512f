//! Driver files: the YAML (or JSON) test driver definition of upstream's external storage suite
//! (`-storage.testdriver`), and how the cases use it.
//!
//! ```text
//! text ──names, file──> File ──TestDriver::parse──> checked values ──> plan: which rows run
//!                                                                  └─> fixture: classes, claims, pods
//! ```
//!
//! Every field affects cases, or [`TestDriver::without_effect`] or [`TestDriver::ignored`] lists it. [`draft`] generates such a file from the
//! capabilities that a driver declares.

mod builtin;
mod error;
mod file;
mod names;
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

use names::Node;

pub use builtin::Content;
pub use error::TestDriverError;
pub use file::{AccessMode, ClassSource, File, InlineVolume, StressTestOptions};
pub use write::{ClassOption, Draft, DriverOptions, Origin, class, draft};

/// The default minimum volume size (`loadDriverDefinition` in upstream's `external.go`).
const SMALLEST: &str = "5Gi";

/// A driver as described by its driver file.
#[derive(Clone, Debug, PartialEq)]
pub struct TestDriver {
    file: File,
    class: Class,
    smallest: i64,
    largest: Option<i64>,
    timeout: Option<Duration>,
    ignored: Vec<String>,
}

/// The source of the driver's storage classes.
#[derive(Clone, Debug, PartialEq)]
pub enum Class {
    /// No class: no dynamic provisioning.
    None,
    /// Only the driver's name.
    Name,
    /// This object.
    Object(Box<StorageClass>),
    /// An existing class of the cluster.
    Existing(String),
}

impl TestDriver {
    /// Reads a driver file and the files that it names. A relative path is one below its directory, or below one of those
    /// above it: upstream resolves them against the root of a repository (`--repo-root`).
    ///
    /// # Errors
    /// [`TestDriverError`] contains the position of the mistake and a suggestion.
    pub fn read(path: &Path) -> Result<Self, TestDriverError> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| TestDriverError::Read { path: path.to_owned(), source })
        };
        Self::parse(path, &read(path)?, |name| {
            let paths: Vec<PathBuf> = path.ancestors().skip(1).map(|folder| folder.join(name)).collect();
            let found = paths.iter().find(|path| path.is_file()).or(paths.first()).cloned();
            let path = found.unwrap_or_else(|| name.into());
            Ok((path.clone(), read(&path)?))
        })
    }

    /// The same for a text; `beside` reads the files that it names.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(
        path: &Path,
        text: &str,
        read_class: impl Fn(&str) -> Result<(PathBuf, String), TestDriverError>,
    ) -> Result<Self, TestDriverError> {
        let document: Node = serde_saphyr::from_str(text).map_err(|error| error::form(path, &error, None))?;
        let names::Known { value, ignored } = names::known(&document).map_err(|slip| {
            TestDriverError::Form { path: path.to_owned(), line: slip.line, what: slip.what }
        })?;
        let file: File = serde_json::from_value(value).map_err(|error| {
            // The same error with its line.
            match serde_saphyr::from_str::<File>(text) {
                Err(error) => error::form(path, &error, Some(&document)),
                Ok(_) => TestDriverError::Value { path: path.to_owned(), what: error.to_string() },
            }
        })?;
        let value = |what: String| TestDriverError::Value { path: path.to_owned(), what };
        let at = |field: &[&str], what: String| match document.line(field) {
            Some(line) => TestDriverError::Form { path: path.to_owned(), line, what },
            None => TestDriverError::Value { path: path.to_owned(), what },
        };
        if file.driver_info.name.is_empty() {
            return Err(value(
                "DriverInfo.Name is missing: set it to the name that GetPluginInfo returns".into(),
            ));
        }
        let class = match &file.storage_class {
            ClassSource { from_name: true, .. } => Class::Name,
            ClassSource { from_file, .. } if !from_file.is_empty() => {
                let (path, text) = read_class(from_file)?;
                let class: StorageClass =
                    serde_saphyr::from_str(&text).map_err(|error| error::form(&path, &error, None))?;
                if class.provisioner != file.driver_info.name {
                    let what = format!(
                        "its provisioner is {:?}, but the driver is {:?}",
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
        let modes = &file.driver_info.required_access_modes;
        if modes.contains(&AccessMode::ReadWriteOncePod) && modes.len() > 1 {
            let what = "RequiredAccessModes: ReadWriteOncePod excludes the others, and each claim has all of them: name \
                        it alone"
                .to_owned();
            return Err(at(&["DriverInfo", "RequiredAccessModes"], what));
        }
        let range = &file.driver_info.supported_size_range;
        let size = |field: &str, text: &str| {
            let bytes = quantity::bytes(&Quantity(text.to_owned())).filter(|bytes| *bytes > 0);
            bytes.ok_or_else(|| {
                let what =
                    format!("SupportedSizeRange.{field} {text:?} is not a quantity: use for example 1Gi");
                at(&["DriverInfo", "SupportedSizeRange", field], what)
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
            let what = format!("SupportedSizeRange: Min {} is above Max {}", range.min, range.max);
            return Err(at(&["DriverInfo", "SupportedSizeRange", "Min"], what));
        }
        let mut timeout = None;
        for (name, text) in &file.timeouts {
            let time = timeouts::duration(text).ok_or_else(|| {
                let name = serde_json::to_value(name).ok();
                let name = name.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
                at(
                    &["Timeouts", name],
                    format!("Timeouts.{name} {text:?} is not a Go duration: use for example 5m"),
                )
            })?;
            timeout = timeout.max(name.is_waited().then_some(time));
        }
        Ok(Self { file, class, smallest, largest, timeout, ignored })
    }

    /// The fields that upstream does not know either, with their lines.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The driver's name.
    pub fn name(&self) -> &str {
        &self.file.driver_info.name
    }

    /// The source of its storage classes.
    pub fn class(&self) -> &Class {
        &self.class
    }

    /// All fields, as written in the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its capabilities. A capability that the file does not name is false; expansion is both online and offline
    /// unless the file states otherwise, as upstream does.
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

    /// The supported size closest to the requested one, in bytes.
    pub fn fit(&self, bytes: i64) -> i64 {
        bytes.max(self.smallest).min(self.largest.unwrap_or(i64::MAX))
    }

    /// The access modes that claims request.
    pub fn access_modes(&self) -> BTreeSet<AccessMode> {
        match &self.file.driver_info.required_access_modes {
            none if none.is_empty() => BTreeSet::from([AccessMode::ReadWriteOnce]),
            required => required.clone(),
        }
    }

    /// Required mount options.
    pub fn mount_options(&self) -> Vec<String> {
        self.file.driver_info.required_mount_option.keys().cloned().collect()
    }

    /// The file systems that it supports, in addition to its default.
    pub fn file_systems(&self) -> impl Iterator<Item = &str> {
        self.file.driver_info.supported_fs_type.keys().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The longest timeout in the file that applies to a step.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Fields of the file that no case uses.
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
            ("Timeouts that no case uses", self.file.timeouts.keys().any(|name| !name.is_waited())),
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

/// File systems that cases request.
const KNOWN: [&str; 3] = ["ext3", "ext4", "xfs"];
