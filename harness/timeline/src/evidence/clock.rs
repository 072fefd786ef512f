//! The offsets of a node's clocks, which are required to compare times of the node with
//! local times.
//!
//! Two facts bound it. A response has the node's time between the local times of request and response; a record is
//! written before it arrives. So each query gives an interval, each record a one-sided bound, and all of
//! them are intersected. Monotonic clocks are compared, since they are never set; they drift
//! only like quartz clocks, and an older interval is widened accordingly.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use claimcheck_model::{ClockState, Stamp};

/// The maximum drift between two monotonic clocks: 100 ppm, several times the slew rate of a synchronised clock
/// in practice.
const DRIFT_PPM: i128 = 100;

/// A query and the node's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The local clocks at the request.
    pub asked: Stamp,
    /// The node's clocks at some time in between.
    pub node: Stamp,
    /// The local clocks at the response.
    pub answered: Stamp,
}

/// The estimate for a node's clocks.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Local minus node monotonic time, nanoseconds, as bounded by the best query.
    asked: Option<Interval>,
    /// The upper bound of the same from the fastest record.
    arrived: Option<Bound>,
    /// Node minus local wall clock, nanoseconds, at the newest reading.
    wall: Option<Wall>,
}

/// The clocks of all nodes, by the node's name. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Clocks(Arc<Mutex<HashMap<String, SharedClock>>>);

/// The shared estimate for a node's clocks.
#[derive(Clone, Debug, Default)]
pub struct SharedClock(Arc<Mutex<Clock>>);

impl Clocks {
    /// The clocks of a node.
    pub fn of(&self, node: &str) -> SharedClock {
        let mut clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.entry(node.to_owned()).or_default().clone()
    }
}

impl SharedClock {
    /// The estimate.
    pub fn lock(&self) -> MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    least: i128,
    most: i128,
    /// The local monotonic time.
    at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    most: i128,
    at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Wall {
    offset: i128,
    bound: i128,
}

impl Interval {
    fn aged(self, now: u64) -> Self {
        let drift = drift(self.at, now);
        Self { least: self.least - drift, most: self.most + drift, at: self.at }
    }
}

fn drift(from: u64, to: u64) -> i128 {
    i128::from(to.abs_diff(from)) * DRIFT_PPM / 1_000_000
}

impl Clock {
    /// Records a query and its response.
    pub fn asked(&mut self, reading: Reading) {
        let node = i128::from(reading.node.mono_ns);
        let (asked, answered) = (reading.asked.mono_ns, reading.answered.mono_ns);
        let new =
            Interval { least: i128::from(asked) - node, most: i128::from(answered) - node, at: answered };
        let old = self.asked.map(|old| old.aged(answered));
        // If the intervals are disjoint, the node was restarted.
        let common = old
            .map(|old| Interval { least: old.least.max(new.least), most: old.most.min(new.most), ..new })
            .filter(|common| common.least <= common.most);
        if old.is_some() && common.is_none() {
            self.arrived = None;
        }
        self.asked = Some(common.unwrap_or(new));
        let (before, after) = (i128::from(reading.asked.wall_ns), i128::from(reading.answered.wall_ns));
        let wall = i128::from(reading.node.wall_ns);
        self.wall = Some(Wall { offset: wall - (before + after) / 2, bound: (after - before).abs() / 2 });
    }

    /// Records that a line written at `node`, by the node's clocks, arrived at the local time `here`.
    pub fn arrived(&mut self, node: Stamp, here: Stamp) {
        let most = i128::from(here.mono_ns) - i128::from(node.mono_ns);
        let old = self.arrived.map(|old| old.most + drift(old.at, here.mono_ns));
        if old.is_none_or(|old| most <= old) {
            self.arrived = Some(Bound { most, at: here.mono_ns });
        }
    }

    /// Converts a time of the node to local time; none without an estimate. `now` is the local time.
    ///
    /// Without a response it is an upper bound.
    pub fn to_local(&self, node: Stamp, now: Stamp) -> Option<Stamp> {
        let mono = i128::from(node.mono_ns) + self.offset(now)?;
        let mono_ns = u64::try_from(mono).unwrap_or_default();
        // The local wall clock at that time: the node's may be wrong.
        let back = i128::from(now.mono_ns) - i128::from(mono_ns);
        let wall_ns = u64::try_from(i128::from(now.wall_ns) - back).unwrap_or_default();
        Some(Stamp { mono_ns, wall_ns })
    }

    fn offset(&self, now: Stamp) -> Option<i128> {
        let arrived = self.arrived.map(|bound| bound.most + drift(bound.at, now.mono_ns));
        let Some(asked) = self.asked.map(|asked| asked.aged(now.mono_ns)) else { return arrived };
        let most =
            arrived.filter(|most| *most >= asked.least).map_or(asked.most, |most| most.min(asked.most));
        Some(i128::midpoint(asked.least, most))
    }

