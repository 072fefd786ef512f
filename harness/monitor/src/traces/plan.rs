//! Which segments of life cycles are exported.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use claimcheck_model::{Event, Outcome, Phase, PhaseSample, Stamp};

use super::TraceOptions;

/// A segment ends after this many seconds without a phase.
const QUIET: f64 = 30.0;
/// The most segments in memory; the phases of further claims are dropped.
const SEGMENTS: usize = 20_000;
/// The most phases of a segment: a pod that restarts all the time has one without an end.
const PHASES: usize = 1000;

/// The phases of a claim since it was quiet.
#[derive(Debug)]
struct Segment {
    phases: Vec<PhaseSample>,
    last: Stamp,
}

/// Collects phases by claim, and selects segments.
#[derive(Debug)]
pub(crate) struct Sampler {
    ratio: f64,
    slow: f64,
    names: bool,
    /// By the uid of the claim.
    segments: BTreeMap<String, Segment>,
    /// The number of phases that were dropped since the last call of [`Sampler::dropped`].
    dropped: u64,
}

impl Sampler {
    /// Without phases.
    pub fn new(options: &TraceOptions) -> Self {
        let (ratio, slow, names) = (options.ratio, options.slow.as_secs_f64(), options.names);
        Self { ratio, slow, names, segments: BTreeMap::new(), dropped: 0 }
    }

