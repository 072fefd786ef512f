//! Converts the tap's records to events: one per completed call, summarised as in a run on a cluster.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use claimcheck_csi::{
    Code,
    tap::{CallSummaries, TapRecord},
};
use claimcheck_model::Event;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// How many calls were answered, by the component of their client; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Arc<Mutex<BTreeMap<String, u64>>>);

impl Answers {
    pub(crate) fn of(&self, component: &str) -> u64 {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(component).copied().unwrap_or_default()
    }

    pub(crate) fn add(&self, component: &str) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry(component.to_owned()).or_default() += 1;
    }
}

/// Emits an event for each completed call, until the tap is closed.
pub(crate) async fn emit_calls(
    mut records: UnboundedReceiver<TapRecord>,
    events: UnboundedSender<Event>,
    answers: Answers,
) {
    let mut summaries = CallSummaries::default();
    while let Some(call) = records.recv().await {
        if let Some(end) = &call.end {
            // The client itself ends calls with the others.
            if !matches!(end.code, Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable) {
                answers.add(&call.component);
            }
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
        let answers = Answers::default();
        emit_calls(received, events, answers.clone()).await;
        assert_eq!((answers.of("controller"), answers.of("node")), (2, 0));
        let mut seen = Vec::new();
        while let Some(Event::Rpc(call)) = emitted.recv().await {
            seen.push((call.volume, call.code, call.retry));
        }
        let expected = [("name", "Aborted", false), ("name", "OK", true)];
        assert_eq!(seen, expected.map(|(volume, code, retry)| (volume.to_owned(), code.to_owned(), retry)));
    }
}
