//! Decides the next step of a load from the numbers of volumes. Pure.

/// The target of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The minimum number of volumes to create.
    pub volumes: usize,
    /// The number of concurrent volumes.
    pub concurrency: usize,
    /// The number of volumes per unit, created and deleted together because a pod uses all of them.
    pub unit_volumes: usize,
    /// No volume is deleted until all are up, and [`Self::concurrency`] limits the volumes in progress.
    pub hold: bool,
    /// Volumes are created until the time is over.
    pub churn: bool,
}

/// Numbers of volumes by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Created so far.
    pub created: usize,
    /// Being brought up.
    pub rising: usize,
    /// Up, or failed, and not being deleted yet.
    pub standing: usize,
    /// Being deleted.
    pub going: usize,
    /// With churn: the time is not over.
    pub time_left: bool,
    /// The load was interrupted.
    pub interrupted: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create a unit of this many volumes.
    Create(usize),
    /// Delete the oldest unit that is up.
    Remove,
    /// Wait for the next event.
    Wait,
    /// All is done.
    Done,
}

/// Decides the next step. Deletion has priority, since it frees capacity.
pub(super) fn next(target: &Target, progress: &Progress) -> Step {
    let missing = target.volumes.saturating_sub(progress.created);
    let churns = target.churn && progress.time_left;
    let more = !progress.interrupted && (missing > 0 || churns);
    let removable = !target.hold || (!more && progress.rising == 0 && progress.going < target.concurrency);
    if progress.standing > 0 && removable {
        return Step::Remove;
    }
    let volumes = if churns { target.unit_volumes } else { target.unit_volumes.min(missing) };
    let busy =
        if target.hold { progress.rising } else { progress.rising + progress.standing + progress.going };
    // A unit starts even if it exceeds the concurrency limit; otherwise it would never start.
    if more && (busy == 0 || busy + volumes <= target.concurrency) {
        return Step::Create(volumes);
    }
    if progress.rising + progress.standing + progress.going == 0 { Step::Done } else { Step::Wait }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Create, Done, Remove, Wait};

    const TEN: Target = Target { volumes: 10, concurrency: 4, unit_volumes: 1, hold: false, churn: false };
    const FROM: Progress =
        Progress { created: 0, rising: 0, standing: 0, going: 0, time_left: false, interrupted: false };

    #[test]
    fn decisions() {
        let three = Target { unit_volumes: 3, ..TEN };
        let hold = Target { hold: true, ..TEN };
        let churn = Target { volumes: 0, churn: true, ..TEN };
        let time_left = Progress { time_left: true, ..FROM };
        let table = [
            ("no volumes exist", TEN, FROM, Create(1)),
            ("below the limit", TEN, Progress { created: 3, rising: 2, going: 1, ..FROM }, Create(1)),
            ("at the limit", TEN, Progress { created: 4, rising: 3, going: 1, ..FROM }, Wait),
            ("one is up", TEN, Progress { created: 4, rising: 3, standing: 1, ..FROM }, Remove),
            ("all are created", TEN, Progress { created: 10, going: 1, ..FROM }, Wait),
            ("all are gone", TEN, Progress { created: 10, ..FROM }, Done),
            ("no volumes are requested", Target { volumes: 0, ..TEN }, FROM, Done),
            (
                "a unit of three does not fit in addition to two",
                three,
                Progress { created: 2, rising: 2, ..FROM },
                Wait,
            ),
            ("the last pod has fewer", three, Progress { created: 9, rising: 3, ..FROM }, Create(1)),
            ("a unit exceeds the limit", Target { unit_volumes: 9, ..TEN }, FROM, Create(9)),
            (
                "hold: volumes that are up do not count",
                hold,
                Progress { created: 8, rising: 3, standing: 5, ..FROM },
                Create(1),
            ),
            (
                "hold: no deletion before all are up",
                hold,
                Progress { created: 10, rising: 1, standing: 9, ..FROM },
                Wait,
            ),
            ("hold: all are up", hold, Progress { created: 10, standing: 10, ..FROM }, Remove),
            (
                "hold: the limit applies to deletion too",
                hold,
                Progress { created: 10, standing: 6, going: 4, ..FROM },
                Wait,
            ),
            (
                "hold: interrupted",
                hold,
                Progress { created: 5, standing: 5, interrupted: true, ..FROM },
                Remove,
            ),
            ("churn continues", churn, Progress { created: 99, going: 3, ..time_left }, Create(1)),
            ("the time is over", churn, Progress { created: 99, going: 3, ..FROM }, Wait),
            ("the time is over, too few were created", Target { churn: true, ..TEN }, FROM, Create(1)),
            ("churn ends", churn, Progress { created: 99, ..FROM }, Done),
            (
                "interrupted: existing volumes are deleted",
                TEN,
                Progress { created: 4, standing: 1, interrupted: true, ..FROM },
                Remove,
            ),
            (
                "interrupted: volumes in progress are waited for",
                TEN,
                Progress { created: 4, rising: 1, interrupted: true, ..FROM },
                Wait,
            ),
            ("interrupted: no more are created", churn, Progress { interrupted: true, ..time_left }, Done),
        ];
        for (what, target, progress, expected) in table {
            assert_eq!(next(&target, &progress), expected, "{what}");
        }
    }

    /// Whatever comes first, the volumes or their ends: never more at a time than allowed, and it ends with
    /// all made and all gone.
    #[test]
    fn every_order_ends_with_all_gone() {
        for (seed, hold, unit_volumes) in
            (0..64).flat_map(|seed| [(seed, false, 1), (seed, true, 3), (seed, false, 3)])
        {
            let target = Target { hold, unit_volumes, ..TEN };
            let (mut progress, mut random) = (FROM, seed * 2 + 1_u64);
            let mut units: Vec<usize> = Vec::new();
            let (mut rising, mut going) = (Vec::new(), Vec::new());
            loop {
                match next(&target, &progress) {
                    Create(volumes) => {
                        progress.created += volumes;
                        progress.rising += volumes;
                        rising.push(volumes);
                    }
                    Remove => {
                        let volumes = units.remove(0);
                        progress.standing -= volumes;
                        progress.going += volumes;
                        going.push(volumes);
                    }
                    Wait => {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let first = (random >> 40) & 1 == 0;
                        if going.is_empty() || (first && !rising.is_empty()) {
                            let volumes = rising.remove(0);
                            progress.rising -= volumes;
                            progress.standing += volumes;
                            units.push(volumes);
                        } else {
                            progress.going -= going.remove(0);
                        }
                    }
                    Done => break,
                }
                assert!(progress.rising <= 4 && progress.going <= 4 + 2, "{progress:?}");
                assert!(hold || progress.rising + progress.standing + progress.going <= 4, "{progress:?}");
            }
            assert_eq!(progress, Progress { created: 10, ..FROM });
        }
    }
}
