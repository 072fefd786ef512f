//! Exports traces to the collector: in batches, with a few retries, and never waiting for longer than
//! [`Timeouts`] permits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claimcheck_model::{Event, Stamp};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    collector::Collector,
    lifecycles::Lifecycles,
    otlp::{Request, Resource, ResourceSpans, ScopeSpans, Span, attributes},
    sender::{Failure, Sender},
};

/// The size of the send queue; additional traces are dropped.
const WAITING: usize = 4096;
/// Traces in one request.
const BATCH: usize = 64;
/// The number of attempts per batch.
const ATTEMPTS: u32 = 5;

/// Timeouts of the collector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// For one response.
    pub attempt: Duration,
    /// The delay before the second attempt; doubled for each following one.
    pub backoff: Duration,
    /// For all remaining traces at the end of the run.
    pub end: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let (attempt, backoff) = (Duration::from_secs(5), Duration::from_millis(250));
        Self { attempt, backoff, end: Duration::from_secs(3) }
    }
}

/// The result of sending.
#[derive(Debug, Default)]
struct Sent {
    /// Delivered traces.
    arrived: usize,
    /// The error of the last failed attempt.
    failed: Option<String>,
}

/// Creates traces from events and sends them.
#[derive(Debug)]
pub struct Exporter {
    lifecycles: Lifecycles,
    traces: mpsc::Sender<Vec<Span>>,
    sending: JoinHandle<()>,
    /// The number of traces created.
    made: usize,
    sent: Arc<Mutex<Sent>>,
    timeouts: Timeouts,
    collector: Collector,
}

impl Exporter {
    /// Starts sending to `collector`.
    pub fn start(collector: Collector) -> Self {
        Self::with_timeouts(collector, Timeouts::default())
    }

    pub(super) fn with_timeouts(collector: Collector, timeouts: Timeouts) -> Self {
        let (traces, waiting) = mpsc::channel(WAITING);
        let sent = Arc::<Mutex<Sent>>::default();
        let sending = tokio::spawn(send_all(collector.clone(), timeouts, waiting, sent.clone()));
        Self { lifecycles: Lifecycles::default(), traces, sending, made: 0, sent, timeouts, collector }
    }

    /// Records an event received at `now`; sends the traces of deleted volumes.
    pub fn observe(&mut self, event: &Event, now: Stamp) {
        let traces = self.lifecycles.observe(event, now);
        self.queue(traces);
    }

    fn queue(&mut self, traces: Vec<Vec<Span>>) {
        for trace in traces {
            self.made += 1;
            // A trace that does not fit into the queue is reported as missing in `finish`.
            let _ = self.traces.try_send(trace);
        }
    }

    /// Sends the remaining traces. Returns a warning if not all were delivered.
    pub async fn finish(mut self) -> Option<String> {
        let rest = self.lifecycles.finish();
        self.queue(rest);
        drop(self.traces);
        let stop = self.sending.abort_handle();
        if tokio::time::timeout(self.timeouts.end, self.sending).await.is_err() {
            stop.abort();
        }
        let sent = lock(&self.sent);
        let missed = self.made - sent.arrived;
        let why = sent.failed.clone();
        let why =
            why.unwrap_or_else(|| format!("not all was sent within {:?} after the run", self.timeouts.end));
        (missed > 0)
            .then(|| format!("{missed} of {} traces did not reach {}: {why}", self.made, self.collector))
    }
}

/// Sends until the queue is closed.
async fn send_all(
    collector: Collector,
    timeouts: Timeouts,
    mut waiting: mpsc::Receiver<Vec<Span>>,
    sent: Arc<Mutex<Sent>>,
) {
    let sender = match Sender::new(&collector) {
        Ok(sender) => sender,
        Err(why) => return lock(&sent).failed = Some(why),
    };
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let traces = batch.len();
        let request = request(batch.drain(..).flatten().collect());
        if deliver(&sender, timeouts, &request, &sent).await {
            lock(&sent).arrived += traces;
        }
    }
}

/// Retries until a request succeeded, which it returns, or retrying is pointless.
async fn deliver(sender: &Sender, timeouts: Timeouts, request: &Request, sent: &Mutex<Sent>) -> bool {
    let mut backoff = timeouts.backoff;
    for attempt in 1..=ATTEMPTS {
        let failure = match tokio::time::timeout(timeouts.attempt, sender.send(request)).await {
            Ok(Ok(())) => return true,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Transient(format!("no response within {:?}", timeouts.attempt)),
        };
        let (why, again) = match failure {
            Failure::Transient(why) => (why, attempt < ATTEMPTS),
            Failure::Permanent(why) => (why, false),
        };
        lock(sent).failed = Some(why);
        if !again {
            break;
        }
        tokio::time::sleep(backoff).await;
        backoff *= 2;
    }
    false
}

fn lock(sent: &Mutex<Sent>) -> MutexGuard<'_, Sent> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

fn request(spans: Vec<Span>) -> Request {
    let who = [("service.name", "claimcheck"), ("service.version", env!("CARGO_PKG_VERSION"))];
    let resource = Some(Resource { attributes: attributes(&who) });
    Request { resource_spans: vec![ResourceSpans { resource, scope_spans: vec![ScopeSpans { spans }] }] }
}
