//! How a comparison speaks, in whatever form: numbers, and what must be said of them.

use super::{
    Comparison, Difference, Measure, PhaseLine, Unit, Verdict,
    bootstrap::ENOUGH_RUNS,
    company::A_FIFTH,
    phase::{ENOUGH, PhasePart},
};
use crate::human;

/// A time. Nothing is a time too: what `schedule` takes beside the volumes that it waits for may be none.
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

/// A difference as a share of what it differs from.
pub(super) fn percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// Both sides of a time.
pub(super) fn both(times: [f64; 2]) -> String {
    times.map(time).join(" → ")
}

/// What a phase is on the second side.
pub(super) fn phase_verdict(line: &PhaseLine) -> String {
    let word = line.verdict.words();
    match line.only() {
        Some(PhasePart::Driver) => format!("driver {word}"),
        Some(PhasePart::Overhead) => format!("overhead {word}"),
        None => word.to_owned(),
    }
}

/// Where a difference lies.
pub(super) fn interval(measure: &Measure) -> String {
    match measure.interval {
        Some([low, high]) => format!("{} … {}", signed(low), signed(high)),
        None => "–".to_owned(),
    }
}

/// How much of the first side's time the difference is.
pub(super) fn ratio(measure: &Measure) -> String {
    measure.shift_ratio.map_or_else(|| "–".to_owned(), percent)
}

/// How much more it differs than the other phases do.
pub(super) fn beside(line: &PhaseLine) -> String {
    line.total.beside.map_or_else(|| "–".to_owned(), |beside| percent(beside.ratio))
}

/// A mean of counts; a plain number where it is one.
pub(super) fn mean(count: Option<f64>) -> String {
    match count {
        Some(count) if count.fract() == 0.0 => format!("{count:.0}"),
        Some(count) => format!("{count:.1}"),
        None => "not known".to_owned(),
    }
}

/// The verdict on everything.
pub(super) fn verdict(comparison: &Comparison) -> String {
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
        parts.insert(0, format!("cases that fail now: {broken}"));
    }
    let word = match comparison.verdict {
        Verdict::Machine => "no difference but what the machine explains",
        other => other.words(),
    };
    if parts.is_empty() { word.to_owned() } else { format!("{word}: {}", parts.join("; ")) }
}

/// What a reader must know to trust it.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let percent = |share: f64| format!("{}%", (share * 1000.0).round() / 10.0);
    let [a, b] = comparison.runs;
    let resampled = match comparison.unit {
        Unit::Run => "by resampling whole runs".to_owned(),
        Unit::Stretch => format!(
            "by resampling stretches of runs ({a} against {b} runs; give {ENOUGH_RUNS} or more a side, and it shows \
             how much one run differs from the next)"
        ),
    };
    let mut notes = vec![
        format!(
            "difference: the median of all differences between a sample of A and one of B, with its {} interval, \
             {resampled}",
            percent(comparison.level)
        ),
        format!(
            "verdicts: {} sure of all phases, and both parts of them, together (Holm); less than {} of A's \
             median, or fewer than {ENOUGH} samples a side, are never called different",
            percent(comparison.level),
            percent(comparison.margin)
        ),
    ];
    if comparison.phases.iter().any(|line| line.total.beside.is_some()) {
        let blind = |line: &PhaseLine| {
            let finds = line.finds().filter(|finds| *finds > A_FIFTH)?;
            Some(format!("{} ({:.0}%)", line.phase.name(), finds * 100.0))
        };
        let blind: Vec<String> = comparison.phases.iter().filter_map(blind).collect();
        let mut note =
            "beside: each phase is also held against the others of the same time, which the same machine \
                        made slower or faster"
                .to_owned();
        if !blind.is_empty() {
            note += &format!(
                "; too few samples, for how they vary, to find 19 times in 20 that Kubernetes adds a fifth (what they \
                 find): {}: make more volumes, or fewer at a time",
                blind.join(", ")
            );
        }
        notes.push(note);
    }
    if let Some(pace) = comparison.pace {
        let (share, word) = if pace > 1.0 { (pace - 1.0, "longer") } else { (1.0 - pace, "less") };
        notes.push(format!(
            "the machine: by a fixed piece of work that both sides timed all along, it alone may have made times up to \
             {} {word} in B; what that explains is not called different",
            percent(share)
        ));
    }
    notes
}

/// Why it may not be fair.
pub(super) fn warnings(comparison: &Comparison) -> Vec<String> {
    let line = |difference: &Difference| match difference.is.each_ref().map(String::as_str) {
        [a, ""] => format!("{}, in A alone: {a}", difference.name),
        ["", b] => format!("{}, in B alone: {b}", difference.name),
        [a, b] => format!("{}: {a} → {b}", difference.name),
    };
    comparison.differences.iter().map(line).collect()
}
