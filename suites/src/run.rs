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
    report::{self, Reporter, RunFolder, Summary},
};
use claimcheck_model::{CaseResult, ClusterKind, Event, RunInfo, Stamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
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
    /// Where to serve `/metrics` during the run.
    pub metrics_addr: Option<SocketAddr>,
    /// The run folder; a new one below `runs` where absent.
    pub out: Option<PathBuf>,
    /// When the process started, for the milestones of the report.
    pub began: Stamp,
}

/// A cluster that is up, with everything that observes it.
pub struct Run {
    session: Arc<Session>,
    runner: Runner,
    reporter: Reporter,
    planned: Vec<Planned>,
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
        self.summary.cases.failed == 0 && self.summary.leaks.is_empty()
    }
}

/// What this machine offers to an embedded cluster.
pub fn environment(lane: Option<Lane>, nodes: usize) -> Environment {
    let mkfs = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join("mkfs.ext4").exists());
    let file_systems = match lane {
        Some(Lane::User) => Err("needs root: an ordinary user has no loop devices"),
        _ if !Path::new("/dev/loop-control").exists() => Err("needs loop devices: modprobe loop"),
        _ if !mkfs => Err("needs mkfs.ext4: apt-get install e2fsprogs"),
        Some(Lane::Root) | None => Ok(()),
    };
    Environment { nodes, disrupt: true, file_systems }
}

/// The cases that these options ask for, as often as they ask.
pub fn planned(options: &Options, lane: Lane) -> Vec<Planned> {
    let once = plan(&catalogue(), &options.filters, &environment(Some(lane), options.nodes));
    (0..options.repeat.max(1)).flat_map(|_| once.clone()).collect()
}

impl Run {
    /// Brings everything up.
    ///
    /// # Errors
    /// The cluster or the driver does not start, or the run folder cannot be made.
    pub async fn start(options: &Options, lane: Lane, interrupted: CancellationToken) -> Result<Self> {
        let planned = planned(options, lane);
        let folder = RunFolder::create(options.out.as_deref(), ClusterKind::Embedded)?;
        let metrics = report::Options { metrics_addr: options.metrics_addr, ..report::Options::default() };
        let reporter = Reporter::start(&folder, metrics).await?;
        let up = Embedded::up(&ClusterOptions {
            nodes: options.nodes,
            driver: options.driver.clone(),
            logs: folder.cluster_dir(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            kubeconfig: folder.kubeconfig(),
        });
        // Boxed: bringing up a cluster is a large future, and is awaited once.
        let cluster = Box::pin(up).await.context("the embedded cluster cannot be started")?;
        let ready = Stamp::now();
        let since = |stamp: Stamp| format!("{:.3}", stamp.seconds_since(options.began));
        let info = RunInfo {
            cases: planned.len(),
            cluster: ClusterKind::Embedded,
            driver: cluster.driver_name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kubernetes_version: cluster.client().apiserver_version().await?.git_version,
            capabilities: Vec::new(),
            environment: BTreeMap::from([
                ("lane".to_owned(), lane.describe().to_owned()),
                ("nodes".to_owned(), options.nodes.to_string()),
                ("parallel".to_owned(), options.parallel.to_string()),
                ("api_ready_s".to_owned(), since(cluster.api_ready())),
                ("nodes_ready_s".to_owned(), since(ready)),
                ("processors".to_owned(), std::thread::available_parallelism().map_or(0, usize::from).to_string()),
            ]),
        };
        let events: mpsc::UnboundedSender<Event> = reporter.events();
        // An error says that the reporter is gone, which `finish` reports.
        let _ = events.send(Event::RunStarted(info));
        let session = Arc::new(Session::start(cluster, lane, events).await);
        let runner = Runner::new(session.clone(), options.parallel, interrupted);
        Ok(Self { session, runner, reporter, planned })
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
        let Self { session, runner, reporter, .. } = self;
        drop(runner);
        let events = reporter.events();
        session.finish().await;
        let _ = events.send(Event::RunFinished { seconds: Stamp::now().seconds_since(began) });
        drop(events);
        let (summary, folder) = reporter.finish().await?;
        Ok(Outcome { summary, folder })
    }
}
