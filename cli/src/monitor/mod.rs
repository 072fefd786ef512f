//! `claimcheck monitor`: every volume of an existing cluster, continuously, or what waits now.

mod install;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use claimcheck_component::{HttpEndpoint, api_client, pod_namespace};
use claimcheck_model::NAMESPACE;
use claimcheck_monitor::{
    CanaryOptions, CanaryTopology, ClassDuration, Election, Monitor, Options, Scope, Timing, TraceOptions,
    fetch, is_size, look, stuck::Status, table,
};
use claimcheck_monitor_install::{CANARY_LIMIT, connect};
use claimcheck_telemetry::trace::Collector;
use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use jiff::SignedDuration;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::object_name::{namespace, subdomain};
use install::{InstallArgs, UninstallArgs};

/// The time between two tables of `status --watch`.
const REFRESH: Duration = Duration::from_secs(10);

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch all volumes and serve /metrics, /status.json and a page with what waits. Writes its Lease, and with --canary
    /// and --event-threshold what these describe
    Run(Box<RunArgs>),
    /// List the volumes that wait and the usual remedies, and objects that nothing uses. Reads only
    Status(StatusArgs),
    /// Install the monitor in a cluster: a Deployment that may read and hold a Lease, and what the flags add. With
    /// --dry-run, print the objects, which include its roles
    Install(Box<InstallArgs>),
    /// Remove what `monitor install` created, and nothing else
    Uninstall(UninstallArgs),
}

/// What is followed.
#[derive(Debug, Args)]
struct Target {
    /// Path of the kubeconfig [default: KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Only claims in this namespace; may be repeated [default: all]
    #[arg(long = "namespace", value_name = "NAME", value_parser = namespace)]
    namespaces: Vec<String>,
    /// Only claims of this storage class; may be repeated [default: all]
    #[arg(long = "storage-class", value_name = "NAME")]
    classes: Vec<String>,
    /// The time after which a wait counts as stuck
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = not_negative)]
    stuck_after: SignedDuration,
}

impl Target {
    async fn client(&self) -> Result<Client> {
        match &self.context {
            // With the timeouts of a component.
            None => api_client(self.kubeconfig.as_deref()).await,
            context => Ok(connect(self.kubeconfig.as_deref(), context.as_deref()).await?),
        }
    }

    fn scope(&self) -> Scope {
        let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
        Scope { namespaces: set(&self.namespaces), classes: set(&self.classes), canary: None }
    }
}

/// Arguments of `monitor run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    target: Target,
    /// Address to serve on, :PORT for all addresses of the machine
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    metrics_address: HttpEndpoint,
    /// Name of the Lease, in the pod's namespace: only its holder serves the series of volumes
    #[arg(long, value_name = "NAME", default_value = "claimcheck-monitor", value_parser = subdomain)]
    lease: String,
    /// Run without a Lease, as the only replica
    #[arg(long, conflicts_with = "lease")]
    no_lease: bool,
    #[command(flatten)]
    canary: CanaryArgs,
    /// Emit an Event on a claim that waits longer than this, at most one per hour; CLASS * is all other classes. May be
    /// repeated; requires the rights of manifests/monitor/events
    #[arg(long = "event-threshold", value_name = "CLASS=DURATION")]
    event_thresholds: Vec<ClassDuration>,
    #[command(flatten)]
    traces: TraceArgs,
}

