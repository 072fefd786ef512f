//! `claimcheck scenario`: what concerns scenario files without a run; `claimcheck run --scenario` runs them.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    process::{self, ExitCode},
    str::FromStr,
};

use anyhow::{Context, Result, anyhow, bail};
use claimcheck_scenario::{Read, Saved, Table, World, end_differences, schema};
use claimcheck_suites::scenario;
use claimcheck_vendor::split_words;
use clap::{Args, Subcommand};

use crate::{scenario_controllers, scenario_record::RecordArgs};

/// The second side `stock`.
const STOCK: &str = "--cluster kind --controllers stock --sidecars upstream";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check scenario files without a cluster, and list what is in them
    Check(CheckArgs),
    /// Run scenario files on two clusters, and show what differs at their ends: objects, events, calls to the driver; those
    /// of `world: controllers` on two API servers without nodes, with built-in and with stock controllers
    Compare(CompareArgs),
    /// Write down what users do in a namespace of a cluster in use, as a scenario to begin with
    Record(RecordArgs),
    /// Print the JSON Schema of scenario files, for the completion of editors
    Schema,
}

/// Arguments of `scenario check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files, or folders with files
    #[arg(required = true, value_name = "FILE_OR_DIR")]
    paths: Vec<PathBuf>,
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Check(args) => Ok(args.check()),
            Self::Compare(args) => args.run(),
            Self::Record(args) => crate::runtime()?.block_on(args.run()),
            Self::Schema => {
                println!("{}", serde_json::to_string_pretty(&schema())?);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl CheckArgs {
    fn check(&self) -> ExitCode {
        let scenarios = match scenario::read(&self.paths) {
            Ok(scenarios) => scenarios,
            Err(error) => return crate::unreadable(&error.into()),
        };
        for read in &scenarios {
            let world = match read.scenario.world {
                World::Cluster => "",
                World::Controllers => " (world: controllers, for `claimcheck scenario compare`)",
            };
            let (path, steps) = (read.path.display(), read.scenario.steps.len());
            println!("{path}:{}: {}: {steps} steps{world}", read.line, read.scenario.name);
        }
        ExitCode::SUCCESS
    }
}

/// Arguments of `scenario compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Files, or folders with files
    #[arg(required = true, value_name = "FILE_OR_DIR")]
    paths: Vec<PathBuf>,
    /// The second side: `stock` (kind with Kubernetes' own controllers and kubernetes-csi's sidecars; for `world: controllers`
    /// those in KUBEBUILDER_ASSETS and CLAIMCHECK_STOCK_SIDECARS), or arguments of `run`
    #[arg(long, value_name = "stock|ARGUMENTS", allow_hyphen_values = true)]
    with: RunArguments,
    /// Arguments of `run` for the first side [default: an embedded cluster]
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    on: RunArguments,
    /// A file with differences that are permitted (as storage/controllers/tests/differential/differences.yaml)
    #[arg(long, value_name = "FILE")]
    allow: Option<PathBuf>,
    /// The folder of both runs, which must not exist yet [default: runs/TIME-compare]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Arguments of `run`, in one word of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RunArguments(Vec<String>);

impl FromStr for RunArguments {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = if text == "stock" { STOCK } else { text };
        split_words(text).map(Self).map_err(|quote| format!("unterminated {quote}"))
    }
}

impl fmt::Display for RunArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("embedded cluster"),
            false => f.write_str(&self.0.join(" ")),
        }
    }
}

