//! Timeouts of steps, with the names of upstream's `TimeoutContext` (`test/e2e/framework/timeouts.go`).

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// A timeout that a driver file can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Timeout {
    Poll,
    PodStart,
    PodStartShort,
    PodStartSlow,
    PodDelete,
    ClaimProvision,
    DataSourceProvision,
    ClaimProvisionShort,
    ClaimBound,
    #[serde(rename = "PVReclaim")]
    PvReclaim,
    #[serde(rename = "PVBound")]
    PvBound,
    #[serde(rename = "PVCreate")]
    PvCreate,
    #[serde(rename = "PVDelete")]
    PvDelete,
    #[serde(rename = "PVDeleteSlow")]
    PvDeleteSlow,
    SnapshotCreate,
    SnapshotDelete,
    SnapshotControllerMetrics,
    SystemPodsStartup,
    NodeSchedulable,
    SystemDaemonsetStartup,
    NodeNotReady,
}

impl Timeout {
    /// All of them.
    pub(super) const ALL: [Self; 21] = [
        Self::Poll,
        Self::PodStart,
        Self::PodStartShort,
        Self::PodStartSlow,
        Self::PodDelete,
        Self::ClaimProvision,
        Self::DataSourceProvision,
        Self::ClaimProvisionShort,
        Self::ClaimBound,
        Self::PvReclaim,
        Self::PvBound,
        Self::PvCreate,
        Self::PvDelete,
        Self::PvDeleteSlow,
        Self::SnapshotCreate,
        Self::SnapshotDelete,
        Self::SnapshotControllerMetrics,
        Self::SystemPodsStartup,
        Self::NodeSchedulable,
        Self::SystemDaemonsetStartup,
        Self::NodeNotReady,
    ];

    /// Whether a case uses this timeout. Cases neither poll nor wait for the cluster itself.
    pub(super) fn is_waited(self) -> bool {
        match self {
            Self::Poll
            | Self::SnapshotControllerMetrics
            | Self::SystemPodsStartup
            | Self::NodeSchedulable
            | Self::SystemDaemonsetStartup
            | Self::NodeNotReady => false,
            Self::PodStart
            | Self::PodStartShort
            | Self::PodStartSlow
            | Self::PodDelete
            | Self::ClaimProvision
            | Self::DataSourceProvision
            | Self::ClaimProvisionShort
            | Self::ClaimBound
            | Self::PvReclaim
            | Self::PvBound
            | Self::PvCreate
            | Self::PvDelete
            | Self::PvDeleteSlow
            | Self::SnapshotCreate
            | Self::SnapshotDelete => true,
        }
    }
}

/// Parses a Go duration: `90s`, `5m`, `1h30m`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok())
}
