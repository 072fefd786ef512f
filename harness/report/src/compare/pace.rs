//! By how much one machine was slower than the other, or than itself an hour before.

use super::read::Side;

/// The power of the yardstick's cost by which times grow at most. Of 33 loads of 200 volumes on one machine, whose
/// yardstick's cost varied by 11 % (its standard deviation), the processor time of the load was its power of 1.0, and
/// so was the mean of all phases (they correlate, 0.97); single phases were that of 0.8 to 1.3.
const GROWTH: f64 = 1.3;

/// As a factor of times, at most; none where a run of either side does not say, or another work was timed.
pub(super) fn between(sides: [&Side; 2]) -> Option<f64> {
    let paces = || sides.into_iter().flat_map(|side| &side.runs).map(|run| run.summary.pace);
    let work = paces().next()??.work;
    if !paces().all(|pace| pace.is_some_and(|pace| pace.work == work)) {
        return None;
    }
    let [a, b] = sides.map(|side| {
        let costs = side.runs.iter().filter_map(|run| run.summary.pace).map(|pace| pace.mean());
        costs.sum::<f64>() / side.runs.len() as f64
    });
    Some((b / a).powf(GROWTH))
}
