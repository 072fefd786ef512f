//! The work queue, under paused time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use claimcheck_informer::{Backoff, Outcome, Queue, testing::Notes};
use claimcheck_model::Meter;
use tokio::{
    sync::Barrier,
    time::{Instant, timeout},
};

const MOMENT: Duration = Duration::from_millis(1);

async fn nothing_comes(queue: &Queue<&'static str>) -> bool {
    timeout(MOMENT, queue.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_key_queued_twice_is_handed_out_once() {
    let queue = Queue::default();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(queue.len(), 2);
    assert_eq!((queue.next().await, queue.next().await), (Some("a"), Some("b")));
    assert!(nothing_comes(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_worked_on_comes_again_afterwards() {
    let queue = Queue::default();
    queue.add("a");
    assert_eq!(queue.next().await, Some("a"));
    queue.add("a");
    queue.add("a");
    assert!(nothing_comes(&queue).await, "it is being worked on");
    queue.done(&"a");
    assert_eq!(queue.next().await, Some("a"));
    queue.done(&"a");
    assert!(nothing_comes(&queue).await, "the two additions were one wake-up");
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_delays_holds() {
    let queue = Queue::default();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(9));
    queue.add_after("a", Duration::from_secs(2));
    queue.add_after("a", Duration::from_secs(5));
    assert_eq!(queue.next().await, Some("a"));
    assert_eq!(start.elapsed().as_secs(), 2);
    queue.done(&"a");
    assert!(timeout(Duration::from_secs(60), queue.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn failures_double_the_delay_up_to_the_most() {
    let queue = Queue::new(Backoff { base: Duration::from_millis(10), max: Duration::from_millis(45) });
    let mut delays = Vec::new();
    for _ in 0..5 {
        let before = Instant::now();
        queue.add_rate_limited("a");
        let key = queue.next().await.unwrap();
        delays.push(before.elapsed().as_millis());
        queue.done(&key);
    }
    assert_eq!(delays, [10, 20, 40, 45, 45]);
    queue.forget(&"a");
    let before = Instant::now();
    queue.add_rate_limited("a");
    queue.next().await;
    assert_eq!(before.elapsed().as_millis(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_holds_though_a_worker_waits_for_a_longer_one() {
    let queue = Queue::default();
    queue.add_after("late", Duration::from_secs(100));
    let start = Instant::now();
    let waiters = [queue.clone(), queue.clone()].map(|queue| {
        tokio::spawn(async move {
            let key = queue.next().await.unwrap();
            (key, Instant::now())
        })
    });
    tokio::task::yield_now().await;
    queue.add_after("soon", Duration::from_secs(1));
    // Takes one waiter out of the race, which must hand the watch over "soon" to the other.
    queue.add("now");
    let mut seen = Vec::new();
    for waiter in waiters {
        let (key, when) = waiter.await.unwrap();
        seen.push((key, (when - start).as_secs()));
    }
    seen.sort_unstable();
    assert_eq!(seen, [("now", 0), ("soon", 1)]);
}

#[tokio::test(start_paused = true)]
async fn outcomes_determine_when_a_key_is_requeued() {
    let queue = Queue::new(Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) });
    let start = Instant::now();
    let times = Arc::new(Mutex::new(Vec::new()));
    queue.add(());
    let work = {
        let (times, queue) = (times.clone(), queue.clone());
        move |()| {
            let outcome = {
                let mut times = times.lock().unwrap();
                times.push(start.elapsed().as_secs());
                match times.len() {
                    // Two failures, a success that asks for a later look, a failure that counts as the first.
                    1 | 2 | 4 => Outcome::Retry,
                    3 => Outcome::After(Duration::from_secs(10)),
                    _ => Outcome::Done,
                }
            };
            let queue = queue.clone();
            async move {
                if outcome == Outcome::Done {
                    queue.close();
                }
                outcome
            }
        }
    };
    queue.run(2, work).await;
    assert_eq!(*times.lock().unwrap(), [0, 1, 3, 13, 14]);
}

#[tokio::test(start_paused = true)]
async fn workers_run_at_the_same_time_but_never_on_the_same_key() {
    const WORKERS: usize = 4;
    let queue = Queue::default();
    for key in 0..WORKERS {
        queue.add(key);
    }
    // Passes only if all of them are in the work at once.
    let together = Arc::new(Barrier::new(WORKERS));
    let (busy, runs) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let work = {
        let (queue, busy, runs) = (queue.clone(), busy.clone(), runs.clone());
        move |key: usize| {
            let (queue, busy, runs, together) = (queue.clone(), busy.clone(), runs.clone(), together.clone());
            async move {
                assert!(!busy.lock().unwrap().contains(&key), "{key} is worked on twice");
                busy.lock().unwrap().push(key);
                let run = runs.fetch_add(1, Ordering::SeqCst);
                if run < WORKERS {
                    together.wait().await;
                    queue.add(key);
                }
                tokio::time::sleep(MOMENT).await;
                busy.lock().unwrap().retain(|other| *other != key);
                if run + 1 == 2 * WORKERS {
                    queue.close();
                }
                Outcome::Done
            }
        }
    };
    timeout(Duration::from_secs(5), queue.run(WORKERS, work)).await.expect("the workers run together");
    assert_eq!(runs.load(Ordering::SeqCst), 2 * WORKERS);
}

#[tokio::test]
#[should_panic(expected = "a bug")]
async fn a_panic_of_the_reconciler_is_not_hidden() {
    let queue = Queue::default();
    queue.add(());
    queue
        .run(1, |()| async {
            assert!(std::hint::black_box(false), "a bug");
            Outcome::Done
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_has_the_metrics_of_client_go() {
    let notes = Notes::default();
    let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };
    let queue = Queue::new(backoff).metered("q", &Meter::new(notes.clone()));
    let [collector] = &notes.collectors()[..] else { panic!("one census") };
    let counted =
        async || collector.read().await.into_iter().map(|reading| reading.value).collect::<Vec<_>>();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(counted().await, [2.0, 0.0, 0.0], "depth, unfinished, longest");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(queue.next().await, Some("a"));
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(queue.next().await, Some("b"));
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(counted().await, [0.0, 11.0, 7.0]);
    queue.done(&"a");
    queue.add_rate_limited("a");
    assert_eq!(queue.next().await, Some("a"));
    let recorded = notes.recorded();
    assert!(recorded.iter().all(|(_, name, _)| name == "q"));
    let recorded: Vec<_> = recorded.iter().map(|(metric, _, value)| (*metric, *value)).collect();
    assert_eq!(
        recorded,
        [
            ("workqueue_adds_total", 1.0),
            ("workqueue_adds_total", 1.0),
            ("workqueue_queue_duration_seconds", 2.0),
            ("workqueue_queue_duration_seconds", 5.0),
            ("workqueue_work_duration_seconds", 7.0),
            ("workqueue_retries_total", 1.0),
            ("workqueue_adds_total", 1.0),
            ("workqueue_queue_duration_seconds", 0.0),
        ]
    );
    drop(queue);
    assert_eq!(counted().await, [0.0; 0], "a queue that is gone has no depth");
}
