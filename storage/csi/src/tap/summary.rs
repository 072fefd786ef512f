//! Calls as events of a run, by the same rules for volumes, nodes and retries wherever they were recorded.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};

use claimcheck_model::{RpcMethod, RpcSummary};

use super::{code_name, record::TapRecord};

/// A driver's name and a volume, as [`TapRecord::volume`] identifies it.
type Volume = (String, String);

/// Summarises calls, and recognises those that repeat a failed one.
#[derive(Debug, Default)]
pub struct CallSummaries {
    /// Method, node and target of calls that failed in their last attempt. No set is empty.
    failed: HashMap<Volume, BTreeSet<(RpcMethod, String, String)>>,
}

impl CallSummaries {
    /// The summary of a call that has ended, or never will.
    pub fn summary_of(&mut self, call: &TapRecord) -> RpcSummary {
        let end = call.end.as_ref();
        RpcSummary {
            driver: call.driver().to_owned(),
            method: call.method.clone(),
            code: end.map(|end| code_name(end.code).to_owned()).unwrap_or_default(),
            volume: call.volume().to_owned(),
            node: call.node().to_owned(),
            start: call.start,
            seconds: end.map_or(0.0, |end| end.at.seconds_since(call.start)),
            retry: self.is_retry(call),
        }
    }

    /// Removes the failed calls of a volume.
    pub fn forget(&mut self, volume: &(String, String)) {
        self.failed.remove(volume);
    }

    /// Whether the previous call of the same method on the same object failed.
    fn is_retry(&mut self, call: &TapRecord) -> bool {
        let object = (call.method.clone(), call.node().to_owned(), call.target().to_owned());
        let failed = self.failed.entry((call.driver().to_owned(), call.volume().to_owned()));
        if call.succeeded().is_none() {
            return !failed.or_default().insert(object);
        }
        let Entry::Occupied(mut failed) = failed else { return false };
        let is_retry = failed.get_mut().remove(&object);
        if failed.get().is_empty() {
            failed.remove();
        }
        is_retry
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{CsiMethod, Stamp};
    use tonic::Code;

    use super::*;
    use crate::tap::{CallEnd, CallId};

    fn call(method: CsiMethod, volume: &str, code: Option<Code>) -> TapRecord {
        let start = Stamp { mono_ns: 1_000_000_000, wall_ns: 0 };
        let end = Stamp { mono_ns: 1_500_000_000, wall_ns: 0 };
        TapRecord {
            driver: Some("d".into()),
            volume_id: Some(volume.into()),
            end: code.map(|code| CallEnd::new(end, code)),
            ..TapRecord::started(CallId { pid: 1, seq: 1 }, "node/n", method, start)
        }
    }

    #[test]
    fn a_call_is_a_retry_if_the_one_before_failed() {
        use CsiMethod::{NodePublishVolume, NodeStageVolume};
        let mut summaries = CallSummaries::default();
        for (method, volume, code, retry) in [
            (NodeStageVolume, "v", Some(Code::Internal), false),
            (NodePublishVolume, "v", Some(Code::Ok), false),
            (NodeStageVolume, "w", Some(Code::Ok), false),
            (NodeStageVolume, "v", None, true),
            (NodeStageVolume, "v", Some(Code::Ok), true),
            (NodeStageVolume, "v", Some(Code::Ok), false),
        ] {
            let summary = summaries.summary_of(&call(method, volume, code));
            assert_eq!(summary.retry, retry, "{summary:?}");
            assert_eq!((summary.driver.as_str(), summary.node.as_str()), ("d", "n"));
            let expected = if code.is_some() { 0.5 } else { 0.0 };
            assert!((summary.seconds - expected).abs() < 1e-9, "{summary:?}");
        }
        assert!(summaries.failed.is_empty(), "{summaries:?}");
    }

    #[test]
    fn a_forgotten_volume_has_no_failed_calls() {
        let mut summaries = CallSummaries::default();
        let failed = call(CsiMethod::DeleteVolume, "v", Some(Code::Internal));
        summaries.summary_of(&failed);
        summaries.forget(&("d".to_owned(), "v".to_owned()));
        assert!(!summaries.summary_of(&failed).retry);
    }
}
