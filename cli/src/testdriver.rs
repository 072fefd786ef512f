//! `claimcheck testdriver`: generates the test driver file of Kubernetes' own e2e storage suite.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use claimcheck_cluster::{DriverDescription, describe_driver};
use claimcheck_conformance::Endpoints;
use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_harness::STATE_DIR;
use claimcheck_model::Capability;
use claimcheck_run::{interrupt, positive_duration};
use claimcheck_suites::load::bytes;
use claimcheck_suites::testdriver::{ClassOption, Content, DriverOptions, Origin, class, draft};
use claimcheck_vendor::DriverCommand;
use clap::ArgGroup;

use crate::{
    csi_args::pair,
    load::size,
    local_driver::{self, LocalDriver, READY_TIMEOUT},
};

/// The node ID of a driver started by this command.
const NODE: &str = "claimcheck-node-a";

/// Arguments of `testdriver`.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").args(["endpoint", "driver"]).required(false))]
pub struct Args {
    /// Start the driver in private namespaces and query it: `builtin`, or exec:"COMMAND" with the placeholders
    /// {endpoint} {socket} {node_id} {state_dir} {node_root}
    #[arg(long, value_name = "DRIVER")]
    driver: Option<DriverCommand>,
    /// The same for the driver's controller, if it is a separate process
    #[arg(long, value_name = "DRIVER", requires = "driver")]
    driver_controller: Option<DriverCommand>,
    /// Query the running driver at this endpoint: unix:///csi.sock or tcp://host:port
    #[arg(long, value_name = "URL")]
    endpoint: Option<Endpoint>,
    /// Endpoint of the driver's controller service, if separate
    #[arg(long, value_name = "URL", requires = "endpoint")]
    controller_endpoint: Option<Endpoint>,
    /// How long the driver may take to start, for example 90s
    #[arg(long, value_name = "DURATION", default_value = READY_TIMEOUT, value_parser = positive_duration)]
    start_timeout: Duration,
    /// File to write, which must not exist yet [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    options: DriverOptionArgs,
}

/// Properties that no RPC of the driver exposes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Properties that no CSI call exposes")]
struct DriverOptionArgs {
    /// Existing storage class to copy [default: generated from the driver's name]
    #[arg(long, value_name = "NAME", conflicts_with = "driver_params")]
    storage_class: Option<String>,
    /// Parameter of the storage class, which is then written to a separate file next to FILE; can be repeated
    #[arg(long = "driver-param", value_name = "KEY=VALUE", value_parser = pair, requires = "out")]
    driver_params: Vec<(String, String)>,
    /// Existing snapshot class to copy [default: generated from the driver's name]
    #[arg(long, value_name = "NAME")]
    snapshot_class: Option<String>,
    /// Existing group snapshot class to copy [default: generated from the driver's name]
    #[arg(long, value_name = "NAME")]
    group_snapshot_class: Option<String>,
    /// Existing VolumeAttributesClass, for the suites that modify volumes
    #[arg(long, value_name = "NAME")]
    volume_attributes_class: Option<String>,
    /// Supported file system type, or `block` for raw block volumes; can be repeated
    #[arg(long = "fs-type", value_name = "NAME")]
    fs_types: Vec<String>,
    /// Supported mount option; can be repeated
    #[arg(long = "mount-option", value_name = "OPTION")]
    mount_options: Vec<String>,
    /// Minimum volume size
    #[arg(long, value_name = "QUANTITY", value_parser = size)]
    min_size: Option<String>,
    /// Maximum volume size
    #[arg(long, value_name = "QUANTITY", value_parser = size, requires = "min_size")]
    max_size: Option<String>,
    /// Maximum file size [default: 100Mi]
    #[arg(long, value_name = "QUANTITY", value_parser = size)]
    max_file_size: Option<String>,
    /// The driver supports CSI inline volumes, with these attributes if any; can be repeated
    #[arg(long = "inline-volume", value_name = "KEY=VALUE,..", num_args = 0..=1, default_missing_value = "",
        value_parser = pairs)]
    inline_volumes: Vec<BTreeMap<String, String>>,
    /// Only node on which pods can run
    #[arg(long, value_name = "NODE")]
    client_node: Option<String>,
    /// Number of pods, restarts and snapshots of the stress suites
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    stress: Option<u16>,
    /// Override a capability, whatever the driver declares, by its upstream name; can be repeated
    #[arg(long = "capability", value_name = "NAME=true|false", value_parser = capability)]
    capabilities: Vec<(Capability, bool)>,
}

impl Args {
    /// Whether the command starts a driver, and so requires private namespaces.
    pub fn starts_driver(&self) -> bool {
        self.driver.is_some()
    }