    /// Records phases that were observed at `now`.
    pub fn observe(&mut self, events: &[Event], now: Stamp) {
        for event in events {
            let Event::Phase(sample) = event else { continue };
            let claim = &sample.subject.claim;
            if claim.is_empty() {
                continue;
            }
            if self.segments.len() >= SEGMENTS && !self.segments.contains_key(claim) {
                self.dropped += 1;
                continue;
            }
            let segment = self
                .segments
                .entry(claim.clone())
                .or_insert_with(|| Segment { phases: Vec::new(), last: now });
            segment.last = now;
            if segment.phases.len() < PHASES {
                segment.phases.push(sample.clone());
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Removes the segments that are over; returns those that are to be exported.
    pub fn finished(&mut self, now: Stamp) -> Vec<Vec<PhaseSample>> {
        self.selected(|segment| now.seconds_since(segment.last) >= QUIET)
    }

    /// Removes all segments, those that are not over, too; returns those that are to be exported.
    pub fn rest(&mut self) -> Vec<Vec<PhaseSample>> {
        self.selected(|_| true)
    }

    fn selected(&mut self, is_over: impl Fn(&Segment) -> bool) -> Vec<Vec<PhaseSample>> {
        let over = self.segments.extract_if(.., |_, segment| is_over(segment));
        let over: Vec<(String, Segment)> = over.collect();
        let mut exported = Vec::new();
        for (claim, segment) in over {
            if self.is_selected(&claim, &segment.phases) {
                exported.push(self.anonymous(&claim, segment.phases));
            }
        }
        exported
    }

    /// The number of phases that were dropped since the last call.
    pub fn dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Whether the claim is one of the sample, or a phase is slow or has no end. Each replica samples the same claims.
    fn is_selected(&self, claim: &str, phases: &[PhaseSample]) -> bool {
        let is_remarkable = |sample: &PhaseSample| match sample.outcome {
            Outcome::Ok { seconds, .. } => seconds >= self.slow,
            Outcome::Aborted { .. } => true,
            Outcome::Unobserved => false,
        };
        let mut hasher = DefaultHasher::new();
        claim.hash(&mut hasher);
        (hasher.finish() as f64) < self.ratio * u64::MAX as f64 || phases.iter().any(is_remarkable)
    }

    /// The phases as they are exported. The ids of a trace are derived from the uid of the claim: later segments have
    /// another one each. A volume handle may contain the name of its claim, as that of csi-driver-nfs with `subDir`.
    fn anonymous(&self, claim: &str, mut phases: Vec<PhaseSample>) -> Vec<PhaseSample> {
        let creation = [Phase::Provision, Phase::Restore, Phase::Clone, Phase::Bind];
        let is_first = phases.iter().any(|sample| creation.contains(&sample.phase));
        let start = phases.iter().find_map(|sample| match sample.outcome {
            Outcome::Ok { start, .. } | Outcome::Aborted { start } => Some(start.wall_ns / 1_000_000_000),
            Outcome::Unobserved => None,
        });
        for sample in &mut phases {
            if !is_first {
                sample.subject.claim = format!("{claim}/{}", start.unwrap_or_default());
            }
            if !self.names {
                sample.claim.clear();
                sample.handle.clear();
            }
        }
        phases
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{Source, SubjectIds, VolumeMode};

    use super::*;

    fn at(second: u64) -> Stamp {
        Stamp { mono_ns: second * 1_000_000_000, wall_ns: second * 1_000_000_000 }
    }

    fn sampler(ratio: f64, names: bool) -> Sampler {
        Sampler { ratio, slow: 60.0, names, segments: BTreeMap::new(), dropped: 0 }
    }

    fn ended(phase: Phase, claim: &str, start: u64, end: u64) -> Event {
        let outcome = Outcome::Ok {
            start: at(start),
            end: at(end),
            source: Source::Watch,
            seconds: (end - start) as f64,
            driver_seconds: None,
            overhead_seconds: None,
        };
        Event::Phase(sample(phase, claim, outcome))
    }

    fn sample(phase: Phase, claim: &str, outcome: Outcome) -> PhaseSample {
        PhaseSample {
            phase,
            subject: SubjectIds { claim: claim.into(), ..SubjectIds::default() },
            claim: "ns/data".into(),
            handle: "share/ns/data".into(),
            driver: "csi.test".into(),
            class: "fast".into(),
            volume_mode: VolumeMode::Filesystem,
            outcome,
        }
    }

    fn claims(segments: &[Vec<PhaseSample>]) -> Vec<&str> {
        segments.iter().map(|phases| &*phases[0].subject.claim).collect()
    }

    #[test]
    fn slow_and_failed_segments_are_exported_whatever_the_ratio() {
        let mut sampler = sampler(0.0, false);
        let failed = Event::Phase(sample(Phase::Bind, "c", Outcome::Aborted { start: at(5) }));
        let unobserved = Event::Phase(sample(Phase::Bind, "d", Outcome::Unobserved));
        let phases =
            [ended(Phase::Provision, "a", 0, 59), ended(Phase::Provision, "b", 0, 60), failed, unobserved];
        sampler.observe(&phases, at(60));
        assert_eq!(sampler.finished(at(89)), Vec::<Vec<PhaseSample>>::new());
        assert_eq!(claims(&sampler.finished(at(90))), ["b", "c"]);
        assert_eq!(sampler.finished(at(1000)), Vec::<Vec<PhaseSample>>::new(), "each once");
    }

    #[test]
    fn the_rest_of_a_former_leader_is_selected_likewise() {
        let mut sampler = sampler(0.0, false);
        sampler.observe(&[ended(Phase::Bind, "fast", 0, 1), ended(Phase::Bind, "slow", 0, 70)], at(70));
        assert_eq!(claims(&sampler.rest()), ["slow"]);
        assert_eq!(sampler.rest(), Vec::<Vec<PhaseSample>>::new());
    }

    #[test]
    fn a_ratio_of_claims_is_exported_completely() {
        for (ratio, expected) in [(0.0, 0..=0), (0.25, 200..=300), (1.0, 1000..=1000)] {
            let mut sampler = sampler(ratio, false);
            for nth in 0..1000 {
                sampler.observe(&[ended(Phase::Bind, &format!("uid-{nth}"), 0, 1)], at(1));
            }
            let exported = sampler.finished(at(100));
            assert!(expected.contains(&exported.len()), "{ratio}: {}", exported.len());
        }
    }

    #[test]
    fn later_segments_have_another_trace() {
        let mut sampler = sampler(1.0, false);
        sampler.observe(&[ended(Phase::Bind, "a", 0, 1), ended(Phase::Attach, "a", 1, 2)], at(2));
        assert_eq!(claims(&sampler.finished(at(40))), ["a"]);
        sampler.observe(&[ended(Phase::Detach, "a", 50, 51)], at(51));
        assert_eq!(claims(&sampler.finished(at(90))), ["a/50"]);
    }

    #[test]
    fn names_are_removed_unless_they_are_requested() {
        for (names, expected) in [(false, ("", "")), (true, ("ns/data", "share/ns/data"))] {
            let mut sampler = sampler(1.0, names);
            sampler.observe(&[ended(Phase::Bind, "a", 0, 1)], at(2));
            let exported = sampler.finished(at(40));
            assert_eq!((&*exported[0][0].claim, &*exported[0][0].handle), expected);
        }
    }

    #[test]
    fn a_segment_has_an_end() {
        let mut sampler = sampler(1.0, false);
        for second in 0..PHASES as u64 + 7 {
            sampler.observe(&[ended(Phase::Publish, "a", second, second + 1)], at(second));
        }
        assert_eq!((sampler.dropped(), sampler.dropped()), (7, 0));
    }
}
