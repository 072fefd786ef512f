//! Arguments of `claimcheck csi`: the driver's address and the test settings, as flags that override a file.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use claimcheck_conformance::{Access, Config, NodeEffects, PathCommands, Secrets};
use claimcheck_csi::Endpoint;
use claimcheck_harness::Privilege;
use claimcheck_run::{HistoryArgs, positive_duration};
use claimcheck_vendor::DriverCommand;
use clap::{ArgGroup, ValueEnum};

use crate::local_driver::READY_TIMEOUT;

/// The heading of options for a driver that runs already.
const ENDPOINTS: &str = "A running driver";

/// Arguments of `csi`.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").args(["endpoint", "driver"]).required(false))]
pub struct Args {
    /// Run only cases that contain one of these strings in their name
    pub filter: Vec<String>,
    /// Endpoint of the driver: unix:///csi.sock or tcp://host:port. Both must see the same paths
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<Endpoint>,
    /// Endpoint of the driver's controller service, if separate
    #[arg(long, value_name = "URL", requires = "endpoint", help_heading = ENDPOINTS)]
    pub controller_endpoint: Option<Endpoint>,
    /// Endpoint of the driver's node service on a second node
    #[arg(long, value_name = "URL", requires = "endpoint", help_heading = ENDPOINTS)]
    pub second_endpoint: Option<Endpoint>,
    /// Shell command that restarts the driver, for the cases that require a restart
    #[arg(long, value_name = "COMMAND", requires = "endpoint", help_heading = ENDPOINTS)]
    pub restart_command: Option<String>,
    /// Start the driver for the run, in private namespaces: `builtin`, or exec:"COMMAND" with the placeholders
    /// {endpoint} {socket} {node_id} {state_dir} {node_root}
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<DriverCommand>,
    /// Number of nodes to start the driver for, with a shared {state_dir} [default: 2 for builtin, else 1]
    #[arg(long, value_name = "N", requires = "driver", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub nodes: Option<u8>,
    /// Put a proxy with a defect before the driver, to see what the cases report: see docs/defects.md
    #[arg(long, value_name = "DEFECT", value_parser = claimcheck_saboteur::named_for_csi, hide_short_help = true)]
    pub sabotage: Option<String>,
    /// How long the driver may take to start, for example 90s
    #[arg(long, value_name = "DURATION", default_value = READY_TIMEOUT, value_parser = positive_duration)]
    pub start_timeout: Duration,
    /// List the cases with the specification rule, the equivalent csi-sanity test and, with a driver, skip reasons
    #[arg(long)]
    pub list: bool,
    /// Print what a case checks and why, with a link to the CSI specification: its name, or a part of several names
    #[arg(long, value_name = "CASE", conflicts_with_all = ["filter", "list", "expect"])]
    pub explain: Option<String>,
    /// Fail cases also for a violated SHOULD of the specification, which otherwise is a warning
    #[arg(long)]
    pub strict: bool,
    /// Number of concurrent cases; results do not depend on it. Cases that --list shows as running alone run serially
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub parallel: u16,
    /// Output format of the results or the list
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Run folder, which must not exist yet, unless a run in it could not start [default: runs/TIME-csi]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// A list of known findings (see ci/findings): exit with 0 only if exactly these cases fail
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub expect: Option<PathBuf>,
    /// Write the cases that fail to a new file, as a first list for --expect
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "expect", "explain"])]
    pub write_expect: Option<PathBuf>,
    #[command(flatten)]
    pub history: HistoryArgs,
    /// YAML file with the settings below, under the same names; flags override it
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Test settings for the driver.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings")]
struct Settings {
    /// Size of volumes in bytes [default: 67108864, doubled as often as the driver returns OutOfRange]
    #[arg(long, value_name = "BYTES")]
    volume_size: Option<i64>,
    /// Size in bytes to expand volumes to [default: twice the volume size]
    #[arg(long, value_name = "BYTES")]
    expand_size: Option<i64>,
    /// Largest size to request [default: none]
    #[arg(long, value_name = "BYTES")]
    volume_limit: Option<i64>,
    /// Access types to test; can be repeated [default: those that the driver accepts]
    #[arg(long, value_name = "KIND", value_parser = access)]
    access_type: Vec<Access>,
    /// Whether to check mounts, target paths and data on this machine: checked, or none for a driver with a fake node
    /// service, which mounts nothing [default: checked]
    #[arg(long, value_name = "WHICH", value_parser = node_effects)]
    node_effects: Option<NodeEffects>,
    /// Do not kill and restart the driver in cases: for one with a fake back end, which loses its volumes with its process
    #[arg(long)]
    no_restarts: bool,
    /// File system type [default: the driver's choice]
    #[arg(long, value_name = "NAME")]
    fs_type: Option<String>,
    /// Mount flag for every volume; can be repeated
    #[arg(long, value_name = "FLAG")]
    mount_flag: Vec<String>,
    /// Parameter of CreateVolume; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    volume_parameter: Vec<(String, String)>,
    /// Additional parameter of CreateVolume for block volumes; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    block_parameter: Vec<(String, String)>,
    /// Parameter of CreateSnapshot; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    snapshot_parameter: Vec<(String, String)>,
    /// Parameter of CreateVolumeGroupSnapshot; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    group_snapshot_parameter: Vec<(String, String)>,
    /// Mutable parameter that the driver accepts; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    mutable_parameter: Vec<(String, String)>,
    /// Mutable parameter that the driver rejects; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    invalid_mutable_parameter: Vec<(String, String)>,
    /// YAML file with secrets per call (create-volume, node-stage-volume, ...); csi-sanity's secrets file is accepted
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// Do not pass a marker secret with every call, which all errors and the driver's output are searched for
    #[arg(long)]
    no_marker_secret: bool,
    /// Pass a service account token for this audience with NodePublishVolume, as the kubelet does for drivers that
    /// request one
    #[arg(long, value_name = "AUDIENCE")]
    token_audience: Option<String>,
    /// Pass the token in the secrets of NodePublishVolume, as for drivers with serviceAccountTokenInSecrets in their
    /// CSIDriver object; otherwise it is in the volume_context
    #[arg(long)]
    tokens_in_secrets: bool,
    /// Topology segment for the volumes; can be repeated [default: the node's]
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    topology: Vec<(String, String)>,
    /// Volume ID in the driver's format that does not exist; {unique} is replaced
    #[arg(long, value_name = "ID")]
    unknown_volume_id: Option<String>,
    /// Snapshot ID in the driver's format that does not exist; {unique} is replaced
    #[arg(long, value_name = "ID")]
    unknown_snapshot_id: Option<String>,
    /// Node ID in the driver's format that does not exist; {unique} is replaced
    #[arg(long, value_name = "ID")]
    unknown_node_id: Option<String>,
    /// Prefix of volume and snapshot names [default: claimcheck]
    #[arg(long, value_name = "TEXT")]
    name_prefix: Option<String>,
    /// Maximum length of names [default: 128]
    #[arg(long, value_name = "BYTES")]
    name_length: Option<usize>,
    /// Parent directory of staging paths, created and cleaned up by claimcheck [default: one below /tmp]
    #[arg(long, value_name = "DIR")]
    staging_dir: Option<PathBuf>,
    /// Parent directory of target paths; see --staging-dir
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// For a driver in another mount namespace: command that creates the directory given as its argument
    #[arg(long, value_name = "COMMAND", requires_all = ["remove_path_command", "check_path_command"])]
    create_path_command: Option<String>,
    /// Command that removes the directory given as its argument
    #[arg(long, value_name = "COMMAND", requires = "create_path_command")]
    remove_path_command: Option<String>,
    /// Command that prints the type of the path given as its argument: directory, file, other or not_found
    #[arg(long, value_name = "COMMAND", requires = "create_path_command")]
    check_path_command: Option<String>,
    /// Timeout in seconds for a snapshot to become ready [default: 60]
    #[arg(long, value_name = "SECONDS")]
    ready_timeout: Option<u64>,
    /// Timeout in seconds after which a call counts as hanging [default: 30]
    #[arg(long, value_name = "SECONDS")]
    call_timeout: Option<u64>,
    /// Maximum number of volumes to attach when testing a node's limit [default: 16]
    #[arg(long, value_name = "N")]
    attach_limit: Option<i64>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable
    #[default]
    Text,
    /// Machine-readable
    Json,
}

