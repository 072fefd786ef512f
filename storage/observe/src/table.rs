//! The relevant part of a mount table, and the difference between two of them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::{Path, PathBuf},
};

use claimcheck_model::KubeletPath;

use crate::mountinfo::{Difference, Mounts};

/// The numbers of the mounts at each path: several may be stacked.
type Mounted = BTreeMap<KubeletPath, BTreeSet<u32>>;

/// The CSI volumes that are mounted below a kubelet's directory, by the last reading of the table.
#[derive(Clone, Debug)]
pub struct Table {
    kubelet_dir: PathBuf,
    /// The last reading.
    text: Vec<u8>,
    at: Mounted,
    /// Mounts after the last reading at paths that had one: the former ones may exist or not.
    again: BTreeSet<Mount>,
    /// Whether the kubelet's directory is known to be that one, or another one.
    knows_directory: bool,
}

/// A difference between two tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// The first mount at a path.
    Mounted(KubeletPath),
    /// The last mount at a path was unmounted.
    Unmounted(KubeletPath),
}

impl Table {
    /// An empty table; only mounts below this directory count.
    pub fn new(kubelet_dir: &Path) -> Self {
        let (text, at, again) = Default::default();
        Self { kubelet_dir: kubelet_dir.to_owned(), text, at, again, knows_directory: false }
    }

    /// Enters a reading of the whole table, and leaves the memory of the former one in its place. Returns the changes,
    /// in the order in which a kubelet makes them: unmounts first, pods' before their node's. A path with mounts in
    /// both readings but none in common was unmounted and mounted again in between; if its mount was the last of the table
    /// and has the same number again, that is seen only if it was appended ([`Self::append`]).
    pub fn read(&mut self, reading: &mut Vec<u8>) -> Vec<Move> {
        mem::swap(&mut self.text, reading);
        let difference = Difference::between(reading, &self.text);
        let [removed, added] = [&difference.removed, &difference.added]
            .map(|lines| mounts(lines, &self.kubelet_dir).collect::<BTreeSet<Mount>>());
        let (before, after): (Vec<_>, Vec<_>) = difference.changed.into_iter().unzip();
        let [before, after] =
            [before, after].map(|lines| mounts(&lines, &self.kubelet_dir).collect::<Vec<Mount>>());
        // The kernel gives the least unused number, so that of a former mount is used again soon.
        let mut again = mem::take(&mut self.again);
        again.extend(removed.intersection(&added).cloned());
        // With the same number, its line may be the same, too.
        let mut known: Mounted =
            again.iter().map(|mount| (mount.place.clone(), self.ids_at(&mount.place))).collect();
        for Mount { place, id } in removed.into_iter().chain(before) {
            self.ids(place, &mut known).remove(&id);
        }
        for Mount { place, id } in added.into_iter().chain(after) {
            self.ids(place, &mut known).insert(id);
        }
        let (mut left, mut came) = (Vec::new(), Vec::new());
        for (place, ids) in known {
            let now = self.ids_at(&place);
            let is_again = |id: u32| again.contains(&Mount { place: place.clone(), id });
            let survives = now.iter().any(|id| ids.contains(id) && !is_again(*id));
            if now.is_empty() {
                self.at.remove(&place);
            }
            if !survives && !ids.is_empty() {
                left.push(Move::Unmounted(place.clone()));
            }
            if !survives && !now.is_empty() {
                came.push(Move::Mounted(place));
            }
        }
        left.reverse();
        left.append(&mut came);
        left
    }

