//! A whole run: cluster up, cases, report, cluster down. Both front ends, the command line and
//! libtest-mimic, go through here.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use claimcheck_harness::{
    Lane, Session,
    cluster::{DriverCommand, Embedded, Options as ClusterOptions},
    faults::FaultSpec,
    metrics::{Metrics, Serving},
    report::{ReportError, Reporter, RunFolder, Summary},
};
use claimcheck_model::{Capability, CapabilityPlan, CaseResult, ClusterKind, Event, RunInfo, Stamp};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    load::{Spec, load},
    plan::{Environment, Planned, plan},
    rows::catalogue,
    runner::Runner,
};

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Parts of names; all cases where empty.
    pub filters: Vec<String>,
    /// Which driver.
    pub driver: DriverCommand,
    /// How many virtual nodes.
    pub nodes: usize,
    /// How many cases at a time.
    pub parallel: usize,
    /// How often each case runs.
    pub repeat: usize,
    /// What shall go wrong, from when the cluster is up until all cases have run.
    pub faults: Vec<FaultSpec>,
    /// Where to serve `/metrics` during the run.
    pub metrics_addr: Option<SocketAddr>,
    /// The run folder; a new one below [`Self::folders`] where absent.
    pub out: Option<PathBuf>,
    /// Where run folders are made.
    pub folders: PathBuf,
    /// Whether progress and tables go to the terminal.
    pub terminal: bool,
    /// When the process started, for the milestones of the report.
    pub began: Stamp,
}

/// A cluster that is up, with everything that observes it.
pub struct Run {
    session: Arc<Session>,
    runner: Runner,
    events: mpsc::UnboundedSender<Event>,
    reporting: JoinHandle<Result<Summary, ReportError>>,
    folder: RunFolder,
    planned: Vec<Planned>,
    /// Ends with the run.
    _serving: Option<Serving>,
}

/// What became of a run.
pub struct Outcome {
    /// The numbers.
    pub summary: Summary,
    /// Where the report is.
    pub folder: PathBuf,
}

impl Outcome {
    /// Every case that ran has passed, and nothing was left behind.
    pub fn is_good(&self) -> bool {
        self.summary.passed()
    }
}

