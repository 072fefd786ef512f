//! CSI calls in progress, the only table of them: for cases that kill a component during a call, and to know the calls
//! that never end, since their process has exited.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use claimcheck_csi::tap::{CallId, TapRecord};
use claimcheck_model::CsiMethod;
use serde_json::Value;
use tokio::sync::watch;

/// The processes among which a component and a call's id identify the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// The processes of this machine.
    Local,
    /// The processes of a container, by its log. They succeed one another with the same process id.
    Log(Arc<str>),
}

type Key = (Origin, String, CallId);

/// The calls in progress. Clones share them.
#[derive(Clone, Debug)]
pub struct InFlight {
    calls: Arc<watch::Sender<HashMap<Key, TapRecord>>>,
    /// The calls that have begun and of which a rule asked what they carry.
    asked: Arc<Mutex<Vec<TapRecord>>>,
    /// Whether a process of this machine is running. Several may have the same component name: the provisioners of
    /// several drivers.
    is_running: fn(u32) -> bool,
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new(|pid| Path::new("/proc").join(pid.to_string()).exists())
    }
}

impl InFlight {
    fn new(is_running: fn(u32) -> bool) -> Self {
        Self { calls: Arc::new(watch::Sender::new(HashMap::new())), asked: Arc::default(), is_running }
    }

    /// Processes a record. Returns the calls of which no further record will arrive: its own at its end; at its start
    /// those of an earlier process of the same component, which were lost with it.
    pub(super) fn record(&self, origin: &Origin, record: TapRecord) -> Vec<TapRecord> {
        let mut over = Vec::new();
        self.calls.send_modify(|calls| {
            let key = (origin.clone(), record.component.clone(), record.id);
            if record.end.is_some() {
                calls.remove(&key);
                over.push(record);
                return;
            }
            if *origin == Origin::Local {
                let is_lost = |(from, component, id): &Key| {
                    from == origin
                        && *component == record.component
                        && id.pid != record.id.pid
                        && !(self.is_running)(id.pid)
                };
                over.extend(calls.extract_if(|key, _| is_lost(key)).map(|(_, lost)| lost));
            }
            if record.request.is_some() {
                self.asked().push(record.clone());
            }
            // In containers all processes have the same id, and their calls the same numbers.
            over.extend(calls.insert(key, record));
        });
        over
    }

    /// Removes the calls of all processes of an origin: they have exited.
    pub(super) fn lost(&self, origin: &Origin) -> Vec<TapRecord> {
        let mut lost = Vec::new();
        self.calls.send_modify(|calls| {
            lost.extend(calls.extract_if(|(from, ..), _| from == origin).map(|(_, call)| call));
        });
        lost
    }

    fn asked(&self) -> MutexGuard<'_, Vec<TapRecord>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of calls of which a rule asked what they carry, up to now.
    pub fn asked_so_far(&self) -> usize {
        self.asked().len()
    }

    /// What the calls of `method` in progress for these volumes carry, as far as a rule asked for it.
    pub fn requests_in_progress(&self, method: CsiMethod, volumes: &[String]) -> Vec<Value> {
        requests(self.calls.borrow().values(), method, volumes)
    }

    /// What the calls of `method` for these volumes carried, after the first `from` of which a rule asked for
    /// it ([`FaultAction::Record`](claimcheck_csi::tap::FaultAction::Record)).
    pub fn requests(&self, method: CsiMethod, volumes: &[String], from: usize) -> Vec<Value> {
        requests(self.asked().iter().skip(from), method, volumes)
    }

    /// The number of calls of `method` in progress for one of these volumes; CreateVolume has only the volume's name.
    pub fn count(&self, method: CsiMethod, volumes: &[String]) -> u64 {
        let calls = self.calls.borrow();
        let is_meant =
            |call: &&TapRecord| call.method == method && volumes.iter().any(|of| call.volume() == of);
        calls.values().filter(is_meant).count().try_into().unwrap_or(u64::MAX)
    }

    /// Waits until a call of `method` for volume `handle` is in progress; CreateVolume has only the volume's name.
    pub async fn until_started(&self, method: CsiMethod, handle: &str) {
        let expected = |call: &TapRecord| call.method == method && call.volume() == handle;
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.calls.subscribe().wait_for(|calls| calls.values().any(expected)).await;
    }
}

fn requests<'a>(
    calls: impl Iterator<Item = &'a TapRecord>,
    method: CsiMethod,
    volumes: &[String],
) -> Vec<Value> {
    let meant = calls.filter(|call| call.method == method && volumes.iter().any(|of| call.volume() == of));
    meant.filter_map(|call| call.request.clone()).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::{Code, tap::CallEnd};
    use claimcheck_model::Stamp;

    use super::*;

    fn at(ns: u64) -> Stamp {
        Stamp { mono_ns: ns, wall_ns: ns }
    }

    fn started(pid: u32, start: u64) -> TapRecord {
        let id = CallId { pid, seq: 1 };
        let started = TapRecord::started(id, "node/n1", CsiMethod::NodeStageVolume, at(start));
        TapRecord { driver: Some("d".into()), volume_id: Some("v".into()), ..started }
    }

    fn starts(calls: Vec<TapRecord>) -> Vec<u64> {
        let mut starts: Vec<u64> = calls.iter().map(|call| call.start.mono_ns).collect();
        starts.sort_unstable();
        starts
    }

    #[test]
    fn a_call_is_over_with_its_end() {
        let calls = InFlight::new(|_| true);
        assert_eq!(calls.record(&Origin::Local, started(1, 5)), []);
        let ended = TapRecord { end: Some(CallEnd::new(at(9), Code::Ok)), ..started(1, 5) };
        assert_eq!(calls.record(&Origin::Local, ended.clone()), [ended]);
        assert_eq!(calls.lost(&Origin::Local), []);
    }

    #[test]
    fn calls_of_a_killed_process_never_end() {
        let calls = InFlight::new(|pid| pid != 1);
        let record = |pid, start| calls.record(&Origin::Local, started(pid, start));
        record(1, 5);
        let lost = record(2, 7);
        assert_eq!(record(3, 8), [], "process 2 is running as the same component");
        assert!(lost.iter().all(|call| call.end.is_none()));
        assert_eq!(starts(lost), [5]);
        assert_eq!(starts(record(2, 9)), [7], "another process of another container");
        assert_eq!(starts(calls.lost(&Origin::Local)), [8, 9]);
    }

    #[test]
    fn the_calls_of_two_containers_are_distinct() {
        let calls = InFlight::default();
        let (one, two) = (Origin::Log("one".into()), Origin::Log("two".into()));
        assert_eq!(calls.record(&one, started(1, 5)), []);
        assert_eq!(calls.record(&two, started(1, 6)), []);
        assert_eq!(starts(calls.lost(&one)), [5]);
        assert_eq!(starts(calls.lost(&two)), [6]);
    }

    #[tokio::test]
    async fn a_call_can_be_waited_for() {
        let calls = InFlight::default();
        calls.record(&Origin::Local, started(std::process::id(), 5));
        calls.until_started(CsiMethod::NodeStageVolume, "v").await;
    }
}
