//! Statistical tests with seeded runs in which nothing, or one phase, was changed; and golden files.

use std::{cell::Cell, collections::BTreeMap, env};

use claimcheck_model::{CaseId, CaseResult, Leak, LeakKind, Phase, TransitionKind};
use fastrand::Rng;

use super::{
    Comparison, Options, Side, Unit, Verdict,
    bootstrap::Effort,
    compare, compare_with,
    phase::PhasePart,
    read::{Run, Sample},
};
use crate::{CaseCounts, CaseLine, LoadSummary, State, Style, Summary};

/// How long a phase takes, in the made-up runs.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Seconds.
    median: f64,
    /// The standard deviation of the logarithm.
    skew: f64,
    /// The share of samples that hang, for up to a hundred times as long.
    hang: f64,
    /// How much of a sample's chance comes from the one before it: volumes on their way together.
    memory: f64,
    /// The standard deviation of the logarithm of what is common to a run.
    run: f64,
}

const PLAIN: Shape = Shape { median: 0.02, skew: 0.35, hang: 0.0, memory: 0.0, run: 0.0 };

/// What a life of a volume has: a comparison corrects for all of them.
const PHASES: usize = 12;

/// The time from one sample to the next.
const STEP_NS: u64 = 20_000_000;

fn normal(rng: &mut Rng) -> f64 {
    // Box and Muller; the logarithm of 0 is kept out.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

fn samples(rng: &mut Rng, shape: Shape, count: usize) -> Vec<Sample> {
    let of_run = shape.run * normal(rng);
    let mut chance = normal(rng);
    let sample = |at: usize| {
        let fresh = (1.0 - shape.memory * shape.memory).sqrt();
        chance = shape.memory * chance + fresh * normal(rng);
        let hangs = if rng.f64() < shape.hang { 1.0 + 99.0 * rng.f64() } else { 1.0 };
        let total = shape.median * (shape.skew * chance + of_run).exp() * hangs;
        Sample { end_ns: at as u64 * STEP_NS, total, driver: 0.0, overhead: total }
    };
    (0..count).map(sample).collect()
}

fn side(rng: &mut Rng, shape: Shape, count: usize, runs: usize) -> Side {
    let run = |_| {
        let phases = Phase::ALL[..PHASES].iter();
        Run { samples: phases.map(|&phase| (phase, samples(rng, shape, count))).collect(), ..Run::default() }
    };
    Side { runs: (0..runs).map(run).collect(), ..Side::default() }
}

fn slow_down(side: &mut Side, phase: Phase, by: f64) {
    for run in &mut side.runs {
        for sample in run.samples.get_mut(&phase).into_iter().flatten() {
            sample.total += by;
            sample.overhead += by;
        }
    }
}

/// Of so many comparisons, the share that satisfies.
fn share(trials: u64, satisfies: impl Fn(&mut Rng) -> bool) -> f64 {
    let count = (0..trials).filter(|trial| satisfies(&mut Rng::with_seed(*trial))).count();
    count as f64 / trials as f64
}

fn named(comparison: &Comparison) -> Vec<(Phase, Verdict)> {
    let lines = comparison.phases.iter().map(|line| (line.phase, line.verdict));
    lines.filter(|(_, verdict)| matches!(verdict, Verdict::Better | Verdict::Worse)).collect()
}

/// The number of trials of each simulation in ci/nightly, which sets `CLAIMCHECK_COMPARE_TRIALS`: that takes minutes.
const FULL_TRIALS: u64 = 120;
/// The same without it. The seeds are the first of the full simulation, so that these trials always have one result.
const FEW_TRIALS: u64 = 24;
/// 19 in 20.
const POWER_95: f64 = 0.95;
/// What chance does to the share of 19 in 20 in a full simulation (three standard errors).
const LUCK: f64 = 0.06;

fn trials() -> u64 {
    env::var("CLAIMCHECK_COMPARE_TRIALS").map_or(FEW_TRIALS, |text| text.parse().unwrap())
}

/// How far a share of the trials may be from the `expected` one: by `full` in a full simulation, and by four standard
/// errors with fewer trials. Without Holm's correction, for example, half of all comparisons of equals differ.
fn luck(expected: f64, full: f64) -> f64 {
    match trials() {
        count if count < FULL_TRIALS => 4.0 * (expected * (1.0 - expected) / count as f64).sqrt(),
        _ => full,
    }
}

/// [`compare`] or [`judge`].
type Compare = fn(&Side, &Side, Options) -> Comparison;

/// Compares for verdicts, which do not depend on the intervals: with fewer draws, unless the simulation is full.
fn judge(a: &Side, b: &Side, options: Options) -> Comparison {
    let few = Effort { resamples: 20, assignments: 4000 };
    compare_with(a, b, options, if trials() < FULL_TRIALS { few } else { Effort::FULL })
}

#[test]
fn equal_runs_differ_in_at_most_one_of_twenty_comparisons() {
    // Without the margin, which only takes from the errors.
    let options = Options { margin: 0.0, level: POWER_95 };
    let shapes = [
        (PLAIN, 200, 1),
        (PLAIN, 12, 1),
        (PLAIN, 30, 1),
        (Shape { skew: 1.0, hang: 0.05, ..PLAIN }, 200, 1),
        (Shape { skew: 0.6, memory: 0.5, ..PLAIN }, 200, 1),
        (Shape { run: 0.1, ..PLAIN }, 100, 8),
        (Shape { run: 0.1, memory: 0.5, ..PLAIN }, 50, 10),
    ];
    for (shape, count, runs) in shapes {
        let named_share = share(trials(), |rng| {
            let (a, b) = (side(rng, shape, count, runs), side(rng, shape, count, runs));
            !named(&judge(&a, &b, options)).is_empty()
        });
        assert!(
            named_share <= 1.0 - POWER_95 + luck(POWER_95, LUCK),
            "{shape:?}, {count} samples x {runs}: {named_share}"
        );
    }
}

#[test]
fn a_fifth_of_the_median_in_one_phase_is_caught() {
    let slow = Phase::Stage;
    let shapes = [
        (PLAIN, 200, 1),
        (Shape { skew: 0.38, hang: 0.02, ..PLAIN }, 200, 1),
        (Shape { skew: 0.27, memory: 0.3, ..PLAIN }, 200, 1),
        (Shape { skew: 0.6, ..PLAIN }, 500, 1),
        (Shape { run: 0.02, ..PLAIN }, 200, 8),
    ];
    for (shape, count, runs) in shapes {
        let caught = share(trials(), |rng| {
            let (a, mut b) = (side(rng, shape, count, runs), side(rng, shape, count, runs));
            slow_down(&mut b, slow, shape.median / 5.0);
            named(&judge(&a, &b, Options::default())).contains(&(slow, Verdict::Worse))
        });
        assert!(caught >= POWER_95 - luck(POWER_95, LUCK), "{shape:?}, {count} samples x {runs}: {caught}");
    }
}

/// With a driver with a short part that varies less.
fn driven(rng: &mut Rng, shape: Shape, count: usize) -> Side {
    let mut side = side(rng, shape, count, 1);
    for sample in side.runs.iter_mut().flat_map(|run| run.samples.values_mut()).flatten() {
        sample.driver = shape.median / 20.0 * (0.5 * normal(rng)).exp();
        sample.total += sample.driver;
    }
    side
}

/// More volumes than two processors can serve at once: a fifth of the median cannot be detected in times that vary by
/// as much as they are, but in the driver's part it stands out.
#[test]
fn what_the_driver_adds_is_caught_where_the_phase_varies_too_much() {
    let shape = Shape { skew: 0.8, memory: 0.6, hang: 0.02, ..PLAIN };
    let slow = Phase::Attach;
    let trial = |rng: &mut Rng, by: f64, compare: Compare| {
        let (a, mut b) = (driven(rng, shape, 200), driven(rng, shape, 200));
        for sample in b.runs[0].samples.get_mut(&slow).unwrap() {
            sample.total += by;
            sample.driver += by;
        }
        compare(&a, &b, Options::default())
    };
    let of_phase = |comparison: &Comparison| {
        comparison.phases.iter().find(|line| line.phase == slow).cloned().expect("both sides have it")
    };
    let by_total = Cell::new(0);
    let caught = share(trials(), |rng| {
        let line = of_phase(&trial(rng, shape.median / 5.0, judge));
        by_total.update(|count| count + u64::from(line.total.verdict == Verdict::Worse));
        line.verdict == Verdict::Worse
    });
    assert!(caught >= POWER_95 - luck(POWER_95, 0.0), "{caught}");
    let by_total = by_total.get() as f64 / trials() as f64;
    assert!(by_total < 0.5 + luck(0.5, 0.0), "the whole of the phase shows it too: {by_total}");
    let named_share = share(trials(), |rng| !named(&trial(rng, 0.0, judge)).is_empty());
    assert!(named_share <= 1.0 - POWER_95 + luck(POWER_95, LUCK), "{named_share}");
    let text = trial(&mut Rng::with_seed(8), shape.median / 5.0, compare).to_text(Style::PLAIN);
    assert!(
        text.contains("  driver worse\n") && text.contains("slower: the driver's part of attach"),
        "{text}"
    );
}

/// The time of one life cycle on a drifting machine.
const CYCLE_NS: u64 = 25_000_000;
/// The number of life cycles of a block, and of blocks of a side.
const BLOCK: (usize, usize) = (5, 40);

/// Which side runs a block.
type Order = fn(usize) -> usize;

/// A, B, B, A, and so on, as `load --against`.
const IN_TURN: Order = |block| [0, 1, 1, 0][block % 4];
/// All of A, then all of B, as two runs.
const IN_SEQUENCE: Order = |block| block / BLOCK.1;

/// Two sides with 200 samples of each phase, a fifth of which is the driver's part. The machine is common to both: it
/// becomes slower by four fifths from the start to the end, and in addition its speed is a random walk.
fn on_a_drifting_machine(rng: &mut Rng, shape: Shape, order: Order) -> [Side; 2] {
    let (of_block, of_side) = BLOCK;
    let cycles = 2 * of_block * of_side;
    let mut sides = [Run::default(), Run::default()];
    let mut walk = 0.0;
    for block in 0..2 * of_side {
        let run = &mut sides[order(block)];
        let first = block * of_block;
        run.blocks.push(first as u64 * CYCLE_NS);
        for cycle in first..first + of_block {
            walk += 0.01 * normal(rng);
            let machine = (1.0 + 0.8 * cycle as f64 / cycles as f64) * f64::exp(walk);
            let end_ns = cycle as u64 * CYCLE_NS + CYCLE_NS / 2;
            for phase in &Phase::ALL[..PHASES] {
                let hangs = if rng.f64() < shape.hang { 1.0 + 99.0 * rng.f64() } else { 1.0 };
                let [driver, overhead] = [0.2, 0.8]
                    .map(|part| part * machine * shape.median * (shape.skew * normal(rng)).exp() * hangs);
                let sample = Sample { end_ns, total: driver + overhead, driver, overhead };
                run.samples.entry(*phase).or_default().push(sample);
            }
        }
    }
    sides.map(|run| Side { runs: vec![run], ..Side::default() })
}

#[test]
fn a_fifth_is_caught_on_a_drifting_machine_if_the_sides_run_in_turn() {
    let shape = Shape { skew: 0.3, hang: 0.01, ..PLAIN };
    let slow = Phase::Stage;
    let caught = share(trials(), |rng| {
        let [a, mut b] = on_a_drifting_machine(rng, shape, IN_TURN);
        for sample in b.runs[0].samples.get_mut(&slow).into_iter().flatten() {
            for part in [&mut sample.total, &mut sample.driver, &mut sample.overhead] {
                *part *= 1.2;
            }
        }
        let comparison = judge(&a, &b, Options::default());
        assert_eq!(comparison.unit, Unit::Pair);
        named(&comparison).contains(&(slow, Verdict::Worse))
    });
    assert!(caught >= POWER_95 - luck(POWER_95, 0.0), "{caught}");
}

#[test]
fn equal_sides_that_run_in_turn_differ_in_at_most_one_of_twenty_comparisons() {
    // Without the margin, which only takes from the errors.
    let options = Options { margin: 0.0, level: POWER_95 };
    let shape = Shape { skew: 0.3, hang: 0.01, ..PLAIN };
    let differ = |trials: u64, order: Order| {
        share(trials, |rng| {
            let [a, b] = on_a_drifting_machine(rng, shape, order);
            !named(&judge(&a, &b, options)).is_empty()
        })
    };
    let in_turn = differ(trials(), IN_TURN);
    assert!(in_turn <= 1.0 - POWER_95 + luck(POWER_95, LUCK), "{in_turn}");
    // The machine is the reason why this matters.
    let in_sequence = differ(20, IN_SEQUENCE);
    assert!(in_sequence > 0.5, "{in_sequence}");
}

#[test]
fn only_runs_in_sequence_are_subject_to_drift() {
    let rng = &mut Rng::with_seed(6);
    for (order, unit, note) in [
        (IN_TURN, Unit::Pair, "drift: both sides ran in turn"),
        (IN_SEQUENCE, Unit::Block, "drift: the speed of a machine varies"),
    ] {
        let [a, b] = on_a_drifting_machine(rng, PLAIN, order);
        let comparison = compare(&a, &b, Options::default());
        let markdown = comparison.to_markdown();
        assert!(comparison.unit == unit && markdown.contains(note), "{markdown}");
    }
}

#[test]
fn few_pairs_of_blocks_have_no_verdict() {
    let rng = &mut Rng::with_seed(7);
    let [mut a, mut b] = on_a_drifting_machine(rng, PLAIN, IN_TURN);
    // 55 samples, but eleven pairs.
    for run in a.runs.iter_mut().chain(&mut b.runs) {
        run.blocks.truncate(11);
        run.samples.values_mut().for_each(|samples| samples.truncate(55));
    }
    let comparison = compare(&a, &b, Options::default());
    assert_eq!((comparison.unit, comparison.verdict), (Unit::Pair, Verdict::TooFew));
}

/// With a driver that takes most of it, and is never the same.
#[test]
fn what_kubernetes_adds_is_caught_where_the_driver_varies_too_much() {
    let slow = Phase::Unstage;
    let shape = Shape { median: 0.004, skew: 0.2, ..PLAIN };
    let new = |rng: &mut Rng| {
        let mut side = side(rng, shape, 200, 1);
        for sample in side.runs[0].samples.values_mut().flatten() {
            sample.driver = 0.02 * (0.9 * normal(rng)).exp();
            sample.total = sample.overhead + sample.driver;
        }
        side
    };
    let trial = |rng: &mut Rng| {
        let (a, mut b) = (new(rng), new(rng));
        slow_down(&mut b, slow, 0.2 * 0.025);
        judge(&a, &b, Options::default())
    };
    let by_part_alone = Cell::new(0);
    let caught = share(trials(), |rng| {
        let comparison = trial(rng);
        if comparison.phases.iter().any(|line| line.only() == Some(PhasePart::Overhead)) {
            by_part_alone.update(|count| count + 1);
            let text = comparison.to_text(Style::PLAIN);
            assert!(text.contains("  overhead worse\n"), "{text}");
            assert!(text.contains("Kubernetes' part of unstage"), "{text}");
        }
        named(&comparison) == [(slow, Verdict::Worse)]
    });
    assert!(caught >= POWER_95 - luck(POWER_95, LUCK), "{caught}");
    let by_part_alone = by_part_alone.get() as f64 / trials() as f64;
    // With few trials, at least one.
    let least = (0.25 - luck(0.25, 0.0)).max(0.0);
    assert!(by_part_alone > least, "all of it shows it too: {by_part_alone}");
}

#[test]
fn the_interval_contains_the_shift_as_often_as_it_must() {
    let shape = Shape { skew: 0.7, ..PLAIN };
    for count in [200, 600] {
        let held = share(trials(), |rng| {
            let (a, mut b) = (side(rng, shape, count, 1), side(rng, shape, count, 1));
            slow_down(&mut b, Phase::Provision, 0.01);
            let line = compare(&a, &b, Options::default()).phases.remove(0);
            line.total.interval.is_some_and(|[low, high]| (low..high).contains(&0.01))
        });
        assert!((held - 0.95).abs() <= luck(POWER_95, LUCK), "{count} samples: {held}");
    }
}

#[test]
fn few_samples_prove_nothing_and_equal_ones_are_equal() {
    let rng = &mut Rng::with_seed(1);
    let (few, many) = (side(rng, PLAIN, 9, 1), side(rng, PLAIN, 200, 1));
    let comparison = compare(&few, &many, Options::default());
    assert!(comparison.phases.iter().all(|line| line.verdict == Verdict::TooFew && line.total.p.is_none()));
    assert_eq!(comparison.verdict, Verdict::TooFew);
    let comparison = compare(&many, &many, Options::default());
    assert!(
        comparison.phases.iter().all(|line| line.verdict == Verdict::Same && line.total.shift.abs() < 1e-9)
    );
    // All the same on each side, but not the same: certain.
    let constant = |total| Side {
        folder: "x".into(),
        runs: vec![Run {
            samples: BTreeMap::from([(
                Phase::Bind,
                (0..50).map(|end_ns| Sample { end_ns, total, driver: 0.0, overhead: total }).collect(),
            )]),
            ..Run::default()
        }],
    };
    let line = compare(&constant(1.0), &constant(2.0), Options::default()).phases.remove(0);
    assert_eq!((line.verdict, line.total.interval), (Verdict::Worse, Some([1.0, 1.0])));
    assert!(line.driver.is_none() && line.overhead.is_none());
}

#[test]
fn runs_are_resampled_where_there_are_enough() {
    let rng = &mut Rng::with_seed(2);
    let mut of = |runs| side(rng, PLAIN, 20, runs);
    assert_eq!(compare(&of(8), &of(9), Options::default()).unit, Unit::Run);
    assert_eq!(compare(&of(8), &of(7), Options::default()).unit, Unit::Block);
}

/// A run with something of everything.
fn everything(rng: &mut Rng, results: &[(&str, CaseResult)], controllers: &str) -> Side {
    let mut side = side(rng, PLAIN, 200, 1);
    side.runs[0].samples.retain(|phase, _| [Phase::Provision, Phase::Bind, Phase::Stage].contains(phase));
    for sample in side.runs[0].samples.get_mut(&Phase::Stage).unwrap() {
        (sample.driver, sample.overhead) = (sample.total / 4.0, sample.total * 0.75);
    }
    let line = |(name, result): &(&str, CaseResult)| CaseLine {
        case: CaseId::new("volumes", *name),
        result: result.clone(),
        seconds: 0.1,
    };
    let environment = [("controllers", controllers), ("driver", "d.io"), ("cluster", "envtest")];
    side.runs[0].api_requests = Some(4210);
    side.runs[0].summary = Summary {
        environment: environment.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        results: results.iter().map(line).collect(),
        counts: BTreeMap::from([(TransitionKind::Attach, 200), (TransitionKind::Detach, 200)]),
        ..Summary::default()
    };
    side
}

fn golden() -> Comparison {
    let rng = &mut Rng::with_seed(3);
    let (passed, failed) = (CaseResult::Passed, CaseResult::failed("no"));
    let skipped = CaseResult::Skipped { reason: "no".to_owned() };
    let a = [
        ("keeps", passed.clone()),
        ("mends", failed.clone()),
        ("rests", passed.clone()),
        ("goes", passed.clone()),
    ];
    let b = [("keeps", failed), ("mends", passed.clone()), ("rests", skipped), ("comes", passed)];
    let (a, mut b) = (everything(rng, &a, "ours"), everything(rng, &b, "stock"));
    slow_down(&mut b, Phase::Stage, 0.006);
    slow_down(&mut b, Phase::Bind, -0.005);
    b.runs[0].api_requests = Some(5000);
    b.runs[0].summary.leaks.push(Leak { kind: LeakKind::Mount, name: "/m".to_owned(), case: None });
    compare(&a, &b, Options::default())
}

#[test]
fn what_people_and_programs_read() {
    let comparison = golden();
    assert_eq!(comparison.verdict, Verdict::Worse);
    insta::assert_snapshot!("text", comparison.to_text(Style::PLAIN));
    insta::assert_snapshot!("markdown", comparison.to_markdown());
    insta::assert_snapshot!("json", comparison.to_json());
    let page = comparison.to_html();
    for part in ["<!DOCTYPE html>", "stage", "is skipped now", "storage controllers", "+21."] {
        assert!(page.contains(part), "{part} is not in the page");
    }
    assert!(!page.contains("http"), "the page needs something from elsewhere");
}

#[test]
fn a_phase_of_one_side_is_reported_and_zero_is_a_duration() {
    let rng = &mut Rng::with_seed(5);
    let (mut a, mut b) = (side(rng, PLAIN, 20, 1), side(rng, PLAIN, 20, 1));
    a.runs[0].samples.remove(&Phase::Stage);
    b.runs[0].samples.retain(|phase, _| ![Phase::Attach, Phase::Unpublish].contains(phase));
    let schedule = a.runs[0].samples.get_mut(&Phase::Schedule).unwrap();
    schedule.iter_mut().for_each(|sample| (sample.total, sample.overhead) = (0.0, 0.0));
    let comparison = compare(&a, &b, Options::default());
    let text = comparison.to_text(Style::PLAIN);
    for line in ["  phases, only in A: attach, unpublish\n", "  phases, only in B: stage\n", " 0 → 2"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("– →"), "{text}");
    assert!(comparison.to_html().contains("only in B: stage"));
}

#[test]
fn sides_that_are_not_comparable_are_named_first() {
    let rng = &mut Rng::with_seed(6);
    let whole: Vec<String> = (0..9).map(|n| format!("case {n}")).collect();
    let whole: Vec<(&str, CaseResult)> =
        whole.iter().map(|name| (name.as_str(), CaseResult::Passed)).collect();
    let mut a = everything(rng, &whole, "ours");
    let mut b = everything(rng, &whole[..2], "ours");
    (a.folder, b.folder) = ("runs/a".into(), "runs/b".into());
    a.runs[0].started_ns = Some(1_772_366_400_000_000_000);
    b.runs[0].summary.state = State::Interrupted;
    b.runs[0].summary.cases = CaseCounts { passed: 2, failed: 0, skipped: 7 };
    b.runs[0].summary.environment.insert("driver".to_owned(), "other.io".to_owned());
    slow_down(&mut b, Phase::Stage, 0.006);
    let comparison = compare(&a, &b, Options::default());
    let obstacles = [
        "B was interrupted: 2 of 9 cases ran",
        "A tested the driver d.io, B other.io",
        "A and B ran other cases: 2 in both, 7 only in A, 0 only in B",
    ];
    assert!(comparison.obstacles.iter().zip(obstacles).all(|(is, should)| is.starts_with(should)));
    assert_eq!(comparison.obstacles.len(), obstacles.len(), "{:?}", comparison.obstacles);
    let (text, page) = (comparison.to_text(Style::PLAIN), comparison.to_html());
    for output in [&text, &comparison.to_markdown(), &page] {
        let at = |words: &str| output.find(words).unwrap_or_else(|| panic!("no {words} in {output}"));
        assert!(at("runs/a, d.io, envtest, 2026-03-01 12:00 UTC") < at("was interrupted"), "{output}");
        assert!(at("was interrupted") < at("provision"), "{output}");
        assert!(output.contains("not directly comparable; B: worse: slower: stage"), "{output}");
    }
    assert!(compare(&a, &a, Options::default()).obstacles.is_empty());
    let load = Side {
        runs: vec![Run {
            summary: Summary { load: Some(LoadSummary::default()), ..a.runs[0].summary.clone() },
            ..Run::default()
        }],
        ..Side::default()
    };
    assert_eq!(compare(&a, &load, Options::default()).obstacles, ["A ran cases, B is a load"]);
}

#[test]
fn a_run_has_the_same_quantiles_in_a_comparison() {
    let of = |millis: &[f64]| {
        let mut tally = crate::Tally::default();
        let mut side = Side { runs: vec![Run::default()], ..Side::default() };
        for (end_ns, total) in (0..).zip(millis.iter().map(|millis| millis / 1e3)) {
            let sample = Sample { end_ns, total, driver: 0.0, overhead: total };
            side.runs[0].samples.entry(Phase::Bind).or_default().push(sample);
            tally.observe(&crate::tests::sample(Phase::Bind, total * 1e3, 0.0), || 0);
        }
        (side, tally.so_far(Phase::Bind).unwrap())
    };
    for millis in [&[57.8, 146.0][..], &[1.0], &[3.0, 1.0, 2.0, 57.849, 4.0]] {
        let (side, run) = of(millis);
        let measure = compare(&side, &side, Options::default()).phases[0].total.measure;
        assert_eq!((measure.p50, measure.p95), ([run.p50; 2], [run.p95; 2]), "{millis:?}");
    }
    let (_, run) = of(&[57.8, 146.0]);
    assert!((run.p50 - 0.057_8).abs() < 0.000_1, "the lower of two samples, not their mean: {}", run.p50);
}

#[test]
fn loads_of_another_kind_are_named() {
    let rng = &mut Rng::with_seed(4);
    let load = |rng: &mut Rng, hold, failed| {
        let mut side = side(rng, PLAIN, 20, 1);
        side.runs[0].summary.load = Some(LoadSummary { volumes: 20, failed, hold, ..LoadSummary::default() });
        side
    };
    let comparison = compare(&load(rng, false, 0), &load(rng, true, 1), Options::default());
    assert_eq!(comparison.differences.len(), 1, "{:?}", comparison.differences);
    assert!(comparison.differences[0].is[1].contains("held"));
    let run = everything(rng, &[("keeps", CaseResult::Passed)], "ours");
    assert!(compare(&run, &load(rng, false, 0), Options::default()).cases.is_empty(), "a load has no cases");
    assert_eq!(comparison.verdict, Verdict::Worse, "a volume failed");
}

mod folders {
    //! Reading them.

    use std::fs;

    use claimcheck_model::{
        Event, LoadEvent, LoggedEvent, Outcome, Phase, PhaseSample, Source, Stamp, SubjectIds, VolumeMode,
    };

    use super::super::{ReadError, Side};

    fn events(samples: u64) -> String {
        let sample = |n: u64| {
            // Reported out of order, as from two nodes.
            let end = Stamp { mono_ns: 1000 - n, wall_ns: 0 };
            let outcome = Outcome::Ok {
                start: Stamp::default(),
                end,
                source: Source::Watch,
                seconds: n as f64,
                driver_seconds: None,
                overhead_seconds: None,
            };
            Event::Phase(PhaseSample {
                phase: Phase::Bind,
                subject: SubjectIds::default(),
                claim: String::new(),
                handle: String::new(),
                driver: String::new(),
                class: String::new(),
                volume_mode: VolumeMode::Filesystem,
                outcome,
            })
        };
        let all = (0..samples).map(sample).chain([Event::RunFinished { seconds: 1.0, interrupted: false }]);
        let line =
            |event| serde_json::to_string(&LoggedEvent { at: Stamp::default(), event }).unwrap() + "\n";
        all.map(line).collect()
    }

    #[test]
    fn one_run_or_all_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Side::read(folder.path()), Err(ReadError::NoRuns(_))));
        assert!(matches!(Side::read(&folder.path().join("none")), Err(ReadError::NoRuns(_))));
        for (name, samples) in [("one", 3), ("two", 5)] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("events.ndjson"), events(samples)).unwrap();
        }
        fs::create_dir(folder.path().join("notes")).unwrap();
        let one = Side::read(&folder.path().join("one")).unwrap();
        let seconds: Vec<f64> = one.runs[0].samples[&Phase::Bind].iter().map(|sample| sample.total).collect();
        assert_eq!(seconds, [2.0, 1.0, 0.0], "not in the order in which they ended");
        assert_eq!(one.runs[0].api_requests, None);
        assert_eq!(Side::read(folder.path()).unwrap().runs.len(), 2);

        let one = folder.path().join("one");
        fs::create_dir(one.join("cluster")).unwrap();
        fs::write(one.join("cluster/api.ndjson"), "{}\n{}\n").unwrap();
        assert_eq!(Side::read(&one).unwrap().runs[0].api_requests, Some(2));
    }

    #[test]
    fn the_blocks_of_a_load_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let block = |mono_ns| {
            let start = Stamp { mono_ns, wall_ns: 0 };
            let logged = LoggedEvent { at: start, event: Event::Load(LoadEvent::Block { start }) };
            serde_json::to_string(&logged).unwrap() + "\n"
        };
        let lines = block(990) + &block(1000) + &events(2);
        fs::write(folder.path().join("events.ndjson"), lines).unwrap();
        assert_eq!(Side::read(folder.path()).unwrap().runs[0].blocks, [990, 1000]);
    }

    #[test]
    fn truncated_and_foreign_files_are_rejected_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(folder.path().join("events.ndjson"), text).unwrap();
        let whole = events(2);
        write(whole.lines().next().unwrap());
        assert!(matches!(Side::read(folder.path()), Err(ReadError::Unfinished(_))));
        // Of an event that no longer exists.
        let calibration =
            r#"{"at":{"mono_ns":1,"wall_ns":1},"event":"calibration","work":2,"times":3,"seconds":0.1}"#;
        write(&format!("{calibration}\n{whole}"));
        assert_eq!(Side::read(folder.path()).unwrap().runs[0].samples[&Phase::Bind].len(), 2);
        write(&format!("{whole}{{\"event\":\"of tomorrow\"}}\n"));
        let error = Side::read(folder.path()).unwrap_err();
        assert!(error.to_string().contains("events.ndjson line 4 "), "{error}");
    }
}
