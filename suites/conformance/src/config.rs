//! The configuration of a conformance run: one strictly parsed file, or the flags of the same names.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use claimcheck_model::nearest;
use serde::Deserialize;
use thiserror::Error;

use crate::{case::Access, effect::NodeEffects};

/// Parameters, secrets, segments.
pub type Map = BTreeMap<String, String>;

/// The configuration of a conformance run. Omitted fields have the values of [`Config::default`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The size of volumes, in bytes.
    pub volume_size: i64,
    /// The size to expand volumes to; twice the size if zero.
    pub expand_size: i64,
    /// The limit_bytes of requests; zero for none.
    pub volume_limit: i64,
    /// The file with the driver's output, if claimcheck has started it.
    pub output: Option<PathBuf>,
    /// The access types to test; those that the driver supports, if empty.
    pub access_types: Vec<Access>,
    /// Whether mounts, target paths and data on this machine are checked.
    pub node_effects: NodeEffects,
    /// Whether cases may kill and restart the driver: not one with a fake back end, which loses its state.
    pub restarts: bool,
    /// The file system; the driver's default, if empty.
    pub fs_type: String,
    /// Mount flags for every volume.
    pub mount_flags: Vec<String>,
    /// Parameters of CreateVolume.
    pub volume_parameters: Map,
    /// Additional parameters of CreateVolume for block volumes.
    pub block_parameters: Map,
    /// Parameters of CreateSnapshot.
    pub snapshot_parameters: Map,
    /// Parameters of CreateVolumeGroupSnapshot.
    pub group_snapshot_parameters: Map,
    /// Mutable parameters that the driver accepts.
    pub mutable_parameters: Map,
    /// Mutable parameters that the driver rejects.
    pub invalid_mutable_parameters: Map,
    /// Secrets, per call.
    pub secrets: Secrets,
    /// Adds a secret to every call, the value of which must not appear in any error, nor in the driver's output.
    pub marker_secret: bool,
    /// The audience of the service account token that is passed to every NodePublishVolume, as the kubelet does for a
    /// driver that requests tokens; no token, if empty.
    pub token_audience: String,
    /// Passes the token in the secrets of NodePublishVolume, and not in its volume_context, as the kubelet does with
    /// serviceAccountTokenInSecrets in the CSIDriver object.
    pub tokens_in_secrets: bool,
    /// The topology segments in which volumes must be accessible. If empty, the topology of the driver's node, if the
    /// driver supports topology.
    pub topology: Map,
    /// A well-formed volume id that does not exist; `{unique}` is replaced.
    pub unknown_volume_id: String,
    /// The same for snapshots.
    pub unknown_snapshot_id: String,
    /// The same for nodes.
    pub unknown_node_id: String,
    /// The prefix of names of volumes and snapshots.
    pub name_prefix: String,
    /// The maximum length of a name in bytes; 128 in the specification.
    pub name_length: usize,
    /// The directory for staging paths.
    pub staging_dir: Option<PathBuf>,
    /// The directory for target paths.
    pub target_dir: Option<PathBuf>,
    /// Commands for the driver's paths, if they are in a different mount namespace.
    pub paths: Option<PathCommands>,
    /// Timeout in seconds for a snapshot to become ready.
    pub ready_timeout: u64,
    /// Timeout of a call in seconds.
    pub call_timeout: u64,
    /// Maximum number of volumes that are attached to test a node's limit.
    pub attach_limit: i64,
}

/// Commands that accept a path as their last argument, for drivers in a different mount namespace. They are run by
/// `sh -c`, with the path as `$1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathCommands {
    /// Creates a directory.
    pub create: String,
    /// Removes a directory.
    pub remove: String,
    /// Prints `directory`, `file`, `other` or `not_found`.
    pub check: String,
}

