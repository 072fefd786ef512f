//! The task around the timeline: one input channel, and events as output. Evidence and queries share the channel, so
//! a response includes everything that was sent before the query.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use claimcheck_model::{Event, PhaseSample};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Balance, Timeline};
use crate::evidence::Observation;

/// The input of the task.
#[derive(Debug)]
pub enum Input {
    /// An observation.
    Observation(Observation),
    /// A query for the leftovers of these claims, by uid. The response is sent once there are none, or at the deadline.
    Balance {
        /// The uids.
        claims: Vec<String>,
        /// The deadline.
        deadline: Instant,
        /// The channel of the response.
        answer: oneshot::Sender<Balance>,
    },
    /// A query for what is left of a volume without a claim.
    Volume {
        /// Its driver.
        driver: String,
        /// Its handle.
        handle: String,
        /// The channel of the response.
        answer: oneshot::Sender<Balance>,
    },
    /// A query for the phases of these claims that have ended.
    Phases {
        /// The uids.
        claims: Vec<String>,
        /// The channel of the response.
        answer: oneshot::Sender<Vec<PhaseSample>>,
    },
    /// These claims, by uid, will not be queried again, and nothing of them is left.
    Forget(Vec<String>),
    /// No more evidence will arrive.
    Finish {
        /// All calls are recorded, so that their order can be judged.
        complete: bool,
    },
}

impl From<Observation> for Input {
    fn from(evidence: Observation) -> Self {
        Self::Observation(evidence)
    }
}

/// How long the state of a claim is kept after its last query: records of calls and watch events arrive
/// on different paths, and the state of a later one would never be removed.
const MEMORY: Duration = Duration::from_secs(10);

/// The timeline has ended, so it answers no queries.
#[derive(Debug, thiserror::Error)]
#[error("the timeline of this run has ended: query balances before the run finishes")]
pub struct Closed;

/// A handle to a running timeline. The task ends when all handles are dropped, or upon [`Handle::finish`].
#[derive(Clone, Debug)]
pub struct Handle {
    input: mpsc::UnboundedSender<Input>,
}

impl Handle {
    /// The channel for evidence, for `evidence::watch` and the tap.
    pub fn evidence(&self) -> mpsc::UnboundedSender<Input> {
        self.input.clone()
    }

    /// The leftovers of these claims, by uid: returns as soon as there are none, or after `patience`.
    pub async fn settled(&self, claims: Vec<String>, timeout: Duration) -> Result<Balance, Closed> {
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now() + timeout;
        self.input.send(Input::Balance { claims, deadline, answer }).map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }

    /// The current leftovers of these claims, by uid.
    pub async fn balance(&self, claims: Vec<String>) -> Result<Balance, Closed> {
        self.settled(claims, Duration::ZERO).await
    }

    /// What is left of a volume without a claim, for example of a CSI inline volume, and the calls for it.
    ///
    /// # Errors
    /// The timeline has ended.
    pub async fn balance_of_volume(&self, driver: String, handle: String) -> Result<Balance, Closed> {
        let (answer, answered) = oneshot::channel();
        self.input.send(Input::Volume { driver, handle, answer }).map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }

    /// The phases of these claims, by uid, that have ended.
    ///
    /// # Errors
    /// The timeline has ended.
    pub async fn phases(&self, claims: Vec<String>) -> Result<Vec<PhaseSample>, Closed> {
        let (answer, answered) = oneshot::channel();
        self.input.send(Input::Phases { claims, answer }).map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }

    /// Removes claims, by uid, of which nothing is left: so the memory of a long run is bounded by the existing
    /// objects. Nothing is reported for them afterwards.
    pub fn forget(&self, claims: Vec<String>) {
        // A task that has ended has no state.
        let _ = self.input.send(Input::Forget(claims));
    }

    /// Ends the timeline: it reports aborted and unobserved phases, and if all calls are recorded (`complete`), those out
    /// of order that a call which arrived late may have justified.
    pub fn finish(&self, complete: bool) {
        // A task that has ended is finished already.
        let _ = self.input.send(Input::Finish { complete });
    }
}

/// Starts the task. It sends to `events` until it is finished or the receiver is dropped.
pub fn start(timeline: Timeline, events: mpsc::UnboundedSender<Event>) -> (Handle, JoinHandle<()>) {
    let (input, inputs) = mpsc::unbounded_channel();
    (Handle { input }, tokio::spawn(run(timeline, inputs, events)))
}

struct Waiting {
    claims: Vec<String>,
    deadline: Instant,
    answer: oneshot::Sender<Balance>,
}

async fn run(
    mut timeline: Timeline,
    mut inputs: mpsc::UnboundedReceiver<Input>,
    events: mpsc::UnboundedSender<Event>,
) {
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut forgotten: VecDeque<(Instant, Vec<String>)> = VecDeque::new();
    let mut phases: HashMap<String, Vec<PhaseSample>> = HashMap::new();
    loop {
        while let Some((_, claims)) = forgotten.pop_front_if(|(at, _)| at.elapsed() > MEMORY) {
            timeline.forget(&claims);
            claims.iter().for_each(|claim| drop(phases.remove(claim)));
        }
        let next_deadline = waiting.iter().map(|waiting| waiting.deadline).min();
        let input = match next_deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, inputs.recv()).await.ok(),
            None => Some(inputs.recv().await),
        };
        let mut happened = Vec::new();
        match input {
            Some(Some(Input::Observation(evidence))) => happened = timeline.feed(&evidence),
            Some(Some(Input::Balance { claims, deadline, answer })) => {
                waiting.push(Waiting { claims, deadline, answer });
            }
            Some(Some(Input::Volume { driver, handle, answer })) => {
                // The caller may have given up.
                let _ = answer.send(timeline.balance_of_volume(driver, handle));
            }
            Some(Some(Input::Phases { claims, answer })) => {
                let of_claims = claims.iter().filter_map(|claim| phases.get(claim)).flatten();
                // The caller may have given up.
                let _ = answer.send(of_claims.cloned().collect());
            }
            Some(Some(Input::Forget(claims))) => forgotten.push_back((Instant::now(), claims)),
            Some(finish @ (Some(Input::Finish { .. }) | None)) => {
                if let Some(Input::Finish { complete: false }) = finish {
                    timeline.sets.dismiss_suspects();
                }
                for event in timeline.finish() {
                    // Without listeners the event is dropped.
                    let _ = events.send(event);
                }
                return;
            }
            None => {}
        }
        for event in happened {
            if let Event::Phase(sample) = &event {
                phases.entry(sample.subject.claim.clone()).or_default().push(sample.clone());
            }
            if events.send(event).is_err() {
                return;
            }
        }
        // A burst is processed completely before queries are checked again.
        if !waiting.is_empty() && (inputs.is_empty() || next_deadline.is_some_and(|at| at <= Instant::now()))
        {
            waiting = waiting.into_iter().filter_map(|asked| answered(&timeline, asked)).collect();
        }
    }
}

/// Answers a query if it is due; else returns it.
fn answered(timeline: &Timeline, asked: Waiting) -> Option<Waiting> {
    let balance = timeline.balance(asked.claims.iter().map(String::as_str));
    if !balance.is_clean() && asked.deadline > Instant::now() {
        return Some(asked);
    }
    // The caller may have given up.
    let _ = asked.answer.send(balance);
    None
}
