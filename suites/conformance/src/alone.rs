//! Why some cases run alone: they affect all other cases, or other cases affect what they check.

use claimcheck_engine::Schedule;

/// The reason for which no other case runs at the same time. All other cases use their own names, volumes and paths
/// only, so that they run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// It reads lists of all volumes or snapshots: pages may be wrong while others are created and deleted. Some drivers
    /// also check each volume that they list, so that a list of the volumes of all cases would block the other calls.
    ListsAll,
    /// It compares the free capacity before and after its own calls.
    ComparesCapacity,
    /// It attaches volumes up to the limit of the node.
    FillsNode,
    /// It attaches more volumes at a time than the part of the node's limit that a concurrent case has.
    AttachesMany,
    /// It kills the driver: calls of other cases would be lost.
    KillsDriver,
    /// It counts the open file descriptors of the driver, which calls of other cases change.
    CountsDescriptors,
    /// It creates or deletes a volume with a name or id that drivers use as a path: if one does not validate it, it may
    /// fail in all later calls, or delete the directory of all volumes.
    MayBreak,
    /// It checks what all other cases have observed, and runs after them.
    ChecksRun,
}

impl Alone {
    /// The phase in which the case runs.
    pub const fn schedule(self) -> Schedule {
        match self {
            Self::MayBreak | Self::ChecksRun => Schedule::Last,
            Self::ListsAll
            | Self::ComparesCapacity
            | Self::FillsNode
            | Self::AttachesMany
            | Self::KillsDriver
            | Self::CountsDescriptors => Schedule::Serial,
        }
    }

    /// The reason, as text.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ListsAll => "it reads lists of all volumes or snapshots, which other cases change",
            Self::ComparesCapacity => "it compares capacities, which other cases change",
            Self::FillsNode => "it attaches volumes up to the limit of the node",
            Self::AttachesMany => "it attaches many volumes at a time, and nodes have limits",
            Self::KillsDriver => "it kills the driver",
            Self::CountsDescriptors => "it counts open file descriptors of the driver",
            Self::MayBreak => "a driver that does not validate its request may fail in all later calls",
            Self::ChecksRun => "it checks what all other cases have observed",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use claimcheck_engine::Case as _;

    use super::*;
    use crate::{catalogue, need::Need};

    /// Every case that runs alone has a reason, and runs in the phase of that reason.
    #[test]
    fn cases_run_alone_for_a_reason() {
        for case in catalogue() {
            match case.row.alone {
                Some(alone) => assert_eq!(case.row.schedule, alone.schedule(), "{}", case.id()),
                None => assert!(
                    matches!(case.row.schedule, Schedule::First | Schedule::Parallel),
                    "{}: use Row::alone, with the reason",
                    case.id()
                ),
            }
            if case.row.needs.contains(&Need::Restart) {
                assert_eq!(case.row.alone, Some(Alone::KillsDriver), "{}", case.id());
            }
        }
    }

    /// Each reason applies to few cases. A case that kills the driver runs with each access type.
    #[test]
    fn few_cases_run_alone() {
        let (mut by_reason, mut all) = (BTreeMap::<&str, Vec<String>>::new(), 0);
        for case in catalogue() {
            all += 1;
            if let Some(alone) = case.row.alone {
                by_reason.entry(alone.reason()).or_default().push(case.id().to_string());
            }
        }
        let alone: usize = by_reason.values().map(Vec::len).sum();
        assert!(alone * 8 < all, "{alone} of {all} cases run alone: {by_reason:#?}");
        for (reason, sums) in [
            (Alone::ListsAll, 16),
            (Alone::ComparesCapacity, 1),
            (Alone::FillsNode, 1),
            (Alone::AttachesMany, 2),
            (Alone::CountsDescriptors, 1),
            (Alone::MayBreak, 6),
            (Alone::ChecksRun, 7),
        ] {
            let cases = by_reason.get(reason.reason()).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(cases.len(), sums, "{reason:?}: {cases:?}");
        }
    }
}
