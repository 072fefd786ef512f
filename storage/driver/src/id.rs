//! Identifiers of volumes, snapshots and groups.
//!
//! An id is a prefix and 32 hexadecimal digits, computed from the name in the request, so that creating the
//! same name twice finds the existing object without an index. Nothing else parses as an id, so an id may
//! become part of a path.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Hexadecimal digits after the prefix.
const DIGITS: usize = 32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident = $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(String);

        impl $name {
            /// The id for `name`.
            pub fn from_name(name: &str) -> Self {
                Self(digest($prefix, name))
            }

            /// Accepts only results of `from_name`.
            pub fn parse(text: &str) -> Option<Self> {
                is_generated($prefix, text).then(|| Self(text.to_owned()))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// Identity of a volume.
    VolumeId = "vol-"
}

id! {
    /// Identity of a snapshot.
    SnapshotId = "snap-"
}

id! {
    /// Identity of a group snapshot.
    GroupId = "group-"
}

fn digest(prefix: &str, name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let digits = digest.iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}"));
    std::iter::once(prefix.to_owned()).chain(digits).collect()
}

fn is_generated(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_from_names_and_parse_strictly() {
        let id = VolumeId::from_name("pvc-1");
        assert_eq!(id, VolumeId::from_name("pvc-1"));
        assert_ne!(id, VolumeId::from_name("pvc-2"));
        assert_eq!(VolumeId::parse(id.as_str()), Some(id.clone()));
        let upper = id.as_str().to_uppercase();
        for bad in [
            "",
            "vol-",
            "vol-0123",
            &upper,
            &format!("{id}0"),
            &format!("{id}/.."),
            "vol-../../../../../../../../etc/pass",
            SnapshotId::from_name("pvc-1").as_str(),
        ] {
            assert_eq!(VolumeId::parse(bad), None, "{bad}");
        }
    }
}
