//! Which phases were fast enough, counted by a histogram.
//!
//! A histogram counts the samples up to each of its boundaries and nothing in between, so a limit must be a boundary.
//! Interpolation would assume that samples are spread evenly between two boundaries. They are not: a driver that polls
//! its storage every 30 s has all its samples of the bucket from 25 s to 50 s near one value, and an interpolated
//! budget would be spent, or not, by an invention that no sample of the metric confirms. `histogram_quantile` does
//! interpolate, which is acceptable for a dashboard, but not for an alert that pages.

use claimcheck_model::metric::{MetricKind, PHASE_DURATION};

/// Durations come from nanoseconds, and boundaries from decimals.
const TOLERANCE: f64 = 1e-9;

/// The upper bounds of the buckets of phases, seconds.
fn boundaries() -> &'static [f64] {
    match PHASE_DURATION.kind {
        MetricKind::Histogram(boundaries) => boundaries,
        MetricKind::Counter | MetricKind::Gauge => &[],
    }
}

/// The matcher of the label `le` for samples of at most `max` seconds.
///
/// # Errors
/// No bucket ends there: the text names the nearest boundaries.
pub(super) fn le(max: f64) -> Result<String, String> {
    let all = boundaries();
    if let Some(found) = all.iter().find(|boundary| (**boundary - max).abs() < TOLERANCE) {
        // Prometheus 3 stores 1.0 for the 1 that is exposed.
        let is_whole = found.fract() == 0.0;
        return Ok(if is_whole { format!(r#"le=~"{found}|{found}.0""#) } else { format!(r#"le="{found}""#) });
    }
    let below = all.iter().rev().find(|boundary| **boundary < max);
    let above = all.iter().find(|boundary| **boundary > max);
    let nearest = [below, above].into_iter().flatten();
    let nearest: Vec<String> = nearest.map(|seconds| duration(*seconds)).collect();
    Err(format!(
        "max: {} is not a bucket boundary of {}, so the number of phases within it is not known: use {}",
        duration(max),
        PHASE_DURATION.name,
        nearest.join(" or ")
    ))
}

/// Seconds as an SLO file spells them: `2.5ms`, `500ms`, `120s`.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 1.0 { format!("{}ms", (seconds * 1e6).round() / 1e3) } else { format!("{seconds}s") }
}
