//! Starts controllers by name, all on one shared cache.

use std::{fmt, str::FromStr, time::Duration};

use claimcheck_informer::{Informer, Kind, KindSet, Options as Watch};
use kube::Client;
use tokio::task::JoinSet;
use tracing::info;

use crate::{
    attachdetach, attacher, binder,
    context::{Context, Tuning},
    data_source_validator, ephemeral, expander, garbage,
    named::named,
    node_lifecycle,
    options::{Calls, Options},
    protection, provisioner, resizer, resync, rpc, scheduler, shell, snapshotter,
    throttle::limited,
};

/// Upstream: `pkg/controller/nodelifecycle/config/v1alpha1/defaults.go`.
const NODE_MONITOR_GRACE: Duration = Duration::from_secs(50);

/// The user agent of the shared cache, which lists and watches for all controllers of a process.
pub const CACHE_AGENT: &str = "claimcheck-controller";

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Binds claims and volumes.
    Binder,
    /// Creates and deletes volumes for claims.
    Provisioner,
    /// Attaches and detaches volumes (VolumeAttachment objects).
    AttachDetach,
    /// Executes attachments.
    Attacher,
    /// Emits events about claims that another component must expand.
    Expander,
    /// Expands volumes, and changes their attributes.
    Resizer,
    /// Chooses nodes for pods, with regard to their volumes.
    Scheduler,
    /// Protects claims, volumes and VolumeAttributesClasses while they are in use.
    Protection,
    /// Creates the claims of generic ephemeral volumes.
    Ephemeral,
    /// Deletes claims owned by deleted pods, where no garbage collector runs.
    Garbage,
    /// Detects unresponsive nodes, and evicts their pods.
    NodeLifecycle,
    /// Binds snapshots to their contents.
    SnapshotController,
    /// Calls the driver to create and delete snapshots.
    Snapshotter,
    /// Emits events about claims with a kind of data source that no VolumePopulator supports, where those are served.
    DataSourceValidator,
}

impl Name {
    /// The controllers of a whole cluster with an API server that has a garbage collector.
    pub const ALL: [Name; 12] = [
        Self::Binder,
        Self::Provisioner,
        Self::AttachDetach,
        Self::Attacher,
        Self::Expander,
        Self::Resizer,
        Self::Scheduler,
        Self::Protection,
        Self::Ephemeral,
        Self::NodeLifecycle,
        Self::SnapshotController,
        Self::Snapshotter,
    ];

