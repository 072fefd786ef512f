//! Facts: times at which a condition became true, and the measurement of a phase between two of them.

use claimcheck_model::{Source, Stamp};

use crate::UNSEEN;

/// A condition became true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    /// When it was observed.
    pub at: Stamp,
    /// The resourceVersion of the object that shows it; none if it is not from an object.
    pub version: Option<u64>,
    /// How it was observed.
    pub source: Source,
}

impl Fact {
    /// A fact from an object of `version`.
    pub fn watched(at: Stamp, version: Option<u64>) -> Self {
        Self { at, version, source: Source::Watch }
    }

    /// A fact from a call or a mount table.
    pub fn unversioned(at: Stamp, source: Source) -> Self {
        Self { at, version: None, source }
    }

    /// Whether it became true after `other`: by version if both have one, since watches of different
    /// kinds are not ordered among each other, else by time.
    pub fn is_after(&self, other: &Self) -> bool {
        match (self.version, other.version) {
            (Some(mine), Some(theirs)) => mine > theirs,
            _ => self.at.mono_ns > other.at.mono_ns,
        }
    }
}

/// When the last of `preconditions` was met; none while one of them is not.
pub(super) fn latest(preconditions: impl IntoIterator<Item = Option<Fact>>) -> Option<Fact> {
    preconditions.into_iter().try_fold(None, |latest: Option<Fact>, fact| {
        let fact = fact?;
        Some(Some(latest.filter(|l| !fact.is_after(l)).unwrap_or(fact)))
    })?
}

/// As [`latest`], of ends of objects. One that was missing in a list ended at an unknown time, and its version is an older
/// one: it may have been the last.
pub(super) fn latest_end(ends: impl IntoIterator<Item = Option<Fact>>) -> Option<Fact> {
    let ends: Vec<Option<Fact>> = ends.into_iter().collect();
    let unseen = ends.iter().flatten().find(|end| end.at == UNSEEN).copied();
    latest(ends).map(|last| unseen.unwrap_or(last))
}

/// The last of those `facts` that are known.
pub(super) fn last_known(facts: impl IntoIterator<Item = Option<Fact>>) -> Option<Fact> {
    latest(facts.into_iter().filter(Option::is_some))
}

/// An interval of monotonic time, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    /// From one time to another; empty if they are in reverse order.
    pub fn between(start: Stamp, end: Stamp) -> Self {
        Self { start: start.mono_ns.min(end.mono_ns), end: end.mono_ns }
    }

    /// Nanoseconds of it that at least one of `others` covers.
    pub fn covered_by(self, others: impl IntoIterator<Item = Span>) -> u64 {
        let mut inside: Vec<Span> = others
            .into_iter()
            .map(|o| Span { start: o.start.max(self.start), end: o.end.min(self.end) })
            .filter(|o| o.start < o.end)
            .collect();
        inside.sort_unstable();
        let mut covered = 0;
        let mut reached = self.start;
        for span in inside {
            covered += span.end.saturating_sub(span.start.max(reached));
            reached = reached.max(span.end);
        }
        covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(at: u64, version: Option<u64>) -> Fact {
        Fact { at: Stamp { mono_ns: at, wall_ns: at }, version, source: Source::Watch }
    }

    #[test]
    fn the_last_precondition_is_the_one_with_the_highest_version() {
        let (early, late) = (fact(9, Some(1)), fact(5, Some(2)));
        assert_eq!(latest([Some(early), Some(late)]), Some(late));
        assert_eq!(latest([Some(late), Some(early)]), Some(late));
        assert_eq!(latest([Some(late), None]), None);
        assert_eq!(latest([]), None);
        assert_eq!(last_known([None, Some(early)]), Some(early));
    }

    #[test]
    fn an_end_that_was_not_observed_may_be_the_last() {
        let (unseen, late) = (Fact::watched(UNSEEN, Some(1)), fact(5, Some(2)));
        assert_eq!(latest_end([Some(late), Some(unseen)]), Some(unseen));
        assert_eq!(latest_end([Some(unseen), None]), None);
        assert_eq!(latest_end([Some(fact(4, Some(1))), Some(late)]), Some(late));
    }

    #[test]
    fn without_versions_time_decides() {
        let (call, object) = (fact(7, None), fact(6, Some(3)));
        assert_eq!(latest([Some(call), Some(object)]), Some(call));
    }

    #[test]
    fn overlapping_spans_are_counted_once() {
        let whole = Span { start: 10, end: 20 };
        let parts = [Span { start: 5, end: 12 }, Span { start: 11, end: 14 }, Span { start: 18, end: 30 }];
        assert_eq!(whole.covered_by(parts), 6);
        assert_eq!(whole.covered_by([]), 0);
        assert_eq!(whole.covered_by([Span { start: 0, end: 99 }]), 10);
    }
}
