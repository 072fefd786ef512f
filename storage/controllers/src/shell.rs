//! The event loop that all controllers share: changes wake keys, keys are planned, actions executed.
//!
//! ```text
//! Change ──map_to_keys──> Queue ──key──> plan(key, &World, now) ──actions──> act ──> API server, driver
//!                           ^                    ^                             │
//!                           │                    └──── something written ──────┤
//!                           └── backoff, or requeue_after; all keys every 10 min ┘
//! ```
//!
//! A plan contains only what the current state permits to be decided, usually one write per object; after a
//! write the shell plans again on the new state, until nothing is left to do. So there is no difference between
//! continuing and restarting after a crash.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use claimcheck_informer::{Backoff, Change, KindSet, Outcome, Queue, World};
use claimcheck_model::metric::{RECONCILE_DURATION, RESYNC_REPAIRS};
use jiff::Timestamp;
use tokio::{sync::mpsc::UnboundedReceiver, time::sleep};
use tracing::{Instrument as _, Span, debug, error, info_span, warn};

use crate::{
    context::{Context, Failure},
    resync::{self, Causes},
};

/// How often a key is planned in a row before it is requeued: far more than any object needs, so reaching it
/// means that a planner undoes its own work, or that another client does.
const MAX_ROUNDS: usize = 32;

/// The object of a key, as a field of all log messages during its processing.
pub enum About<'a> {
    /// A claim, by namespace and name.
    Claim(&'a dyn Display),
    /// A volume, by name.
    Volume(&'a dyn Display),
    /// A pod, by namespace and name.
    Pod(&'a dyn Display),
    /// Another object.
    Other(&'a dyn Debug),
}

/// A planner's decision for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<A> {
    /// Actions, in this order.
    pub actions: Vec<A>,
    /// When to plan again without a change; for time-dependent decisions.
    pub requeue_after: Option<Duration>,
}

impl<A> From<Vec<A>> for Plan<A> {
    fn from(actions: Vec<A>) -> Self {
        Self { actions, requeue_after: None }
    }
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// The cluster state changed: a new plan may have more actions.
    Changed,
    /// No change that a plan would see, such as an event.
    Unchanged,
}

/// The controller-specific part.
pub trait Controller: Send + Sync + 'static {
    /// The key of a reconciliation.
    type Key: Hash + Eq + Clone + Debug + Send + Sync + 'static;
    /// An action of the planner.
    type Action: Debug + Send + 'static;

    /// The name in the log, and of its queue in metrics.
    const NAME: &'static str;
    /// Number of keys processed concurrently, unless the context has another.
    const WORKERS: usize = 16;
    /// Backoff of failed keys, unless the context has another.
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(5), max: Duration::from_secs(30) };

    /// The object of a key.
    fn about(key: &Self::Key) -> About<'_> {
        About::Other(key)
    }

    /// The kinds with changes that can wake a key.
    fn kinds() -> KindSet;

    /// The keys that a change concerns. `world` includes the change, and perhaps later ones.
    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Self::Key>;

    /// Keys to plan at the start, in addition to those of all objects in the cache.
    fn initial_keys(&self) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Keys with a reason to be planned that no object shows.
    fn signals(&self) -> Option<UnboundedReceiver<Self::Key>> {
        None
    }

    /// Plans a key.
    fn plan(&self, key: &Self::Key, world: &World, now: Timestamp) -> Plan<Self::Action>;

    /// Executes an action.
    fn act(
        &self,
        context: &Context,
        key: &Self::Key,
        action: Self::Action,
    ) -> impl Future<Output = Result<ActionOutcome, Failure>> + Send;
}

/// Runs a controller forever, once the cache is complete. Dropping the future ends it.
pub async fn run<C: Controller>(controller: C, context: Context) {
    context.informer.synced().await;
    context.meter.expose(&RESYNC_REPAIRS, &[C::NAME]);
    let controller = Arc::new(controller);
    let backoff = context.tuning.backoff.unwrap_or(C::BACKOFF);
    let queue = Queue::<C::Key>::new(backoff).metered(C::NAME, &context.meter);
    let causes = Arc::new(Causes::<C::Key>::default());
    let mut changes = context.informer.subscribe(C::kinds());
    let signals = controller.signals();
    for key in controller.initial_keys() {
        causes.enqueue(&key);
        queue.add(key);
    }
    let waking = async {
        while let Some(change) = changes.recv().await {
            let keys = controller.map_to_keys(&change, &context.informer.read());
            for key in keys {
                causes.enqueue(&key);
                queue.add(key);
            }
        }
    };
    let signalled = async {
        let Some(mut signals) = signals else { return };
        while let Some(key) = signals.recv().await {
            causes.enqueue(&key);
            queue.add(key);
        }
    };
    let worker = {
        let (controller, context, causes) = (controller.clone(), context.clone(), causes.clone());
        move |key: C::Key| {
            let (controller, context, causes) = (controller.clone(), context.clone(), causes.clone());
            async move {
                let began = Instant::now();
                let outcome = reconcile(&*controller, &context, &causes, &key).await;
                if outcome != Outcome::Done {
                    causes.enqueue(&key);
                }
                let result = if matches!(outcome, Outcome::Retry) { "failed" } else { "done" };
                let took = began.elapsed().as_secs_f64();
                context.meter.record(&RECONCILE_DURATION, &[C::NAME, result], took);
                outcome
            }
        }
    };
    let resyncs = resyncs(&*controller, &context, &queue, &causes);
    let workers = context.tuning.workers.unwrap_or(C::WORKERS);
    tokio::join!(waking, signalled, resyncs, queue.run(workers, worker));
}

