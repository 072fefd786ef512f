//! Leaks of a case or a run on the host, by name, and in a driver's backend.

use std::{
    collections::HashSet,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    time::Duration,
};

use claimcheck_csi::{
    Driver,
    v1::{ListSnapshotsRequest, ListVolumesRequest, ListVolumesResponse},
};
use claimcheck_model::{Leak, LeakKind};
use claimcheck_substrate::KUBELET_DIR;
use tokio::time::timeout;

/// The maximum duration of a list: each of its calls has a deadline, but their number is the driver's.
const LISTING: Duration = Duration::from_secs(60);
/// The maximum number of volumes of a list, and of its pages.
const LISTED: usize = 10_000;
/// The maximum length of a reported volume ID, in characters; CSI permits 128 bytes.
const SHOWN: usize = 256;

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
            let is_of_run = Path::new(file).starts_with(state_dir) && named(file, of);
            is_of_run
                .then(|| leak(LeakKind::LoopDevice, &format!("{} on {file}", device.file_name().display())))
        })
        .collect()
}

/// The volumes that a driver lists. A driver without LIST_VOLUMES is not at fault. If the list has no end, that is
/// reported in place of the volumes that are unknown.
pub(super) async fn volumes_of(driver: &Driver) -> Vec<Leak> {
    let page = |starting_token| {
        let mut controller = driver.controller();
        let request = ListVolumesRequest { starting_token, ..Default::default() };
        async move { controller.list_volumes(request).await.ok().map(|answer| answer.into_inner()) }
    };
    listed(page).await
}

/// The number of snapshots of a volume that the driver lists on all pages; none if it does not list them.
pub(super) async fn snapshots_of(driver: &Driver, volume: &str) -> Option<usize> {
    let pages = async {
        let (mut count, mut starting_token) = (0, String::new());
        for _ in 0..LISTED {
            let source_volume_id = volume.to_owned();
            let request = ListSnapshotsRequest { source_volume_id, starting_token, ..Default::default() };
            let page = driver.controller().list_snapshots(request).await.ok()?.into_inner();
            count += page.entries.len();
            if page.next_token.is_empty() {
                return Some(count);
            }
            starting_token = page.next_token;
        }
        None
    };
    timeout(LISTING, pages).await.ok()?
}

/// The volumes of all pages, by their tokens.
async fn listed<F>(mut page: impl FnMut(String) -> F) -> Vec<Leak>
where
    F: Future<Output = Option<ListVolumesResponse>>,
{
    let mut listing = Listing::default();
    let pages = async {
        let mut token = Some(String::new());
        while let Some(starting_token) = token {
            let Some(answer) = page(starting_token).await else { return };
            token = listing.add(answer);
        }
    };
    if timeout(LISTING, pages).await.is_err() {
        listing.without_end(&format!("it is incomplete after {} s", LISTING.as_secs()));
    }
    listing.leaks
}

/// The pages of a list so far.
#[derive(Default)]
struct Listing {
    leaks: Vec<Leak>,
    /// Hashes of their tokens, which may be megabytes.
    tokens: HashSet<u64>,
}

impl Listing {
    /// Adds a page; returns the token of the next one, unless the list ends or has no end.
    fn add(&mut self, page: ListVolumesResponse) -> Option<String> {
        let volumes: Vec<_> = page.entries.into_iter().filter_map(|entry| entry.volume).collect();
        let room = LISTED - self.leaks.len();
        let too_many = volumes.len() > room;
        let names = volumes.into_iter().take(room).map(|it| it.volume_id.chars().take(SHOWN).collect());
        self.leaks.extend(names.map(|name| Leak { kind: LeakKind::BackendVolume, name, case: None }));
        let mut hasher = DefaultHasher::new();
        page.next_token.hash(&mut hasher);
        if too_many || self.tokens.len() == LISTED {
            self.without_end(&format!("it has more than {LISTED} volumes or pages"));
        } else if page.next_token.is_empty() {
            return None;
        } else if self.tokens.insert(hasher.finish()) {
            return Some(page.next_token);
        } else {
            let token: String = page.next_token.chars().take(SHOWN).collect();
            self.without_end(&format!("next_token {token:?} is returned twice"));
        }
        None
    }

