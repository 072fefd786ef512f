//! Leaks of a case or a run on the host, by name, and in a driver's backend.

use std::{fs, path::Path};

use claimcheck_csi::{Driver, v1::ListVolumesRequest};
use claimcheck_model::{Leak, LeakKind};
use claimcheck_substrate::KUBELET_DIR;

/// Mounts of volumes in the namespace of process `pid`: of those named by `of`, or of all if it is empty.
pub(super) fn mounts(pid: u32, of: &[String]) -> Vec<Leak> {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    // Field 5 is the mount point: proc(5).
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let volumes = points.filter(|point| {
        let below = point.strip_prefix(KUBELET_DIR).unwrap_or_default();
        below.starts_with("/pods/") || below.starts_with("/plugins/")
    });
    volumes.filter(|point| named(point, of)).map(|point| leak(LeakKind::Mount, point)).collect()
}

/// Loop devices on files below the driver's state directory.
pub(super) fn loop_devices(state_dir: &Path, of: &[String]) -> Vec<Leak> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            let file = file.trim();
            let ours = Path::new(file).starts_with(state_dir) && named(file, of);
            ours.then(|| leak(LeakKind::LoopDevice, &format!("{} on {file}", device.file_name().display())))
        })
        .collect()
}

/// The volumes that a driver lists. A driver without LIST_VOLUMES is not at fault.
pub(super) async fn volumes_of(driver: &Driver) -> Vec<Leak> {
    let mut leaks = Vec::new();
    let mut token = String::new();
    loop {
        let request = ListVolumesRequest { starting_token: token.clone(), ..Default::default() };
        let Ok(answer) = driver.controller().list_volumes(request).await else { return leaks };
        let answer = answer.into_inner();
        let names =
            answer.entries.into_iter().filter_map(|entry| entry.volume).map(|volume| volume.volume_id);
        leaks.extend(names.map(|name| Leak { kind: LeakKind::BackendVolume, name, case: None }));
        token = answer.next_token;
        if token.is_empty() {
            return leaks;
        }
    }
}

fn named(text: &str, of: &[String]) -> bool {
    of.is_empty() || of.iter().any(|name| text.contains(name.as_str()))
}

fn leak(kind: LeakKind, name: &str) -> Leak {
    Leak { kind, name: name.to_owned(), case: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select() {
        let of = ["pvc-1".to_owned()];
        assert!(named("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount", &of));
        assert!(!named("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-2/mount", &of));
        assert!(named("anything", &[]));
    }

    #[test]
    fn nothing_of_ours_is_mounted_outside_of_a_run() {
        assert_eq!(mounts(std::process::id(), &["claimcheck-no-such-volume".to_owned()]), []);
    }
}