    /// The controllers that run only if they are named.
    const OPTIONAL: [Name; 2] = [Self::Garbage, Self::DataSourceValidator];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Binder => "binder",
            Self::Provisioner => "provisioner",
            Self::AttachDetach => "attach-detach",
            Self::Attacher => "attacher",
            Self::Expander => "expander",
            Self::Resizer => "resizer",
            Self::Scheduler => "scheduler",
            Self::Protection => "protection",
            Self::Ephemeral => "ephemeral-volume",
            Self::NodeLifecycle => "node-lifecycle",
            Self::SnapshotController => "snapshot-controller",
            Self::Snapshotter => "snapshotter",
            Self::Garbage => "garbage",
            Self::DataSourceValidator => "data-source-validator",
        }
    }

    /// The first word of the user agent in its requests. Requests of the shared cache have [`CACHE_AGENT`].
    pub fn agent(self) -> String {
        format!("{}-{self}/{}", CACHE_AGENT, env!("CARGO_PKG_VERSION"))
    }

    /// The kinds of objects that it uses: its process must list and watch these, and no more.
    pub fn reads(self) -> KindSet {
        KindSet::of(match self {
            Self::Binder => &[Kind::Claim, Kind::Volume, Kind::Class, Kind::Pod],
            Self::Provisioner => &[
                Kind::Claim,
                Kind::Volume,
                Kind::Class,
                Kind::AttributesClass,
                Kind::Node,
                Kind::Attachment,
                Kind::CsiDriver,
                Kind::CsiNode,
                Kind::Capacity,
                Kind::Snapshot,
                Kind::SnapshotContent,
            ],
            Self::AttachDetach => {
                &[Kind::Claim, Kind::Volume, Kind::Pod, Kind::Node, Kind::Attachment, Kind::CsiDriver]
            }
            Self::Attacher => &[Kind::Volume, Kind::Attachment, Kind::CsiNode],
            Self::Expander => &[Kind::Claim, Kind::Volume],
            Self::Resizer => &[Kind::Claim, Kind::Volume, Kind::Pod, Kind::AttributesClass],
            Self::Scheduler => &[
                Kind::Claim,
                Kind::Volume,
                Kind::Class,
                Kind::Pod,
                Kind::Node,
                Kind::Attachment,
                Kind::CsiDriver,
                Kind::CsiNode,
                Kind::Capacity,
            ],
            Self::Protection => &[Kind::Claim, Kind::Volume, Kind::Pod, Kind::AttributesClass],
            Self::Ephemeral | Self::Garbage => &[Kind::Claim, Kind::Pod],
            Self::NodeLifecycle => &[Kind::Pod, Kind::Node, Kind::Lease],
            Self::SnapshotController => &[
                Kind::Claim,
                Kind::Volume,
                Kind::Snapshot,
                Kind::SnapshotContent,
                Kind::SnapshotClass,
                Kind::GroupSnapshot,
                Kind::GroupSnapshotContent,
                Kind::GroupSnapshotClass,
            ],
            Self::Snapshotter => &[
                Kind::SnapshotContent,
                Kind::SnapshotClass,
                Kind::GroupSnapshotContent,
                Kind::GroupSnapshotClass,
            ],
            Self::DataSourceValidator => &[Kind::Claim, Kind::Populator],
        })
    }

    /// Whether it calls a CSI driver, and so needs [`Options::csi_address`].
    pub fn needs_driver(self) -> bool {
        matches!(self, Self::Provisioner | Self::Attacher | Self::Resizer | Self::Snapshotter)
    }

    /// Whether upstream has it as a program of kubernetes-csi, with the flags of [`Calls`].
    pub fn is_sidecar(self) -> bool {
        self.needs_driver() || matches!(self, Self::SnapshotController | Self::DataSourceValidator)
    }

    /// The default of `--timeout` in upstream's sidecar (its `main.go`).
    pub fn timeout(self) -> Option<Duration> {
        let seconds = match self {
            Self::Provisioner | Self::Resizer => 10,
            Self::Attacher => 15,
            Self::Snapshotter => 60,
            Self::Binder
            | Self::AttachDetach
            | Self::Expander
            | Self::Scheduler
            | Self::Protection
            | Self::Ephemeral
            | Self::Garbage
            | Self::NodeLifecycle
            | Self::SnapshotController
            | Self::DataSourceValidator => return None,
        };
        Some(Duration::from_secs(seconds))
    }

    /// The default of `--resync-period` in upstream's sidecar (its `main.go`), or of `--resync` in the attacher's.
    pub fn resync(self) -> Duration {
        match self {
            Self::SnapshotController | Self::Snapshotter => Duration::from_secs(900),
            Self::Provisioner
            | Self::Attacher
            | Self::Resizer
            | Self::Binder
            | Self::AttachDetach
            | Self::Expander
            | Self::Scheduler
            | Self::Protection
            | Self::Ephemeral
            | Self::Garbage
            | Self::NodeLifecycle
            | Self::DataSourceValidator => resync::PERIOD,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut known = Self::ALL.into_iter().chain(Self::OPTIONAL);
        let found = known.find(|name| name.as_str() == text);
        match text {
            "selinux-warning" => Err(Error::Removed { name: "selinux-warning" }),
            _ => found.ok_or_else(|| Error::Unknown { name: text.to_owned() }),
        }
    }
}

