//! What `claimcheck csi` takes: where the driver is, and how it wants to be tried, as flags over a file.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result};
use claimcheck_cluster::DriverCommand;
use claimcheck_conformance::{Access, Config, PathCommands, Secrets};
use claimcheck_csi::Endpoint;
use claimcheck_harness::Lane;
use claimcheck_run::HistoryArgs;
use clap::{ArgGroup, ValueEnum};

/// What `csi` takes.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").args(["endpoint", "driver"]).required(false))]
pub struct Args {
    /// Parts of case names: only cases whose name contains one of them run
    pub filter: Vec<String>,
    /// Where the driver listens: unix:///csi.sock or tcp://host:port. Paths must mean the same here and there
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<Endpoint>,
    /// Where its controller listens, if elsewhere
    #[arg(long, value_name = "URL", requires = "endpoint")]
    pub controller_endpoint: Option<Endpoint>,
    /// Where its node plugin on a second node listens
    #[arg(long, value_name = "URL", requires = "endpoint")]
    pub second_endpoint: Option<Endpoint>,
    /// A shell command that restarts the driver, for the cases that do
    #[arg(long, value_name = "COMMAND", requires = "endpoint")]
    pub restart_command: Option<String>,
    /// Start the driver for the time of the run, in namespaces of its own: `builtin`, or exec:"COMMAND" with
    /// {endpoint} {socket} {node_id} {state_dir} {node_root}
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<DriverCommand>,
    /// How many nodes to start the driver for, on one {state_dir} [default: 2 of the builtin one, else 1]
    #[arg(long, value_name = "N", requires = "driver", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub nodes: Option<u8>,
    /// Print the catalogue: rule, csi-sanity's name of the same test, and, with a driver, what is skipped why
    #[arg(long)]
    pub list: bool,
    /// How many cases at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub parallel: u16,
    /// How to print the outcome, or the list
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// The run folder, which must not exist yet [default: runs/TIME-csi]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// A list of known findings (ci/findings): exit code 0 only if the cases that fail are exactly those
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub expect: Option<PathBuf>,
    #[command(flatten)]
    pub history: HistoryArgs,
    /// A YAML file of the settings below, by the same names; flags go over it
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// How the driver wants to be tried.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings")]
struct Settings {
    /// The size of volumes in bytes [default: 67108864]
    #[arg(long, value_name = "BYTES")]
    volume_size: Option<i64>,
    /// The size that they grow to [default: twice that]
    #[arg(long, value_name = "BYTES")]
    expand_size: Option<i64>,
    /// The largest size to ask for [default: none]
    #[arg(long, value_name = "BYTES")]
    volume_limit: Option<i64>,
    /// The kinds of volume to try; can be repeated [default: those that the driver takes]
    #[arg(long, value_name = "KIND", value_parser = access)]
    access_type: Vec<Access>,
    /// The file system [default: the driver's choice]
    #[arg(long, value_name = "NAME")]
    fs_type: Option<String>,
    /// A mount flag for every volume; can be repeated
    #[arg(long, value_name = "FLAG")]
    mount_flag: Vec<String>,
    /// A parameter of CreateVolume; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    volume_parameter: Vec<(String, String)>,
    /// A further one for block volumes; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    block_parameter: Vec<(String, String)>,
    /// A parameter of CreateSnapshot; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    snapshot_parameter: Vec<(String, String)>,
    /// A parameter of CreateVolumeGroupSnapshot; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    group_snapshot_parameter: Vec<(String, String)>,
    /// A mutable parameter that the driver takes; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    mutable_parameter: Vec<(String, String)>,
    /// A mutable parameter that the driver refuses; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    invalid_mutable_parameter: Vec<(String, String)>,
    /// A YAML file of secrets per call (create-volume, node-stage-volume, ...); csi-sanity's own file will do
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// Do not pass a secret of our own with every call, to search all errors for
    #[arg(long)]
    no_marker_secret: bool,
    /// Pass a token of a service account for this audience with NodePublishVolume, as the kubelet does, to a driver
    /// that wants one
    #[arg(long, value_name = "AUDIENCE")]
    token_audience: Option<String>,
    /// A segment of the topology in which volumes shall be; can be repeated [default: the node's]
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    topology: Vec<(String, String)>,
    /// An id in the driver's format that no volume has; {unique} is replaced
    #[arg(long, value_name = "ID")]
    unknown_volume_id: Option<String>,
    /// The same for snapshots
    #[arg(long, value_name = "ID")]
    unknown_snapshot_id: Option<String>,
    /// The same for nodes
    #[arg(long, value_name = "ID")]
    unknown_node_id: Option<String>,
    /// What names of volumes and snapshots begin with [default: claimcheck]
    #[arg(long, value_name = "TEXT")]
    name_prefix: Option<String>,
    /// How long names may be [default: 128]
    #[arg(long, value_name = "BYTES")]
    name_length: Option<usize>,
    /// Below which directory to stage; made and cleaned by us [default: one below /tmp]
    #[arg(long, value_name = "DIR")]
    staging_dir: Option<PathBuf>,
    /// Below which directory to publish
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// For a driver in another mount namespace: a command that makes the directory that is its argument
    #[arg(long, value_name = "COMMAND", requires_all = ["remove_path_command", "check_path_command"])]
    create_path_command: Option<String>,
    /// A command that removes it
    #[arg(long, value_name = "COMMAND", requires = "create_path_command")]
    remove_path_command: Option<String>,
    /// A command that prints what is there: directory, file, other or not_found
    #[arg(long, value_name = "COMMAND", requires = "create_path_command")]
    check_path_command: Option<String>,
    /// For how many seconds a snapshot may become ready [default: 60]
    #[arg(long, value_name = "SECONDS")]
    ready_timeout: Option<u64>,
    /// After how many seconds a call counts as hanging [default: 30]
    #[arg(long, value_name = "SECONDS")]
    call_timeout: Option<u64>,
    /// Up to how many volumes to attach, to find a node's limit [default: 16]
    #[arg(long, value_name = "N")]
    attach_limit: Option<i64>,
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

impl Args {
    /// The run needs namespaces of its own, for a driver that we start.
    pub fn starts_driver(&self) -> bool {
        self.driver.is_some()
    }

    /// How the driver wants to be tried.
    ///
    /// # Errors
    /// A file cannot be read or understood, or a setting makes no sense.
    pub fn config(&self, lane: Option<Lane>) -> Result<Config> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut config = match &self.config {
            Some(path) => Config::parse(&read(path)?).with_context(|| path.display().to_string())?,
            None => Config::default(),
        };
        let builtin = self.driver == Some(DriverCommand::Builtin);
        if builtin {
            preset(&mut config, lane);
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

/// What our own driver takes.
fn preset(config: &mut Config, lane: Option<Lane>) {
    let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    if config.mutable_parameters.is_empty() {
        config.mutable_parameters = one("iops", "100");
    }
    if config.invalid_mutable_parameters.is_empty() {
        config.invalid_mutable_parameters = one("iops", "0");
    }
    // Images need loop devices, which only root has.
    if lane == Some(Lane::User) && config.access_types.is_empty() {
        config.access_types = vec![Access::Mount];
    }
}

impl Settings {
    /// Puts what was given in place of what the file says.
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
    let pair = text.split_once('=').ok_or("KEY=VALUE is expected")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

fn access(text: &str) -> Result<Access, String> {
    match text {
        "mount" => Ok(Access::Mount),
        "block" => Ok(Access::Block),
        _ => Err("mount or block is expected".to_owned()),
    }
}
