//! By how much one machine was slower than the other, or than itself an hour before.

use super::read::Side;

/// How much faster times grow than the yardstick's: its work hits caches that real work misses. Of 91 loads of 200
/// volumes on one machine, whose yardstick's cost varied by 14 % (its standard deviation), the processor time of the
/// load was its power of 1.1 to 1.3, and the means of its phases that of 1.0 to 2.0; both correlate with it (0.92
/// and 0.6 to 0.9).
const GROWTH: f64 = 1.5;

/// As a factor of times; none where a run of either side does not say.
pub(super) fn between(sides: [&Side; 2]) -> Option<f64> {
    let mean = |side: &Side| {
        let costs: Option<Vec<f64>> =
            side.runs.iter().map(|run| run.summary.pace.map(|pace| pace.mean())).collect();
        costs.filter(|costs| !costs.is_empty()).map(|costs| costs.iter().sum::<f64>() / costs.len() as f64)
    };
    let [a, b] = sides.map(mean);
    Some((b? / a?).powf(GROWTH))
}
