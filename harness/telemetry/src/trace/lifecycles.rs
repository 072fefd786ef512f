//! From events to traces: the data of a volume is kept until it is deleted, and becomes one trace.
//!
//! Pure: time is taken from the events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use claimcheck_model::{
    ApiWrite, CaseId, Event, LifecycleObject, LifecycleObjectKind, ObjectKey, Outcome, Phase, PhaseSample,
    RpcSummary, Stamp,
};

use super::{otlp::Span, pending_writes::PendingWrites, spans::spans};

/// The maximum number of volumes that are not deleted yet, and of volumes with calls but no phase; beyond it
/// the oldest is dropped, so that memory is bounded in long loads.
const VOLUMES: usize = 20_000;
/// The maximum number of calls per volume: of a call that is retried for hours the first ones are kept.
const CALLS: usize = 1000;
/// How many seconds after a volume's deletion its events may arrive, since they come from other sources.
const LINGER: f64 = 2.0;

/// A volume as identified by calls: driver, and handle or name.
type CalledVolume = (String, String);

/// The collected data of one volume.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    pub phases: Vec<PhaseSample>,
    pub calls: Vec<RpcSummary>,
    pub writes: Vec<ApiWrite>,
    /// The case that owns its namespace.
    pub case: Option<CaseId>,
}

/// The volumes that are not deleted yet, and events that may belong to them.
#[derive(Debug, Default)]
pub(super) struct Lifecycles {
    /// By the claim's uid.
    lifecycles: BTreeMap<String, Lifecycle>,
    calls: BTreeMap<CalledVolume, Vec<RpcSummary>>,
    writes: PendingWrites,
    /// By namespace.
    cases: BTreeMap<String, CaseId>,
    /// Claims with a deleted volume, and when that was reported.
    ending: VecDeque<(Stamp, String)>,
    /// Claims with a completed trace, so that late events create no second trace; in order of completion.
    completed: VecDeque<String>,
    is_complete: BTreeSet<String>,
}

impl Lifecycles {
    /// Records an event received at `now`; returns the traces of deleted volumes.
    pub fn observe(&mut self, event: &Event, now: Stamp) -> Vec<Vec<Span>> {
        match event {
            Event::CaseStarted { case, namespace } if !namespace.is_empty() => {
                self.cases.insert(namespace.clone(), case.clone());
            }
            Event::Rpc(call) if !call.volume.is_empty() => {
                let calls = self.calls.entry((call.driver.clone(), call.volume.clone())).or_default();
                if calls.len() < CALLS {
                    calls.push(call.clone());
                }
                if self.calls.len() > VOLUMES {
                    self.calls.pop_first();
                }
            }
            Event::ApiWrite(write) => self.writes.enter(write),
            Event::Phase(sample) if !sample.subject.claim.is_empty() => {
                let claim = &sample.subject.claim;
                if let Some(lifecycle) = self.lifecycle(claim) {
                    lifecycle.phases.push(sample.clone());
                    if sample.phase == Phase::Delete {
                        self.ending.push_back((now, claim.clone()));
                    }
                }
            }
            _ => {}
        }
        let mut traces = Vec::new();
        while let Some((_, claim)) =
            self.ending.pop_front_if(|(ended, _)| now.seconds_since(*ended) >= LINGER)
        {
            traces.extend(self.leave(&claim));
        }
        while self.lifecycles.len() > VOLUMES
            && let Some(first) = self.lifecycles.keys().next().cloned()
        {
            traces.extend(self.leave(&first));
        }
        traces
    }

    /// The traces of the remaining volumes.
    pub fn finish(&mut self) -> Vec<Vec<Span>> {
        let claims: Vec<String> = self.lifecycles.keys().cloned().collect();
        claims.iter().filter_map(|claim| self.leave(claim)).collect()
    }

    /// The data of a claim's volume, unless its trace is complete.
    fn lifecycle(&mut self, claim: &str) -> Option<&mut Lifecycle> {
        (!self.is_complete.contains(claim)).then(|| self.lifecycles.entry(claim.to_owned()).or_default())
    }

    /// The trace of one volume, if there is any data; removes its calls.
    fn leave(&mut self, claim: &str) -> Option<Vec<Span>> {
        let mut lifecycle = self.lifecycles.remove(claim)?;
        for sample in &lifecycle.phases {
            // CreateVolume identifies the volume by name, the others by handle.
            for called in [&sample.handle, &sample.subject.volume] {
                let of_volume = self.calls.remove(&(sample.driver.clone(), called.clone()));
                lifecycle.calls.extend(of_volume.into_iter().flatten());
            }
        }
        lifecycle.calls.sort_by_key(|call| call.start);
        lifecycle.writes = self.writes.take(objects(&lifecycle.phases), end(&lifecycle.phases));
        let namespaces = lifecycle.phases.iter().filter_map(|sample| sample.claim.split_once('/'));
        lifecycle.case = namespaces.filter_map(|(namespace, _)| self.cases.get(namespace)).next().cloned();
        self.is_complete.insert(claim.to_owned());
        self.completed.push_back(claim.to_owned());
        if self.completed.len() > VOLUMES
            && let Some(first) = self.completed.pop_front()
        {
            self.is_complete.remove(&first);
        }
        Some(spans(claim, &lifecycle)).filter(|spans| !spans.is_empty())
    }
}

/// The claim and the volume of these phases.
fn objects(phases: &[PhaseSample]) -> BTreeSet<LifecycleObject> {
    let claims = phases.iter().filter_map(|sample| sample.claim.split_once('/'));
    let claims =
        claims.map(|(namespace, name)| (LifecycleObjectKind::Claim, ObjectKey::new(namespace, name)));
    let volumes = phases.iter().map(|sample| &sample.subject.volume).filter(|name| !name.is_empty());
    let volumes = volumes.map(|name| (LifecycleObjectKind::Volume, ObjectKey::cluster(name)));
    claims.chain(volumes).map(|(kind, key)| LifecycleObject { kind, key }).collect()
}

/// When the volume was deleted, if observed.
fn end(phases: &[PhaseSample]) -> Option<Stamp> {
    phases.iter().find_map(|sample| match sample.outcome {
        Outcome::Ok { end, .. } if sample.phase == Phase::Delete => Some(end),
        _ => None,
    })
}
