//! Events on claims that wait longer than the threshold of their class (`--event-threshold`), at most one per claim and
//! hour. Off by default, since they require the right to create Events.

mod plan;
mod run;

pub(crate) use run::run;

/// The component that is the source of these Events.
pub(crate) const COMPONENT: &str = "claimcheck-monitor";
/// Their reason.
const REASON: &str = "ClaimWaits";