impl Args {
    /// Whether the run starts a driver, and so requires private namespaces.
    pub fn starts_driver(&self) -> bool {
        self.driver.is_some()
    }

    /// The test settings for the driver.
    ///
    /// # Errors
    /// A file cannot be read or parsed, or a setting is invalid.
    pub fn config(&self, privilege: Option<Privilege>) -> Result<Config> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut config = match &self.config {
            Some(path) => Config::parse(&read(path)?).with_context(|| path.display().to_string())?,
            None => Config::default(),
        };
        let builtin = self.driver == Some(DriverCommand::Builtin);
        if builtin {
            preset(&mut config, privilege);
        }
        let settings = &self.settings;
        if let Some(path) = &settings.secrets {
            config.secrets = Secrets::parse(&read(path)?).with_context(|| path.display().to_string())?;
        }
        settings.lay_over(&mut config);
        config.check()?;
        Ok(config)
    }
}

/// Defaults for the built-in driver.
fn preset(config: &mut Config, privilege: Option<Privilege>) {
    let all = |parameters: &[(&str, &str)]| {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        parameters.collect::<BTreeMap<_, _>>()
    };
    if config.mutable_parameters.is_empty() {
        config.mutable_parameters = all(&[("iops", "100"), ("throughput", "10")]);
    }
    if config.invalid_mutable_parameters.is_empty() {
        config.invalid_mutable_parameters = all(&[("iops", "0")]);
    }
    // Image volumes require loop devices, which require root.
    if privilege == Some(Privilege::User) && config.access_types.is_empty() {
        config.access_types = vec![Access::Mount];
    }
}

