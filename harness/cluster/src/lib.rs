//! Clusters: brought up, observed, disrupted, taken down.
//!
//! Suites reach one through a [`Session`](crate::Session): an API client, waits ([`Observer`]), and the one
//! door beside the API, [`Disruption`] of a [`Victim`]. They cannot tell which kind of cluster is behind it:
//! what a kind cannot do it does not offer ([`Abilities`]), and the cases that need it are skipped.
//!
//! ```text
//! Cluster ─┬─ Embedded   virtual nodes, our components; API server: ours or stock (control_plane, stock)
//!          └─ Real       somebody's nodes; what a kubeconfig points to, or one that kind made
//! ```

mod api_disrupt;
mod call_faults;
mod capabilities;
mod control_plane;
mod controller_manager;
mod controllers;
mod dead_loops;
mod driver_command;
mod embedded;
mod equip;
pub mod faults;
mod further;
mod home;
mod installation;
#[cfg(test)]
mod installation_tests;
mod kind;
mod kind_disrupt;
#[cfg(test)]
mod kind_disrupt_tests;
mod kind_further;
mod kind_image;
mod kind_loops;
#[cfg(test)]
mod kind_tests;
mod leaks;
mod node;
mod node_driver;
mod objects;
mod observer;
mod on_kind;
#[cfg(test)]
mod on_kind_tests;
mod reach;
mod real;
mod said;
mod secrets;
mod stock;
mod supervisor;
mod unregistered;
pub mod usage;
pub mod yardstick;

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use claimcheck_csi::tap::{FaultAction, FaultRule, TapRecord};
use claimcheck_model::{ApiWrite, ComponentEnd, Leak, Log, Rule, Stamp};
use kube::Client;
use tokio::sync::mpsc;

pub use capabilities::{AskError, Asked, Declared, Takes, ask, declared_by};
pub use control_plane::{Api, ControlPlaneError};
pub use dead_loops::{DeadLoop, DeadLoopsError, detach_dead_loops};
pub use driver_command::{DriverCommand, DriverCommandError, Place as DriverPlace};
pub use embedded::{DriverPolicy, Embedded, Options, Telling, UpError};
pub use equip::EquipError;
pub use further::{DeployError, FurtherDriver, Turn};
pub use installation::{Install, InstallationError};
pub use kind::{Collected, KindCluster, KindError, KindOptions};
pub use kind_disrupt::{Components, DisruptError};
pub use kind_image::Image;
pub use observer::{Observer, On, Seen, WaitError};
pub use on_kind::{KIND_FAULTS, OnKindError};
pub use reach::Reach;
pub use real::{ClassChoice, Real, RealError, Target};
pub use stock::{Assets, AssetsError, StockError};
pub use supervisor::{Disruption, Supervised};

use crate::faults::FaultSpec;

/// What a disruptive case may hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The node agent of this node.
    NodeAgent(String),
    /// The driver's process on this node.
    Driver(String),
    /// The storage controllers.
    Controllers,
}

/// What a kind of cluster offers beside its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Driver and controllers can be stopped and killed.
    pub disrupt: bool,
    /// Node agents can.
    pub agents: bool,
    /// Components can be started again with other arguments.
    pub configure: bool,
    /// Further drivers can be brought up beside the first.
    pub further: bool,
    /// Every call to the driver is recorded, and can be made to fail.
    pub tap: bool,
    /// Attachments that nobody makes are taken back when the driver says that it needs none. Ours do; of
    /// Kubernetes' own attach/detach controller they stay, if the attach call timed out only after that: it can
    /// no longer note the volume as attached (`AddVolumeNode` in its `actual_state_of_world.go`).
    pub retracts: bool,
    /// The sidecars are those of kubernetes-csi. They may ask the driver's controller again for what it has done
    /// already: they decide by caches that need not show their own last write yet.
    pub upstream_sidecars: bool,
}

/// Faults that this cluster cannot have.
#[derive(Debug, thiserror::Error)]
pub enum NoFaults {
    /// Nobody can make them happen.
    #[error("--fault: {of} cannot be made to fail on this kind of cluster: use --cluster embedded")]
    NotHere {
        /// What.
        of: &'static str,
    },
    /// The file by which the nodes' drivers know them cannot be written.
    #[error("{} cannot be written, which says to the nodes' drivers which calls are to fail", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A running cluster.
pub enum Cluster {
    /// Virtual nodes on this machine.
    Embedded(Box<Embedded>),
    /// Real nodes.
    Real(Box<Real>),
}

impl Cluster {
    /// Whether its nodes share the processors of this process.
    pub fn is_on_this_machine(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Real(real) => real.is_kind(),
        }
    }

