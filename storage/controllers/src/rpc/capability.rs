//! Kubernetes access modes, volume mode, file system and mount options as a CSI `VolumeCapability`.
//!
//! Upstream: `accessmodes/access_modes.go` of kubernetes-csi/csi-lib-utils (KEP-2485 for
//! ReadWriteOncePod).

use claimcheck_csi::v1::{
    VolumeCapability,
    volume_capability::{
        AccessMode, AccessType, BlockVolume, MountVolume,
        access_mode::Mode::{self, *},
    },
};

/// Access modes without a CSI equivalent, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessModeError {
    /// ReadWriteOncePod must be the only mode.
    #[error(
        "Kubernetes does not support use of ReadWriteOncePod with other access modes on the same \
         PersistentVolume"
    )]
    OncePodCombined,
    /// CSI has no mode for one writer together with many readers.
    #[error("CSI does not support ReadOnlyMany and ReadWriteOnce on the same PersistentVolume")]
    OnceAndReadOnlyMany,
    /// None, or unknown ones.
    #[error("unsupported AccessMode combination: [{0}]")]
    Unsupported(String),
}

/// The CSI access mode that is equivalent to these Kubernetes access modes. `single_node_multi_writer`: the
/// driver has that controller capability, and so distinguishes "one node" from "one pod".
pub fn access_mode(modes: &[String], single_node_multi_writer: bool) -> Result<Mode, AccessModeError> {
    let has = |mode: &str| modes.iter().any(|m| m == mode);
    if has("ReadWriteOncePod") {
        return if modes.iter().all(|mode| mode == "ReadWriteOncePod") {
            Ok(if single_node_multi_writer { SingleNodeSingleWriter } else { SingleNodeWriter })
        } else {
            Err(AccessModeError::OncePodCombined)
        };
    }
    match (has("ReadWriteMany"), has("ReadOnlyMany"), has("ReadWriteOnce")) {
        (true, _, _) => Ok(MultiNodeMultiWriter),
        (false, true, true) => Err(AccessModeError::OnceAndReadOnlyMany),
        (false, true, false) => Ok(MultiNodeReaderOnly),
        (false, false, true) => {
            Ok(if single_node_multi_writer { SingleNodeMultiWriter } else { SingleNodeWriter })
        }
        (false, false, false) => Err(AccessModeError::Unsupported(modes.join(" "))),
    }
}

/// A capability for `mode`: a block device, or a mount with `fs_type` (empty leaves it to the driver) and
/// mount options.
pub fn volume_capability(
    mode: Mode,
    block: bool,
    fs_type: &str,
    mount_options: &[String],
) -> VolumeCapability {
    let access_type = if block {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: mount_options.to_vec(),
            ..MountVolume::default()
        })
    };
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access_type) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_of_both_kinds_of_driver() {
        for (modes, plain, multi_writer) in [
            (&["ReadWriteOnce"][..], Ok(SingleNodeWriter), Ok(SingleNodeMultiWriter)),
            (&["ReadWriteOncePod"], Ok(SingleNodeWriter), Ok(SingleNodeSingleWriter)),
            (&["ReadOnlyMany"], Ok(MultiNodeReaderOnly), Ok(MultiNodeReaderOnly)),
            (&["ReadWriteMany"], Ok(MultiNodeMultiWriter), Ok(MultiNodeMultiWriter)),
            (&["ReadWriteOnce", "ReadWriteMany"], Ok(MultiNodeMultiWriter), Ok(MultiNodeMultiWriter)),
            (
                &["ReadWriteOnce", "ReadOnlyMany"],
                Err(AccessModeError::OnceAndReadOnlyMany),
                Err(AccessModeError::OnceAndReadOnlyMany),
            ),
            (
                &["ReadWriteOncePod", "ReadWriteOnce"],
                Err(AccessModeError::OncePodCombined),
                Err(AccessModeError::OncePodCombined),
            ),
            (
                &[],
                Err(AccessModeError::Unsupported(String::new())),
                Err(AccessModeError::Unsupported(String::new())),
            ),
        ] {
            let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
            assert_eq!(access_mode(&modes, false), plain, "{modes:?}");
            assert_eq!(access_mode(&modes, true), multi_writer, "{modes:?}");
        }
    }
}
