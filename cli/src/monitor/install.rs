//! `claimcheck monitor install` and `uninstall`: the monitor as a Deployment of an existing cluster.

use std::{iter, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use claimcheck_deploy::install::{Change, Installed};
use claimcheck_monitor_install::{self as monitor, CANARY_LIMIT, NAMESPACE, Options, REPLICAS};
use clap::{Args, Parser};

use super::class_interval;
use crate::{Cli, Command, object_name::namespace};

/// The cluster and the namespace.
#[derive(Debug, Args)]
struct Place {
    /// Path of the kubeconfig [default: KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the monitor. One that exists already is used as it is, and is not deleted by uninstall
    #[arg(long, value_name = "NAME", default_value = NAMESPACE, value_parser = namespace)]
    namespace: String,
}

/// Arguments of `monitor install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    #[command(flatten)]
    place: Place,
    /// Image of claimcheck, which the nodes can pull
    #[arg(long, value_name = "IMAGE", default_value = "claimcheck:dev", value_parser = image)]
    image: String,
    /// Number of replicas; one serves the series of volumes, the others replace it
    #[arg(long, value_name = "N", default_value_t = REPLICAS, value_parser = clap::value_parser!(u32).range(1..=16))]
    replicas: u32,
    /// Also install an observer on each node: phases from the mount table. Requires a namespace with privileged pods,
    /// claimcheck-system
    #[arg(long)]
    observer: bool,
    /// Run a life cycle of a volume of this class at this interval, see `monitor run`; may be repeated
    #[arg(long, value_name = "CLASS=INTERVAL", value_parser = canary)]
    canary: Vec<String>,
    /// The most canaries that run at the same time; the quota of their namespace is twice as high
    #[arg(long, value_name = "N", default_value_t = CANARY_LIMIT, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "canary")]
    canary_limit: u32,
    /// Another argument of `monitor run`, such as --run-arg=--stuck-after=10m or
    /// --run-arg=--canary-image=registry.example.com/busybox:1; may be repeated
    #[arg(long = "run-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    run_args: Vec<String>,
    /// Emit an Event on each claim that waits longer than 15 minutes
    #[arg(long)]
    events: bool,
    /// Also install a ServiceMonitor and PrometheusRules, on clusters with prometheus-operator
    #[arg(long)]
    prometheus_operator: bool,
    /// Also install ConfigMaps with dashboards, for the sidecar of Grafana
    #[arg(long)]
    grafana: bool,
    /// Print the objects as YAML, and change nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until all pods are ready
    #[arg(long)]
    wait: bool,
}

/// Arguments of `monitor uninstall`.
#[derive(Debug, Args)]
pub struct UninstallArgs {
    #[command(flatten)]
    place: Place,
}

/// A canary as `monitor run` reads it.
fn canary(text: &str) -> Result<String, String> {
    class_interval(text).map(|_| text.to_owned())
}

fn image(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => {
            Err("expected the name of an image, such as registry.example.com/claimcheck:v0.1.0".to_owned())
        }
        false => Ok(text.to_owned()),
    }
}

/// Arguments of `monitor run` on which the manifests depend, and the reason.
const FIXED: [(&str, &str); 9] = [
    ("--canary", "use --canary, which adds the rights"),
    ("--canary-limit", "use --canary-limit, which raises the quota"),
    ("--canary-namespace", "the rights are those of namespace claimcheck-canary"),
    ("--kubeconfig", "a pod uses its service account"),
    ("--context", "a pod uses its service account"),
    ("--lease", "the Role contains the name of the Lease"),
    ("--no-lease", "replicas need the Lease"),
    ("--metrics-address", "the Service and the probes use port 8080"),
    ("--otlp-ca-file", "the pod has no such file; mount it with a patch of manifests/monitor"),
];

/// Refuses arguments that have no effect in a pod, or that it would refuse.
fn check_arguments(options: &Options) -> Result<()> {
    for argument in &options.args {
        let name = argument.split('=').next().unwrap_or_default();
        if let Some((_, reason)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            bail!("--run-arg={name} cannot be used: {reason}");
        }
    }
    let arguments = monitor::arguments(options);
    // Neither this error nor clap's repeats an address, which may contain a password.
    let parsed = Cli::try_parse_from(iter::once("claimcheck").chain(arguments.iter().map(String::as_str)));
    match parsed.context("--run-arg cannot be used")?.command {
        Command::Monitor(crate::monitor::Command::Run(run)) => run.check().map(drop),
        _ => bail!("--run-arg cannot be used: write an option of `claimcheck monitor run`"),
    }
}

impl InstallArgs {
    /// Installs the monitor, or prints its objects.
    pub async fn run(self) -> Result<ExitCode> {
        let options = Options {
            namespace: self.place.namespace,
            image: self.image,
            replicas: self.replicas,
            observer: self.observer,
            canary: self.canary,
            canary_limit: self.canary_limit,
            args: self.run_args,
            events: self.events,
            prometheus_operator: self.prometheus_operator,
            grafana: self.grafana,
            ..Options::default()
        };
        if let Err(error) = check_arguments(&options) {
            return Ok(crate::unreadable(&error));
        }
        if self.dry_run {
            print!("{}", monitor::yaml(&monitor::objects(&options)));
            return Ok(ExitCode::SUCCESS);
        }
        let client =
            monitor::connect(self.place.kubeconfig.as_deref(), self.place.context.as_deref()).await?;
        print_installed(&monitor::install(&client, &options, self.wait).await?);
        Ok(ExitCode::SUCCESS)
    }
}

fn print_installed(installed: &Installed) {
    for applied in &installed.applied {
        let change = match applied.change {
            Change::Created => "created",
            Change::Changed => "changed",
            Change::Unchanged => "unchanged",
        };
        println!("{} {change}", applied.object);
    }
    for note in &installed.notes {
        eprintln!("claimcheck: {note}");
    }
}

impl UninstallArgs {
    /// Removes what `monitor install` created.
    pub async fn run(self) -> Result<ExitCode> {
        let client =
            monitor::connect(self.place.kubeconfig.as_deref(), self.place.context.as_deref()).await?;
        let options = Options { namespace: self.place.namespace, ..Options::default() };
        let removed = monitor::uninstall(&client, &options).await?;
        for object in &removed {
            println!("{object} deleted");
        }
        if removed.is_empty() {
            eprintln!("claimcheck: nothing to remove: no object was created by `claimcheck monitor install`");
        }
        Ok(ExitCode::SUCCESS)
    }
}
