//! Converts the tap's records to events: one per completed call, summarised as in a run on a cluster.

use claimcheck_csi::tap::{CallSummaries, TapRecord};
use claimcheck_model::Event;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// Emits an event for each completed call, until the tap is closed.
pub(crate) async fn emit_calls(mut records: UnboundedReceiver<TapRecord>, events: UnboundedSender<Event>) {
    let mut summaries = CallSummaries::default();
    while let Some(call) = records.recv().await {
        if call.end.is_some() {
            // An error means that the receiver was dropped.
            let _ = events.send(Event::Rpc(summaries.summary_of(&call)));
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::{
        Code,
        tap::{CallEnd, CallId},
    };
    use claimcheck_model::{CsiMethod, Stamp};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[tokio::test]
    async fn a_volume_is_created_under_its_name_and_a_repeated_call_is_a_retry() {
        let (records, received) = unbounded_channel();
        let (events, mut emitted) = unbounded_channel();
        let id = CallId { pid: 1, seq: 1 };
        let started = TapRecord {
            volume_name: Some("name".into()),
            ..TapRecord::started(id, "controller", CsiMethod::CreateVolume, Stamp::default())
        };
        for (code, volume_id) in [(Code::Aborted, None), (Code::Ok, Some("id".to_owned()))] {
            let end = Some(CallEnd::new(Stamp::default(), code));
            records.send(started.clone()).unwrap();
            records.send(TapRecord { volume_id, end, ..started.clone() }).unwrap();
        }
        drop(records);
        emit_calls(received, events).await;
        let mut seen = Vec::new();
        while let Some(Event::Rpc(call)) = emitted.recv().await {
            seen.push((call.volume, call.code, call.retry));
        }
        let expected = [("name", "Aborted", false), ("name", "OK", true)];
        assert_eq!(seen, expected.map(|(volume, code, retry)| (volume.to_owned(), code.to_owned(), retry)));
    }
}
