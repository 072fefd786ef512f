//! Calls from the tap socket become evidence when they are over.

use std::time::Duration;

use claimcheck_csi::tap::{Barrier, TapRecord};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};

use super::{InFlight, NoEvidence, Observation, in_flight::Origin};

/// The calls of the tap socket. Clones are the same.
#[derive(Clone, Debug)]
pub struct LocalCalls {
    barrier: Barrier,
    queries: UnboundedSender<oneshot::Sender<()>>,
}

impl LocalCalls {
    /// Sends each call when it has ended, until either channel closes. Calls in progress at that time, or of processes
    /// that exited meanwhile, are sent without an end. Must be called within a tokio runtime.
    pub fn follow<I: From<Observation> + Send + 'static>(
        records: UnboundedReceiver<TapRecord>,
        barrier: Barrier,
        in_flight: InFlight,
        evidence: UnboundedSender<I>,
    ) -> Self {
        let (queries, queried) = unbounded_channel();
        tokio::spawn(calls(records, queried, in_flight, evidence));
        Self { barrier, queries }
    }

    /// Returns once the evidence contains all calls that had ended before this call.
    ///
    /// # Errors
    /// The processes that did not confirm that in time.
    pub async fn reach(&self, timeout: Duration) -> Result<(), NoEvidence> {
        let reached = self.barrier.reach(timeout).await;
        reached.map_err(|sources| NoEvidence { sources, waited: timeout })?;
        let (query, sent) = oneshot::channel();
        // If the run is over, no component sends.
        if self.queries.send(query).is_ok() {
            let _ = sent.await;
        }
        Ok(())
    }
}

async fn calls<I: From<Observation>>(
    mut records: UnboundedReceiver<TapRecord>,
    mut queries: UnboundedReceiver<oneshot::Sender<()>>,
    in_flight: InFlight,
    evidence: UnboundedSender<I>,
) {
    loop {
        tokio::select! {
            record = records.recv() => {
                let Some(record) = record else { break };
                if !send(in_flight.record(&Origin::Local, record), &evidence) {
                    return;
                }
            }
            Some(query) = queries.recv() => {
                for _ in 0..records.len() {
                    let Ok(record) = records.try_recv() else { break };
                    if !send(in_flight.record(&Origin::Local, record), &evidence) {
                        return;
                    }
                }
                // The caller may have given up.
                let _ = query.send(());
            }
        }
    }
    // If the run is over, the receiver was dropped.
    send(in_flight.lost(&Origin::Local), &evidence);
}

/// Sends these calls; false if the receiver was dropped.
pub(super) fn send<I: From<Observation>>(calls: Vec<TapRecord>, evidence: &UnboundedSender<I>) -> bool {
    calls.into_iter().all(|call| evidence.send(Observation::from(call).into()).is_ok())
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::{
        Code,
        tap::{self, CallEnd, CallId, Telemetry},
    };
    use claimcheck_model::{CsiMethod, Stamp};
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        net::UnixStream,
    };

    use super::*;

    /// A process has recorded a call, but its records reach the socket late.
    #[tokio::test]
    async fn a_process_is_waited_for_until_it_has_confirmed_its_records_or_has_exited() {
        let folder = std::env::temp_dir().join(format!("claimcheck-local-calls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tap.sock");
        let Telemetry { records, barrier, writes: _writes, .. } = tap::listen(&path).unwrap();
        let (evidence, mut seen) = unbounded_channel::<Observation>();
        let local = LocalCalls::follow(records, barrier, InFlight::default(), evidence);
        let limit = Duration::from_secs(60);
        assert_eq!(local.reach(limit).await, Ok(()), "no process has connected");

        let call = |seq| {
            let id = CallId { pid: std::process::id(), seq };
            let started =
                TapRecord::started(id, "attacher", CsiMethod::ControllerPublishVolume, Stamp::default());
            let ended = TapRecord { end: Some(CallEnd::new(Stamp::default(), Code::Ok)), ..started.clone() };
            [started, ended].map(|record| serde_json::to_string(&record).unwrap() + "\n").concat()
        };
        let (read, mut write) = UnixStream::connect(&path).await.unwrap().into_split();
        let mut orders = BufReader::new(read).lines();
        let reached = tokio::spawn({
            let local = local.clone();
            async move { local.reach(limit).await }
        });
        assert_eq!(orders.next_line().await.unwrap().as_deref(), Some("\"confirm\""));
        assert!(seen.try_recv().is_err() && !reached.is_finished());
        write.write_all(format!("{}{{\"confirmed\":true}}\n", call(1)).as_bytes()).await.unwrap();
        assert_eq!(reached.await.unwrap(), Ok(()));
        assert!(seen.try_recv().is_ok(), "the record is evidence by now");

        // One that hangs is named.
        let error = local.reach(Duration::from_millis(50)).await.unwrap_err().to_string();
        let expected = format!("no evidence: attacher (process {}) did not confirm", std::process::id());
        assert!(error.starts_with(&expected), "{error}");

        // One that exits without confirming has written its last record before.
        let reached = tokio::spawn(async move { local.reach(limit).await });
        write.write_all(call(2).as_bytes()).await.unwrap();
        drop((orders, write));
        assert_eq!(reached.await.unwrap(), Ok(()));
        assert!(seen.try_recv().is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
