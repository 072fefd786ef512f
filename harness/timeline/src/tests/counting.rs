//! Checks counting against an oracle: the sets that calls enter and leave.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_csi::Code;
use claimcheck_model::{CsiMethod, Event, TransitionKind};
use proptest::prelude::*;

use super::{
    super::{Tap, Timeline},
    call, target, with_volume,
};
use crate::evidence::Observation;

/// A call of a made-up history: method, volume, node, target and whether it succeeds.
type Made = (usize, u8, u8, u8, bool);

const METHODS: [CsiMethod; 6] = [
    CsiMethod::ControllerPublishVolume,
    CsiMethod::NodeStageVolume,
    CsiMethod::NodePublishVolume,
    CsiMethod::NodeUnpublishVolume,
    CsiMethod::NodeUnstageVolume,
    CsiMethod::ControllerUnpublishVolume,
];

fn made(index: u64, &(method, volume, node, pod, succeeds): &Made) -> Observation {
    let target = if METHODS[method].as_str().contains("ublish") && method != 0 && method != 5 {
        target(&pod.to_string())
    } else {
        String::new()
    };
    let code = if succeeds { Code::Ok } else { Code::Internal };
    let call = call(METHODS[method], &format!("n{node}"), &target, 2 * index, Some((2 * index + 1, code)));
    with_volume(&format!("h{volume}"), call).into()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For all responses in any order: transitions are exactly the changes of the sets.
    #[test]
    fn transitions_are_the_changes_of_the_sets(
        history in prop::collection::vec((0usize..6, 0u8..2, 0u8..2, 0u8..2, any::<bool>()), 0..80)
    ) {
        let mut timeline = Timeline::new(Tap::Present);
        let mut counted: BTreeMap<TransitionKind, u64> = BTreeMap::new();
        let mut sets: [BTreeSet<(u8, u8, u8)>; 3] = Default::default();
        let mut expected: BTreeMap<TransitionKind, u64> = BTreeMap::new();
        for (index, call) in history.iter().enumerate() {
            for event in timeline.feed(&made(index as u64, call)) {
                if let Event::Transition(transition) = event {
                    *counted.entry(transition.kind).or_default() += 1;
                }
            }
            let (method, volume, node, pod, succeeds) = *call;
            if succeeds {
                use TransitionKind::{Attach, Detach, Mount, Stage, Unmount, Unstage};
                let (set, kind, enters) = match method {
                    0 => (0, Attach, true),
                    1 => (1, Stage, true),
                    2 => (2, Mount, true),
                    3 => (2, Unmount, false),
                    4 => (1, Unstage, false),
                    _ => (0, Detach, false),
                };
                let entry = (volume, node, if set == 2 { pod } else { 0 });
                let changed = if enters { sets[set].insert(entry) } else { sets[set].remove(&entry) };
                *expected.entry(kind).or_default() += u64::from(changed);
            }
        }
        expected.retain(|_, count| *count > 0);
        prop_assert_eq!(counted, expected);
    }
}
