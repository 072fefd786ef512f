//! The task around the timeline: one channel in, events out. Evidence and questions share the channel, so
//! an answer knows everything that was sent before the question.

use std::{collections::VecDeque, time::Duration};

use claimcheck_model::Event;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Balance, Timeline};
use crate::evidence::Evidence;

/// What the task takes.
#[derive(Debug)]
pub enum Input {
    /// Something was seen.
    Evidence(Evidence),
    /// What do these claims, by uid, still have? The answer comes once they have nothing, or at the deadline.
    Balance {
        /// The uids.
        claims: Vec<String>,
        /// When to answer at the latest.
        deadline: Instant,
        /// Where to.
        answer: oneshot::Sender<Balance>,
    },
    /// Nobody will ask for these claims, by uid, any more, and all of theirs is gone.
    Forget(Vec<String>),
    /// No more evidence will come.
    Finish,
}

impl From<Evidence> for Input {
    fn from(evidence: Evidence) -> Self {
        Self::Evidence(evidence)
    }
}

/// How long a claim is remembered after nobody asks for it any more: records of calls and watch events come
/// by different ways, and one that comes later would be remembered for ever.
const MEMORY: Duration = Duration::from_secs(10);

/// The timeline has ended, so it answers no more questions.
#[derive(Debug, thiserror::Error)]
#[error("the timeline of this run has ended: ask for balances before the run finishes")]
pub struct Closed;

/// The way to a running timeline. The task ends when all are dropped, or upon [`Handle::finish`].
#[derive(Clone, Debug)]
pub struct Handle {
    input: mpsc::UnboundedSender<Input>,
}

impl Handle {
    /// Where evidence goes: for `evidence::watch` and the tap.
    pub fn evidence(&self) -> mpsc::UnboundedSender<Input> {
        self.input.clone()
    }

    /// What these claims, by uid, have left: answered as soon as that is nothing, after `patience` anyhow.
    pub async fn settled(&self, claims: Vec<String>, patience: Duration) -> Result<Balance, Closed> {
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now() + patience;
        self.input.send(Input::Balance { claims, deadline, answer }).map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }

    /// What these claims, by uid, have now.
    pub async fn balance(&self, claims: Vec<String>) -> Result<Balance, Closed> {
        self.settled(claims, Duration::ZERO).await
    }

    /// Lets go of claims, by uid, of which nothing is left: what a long run remembers is bounded by what is
    /// there. Nothing is reported for them any more.
    pub fn forget(&self, claims: Vec<String>) {
        // A task that is gone remembers nothing.
        let _ = self.input.send(Input::Forget(claims));
    }

    /// Ends the timeline: it reports what is aborted or unobserved.
    pub fn finish(&self) {
        // A task that is gone has finished already.
        let _ = self.input.send(Input::Finish);
    }
}

/// Starts the task. It sends to `events` until it is finished or nobody listens.
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
    loop {
        while let Some((_, claims)) = forgotten.pop_front_if(|(at, _)| at.elapsed() > MEMORY) {
            timeline.forget(&claims);
        }
        let next_deadline = waiting.iter().map(|waiting| waiting.deadline).min();
        let input = match next_deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, inputs.recv()).await.ok(),
            None => Some(inputs.recv().await),
        };
        let mut happened = Vec::new();
        match input {
            Some(Some(Input::Evidence(evidence))) => happened = timeline.feed(&evidence),
            Some(Some(Input::Balance { claims, deadline, answer })) => {
                waiting.push(Waiting { claims, deadline, answer });
            }
            Some(Some(Input::Forget(claims))) => forgotten.push_back((Instant::now(), claims)),
            Some(Some(Input::Finish) | None) => {
                for event in timeline.finish() {
                    // Without listeners there is nobody to tell.
                    let _ = events.send(event);
                }
                return;
            }
            None => {}
        }
        for event in happened {
            if events.send(event).is_err() {
                return;
            }
        }
        // A burst is taken in whole before questions are looked at again.
        if !waiting.is_empty() && (inputs.is_empty() || next_deadline.is_some_and(|at| at <= Instant::now()))
        {
            waiting = waiting.into_iter().filter_map(|asked| answered(&timeline, asked)).collect();
        }
    }
}

/// Answers a question if it is time; else gives it back.
fn answered(timeline: &Timeline, asked: Waiting) -> Option<Waiting> {
    let balance = timeline.balance(asked.claims.iter().map(String::as_str));
    if !balance.is_clean() && asked.deadline > Instant::now() {
        return Some(asked);
    }
    // Whoever asked may have given up.
    let _ = asked.answer.send(balance);
    None
}
