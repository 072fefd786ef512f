//! The texts of a comparison, common to all formats: numbers, notes and warnings.

use super::{
    Comparison, Difference, Measure, PhaseLine, Unit, Verdict,
    bootstrap::{ENOUGH_PAIRS, ENOUGH_RUNS},
    phase::{ENOUGH, PhasePart},
};
use crate::human;

/// A time. Zero is valid: the time of `schedule` without the volumes that it waits for may be zero.
pub(super) fn time(seconds: f64) -> String {
    if seconds > 0.0 { human(seconds) } else { "0".to_owned() }
}

/// A difference of times.
pub(super) fn signed(seconds: f64) -> String {
    match seconds {
        s if s > 0.0 => format!("+{}", human(s)),
        s if s < 0.0 => format!("-{}", human(-s)),
        _ => "0".to_owned(),
    }
}

/// A relative difference.
pub(super) fn percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// Both sides of a time.
pub(super) fn both(times: [f64; 2]) -> String {
    times.map(time).join(" → ")
}

/// The verdict on a phase.
pub(super) fn phase_verdict(line: &PhaseLine) -> String {
    let word = line.verdict.words();
    match line.only() {
        Some(PhasePart::Driver) => format!("driver {word}"),
        Some(PhasePart::Overhead) => format!("overhead {word}"),
        None => word.to_owned(),
    }
}

/// The confidence interval of a difference.
pub(super) fn interval(measure: &Measure) -> String {
    match measure.interval {
        Some([low, high]) => format!("{} … {}", signed(low), signed(high)),
        None => "–".to_owned(),
    }
}

/// The difference relative to the first side's time.
pub(super) fn ratio(measure: &Measure) -> String {
    measure.shift_ratio.map_or_else(|| "–".to_owned(), percent)
}

/// A mean of counts; a plain number where it is one.
pub(super) fn mean(count: Option<f64>) -> String {
    match count {
        Some(count) if count.fract() == 0.0 => format!("{count:.0}"),
        Some(count) => format!("{count:.1}"),
        None => "unknown".to_owned(),
    }
}

/// The verdict, after a warning if the sides are not directly comparable.
pub(super) fn headline(comparison: &Comparison) -> String {
    match (comparison.obstacles.is_empty(), verdict(comparison)) {
        (true, verdict) => verdict,
        (false, verdict) => format!("not directly comparable; B: {verdict}"),
    }
}

/// The overall verdict.
fn verdict(comparison: &Comparison) -> String {
    let named = |verdict| {
        let phases = comparison.phases.iter().filter(|line| line.verdict == verdict);
        let name = |line: &PhaseLine| match (line.only(), line.phase.name()) {
            (Some(PhasePart::Driver), phase) => format!("the driver's part of {phase}"),
            (Some(PhasePart::Overhead), phase) => format!("Kubernetes' part of {phase}"),
            (None, phase) => phase.to_owned(),
        };
        phases.map(name).collect::<Vec<_>>().join(", ")
    };
    let [worse, better] = [Verdict::Worse, Verdict::Better].map(named);
    let broken = comparison.cases.iter().filter(|change| change.verdict() == Verdict::Worse).count();
    let defects = comparison.counts.iter().filter(|count| count.verdict() == Verdict::Worse);
    let defects: Vec<&str> = defects.map(|count| count.name.as_str()).collect();
    let mut parts = Vec::new();
    for (what, names) in [("slower: ", worse), ("more ", defects.join(", ")), ("faster: ", better)] {
        if !names.is_empty() {
            parts.push(format!("{what}{names}"));
        }
    }
    if broken > 0 {
        parts.insert(0, format!("newly failing cases: {broken}"));
    }
    let word = comparison.verdict.words();
    if parts.is_empty() { word.to_owned() } else { format!("{word}: {}", parts.join("; ")) }
}

/// Notes on the method.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let percent = |share: f64| format!("{}%", (share * 1000.0).round() / 10.0);
    let [a, b] = comparison.runs;
    let (pairs, resampled) = match comparison.unit {
        Unit::Run => ("all pairwise differences", "by resampling whole runs".to_owned()),
        Unit::Block => (
            "all pairwise differences",
            format!(
                "by resampling blocks of consecutive samples ({a} vs. {b} runs; pass {ENOUGH_RUNS} or more per side to \
                 include the variation between runs)"
            ),
        ),
        Unit::Pair => ("the differences within adjacent blocks", "by resampling pairs of blocks".to_owned()),
    };
    let too_few = match comparison.unit {
        Unit::Run | Unit::Block => format!("{ENOUGH} samples per side"),
        Unit::Pair => format!("{ENOUGH} samples or {ENOUGH_PAIRS} blocks per side"),
    };
    let drift = match comparison.unit {
        Unit::Run | Unit::Block => {
            "drift: the speed of a machine varies from one minute to the next, and runs at different times cannot \
             distinguish that from a change of the program, even if a difference is significant; `claimcheck load \
             --against` runs both sides in turn"
        }
        Unit::Pair => {
            "drift: both sides ran in turn in short blocks, and only samples of adjacent blocks are compared, so \
             changes of the machine's speed affect both sides alike"
        }
    };
    vec![
        format!(
            "difference: the median of {pairs} between samples of A and B, with its {} interval, {resampled}",
            percent(comparison.level)
        ),
        format!(
            "verdicts: {} confidence over all phases and their driver and overhead parts (Holm); less than {} of A's \
             median, or fewer than {too_few}, are never reported as different",
            percent(comparison.level),
            percent(comparison.margin)
        ),
        drift.to_owned(),
    ]
}

/// Reasons why the sides may not be comparable.
pub(super) fn warnings(comparison: &Comparison) -> Vec<String> {
    let line = |difference: &Difference| match difference.is.each_ref().map(String::as_str) {
        [a, ""] => format!("{}, only in A: {a}", difference.name),
        ["", b] => format!("{}, only in B: {b}", difference.name),
        [a, b] => format!("{}: {a} → {b}", difference.name),
    };
    comparison.differences.iter().map(line).collect()
}