/// What this machine offers to an embedded cluster.
pub fn environment(lane: Option<Lane>, nodes: usize, driver: &DriverCommand) -> Environment {
    let missing = |program: &str| {
        !["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists())
    };
    let file_systems = match lane {
        Some(Lane::User) => Err("needs root: an ordinary user has no loop devices"),
        _ if !Path::new("/dev/loop-control").exists() => Err("needs loop devices: modprobe loop"),
        _ if missing("mkfs.ext4") => Err("needs mkfs.ext4: apt-get install e2fsprogs"),
        Some(Lane::Root) | None => Ok(()),
    };
    let xfs = if missing("mkfs.xfs") { Err("needs mkfs.xfs: apt-get install xfsprogs") } else { Ok(()) };
    let builtin = *driver == DriverCommand::Builtin;
    Environment { nodes, builtin, disrupt: true, file_systems, xfs }
}

/// The cases that these options ask for, as often as they ask.
pub fn planned(options: &Options, lane: Lane) -> Vec<Planned> {
    let once = plan(&catalogue(), &options.filters, &environment(Some(lane), options.nodes, &options.driver));
    (0..options.repeat.max(1)).flat_map(|_| once.clone()).collect()
}

/// What the driver declares, and which of these cases exercise it.
fn capabilities(planned: &[Planned], declared: &BTreeMap<Capability, bool>) -> Vec<CapabilityPlan> {
    let plan = |&capability: &Capability| {
        let exercises = |planned: &&Planned| planned.case.needs.exercises.contains(&capability);
        let cases = planned.iter().filter(exercises).map(|planned| planned.case.id()).collect();
        CapabilityPlan { capability, declared: declared.get(&capability).copied(), cases }
    };
    Capability::ALL.iter().map(plan).collect()
}

impl Run {
    /// Brings everything up.
    ///
    /// # Errors
    /// The cluster or the driver does not start, or the run folder cannot be made.
    pub async fn start(options: &Options, lane: Lane, interrupted: CancellationToken) -> Result<Self> {
        Self::bring_up(options, planned(options, lane), lane, interrupted).await
    }

    /// Brings everything up for these cases.
    async fn bring_up(
        options: &Options,
        planned: Vec<Planned>,
        lane: Lane,
        interrupted: CancellationToken,
    ) -> Result<Self> {
        let folder = RunFolder::choose(options.out.as_deref(), &options.folders, ClusterKind::Embedded)?;
        let metrics = Metrics::default();
        let serving = match options.metrics_addr {
            Some(address) => Some(metrics.serve(address).await?),
            None => None,
        };
        let reporter = match options.terminal {
            true => Reporter::new(folder.clone(), metrics),
            false => Reporter::quiet(folder.clone(), metrics),
        };
        let (events, reporting) = reporter.start();
        let cluster_options = ClusterOptions {
            nodes: options.nodes,
            driver: options.driver.clone(),
            logs: folder.cluster_dir()?,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            kubeconfig: folder.kubeconfig(),
        };
        // Boxed: bringing up a cluster is a large future, and is awaited once.
        let cluster = Box::pin(Embedded::up(&cluster_options))
            .await
            .context("the embedded cluster cannot be started")?;
        let ready = Stamp::now();
        cluster.set_faults(&options.faults).await;
        let since = |stamp: Stamp| format!("{:.3}", stamp.seconds_since(options.began));
        let info = RunInfo {
            cases: planned.len(),
            cluster: ClusterKind::Embedded,
            driver: cluster.driver_name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kubernetes_version: cluster.client().apiserver_version().await?.git_version,
            capabilities: capabilities(&planned, &cluster.declared().await),
            environment: BTreeMap::from([
                ("lane".to_owned(), lane.describe().to_owned()),
                ("nodes".to_owned(), options.nodes.to_string()),
                ("parallel".to_owned(), options.parallel.to_string()),
                ("api_ready_s".to_owned(), since(cluster.api_ready())),
                ("nodes_ready_s".to_owned(), since(ready)),
                (
                    "processors".to_owned(),
                    std::thread::available_parallelism().map_or(0, usize::from).to_string(),
                ),
            ]),
        };
        // An error says that the reporter is gone, which `finish` reports.
        let _ = events.send(Event::RunStarted(info));
        let session = Arc::new(Session::start(cluster, lane, events.clone()).await);
        let runner = Runner::new(session.clone(), options.parallel, interrupted);
        Ok(Self { session, runner, events, reporting, folder, planned, _serving: serving })
    }

    /// Brings everything up for a load instead of cases.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_load(options: &Options, lane: Lane, interrupted: CancellationToken) -> Result<Self> {
        Self::bring_up(options, Vec::new(), lane, interrupted).await
    }

    /// Runs a load; see [`load`](crate::load::load()).
    ///
    /// # Errors
    /// It cannot begin.
    pub async fn load(&self, spec: Spec, interrupted: CancellationToken) -> Result<()> {
        load(self.session.clone(), spec, interrupted).await
    }

    /// The cases of this run.
    pub fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// Runs one of them.
    pub async fn run(&self, planned: &Planned) -> CaseResult {
        self.runner.run(planned).await.1
    }

    /// Runs all of them.
    pub async fn run_all(&self) {
        self.runner.run_all(&self.planned).await;
    }

    /// Takes everything down and writes the report.
    ///
    /// # Errors
    /// The report cannot be written.
    pub async fn finish(self, began: Stamp) -> Result<Outcome> {
        let Self { session, runner, events, reporting, folder, .. } = self;
        drop(runner);
        session.cluster().set_faults(&[]).await;
        session.finish().await;
        // An error says that the reporter has ended, and its result why.
        let _ = events.send(Event::RunFinished { seconds: Stamp::now().seconds_since(began) });
        let summary = reporting.await.context("the reporter panicked")??;
        Ok(Outcome { summary, folder: folder.path().to_owned() })
    }
}
