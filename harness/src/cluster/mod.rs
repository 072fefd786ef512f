//! Clusters: brought up, observed, disrupted, taken down.
//!
//! Suites reach one through a [`Session`](crate::Session): an API client, waits ([`Observer`]), and the one
//! door beside the API, [`Disruption`] of a [`Victim`]. They cannot tell which kind of cluster is behind it.

mod capabilities;
mod driver_command;
mod embedded;
mod further;
mod kind;
mod kind_disrupt;
#[cfg(test)]
mod kind_disrupt_tests;
#[cfg(test)]
mod kind_tests;
mod leaks;
mod node;
mod node_driver;
mod observer;
mod supervisor;

pub use driver_command::{DriverCommand, DriverCommandError};
pub use embedded::{Embedded, Options, UpError};
pub use further::{DeployError, FurtherDriver};
pub use kind::{Image, KindCluster, KindError, KindOptions};
pub use kind_disrupt::{DisruptError, Installed};
pub use observer::{Observer, On, Seen, WaitError};
pub use supervisor::{Disruption, Supervised};

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
