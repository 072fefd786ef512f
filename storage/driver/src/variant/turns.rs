//! When calls are executed: late, one at a time, or not at all while another call is busy with the same object.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::sleep};
use tonic::Status;

use super::{Variant, Variants, service::Answer};

/// How late calls or responses are, with [`Variant::Slow`] and [`Variant::SlowResponses`].
const LATE: Duration = Duration::from_millis(50);
/// How long a cancelled call stays busy, with [`Variant::BusyAfterCancel`].
const BUSY: Duration = Duration::from_secs(4);

/// The order of calls.
#[derive(Debug, Default)]
pub(super) struct Turns {
    variants: Variants,
    /// Held by the call that is executed, with [`Variant::SerialCalls`].
    turn: tokio::sync::Mutex<()>,
    busy: Arc<Mutex<BTreeSet<String>>>,
}

impl Turns {
    pub(super) fn new(variants: Variants) -> Self {
        Self { variants, ..Self::default() }
    }

    /// Executes a call about these objects.
    pub(super) async fn take<T: Send + 'static>(
        &self,
        objects: Vec<String>,
        call: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Answer<T> {
        let is_about_objects = !objects.is_empty();
        let late = |variant| self.variants.has(variant) && is_about_objects;
        let turn = match self.variants.has(Variant::SerialCalls) {
            true => Some(self.turn.lock().await),
            false => None,
        };
        if late(Variant::Slow) {
            sleep(LATE).await;
        }
        let lingers = self.variants.has(Variant::BusyAfterCancel);
        let answer = if lingers || self.variants.has(Variant::AbortedWhileBusy) {
            let busy = Busy::with(&self.busy, objects)?;
            let (sender, received) = oneshot::channel();
            // The caller may cancel the call, but not the operation.
            tokio::spawn(async move {
                let answer = call.await;
                if lingers && sender.is_closed() {
                    sleep(BUSY).await;
                }
                // Before the response: the caller may make its next call at once.
                drop(busy);
                sender.send(answer).ok();
            });
            received.await.unwrap_or_else(|_| Err(Status::internal("the driver panicked")))
        } else {
            call.await
        };
        drop(turn);
        if late(Variant::SlowResponses) {
            sleep(LATE).await;
        }
        answer
    }
}

/// Objects that a call is busy with.
#[derive(Debug)]
struct Busy {
    all: Arc<Mutex<BTreeSet<String>>>,
    objects: Vec<String>,
}

impl Busy {
    /// `Aborted` if another call is busy with one of them.
    fn with(all: &Arc<Mutex<BTreeSet<String>>>, objects: Vec<String>) -> Result<Self, Status> {
        let mut busy = locked(all);
        if let Some(object) = objects.iter().find(|object| busy.contains(*object)) {
            return Err(Status::aborted(format!("another operation is pending for {object}")));
        }
        busy.extend(objects.iter().cloned());
        Ok(Self { all: Arc::clone(all), objects })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut busy = locked(&self.all);
        for object in &self.objects {
            busy.remove(object);
        }
    }
}

fn locked(all: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::{task::yield_now, time::Instant};
    use tonic::{Code, Response};

    use super::*;

    fn turns(variant: Variant) -> Turns {
        Turns::new(Variants::new([variant]))
    }

    fn object() -> Vec<String> {
        vec!["vol-1".to_owned()]
    }

    /// A call that is counted while it is executed; returns the count at its beginning.
    async fn counted(running: Arc<AtomicUsize>) -> Answer<usize> {
        let before = running.fetch_add(1, Ordering::SeqCst);
        for _ in 0..10 {
            yield_now().await;
        }
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(Response::new(before))
    }

    /// The counts of two concurrent calls.
    async fn two(turns: &Turns) -> [usize; 2] {
        let running = Arc::new(AtomicUsize::new(0));
        let (one, other) = tokio::join!(
            turns.take(object(), counted(Arc::clone(&running))),
            turns.take(object(), counted(Arc::clone(&running)))
        );
        [one, other].map(|answer| answer.unwrap().into_inner())
    }

    #[tokio::test]
    async fn calls_are_executed_one_at_a_time() {
        assert_eq!(two(&Turns::default()).await, [0, 1]);
        assert_eq!(two(&turns(Variant::SerialCalls)).await, [0, 0]);
    }

    #[tokio::test]
    async fn a_call_about_a_busy_object_is_aborted() {
        for variant in [Variant::AbortedWhileBusy, Variant::BusyAfterCancel] {
            let turns = turns(variant);
            let (finish, finished) = oneshot::channel();
            let first = turns.take(object(), async { finished.await.map_err(|_| Status::internal("")) });
            let meanwhile = async {
                let again = turns.take(object(), async { Ok(Response::new(())) }).await;
                assert_eq!(again.unwrap_err().code(), Code::Aborted);
                turns.take(vec!["vol-2".to_owned()], async { Ok(Response::new(())) }).await.unwrap();
                finish.send(Response::new(())).unwrap();
            };
            tokio::join!(first, meanwhile).0.unwrap();
            turns.take(object(), async { Ok(Response::new(())) }).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_cancelled_call_stays_busy() {
        let turns = turns(Variant::BusyAfterCancel);
        let (finish, finished) = oneshot::channel();
        let call = turns.take(object(), async { finished.await.map_err(|_| Status::internal("")) });
        tokio::select! {
            biased;
            _ = call => unreachable!("it has not finished"),
            () = yield_now() => {}
        }
        finish.send(Response::new(())).unwrap();
        for _ in 0..10 {
            yield_now().await;
            let again = turns.take(object(), async { Ok(Response::new(())) }).await;
            assert_eq!(again.unwrap_err().code(), Code::Aborted);
        }
    }

    #[tokio::test]
    async fn calls_about_objects_are_late() {
        for variant in [Variant::Slow, Variant::SlowResponses] {
            let (turns, began) = (turns(variant), Instant::now());
            turns.take(object(), async { Ok(Response::new(())) }).await.unwrap();
            assert!(began.elapsed() >= LATE, "{variant:?}");
        }
    }
}
