//! CSI calls in progress: for cases that kill a component during a call.

use std::{collections::HashMap, sync::Arc};

use claimcheck_csi::tap::{CallEdge, CallId, TapRecord};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    watch,
};

/// The key of a call among those of all components and drivers: in containers, processes have the same ids.
type Key = (String, Option<String>, CallId);

/// The calls in progress. Clones share them.
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
    /// Updates itself from these records, and forwards them.
    pub fn watching(self, mut records: UnboundedReceiver<TapRecord>) -> UnboundedReceiver<TapRecord> {
        let (onward, receiver) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(record) = records.recv().await {
                self.observe(&record);
                if onward.send(record).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// Processes a record.
    pub(super) fn observe(&self, record: &TapRecord) {
        let key = (record.component.clone(), record.driver.clone(), record.id);
        self.calls.send_modify(|calls| match record.edge {
            CallEdge::Start => drop(calls.insert(key, record.clone())),
            CallEdge::End { .. } => drop(calls.remove(&key)),
        });
    }

    /// Waits until a call of `method` for volume `handle` is in progress.
    pub async fn begun(&self, method: &str, handle: &str) {
        let wanted = |call: &TapRecord| call.rpc() == method && call.volume_id.as_deref() == Some(handle);
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.calls.subscribe().wait_for(|calls| calls.values().any(wanted)).await;
    }
}
