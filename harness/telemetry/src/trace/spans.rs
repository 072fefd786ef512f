//! One volume's lifecycle as spans: the root, its phases, and within them CSI calls and writes to
//! the API.
//!
//! Pure. Ids are hashes of the span's identity, so the same lifecycle yields the same trace.

use claimcheck_model::{ApiWrite, Outcome, PhaseSample, RpcSummary, Stamp};
use sha2::{Digest, Sha256};

use super::{
    lifecycles::Lifecycle,
    otlp::{Code, Kind, Span, Status, attributes},
};

/// An interval of monotonic time.
#[derive(Clone, Copy)]
struct Interval {
    start: u64,
    end: u64,
}

impl Interval {
    fn from_phase(sample: &PhaseSample) -> Option<(Stamp, Self)> {
        match sample.outcome {
            Outcome::Ok { start, end, .. } => {
                Some((start, Self { start: start.mono_ns, end: end.mono_ns.max(start.mono_ns) }))
            }
            // The time at which it was aborted is not known: it has zero length.
            Outcome::Aborted { start } => Some((start, Self { start: start.mono_ns, end: start.mono_ns })),
            Outcome::Unobserved => None,
        }
    }

    fn lasting(start: Stamp, seconds: f64) -> Self {
        let start = start.mono_ns;
        Self { start, end: start.saturating_add((seconds * 1e9).round() as u64) }
    }

    fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    fn length(self) -> u64 {
        self.end - self.start
    }

    /// The distance between them; 0 if they overlap.
    fn gap(self, other: Self) -> u64 {
        let after = other.start.saturating_sub(self.end);
        after.max(self.start.saturating_sub(other.end))
    }
}

/// The common data of all spans of a trace.
struct Trace<'a> {
    /// The claim's uid, from which ids are derived.
    claim: &'a str,
    id: [u8; 16],
    /// One clock for all spans: wall clocks that are read one by one would not nest.
    base: Stamp,
}

/// A phase in its trace.
struct PhaseSpan<'a> {
    id: [u8; 8],
    interval: Interval,
    sample: &'a PhaseSample,
}

/// The trace of the volume of a claim, its root first; empty if none of its phases was observed.
pub(super) fn spans(claim: &str, lifecycle: &Lifecycle) -> Vec<Span> {
    let seen: Vec<(Stamp, Interval, &PhaseSample)> = lifecycle
        .phases
        .iter()
        .filter_map(|sample| Interval::from_phase(sample).map(|(from, interval)| (from, interval, sample)))
        .collect();
    let Some(&(base, ..)) = seen.first() else { return Vec::new() };
    let trace = Trace { claim, id: id(&[claim]), base };
    let root_id = id(&[claim, "life"]);

    let phases: Vec<PhaseSpan<'_>> = seen
        .into_iter()
        .enumerate()
        .map(|(nth, (_, interval, sample))| {
            let id = id(&[claim, sample.phase.name(), &nth.to_string()]);
            PhaseSpan { id, interval, sample }
        })
        .collect();
    let calls = lifecycle.calls.iter().map(|call| (Interval::lasting(call.start, call.seconds), call));
    let writes = lifecycle.writes.iter().map(|write| (Interval::lasting(write.start, write.seconds), write));
    let (calls, writes): (Vec<_>, Vec<_>) = (calls.collect(), writes.collect());
    let intervals = (phases.iter().map(|phase| phase.interval))
        .chain(calls.iter().map(|(interval, _)| *interval))
        .chain(writes.iter().map(|(interval, _)| *interval));
    let whole = intervals.fold(Interval { start: u64::MAX, end: 0 }, |whole, one| Interval {
        start: whole.start.min(one.start),
        end: whole.end.max(one.end),
    });

    let mut all = vec![trace.root(root_id, whole, lifecycle)];
    all.extend(phases.iter().map(|phase| trace.phase(root_id, phase)));
    for (nth, (interval, call)) in calls.into_iter().enumerate() {
        let is_part = |phase: &&PhaseSpan<'_>| {
            let same_node = call.node.is_empty() || phase.sample.subject.node == call.node;
            phase.sample.phase.info().rpc.is_some_and(|rpc| call.method == rpc) && same_node
        };
        // A watch may report the start of a phase later than the start of the resulting call: so of
        // the phases that do not enclose the call, the nearest one is its parent.
        let distance =
            |phase: &&PhaseSpan<'_>| (!phase.interval.contains(interval), phase.interval.gap(interval));
        let parent = phases.iter().filter(is_part).min_by_key(distance).map_or(root_id, |phase| phase.id);
        all.push(trace.call(parent, nth, interval, call));
    }
    for (nth, (interval, write)) in writes.into_iter().enumerate() {
        // The write that ends a phase is observed by a watch before its response: its start counts. Of the
        // phases that enclose it the shortest is its parent, since `schedule` encloses others.
        let begins = Interval { end: interval.start, ..interval };
        let around = phases.iter().filter(|phase| phase.interval.contains(begins));
        let parent = around.min_by_key(|phase| phase.interval.length()).map_or(root_id, |phase| phase.id);
        all.push(trace.write(parent, nth, interval, write));
    }
    all
}