    /// Reports that not all volumes are known.
    fn without_end(&mut self, why: &str) {
        let name = format!("unknown volumes: the list of ListVolumes has no end: {why}");
        self.leaks.push(Leak { kind: LeakKind::BackendVolume, name, case: None });
    }
}

/// Whether a path contains one of the names, not merely as a part of another name: a driver's volume ids may be numbers.
fn named(text: &str, of: &[String]) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let contains = |name: &String| {
        text.match_indices(name.as_str()).any(|(start, name)| {
            !text[..start].ends_with(is_of_name) && !text[start + name.len()..].starts_with(is_of_name)
        })
    };
    of.is_empty() || of.iter().any(contains)
}

fn leak(kind: LeakKind, name: &str) -> Leak {
    Leak { kind, name: name.to_owned(), case: None }
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::v1::{Volume, list_volumes_response::Entry};

    use super::*;

    #[test]
    fn names_select() {
        let of = ["pvc-1".to_owned()];
        assert!(named("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount", &of));
        assert!(!named("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-2/mount", &of));
        assert!(named("anything", &[]));
        for (path, expected) in [
            ("/cc/d-1/volumes/12.img", true),
            ("/cc/d-1/volumes/12/data", true),
            ("/cc/d-1/volumes/112.img", false),
            ("/var/lib/kubelet/pods/0f12a3-12-4/volumes/kubernetes.io~csi/pvc-12/mount", false),
        ] {
            assert_eq!(named(path, &["12".to_owned()]), expected, "{path}");
        }
    }

    /// A page with these volumes.
    fn page(volumes: &[&str], next_token: &str) -> ListVolumesResponse {
        let volume = |id: &&str| Volume { volume_id: (*id).to_owned(), ..Volume::default() };
        let entry = |id: &&str| Entry { volume: Some(volume(id)), ..Entry::default() };
        ListVolumesResponse {
            entries: volumes.iter().map(entry).collect(),
            next_token: next_token.to_owned(),
        }
    }

    async fn names(mut answer: impl FnMut(String) -> ListVolumesResponse) -> Vec<String> {
        let leaks = listed(|token| std::future::ready(Some(answer(token)))).await;
        leaks.into_iter().map(|leak| leak.name).collect()
    }

    #[tokio::test]
    async fn all_pages_are_listed_and_lists_without_end_are_reported() {
        let whole = names(|token| if token.is_empty() { page(&["a"], "b") } else { page(&["b"], "") }).await;
        assert_eq!(whole, ["a", "b"]);

        let same = names(|_| page(&["a"], "t")).await;
        let why = "unknown volumes: the list of ListVolumes has no end: next_token \"t\" is returned twice";
        assert_eq!(same, ["a", "a", why]);
        let circle = names(|token| page(&[], if token == "x" { "y" } else { "x" })).await;
        assert_eq!(circle, [why.replace("\"t\"", "\"x\"")]);

        let mut pages = 0;
        let endless = names(|_| {
            pages += 1;
            page(&[], &pages.to_string())
        });
        let why =
            "unknown volumes: the list of ListVolumes has no end: it has more than 10000 volumes or pages";
        assert_eq!(endless.await, [why]);
        let huge = vec!["v"; LISTED + 1];
        let huge = names(|_| page(&huge, "")).await;
        assert_eq!((huge.len(), huge.last().unwrap().as_str()), (LISTED + 1, why));
        let long = names(|_| page(&[&"x".repeat(1 << 20)], "")).await;
        assert_eq!(long, ["x".repeat(SHOWN)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_list_is_given_up() {
        let mut pages = 0;
        let leaks = listed(|_| {
            pages += 1;
            let answer = page(&[], &pages.to_string());
            async move {
                tokio::time::sleep(Duration::from_secs(14)).await;
                Some(answer)
            }
        });
        let leaks = leaks.await;
        assert_eq!(leaks.len(), 1);
        assert!(leaks[0].name.ends_with("it is incomplete after 60 s"), "{leaks:?}");
    }

    #[test]
    fn nothing_is_mounted_outside_of_a_run() {
        assert_eq!(mounts(std::process::id(), &["claimcheck-no-such-volume".to_owned()]), []);
    }
}
