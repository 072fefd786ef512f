//! A whole run: cluster up, cases, report, cluster down. Both front ends, the command line and
//! libtest-mimic, go through here.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use claimcheck_cluster::faults::FaultSpec;
use claimcheck_cluster::{Cluster, Declared, Telling};
use claimcheck_harness::{Lane, Session};
use claimcheck_model::{Capability, CapabilityPlan, CaseResult, Event, RunInfo, Stamp};
use claimcheck_report::metrics::{
    Metrics, Serving,
    push::{Push, PushOptions},
};
use claimcheck_report::slo::Objective;
use claimcheck_report::trace::Collector;
use claimcheck_report::{ReportError, Reporter, RunFolder, Summary};
use claimcheck_suites::testdriver::TestDriver;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::place::Place;
use claimcheck_suites::Runner;
use claimcheck_suites::Workload;
use claimcheck_suites::catalogue;
use claimcheck_suites::load::{Spec, load};
use claimcheck_suites::{Environment, Planned, plan};

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Parts of names; all cases where empty.
    pub filters: Vec<String>,
    /// Where.
    pub place: Place,
    /// What pods run there.
    pub workload: Workload,
    /// How many cases at a time.
    pub parallel: usize,
    /// How often each case runs.
    pub repeat: usize,
    /// What shall go wrong, from when the cluster is up until all cases have run.
    pub faults: Vec<FaultSpec>,
    /// Where to serve `/metrics` during the run.
    pub metrics_addr: Option<SocketAddr>,
    /// Who is sent metrics.
    pub push: PushOptions,
    /// What the run has to keep.
    pub slos: Vec<Objective>,
    /// Where traces go; nowhere by default.
    pub otlp: Option<Collector>,
    /// The run folder; a new one below [`Self::folders`] where absent.
    pub out: Option<PathBuf>,
    /// Where run folders are made.
    pub folders: PathBuf,
    /// The file in which the run is kept for later.
    pub history: Option<PathBuf>,
    /// Whether progress and tables go to the terminal.
    pub terminal: bool,
    /// When the process started, for the milestones of the report.
    pub began: Stamp,
}

impl Options {
    /// What pods run there, and on which nodes.
    fn workload(&self) -> Workload {
        self.workload.clone().on_nodes_of(self.place.config().map(Arc::as_ref))
    }
}

/// A cluster that is up, with everything that observes it.
pub struct Run {
    session: Arc<Session>,
    runner: Runner,
    events: mpsc::UnboundedSender<Event>,
    reporting: JoinHandle<Result<Summary, ReportError>>,
    folder: RunFolder,
    planned: Vec<Planned>,
    push: Option<Push>,
    interrupted: CancellationToken,
    /// Ends with the run.
    _serving: Option<Serving>,
}

/// What a cluster is brought up for.
#[derive(Clone, Copy, Debug)]
enum Work {
    Cases,
    Load,
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

    /// Every threshold was kept.
    pub fn keeps_thresholds(&self) -> bool {
        self.summary.broken_slos().next().is_none()
    }
}

/// The cases that these options ask for, as often as they ask, as far as is known before the cluster is there.
pub fn planned(options: &Options, lane: Lane) -> Vec<Planned> {
    cases(options, &options.place.expected(Some(lane)))
}

fn cases(options: &Options, environment: &Environment) -> Vec<Planned> {
    let environment = Environment { pod_security: options.workload.security, ..environment.clone() };
    let once = plan(&catalogue(), &options.filters, &environment);
    (0..options.repeat.max(1)).flat_map(|_| once.clone()).collect()
}

/// What the driver declares, and which of these cases exercise it.
fn capabilities(
    planned: &[Planned],
    declared: &Declared,
    config: Option<&TestDriver>,
) -> Vec<CapabilityPlan> {
    let by_file = config.map(TestDriver::capabilities);
    let plan = |&capability: &Capability| {
        let exercises = |planned: &&Planned| planned.case.needs.exercises.contains(&capability);
        let cases = planned.iter().filter(exercises).map(|planned| planned.case.id()).collect();
        let by_driver = declared.capabilities.get(&capability).copied();
        let by_file = by_file.as_ref().and_then(|all| all.get(&capability).copied());
        let declared = by_file.or(by_driver);
        let answered = by_driver.filter(|_| declared != by_driver);
        CapabilityPlan { capability, declared, answered, cases }
    };
    Capability::ALL.iter().map(plan).collect()
}

impl Run {
    /// Brings everything up.
    ///
    /// # Errors
    /// The cluster or the driver does not start, or the run folder cannot be made.
    pub async fn start(options: &Options, lane: Lane, interrupted: CancellationToken) -> Result<Self> {
        Self::bring_up(options, Work::Cases, lane, interrupted).await
    }