/// Errors of the controllers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller does not exist.
    #[error(
        "there is no controller \"{name}\": use binder, provisioner, attach-detach, attacher, expander, resizer, scheduler, protection, ephemeral-volume, node-lifecycle, snapshot-controller, snapshotter, garbage, or data-source-validator"
    )]
    Unknown {
        /// The name in the request.
        name: String,
    },
    /// The controller existed in the release before.
    #[error("the controller {name} was removed: use that of kube-controller-manager")]
    Removed {
        /// Its name.
        name: &'static str,
    },
    /// The controller calls a driver, and none is configured.
    #[error("the {name} needs a CSI driver: set --csi-address to the path of its socket")]
    NoDriver {
        /// The controller.
        name: Name,
    },
    /// A controller ended by itself.
    #[error("the {name} failed")]
    Ended {
        /// The controller.
        name: Name,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The kinds of objects that a controller uses with these options.
fn reads(name: Name, options: &Options) -> KindSet {
    let more: &[Kind] = match name {
        Name::SnapshotController if options.distributed_snapshotting => &[Kind::Node],
        Name::Provisioner if options.provisioning.cross_namespace_sources => &[Kind::ReferenceGrant],
        _ => &[],
    };
    name.reads().union(KindSet::of(more))
}

/// Runs these controllers until `shutdown` resolves.
///
/// # Errors
/// If a controller that calls a driver is started without one, or a controller can never work with the driver.
/// An unreachable API server or driver is waited for.
pub async fn run(
    names: &[Name],
    client: Client,
    options: &Options,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    if let Some(name) = names.iter().find(|name| name.needs_driver() && options.csi_address.is_none()) {
        return Err(Error::NoDriver { name: *name });
    }
    let reads = names.iter().fold(KindSet::default(), |kinds, name| kinds.union(reads(*name, options)));
    let agent = format!("{CACHE_AGENT}/{}", env!("CARGO_PKG_VERSION"));
    let of_cache = match &options.accounts {
        Some(accounts) => accounts.for_cache(&client),
        None => client.clone(),
    };
    let informer = Informer::start(named(&of_cache, &agent), reads, &Watch::default());
    let mut running = JoinSet::new();
    for name in names {
        let client = match &options.accounts {
            Some(accounts) => accounts.for_controller(&client, *name),
            None => client.clone(),
        };
        let client = match options.requests {
            Some(limit) => limited(&named(&client, &name.agent()), limit),
            None => named(&client, &name.agent()),
        };
        let calls = Calls { timeout: options.calls.timeout.or(name.timeout()), ..options.calls };
        let resync = options.resync.unwrap_or(name.resync());
        let tuning = match name.is_sidecar() {
            true => Tuning { workers: calls.workers, backoff: calls.backoff, resync },
            false => Tuning { resync, ..Tuning::default() },
        };
        let context = |component: &str| {
            // A kind that cannot be listed must not prevent the work of controllers that do not use it.
            let informer = informer.for_user_of(self::reads(*name, options));
            let context = Context::new(client.clone(), informer, component);
            context.with_meter(options.meter.clone()).with_tuning(tuning)
        };
        start(*name, context, Options { calls, ..options.clone() }, &mut running);
    }
    let synced = async {
        informer.synced().await;
        options.meter.ready();
        std::future::pending().await
    };
    tokio::select! {
        () = shutdown => Ok(()),
        never = synced => never,
        Some(ended) = running.join_next() => match ended {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Ok(()),
        },
    }
}

/// The name of the driver that this controller calls. If it does not respond yet, this waits for it.
///
/// # Errors
/// If the options contain no address of a driver.
pub async fn driver_name(name: Name, options: &Options) -> Result<String, Error> {
    if options.csi_address.is_none() {
        return Err(Error::NoDriver { name });
    }
    let connected = rpc::connect(options, name.as_str()).await;
    let (_, info) = connected.map_err(|source| Error::Ended { name, source: source.into() })?;
    Ok(info.name)
}

/// Starts one of them. The event sources are upstream's component names, which users and dashboards search for.
fn start(
    name: Name,
    context: impl Fn(&str) -> Context,
    options: Options,
    running: &mut JoinSet<Result<(), Error>>,
) {
    info!(controller = %name, "starts");
    match name {
        Name::Binder => {
            let context = context("persistentvolume-controller");
            running.spawn(endless(shell::run(binder::Binder::new(&context), context)));
        }
        Name::Scheduler => {
            let context = context("default-scheduler").with_event_series("default-scheduler");
            let scoring = match options.capacity_scoring {
                true => scheduler::CapacityScoring::On,
                false => scheduler::CapacityScoring::Off,
            };
            running.spawn(endless(shell::run(scheduler::Scheduler::new(scoring), context)));
        }
        Name::Expander => {
            running.spawn(endless(shell::run(expander::Expander, context("volume_expand"))));
        }
        Name::Resizer => {
            running.spawn(ended(name, resizer::run(context("external-resizer"), options)));
        }
        Name::Ephemeral => {
            let context = context("ephemeral_volume");
            running.spawn(endless(shell::run(ephemeral::Ephemeral, context)));
        }
        Name::Garbage => {
            let claims = shell::run(garbage::Garbage, context("garbage-collector-controller"));
            let pods = shell::run(garbage::ForegroundPods, context("garbage-collector-controller"));
            running.spawn(endless(async {
                tokio::join!(claims, pods);
            }));
        }
        Name::NodeLifecycle => {
            let grace = options.node_monitor_grace.unwrap_or(NODE_MONITOR_GRACE);
            let controller = node_lifecycle::NodeLifecycle::new(grace);
            running.spawn(endless(shell::run(controller, context("node-controller"))));
        }
        Name::Protection => {
            let claims = protection::Claims::new(options.unused_since_time);
            let claims = shell::run(claims, context("pvc-protection-controller"));
            let volumes = shell::run(protection::Volumes, context("pv-protection-controller"));
            let classes = shell::run(protection::AttributesClasses, context("vac-protection-controller"));
            running.spawn(endless(async {
                tokio::join!(claims, volumes, classes);
            }));
        }
        Name::AttachDetach => {
            running.spawn(ended(name, attachdetach::run(context("attachdetach-controller"), options)));
        }
        Name::Provisioner => {
            running.spawn(ended(name, provisioner::run(context("external-provisioner"), options)));
        }
        Name::SnapshotController => {
            let context = context("snapshot-controller");
            let distribution = match options.distributed_snapshotting {
                true => snapshotter::snapshot_controller::Distribution::Nodes,
                false => snapshotter::snapshot_controller::Distribution::Central,
            };
            let contents = snapshotter::snapshot_controller::ContentOptions {
                distribution,
                source_volume_mode: options.provisioning.prevent_mode_conversion,
            };
            let snapshots = snapshotter::snapshot_controller::Snapshots::new(&context, contents);
            let snapshots = shell::run(snapshots, context.clone());
            let groups = snapshotter::snapshot_controller_groups::Groups::new(&context);
            let groups = shell::run(groups, context);
            running.spawn(endless(async {
                tokio::join!(snapshots, groups);
            }));
        }
        Name::DataSourceValidator => {
            let context = context("volume-data-source-validator");
            running.spawn(endless(data_source_validator::run(context)));
        }
        Name::Snapshotter => {
            running.spawn(ended(name, snapshotter::run(context("csi-snapshotter"), options)));
        }
        Name::Attacher => {
            running.spawn(ended(name, attacher::run(context("external-attacher"), options)));
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A controller that needs nothing but the API server, and so never ends by itself.
async fn endless(run: impl Future<Output = ()>) -> Result<(), Error> {
    run.await;
    Ok(())
}

async fn ended(name: Name, run: impl Future<Output = Result<(), AnyError>>) -> Result<(), Error> {
    run.await.map_err(|source| Error::Ended { name, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeouts_of_calls_are_those_of_upstream() {
        for (name, seconds) in [
            (Name::Provisioner, Some(10)),
            (Name::Attacher, Some(15)),
            (Name::Resizer, Some(10)),
            (Name::Snapshotter, Some(60)),
            (Name::SnapshotController, None),
            (Name::DataSourceValidator, None),
        ] {
            assert_eq!(name.timeout(), seconds.map(Duration::from_secs), "{name}");
        }
        assert!(Name::ALL.iter().all(|name| name.timeout().is_some() == name.needs_driver()));
        assert_eq!(Name::Attacher.resync(), Duration::from_secs(600));
        assert_eq!(Name::Snapshotter.resync(), Duration::from_secs(900));
    }
}