impl Trace<'_> {
    fn span(&self, span_id: [u8; 8], parent: &[u8], interval: Interval) -> Span {
        let wall = |mono: u64| self.base.wall_ns.saturating_add(mono).saturating_sub(self.base.mono_ns);
        Span {
            trace_id: self.id.to_vec(),
            span_id: span_id.to_vec(),
            parent_span_id: parent.to_vec(),
            kind: Kind::Internal.into(),
            start_time_unix_nano: wall(interval.start),
            end_time_unix_nano: wall(interval.end),
            ..Span::default()
        }
    }

    fn root(&self, span_id: [u8; 8], interval: Interval, lifecycle: &Lifecycle) -> Span {
        let mut root = self.span(span_id, &[], interval);
        root.name = "volume".to_owned();
        let known = |field: fn(&PhaseSample) -> &str| {
            lifecycle.phases.iter().map(field).find(|value| !value.is_empty()).unwrap_or_default()
        };
        let (name, namespace) = named(known(|sample| &sample.claim));
        root.attributes = attributes(&[
            ("k8s.namespace.name", namespace),
            ("k8s.persistentvolumeclaim.name", name),
            // The monitor appends the start of a segment to the uid, so that traces of one claim have distinct IDs.
            ("k8s.persistentvolumeclaim.uid", self.claim.split('/').next().unwrap_or_default()),
            ("k8s.persistentvolume.name", known(|sample| &sample.subject.volume)),
            ("k8s.storageclass.name", known(|sample| &sample.class)),
            ("csi.driver", known(|sample| &sample.driver)),
            ("csi.volume_handle", known(|sample| &sample.handle)),
            ("claimcheck.case", &lifecycle.case.as_ref().map(ToString::to_string).unwrap_or_default()),
        ]);
        root
    }

    fn phase(&self, root: [u8; 8], PhaseSpan { id, interval, sample }: &PhaseSpan<'_>) -> Span {
        let mut span = self.span(*id, &root, *interval);
        span.name = sample.phase.name().to_owned();
        let (name, namespace) = named(&sample.claim);
        span.attributes = attributes(&[
            ("k8s.namespace.name", namespace),
            ("k8s.persistentvolumeclaim.name", name),
            ("k8s.node.name", &sample.subject.node),
            ("k8s.pod.uid", &sample.subject.pod),
            ("k8s.storageclass.name", &sample.class),
            ("csi.driver", &sample.driver),
            ("claimcheck.result", sample.outcome.name()),
        ]);
        if let Outcome::Aborted { .. } = sample.outcome {
            span.status = Some(failed("it started and never ended"));
        }
        span
    }

    fn call(&self, parent: [u8; 8], nth: usize, interval: Interval, call: &RpcSummary) -> Span {
        let span_id = id(&[self.claim, call.method.as_str(), "call", &nth.to_string()]);
        let mut span = self.span(span_id, &parent, interval);
        span.name = call.method.to_string();
        span.kind = Kind::Client.into();
        span.attributes = attributes(&[
            ("rpc.system", "grpc"),
            ("rpc.method", call.method.as_str()),
            ("rpc.response.status_code", &call.code),
            ("k8s.node.name", &call.node),
            ("csi.driver", &call.driver),
            ("claimcheck.retry", if call.retry { "true" } else { "false" }),
        ]);
        span.status = match call.code.as_str() {
            "OK" => None,
            "" => Some(failed("it never returned")),
            code => Some(failed(code)),
        };
        span
    }

    fn write(&self, parent: [u8; 8], nth: usize, interval: Interval, write: &ApiWrite) -> Span {
        let resource = write.resource();
        let span_id = id(&[self.claim, &write.verb, &resource, "write", &nth.to_string()]);
        let mut span = self.span(span_id, &parent, interval);
        span.name = format!("{} {resource}", write.verb);
        span.kind = Kind::Client.into();
        let code = if write.code == 0 { String::new() } else { write.code.to_string() };
        span.attributes = attributes(&[
            ("k8s.namespace.name", &write.object.key.namespace),
            ("k8s.object.name", &write.object.key.name),
            ("k8s.resource", &resource),
            ("k8s.verb", &write.verb),
            ("http.response.status_code", &code),
            ("user_agent.name", &write.agent),
        ]);
        span.status = match write.code {
            0 => Some(failed("no response")),
            400.. => Some(failed(&code)),
            _ => None,
        };
        span
    }
}

/// Name and namespace of `namespace/name`.
fn named(claim: &str) -> (&str, &str) {
    claim.split_once('/').map_or((claim, ""), |(namespace, name)| (name, namespace))
}

fn failed(message: &str) -> Status {
    Status { message: message.to_owned(), code: Code::Error.into() }
}

/// The first bytes of a hash of `parts`.
fn id<const N: usize>(parts: &[&str]) -> [u8; N] {
    let hash = Sha256::digest(parts.join("\n"));
    std::array::from_fn(|at| hash[at])
}