    /// Enters lines that the kernel added after the last reading, and returns the mounts. From the first one at a path
    /// that has a mount already, they are left to the next reading of the whole table, which [`Self::is_incomplete`]
    /// demands: only that shows whether the former mount still exists.
    pub fn append(&mut self, lines: &[u8]) -> Vec<Move> {
        let mut came = Vec::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let mount = mounts(&[line], &self.kubelet_dir).next();
            if mount.as_ref().is_some_and(|mount| self.at.contains_key(&mount.place)) {
                self.again.extend(mount);
            } else if !self.is_incomplete() {
                self.text.extend_from_slice(line);
                if let Some(Mount { place, id }) = mount {
                    self.at.insert(place.clone(), BTreeSet::from([id]));
                    came.push(Move::Mounted(place));
                }
            }
        }
        came
    }

    /// Whether there are mounts that only a reading of the whole table explains.
    pub fn is_incomplete(&self) -> bool {
        !self.again.is_empty()
    }

    fn ids_at(&self, place: &KubeletPath) -> BTreeSet<u32> {
        self.at.get(place).cloned().unwrap_or_default()
    }

    /// The mounts at a path, which are copied to `known` first, unless they are there.
    fn ids(&mut self, place: KubeletPath, known: &mut Mounted) -> &mut BTreeSet<u32> {
        let ids = self.at.entry(place.clone()).or_default();
        known.entry(place).or_insert_with(|| ids.clone());
        ids
    }

    /// The directory of another kubelet, once: the first with mounts of pods, if `kubelet_dir` has none.
    ///
    /// Every pod with a token has such a mount, so its absence is unlikely on a node, but certain for a wrong
    /// directory.
    pub fn elsewhere(&mut self) -> Option<PathBuf> {
        if self.knows_directory {
            return None;
        }
        let mut other = None;
        for mount in Mounts::of(&self.text) {
            // As in /var/lib/k0s/kubelet/pods/UID/volumes.
            let mut above = mount.path.ancestors().skip(1);
            let Some(of_pods) = above.find(|path| path.ends_with("kubelet/pods")) else { continue };
            let Some(directory) = of_pods.parent() else { continue };
            self.knows_directory = true;
            if directory == self.kubelet_dir {
                return None;
            }
            other = other.or_else(|| Some(directory.to_owned()));
        }
        other
    }

    /// The paths with mounts.
    pub fn places(&self) -> impl Iterator<Item = &KubeletPath> {
        self.at.keys()
    }
}

/// A mount of a CSI volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mount {
    place: KubeletPath,
    id: u32,
}

