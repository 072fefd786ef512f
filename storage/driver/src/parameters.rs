//! Parameters of a StorageClass: strictly parsed, so that a misspelt key is an error.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    access::Access,
    error::{Error, Result},
    fields,
};

/// The content type of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory; fast, requires no privileges except bind mounts, and its size is not enforced.
    Directory,
    /// A sparse file on a loop device, with a file system or raw; its size is enforced.
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
/// Keys with this prefix belong to the sidecars (names of claims, volumes and snapshots, secrets, fsType) and
/// are ignored by the driver.
pub(crate) const PROVISIONER_PREFIX: &str = "csi.storage.k8s.io/";

/// Parsed parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The kind of the volume, if the request sets one.
    pub kind: Option<Kind>,
}

impl Parameters {
    /// The kind of a volume with this access: the requested one, and otherwise a directory unless raw block
    /// access is requested.
    pub fn kind_for(&self, accesses: &[Access]) -> Kind {
        let block = accesses.iter().any(Access::is_block);
        self.kind.unwrap_or(if block { Kind::Image } else { Kind::Directory })
    }

    /// Parses the parameters of a CreateVolume or GetCapacity request.
    pub fn parse(raw: &BTreeMap<String, String>) -> Result<Self> {
        fields::map("parameters", raw)?;
        let mut parsed = Self::default();
        for (key, value) in driver_parameters(raw) {
            if key != KIND {
                let reason = format!("unknown key {:?}; the only key is \"kind\"", fields::clip(key));
                return Err(Error::invalid("parameters", reason));
            }
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == value).ok_or_else(|| {
                let reason = format!("kind {:?} is not one of \"directory\", \"image\"", fields::clip(value));
                Error::invalid("parameters", reason)
            })?;
            parsed.kind = Some(kind);
        }
        Ok(parsed)
    }
}

/// Parameters without those of the sidecars.
pub(crate) fn driver_parameters(raw: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    raw.iter().filter(|(key, _)| !key.starts_with(PROVISIONER_PREFIX))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::access::{Mode, VolumeMode};

    fn parse(pairs: &[(&str, &str)]) -> Result<Parameters> {
        Parameters::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn kinds() {
        assert_eq!(parse(&[]).unwrap().kind_for(&[]), Kind::Directory);
        assert_eq!(parse(&[("kind", "directory")]).unwrap().kind, Some(Kind::Directory));
        let provisioned = [("kind", "image"), ("csi.storage.k8s.io/pvc/name", "data")];
        assert_eq!(parse(&provisioned).unwrap().kind_for(&[]), Kind::Image);
        let block = Access {
            mode: Mode::SingleNodeWriter,
            volume_mode: VolumeMode::Block,
            fs_type: None,
            mount_flags: Vec::new(),
        };
        assert_eq!(parse(&[]).unwrap().kind_for(&[block]), Kind::Image);
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