/// Adds the keys of everything in the cache, as at a start, again and again.
async fn resyncs<C: Controller>(
    controller: &C,
    context: &Context,
    queue: &Queue<C::Key>,
    causes: &Causes<C::Key>,
) {
    loop {
        sleep(resync::pause(context.tuning.resync)).await;
        let objects: Vec<Change> = context.informer.read().replay(C::kinds()).collect();
        for object in objects {
            let keys = controller.map_to_keys(&object, &context.informer.read());
            for key in keys {
                causes.resync(&key);
                queue.add(key);
            }
        }
    }
}

/// Processes a key in its log span.
fn span<C: Controller>(key: &C::Key) -> Span {
    let controller = C::NAME;
    match C::about(key) {
        About::Claim(claim) => info_span!("work", controller, %claim),
        About::Volume(volume) => info_span!("work", controller, %volume),
        About::Pod(pod) => info_span!("work", controller, %pod),
        About::Other(key) => info_span!("work", controller, ?key),
    }
}

/// Plans one key, mostly without any actions: a change wakes many keys that it does not affect.
async fn reconcile<C: Controller>(
    controller: &C,
    context: &Context,
    causes: &Causes<C::Key>,
    key: &C::Key,
) -> Outcome {
    let by_resync = causes.begin(key);
    let plan = controller.plan(key, &context.informer.read(), Timestamp::now());
    if plan.actions.is_empty() {
        return plan.requeue_after.map_or(Outcome::Done, Outcome::After);
    }
    let work = async move {
        if by_resync {
            // The change that the plan is about may be so new that it has not woken the key yet.
            sleep(resync::LATENCY).await;
            if causes.is_enqueued(key) {
                return Outcome::Done;
            }
        }
        let (outcome, did) = work(controller, context, key, plan).await;
        if by_resync && did {
            context.meter.increment(&RESYNC_REPAIRS, &[C::NAME]);
            warn!("the resync found something to do, for which no change had woken the key");
        }
        outcome
    };
    // On the heap: a step's future is large, and the idle need none.
    Box::pin(work).instrument(span::<C>(key)).await
}

/// Executes a plan, and plans and acts until nothing is left to do. Also returns whether anything was written, or
/// failed.
async fn work<C: Controller>(
    controller: &C,
    context: &Context,
    key: &C::Key,
    mut plan: Plan<C::Action>,
) -> (Outcome, bool) {
    let mut did = false;
    for _ in 0..MAX_ROUNDS {
        match carry_out(controller, context, key, plan.actions).await {
            Ok(ActionOutcome::Changed) => did = true,
            Err(Failure::Conflict) => {}
            Ok(ActionOutcome::Unchanged) => {
                return (plan.requeue_after.map_or(Outcome::Done, Outcome::After), did);
            }
            Err(Failure::Transient(error)) => {
                warn!(error = chain(&*error), "reconciliation failed, retrying with backoff");
                return (Outcome::Retry, true);
            }
        }
        plan = controller.plan(key, &context.informer.read(), Timestamp::now());
    }
    error!(rounds = MAX_ROUNDS, "planning does not terminate");
    (Outcome::Retry, true)
}

async fn carry_out<C: Controller>(
    controller: &C,
    context: &Context,
    key: &C::Key,
    actions: Vec<C::Action>,
) -> Result<ActionOutcome, Failure> {
    let mut done = ActionOutcome::Unchanged;
    for action in actions {
        debug!(?action, "acts");
        if controller.act(context, key, action).await? == ActionOutcome::Changed {
            done = ActionOutcome::Changed;
        }
    }
    Ok(done)
}

/// An error and its sources, since `Display` omits those.
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