    /// Writes the file.
    pub fn run(self) -> Result<ExitCode> {
        let class_file =
            self.out.as_deref().filter(|_| !self.options.driver_params.is_empty()).map(class_path);
        if self.endpoint.is_none() && self.driver.is_none() {
            return Ok(local_driver::which());
        }
        // Checked before starting a driver in vain; creating the file checks again.
        if let Some(present) = self.out.iter().chain(&class_file).find(|path| path.exists()) {
            return Ok(exists(present));
        }
        let description = crate::runtime()?.block_on(async {
            let interrupted = interrupt::token()?;
            tokio::select! {
                description = self.describe() => description.map(Some),
                () = interrupted.cancelled() => Ok(None),
            }
        })?;
        let Some(description) = description else { return Ok(ExitCode::from(130)) };
        let parameters: BTreeMap<_, _> = self.options.driver_params.iter().cloned().collect();
        let content = (self.driver == Some(DriverCommand::Builtin))
            .then(|| Content::from_class(self.options.storage_class.as_deref(), &parameters));
        let draft = draft(&description, &self.options.options(class_file.as_deref())?, content);
        let Some(out) = &self.out else {
            print!("{draft}");
            return Ok(ExitCode::SUCCESS);
        };
        if let Some(path) = &class_file
            && !create(path, &class(&description.name, &parameters))?
        {
            return Ok(exists(path));
        }
        if !create(out, &draft.to_string())? {
            return Ok(exists(out));
        }
        let unknown = draft.origins.values().filter(|origin| matches!(origin, Origin::Unknown(_))).count();
        let look = match unknown {
            0 => String::new(),
            n => format!("; {n} of its capabilities are unknown and set to false: see the comments"),
        };
        let and = class_file.map_or(String::new(), |path| format!(" and {}", path.display()));
        crate::print(Some(format!("wrote {}{and} for driver {}{look}", out.display(), description.name)));
        Ok(ExitCode::SUCCESS)
    }

    /// Queries the driver.
    async fn describe(&self) -> Result<DriverDescription> {
        let Some(command) = &self.driver else {
            let node = self.endpoint.clone().context("either --endpoint or --driver is required")?;
            let controller = self.controller_endpoint.clone();
            return reach(Endpoints { node, controller, second: None }, self.start_timeout).await;
        };
        let log = Path::new(STATE_DIR).join("driver.log");
        let local = LocalDriver::start(command, self.driver_controller.as_ref(), &[NODE], &log)?;
        let description = reach(local.endpoints, self.start_timeout).await;
        description.map_err(|error| local_driver::last_words(error, Some(&log)))
    }
}

async fn reach(endpoints: Endpoints, timeout: Duration) -> Result<DriverDescription> {
    let to = |endpoint| Driver::new(endpoint, Tap::none(), "testdriver");
    let node = to(endpoints.node);
    let controller = endpoints.controller.map_or_else(|| node.clone(), to);
    for driver in [&node, &controller] {
        driver.wait_ready(timeout).await?;
    }
    Ok(describe_driver(&controller, &node).await?)
}

impl DriverOptionArgs {
    fn options(&self, class_file: Option<&Path>) -> Result<DriverOptions> {
        let block = self.fs_types.iter().any(|name| name == BLOCK);
        let block = block.then_some((Capability::Block, true));
        let class = match (&self.storage_class, class_file) {
            (Some(name), _) => ClassOption::Existing(name.clone()),
            (None, Some(path)) => ClassOption::File(absolute(path)?),
            (None, None) => ClassOption::Name,
        };
        Ok(DriverOptions {
            class,
            snapshot_class: self.snapshot_class.clone(),
            group_snapshot_class: self.group_snapshot_class.clone(),
            attributes_class: self.volume_attributes_class.clone(),
            file_systems: self.fs_types.iter().filter(|name| *name != BLOCK).cloned().collect(),
            mount_options: self.mount_options.iter().cloned().collect(),
            smallest: self.min_size.clone(),
            largest: self.max_size.clone(),
            largest_file: self.max_file_size.as_deref().and_then(bytes),
            inline_volumes: self.inline_volumes.clone(),
            client_node: self.client_node.clone(),
            stress: self.stress.map(usize::from),
            capabilities: block.into_iter().chain(self.capabilities.iter().copied()).collect(),
        })
    }
}

/// Raw block volumes, as in `run --fs-type`.
const BLOCK: &str = "block";

/// The path of the storage class that belongs to a file.
fn class_path(out: &Path) -> PathBuf {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{stem}-class.yaml"))
}

/// Upstream's suite resolves relative paths in its own directories, so the path must be absolute.
fn absolute(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.with_context(|| format!("cannot find the folder of {}", path.display()))?;
    Ok(absolute.display().to_string())
}

/// Writes a file, unless it exists.
pub(crate) fn create(path: &Path, text: &str) -> Result<bool> {
    let failed =
        || format!("cannot write {}: check that its directory exists and is writable", path.display());
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        file => file.with_context(failed)?,
    };
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        // A partial file would block the next attempt; the original error is the one to report.
        let _ = fs::remove_file(path);
    }
    written.with_context(failed)?;
    Ok(true)
}

fn exists(path: &Path) -> ExitCode {
    let path = path.display();
    eprintln!("claimcheck: {path} exists and is not overwritten: remove it, or name another file with --out");
    ExitCode::from(2)
}

fn pairs(text: &str) -> Result<BTreeMap<String, String>, String> {
    text.split(',').filter(|text| !text.is_empty()).map(pair).collect()
}

fn capability(text: &str) -> Result<(Capability, bool), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=true or NAME=false")?;
    let capability = name.parse::<Capability>().map_err(|error| error.to_string())?;
    let value = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
    Ok((capability, value))
}
