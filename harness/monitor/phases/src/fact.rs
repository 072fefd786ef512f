//! Times at which a condition became true, and the outcome of a phase between two of them. Pure.

use claimcheck_model::{Outcome, Source, Stamp};

/// When a condition became true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At this time: its change was observed.
    At(Stamp),
    /// At this time or earlier: it was true when it was first observed, as in a list.
    By(Stamp),
}

impl Moment {
    /// The time, or its upper bound.
    pub fn stamp(self) -> Stamp {
        match self {
            Self::At(stamp) | Self::By(stamp) => stamp,
        }
    }
}

/// When the last of some preconditions was met; none while one of them is not.
///
/// A precondition that was met at an unknown time does not matter if another one was observed after it.
pub(super) fn latest(preconditions: impl IntoIterator<Item = Option<Moment>>) -> Option<Moment> {
    preconditions.into_iter().try_fold(None, |latest: Option<Moment>, next| {
        let next = next?;
        Some(Some(latest.map_or(next, |latest| later(latest, next))))
    })?
}

/// The last of those moments that are known.
pub(super) fn last_known(moments: impl IntoIterator<Item = Option<Moment>>) -> Option<Moment> {
    moments.into_iter().flatten().reduce(later)
}

fn later(one: Moment, other: Moment) -> Moment {
    match (one, other) {
        // Of equal times, that of a change is the better evidence.
        (Moment::At(at), Moment::By(by)) if at >= by => one,
        (Moment::By(by), Moment::At(at)) if at >= by => other,
        _ if other.stamp() > one.stamp() => other,
        _ => one,
    }
}

/// The first of some moments. It is not known exactly if one of them is not, since that may have been earlier.
pub(super) fn first(moments: impl IntoIterator<Item = Moment>) -> Option<Moment> {
    moments.into_iter().reduce(|one, other| {
        let stamp = one.stamp().min(other.stamp());
        match (one, other) {
            (Moment::At(_), Moment::At(_)) => Moment::At(stamp),
            (Moment::By(_), _) | (_, Moment::By(_)) => Moment::By(stamp),
        }
    })
}

/// The outcome of a phase; none while it may still change. `last` is true if nothing more will be observed of it.
///
/// As in the timeline, a precondition that is observed after the end counts as met at the end: watches lag.
pub(super) fn outcome(start: Option<Moment>, end: Option<Moment>, last: bool) -> Option<Outcome> {
    match (start, end) {
        // It was over when it was first observed.
        (_, Some(Moment::By(_))) => None,
        (Some(Moment::At(start)), Some(Moment::At(end))) => {
            let start = if start > end { end } else { start };
            Some(Outcome::Ok {
                start,
                end,
                source: Source::Mount,
                seconds: end.seconds_since(start),
                driver_seconds: None,
                overhead_seconds: None,
            })
        }
        (Some(Moment::By(_)), Some(Moment::At(_))) => Some(Outcome::Unobserved),
        (None, Some(Moment::At(_))) => last.then_some(Outcome::Unobserved),
        (Some(start), None) => last.then(|| Outcome::Aborted { start: start.stamp() }),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seconds: u64) -> Stamp {
        Stamp { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 }
    }

    fn at(seconds: u64) -> Moment {
        Moment::At(stamp(seconds))
    }

    fn by(seconds: u64) -> Moment {
        Moment::By(stamp(seconds))
    }

    #[test]
    fn the_last_precondition_is_known_if_it_was_observed_after_the_unknown_ones() {
        type Row<'a> = (&'a [Option<Moment>], Option<Moment>);
        let table: [Row<'_>; 8] = [
            (&[], None),
            (&[Some(at(1)), None], None),
            (&[Some(at(1)), Some(at(2))], Some(at(2))),
            (&[Some(at(2)), Some(at(1))], Some(at(2))),
            (&[Some(at(2)), Some(by(1))], Some(at(2))),
            (&[Some(by(2)), Some(at(2))], Some(at(2))),
            // It may have been met before or after the other.
            (&[Some(at(1)), Some(by(2))], Some(by(2))),
            (&[Some(by(3)), Some(at(1)), Some(by(2))], Some(by(3))),
        ];
        for (preconditions, expected) in table {
            assert_eq!(latest(preconditions.iter().copied()), expected, "{preconditions:?}");
        }
        assert_eq!(last_known([None, Some(at(1)), Some(by(2)), None]), Some(by(2)));
        assert_eq!(last_known([None]), None);
    }

    #[test]
    fn the_first_is_unknown_if_any_of_them_is() {
        let table: [(&[Moment], Option<Moment>); 4] = [
            (&[], None),
            (&[at(3), at(2)], Some(at(2))),
            (&[at(2), by(9)], Some(by(2))),
            (&[by(1), at(2)], Some(by(1))),
        ];
        for (moments, expected) in table {
            assert_eq!(first(moments.iter().copied()), expected, "{moments:?}");
        }
    }

    #[test]
    fn only_two_observed_times_are_a_duration() {
        let name = |start, end, last| outcome(start, end, last).map(|outcome| outcome.name());
        let table = [
            (Some(at(1)), Some(at(3)), false, Some("ok")),
            (Some(by(1)), Some(at(3)), false, Some("unobserved")),
            (Some(at(1)), Some(by(3)), true, None),
            (None, Some(by(3)), true, None),
            (None, Some(at(3)), false, None),
            (None, Some(at(3)), true, Some("unobserved")),
            (Some(at(1)), None, false, None),
            (Some(at(1)), None, true, Some("aborted")),
            (None, None, true, None),
        ];
        for (start, end, last, expected) in table {
            assert_eq!(name(start, end, last), expected, "{start:?} {end:?} {last}");
        }
        let seconds = |start, end| match outcome(Some(at(start)), Some(at(end)), false) {
            Some(Outcome::Ok { seconds, .. }) => seconds,
            other => panic!("{other:?}"),
        };
        // The second start was observed late.
        assert!((seconds(1, 3) - 2.0).abs() < 1e-9 && seconds(5, 3).abs() < 1e-9);
    }
}
