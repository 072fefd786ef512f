//! A whole run: start the cluster, run the cases, write the report, stop the cluster. Shared by both front ends, the
//! command line and libtest-mimic.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use claimcheck_cluster::faults::FaultSpec;
use claimcheck_cluster::{DriverCapabilities, Instrumentation};
use claimcheck_engine::{fail_once, plan};
use claimcheck_harness::{Privilege, Session};
use claimcheck_model::{Capability, CapabilityPlan, CaseResult, Event, RunInfo, Stamp};
use claimcheck_report::slo::Objective;
use claimcheck_report::{Reported, Reporter, RunFolder, report_failed_start};
use claimcheck_suites::testdriver::TestDriver;
use claimcheck_telemetry::metrics::{Metrics, Serving, push::PushOptions};
use claimcheck_telemetry::trace::Collector;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::clusters::ClusterTarget;
use crate::explain::{explain, with_sources};
use crate::kubelets::kubelets;
use claimcheck_suites::Case;
use claimcheck_suites::Runner;
use claimcheck_suites::Workload;
use claimcheck_suites::load::{Blocks, Spec, load};
use claimcheck_suites::{Environment, Need, Planned};

/// The default number of concurrent cases.
pub const PARALLEL: u16 = 8;

/// The options of a run.
#[derive(Clone)]
pub struct Options {
    /// The cases to choose from.
    pub cases: Vec<Case>,
    /// Substrings of case names; all cases if empty.
    pub filters: Vec<String>,
    /// The cluster.
    pub place: ClusterTarget,
    /// The workload of the pods.
    pub workload: Workload,
    /// The number of concurrent cases.
    pub parallel: usize,
    /// The number of times that each case runs.
    pub repeat: usize,
    /// Injected faults, from when the cluster is up until all cases have run.
    pub faults: Vec<FaultSpec>,
    /// The address that serves `/metrics` during the run.
    pub metrics_addr: Option<SocketAddr>,
    /// Metrics push.
    pub push: Option<PushOptions>,
    /// The thresholds of the run.
    pub slos: Vec<Objective>,
    /// The collector of traces, if any.
    pub otlp: Option<Collector>,
    /// The run folder; if absent, a new one below [`Self::folders`].
    pub out: Option<PathBuf>,
    /// The parent directory of run folders.
    pub folders: PathBuf,
    /// The history file, if the run is recorded in one.
    pub history: Option<PathBuf>,
    /// Whether progress and tables are printed to the terminal.
    pub terminal: bool,
    /// The arguments of `claimcheck run` that repeat a case of it, if it is such a run.
    pub arguments: Option<String>,
    /// When the process started, for the milestones of the report.
    pub started: Stamp,
}

impl Options {
    /// The workload of the pods, restricted to the nodes of the driver file.
    fn workload(&self) -> Workload {
        self.workload.clone().on_nodes_of(self.place.config().map(Arc::as_ref))
    }
}

/// A running cluster, with all its observers.
pub struct Run {
    session: Arc<Session>,
    runner: Runner,
    events: mpsc::UnboundedSender<Event>,
    reporting: JoinHandle<Reported>,
    folder: RunFolder,
    planned: Vec<Planned>,
    interrupted: CancellationToken,
    /// Dropped with the run.
    _serving: Option<Serving>,
}

/// What a run consists of, apart from the reporters.
struct Started {
    session: Arc<Session>,
    /// The prefix of its namespaces.
    prefix: String,
    folder: RunFolder,
    planned: Vec<Planned>,
    serving: Option<Serving>,
}

/// A run was interrupted before it had started.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the run was interrupted")]
pub struct Interrupted;

/// The purpose of a cluster.
#[derive(Clone, Copy, Debug)]
enum Work {
    Cases,
    Load,
}

/// The result of a run.
pub struct Outcome {
    /// The measurements and results, and the outputs that could not be written.
    pub reported: Reported,
    /// The run folder with the report.
    pub folder: RunFolder,
}

impl Outcome {
    /// The file that shows the result.
    pub fn page(&self) -> PathBuf {
        self.folder.result()
    }
}

/// The cases that these options select, repeated as requested, as far as is known before the cluster is started.
pub fn planned(options: &Options, privilege: Privilege) -> Vec<Planned> {
    cases(options, &options.place.expected(Some(privilege)))
}

fn cases(options: &Options, environment: &Environment) -> Vec<Planned> {
    let environment = Environment { pod_security: options.workload.security, ..environment.clone() };
    let once = plan(&options.cases, &options.filters, Some(&environment));
    let mut planned: Vec<Planned> = (0..options.repeat.max(1)).flat_map(|_| once.clone()).collect();
    for defect in environment.deployment_defects() {
        fail_once(&mut planned, defect.skip, defect.text);
    }
    planned
}

