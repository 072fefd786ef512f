//! The way to the collector: traces in batches, tried again a few times, and never waited for longer than
//! [`Patience`] says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claimcheck_model::{Event, Stamp};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    collector::Collector,
    lives::Lives,
    otlp::{Request, Resource, ResourceSpans, ScopeSpans, Span, attributes},
    sender::{Failure, Sender},
};

/// Traces that wait to be sent; further ones are dropped.
const WAITING: usize = 4096;
/// Traces in one request.
const BATCH: usize = 64;
/// How often a batch is tried.
const ATTEMPTS: u32 = 5;

/// How long a collector is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For one answer.
    pub attempt: Duration,
    /// Before the second attempt; doubled before each further.
    pub backoff: Duration,
    /// For all that is left at the end of the run.
    pub end: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (attempt, backoff) = (Duration::from_secs(5), Duration::from_millis(250));
        Self { attempt, backoff, end: Duration::from_secs(3) }
    }
}

/// What became of what was sent.
#[derive(Debug, Default)]
struct Sent {
    /// Traces that arrived.
    arrived: usize,
    /// Why the last attempt that failed did.
    failed: Option<String>,
}

/// Makes traces of events and sends them.
#[derive(Debug)]
pub struct Exporter {
    lives: Lives,
    traces: mpsc::Sender<Vec<Span>>,
    sending: JoinHandle<()>,
    /// Traces that were made.
    made: usize,
    sent: Arc<Mutex<Sent>>,
    patience: Patience,
    collector: Collector,
}

impl Exporter {
    /// Starts sending to `collector`.
    pub fn start(collector: Collector) -> Self {
        Self::patient(collector, Patience::default())
    }

    pub(super) fn patient(collector: Collector, patience: Patience) -> Self {
        let (traces, waiting) = mpsc::channel(WAITING);
        let sent = Arc::<Mutex<Sent>>::default();
        let sending = tokio::spawn(send_all(collector.clone(), patience, waiting, sent.clone()));
        Self { lives: Lives::default(), traces, sending, made: 0, sent, patience, collector }
    }

    /// Enters an event that came at `now`; sends the traces of the volumes whose life has ended.
    pub fn observe(&mut self, event: &Event, now: Stamp) {
        let traces = self.lives.observe(event, now);
        self.queue(traces);
    }

    fn queue(&mut self, traces: Vec<Vec<Span>>) {
        for trace in traces {
            self.made += 1;
            // One that finds no room is missed in `finish`.
            let _ = self.traces.try_send(trace);
        }
    }

    /// Sends what is left. Returns what to tell where not all has arrived.
    pub async fn finish(mut self) -> Option<String> {
        let rest = self.lives.finish();
        self.queue(rest);
        drop(self.traces);
        let stop = self.sending.abort_handle();
        if tokio::time::timeout(self.patience.end, self.sending).await.is_err() {
            stop.abort();
        }
        let sent = lock(&self.sent);
        let missed = self.made - sent.arrived;
        let why = sent.failed.clone();
        let why =
            why.unwrap_or_else(|| format!("not all was taken within {:?} after the run", self.patience.end));
        (missed > 0)
            .then(|| format!("{missed} of {} traces did not reach {}: {why}", self.made, self.collector))
    }
}

/// Sends until no more traces come.
async fn send_all(
    collector: Collector,
    patience: Patience,
    mut waiting: mpsc::Receiver<Vec<Span>>,
    sent: Arc<Mutex<Sent>>,
) {
    let mut sender = match Sender::new(&collector) {
        Ok(sender) => sender,
        Err(why) => return lock(&sent).failed = Some(why),
    };
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let traces = batch.len();
        let request = request(batch.drain(..).flatten().collect());
        if deliver(&mut sender, patience, &request, &sent).await {
            lock(&sent).arrived += traces;
        }
    }
}

/// Tries until a request arrived, which it returns, or there is no more sense in it.
async fn deliver(sender: &mut Sender, patience: Patience, request: &Request, sent: &Mutex<Sent>) -> bool {
    let mut backoff = patience.backoff;
    for attempt in 1..=ATTEMPTS {
        let failure = match tokio::time::timeout(patience.attempt, sender.send(request)).await {
            Ok(Ok(())) => return true,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Passing(format!("no answer within {:?}", patience.attempt)),
        };
        let (why, again) = match failure {
            Failure::Passing(why) => (why, attempt < ATTEMPTS),
            Failure::Lasting(why) => (why, false),
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