impl Settings {
    /// Overrides the settings of the file with the given flags.
    fn lay_over(&self, config: &mut Config) {
        fn over<T: Clone>(to: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                to.clone_from(given);
            }
        }
        let pairs = |to: &mut BTreeMap<String, String>, given: &[(String, String)]| {
            to.extend(given.iter().cloned());
        };
        over(&mut config.volume_size, &self.volume_size);
        over(&mut config.expand_size, &self.expand_size);
        over(&mut config.volume_limit, &self.volume_limit);
        over(&mut config.node_effects, &self.node_effects);
        over(&mut config.fs_type, &self.fs_type);
        over(&mut config.unknown_volume_id, &self.unknown_volume_id);
        over(&mut config.unknown_snapshot_id, &self.unknown_snapshot_id);
        over(&mut config.unknown_node_id, &self.unknown_node_id);
        over(&mut config.token_audience, &self.token_audience);
        over(&mut config.name_prefix, &self.name_prefix);
        over(&mut config.name_length, &self.name_length);
        over(&mut config.ready_timeout, &self.ready_timeout);
        over(&mut config.call_timeout, &self.call_timeout);
        over(&mut config.attach_limit, &self.attach_limit);
        config.marker_secret &= !self.no_marker_secret;
        config.restarts &= !self.no_restarts;
        config.tokens_in_secrets |= self.tokens_in_secrets;
        if !self.access_type.is_empty() {
            config.access_types.clone_from(&self.access_type);
        }
        if !self.mount_flag.is_empty() {
            config.mount_flags.clone_from(&self.mount_flag);
        }
        pairs(&mut config.volume_parameters, &self.volume_parameter);
        pairs(&mut config.block_parameters, &self.block_parameter);
        pairs(&mut config.snapshot_parameters, &self.snapshot_parameter);
        pairs(&mut config.group_snapshot_parameters, &self.group_snapshot_parameter);
        pairs(&mut config.mutable_parameters, &self.mutable_parameter);
        pairs(&mut config.invalid_mutable_parameters, &self.invalid_mutable_parameter);
        pairs(&mut config.topology, &self.topology);
        config.staging_dir = self.staging_dir.clone().or(config.staging_dir.take());
        config.target_dir = self.target_dir.clone().or(config.target_dir.take());
        if let (Some(create), Some(remove), Some(check)) =
            (&self.create_path_command, &self.remove_path_command, &self.check_path_command)
        {
            let (create, remove, check) = (create.clone(), remove.clone(), check.clone());
            config.paths = Some(PathCommands { create, remove, check });
        }
    }
}

/// `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

fn node_effects(text: &str) -> Result<NodeEffects, String> {
    let all = [NodeEffects::Checked, NodeEffects::None];
    all.into_iter().find(|it| it.name() == text).ok_or_else(|| "expected checked or none".to_owned())
}

fn access(text: &str) -> Result<Access, String> {
    match text {
        "mount" => Ok(Access::Mount),
        "block" => Ok(Access::Block),
        _ => Err("expected mount or block".to_owned()),
    }
}
