//! Expiry of events: all have the same TTL, so that a queue in order of writing is also one in order of expiry.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::store::Key;

/// The events that will expire, in that order.
pub struct Expiry {
    ttl: Duration,
    queue: VecDeque<(Instant, Key, u64)>,
}

impl Expiry {
    /// An empty queue; events expire after `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, queue: VecDeque::new() }
    }

    /// Adds an event that was written just now at this version.
    pub fn enter(&mut self, key: Key, version: u64) {
        self.queue.push_back((Instant::now() + self.ttl, key, version));
    }

    /// Waits for the next expiry and removes it from the queue. Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> (Key, u64) {
        loop {
            let Some((due, ..)) = self.queue.front() else { std::future::pending().await };
            sleep_until(*due).await;
            if let Some((_, key, version)) = self.queue.pop_front() {
                return (key, version);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::resources::Storage;
    use crate::store::Store;

    const HOUR: Duration = Duration::from_secs(3600);

    fn event(store: &Store, name: &str) -> Arc<crate::store::Object> {
        let value = json!({ "metadata": { "name": name, "uid": name } });
        store.create(Storage::Events, Key::new("n", name), value).unwrap()
    }

    /// The names of the events that exist after `wait`.
    async fn after(store: &Store, wait: Duration) -> Vec<String> {
        tokio::time::sleep(wait).await;
        let (events, _) = store.list(Storage::Events, None);
        events.iter().map(|event| event.key.name.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn events_go_an_hour_after_their_last_write() {
        let (store, notices) = Store::new(10);
        let namespace: Value = json!({ "metadata": { "name": "n", "uid": "n" } });
        store.create(Storage::Namespaces, Key::cluster("n"), namespace).unwrap();
        let collector = tokio::spawn(super::super::run(store.clone(), String::new(), HOUR, notices));
        event(&store, "once");
        let often = event(&store, "often");
        assert_eq!(after(&store, HOUR / 2).await, ["often", "once"]);
        store.replace(Storage::Events, &often, often.value.clone()).unwrap();
        assert_eq!(after(&store, HOUR / 2 + Duration::from_secs(1)).await, ["often"]);
        assert!(after(&store, HOUR / 2).await.is_empty());
        collector.abort();
    }
}