/// The canary.
#[derive(Debug, Args)]
#[command(next_help_heading = "Canary")]
struct CanaryArgs {
    /// Run a life cycle of a volume of this class at this interval: claim, pod that writes and reads, snapshot where the
    /// driver has a class of snapshots, removal. May be repeated; requires the rights of manifests/monitor/canary
    #[arg(long = "canary", value_name = "CLASS=INTERVAL", value_parser = class_interval)]
    canary_classes: Vec<ClassDuration>,
    /// Run in each zone, or on each node, in turn; only classes with WaitForFirstConsumer [default: any node]
    #[arg(long = "canary-topology", value_name = "KIND", value_enum, requires = "canary_classes")]
    topology: Option<TopologyKind>,
    /// The most runs at the same time, including those with objects that cannot be deleted
    #[arg(long = "canary-limit", value_name = "N", default_value_t = CANARY_LIMIT as usize, value_parser = at_least_one)]
    limit: usize,
    /// Requested size of each claim
    #[arg(long = "canary-size", value_name = "QUANTITY", default_value = "1Gi", value_parser = size)]
    size: String,
    /// Namespace of the canary's objects; it must exist
    #[arg(long = "canary-namespace", value_name = "NAME", default_value = "claimcheck-canary", value_parser = namespace)]
    namespace: String,
    /// Image of the canary's pods; requires sh and the busybox tools
    #[arg(long = "canary-image", value_name = "IMAGE", default_value = "busybox:stable", value_parser = NonEmptyStringValueParser::new())]
    image: String,
    /// The time after which a run has failed, and its objects are deleted
    #[arg(long = "canary-deadline", value_name = "DURATION", default_value = "5m", value_parser = positive)]
    deadline: SignedDuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TopologyKind {
    /// The label topology.kubernetes.io/zone of nodes
    Zone,
    /// Single nodes
    Node,
}

impl CanaryArgs {
    fn options(&self) -> Option<CanaryOptions> {
        let topology = self.topology.map(|kind| match kind {
            TopologyKind::Zone => CanaryTopology::Zone,
            TopologyKind::Node => CanaryTopology::Node,
        });
        (!self.canary_classes.is_empty()).then(|| CanaryOptions {
            classes: self.canary_classes.clone(),
            topology,
            limit: self.limit,
            size: self.size.clone(),
            namespace: self.namespace.clone(),
            image: self.image.clone(),
            deadline: self.deadline,
        })
    }
}

/// The environment variables of OpenTelemetry with headers; the later one takes precedence.
const OTLP_HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// The export of traces.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traces")]
struct TraceArgs {
    /// Export traces of volumes to this OTLP collector: http://HOST:4318/v1/traces, with TLS https://. Headers are read
    /// from OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_OTLP", hide_env_values = true)]
    otlp: Option<String>,
    /// The part of volumes with traces, from 0 to 1; slow and failed ones always have some
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, value_parser = ratio)]
    otlp_sample: f64,
    /// The duration of a phase from which a volume counts as slow
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = not_negative)]
    otlp_slow: SignedDuration,
    /// PEM file with the CA certificate of --otlp, trusted in addition to those of this machine
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca_file: Option<PathBuf>,
    /// Write namespaces and names of claims, and volume handles, into traces [default: uids only]
    #[arg(long, requires = "otlp")]
    names: bool,
}