    /// Brings everything up for this work.
    async fn bring_up(
        options: &Options,
        work: Work,
        lane: Lane,
        interrupted: CancellationToken,
    ) -> Result<Self> {
        let folder = RunFolder::choose(options.out.as_deref(), &options.folders, options.place.kind())?;
        let metrics = Metrics::default();
        let serving = match options.metrics_addr {
            Some(address) => Some(metrics.serve(address).await?),
            None => None,
        };
        let push = Push::start(&options.push, &metrics);
        let reporter = match options.terminal {
            true => Reporter::new(folder.clone(), metrics),
            false => Reporter::quiet(folder.clone(), metrics),
        };
        let reporter = reporter.in_ci().judging(options.slos.clone()).tracing(options.otlp.clone());
        let (events, reporting) = reporter.remembering(options.history.clone()).start();
        let telling = Telling { metrics: options.metrics_addr.is_some(), writes: options.otlp.is_some() };
        let cluster = options.place.bring_up(&folder, telling).await?;
        let ready = Stamp::now();
        // Four letters of chance: enough to tell the few runs on one cluster from each other.
        let prefix = format!("cc-{:.4}", uuid::Uuid::new_v4().simple().to_string());
        if let Cluster::Real(_) = cluster {
            options.workload().try_on(&cluster, &format!("{prefix}-nodes")).await?;
        }
        cluster.set_faults(&options.faults).await?;
        let planned = match work {
            Work::Cases => cases(options, &options.place.environment(lane, &cluster)),
            Work::Load => Vec::new(),
        };
        // What this process may do on its machine is nothing to real nodes.
        let lane_told = options.place.is_virtual().then(|| ("lane".to_owned(), lane.describe().to_owned()));
        let whose =
            options.place.controllers().map(|whose| ("controllers".to_owned(), whose.name().to_owned()));
        let period =
            options.place.node_status_period().map(|period| ("node_status_period".to_owned(), period));
        let without = cluster.nodes_without_driver().len();
        let without = (without > 0).then(|| ("nodes_without_driver".to_owned(), without.to_string()));
        let settling = ("settling_s".to_owned(), cluster.settling_time().as_secs().to_string());
        let faults = options.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let faults = (!faults.is_empty()).then(|| ("faults".to_owned(), faults));
        let since = |stamp: Stamp| format!("{:.3}", stamp.seconds_since(options.began));
        let info = RunInfo {
            cases: planned.len(),
            cluster: options.place.kind(),
            driver: cluster.driver_name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kubernetes_version: cluster.client().apiserver_version().await?.git_version,
            // A load exercises volumes, and no capability for its own sake.
            capabilities: match work {
                Work::Cases => {
                    capabilities(&planned, cluster.declared(), options.place.config().map(Arc::as_ref))
                }
                Work::Load => Vec::new(),
            },
            environment: BTreeMap::from_iter(
                [
                    ("api_ready_s".to_owned(), since(cluster.api_ready().unwrap_or(ready))),
                    ("nodes".to_owned(), cluster.nodes().len().to_string()),
                    ("parallel".to_owned(), options.parallel.to_string()),
                    ("nodes_ready_s".to_owned(), since(ready)),
                    (
                        "processors".to_owned(),
                        std::thread::available_parallelism().map_or(0, usize::from).to_string(),
                    ),
                ]
                .into_iter()
                .chain(lane_told)
                .chain(whose)
                .chain(period)
                .chain(without)
                .chain([settling])
                .chain(faults),
            ),
        };
        // An error says that the reporter is gone, which `finish` reports.
        let _ = events.send(Event::RunStarted(info));
        let session = Session::start(cluster, lane, events.clone()).await;
        let session = Arc::new(if options.otlp.is_some() { session.telling_writes() } else { session });
        let workload = options.workload().where_driver_is(session.cluster());
        let config = options.place.config().cloned();
        let runner =
            Runner::new(session.clone(), options.parallel, prefix, workload, config, interrupted.clone());
        Ok(Self { session, runner, events, reporting, folder, planned, push, interrupted, _serving: serving })
    }

    /// Brings everything up for a load instead of cases.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_load(options: &Options, lane: Lane, interrupted: CancellationToken) -> Result<Self> {
        Self::bring_up(options, Work::Load, lane, interrupted).await
    }

    /// Runs a load; see [`load`](claimcheck_suites::load::load()).
    ///
    /// # Errors
    /// It cannot begin.
    pub async fn load(&self, spec: Spec) -> Result<()> {
        load(self.session.clone(), spec, self.interrupted.clone()).await
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
        let Self { session, runner, events, reporting, folder, push, interrupted, .. } = self;
        drop(runner);
        let interrupted = interrupted.is_cancelled();
        session.cluster().set_faults(&[]).await?;
        session.finish().await;
        // An error says that the reporter has ended, and its result why.
        let _ = events.send(Event::RunFinished { seconds: Stamp::now().seconds_since(began), interrupted });
        let summary = reporting.await.context("the reporter panicked")??;
        if let Some(push) = push {
            for error in push.finish().await {
                // The run is what it is, also where nobody takes its numbers.
                tracing::error!("{error}");
            }
        }
        Ok(Outcome { summary, folder: folder.path().to_owned() })
    }
}
