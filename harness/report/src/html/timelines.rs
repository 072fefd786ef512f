//! The lifecycle of every volume, from the events of a run: the data that the page draws. Pure.

use std::collections::{BTreeMap, HashMap};

use claimcheck_model::{CaseId, Event, FailureDump, Outcome, Phase, PhaseSample, RpcSummary, Stamp};
use serde::Serialize;

/// The maximum number of rows on a page: a soak test has too many volumes to display.
const ROWS: usize = 5_000;

/// The lifecycles of the volumes of a run, and the durations of their phases.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    samples: Vec<PhaseSample>,
    calls: Vec<RpcSummary>,
    /// The case that a namespace belongs to.
    cases: HashMap<String, CaseId>,
    /// The conditions that each case waited for.
    steps: HashMap<CaseId, Vec<StepLine>>,
    /// The evidence of failed cases.
    evidence: HashMap<CaseId, FailureDump>,
}

/// A step of a case.
#[derive(Debug)]
pub(super) struct StepLine {
    /// The condition.
    pub what: String,
    /// The duration of the wait, seconds.
    pub seconds: f64,
    /// The last observed state, if the condition was not met.
    pub failed: Option<String>,
}

/// All durations of one phase; seconds.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The totals.
    pub total: Vec<f64>,
    /// The driver's part.
    pub driver: Vec<f64>,
}

/// The data of the timeline. Compact, since there may be tens of thousands of bars.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Timeline {
    /// Its start: milliseconds since the Unix epoch. All other times are microseconds since then.
    pub started: u64,
    /// Names that bars and calls refer to by index.
    pub phases: Vec<&'static str>,
    pub methods: Vec<String>,
    pub codes: Vec<String>,
    pub nodes: Vec<String>,
    pub cases: Vec<String>,
    pub classes: Vec<String>,
    pub rows: Vec<Row>,
    /// The number of omitted volumes.
    #[serde(skip)]
    pub omitted: usize,
}

/// One volume.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// The claim, by namespace and name; for a volume without one its own name.
    pub name: String,
    /// The PersistentVolume; empty if there never was one.
    pub volume: String,
    /// The handle; empty if unknown.
    pub handle: String,
    /// The case, if it belongs to one.
    pub case: Option<usize>,
    pub class: usize,
    pub bars: Vec<Bar>,
    pub calls: Vec<Call>,
}

/// A phase: number, start, length, the driver's part, node. A phase that never ended has no length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Bar(pub usize, pub u64, pub Option<u64>, pub u64, pub Option<usize>);

/// A call: method, start, length, code, node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Call(pub usize, pub u64, pub u64, pub usize, pub Option<usize>);

/// Interned names.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    fn known(&mut self, name: &str) -> Option<usize> {
        (!name.is_empty()).then(|| self.number(name))
    }
}

