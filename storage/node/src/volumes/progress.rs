//! Events on a pod while the node changes the group of a volume's files, which may take minutes.
//!
//! Upstream: `initiateProgressMonitor` and `monitorProgress` in `pkg/volume/volume_linux.go`.

use std::{path::Path, pin::pin, time::Duration};

use tokio::time::{Instant, interval_at};

use super::PodUid;

/// The reason of the events.
pub const REASON: &str = "VolumePermissionChangeInProgress";

/// Upstream: `firstEventReportDuration` and `progressReportDuration`.
const FIRST: Duration = Duration::from_secs(30);
const NEXT: Duration = Duration::from_secs(60);

/// Awaits the work, and calls `report` whenever an event is due, with whether it is the first.
pub async fn reported<T>(work: impl Future<Output = T>, mut report: impl FnMut(bool)) -> T {
    let mut work = pin!(work);
    let mut due = interval_at(Instant::now() + FIRST, NEXT);
    let mut first = true;
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = due.tick() => report(std::mem::take(&mut first)),
        }
    }
}

/// The message of the first event, without a number of files, and of those that follow.
pub fn message(volume: &Path, pod: &PodUid, files: Option<u64>) -> String {
    let path = volume.to_string_lossy();
    // From the pod's uid on.
    let shown = path.find(pod.as_str()).map_or(&*path, |start| &path[start..]);
    match files {
        None => format!(
            "Setting volume ownership for {shown} is taking longer than expected, consider using OnRootMismatch - \
             https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-\
             and-ownership-change-policy-for-pods"
        ),
        Some(files) => format!("Setting volume ownership for {shown}, processed {files} files."),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_event_is_due_after_half_a_minute_and_then_every_minute() {
        let start = Instant::now();
        let mut due = Vec::new();
        let report = |first| due.push((start.elapsed().as_secs(), first));
        reported(sleep(Duration::from_secs(160)), report).await;
        assert_eq!(due, [(30, true), (90, false), (150, false)]);
        reported(sleep(Duration::from_secs(29)), |_| panic!("it was soon done")).await;
    }

    #[test]
    fn messages_begin_with_the_pods_directory() {
        let volume = Path::new("/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv/mount");
        let later = message(volume, &"uid-1".into(), Some(7));
        assert_eq!(
            later,
            "Setting volume ownership for uid-1/volumes/kubernetes.io~csi/pv/mount, processed 7 files."
        );
        let first = message(volume, &"uid-1".into(), None);
        assert!(
            first.ends_with("#configure-volume-permission-and-ownership-change-policy-for-pods"),
            "{first}"
        );
    }
}
