//! `node.status.volumesInUse`: a volume in this list must not be detached by the attach/detach controller.
//!
//! A volume may be mounted only once the list contains it, and it may be removed only after the volume's device
//! is unmounted. The stock kubelet writes the list with its node status every 10 s, which causes most of a
//! stock volume's latency; here every change is written at once, and changes during a write are combined into
//! the next one.

use std::collections::BTreeSet;

use crate::volumes::VolumeKey;

/// The desired list, the written list, and the list in flight.
#[derive(Debug, Default)]
pub struct InUse {
    expected: BTreeSet<VolumeKey>,
    written: BTreeSet<String>,
    writing: Option<BTreeSet<String>>,
    /// The last write failed, so `written` is only a lower bound of the status.
    unsure: bool,
}

impl InUse {
    /// Starts from the node's current status.
    pub fn from_status(written: impl IntoIterator<Item = String>) -> Self {
        Self { written: written.into_iter().collect(), ..Self::default() }
    }

    /// Requests that a volume be in the list, or not.
    pub fn want(&mut self, key: &VolumeKey, expected: bool) {
        if expected {
            self.expected.insert(key.clone());
        } else {
            self.expected.remove(key);
        }
    }

    /// Whether the volume is in the written list, and not about to be removed.
    pub fn promised(&self, key: &VolumeKey) -> bool {
        let name = key.to_string();
        self.written.contains(&name) && self.writing.as_ref().is_none_or(|list| list.contains(&name))
    }

    /// The list to write now, if one is due; the caller must report the result with [`ended`](Self::ended).
    pub fn begin(&mut self) -> Option<Vec<String>> {
        if self.writing.is_some() {
            return None;
        }
        let expected: BTreeSet<String> = self.expected.iter().map(VolumeKey::to_string).collect();
        if expected == self.written && !self.unsure {
            return None;
        }
        self.writing = Some(expected.clone());
        Some(expected.into_iter().collect())
    }

    /// The write ended. After a failure either list may be in the status, so only a volume in both counts as
    /// promised.
    pub fn ended(&mut self, success: bool) {
        let Some(list) = self.writing.take() else { return };
        self.unsure = !success;
        if success {
            self.written = list;
        } else {
            self.written.retain(|name| list.contains(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(handle: &str) -> VolumeKey {
        VolumeKey::csi("d", handle)
    }

    #[test]
    fn changes_during_a_write_share_the_next_one() {
        let mut in_use = InUse::default();
        in_use.want(&key("a"), true);
        assert_eq!(in_use.begin(), Some(vec!["kubernetes.io/csi/d^a".to_owned()]));
        in_use.want(&key("b"), true);
        in_use.want(&key("c"), true);
        assert_eq!(in_use.begin(), None);
        assert!(!in_use.promised(&key("a")), "not before the write has ended");
        in_use.ended(true);
        assert!(in_use.promised(&key("a")));
        assert_eq!(in_use.begin().map(|list| list.len()), Some(3));
        in_use.ended(true);
        assert!(in_use.promised(&key("c")));
        assert_eq!(in_use.begin(), None);
    }

    #[test]
    fn a_promise_that_is_being_taken_back_does_not_stand() {
        let mut in_use = InUse::from_status([key("a").to_string()]);
        assert_eq!(in_use.begin(), Some(vec![]));
        in_use.want(&key("a"), true);
        assert!(!in_use.promised(&key("a")));
        in_use.ended(true);
        assert!(!in_use.promised(&key("a")));
        assert_eq!(in_use.begin().map(|list| list.len()), Some(1));
    }

    #[test]
    fn after_a_failed_write_only_what_both_lists_hold_is_promised() {
        let mut in_use = InUse::from_status([key("a").to_string(), key("b").to_string()]);
        in_use.want(&key("a"), true);
        in_use.want(&key("c"), true);
        assert!(in_use.begin().is_some());
        in_use.ended(false);
        assert!(in_use.promised(&key("a")));
        assert!(!in_use.promised(&key("b")));
        assert!(!in_use.promised(&key("c")));
        in_use.want(&key("c"), false);
        assert_eq!(in_use.begin().map(|list| list.len()), Some(1), "written again: b may still be there");
        in_use.ended(true);
        assert_eq!(in_use.begin(), None);
    }
}