impl Timelines {
    /// Records an event.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Phase(sample) => self.samples.push(sample.clone()),
            Event::Rpc(call) => self.calls.push(call.clone()),
            Event::CaseStarted { case, namespace } if !namespace.is_empty() => {
                self.cases.insert(namespace.clone(), case.clone());
            }
            Event::Step { case, what, seconds, failed, .. } => {
                let step = StepLine { what: what.clone(), seconds: *seconds, failed: failed.clone() };
                self.steps.entry(case.clone()).or_default().push(step);
            }
            Event::FailureDump(evidence) => {
                drop(self.evidence.insert(evidence.case.clone(), evidence.clone()))
            }
            _ => {}
        }
    }

    /// The conditions that a case waited for, in order.
    pub fn steps(&self, case: &CaseId) -> &[StepLine] {
        self.steps.get(case).map_or(&[], Vec::as_slice)
    }

    /// The evidence of a failed case.
    pub fn evidence(&self, case: &CaseId) -> Option<&FailureDump> {
        self.evidence.get(case)
    }

    /// The durations of each phase, in lifecycle order.
    pub fn times(&self) -> BTreeMap<Phase, Times> {
        let mut times: BTreeMap<Phase, Times> = BTreeMap::new();
        for sample in &self.samples {
            if let Outcome::Ok { seconds, driver_seconds, .. } = sample.outcome {
                let of_phase = times.entry(sample.phase).or_default();
                of_phase.total.push(seconds);
                of_phase.driver.extend(driver_seconds);
            }
        }
        times
    }

    /// The rows of all volumes, in the order of their start.
    pub fn timeline(&self) -> Timeline {
        let starts = self.samples.iter().filter_map(|sample| Some(start(&sample.outcome)?.0));
        let first = starts.chain(self.calls.iter().map(|call| call.start)).min().unwrap_or_default();
        let micros = |stamp: Stamp| stamp.mono_ns.saturating_sub(first.mono_ns) / 1000;
        let (mut rows, mut by_claim) = (Vec::<Row>::new(), HashMap::<String, usize>::new());
        let (mut methods, mut codes, mut nodes) = (Names::default(), Names::default(), Names::default());
        let (mut cases, mut classes) = (Names::default(), Names::default());
        let in_pods = self.volumes_of_pods();
        let mut row_of = |sample: &PhaseSample, rows: &mut Vec<Row>| {
            let name = if sample.claim.is_empty() { &sample.subject.volume } else { &sample.claim };
            if name.is_empty() {
                return None;
            }
            Some(*by_claim.entry(name.clone()).or_insert_with(|| {
                let namespace = name.split_once('/').map_or("", |(namespace, _)| namespace);
                let case = self.cases.get(namespace).map(|case| cases.number(&case.to_string()));
                let class = classes.number(&sample.class);
                rows.push(Row { name: name.clone(), case, class, ..Row::default() });
                rows.len() - 1
            }))
        };
        for sample in &self.samples {
            let Some((started, length, driver)) = start(&sample.outcome) else { continue };
            // A pod's phases belong to all its volumes.
            let own = [row_of(sample, &mut rows)];
            let others =
                in_pods.get(sample.subject.pod.as_str()).filter(|_| sample.subject.volume.is_empty());
            let others: Vec<_> = others.into_iter().flatten().map(|other| row_of(other, &mut rows)).collect();
            let mut seen = own.into_iter().chain(others).flatten().collect::<Vec<_>>();
            seen.sort_unstable();
            seen.dedup();
            let node = nodes.known(&sample.subject.node);
            let bar = Bar(sample.phase as usize, micros(started), length, driver, node);
            for number in seen {
                let row = &mut rows[number];
                if row.volume.is_empty() {
                    row.volume.clone_from(&sample.subject.volume);
                }
                if row.handle.is_empty() {
                    row.handle.clone_from(&sample.handle);
                }
                row.bars.push(bar.clone());
            }
        }
        let known = rows.iter().enumerate();
        let known: HashMap<String, usize> = known
            .flat_map(|(i, row)| [(row.volume.clone(), i), (row.handle.clone(), i)])
            .filter(|(name, _)| !name.is_empty())
            .collect();
        for call in &self.calls {
            let Some(&row) = known.get(&call.volume) else { continue };
            let (method, code) = (methods.number(call.method.as_str()), codes.number(&call.code));
            let (length, node) = ((call.seconds * 1e6) as u64, nodes.known(&call.node));
            rows[row].calls.push(Call(method, micros(call.start), length, code, node));
        }
        let omitted = rows.len().saturating_sub(ROWS);
        if omitted > 0 {
            let took = |row: &Row| row.bars.iter().map(|bar| bar.2.unwrap_or(u64::MAX >> 16)).sum::<u64>();
            rows.sort_by_cached_key(|row| std::cmp::Reverse(took(row)));
            rows.truncate(ROWS);
        }
        for row in &mut rows {
            row.bars.sort_by_key(|bar| (bar.1, bar.0));
            row.calls.sort_by_key(|call| call.1);
        }
        rows.sort_by_key(|row| row.bars.first().map_or(u64::MAX, |bar| bar.1));
        Timeline {
            started: first.wall_ns / 1_000_000,
            phases: Phase::ALL.iter().map(|phase| phase.name()).collect(),
            methods: methods.names,
            codes: codes.names,
            nodes: nodes.names,
            cases: cases.names,
            classes: classes.names,
            rows,
            omitted,
        }
    }

    /// A sample of each volume of a pod, by the pod's uid.
    fn volumes_of_pods(&self) -> HashMap<&str, Vec<&PhaseSample>> {
        let mut pods: HashMap<&str, Vec<&PhaseSample>> = HashMap::new();
        for sample in self.samples.iter().filter(|sample| sample.phase == Phase::Publish) {
            pods.entry(&sample.subject.pod).or_default().push(sample);
        }
        pods
    }
}

