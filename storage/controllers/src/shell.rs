//! The shell that all controllers share: changes wake keys, keys are planned, actions carried out.
//!
//! ```text
//! Change ──wakes──> Queue ──key──> plan(key, &World, now) ──actions──> act ──> API server, driver
//!                     ^                    ^                             │
//!                     │                    └──── something written ──────┤
//!                     └── backoff, or Plan::again ───────────────────────┘
//! ```
//!
//! A plan holds only what the world as it is allows to be decided, usually one write per object; after a
//! write the shell plans again on the new state, until nothing is left to do. So there is no difference
//! between going on and starting again after a crash.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use claimcheck_informer::{Backoff, Change, KindSet, Outcome, Queue, World};
use claimcheck_model::metric::RECONCILE_DURATION;
use jiff::Timestamp;
use tracing::{Instrument as _, Span, debug, error, info_span, warn};

use crate::context::{Context, Failure};

/// How often a key is planned in a row before it has to wait its turn: far more than any object needs, so
/// reaching it means that a planner undoes its own work, or that somebody else does.
const MAX_ROUNDS: usize = 32;

/// What a key stands for, as a field of all that is logged while it is worked on.
pub enum About<'a> {
    /// A claim, by namespace and name.
    Claim(&'a dyn Display),
    /// A volume, by name.
    Volume(&'a dyn Display),
    /// A pod, by namespace and name.
    Pod(&'a dyn Display),
    /// Anything else.
    Other(&'a dyn Debug),
}

/// What a planner decided for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<A> {
    /// What to do now, in this order.
    pub actions: Vec<A>,
    /// When to plan again though nothing changed; for what only time brings about.
    pub again: Option<Duration>,
}

impl<A> From<Vec<A>> for Plan<A> {
    fn from(actions: Vec<A>) -> Self {
        Self { actions, again: None }
    }
}

/// What an action did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Changed the world: there may be more to decide.
    Wrote,
    /// Nothing that a plan would see, such as recording an event.
    Nothing,
}

/// What is particular to a controller.
pub trait Controller: Send + Sync + 'static {
    /// What one reconciliation is about.
    type Key: Hash + Eq + Clone + Debug + Send + Sync + 'static;
    /// A step that the planner can ask for.
    type Action: Debug + Send + 'static;

    /// The name in the log, and of its queue in metrics.
    const NAME: &'static str;
    /// How many keys are worked on at a time.
    const WORKERS: usize = 16;
    /// How failed keys come back.
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(5), max: Duration::from_secs(30) };

    /// What a key stands for.
    fn about(key: &Self::Key) -> About<'_> {
        About::Other(key)
    }

    /// The kinds whose changes can wake a key.
    fn kinds() -> KindSet;

    /// The keys that a change concerns. `world` has the change already, and maybe later ones.
    fn wakes(&self, change: &Change, world: &World) -> Vec<Self::Key>;

    /// Decides what to do for a key.
    fn plan(&self, key: &Self::Key, world: &World, now: Timestamp) -> Plan<Self::Action>;

    /// Carries out an action.
    fn act(
        &self,
        context: &Context,
        key: &Self::Key,
        action: Self::Action,
    ) -> impl Future<Output = Result<Done, Failure>> + Send;
}

/// Runs a controller for ever, once the cache is complete. Dropping the future ends it.
pub async fn run<C: Controller>(controller: C, context: Context) {
    context.informer.synced().await;
    let controller = Arc::new(controller);
    let queue = Queue::<C::Key>::new(C::BACKOFF).metered(C::NAME, &context.meter);
    let mut changes = context.informer.subscribe(C::kinds());
    let waking = async {
        while let Some(change) = changes.recv().await {
            let keys = controller.wakes(&change, &context.informer.read());
            for key in keys {
                queue.add(key);
            }
        }
    };
    let worker = {
        let (controller, context) = (controller.clone(), context.clone());
        move |key: C::Key| {
            let (controller, context) = (controller.clone(), context.clone());
            async move {
                let began = Instant::now();
                let outcome = reconcile(&*controller, &context, &key).await;
                let result = if matches!(outcome, Outcome::Retry) { "failed" } else { "done" };
                let took = began.elapsed().as_secs_f64();
                context.meter.record(&RECONCILE_DURATION, &[C::NAME, result], took);
                outcome
            }
        }
    };
    tokio::join!(waking, queue.run(C::WORKERS, worker));
}

/// What is logged for a key belongs to it.
fn span<C: Controller>(key: &C::Key) -> Span {
    let controller = C::NAME;
    match C::about(key) {
        About::Claim(claim) => info_span!("work", controller, %claim),
        About::Volume(volume) => info_span!("work", controller, %volume),
        About::Pod(pod) => info_span!("work", controller, %pod),
        About::Other(key) => info_span!("work", controller, ?key),
    }
}

/// Plans for one key, which mostly finds that nothing is left to do: a change wakes many who have no part in it.
async fn reconcile<C: Controller>(controller: &C, context: &Context, key: &C::Key) -> Outcome {
    let plan = controller.plan(key, &context.informer.read(), Timestamp::now());
    if plan.actions.is_empty() {
        return plan.again.map_or(Outcome::Done, Outcome::After);
    }
    // On the heap: a step's future is large, and the idle need none.
    Box::pin(work(controller, context, key, plan)).instrument(span::<C>(key)).await
}

/// Carries a plan out, and plans and acts until nothing is left to do.
async fn work<C: Controller>(
    controller: &C,
    context: &Context,
    key: &C::Key,
    mut plan: Plan<C::Action>,
) -> Outcome {
    for _ in 0..MAX_ROUNDS {
        match carry_out(controller, context, key, plan.actions).await {
            Ok(Done::Wrote) | Err(Failure::Stale) => {}
            Ok(Done::Nothing) => return plan.again.map_or(Outcome::Done, Outcome::After),
            Err(Failure::Later(error)) => {
                warn!(error = chain(&*error), "failed, and will be tried again");
                return Outcome::Retry;
            }
        }
        plan = controller.plan(key, &context.informer.read(), Timestamp::now());
    }
    error!(rounds = MAX_ROUNDS, "planning does not come to an end");
    Outcome::Retry
}

async fn carry_out<C: Controller>(
    controller: &C,
    context: &Context,
    key: &C::Key,
    actions: Vec<C::Action>,
) -> Result<Done, Failure> {
    let mut done = Done::Nothing;
    for action in actions {
        debug!(?action, "acts");
        if controller.act(context, key, action).await? == Done::Wrote {
            done = Done::Wrote;
        }
    }
    Ok(done)
}

/// An error and its sources, since `Display` leaves those out.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