impl CompareArgs {
    /// Runs the scenarios on both sides, and prints what differs.
    fn run(self) -> Result<ExitCode> {
        let scenarios = match scenario::read(&self.paths) {
            Ok(scenarios) => scenarios,
            Err(error) => return Ok(crate::unreadable(&error.into())),
        };
        let of_controllers = scenarios.iter().find(|read| read.scenario.world == World::Controllers);
        if let Some(what) = of_controllers.and_then(|read| self.stray(read, &scenarios)) {
            return Ok(crate::usage(&*anyhow!(what)));
        }
        let table = match self.allow.as_deref().map_or(Ok(Table::empty()), Table::read) {
            Ok(table) => table,
            Err(error) => return Ok(crate::unreadable(&error.into())),
        };
        let folder = self.out.clone().unwrap_or_else(|| {
            let now = jiff::Zoned::now().strftime("%Y%m%dT%H%M%SZ").to_string();
            PathBuf::from("runs").join(format!("{now}-compare"))
        });
        if folder.exists() {
            return Ok(crate::usage(&*anyhow!(
                "--out {} exists already: choose another folder",
                folder.display()
            )));
        }
        match of_controllers {
            Some(_) => scenario_controllers::compare(&scenarios, table, &folder),
            None => self.on_clusters(&table, &folder),
        }
    }

    /// What of the command line does not fit a scenario of `world: controllers`.
    fn stray(&self, read: &Read, scenarios: &[Read]) -> Option<String> {
        let is_of = format!("{} ({}) is of `world: controllers`", read.scenario.name, read.path.display());
        if scenarios.iter().any(|other| other.scenario.world == World::Cluster) {
            return Some(format!(
                "{is_of}, and others are of `world: cluster`: compare them in two commands"
            ));
        }
        if self.on != RunArguments::default() {
            return Some(format!(
                "{is_of}, which is played on API servers that claimcheck starts: omit --on"
            ));
        }
        let is_stock = RunArguments::from_str("stock").is_ok_and(|stock| stock == self.with);
        (!is_stock).then(|| format!("{is_of}, which is compared with stock controllers: write --with stock"))
    }

    fn on_clusters(&self, table: &Table, folder: &Path) -> Result<ExitCode> {
        let one = self.side(&folder.join("one"), &self.on)?;
        let other = self.side(&folder.join("other"), &self.with)?;
        let sides = [self.on.to_string(), self.with.to_string()];
        println!("\n one:   {}\n other: {}\n", sides[0], sides[1]);
        let (mut differ, mut compared) = (0, 0);
        for (name, of_one) in &one {
            let Some(of_other) = other.get(name) else {
                println!(" {name}: not played on the other side");
                continue;
            };
            compared += 1;
            let found = table.unknown(name, end_differences(of_one, of_other));
            differ += usize::from(!found.is_empty());
            println!(" {name}: {}", if found.is_empty() { "equal" } else { "differs" });
            for difference in found {
                println!("  {}", difference.text(["one", "other"]).replace('\n', "\n  "));
            }
        }
        for name in other.keys().filter(|name| !one.contains_key(*name)) {
            println!(" {name}: not played on the first side");
        }
        println!("\n {compared} compared, {differ} differ; the runs are in {}", folder.display());
        Ok(ExitCode::from(u8::from(differ > 0 || compared == 0)))
    }

    /// What happened on a side, by scenario. A scenario that fails there is compared all the same.
    fn side(&self, folder: &Path, arguments: &RunArguments) -> Result<BTreeMap<String, Saved>> {
        let program = env::current_exe().context("cannot determine the path of the running binary")?;
        let records = folder.join("scenarios");
        let mut command = process::Command::new(&program);
        command.arg("run");
        command.args(self.paths.iter().flat_map(|path| [OsStr::new("--scenario"), path.as_os_str()]));
        command.arg("--save-scenarios").arg(&records).arg("--out").arg(folder.join("run")).args(&arguments.0);
        eprintln!("claimcheck: {arguments}");
        let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
        if !matches!(status.code(), Some(0 | 1)) {
            bail!("the side with {arguments} could not run: {status}");
        }
        if !records.exists() {
            return Ok(BTreeMap::new());
        }
        Saved::read_all(&records).with_context(|| format!("{} cannot be read", records.display()))
    }
}
