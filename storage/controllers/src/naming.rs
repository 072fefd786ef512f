//! Names in the driver that are derived from the uid of an object: those of volumes, snapshots and groups of snapshots.

use std::{num::ParseIntError, str::FromStr};

/// How a name is derived from a uid: `--volume-name-prefix` and `--volume-name-uuid-length`, and those of snapshots.
///
/// Upstream: `makeVolumeName` in external-provisioner `pkg/controller/controller.go`, `makeSnapshotName` in
/// external-snapshotter `pkg/sidecar-controller/csi_handler.go`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Before the uid and a dash; not empty.
    pub prefix: String,
    /// The part of the uid.
    pub uid: UidPart,
}

/// The part of a uid in a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UidPart {
    /// All of it, with its dashes.
    #[default]
    Whole,
    /// This number of its digits, without dashes.
    Digits(usize),
}

/// A length of the uid that upstream's sidecars do not accept, or that makes all names equal.
#[derive(Debug, thiserror::Error)]
#[error("write a number of digits from 1 to 32, or -1 for the whole UUID with its dashes")]
pub struct BadLength(#[source] Option<ParseIntError>);

impl FromStr for UidPart {
    type Err = BadLength;

    fn from_str(text: &str) -> Result<Self, BadLength> {
        if text == "-1" {
            return Ok(Self::Whole);
        }
        match text.parse::<usize>() {
            Ok(length @ 1..=32) => Ok(Self::Digits(length)),
            Ok(_) => Err(BadLength(None)),
            Err(error) => Err(BadLength(Some(error))),
        }
    }
}

impl Default for Naming {
    fn default() -> Self {
        Self::volumes()
    }
}

impl Naming {
    /// The names of volumes by default.
    pub fn volumes() -> Self {
        Self { prefix: "pvc".to_owned(), uid: UidPart::Whole }
    }

    /// The names of snapshots by default.
    pub fn snapshots() -> Self {
        Self { prefix: "snapshot".to_owned(), uid: UidPart::Whole }
    }

    /// The names of groups of snapshots by default.
    pub fn group_snapshots() -> Self {
        Self { prefix: "groupsnapshot".to_owned(), uid: UidPart::Whole }
    }

    /// The name for the object with this uid.
    pub fn name(&self, uid: &str) -> String {
        let prefix = &self.prefix;
        match self.uid {
            UidPart::Whole => format!("{prefix}-{uid}"),
            UidPart::Digits(length) => {
                let digits: String = uid.chars().filter(|c| *c != '-').take(length).collect();
                format!("{prefix}-{digits}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_upstream() {
        let uid = "1234abcd-0000-4000-8000-00000000beef";
        let named = |length: &str| Naming { uid: length.parse().unwrap(), ..Naming::volumes() }.name(uid);
        assert_eq!(named("-1"), format!("pvc-{uid}"));
        assert_eq!(named("10"), "pvc-1234abcd00");
        assert_eq!(named("32"), "pvc-1234abcd00004000800000000000beef");
        assert_eq!(Naming::snapshots().name(uid), format!("snapshot-{uid}"));
        assert_eq!(Naming::group_snapshots().name(uid), format!("groupsnapshot-{uid}"));
    }

    #[test]
    fn a_length_that_names_nothing_is_rejected() {
        for text in ["0", "-2", "33", "", "ten", "1.5"] {
            let error = text.parse::<UidPart>().expect_err(text).to_string();
            assert!(error.contains("from 1 to 32"), "{text}: {error}");
        }
    }
}