/// The driver's capabilities, and the cases that exercise each.
fn capabilities(
    planned: &[Planned],
    declared: &DriverCapabilities,
    config: Option<&TestDriver>,
) -> Vec<CapabilityPlan> {
    let by_file = config.map(TestDriver::capabilities);
    let plan = |&capability: &Capability| {
        let exercises = |planned: &&Planned| planned.case.needs.contains(&Need::Capability(capability));
        let cases = planned.iter().filter(exercises).map(Planned::id).collect();
        let by_driver = declared.capabilities.get(&capability).copied();
        let by_file = by_file.as_ref().and_then(|all| all.get(&capability).copied());
        let declared = by_file.or(by_driver);
        let supported = by_driver.filter(|_| declared != by_driver);
        CapabilityPlan { capability, declared, supported, cases }
    };
    Capability::ALL.iter().map(plan).collect()
}

impl Run {
    /// Starts the cluster and the observers.
    ///
    /// # Errors
    /// The run folder cannot be created, or the cluster or the driver does not start, as all outputs then state;
    /// [`Interrupted`] if `interrupted` is cancelled before.
    pub async fn start(
        options: &Options,
        privilege: Privilege,
        interrupted: CancellationToken,
    ) -> Result<Self> {
        Self::bring_up(options, Work::Cases, privilege, interrupted).await
    }

    /// Starts the reporters, and then the cluster and the observers for this purpose.
    async fn bring_up(
        options: &Options,
        work: Work,
        privilege: Privilege,
        interrupted: CancellationToken,
    ) -> Result<Self> {
        let folder = RunFolder::choose(options.out.as_deref(), &options.folders, options.place.kind())
            .inspect_err(|error| report_failed_start(&with_sources(error)))?;
        if let Some(notice) = options.place.startup_notice() {
            eprintln!("claimcheck: {notice}");
        }
        let metrics = Metrics::default();
        let reporter = match options.terminal {
            true => Reporter::new(folder.clone(), metrics.clone()),
            false => Reporter::quiet(folder.clone(), metrics.clone()),
        };
        let reporter = reporter.in_ci().with_objectives(options.slos.clone()).tracing(options.otlp.clone());
        let reporter = reporter.pushing(options.push.clone()).with_history(options.history.clone());
        let (events, reporting) = reporter.start();
        // Until everything has started, an interrupt needs no orderly shutdown.
        let started = tokio::select! {
            started = Self::started(options, work, privilege, folder, metrics, events.clone()) => started,
            () = interrupted.cancelled() => Err(Interrupted.into()),
        };
        match started {
            Ok(Started { session, prefix, folder, planned, serving }) => {
                let workload = options.workload().where_driver_is(session.cluster());
                let (parallel, config) = (options.parallel, options.place.config().cloned());
                let runner =
                    Runner::new(session.clone(), parallel, prefix, workload, config, interrupted.clone())
                        .ending_drivers_after(&planned);
                let runner = match options.faults.iter().all(FaultSpec::is_permanent) {
                    true => runner,
                    false => runner.with_passing_errors(),
                };
                Ok(Self {
                    session,
                    runner,
                    events,
                    reporting,
                    folder,
                    planned,
                    interrupted,
                    _serving: serving,
                })
            }
            Err(error) => {
                // Sending fails only if the reporter has stopped, which its handle reports.
                let _ = events.send(Event::RunAborted { reason: explain(&error) });
                drop(reporting.await);
                Err(error)
            }
        }
    }