/// The start of a phase, and its duration and the driver's part in microseconds; none if its start was not
/// observed. A part that was not observed is not drawn.
fn start(outcome: &Outcome) -> Option<(Stamp, Option<u64>, u64)> {
    match *outcome {
        Outcome::Ok { start, end, driver_seconds, .. } => {
            let length = end.mono_ns.saturating_sub(start.mono_ns) / 1000;
            Some((start, Some(length), (driver_seconds.unwrap_or_default() * 1e6) as u64))
        }
        Outcome::Aborted { start } => Some((start, None, 0)),
        Outcome::Unobserved => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use claimcheck_model::{Source, SubjectIds, VolumeMode};

    fn at(micros: u64) -> Stamp {
        Stamp { mono_ns: micros * 1000, wall_ns: 5_000_000_000 + micros * 1000 }
    }

    fn sample(phase: Phase, claim: &str, subject: SubjectIds, from: u64, to: u64) -> Event {
        let seconds = (to - from) as f64 / 1e6;
        let (source, driver_seconds) = (Source::Watch, Some(seconds / 2.0));
        let outcome = Outcome::Ok {
            start: at(from),
            end: at(to),
            source,
            seconds,
            driver_seconds,
            overhead_seconds: Some(seconds / 2.0),
        };
        let (driver, class, volume_mode) = ("d".into(), "fast".into(), VolumeMode::Filesystem);
        let handle = if subject.volume.is_empty() { String::new() } else { format!("h-{}", subject.volume) };
        let claim = claim.to_owned();
        Event::Phase(PhaseSample { phase, subject, claim, handle, driver, class, volume_mode, outcome })
    }

    fn ids(volume: &str, pod: &str, node: &str) -> SubjectIds {
        let (volume, pod, node) = (volume.into(), pod.into(), node.into());
        SubjectIds { claim: String::new(), volume, pod, node }
    }

    fn timeline_of(events: &[Event]) -> Timeline {
        let mut timelines = Timelines::default();
        events.iter().for_each(|event| timelines.observe(event));
        timelines.timeline()
    }

    #[test]
    fn a_pods_phases_are_in_the_rows_of_all_its_volumes() {
        let case = CaseId::new("multi_volume", "two volumes");
        let timeline = timeline_of(&[
            Event::CaseStarted { case: case.clone(), namespace: "ns".into() },
            sample(Phase::Provision, "ns/b", ids("pv-b", "", ""), 300, 500),
            sample(Phase::Provision, "ns/a", ids("pv-a", "", ""), 100, 400),
            sample(Phase::Publish, "ns/a", ids("pv-a", "pod", "n1"), 600, 700),
            sample(Phase::Publish, "ns/b", ids("pv-b", "pod", "n1"), 610, 720),
            sample(Phase::Start, "ns/a", ids("", "pod", "n1"), 720, 900),
        ]);
        assert_eq!(timeline.started, 5_000);
        let names: Vec<_> = timeline.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["ns/a", "ns/b"], "in the order in which they begin");
        for row in &timeline.rows {
            let phases: Vec<_> = row.bars.iter().map(|bar| timeline.phases[bar.0]).collect();
            assert_eq!(phases, ["provision", "publish", "start"], "{}", row.name);
            assert_eq!(row.case.map(|case| timeline.cases[case].as_str()), Some(case.to_string().as_str()));
        }
        assert_eq!(timeline.rows[0].bars[0], Bar(Phase::Provision as usize, 0, Some(300), 150, None));
        assert_eq!(timeline.rows[1].bars[2], Bar(Phase::Start as usize, 620, Some(180), 90, Some(0)));
    }

    #[test]
    fn calls_are_found_by_name_and_by_handle_and_those_of_no_volume_left_out() {
        let call = |method: &str, volume: &str, start| {
            let (driver, method, code) = ("d".into(), method.into(), "OK".into());
            let (volume, node) = (volume.into(), String::new());
            let start = at(start);
            Event::Rpc(RpcSummary { driver, method, code, volume, node, start, seconds: 20e-6, retry: false })
        };
        let timeline = timeline_of(&[
            call("Probe", "", 90),
            call("CreateVolume", "pv", 110),
            call("NodeStageVolume", "h-pv", 250),
            sample(Phase::Provision, "ns/c", ids("pv", "", ""), 100, 200),
        ]);
        let calls = &timeline.rows[0].calls;
        assert_eq!(calls, &[Call(0, 20, 20, 0, None), Call(1, 160, 20, 0, None)]);
        assert_eq!(timeline.methods, ["CreateVolume", "NodeStageVolume"]);
    }

    #[test]
    fn an_aborted_phase_has_no_length_and_an_unobserved_one_no_bar() {
        let event = |outcome| {
            let Event::Phase(mut sample) = sample(Phase::Attach, "ns/c", ids("pv", "", ""), 0, 1) else {
                unreachable!("it is a phase")
            };
            sample.outcome = outcome;
            Event::Phase(sample)
        };
        let timeline = timeline_of(&[event(Outcome::Aborted { start: at(7) }), event(Outcome::Unobserved)]);
        assert_eq!(timeline.rows[0].bars, [Bar(Phase::Attach as usize, 0, None, 0, None)]);
    }
}