/// Those in these lines.
fn mounts<'a>(lines: &'a [&[u8]], kubelet_dir: &'a Path) -> impl Iterator<Item = Mount> + 'a {
    lines.iter().flat_map(|line| Mounts::of(line)).filter_map(move |mount| {
        let place = mount.path.strip_prefix(kubelet_dir).ok().and_then(KubeletPath::of)?;
        Some(Mount { place, id: mount.id })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mountinfo::escape;

    fn publish(pod: u32) -> KubeletPath {
        KubeletPath::Publish { pod: format!("pod {pod}"), volume: "pv".into() }
    }

    fn text(mounts: &[(u32, u32)]) -> Vec<u8> {
        let line = |(id, pod): &(u32, u32)| {
            let path = format!("/var/lib/kubelet/pods/pod {pod}/volumes/kubernetes.io~csi/pv/mount");
            let prefix = format!("{id} 1 0:9 / ").into_bytes();
            [prefix, escape(Path::new(&path)), b" rw,relatime shared:1 - ext4 /dev/loop0 rw\n".to_vec()]
                .concat()
        };
        mounts.iter().flat_map(line).collect()
    }

    fn read(mounts: &[(u32, u32)], kubelet_dir: &str) -> Table {
        let mut table = Table::new(Path::new(kubelet_dir));
        table.read(&mut text(mounts));
        table
    }

    fn table(mounts: &[(u32, u32)]) -> Table {
        read(mounts, "/var/lib/kubelet")
    }

    #[test]
    fn only_mounts_below_the_kubelets_directory_are_reported() {
        assert_eq!(read(&[(1, 1)], "/var/lib/kub").places().count(), 0);
        assert_eq!(table(&[(1, 1), (2, 2)]).places().cloned().collect::<Vec<_>>(), [publish(1), publish(2)]);
    }

    #[test]
    fn another_directory_of_a_kubelet_is_named_where_the_given_one_is_not_used() {
        let text = |paths: &[&str]| {
            let line = |path: &&str| format!("1 1 0:9 / {path} rw shared:1 - tmpfs tmpfs rw\n");
            paths.iter().map(line).collect::<String>().into_bytes()
        };
        let ours = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~projected/token";
        let k0s = "/var/lib/k0s/kubelet/pods/u2/volumes/kubernetes.io~projected/token";
        let table: [(&[&str], Option<&str>); 6] = [
            (&[], None),
            (&[ours], None),
            (&[k0s], Some("/var/lib/k0s/kubelet")),
            (&["/", "/var/lib/kubelet", k0s], Some("/var/lib/k0s/kubelet")),
            (&[k0s, ours], None),
            // Equivalent to the order of any other implementation.
            (&["/srv/kubelet/pods", "/home/kubelet", "/run/mykubelet/pods/u/volumes/x"], None),
        ];
        for (paths, expected) in table {
            let mut table = Table::new(Path::new("/var/lib/kubelet"));
            table.append(b"1 1 0:9 / / rw - tmpfs tmpfs rw\n");
            assert_eq!(table.elsewhere(), None, "no pod has a mount yet");
            table.append(&text(paths));
            assert_eq!(table.elsewhere().as_deref(), expected.map(Path::new), "{paths:?}");
            assert_eq!(table.elsewhere(), None, "once");
        }
    }

    #[test]
    fn moves_are_what_changed() {
        use Move::{Mounted, Unmounted};
        type Mounts = &'static [(u32, u32)];
        let cases: &[(Mounts, Mounts, &[Move])] = &[
            (&[], &[], &[]),
            (&[], &[(1, 1)], &[Mounted(publish(1))]),
            (&[(1, 1)], &[(1, 1), (2, 2)], &[Mounted(publish(2))]),
            (&[(1, 1), (2, 2)], &[(2, 2)], &[Unmounted(publish(1))]),
            // A second mount upon the first, and away again.
            (&[(1, 1)], &[(1, 1), (5, 1)], &[]),
            (&[(1, 1), (5, 1)], &[(1, 1)], &[]),
            // Unmounted and mounted again between two looks.
            (&[(1, 1)], &[(7, 1)], &[Unmounted(publish(1)), Mounted(publish(1))]),
            // The same with the same number, and in another line; and other options.
            (&[(1, 1), (2, 2)], &[(2, 2), (1, 1)], &[Unmounted(publish(1)), Mounted(publish(1))]),
            // The number of one that left is given to another.
            (&[(1, 1)], &[(1, 2)], &[Unmounted(publish(1)), Mounted(publish(2))]),
        ];
        for (before, after, expected) in cases {
            let mut table = table(before);
            assert_eq!(table.read(&mut text(after)), *expected, "{before:?} {after:?}");
            assert_eq!(table.read(&mut text(after)), [], "{after:?} again");
        }
    }

    #[test]
    fn lines_after_the_last_reading_are_mounts() {
        let other = b"4 1 0:9 / /run/netns/x rw - nsfs nsfs rw\n";
        let mut table = table(&[(1, 1)]);
        assert_eq!(table.append(b""), []);
        assert_eq!(table.append(&text(&[(2, 2)])), [Move::Mounted(publish(2))]);
        assert_eq!(table.append(other), []);
        assert!(!table.is_incomplete());
        // The next reading of the whole table has them, too.
        assert_eq!(table.read(&mut [&*text(&[(1, 1), (2, 2)]), other].concat()), []);
        assert_eq!(table.read(&mut [&*text(&[(1, 1)]), other].concat()), [Move::Unmounted(publish(2))]);
    }

    #[test]
    fn a_second_mount_at_a_path_is_stacked_or_replaces_the_first() {
        use Move::{Mounted, Unmounted};
        let again = [Unmounted(publish(1)), Mounted(publish(1))];
        type Mounts = &'static [(u32, u32)];
        let cases: &[(Mounts, Mounts, Mounts, &[Move])] = &[
            (&[(1, 1)], &[(2, 1)], &[(1, 1), (2, 1)], &[]),
            (&[(1, 1)], &[(2, 1)], &[(2, 1)], &again),
            // The kernel gives the least unused number.
            (&[(1, 1)], &[(1, 1)], &[(1, 1)], &again),
            (&[(1, 1), (2, 2)], &[(1, 1)], &[(2, 2), (1, 1)], &again),
            // Followed by another one.
            (&[(1, 1)], &[(2, 1), (3, 3)], &[(1, 1), (2, 1), (3, 3)], &[Mounted(publish(3))]),
            (
                &[(1, 1)],
                &[(1, 1), (3, 3)],
                &[(1, 1), (3, 3)],
                &[Unmounted(publish(1)), Mounted(publish(1)), Mounted(publish(3))],
            ),
            // It was unmounted before it was read again.
            (&[(1, 1)], &[(2, 1)], &[(1, 1)], &[]),
            (&[(1, 1)], &[(2, 1)], &[], &[Unmounted(publish(1))]),
        ];
        for (before, appended, after, expected) in cases {
            let mut table = table(before);
            assert_eq!(table.append(&text(appended)), []);
            assert!(table.is_incomplete());
            assert_eq!(table.read(&mut text(after)), *expected, "{before:?} {appended:?} {after:?}");
            assert!(!table.is_incomplete());
            assert_eq!(table.read(&mut text(after)), [], "{after:?} again");
        }
    }

    /// The oracle: the places of a table alone.
    fn places(mounts: &[(u32, u32)]) -> BTreeMap<KubeletPath, BTreeSet<u32>> {
        let mut places: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
        for (id, pod) in mounts {
            places.entry(publish(*pod)).or_default().insert(*id);
        }
        places
    }

    proptest! {
        /// For arbitrary changes, the moves are the difference of the tables, and lead from the paths of one to those of
        /// the other, also if mounts at the end were read before.
        #[test]
        fn moves_lead_from_one_table_to_the_other(
            before in prop::collection::btree_map(0u32..12, 0u32..6, 0..10),
            after in prop::collection::btree_map(0u32..12, 0u32..6, 0..10),
            order in any::<prop::sample::Index>(),
            appended in any::<prop::sample::Index>(),
        ) {
            let mounts = |of: &BTreeMap<u32, u32>| of.iter().map(|(id, pod)| (*id, *pod)).collect::<Vec<_>>();
            let (before, after) = (mounts(&before), mounts(&after));
            // The kernel keeps the order and appends; the numbers of mounts have no order.
            let (mut after, mut new): (Vec<_>, Vec<_>) = after.into_iter().partition(|one| before.contains(one));
            let (common, first) = (after.len(), order.index(new.len() + 1));
            new.rotate_left(first);
            after.append(&mut new);
            let mut table = table(&before);
            let mut seen: BTreeSet<KubeletPath> = table.places().cloned().collect();
            let read_before = after.len() - appended.index(after.len() - common + 1);
            let mut moves = table.append(&text(&after[read_before..]));
            moves.extend(table.read(&mut text(&after)));
            for step in &moves {
                match step {
                    Move::Unmounted(place) => prop_assert!(seen.remove(place)),
                    Move::Mounted(place) => prop_assert!(seen.insert(place.clone())),
                }
            }
            prop_assert_eq!(&seen, &places(&after).into_keys().collect());
            prop_assert_eq!(table.places().cloned().collect::<BTreeSet<_>>(), seen);
            if read_before == after.len() {
                let (old, new) = (places(&before), places(&after));
                let survives = |place: &KubeletPath| match (old.get(place), new.get(place)) {
                    (Some(old), Some(new)) => !old.is_disjoint(new),
                    _ => false,
                };
                let of = |of: &BTreeMap<_, _>| of.keys().filter(|place| !survives(place)).cloned().collect::<Vec<_>>();
                let left = of(&old).into_iter().rev().map(Move::Unmounted);
                let expected: Vec<Move> = left.chain(of(&new).into_iter().map(Move::Mounted)).collect();
                prop_assert_eq!(moves, expected);
            }
            prop_assert_eq!(table.read(&mut text(&after)), []);
        }
    }
}
