//! Parameters of a storage class: strict, so that a misspelt one is an error and not a surprise.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a volume is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory; fast, needs no privileges beyond bind mounts, its size is not enforced.
    #[default]
    Directory,
    /// A sparse file with a file system on a loop device; its size is enforced.
    Image,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Directory, Self::Image];

    /// The value of the parameter `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Image => "image",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The key that chooses the [`Kind`].
pub const KIND: &str = "kind";
/// Keys with this prefix are the external-provisioner's own (claim and volume names, secrets, fsType) and
/// are none of the driver's business.
const PROVISIONER_PREFIX: &str = "csi.storage.k8s.io/";

/// Parsed parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// What the volume is made of.
    pub kind: Kind,
}

impl Parameters {
    /// Parses the parameters of a CreateVolume or GetCapacity request.
    pub fn parse(raw: &BTreeMap<String, String>) -> Result<Self> {
        let mut parsed = Self::default();
        for (key, value) in raw {
            if key.starts_with(PROVISIONER_PREFIX) {
                continue;
            }
            if key != KIND {
                let reason = format!("unknown key {:?}; the only key is \"kind\"", clip(key));
                return Err(Error::invalid("parameters", reason));
            }
            parsed.kind = Kind::ALL.into_iter().find(|kind| kind.name() == value).ok_or_else(|| {
                let reason = format!("kind {:?} is not one of \"directory\", \"image\"", clip(value));
                Error::invalid("parameters", reason)
            })?;
        }
        Ok(parsed)
    }
}

/// The beginning of a text from outside: messages should not grow with what somebody sent.
fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Parameters> {
        Parameters::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn kinds() {
        assert_eq!(parse(&[]).unwrap().kind, Kind::Directory);
        assert_eq!(parse(&[("kind", "directory")]).unwrap().kind, Kind::Directory);
        let provisioned = [("kind", "image"), ("csi.storage.k8s.io/pvc/name", "data")];
        assert_eq!(parse(&provisioned).unwrap().kind, Kind::Image);
    }

    #[test]
    fn strict() {
        for (pair, words) in [
            (("knid", "image"), "unknown key \"knid\""),
            (("kind", "Image"), "\"directory\", \"image\""),
            (("kind", ""), "\"directory\", \"image\""),
        ] {
            let error = parse(&[pair]).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
