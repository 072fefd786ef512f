//! `claimcheck monitor install` and `uninstall`: the monitor as a Deployment of an existing cluster.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, anyhow};
use claimcheck_deploy::{
    install::{Change, Installed},
    monitor::{self, NAMESPACE, Options, REPLICAS},
};
use claimcheck_monitor::ClassDuration;
use clap::Args;

use crate::{
    monitor::{class_interval, repeated_class},
    object_name::namespace,
};

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
    canary: Vec<Canary>,
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

/// A flag of `monitor run` and its text, checked here, since a pod would only report it in its log.
#[derive(Clone, Debug)]
struct Canary {
    parsed: ClassDuration,
    text: String,
}

fn canary(text: &str) -> Result<Canary, String> {
    Ok(Canary { parsed: class_interval(text)?, text: text.to_owned() })
}

fn image(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => {
            Err("expected the name of an image, such as registry.example.com/claimcheck:v0.1.0".to_owned())
        }
        false => Ok(text.to_owned()),
    }
}

impl InstallArgs {
    /// Installs the monitor, or prints its objects.
    pub async fn run(self) -> Result<ExitCode> {
        let classes: Vec<ClassDuration> = self.canary.iter().map(|canary| canary.parsed.clone()).collect();
        if let Some(class) = repeated_class(&classes) {
            let error = anyhow!("--canary has class {class} twice: remove one of them");
            return Ok(crate::unreadable(&error));
        }
        let options = Options {
            namespace: self.place.namespace,
            image: self.image,
            replicas: self.replicas,
            observer: self.observer,
            canary: self.canary.into_iter().map(|canary| canary.text).collect(),
            events: self.events,
            prometheus_operator: self.prometheus_operator,
            grafana: self.grafana,
            ..Options::default()
        };
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
