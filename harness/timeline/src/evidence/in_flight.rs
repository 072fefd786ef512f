//! Which calls to the driver have begun and not ended: for cases that kill something in the middle of one.

use std::{collections::HashMap, sync::Arc};

use claimcheck_csi::tap::{CallId, Edge, TapRecord};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    watch,
};

/// A call, among those of all components and drivers: in containers, processes have the same ids.
type Key = (String, Option<String>, CallId);

/// The calls under way. Clones are the same.
#[derive(Clone, Debug)]
pub struct InFlight {
    calls: Arc<watch::Sender<HashMap<Key, TapRecord>>>,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { calls: Arc::new(watch::Sender::new(HashMap::new())) }
    }
}

impl InFlight {
    /// Keeps itself up to date from these records, and hands them on.
    pub fn watching(self, mut records: UnboundedReceiver<TapRecord>) -> UnboundedReceiver<TapRecord> {
        let (onward, receiver) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(record) = records.recv().await {
                self.saw(&record);
                if onward.send(record).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// Takes note of a record.
    pub(super) fn saw(&self, record: &TapRecord) {
        let key = (record.component.clone(), record.driver.clone(), record.id);
        self.calls.send_modify(|calls| match record.edge {
            Edge::Start => drop(calls.insert(key, record.clone())),
            Edge::End { .. } => drop(calls.remove(&key)),
        });
    }

    /// Waits until a call of `method` for volume `handle` is under way.
    pub async fn begun(&self, method: &str, handle: &str) {
        let wanted = |call: &TapRecord| call.rpc() == method && call.volume_id.as_deref() == Some(handle);
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.calls.subscribe().wait_for(|calls| calls.values().any(wanted)).await;
    }
}
