//! Calls from the tap: the records of a call's start and end become one piece of evidence.

use std::{collections::HashMap, path::Path};

use claimcheck_csi::tap::{CallEdge, CallId, TapRecord, code_name};
use claimcheck_model::Stamp;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::{Observation, Rpc, RpcEnd};

/// Sends each call of the tap when it has ended, until either channel closes. Calls in progress
/// at that time, or of processes that exited meanwhile, are sent without an end.
pub async fn calls<I: From<Observation>>(
    mut records: UnboundedReceiver<TapRecord>,
    evidence: UnboundedSender<I>,
) {
    let mut pairs = Pairs::new(|pid| Path::new("/proc").join(pid.to_string()).exists());
    while let Some(record) = records.recv().await {
        for rpc in pairs.take(record) {
            if evidence.send(Observation::Rpc(rpc).into()).is_err() {
                return;
            }
        }
    }
    for rpc in pairs.unfinished() {
        // The run is over: the receiver was dropped.
        let _ = evidence.send(Observation::Rpc(rpc).into());
    }
}

/// The first records of calls that have not ended.
#[derive(Debug)]
pub(super) struct Pairs {
    open: HashMap<(String, CallId), TapRecord>,
    /// Whether a process is running. Several may have the same component name: the provisioners of several drivers.
    is_running: fn(u32) -> bool,
}

impl Pairs {
    pub(super) fn new(is_running: fn(u32) -> bool) -> Self {
        Self { open: HashMap::new(), is_running }
    }

    /// The calls that a record completes: its own at its end, and those of an earlier process of the same
    /// component, which were lost with it.
    pub(super) fn take(&mut self, record: TapRecord) -> Vec<Rpc> {
        let id = (record.component.clone(), record.id);
        match &record.edge {
            CallEdge::Start => {
                let (pid, component) = (record.id.pid, record.component.clone());
                let is_running = self.is_running;
                let is_dead = |id: &CallId| id.pid != pid && !is_running(id.pid);
                let dead = self.open.extract_if(|(other, id), _| *other == component && is_dead(id));
                let mut dead: Vec<Rpc> = dead.map(|(_, record)| rpc(&record, None, record.at)).collect();
                // In containers all processes have the same id, and their calls the same numbers.
                dead.extend(self.open.insert(id, record).map(|record| rpc(&record, None, record.at)));
                dead
            }
            CallEdge::End { code, injected, .. } => {
                let code = code_name(*code).to_owned();
                let end = RpcEnd { at: record.at, code, injected: *injected };
                let start = self.open.remove(&id).map_or(record.at, |start| start.at);
                vec![rpc(&record, Some(end), start)]
            }
        }
    }

    pub(super) fn unfinished(self) -> impl Iterator<Item = Rpc> {
        self.open.into_values().map(|record| rpc(&record, None, record.at))
    }
}

fn rpc(record: &TapRecord, end: Option<RpcEnd>, start: Stamp) -> Rpc {
    let method = record.rpc();
    // A tap on a node records controller calls, too, if one process serves both.
    let here = record.component.strip_prefix("node/").filter(|_| method.starts_with("Node"));
    let node = record.node.as_deref().or(here).unwrap_or_default();
    let volume = if method == "CreateVolume" { &record.volume_name } else { &record.volume_id };
    Rpc {
        driver: record.driver.clone().unwrap_or_default(),
        method: method.to_owned(),
        volume: volume.clone().unwrap_or_default(),
        node: node.to_owned(),
        target: record.target.clone().unwrap_or_default(),
        start,
        end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use claimcheck_csi::Code;

    fn record(pid: u32, edge: CallEdge, at: u64) -> TapRecord {
        TapRecord {
            at: Stamp { mono_ns: at, wall_ns: at },
            id: CallId { pid, seq: 1 },
            edge,
            component: "node/n1".into(),
            method: "/csi.v1.Node/NodeStageVolume".into(),
            driver: Some("d".into()),
            volume_id: Some("v".into()),
            volume_name: None,
            node: None,
            target: Some("/staging".into()),
        }
    }

    #[test]
    fn start_and_end_become_one_call_on_the_components_node() {
        let mut pairs = Pairs::new(|_| true);
        assert_eq!(pairs.take(record(1, CallEdge::Start, 5)), []);
        let calls =
            pairs.take(record(1, CallEdge::End { code: Code::Ok, message: None, injected: false }, 9));
        assert_eq!((calls[0].node.as_str(), calls[0].start.mono_ns), ("n1", 5));
        assert_eq!(calls[0].succeeded().map(|at| at.mono_ns), Some(9));
        assert_eq!(pairs.unfinished().count(), 0);
    }

    #[test]
    fn calls_of_a_killed_process_never_end() {
        let mut pairs = Pairs::new(|pid| pid != 1);
        pairs.take(record(1, CallEdge::Start, 5));
        let calls = pairs.take(record(2, CallEdge::Start, 7));
        assert_eq!(
            pairs.take(record(3, CallEdge::Start, 8)),
            [],
            "process 2 is running as the same component"
        );
        assert_eq!((calls.len(), calls[0].end.is_none(), calls[0].start.mono_ns), (1, true, 5));
        let again = pairs.take(record(2, CallEdge::Start, 9));
        assert_eq!((again.len(), again[0].start.mono_ns), (1, 7), "another process of another container");
        let mut open: Vec<u64> = pairs.unfinished().map(|call| call.start.mono_ns).collect();
        open.sort_unstable();
        assert_eq!(open, [8, 9]);
    }
}
