//! Clients with a limited rate of requests.
//!
//! Upstream: `util/flowcontrol/throttle.go` of client-go, a token bucket from which every request takes a token,
//! those of watches included. The shared cache is not limited: it sends one list and one watch per kind.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{Client, client::Body};
use tokio::time::{Instant, sleep};
use tower::service_fn;

/// The rate of a controller's requests: `--kube-api-qps` and `--kube-api-burst`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestLimit {
    /// Requests per second, on average; above zero.
    pub qps: f64,
    /// Number of requests that need not wait after a pause.
    pub burst: u32,
}

/// The same client, within this limit.
pub fn limited(client: &Client, limit: RequestLimit) -> Client {
    let (inner, bucket) = (client.clone(), Arc::new(Bucket::new(limit, Instant::now())));
    let service = service_fn(move |request: http::Request<Body>| {
        let (inner, bucket) = (inner.clone(), bucket.clone());
        async move {
            let wait = bucket.take(Instant::now());
            if !wait.is_zero() {
                sleep(wait).await;
            }
            inner.send(request).await
        }
    });
    Client::new(service, client.default_namespace())
}

/// A token bucket, as the time at which it will be full again.
struct Bucket {
    /// Time for one token.
    interval: Duration,
    /// Time for all tokens but one.
    slack: Duration,
    full: Mutex<Instant>,
}

impl Bucket {
    fn new(limit: RequestLimit, now: Instant) -> Self {
        let interval = Duration::from_secs_f64(limit.qps.recip());
        Self { interval, slack: interval * limit.burst.saturating_sub(1), full: Mutex::new(now) }
    }

    /// Takes a token, if need be one of the future; returns how long to wait for it.
    fn take(&self, now: Instant) -> Duration {
        // Nothing panics while it is locked.
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let before = now.max(*full);
        *full = before + self.interval;
        (before - now).saturating_sub(self.slack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rest_waits_for_its_turn() {
        let start = Instant::now();
        let bucket = Bucket::new(RequestLimit { qps: 10.0, burst: 3 }, start);
        let taken = |after: u64| bucket.take(start + Duration::from_millis(after)).as_millis();
        assert_eq!([0, 0, 0, 0, 0].map(taken), [0, 0, 0, 100, 200]);
        // The next tokens are those of 300 and 400 ms.
        assert_eq!([250, 300].map(taken), [50, 100]);
        assert_eq!([5000, 5000, 5000, 5000].map(taken), [0, 0, 0, 100], "no more than a burst is saved");
    }
}
