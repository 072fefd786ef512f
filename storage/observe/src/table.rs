//! The relevant part of a mount table, and the difference between two of them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use claimcheck_model::KubeletPath;

use crate::mountinfo::Mounts;

/// The CSI volumes that are mounted below a kubelet's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The numbers of the mounts at each path: several may be stacked.
    at: BTreeMap<KubeletPath, BTreeSet<u32>>,
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
    /// Parses the table from the text of `mountinfo`.
    pub fn read(mountinfo: &[u8], kubelet_dir: &Path) -> Self {
        let mut table = Self::default();
        for mount in Mounts::of(mountinfo) {
            if let Some(place) = mount.path.strip_prefix(kubelet_dir).ok().and_then(KubeletPath::of) {
                table.at.entry(place).or_default().insert(mount.id);
            }
        }
        table
    }

    /// The directory of another kubelet: the first with mounts of pods, if `kubelet_dir` has none.
    ///
    /// Every pod with a token has such a mount, so its absence is unlikely on a node, but certain for a wrong
    /// directory.
    pub fn elsewhere(mountinfo: &[u8], kubelet_dir: &Path) -> Option<PathBuf> {
        let mut other = None;
        for mount in Mounts::of(mountinfo) {
            // As in /var/lib/k0s/kubelet/pods/UID/volumes.
            let mut above = mount.path.ancestors().skip(1);
            let Some(of_pods) = above.find(|path| path.ends_with("kubelet/pods")) else { continue };
            let Some(directory) = of_pods.parent() else { continue };
            if directory == kubelet_dir {
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

    /// The changes between this table and a later one, in the order in which a kubelet makes them: unmounts
    /// first, pods' before their node's. A path with mounts in both tables but none in common was unmounted and
    /// mounted again in between.
    pub fn moves_to(&self, later: &Self) -> Vec<Move> {
        let survives = |place: &KubeletPath| match (self.at.get(place), later.at.get(place)) {
            (Some(mine), Some(later_ids)) => !mine.is_disjoint(later_ids),
            _ => false,
        };
        let of = |table: &Self| table.places().filter(|place| !survives(place)).cloned().collect::<Vec<_>>();
        let left = of(self).into_iter().rev().map(Move::Unmounted);
        left.chain(of(later).into_iter().map(Move::Mounted)).collect()
    }
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

    fn table(mounts: &[(u32, u32)]) -> Table {
        Table::read(&text(mounts), Path::new("/var/lib/kubelet"))
    }

    #[test]
    fn only_mounts_below_the_kubelets_directory_are_reported() {
        let other = Table::read(&text(&[(1, 1)]), Path::new("/var/lib/kub"));
        assert_eq!(other.places().count(), 0);
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
            let found = Table::elsewhere(&text(paths), Path::new("/var/lib/kubelet"));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{paths:?}");
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
            // The number of one that left is given to another.
            (&[(1, 1)], &[(1, 2)], &[Unmounted(publish(1)), Mounted(publish(2))]),
        ];
        for (before, after, wanted) in cases {
            assert_eq!(table(before).moves_to(&table(after)), *wanted, "{before:?} {after:?}");
        }
    }

    proptest! {
        /// For arbitrary changes, the moves lead from the paths of one table to those of the other.
        #[test]
        fn moves_lead_from_one_table_to_the_other(
            before in prop::collection::btree_map(0u32..12, 0u32..6, 0..10),
            after in prop::collection::btree_map(0u32..12, 0u32..6, 0..10),
        ) {
            let mounts = |of: &BTreeMap<u32, u32>| of.iter().map(|(id, pod)| (*id, *pod)).collect::<Vec<_>>();
            let (before, after) = (table(&mounts(&before)), table(&mounts(&after)));
            let mut places: BTreeSet<KubeletPath> = before.places().cloned().collect();
            for step in before.moves_to(&after) {
                match step {
                    Move::Unmounted(place) => prop_assert!(places.remove(&place)),
                    Move::Mounted(place) => prop_assert!(places.insert(place)),
                }
            }
            prop_assert_eq!(places, after.places().cloned().collect::<BTreeSet<_>>());
            prop_assert_eq!(after.moves_to(&after), []);
        }
    }
}
