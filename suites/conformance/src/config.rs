//! How a driver wants to be tried: one strict file, or the flags of the same names.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use claimcheck_model::nearest;
use serde::Deserialize;
use thiserror::Error;

use crate::case::Access;

/// Parameters, secrets, segments.
pub type Map = BTreeMap<String, String>;

/// How a driver wants to be tried. Whatever is left out has the value of [`Config::default`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The size of volumes, in bytes.
    pub volume_size: i64,
    /// The size that they grow to; twice the size if zero.
    pub expand_size: i64,
    /// The largest size to ask for, in bytes; zero for none.
    pub volume_limit: i64,
    /// The kinds of volume to try; those that the driver takes, if empty.
    pub access_types: Vec<Access>,
    /// The file system; the driver's own choice, if empty.
    pub fs_type: String,
    /// Mount flags for every volume.
    pub mount_flags: Vec<String>,
    /// Parameters of CreateVolume.
    pub volume_parameters: Map,
    /// Further ones for block volumes, where they differ.
    pub block_parameters: Map,
    /// Parameters of CreateSnapshot.
    pub snapshot_parameters: Map,
    /// Parameters of CreateVolumeGroupSnapshot.
    pub group_snapshot_parameters: Map,
    /// Mutable parameters that the driver takes.
    pub mutable_parameters: Map,
    /// Mutable parameters that it refuses.
    pub invalid_mutable_parameters: Map,
    /// Secrets, per call.
    pub secrets: Secrets,
    /// Passes a secret with every call whose value must show up in no error.
    pub marker_secret: bool,
    /// The audience for which every NodePublishVolume carries a token of a service account, as the kubelet sends
    /// it for a driver that asks for one; none, if empty.
    pub token_audience: String,
    /// Where volumes shall be accessible: the segments of one topology. Where the driver has topology and
    /// this is empty, its node's own.
    pub topology: Map,
    /// An id that the driver takes for one of a volume's, and that is none: `{unique}` is replaced.
    pub unknown_volume_id: String,
    /// The same for snapshots.
    pub unknown_snapshot_id: String,
    /// The same for nodes.
    pub unknown_node_id: String,
    /// What names of volumes and snapshots begin with.
    pub name_prefix: String,
    /// How long a name may be, in bytes; the specification says 128.
    pub name_length: usize,
    /// Below which directory volumes are staged.
    pub staging_dir: Option<PathBuf>,
    /// Below which directory volumes are published.
    pub target_dir: Option<PathBuf>,
    /// Commands for the driver's paths, where they are in another mount namespace.
    pub paths: Option<PathCommands>,
    /// For how many seconds a snapshot may become ready.
    pub ready_timeout: u64,
    /// After how many seconds a call counts as hanging.
    pub call_timeout: u64,
    /// Up to how many volumes are attached to find a node's limit.
    pub attach_limit: i64,
}

/// Commands that take a path as their last argument, for drivers in another mount namespace. They are run by
/// `sh -c`, with the path as `$1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathCommands {
    /// Makes a directory.
    pub create: String,
    /// Removes it.
    pub remove: String,
    /// Prints `directory`, `file`, `other` or `not_found`.
    pub check: String,
}

/// Secrets, per call; the names of csi-sanity's `-csi.secrets` file do too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is named like its call")]
pub struct Secrets {
    #[serde(alias = "CreateVolumeSecret")]
    pub create_volume: Map,
    #[serde(alias = "DeleteVolumeSecret")]
    pub delete_volume: Map,
    #[serde(alias = "ControllerPublishVolumeSecret")]
    pub controller_publish_volume: Map,
    #[serde(alias = "ControllerUnpublishVolumeSecret")]
    pub controller_unpublish_volume: Map,
    #[serde(alias = "ControllerValidateVolumeCapabilitiesSecret")]
    pub validate_volume_capabilities: Map,
    #[serde(alias = "ControllerExpandVolumeSecret")]
    pub controller_expand_volume: Map,
    #[serde(alias = "ControllerModifyVolumeSecret")]
    pub controller_modify_volume: Map,
    #[serde(alias = "CreateSnapshotSecret")]
    pub create_snapshot: Map,
    #[serde(alias = "DeleteSnapshotSecret")]
    pub delete_snapshot: Map,
    #[serde(alias = "ListSnapshotsSecret")]
    pub list_snapshots: Map,
    #[serde(alias = "GetSnapshotSecret")]
    pub get_snapshot: Map,
    #[serde(alias = "VolumeGroupSnapshotSecret")]
    pub group_snapshot: Map,
    pub snapshot_metadata: Map,
    #[serde(alias = "NodeStageVolumeSecret")]
    pub node_stage_volume: Map,
    #[serde(alias = "NodePublishVolumeSecret")]
    pub node_publish_volume: Map,
    #[serde(alias = "NodeExpandVolumeSecret")]
    pub node_expand_volume: Map,
}