    /// Starts what a run consists of, apart from the reporters, which report an error of any of the steps.
    async fn started(
        options: &Options,
        work: Work,
        privilege: Privilege,
        folder: RunFolder,
        metrics: Metrics,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Started> {
        let serving = match options.metrics_addr {
            Some(address) => Some(metrics.serve(address).await?),
            None => None,
        };
        let instrumentation =
            Instrumentation { metrics: options.metrics_addr.is_some(), writes: options.otlp.is_some() };
        let cluster = options.place.bring_up(&folder, instrumentation).await?;
        let ready = Stamp::now();
        // Four random characters: enough to distinguish the few runs on one cluster.
        let prefix = format!("cc-{:.4}", uuid::Uuid::new_v4().simple().to_string());
        if cluster.has_real_nodes() {
            options.workload().try_on(&cluster, &format!("{prefix}-nodes")).await?;
        }
        cluster.set_faults(&options.faults).await?;
        let planned = match work {
            Work::Cases => cases(options, &options.place.environment(privilege, &cluster).await?),
            Work::Load => Vec::new(),
        };
        // The privileges of this process on its machine do not affect real nodes.
        let privilege_entry =
            options.place.is_virtual().then(|| ("privilege".to_owned(), privilege.describe().to_owned()));
        let controllers = options
            .place
            .controllers()
            .map(|controllers| ("controllers".to_owned(), controllers.name().to_owned()));
        let sidecars = options.place.sidecars().map(|sidecars| ("sidecars".to_owned(), sidecars));
        let period =
            options.place.node_status_period().map(|period| ("node_status_period".to_owned(), period));
        let without = cluster.nodes_without_driver().len();
        let without = (without > 0).then(|| ("nodes_without_driver".to_owned(), without.to_string()));
        let settling = ("settling_s".to_owned(), cluster.settling_time().as_secs().to_string());
        let faults = options.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let faults = (!faults.is_empty()).then(|| ("faults".to_owned(), faults));
        let arguments = options.arguments.as_deref().map(|arguments| {
            // The values of Secrets that are passed with --deployment may be in a driver's command line, too.
            ("arguments".to_owned(), cluster.known_secrets().hide(arguments).into_owned())
        });
        let kubernetes_version = cluster.client().apiserver_version().await?.git_version;
        let kubelets = kubelets(cluster.client(), &kubernetes_version).await?;
        let kubelets = kubelets.map(|kubelets| ("kubelets".to_owned(), kubelets));
        let since = |stamp: Stamp| format!("{:.3}", stamp.seconds_since(options.started));
        let info = RunInfo {
            schema: RunInfo::SCHEMA,
            cases: planned.len(),
            cluster: options.place.kind(),
            driver: cluster.driver_name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kubernetes_version,
            // A load exercises volumes, not individual capabilities.
            capabilities: match work {
                Work::Cases => {
                    capabilities(&planned, cluster.declared(), options.place.config().map(Arc::as_ref))
                }
                Work::Load => Vec::new(),
            },
            environment: BTreeMap::from_iter(
                [
                    ("api_ready_s".to_owned(), since(cluster.api_server().map_or(ready, |api| api.ready))),
                    ("nodes".to_owned(), cluster.nodes().len().to_string()),
                    ("parallel".to_owned(), options.parallel.to_string()),
                    ("nodes_ready_s".to_owned(), since(ready)),
                    (
                        "processors".to_owned(),
                        std::thread::available_parallelism().map_or(0, usize::from).to_string(),
                    ),
                ]
                .into_iter()
                .chain(privilege_entry)
                .chain(controllers)
                .chain(sidecars)
                .chain(period)
                .chain(without)
                .chain(kubelets)
                .chain([settling])
                .chain(faults)
                .chain(arguments),
            ),
        };
        // Sending fails only if the reporter has stopped, which `finish` reports.
        let _ = events.send(Event::RunStarted(info));
        let session = Session::start(cluster, privilege, &prefix, events.clone()).await;
        let session = session.with_faults(options.faults.clone());
        let session =
            Arc::new(if options.otlp.is_some() { session.with_api_write_recording() } else { session });
        Ok(Started { session, prefix, folder, planned, serving })
    }

    /// Starts the cluster and the observers for a load instead of cases.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_load(
        options: &Options,
        privilege: Privilege,
        interrupted: CancellationToken,
    ) -> Result<Self> {
        Self::bring_up(options, Work::Load, privilege, interrupted).await
    }

    /// Runs a load; see [`load`](claimcheck_suites::load::load()).
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn load(&self, spec: Spec, blocks: Option<Blocks>) -> Result<()> {
        let namespace = self.runner.namespace("load");
        load(self.session.clone(), spec, blocks, namespace, self.interrupted.clone()).await
    }

    /// The cases of this run.
    pub fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// Runs one of them.
    pub async fn run(&self, planned: &Planned) -> CaseResult {
        self.runner.run(planned).await
    }

    /// Runs all of them.
    pub async fn run_all(&self) {
        self.runner.run_all(&self.planned).await;
    }

    /// Stops everything and writes the report.
    ///
    /// # Errors
    /// The reporter panicked.
    pub async fn finish(self, started: Stamp) -> Result<Outcome> {
        let interrupted = self.interrupted.is_cancelled();
        let last = |seconds| Event::RunFinished { seconds, interrupted };
        self.end(|| last(Stamp::now().seconds_since(started))).await
    }

    /// Stops everything, and reports that the run could not be completed.
    ///
    /// # Errors
    /// The reporter panicked.
    pub async fn abort(self, error: &anyhow::Error) -> Result<Outcome> {
        self.end(|| Event::RunAborted { reason: explain(error) }).await
    }

    /// Stops everything, and then reports the last event.
    async fn end(self, last: impl FnOnce() -> Event) -> Result<Outcome> {
        let Self { session, runner, events, reporting, folder, .. } = self;
        drop(runner);
        if let Err(error) = session.cluster().set_faults(&[]).await {
            // The results of the cases stand; what the faults prevent from being deleted is reported as leaked.
            tracing::warn!(error = format!("{error:#}"), "the injected faults cannot be removed");
        }
        session.finish().await;
        // Sending fails only if the reporter has stopped; its result has the reason.
        let _ = events.send(last());
        let reported = reporting.await.context("the reporter panicked")?;
        Ok(Outcome { reported, folder })
    }
}
