//! Which volumes wait, for what, and why; and objects that remain although nothing uses them.
//!
//! ```text
//! Inventory ─plan─> rows without messages ─> Messages (Events of these objects) ─events─> those about the phase
//!                                                                       ─cause─> rows with cause and remedy
//! ```
//!
//! Everything here is pure and needs no history, so a single look at a cluster has the same result as a monitor; one
//! that observed the start of a phase has its exact time.

mod cause;
mod events;
mod facts;
mod leftover;
mod open;
mod plan;
#[cfg(test)]
mod remedy_tests;
mod row;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use claimcheck_model::{Phase, Stamp};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cause::Cause;
pub(crate) use leftover::claim_of;
pub use leftover::{Leftover, LeftoverKind};
pub(crate) use open::Open;
pub use plan::plan;
pub(crate) use plan::plan_open;

/// The version of the schema of [`Status`] in JSON.
pub(super) const SCHEMA: u32 = 1;

/// A volume that waits for the end of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The namespace of its claim; empty if no claim refers to it.
    pub namespace: String,
    /// The name of its claim; empty if no claim refers to it.
    pub claim: String,
    /// The PersistentVolume; empty until it exists.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub volume: String,
    /// The pod that waits; empty if none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The node; empty if the phase has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The phase.
    pub phase: Phase,
    /// The driver's name; empty if it is not known.
    pub driver: String,
    /// The storage class; empty for none.
    pub storage_class: String,
    /// The start of the phase, or the latest time that its objects contain; absent if they contain none.
    pub since: Option<Timestamp>,
    /// Seconds since then; 0 if that is not known.
    pub seconds: f64,
    /// Whether it waits longer than the limit, for something that does not occur by itself.
    pub stuck: bool,
    /// The last Event or error, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The cause.
    pub cause: Cause,
    /// What usually helps.
    pub remedy: String,
    /// The uid of the claim; empty if it does not exist.
    #[serde(skip)]
    pub claim_uid: String,
    /// The objects with Events about it, the most specific first.
    #[serde(skip)]
    pub involved: Vec<Involved>,
}

/// A kind of object that Events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InvolvedKind {
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A Pod.
    Pod,
    /// A VolumeSnapshot.
    Snapshot,
}

impl InvolvedKind {
    /// The kind in `involvedObject`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claim => "PersistentVolumeClaim",
            Self::Volume => "PersistentVolume",
            Self::Pod => "Pod",
            Self::Snapshot => "VolumeSnapshot",
        }
    }
}

/// An object that Events are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Involved {
    /// Its kind.
    pub kind: InvolvedKind,
    /// The namespace of its Events.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
}

/// An Event of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The time of the last occurrence.
    pub at: Timestamp,
    /// Whether it is a Warning.
    pub is_warning: bool,
    /// `FailedAttachVolume`, ...
    pub reason: String,
    /// The text.
    pub text: String,
}

/// The last Events of objects, the latest first, by uid. An object without Events has none; one that is missing was not
/// read.
pub type Messages = BTreeMap<String, Vec<Message>>;

/// The present time, and when a wait counts as stuck.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The present time by the clock of the API server, which wrote the times of objects.
    pub now: Timestamp,
    /// The same by the clocks of this machine, which observed changes.
    pub stamp: Stamp,
    /// The limit.
    pub stuck_after: SignedDuration,
}

impl Clock {
    /// Now, with a clock of the API server that is so far ahead of that of this machine.
    pub fn new(ahead: SignedDuration, stuck_after: SignedDuration) -> Self {
        let stamp = Stamp::now();
        let local = Timestamp::from_nanosecond(i128::from(stamp.wall_ns)).unwrap_or_default();
        Self { now: local.checked_add(ahead).unwrap_or(local), stamp, stuck_after }
    }

    /// At a time, with clocks that are equal.
    #[cfg(test)]
    pub(crate) fn at(now: Timestamp, stuck_after: SignedDuration) -> Self {
        let nanoseconds = u64::try_from(now.as_nanosecond()).expect("it is after 1970");
        Self { now, stamp: Stamp { mono_ns: nanoseconds, wall_ns: nanoseconds }, stuck_after }
    }

    /// Seconds since a time; 0 if it is not known, or in the future.
    pub fn seconds(&self, since: Option<Timestamp>) -> f64 {
        since.map_or(0.0, |since| self.now.duration_since(since).as_secs_f64().max(0.0))
    }

    /// Whether a time is longer ago than the limit.
    pub fn is_over(&self, since: Option<Timestamp>) -> bool {
        since.is_some_and(|since| self.now.duration_since(since) > self.stuck_after)
    }

