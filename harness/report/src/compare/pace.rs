//! The ratio of the machine speeds of the two sides, by calibration.

use super::read::Side;

/// The maximum exponent with which times grow with the cost of the calibration loop. Of 33 loads of 200 volumes on one
/// machine, on which that cost had a standard deviation of 11 %, the CPU time of the load grew with a power of 1.0, and
/// so was the mean of all phases (they correlate, 0.97); single phases were that of 0.8 to 1.3.
const GROWTH: f64 = 1.3;

/// The maximum factor of times; none if a run of either side has no calibration, or used another workload.
pub(super) fn between(sides: [&Side; 2]) -> Option<f64> {
    let paces = || sides.into_iter().flat_map(|side| &side.runs).map(|run| run.summary.calibration);
    let work = paces().next()??.work;
    if !paces().all(|pace| pace.is_some_and(|pace| pace.work == work)) {
        return None;
    }
    let [a, b] = sides.map(|side| {
        let costs = side.runs.iter().filter_map(|run| run.summary.calibration).map(|pace| pace.mean());
        costs.sum::<f64>() / side.runs.len() as f64
    });
    Some((b / a).powf(GROWTH))
}
