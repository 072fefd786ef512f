//! Checks thresholds against the events of a run. Pure; its memory does not grow with the run.

use claimcheck_model::{Event, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Counted, Measure, Objective};
use crate::{Durations, human};

/// Distributions have three significant digits: a value within that precision of a threshold meets it.
const PRECISION: f64 = 0.001;

/// Thresholds, and the measurements so far.
#[derive(Debug, Default)]
pub struct Judge(Vec<Threshold>);

/// A threshold and its measurements: durations for a phase, a number for a count.
#[derive(Debug)]
struct Threshold {
    objective: Objective,
    times: Durations,
    count: u64,
}

/// The result of a threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judgement {
    /// The threshold: `provision P99`.
    pub slo: String,
    /// The limit, with its unit.
    pub max: String,
    /// The measured value, with its unit; none without measurements.
    pub measured: Option<String>,
    /// The number of samples, or the count.
    pub count: u64,
    /// Whether it was met. A threshold without measurements is not met: nothing is known about it.
    #[serde(alias = "kept")]
    pub met: bool,
    /// By how much it was exceeded, or why it was not measured; empty if it was met.
    #[serde(alias = "broken")]
    pub reason: String,
}

impl Judge {
    /// A judge of these thresholds.
    pub fn new(objectives: Vec<Objective>) -> Self {
        let threshold = |objective| Threshold { objective, times: Durations::default(), count: 0 };
        Self(objectives.into_iter().map(threshold).collect())
    }

    /// Records an event.
    pub fn observe(&mut self, event: &Event) {
        for Threshold { objective, times, count } in &mut self.0 {
            match objective {
                Objective::Phase { of, measure, .. } => {
                    if let Event::Phase(sample) = event
                        && of.have(sample)
                        && let Outcome::Ok { seconds, driver_seconds, overhead_seconds, .. } = sample.outcome
                    {
                        let measured = match measure {
                            Measure::Total => Some(seconds),
                            Measure::Driver => driver_seconds,
                            Measure::Overhead => overhead_seconds,
                        };
                        measured.into_iter().for_each(|seconds| times.add(seconds));
                    }
                }
                Objective::Count { what, .. } => *count += u64::from(counts(*what, event)),
            }
        }
    }

    /// The results, in the order of the file.
    pub fn finish(&self) -> Vec<Judgement> {
        self.0.iter().map(judge).collect()
    }
}

fn counts(what: Counted, event: &Event) -> bool {
    match (what, event) {
        (Counted::Transitions(kind), Event::Transition(transition)) => transition.kind == kind,
        (Counted::Errors, Event::Rpc(call)) => call.code != "OK",
        (Counted::Retries, Event::Rpc(call)) => call.retry,
        (Counted::Violations, Event::Violation { .. }) | (Counted::Leaks, Event::Leak(_)) => true,
        _ => false,
    }
}

fn judge(threshold: &Threshold) -> Judgement {
    let slo = threshold.objective.to_string();
    match &threshold.objective {
        Objective::Phase { quantile, max, .. } => {
            let quantiles = threshold.times.quantiles("");
            let measured = quantile.of(&quantiles);
            let count = quantiles.count;
            let met = count > 0 && measured <= *max * (1.0 + PRECISION);
            let reason = match (met, count) {
                (true, _) => String::new(),
                (false, 0) => "not measured: no such phase ended in this run".to_owned(),
                (false, _) => {
                    format!("{} over, {:+.0} %", human(measured - max), (measured / max - 1.0) * 100.0)
                }
            };
            let measured = (count > 0).then(|| human(measured));
            Judgement { slo, max: human(*max), measured, count, met, reason }
        }
        Objective::Count { max, .. } => {
            let count = threshold.count;
            let met = count <= *max;
            let reason = if met { String::new() } else { format!("{} over", count - max) };
            Judgement { slo, max: max.to_string(), measured: Some(count.to_string()), count, met, reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{Leak, LeakKind, Phase, PhaseSample, Source, Stamp, SubjectIds, VolumeMode};

    use super::*;
    use crate::slo::parse;

    fn sample(phase: Phase, class: &str, ms: f64) -> Event {
        let (seconds, at) = (ms / 1e3, Stamp::default());
        Event::Phase(PhaseSample {
            phase,
            subject: SubjectIds::default(),
            claim: String::new(),
            handle: String::new(),
            driver: "d.io".into(),
            class: class.into(),
            volume_mode: VolumeMode::Filesystem,
            outcome: Outcome::Ok {
                start: at,
                end: at,
                source: Source::Watch,
                seconds,
                driver_seconds: Some(seconds / 4.0),
                overhead_seconds: Some(seconds * 0.75),
            },
        })
    }

    fn judged(slos: &str, events: &[Event]) -> Vec<Judgement> {
        let mut judge = Judge::new(parse(slos).unwrap());
        events.iter().for_each(|event| judge.observe(event));
        judge.finish()
    }

    #[test]
    fn each_threshold_has_its_own_samples() {
        let events: Vec<Event> = (1..=100)
            .flat_map(|i| [sample(Phase::Attach, "fast", f64::from(i)), sample(Phase::Attach, "slow", 1e4)])
            .collect();
        let judged = judged(
            "slos:\n- {phase: attach, quantile: P99, class: fast, max: 99ms}\n- {phase: attach, quantile: P95, \
             measure: driver, class: fast, max: 20ms}\n- {phase: attach, quantile: max, class: slow, max: 11s}\n\
             - {phase: attach, quantile: P50, driver: other.io, max: 1h}\n- {phase: stage, quantile: avg, max: 1s}\n",
            &events,
        );
        let met: Vec<bool> = judged.iter().map(|judgement| judgement.met).collect();
        assert_eq!(met, [true, false, true, false, false]);
        assert_eq!(judged[1].measured.as_deref(), Some("23.8 ms"));
        assert_eq!(judged[1].reason, "3.76 ms over, +19 %");
        assert_eq!((judged[0].count, judged[2].count, judged[3].count), (100, 100, 0));
        assert!(judged[4].reason.starts_with("not measured"), "{}", judged[4].reason);
    }

    #[test]
    fn counts_may_reach_their_limit_and_no_more() {
        let leak = || Event::Leak(Leak { kind: LeakKind::Mount, name: "/m".into(), case: None });
        let slos = "slos:\n- {count: leaks, max: 1}\n- {count: errors, max: 0}\n";
        assert!(judged(slos, &[leak()]).iter().all(|judgement| judgement.met));
        let judged = judged(slos, &[leak(), leak()]);
        assert_eq!((judged[0].met, judged[0].reason.as_str()), (false, "1 over"));
    }
}
