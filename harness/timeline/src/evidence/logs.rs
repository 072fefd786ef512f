//! Records from the logs of pods in a real cluster, followed through the API server: each once, in order, for
//! as long as the pod exists.

use std::{collections::HashSet, time::Duration};

use claimcheck_csi::tap::LineId;
use claimcheck_model::{Backoff, Stamp};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::LogParams,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

/// The idle time after which a log is requested again: a connection may break silently.
const SILENCE: Duration = Duration::from_secs(60);
/// The maximum latency of a line: a log is reread from this long before its last line.
const OVERLAP: Duration = Duration::from_secs(10);
/// Short: a case waits for the records of a node after its kubelet was restarted.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(2) };

/// A record in a log line, and its identity.
pub(super) trait Line: DeserializeOwned {
    /// When it was written, by the node's clocks.
    fn written(&self) -> Stamp;
    /// Its number, among those of one process.
    fn seq(&self) -> u64;
    /// Whether a line without a record is logged for the user.
    fn is_warning(_line: &str) -> bool {
        false
    }
}

/// Runs `follow` for each pod once it is running, until `closed` resolves.
pub(super) async fn each_running<F>(
    pods: Api<Pod>,
    selector: &str,
    closed: impl Future<Output = ()>,
    mut follow: impl FnMut(&Pod) -> Vec<F>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let config = watcher::Config::default().labels(selector);
    let mut changes = std::pin::pin!(watcher(pods, config).default_backoff());
    let mut closed = std::pin::pin!(closed);
    let mut followed = HashSet::new();
    // They end with this task.
    let mut follows = JoinSet::new();
    loop {
        let changed = tokio::select! {
            changed = changes.try_next() => changed,
            Some(_) = follows.join_next() => continue,
            () = &mut closed => return,
        };
        let pod = match changed {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => pod,
            Ok(Some(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone)) => continue,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, selector, "restarting the watch for pods with followed logs");
                continue;
            }
        };
        let runs = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
        if runs && followed.insert(pod.metadata.uid.clone()) {
            for following in follow(&pod) {
                follows.spawn(following);
            }
        }
    }
}

/// The log of a container.
pub(super) struct Log {
    pub client: Client,
    pub namespace: String,
    pub pod: String,
    pub uid: Option<String>,
    /// None for a pod with a single container.
    pub container: Option<String>,
}

/// A followed log has ended.
enum End {
    /// It may continue: the container restarts, or a connection broke.
    ForNow,
    /// The pod was deleted, or the receiver was dropped.
    ForEver,
}

impl Log {
    /// Passes each record written after `started` to `take`, until that returns false or the pod
    /// is deleted. An interrupted log is reread from a little earlier. `read` is how far it has been read.
    pub async fn follow<L: Line>(
        &self,
        started: Instant,
        read: &watch::Sender<Newest>,
        mut take: impl FnMut(L) -> bool,
    ) {
        let mut since = started;
        let mut failures = 0;
        loop {
            match self.read(&mut since, read, &mut take).await {
                Ok(End::ForEver) => return,
                Ok(End::ForNow) => failures = 0,
                Err(error) => {
                    tracing::debug!(%error, pod = self.pod, "a followed log ended");
                    failures += 1;
                }
            }
            tokio::time::sleep(BACKOFF.delay(failures)).await;
        }
    }

    /// Whether the pod no longer exists. A kubelet that has just started returns 404 for pods that it does not
    /// know yet (`getContainerLogs` in its `server.go`).
    async fn is_deleted(&self, pods: &Api<Pod>) -> kube::Result<bool> {
        let pod = pods.get_metadata_opt(&self.pod).await?;
        Ok(pod.is_none_or(|pod| pod.metadata.uid != self.uid))
    }

    /// Reads the log to its end. Lines without records are the component's normal log.
    async fn read<L: Line>(
        &self,
        since: &mut Instant,
        read: &watch::Sender<Newest>,
        take: &mut impl FnMut(L) -> bool,
    ) -> kube::Result<End> {
        let mut newest = *read.borrow();
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        // In seconds of the kubelet's clock, which may be wrong.
        let ago = i64::try_from((since.elapsed() + OVERLAP).as_secs()).unwrap_or(i64::MAX);
        let container = self.container.clone();
        let params = LogParams { container, follow: true, since_seconds: Some(ago), ..LogParams::default() };
        let mut lines = match pods.log_stream(&self.pod, &params).await {
            Ok(log) => log.lines(),
            Err(kube::Error::Api(status)) if status.code == 404 && self.is_deleted(&pods).await? => {
                return Ok(End::ForEver);
            }
            Err(error) => return Err(error),
        };
        loop {
            let line = match timeout(SILENCE, lines.try_next()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) | Err(_) => return Ok(End::ForNow),
                Ok(Err(error)) => return Err(kube::Error::Service(error.into())),
            };
            *since = Instant::now();
            let Ok(record) = serde_json::from_str::<L>(&line) else {
                match L::is_warning(&line) {
                    true => tracing::warn!(line, pod = self.pod, "log line of an observer"),
                    false => tracing::debug!(line, pod = self.pod, "log line of a component"),
                }
                continue;
            };
            if newest.advance(record.written(), record.seq()) {
                if !take(record) {
                    return Ok(End::ForEver);
                }
                // Only now is the record evidence.
                read.send_replace(newest);
            }
        }
    }
}

/// The newest processed record. A reread log repeats some.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newest {
    at: Stamp,
    seq: u64,
}

impl Newest {
    /// Whether this line, or a later one, has been processed.
    pub(super) fn includes(mut self, line: LineId) -> bool {
        !self.advance(line.written, line.seq)
    }

    /// Whether a record is new. Both clocks are compared: the wall clock may be set back, and the monotonic
    /// one restarts when the node reboots.
    fn advance(&mut self, at: Stamp, seq: u64) -> bool {
        let later = (at.mono_ns, seq) > (self.at.mono_ns, self.seq);
        let new = later || (at.wall_ns, seq) > (self.at.wall_ns, self.seq) || self.at == Stamp::default();
        if new {
            *self = Self { at, seq };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_records_are_new() {
        let mut newest = Newest::default();
        let mut new = |mono_ns, wall_ns, seq| newest.advance(Stamp { mono_ns, wall_ns }, seq);
        assert!(new(50, 1000, 0));
        assert!(!new(50, 1000, 0), "the same again");
        assert!(new(50, 1000, 1), "detected at the same time");
        assert!(!new(49, 999, 5), "an older one, of an earlier process");
        assert!(new(60, 900, 2), "the wall clock was set back");
        assert!(new(3, 5000, 0), "the node was rebooted");
    }

    #[test]
    fn a_log_is_read_up_to_its_lines_and_those_of_earlier_processes() {
        let line = |mono_ns, seq| LineId { written: Stamp { mono_ns, wall_ns: mono_ns }, seq };
        assert!(!Newest::default().includes(line(1, 0)), "nothing is read");
        let mut read = Newest::default();
        read.advance(line(50, 7).written, 7);
        for (line, expected) in
            [(line(50, 7), true), (line(40, 9), true), (line(50, 8), false), (line(60, 0), false)]
        {
            assert_eq!(read.includes(line), expected, "{line:?}");
        }
    }
}
