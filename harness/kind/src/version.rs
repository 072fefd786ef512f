//! Versions: of `kind`, and of the Kubernetes in a node image.

use std::{fmt, str::FromStr};

/// The oldest supported `kind`: 0.20 starts Kubernetes 1.27 by default, in which controllers have other names.
pub const OLDEST_KIND: Version = Version { major: 0, minor: 21, patch: 0 };

/// The oldest Kubernetes in which controllers can be replaced: 1.28 introduced their current names
/// (`cmd/kube-controller-manager/names/controller_names.go`).
pub const OLDEST_KUBERNETES: Version = Version { major: 1, minor: 28, patch: 0 };

/// The first Kubernetes with a controller that protects VolumeAttributesClasses: an older controller manager does
/// not start if it is disabled by name.
pub(super) const CLASS_PROTECTION: Version = Version { major: 1, minor: 32, patch: 0 };

/// The first `kind` with a default node image that has [`CLASS_PROTECTION`].
const KIND_WITH_CLASS_PROTECTION: Version = Version { major: 0, minor: 26, patch: 0 };

/// A version, without the suffix after its three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

/// Not of the form `1.2.3`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version: expected one such as v1.36.0")]
pub struct InvalidVersion(String);

impl FromStr for Version {
    type Err = InvalidVersion;

    /// Accepts a leading `v`, and any suffix after `-` or `+`.
    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let none = || InvalidVersion(text.to_owned());
        let core = text.trim().trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
        let numbers: Vec<u32> =
            core.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| none())?;
        match numbers[..] {
            [major, minor, patch] => Ok(Self { major, minor, patch }),
            _ => Err(none()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The Kubernetes version in a node image, from its tag: `kindest/node:v1.36.0@sha256:...`.
pub fn from_node_image(image: &str) -> Option<Version> {
    let name = image.split('@').next().unwrap_or_default();
    // A colon before the last slash belongs to a registry's port.
    let (_, tag) = name.rsplit('/').next()?.split_once(':')?;
    tag.parse().ok()
}

/// A Kubernetes version not newer than the default of this `kind`.
pub(super) fn default_kubernetes(kind: Version) -> Version {
    if kind < KIND_WITH_CLASS_PROTECTION { OLDEST_KUBERNETES } else { CLASS_PROTECTION }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let version = |text: &str| text.parse::<Version>();
        assert_eq!(version("v1.37.0-rc.1").unwrap(), Version { major: 1, minor: 37, patch: 0 });
        assert_eq!(version("0.33.0\n").unwrap().to_string(), "0.33.0");
        assert!(version("0.9.9").unwrap() < version("0.20.0").unwrap());
        assert_eq!(
            version("kind").unwrap_err().to_string(),
            "\"kind\" is not a version: expected one such as v1.36.0"
        );
    }

    #[test]
    fn the_version_of_an_image_is_its_tag() {
        let table = [
            ("kindest/node:v1.36.0@sha256:aabb", Some("1.36.0")),
            ("localhost:5000/node:v1.31.2", Some("1.31.2")),
            ("localhost:5000/node", None),
            ("kindest/node:latest", None),
            ("kindest/node@sha256:aabb", None),
        ];
        for (image, expected) in table {
            assert_eq!(
                from_node_image(image).map(|version| version.to_string()).as_deref(),
                expected,
                "{image}"
            );
        }
    }
}