/// Secrets, per call; the names of csi-sanity's `-csi.secrets` file are also accepted.
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
    /// The secrets of each call.
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
            output: None,
            access_types: Vec::new(),
            node_effects: NodeEffects::Checked,
            restarts: true,
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
            tokens_in_secrets: false,
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
    /// Not valid YAML, or an unknown field or type.
    #[error("cannot parse {what}: {reason}{hint}")]
    Parse {
        /// The source.
        what: &'static str,
        /// The position and the reason.
        reason: String,
        /// A similar field.
        hint: String,
    },
    /// The value of a field is invalid.
    #[error("{0}")]
    Value(String),
}

impl Config {
    /// Parses a file's text; an unknown or misspelt field is an error.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, and a similar one.
    pub fn parse(yaml: &str) -> Result<Self, ConfigError> {
        read("the configuration", yaml)
    }

    /// Validates values.
    ///
    /// # Errors
    /// The invalid field and the reason.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |text: &str| Err(ConfigError::Value(text.to_owned()));
        if self.volume_size <= 0 {
            return wrong("volume-size must be more than 0 bytes");
        }
        if self.grown() <= self.volume_size {
            return wrong("expand-size must be more than volume-size");
        }
        if self.volume_limit != 0 && self.volume_limit < self.grown() {
            return wrong("volume-limit must be at least expand-size (twice volume-size unless it is set)");
        }
        if self.tokens_in_secrets && self.token_audience.is_empty() {
            return wrong("tokens-in-secrets requires token-audience");
        }
        if self.name_length < self.name_prefix.len() + 40 {
            return wrong("name-length must leave 40 bytes after name-prefix, so that names are unique");
        }
        Ok(())
    }

    /// The size to expand volumes to.
    pub fn grown(&self) -> i64 {
        if self.expand_size == 0 { self.volume_size.saturating_mul(2) } else { self.expand_size }
    }

    /// Whether volumes may have any size: none is configured, other than the default.
    pub(crate) fn is_any_size(&self) -> bool {
        let default = Self::default();
        [self.volume_size, self.expand_size, self.volume_limit]
            == [default.volume_size, default.expand_size, default.volume_limit]
    }

    pub(crate) fn call_limit(&self) -> Duration {
        Duration::from_secs(self.call_timeout)
    }
}

impl Secrets {
    /// Parses a file of secrets.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse(yaml: &str) -> Result<Self, ConfigError> {
        read("the file of secrets", yaml)
    }
}

fn read<T: for<'a> Deserialize<'a>>(what: &'static str, yaml: &str) -> Result<T, ConfigError> {
    serde_saphyr::from_str(yaml).map_err(|error| {
        // The first line has the reason and the position; the others quote the file, which may contain secrets.
        let text = error.without_snippet().to_string();
        let reason = text.lines().next().unwrap_or_default().to_owned();
        let hint = suggestion(&reason).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        ConfigError::Parse { what, reason, hint }
    })
}

/// The expected field of an error message that is most similar to the unknown one.
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
    fn a_file_overrides_the_defaults() {
        let config = Config::parse(
            "volume-size: 1073741824\naccess-types: [block]\nsecrets:\n  create-volume: {key: value}\n  \
             NodeStageVolumeSecret: {a: b}\n",
        )
        .unwrap();
        assert_eq!((config.volume_size, config.grown()), (1 << 30, 2 << 30));
        assert_eq!(config.access_types, [Access::Block]);
        assert_eq!(config.secrets.node_stage_volume["a"], "b");
        assert_eq!(config.name_length, 128);
        assert_eq!(config.node_effects, NodeEffects::Checked);
        assert!(config.restarts && !Config::parse("restarts: false\n").unwrap().restarts);
        assert_eq!(Config::parse("node-effects: none\n").unwrap().node_effects, NodeEffects::None);
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
        for yaml in [
            "volume-size: 0",
            "expand-size: 1",
            "volume-limit: 1",
            "name-length: 20",
            "tokens-in-secrets: true",
        ] {
            Config::parse(yaml).unwrap().check().unwrap_err();
        }
    }
}