    /// For the report: how far the node's wall clock is ahead of the local one, and the error bound of that and of the
    /// times of its records, in seconds; none without a response.
    pub fn known(&self, now: Stamp) -> Option<ClockState> {
        let (wall, asked) = (self.wall?, self.asked?.aged(now.mono_ns));
        let seconds = |nanos: i128| nanos as f64 / 1e9;
        let bound = wall.bound.max((asked.most - asked.least + 1) / 2);
        Some(ClockState::Known { ahead_seconds: seconds(wall.offset), bound_seconds: seconds(bound) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn stamp(mono_ns: u64, wall_ns: u64) -> Stamp {
        Stamp { mono_ns, wall_ns }
    }

    #[test]
    fn nothing_is_known_before_the_first_record() {
        let clock = Clock::default();
        assert_eq!(clock.to_local(stamp(1, 1), stamp(2, 2)), None);
        assert_eq!(clock.known(stamp(2, 2)), None);
    }

    #[test]
    fn a_record_alone_is_at_most_as_late_as_it_arrived() {
        let mut clock = Clock::default();
        // The node booted 100 s after this machine; 30 ms round trip, then 10 ms.
        clock.arrived(stamp(5 * SECOND, 0), stamp(105 * SECOND + 30_000_000, 0));
        clock.arrived(stamp(6 * SECOND, 0), stamp(106 * SECOND + 10_000_000, 0));
        clock.arrived(stamp(7 * SECOND, 0), stamp(107 * SECOND + 90_000_000, 0));
        let local =
            clock.to_local(stamp(6 * SECOND, 0), stamp(106 * SECOND + 10_000_000, 7 * SECOND)).unwrap();
        assert_eq!(local, stamp(106 * SECOND + 10_000_000, 7 * SECOND));
        assert_eq!(clock.known(stamp(0, 0)), None, "the offset of the clocks is not known");
    }

    #[test]
    fn the_report_has_the_offset_of_the_wall_clock_and_its_bound() {
        let mut clock = Clock::default();
        let wall = 1_000 * SECOND;
        let (asked, answered) = (stamp(SECOND, wall), stamp(SECOND + 4_000_000, wall + 4_000_000));
        clock.asked(Reading { asked, node: stamp(50, wall + 3 * SECOND + 2_000_000), answered });
        let known = |bound_seconds| Some(ClockState::Known { ahead_seconds: 3.0, bound_seconds });
        assert_eq!(clock.known(answered), known(0.002));
        // An hour later without queries, the clock is known to within 0.36 s.
        assert_eq!(clock.known(stamp(answered.mono_ns + 3_600 * SECOND, 0)), known(0.362));
    }

    #[test]
    fn a_restarted_node_restarts_its_clock() {
        let mut clock = Clock::default();
        let reading = |at: u64, node: u64| Reading {
            asked: stamp(at, at),
            node: stamp(node, 0),
            answered: stamp(at + 2_000_000, at + 2_000_000),
        };
        clock.asked(reading(10 * SECOND, 500 * SECOND));
        clock.arrived(stamp(501 * SECOND, 0), stamp(11 * SECOND, 0));
        clock.asked(reading(20 * SECOND, 3 * SECOND));
        let local = clock.to_local(stamp(4 * SECOND, 0), stamp(22 * SECOND, 22 * SECOND)).unwrap();
        assert_eq!(local.mono_ns, 21 * SECOND + 1_000_000);
    }

    proptest! {
        /// For all latencies of queries, responses and records, the true offset is within the bound.
        #[test]
        fn the_truth_lies_within_the_bound(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            present in prop::collection::vec(0u64..50_000_000, 1..6),
            back in prop::collection::vec(0u64..50_000_000, 1..6),
            late in prop::collection::vec(0u64..50_000_000, 0..6),
        ) {
            let node = |local: u64| stamp(u64::try_from(local as i64 - offset).unwrap(), 0);
            let mut clock = Clock::default();
            let mut at = 2_000 * SECOND;
            for (present, back) in present.iter().zip(&back) {
                let (read, answered) = (at + present, at + present + back);
                clock.asked(Reading { asked: stamp(at, at), node: node(read), answered: stamp(answered, answered) });
                at = answered + 1;
            }
            for late in late {
                clock.arrived(node(at), stamp(at + late, at + late));
                at += late + 1;
            }
            let now = stamp(at, at);
            let Some(ClockState::Known { bound_seconds, .. }) = clock.known(now) else { panic!("it answered") };
            let bound = bound_seconds * 1e9 + 1.0;
            let local = clock.to_local(node(at), now).unwrap();
            let off = local.mono_ns.abs_diff(at).max(local.wall_ns.abs_diff(at));
            prop_assert!(off as f64 <= bound, "{off} ns off, and the bound is {bound}");
        }
    }
}