impl Secrets {
    /// Each call's.
    pub(crate) fn all_mut(&mut self) -> [&mut Map; 16] {
        [
            &mut self.create_volume,
            &mut self.delete_volume,
            &mut self.controller_publish_volume,
            &mut self.controller_unpublish_volume,
            &mut self.validate_volume_capabilities,
            &mut self.controller_expand_volume,
            &mut self.controller_modify_volume,
            &mut self.create_snapshot,
            &mut self.delete_snapshot,
            &mut self.list_snapshots,
            &mut self.get_snapshot,
            &mut self.group_snapshot,
            &mut self.snapshot_metadata,
            &mut self.node_stage_volume,
            &mut self.node_publish_volume,
            &mut self.node_expand_volume,
        ]
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            volume_size: 64 << 20,
            expand_size: 0,
            volume_limit: 0,
            access_types: Vec::new(),
            fs_type: String::new(),
            mount_flags: Vec::new(),
            volume_parameters: Map::new(),
            block_parameters: Map::new(),
            snapshot_parameters: Map::new(),
            group_snapshot_parameters: Map::new(),
            mutable_parameters: Map::new(),
            invalid_mutable_parameters: Map::new(),
            secrets: Secrets::default(),
            marker_secret: true,
            token_audience: String::new(),
            topology: Map::new(),
            unknown_volume_id: "claimcheck-unknown-volume-{unique}".to_owned(),
            unknown_snapshot_id: "claimcheck-unknown-snapshot-{unique}".to_owned(),
            unknown_node_id: "claimcheck-unknown-node-{unique}".to_owned(),
            name_prefix: "claimcheck".to_owned(),
            name_length: 128,
            staging_dir: None,
            target_dir: None,
            paths: None,
            ready_timeout: 60,
            call_timeout: 30,
            attach_limit: 16,
        }
    }
}

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// No YAML, or not of this shape.
    #[error("{what} cannot be understood: {why}{hint}")]
    Parse {
        /// What was read.
        what: &'static str,
        /// Where and why.
        why: String,
        /// A field that may have been meant.
        hint: String,
    },
    /// The value of a field makes no sense.
    #[error("{0}")]
    Value(String),
}

impl Config {
    /// Reads a file's text; an unknown or misspelt field is an error.
    ///
    /// # Errors
    /// [`ConfigError`] says which field, and which one may have been meant.
    pub fn parse(yaml: &str) -> Result<Self, ConfigError> {
        read("the configuration", yaml)
    }

    /// Checks what cannot be said in types.
    ///
    /// # Errors
    /// The field and what is wrong with it.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |text: &str| Err(ConfigError::Value(text.to_owned()));
        if self.volume_size <= 0 {
            return wrong("volume-size must be more than 0 bytes");
        }
        if self.grown() <= self.volume_size {
            return wrong("expand-size must be more than volume-size");
        }
        if self.volume_limit != 0 && self.volume_limit < self.grown() {
            return wrong(
                "volume-limit must leave room for expand-size (twice volume-size unless it is given)",
            );
        }
        if self.name_length < self.name_prefix.len() + 40 {
            return wrong("name-length must leave 40 bytes behind name-prefix, to tell names apart");
        }
        Ok(())
    }

    /// The size that volumes grow to.
    pub fn grown(&self) -> i64 {
        if self.expand_size == 0 { self.volume_size.saturating_mul(2) } else { self.expand_size }
    }

    pub(crate) fn call_limit(&self) -> Duration {
        Duration::from_secs(self.call_timeout)
    }
}

impl Secrets {
    /// Reads a file of secrets only.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse(yaml: &str) -> Result<Self, ConfigError> {
        read("the file of secrets", yaml)
    }
}

fn read<T: for<'a> Deserialize<'a>>(what: &'static str, yaml: &str) -> Result<T, ConfigError> {
    serde_saphyr::from_str(yaml).map_err(|error| {
        // Its first line says what and where; the others quote the file, which may hold secrets.
        let text = error.without_snippet().to_string();
        let why = text.lines().next().unwrap_or_default().to_owned();
        let hint = suggestion(&why).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        ConfigError::Parse { what, why, hint }
    })
}

/// Of the fields that a message lists as expected, the one most like the unknown one.
fn suggestion(message: &str) -> Option<&str> {
    let (head, expected) = message.split_once(", expected ")?;
    let unknown = head.split('`').nth(1)?;
    let expected = expected.split(" at line").next()?.trim_start_matches("one of ");
    nearest(unknown, expected.split(", ").map(|name| name.trim_matches('`')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_the_defaults() {
        let config = Config::parse(
            "volume-size: 1073741824\naccess-types: [block]\nsecrets:\n  create-volume: {key: value}\n  \
             NodeStageVolumeSecret: {a: b}\n",
        )
        .unwrap();
        assert_eq!((config.volume_size, config.grown()), (1 << 30, 2 << 30));
        assert_eq!(config.access_types, [Access::Block]);
        assert_eq!(config.secrets.node_stage_volume["a"], "b");
        assert_eq!(config.name_length, 128);
        config.check().unwrap();
    }

    #[test]
    fn a_misspelt_field_is_an_error_that_suggests() {
        let error = Config::parse("volume-sise: 5\n").unwrap_err().to_string();
        assert!(error.contains("did you mean `volume-size`?"), "{error}");
        let error = Config::parse("secrets:\n  create-volum: {password: hunter2}\n").unwrap_err().to_string();
        assert!(error.contains("did you mean `create-volume`?"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let error = Config::parse("zzz: 5\n").unwrap_err().to_string();
        assert!(error.contains("zzz") && !error.contains("did you mean"), "{error}");
    }

    #[test]
    fn values_without_sense_are_refused() {
        for yaml in ["volume-size: 0", "expand-size: 1", "volume-limit: 1", "name-length: 20"] {
            Config::parse(yaml).unwrap().check().unwrap_err();
        }
    }
}