impl TraceArgs {
    fn options(&self) -> Result<Option<TraceOptions>> {
        let Some(address) = &self.otlp else { return Ok(None) };
        // Neither this error nor clap repeats the address, which may contain a password.
        let mut collector: Collector = address.parse().context("--otlp cannot be used")?;
        for name in OTLP_HEADERS {
            if let Ok(text) = env::var(name) {
                collector = collector.with_headers(name, &text)?;
            }
        }
        if let Some(path) = &self.otlp_ca_file {
            collector = collector.trusting(path).context("--otlp-ca-file cannot be used")?;
        }
        Ok(Some(TraceOptions { collector, ratio: self.otlp_sample, slow: self.otlp_slow, names: self.names }))
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

fn not_negative(text: &str) -> Result<SignedDuration, String> {
    let duration = text.parse::<SignedDuration>().ok().filter(|duration| !duration.is_negative());
    duration.ok_or_else(|| "expected a duration of at least 0, for example 90s or 5m".to_owned())
}

fn positive(text: &str) -> Result<SignedDuration, String> {
    let duration = text.parse::<SignedDuration>().ok().filter(SignedDuration::is_positive);
    duration.ok_or_else(|| "expected a duration above 0, for example 90s or 5m".to_owned())
}

fn size(text: &str) -> Result<String, String> {
    match is_size(text) {
        true => Ok(text.to_owned()),
        false => Err("expected a quantity above 0, for example 100Mi or 1Gi".to_owned()),
    }
}

/// A canary: it has no default class, unlike --event-threshold.
pub(crate) fn class_interval(text: &str) -> Result<ClassDuration, String> {
    let parsed = text.parse::<ClassDuration>().map_err(|error| error.to_string())?;
    match parsed.class.as_str() {
        "*" => Err("write the name of a storage class instead of *".to_owned()),
        _ => Ok(parsed),
    }
}

/// The first class that is given twice: one of its durations would have no effect.
fn repeated_class(classes: &[ClassDuration]) -> Option<&str> {
    let mut seen = BTreeSet::new();
    classes.iter().map(|one| one.class.as_str()).find(|class| !seen.insert(*class))
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let count = text.parse::<usize>().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a number above 0".to_owned())
}

/// Arguments of `monitor status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    target: Target,
    /// Read the status of a running monitor, such as http://localhost:8080 of `kubectl port-forward`, instead of the
    /// cluster: it has observed when phases started
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context", "namespaces", "classes", "stuck_after"])]
    url: Option<String>,
    /// Print the status every ten seconds, until interrupted
    #[arg(long)]
    watch: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable
    #[default]
    Table,
    /// The status as JSON
    Json,
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Run(args) => {
                let (address, traces) = match args.check() {
                    Ok(checked) => checked,
                    Err(error) => return Ok(crate::unreadable(&error)),
                };
                crate::runtime()?.block_on(args.run(address, traces))?;
            }
            Self::Status(args) => crate::runtime()?.block_on(args.run())?,
            Self::Install(args) => return crate::runtime()?.block_on(args.run()),
            Self::Uninstall(args) => return crate::runtime()?.block_on(args.run()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RunArgs {
    /// What clap cannot check.
    pub(crate) fn check(&self) -> Result<(SocketAddr, Option<TraceOptions>)> {
        let HttpEndpoint::Tcp(address) = self.metrics_address else {
            bail!("--metrics-address must be a TCP address, such as :8080");
        };
        for (flag, classes) in
            [("--canary", &self.canary.canary_classes), ("--event-threshold", &self.event_thresholds)]
        {
            if let Some(class) = repeated_class(classes) {
                bail!("{flag} has class {class} twice: remove one of them");
            }
        }
        Ok((address, self.traces.options()?))
    }

    async fn run(self, address: SocketAddr, traces: Option<TraceOptions>) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let client = self.target.client().await?;
        let election = (!self.no_lease).then(|| Election {
            // That of an installation outside of a pod.
            namespace: pod_namespace().unwrap_or_else(|| NAMESPACE.to_owned()),
            name: self.lease.clone(),
            identity: identity(),
            labels: BTreeMap::new(),
            timing: Timing::default(),
        });
        let options = Options {
            scope: self.target.scope(),
            stuck_after: self.target.stuck_after,
            address,
            election,
            canary: self.canary.options(),
            event_thresholds: self.event_thresholds.clone(),
            traces,
        };
        let monitor = Monitor::start(client, options).await?;
        tracing::info!(address = %monitor.address(), "serves /metrics, /status.json and a page");
        let ended = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        Ok(monitor.run(ended).await?)
    }
}

impl StatusArgs {
    async fn run(self) -> Result<()> {
        let client = match &self.url {
            Some(_) => None,
            None => Some(self.target.client().await?),
        };
        let mut ticks = tokio::time::interval(REFRESH);
        loop {
            ticks.tick().await;
            let status = match (&self.url, &client) {
                (Some(url), _) => fetch(url).await?,
                (None, Some(client)) => look(client, self.target.scope(), self.target.stuck_after).await?,
                (None, None) => return Ok(()),
            };
            self.print(&status)?;
            if !self.watch {
                return Ok(());
            }
        }
    }

    fn print(&self, status: &Status) -> Result<()> {
        match self.format {
            Format::Table => {
                let text = table(status);
                // Clears the terminal, as `watch` does.
                let clear = if self.watch { "\x1b[2J\x1b[H" } else { "" };
                print!("{clear}{text}");
            }
            Format::Json => {
                println!("{}", serde_json::to_string(status).context("the status cannot be printed")?);
            }
        }
        Ok(())
    }
}

/// The pod's name: a restarted container is the same candidate.
fn identity() -> String {
    let named = env::var("POD_NAME").or_else(|_| env::var("HOSTNAME"));
    named.unwrap_or_else(|_| format!("claimcheck-{}", std::process::id()))
}