    /// What it offers beside its API.
    pub fn abilities(&self) -> Abilities {
        match self {
            Self::Embedded(_) => Embedded::ABILITIES,
            Self::Real(real) => real.abilities(),
        }
    }

    /// Which calls may come again though the first has succeeded. A real kubelet that was started again stages and
    /// publishes what it finds mounted; upstream's attacher decides by a cache that may be behind.
    pub fn repeatable_calls(&self) -> &'static [Rule] {
        const BY_KUBELETS: [Rule; 2] = [Rule::StageTwice, Rule::PublishTwice];
        const BY_SIDECARS_TOO: [Rule; 3] = [Rule::StageTwice, Rule::PublishTwice, Rule::AttachTwice];
        match self {
            Self::Embedded(_) => &[],
            Self::Real(real) if real.has_our_sidecars() => &BY_KUBELETS,
            Self::Real(_) => &BY_SIDECARS_TOO,
        }
    }

    /// How long a step of a case may take before it counts as one that never comes. Far above what any step
    /// takes: the latencies themselves are judged by thresholds over the report. A real kubelet looks at
    /// mounted ConfigMaps once a minute or two, and some backoffs of Kubernetes grow to two minutes.
    pub fn patience(&self) -> Duration {
        match self {
            Self::Embedded(embedded) if !embedded.controllers_are_stock() => Duration::from_secs(60),
            Self::Embedded(_) | Self::Real(_) => Duration::from_secs(240),
        }
    }

    /// A client with all rights that we have.
    pub fn client(&self) -> Client {
        match self {
            Self::Embedded(embedded) => embedded.client(),
            Self::Real(real) => real.client(),
        }
    }

    /// Everything that can be waited for.
    pub fn observer(&self) -> &Observer {
        match self {
            Self::Embedded(embedded) => embedded.observer(),
            Self::Real(real) => real.observer(),
        }
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        match self {
            Self::Embedded(embedded) => embedded.driver_name(),
            Self::Real(real) => real.driver_name(),
        }
    }

    /// The parameters that classes of the driver have here, beside those that a case is about.
    pub fn class_parameters(&self) -> BTreeMap<String, String> {
        match self {
            Self::Embedded(embedded) => embedded.class_parameters(),
            Self::Real(real) => real.class_parameters(),
        }
    }

    /// The nodes that pods with a volume of the driver can run on.
    pub fn reach(&self) -> &Reach {
        match self {
            Self::Embedded(embedded) => embedded.reach(),
            Self::Real(real) => real.reach(),
        }
    }

    /// The nodes that take pods and do not have the driver: a pod whose volume is not there yet could be put there.
    pub fn nodes_without_driver(&self) -> &[String] {
        match self {
            Self::Embedded(_) => &[],
            Self::Real(real) => real.without_driver(),
        }
    }

    /// How long what is being deleted may take to be gone before it counts as left behind. A stock control plane
    /// detaches a volume only after the kubelet has reported it as unused, which it does each 10 s by default, and
    /// sidecars wait longer after each failure.
    pub fn settling_time(&self) -> Duration {
        match self {
            Self::Embedded(embedded) if !embedded.controllers_are_stock() => Duration::from_secs(5),
            Self::Embedded(_) => Duration::from_secs(30),
            Self::Real(_) => Duration::from_secs(90),
        }
    }

    /// Their names.
    pub fn nodes(&self) -> Vec<String> {
        self.reach().nodes.clone()
    }

    /// What the driver declares, as far as it can be asked.
    pub fn declared(&self) -> &Declared {
        match self {
            Self::Embedded(embedded) => embedded.declared(),
            Self::Real(real) => real.declared(),
        }
    }

    /// Components that end by themselves; to be taken once, where they are ours to start.
    pub fn take_ends(&mut self) -> Option<mpsc::UnboundedReceiver<ComponentEnd>> {
        match self {
            Self::Embedded(embedded) => embedded.take_ends(),
            Self::Real(_) => None,
        }
    }

    /// When the API server began to answer, where it is ours to start.
    pub fn api_ready(&self) -> Option<Stamp> {
        match self {
            Self::Embedded(embedded) => Some(embedded.api_ready()),
            Self::Real(_) => None,
        }
    }

    /// The tap's records; to be taken once, where there is a tap.
    pub fn take_records(&mut self) -> Option<mpsc::UnboundedReceiver<TapRecord>> {
        match self {
            Self::Embedded(embedded) => embedded.take_records(),
            Self::Real(_) => None,
        }
    }

    /// What components write to the API, where they are ours and tell it; to be taken once.
    pub fn take_writes(&mut self) -> Option<mpsc::UnboundedReceiver<ApiWrite>> {
        match self {
            Self::Embedded(embedded) => embedded.take_writes(),
            Self::Real(_) => None,
        }
    }

    /// Puts these faults in force for the whole run, in place of all others.
    ///
    /// # Errors
    /// This kind of cluster cannot have them.
    pub async fn set_faults(&self, specs: &[FaultSpec]) -> Result<(), NoFaults> {
        match self {
            Self::Embedded(embedded) => embedded.set_faults(specs).await,
            Self::Real(real) => real.set_faults(specs).await,
        }
    }

    /// Whether requests to the API server are made to fail.
    pub fn api_is_spoilt(&self) -> bool {
        match self {
            Self::Embedded(embedded) => embedded.api_is_spoilt(),
            Self::Real(_) => false,
        }
    }

    /// Puts these faults of calls, which are `whose`, in place of those that were; before those of the run, and
    /// beside those of others. Without a tap nothing happens: cases that need it do not run there.
    pub async fn set_call_faults(&self, whose: &str, rules: Vec<FaultRule>) {
        match self {
            Self::Embedded(embedded) => embedded.set_call_faults(whose, rules).await,
            Self::Real(real) => real.set_call_faults(whose, rules).await,
        }
    }

    /// Has the driver on a node take its next call of `method` for a volume and not answer it, until the driver is
    /// killed. Those who wait for the call to begin end the faults of `whose` before they kill.
    ///
    /// # Errors
    /// The driver cannot be hit.
    pub async fn hold_call(
        &self,
        whose: &str,
        node: &str,
        method: &str,
        volume: &str,
    ) -> Result<(), DisruptError> {
        match self {
            // Calls are recorded where they are made: a paused driver takes one and cannot answer.
            Self::Embedded(_) => self.disrupt(&Victim::Driver(node.to_owned()), Disruption::Pause).await,
            // They are recorded in the driver's process, or the tap's: it has to run.
            Self::Real(real) => {
                let rule = FaultRule::new(method, FaultAction::Hang).on_volume(volume);
                real.set_call_faults(whose, vec![rule]).await;
                Ok(())
            }
        }
    }

    /// Disrupts a component; returns once it is hit.
    ///
    /// # Errors
    /// There is no such one, or it cannot be hit so.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        match self {
            Self::Embedded(embedded) if embedded.disrupt(victim, disruption).await => Ok(()),
            Self::Embedded(_) => Err(DisruptError::Absent(victim.clone())),
            Self::Real(real) => real.disrupt(victim, disruption).await,
        }
    }

    /// Brings up a further driver and waits for its turn; see [`Embedded::deploy`].
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    pub async fn deploy(&self, driver: &FurtherDriver) -> Result<Turn, DeployError> {
        match self {
            Self::Embedded(embedded) => embedded.deploy(driver).await,
            Self::Real(real) => real.deploy(driver).await,
        }
    }

    /// What of the things named by `of` is left on the host; see [`Embedded::host_leaks`]. Real nodes are not
    /// ours to look at: what is left there shows in their API objects.
    pub fn host_leaks(&self, of: &[String]) -> Vec<Leak> {
        match self {
            Self::Embedded(embedded) => embedded.host_leaks(of),
            Self::Real(_) => Vec::new(),
        }
    }

    /// Volumes that the drivers still have, where they can be asked.
    pub async fn backend_leaks(&self) -> Vec<Leak> {
        match self {
            Self::Embedded(embedded) => embedded.backend_leaks().await,
            Self::Real(_) => Vec::new(),
        }
    }

    /// Loop devices of the driver, and requests that the API server has answered, where they can be counted.
    pub fn counts(&self) -> (u64, Option<u64>) {
        match self {
            Self::Embedded(embedded) => embedded.counts(),
            Self::Real(_) => (0, None),
        }
    }

    /// What components have said about some objects, where they are ours: the lines that name one of them.
    pub async fn said_about(&self, names: &[String]) -> Vec<Log> {
        match self {
            Self::Embedded(embedded) => embedded.said_about(names).await,
            Self::Real(real) => real.said_about(names).await,
        }
    }

    /// Takes down what was brought up, in order; where something `failed`, with what real nodes have to say.
    pub async fn down(self, failed: bool) {
        match self {
            Self::Embedded(embedded) => embedded.down().await,
            Self::Real(real) => real.leave(failed).await,
        }
    }
}