    /// When something was observed, by the clock of the API server. The time since then is that of the monotonic clock,
    /// which is never set.
    pub fn time_of(&self, observed: Stamp) -> Timestamp {
        let since = self.stamp.mono_ns.saturating_sub(observed.mono_ns);
        let since = SignedDuration::from_nanos(i64::try_from(since).unwrap_or(i64::MAX));
        self.now.checked_sub(since).unwrap_or(Timestamp::MIN)
    }
}

/// A cluster's volumes that wait, and what remains unused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of this schema; 0 if it is older than versions. Fields may be added under the same version.
    #[serde(default)]
    pub version: u32,
    /// When.
    pub at: Timestamp,
    /// The limit in seconds after which a wait counts as stuck.
    pub stuck_after_seconds: f64,
    /// The number of claims.
    pub claims: usize,
    /// The number of volumes.
    pub volumes: usize,
    /// The volumes that wait: stuck ones first, then by the duration of the wait.
    pub waiting: Vec<Waiting>,
    /// Objects that nothing uses.
    pub leftovers: Vec<Leftover>,
    /// What limits this: kinds that cannot be watched now, and parts of the scope that match nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Status {
    /// The first line of table and page.
    pub fn headline(&self) -> String {
        let stuck = self.waiting.iter().filter(|row| row.stuck).count();
        format!(
            "{}, {}: {} waiting, {stuck} of them stuck for more than {}; {}",
            counted(self.claims, "claim"),
            counted(self.volumes, "volume"),
            self.waiting.len(),
            age(self.stuck_after_seconds),
            counted(self.leftovers.len(), "unused object")
        )
    }
}

/// `1 claim`, `2 claims`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The number of waiting rows and the age of the oldest in seconds, by phase, driver and class. Claims that wait for a
/// first consumer are not in a phase, and neither are those that are deleted once their pods end.
pub(crate) fn counts(status: &Status) -> BTreeMap<(Phase, &str, &str), (u64, f64)> {
    let mut counts: BTreeMap<_, (u64, f64)> = BTreeMap::new();
    for row in status.waiting.iter().filter(|row| row.cause.is_abnormal() || row.stuck) {
        let count = counts.entry((row.phase, &*row.driver, &*row.storage_class)).or_default();
        *count = (count.0 + 1, count.1.max(row.seconds));
    }
    counts
}

/// The number of stuck rows, by phase, driver, class and cause.
pub(crate) fn stuck_counts(status: &Status) -> BTreeMap<(Phase, &str, &str, Cause), u64> {
    let mut counts = BTreeMap::new();
    for row in status.waiting.iter().filter(|row| row.stuck) {
        *counts.entry((row.phase, &*row.driver, &*row.storage_class, row.cause)).or_default() += 1;
    }
    counts
}

/// The number of unused objects of each kind, also of those without any: their series then exist, and are 0.
pub(crate) fn unused_counts(status: &Status) -> BTreeMap<LeftoverKind, u64> {
    let mut counts = BTreeMap::from(LeftoverKind::ALL.map(|kind| (kind, 0)));
    for leftover in &status.leftovers {
        *counts.entry(leftover.kind).or_default() += 1;
    }
    counts
}

/// A duration in seconds as kubectl prints it: `45s`, `12m`, `3h05m`, `4d`.
pub fn age(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..120 => format!("{whole}s"),
        120..7200 => format!("{}m", whole / 60),
        7200..172_800 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d", whole / 86_400),
    }
}

/// A status with one row of each form, for the tests of table and page.
#[cfg(test)]
pub(crate) fn example() -> Status {
    let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(100_000);
    let row = |claim: &str, phase, cause: Cause| Waiting {
        namespace: "default".into(),
        claim: claim.into(),
        volume: String::new(),
        pod: String::new(),
        node: String::new(),
        phase,
        driver: "csi.test".into(),
        storage_class: "fast".into(),
        since: None,
        seconds: 0.0,
        stuck: false,
        message: None,
        cause,
        remedy: cause.remedy().into(),
        claim_uid: String::new(),
        involved: Vec::new(),
    };
    let stuck = Waiting {
        pod: "web".into(),
        node: "n1".into(),
        since: Some(at - SignedDuration::from_secs(600)),
        seconds: 600.0,
        stuck: true,
        message: Some("FailedMount: secret \"<b>\" not found".into()),
        ..row("data", Phase::Publish, Cause::MissingSecret)
    };
    let leftover = Leftover {
        kind: LeftoverKind::VolumeWithoutClaim,
        object: "old".into(),
        detail: "claim default/gone no longer exists, and the reclaim policy is Retain".into(),
        since: Some(at - SignedDuration::from_secs(6000)),
    };
    Status {
        version: SCHEMA,
        at,
        stuck_after_seconds: 300.0,
        claims: 2,
        volumes: 1,
        waiting: vec![stuck, row("unused", Phase::Provision, Cause::FirstConsumer)],
        leftovers: vec![leftover],
        notes: vec!["Pod cannot be watched: <i>connection refused</i>".into()],
    }
}
