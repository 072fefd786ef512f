//! Converts the tap's records to events: one per completed call.

use std::collections::HashMap;

use claimcheck_csi::tap::{CallEdge, CallId, TapRecord, code_name};
use claimcheck_model::{Event, RpcSummary, Stamp};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// Emits an event for each completed call, until the tap is closed.
pub(crate) async fn emit_calls(mut records: UnboundedReceiver<TapRecord>, events: UnboundedSender<Event>) {
    let mut open: HashMap<CallId, Stamp> = HashMap::new();
    while let Some(record) = records.recv().await {
        let CallEdge::End { code, .. } = &record.edge else {
            open.insert(record.id, record.at);
            continue;
        };
        let Some(start) = open.remove(&record.id) else { continue };
        let call = RpcSummary {
            driver: record.driver.clone().unwrap_or_default(),
            method: record.rpc().to_owned(),
            code: code_name(*code).to_owned(),
            volume: record.volume_id.or(record.volume_name).unwrap_or_default(),
            node: record.node.unwrap_or_default(),
            start,
            seconds: record.at.seconds_since(start),
            retry: false,
        };
        // An error means that the receiver was dropped.
        let _ = events.send(Event::Rpc(call));
    }
}
