//! Access to volumes: volume capabilities parsed into internal types, and which accesses exclude each other.

use claimcheck_csi::v1::{VolumeCapability, volume_capability::AccessType, volume_capability::access_mode};
use serde::{Deserialize, Serialize};

use crate::{
    capability::{Capabilities, Capability},
    error::{Error, Result},
    fields,
    filesystem::FsType,
    mount_options::MountOptions,
    parameters::Kind,
    volume::NodeId,
};

/// An access mode of the CSI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One node, read and write.
    SingleNodeWriter,
    /// One node, only reading.
    SingleNodeReaderOnly,
    /// One target on one node, read and write (Kubernetes: ReadWriteOncePod).
    SingleNodeSingleWriter,
    /// Several targets on one node, read and write (Kubernetes: ReadWriteOnce).
    SingleNodeMultiWriter,
    /// Many nodes, read-only.
    MultiNodeReaderOnly,
    /// Many nodes, one writer.
    MultiNodeSingleWriter,
    /// Many nodes, many writers.
    MultiNodeMultiWriter,
}

impl Mode {
    fn parse(mode: access_mode::Mode) -> Option<Self> {
        Some(match mode {
            access_mode::Mode::Unknown => return None,
            access_mode::Mode::SingleNodeWriter => Self::SingleNodeWriter,
            access_mode::Mode::SingleNodeReaderOnly => Self::SingleNodeReaderOnly,
            access_mode::Mode::SingleNodeSingleWriter => Self::SingleNodeSingleWriter,
            access_mode::Mode::SingleNodeMultiWriter => Self::SingleNodeMultiWriter,
            access_mode::Mode::MultiNodeReaderOnly => Self::MultiNodeReaderOnly,
            access_mode::Mode::MultiNodeSingleWriter => Self::MultiNodeSingleWriter,
            access_mode::Mode::MultiNodeMultiWriter => Self::MultiNodeMultiWriter,
        })
    }

    /// Whether only one node may use the volume at a time.
    pub fn single_node(self) -> bool {
        match self {
            Self::SingleNodeWriter
            | Self::SingleNodeReaderOnly
            | Self::SingleNodeSingleWriter
            | Self::SingleNodeMultiWriter => true,
            Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter => false,
        }
    }

    /// Whether the mode excludes writers.
    pub fn read_only(self) -> bool {
        match self {
            Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly => true,
            Self::SingleNodeWriter
            | Self::SingleNodeSingleWriter
            | Self::SingleNodeMultiWriter
            | Self::MultiNodeSingleWriter
            | Self::MultiNodeMultiWriter => false,
        }
    }

    /// Whether volumes of `kind` support this mode. The file system in an image belongs to one kernel mount:
    /// two nodes writing to it would destroy it. A directory is safe, and so is a raw device, where
    /// coordination is up to the workloads.
    fn suits(self, kind: Kind, volume_mode: VolumeMode) -> bool {
        match (kind, volume_mode) {
            (Kind::Directory, _) | (Kind::Image, VolumeMode::Block) => true,
            (Kind::Image, VolumeMode::Filesystem) => self.single_node() || self.read_only(),
        }
    }
}

/// The form in which a pod sees a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeMode {
    /// A directory.
    #[default]
    Filesystem,
    /// A raw block device.
    Block,
}

impl VolumeMode {
    fn is_filesystem(&self) -> bool {
        *self == Self::Filesystem
    }
}

/// A parsed volume capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Which nodes may read and write.
    pub mode: Mode,
    /// Directory or device.
    #[serde(default, skip_serializing_if = "VolumeMode::is_filesystem")]
    pub volume_mode: VolumeMode,
    /// The requested file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<FsType>,
    /// Mount options as given in the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_flags: Vec<String>,
}

impl Access {
    /// Parses a required capability.
    pub fn required(capability: Option<VolumeCapability>) -> Result<Self> {
        Self::parse(&capability.ok_or(Error::Missing("volume_capability"))?)
    }

    /// Parses one capability.
    pub fn parse(capability: &VolumeCapability) -> Result<Self> {
        let access_type =
            capability.access_type.as_ref().ok_or(Error::Missing("volume_capability.access_type"))?;
        let mode = capability.access_mode.as_ref().ok_or(Error::Missing("volume_capability.access_mode"))?;
        let mode = access_mode::Mode::try_from(mode.mode).ok().and_then(Mode::parse).ok_or_else(|| {
            Error::invalid("volume_capability.access_mode", format!("mode {} is unknown", mode.mode))
        })?;
        let mount = match access_type {
            AccessType::Mount(mount) => mount,
            AccessType::Block(_) => {
                let volume_mode = VolumeMode::Block;
                return Ok(Self { mode, volume_mode, fs_type: None, mount_flags: Vec::new() });
            }
        };
        fields::short("volume_capability.mount.fs_type", &mount.fs_type)?;
        let fs_type = match mount.fs_type.as_str() {
            "" => None,
            name => Some(name.parse().map_err(|()| {
                let allowed = FsType::ALL.map(FsType::name).join(", ");
                let reason = format!("{name:?} is not one of {allowed}");
                Error::invalid("volume_capability.mount.fs_type", reason)
            })?),
        };
        if !mount.volume_mount_group.is_empty() {
            let reason = "is not supported; the driver does not declare VOLUME_MOUNT_GROUP";
            return Err(Error::invalid("volume_capability.mount.volume_mount_group", reason));
        }
        fields::list("volume_capability.mount.mount_flags", &mount.mount_flags)?;
        MountOptions::parse(mount.mount_flags.iter().map(String::as_str))?;
        let volume_mode = VolumeMode::Filesystem;
        Ok(Self { mode, volume_mode, fs_type, mount_flags: mount.mount_flags.clone() })
    }

    /// Parses a list that must not be empty.
    pub fn parse_all(capabilities: &[VolumeCapability]) -> Result<Vec<Self>> {
        if capabilities.is_empty() {
            return Err(Error::Missing("volume_capabilities"));
        }
        capabilities.iter().map(Self::parse).collect()
    }

    /// Whether a driver with these capabilities supports this access to volumes of `kind`.
    pub fn check(&self, kind: Kind, capabilities: &Capabilities) -> Result<()> {
        if let Some(missing) = self.needs().find(|needed| !capabilities.has(*needed)) {
            let reason = format!("{:?} requires {missing}, which the driver does not declare", self.mode);
            return Err(Error::invalid("volume_capability", reason));
        }
        if kind == Kind::Directory && self.is_block() {
            let reason =
                "a raw block volume must be of kind \"image\", and this one is of kind \"directory\"";
            return Err(Error::invalid("volume_capability.block", reason));
        }
        if !self.mode.suits(kind, self.volume_mode) {
            let reason = format!("{:?} is not supported for volumes of kind \"{kind}\"", self.mode);
            return Err(Error::invalid("volume_capability.access_mode", reason));
        }
        match (kind, self.options()?.filesystem.first()) {
            (Kind::Directory, Some(option)) => {
                let reason = format!(
                    "option {option:?} belongs to a file system; kind \"{kind}\" has none of its own"
                );
                Err(Error::invalid("volume_capability.mount.mount_flags", reason))
            }
            (Kind::Directory | Kind::Image, _) => Ok(()),
        }
    }

    /// The capability that this mode requires of the driver.
    fn needs(&self) -> impl Iterator<Item = Capability> {
        let mode = match self.mode {
            Mode::SingleNodeWriter | Mode::SingleNodeReaderOnly => None,
            Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter => {
                Some(Capability::SingleNodeMultiWriter)
            }
            Mode::MultiNodeReaderOnly => Some(Capability::MultiNodeReaderOnly),
            Mode::MultiNodeSingleWriter => Some(Capability::MultiNodeSingleWriter),
            Mode::MultiNodeMultiWriter => Some(Capability::MultiNodeMultiWriter),
        };
        mode.into_iter().chain(self.is_block().then_some(Capability::RawBlock))
    }

    /// Whether this is raw block access.
    pub fn is_block(&self) -> bool {
        self.volume_mode == VolumeMode::Block
    }

    /// The mount options, with `ro` where the mode is read-only.
    pub fn options(&self) -> Result<MountOptions> {
        let options = MountOptions::parse(self.mount_flags.iter().map(String::as_str))?;
        Ok(options.read_only(self.mode.read_only()))
    }

    /// Whether a node may use the volume with this access while others use it as in `elsewhere` (node, mode,
    /// read-only). CSI specification, ControllerPublishVolume: a single-node volume on a second node is a
    /// failed precondition.
    pub fn join<'a>(
        &self,
        read_only: bool,
        elsewhere: impl IntoIterator<Item = (&'a NodeId, Mode, bool)>,
    ) -> Result<()> {
        for (node, mode, existing_read_only) in elsewhere {
            let two_writers = self.mode == Mode::MultiNodeSingleWriter
                && mode == Mode::MultiNodeSingleWriter
                && !(read_only || existing_read_only);
            if self.mode.single_node() || mode.single_node() || two_writers {
                let asked = self.mode;
                return Err(Error::Precondition(format!(
                    "the volume is on node {node} as {mode:?} and cannot be on another one as {asked:?} too; \
                     detach it there first"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::v1::volume_capability::{AccessMode, BlockVolume, MountVolume};
    use tonic::Code;

    use super::*;

    fn capability(mode: access_mode::Mode, fs_type: &str, flags: &[&str]) -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(AccessType::Mount(MountVolume {
                fs_type: fs_type.into(),
                mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
                ..Default::default()
            })),
        }
    }

    fn access(mode: Mode) -> Access {
        Access { mode, volume_mode: VolumeMode::Filesystem, fs_type: None, mount_flags: Vec::new() }
    }

    #[test]
    fn parses() {
        let parsed =
            Access::parse(&capability(access_mode::Mode::SingleNodeWriter, "xfs", &["noatime"])).unwrap();
        assert_eq!(parsed.mode, Mode::SingleNodeWriter);
        assert_eq!(parsed.fs_type, Some(FsType::Xfs));
        assert!(!parsed.options().unwrap().is_read_only());
        let reader = Access::parse(&capability(access_mode::Mode::MultiNodeReaderOnly, "", &[])).unwrap();
        assert!(reader.options().unwrap().is_read_only());
        let mut block = capability(access_mode::Mode::SingleNodeWriter, "", &[]);
        block.access_type = Some(AccessType::Block(BlockVolume {}));
        assert!(Access::parse(&block).unwrap().is_block());
    }

    #[test]
    fn refuses_naming_the_field() {
        let mut no_type = capability(access_mode::Mode::SingleNodeWriter, "", &[]);
        no_type.access_type = None;
        let mut no_mode = capability(access_mode::Mode::SingleNodeWriter, "", &[]);
        no_mode.access_mode = None;
        let cases = [
            (no_type, "volume_capability.access_type is missing"),
            (no_mode, "volume_capability.access_mode is missing"),
            (capability(access_mode::Mode::Unknown, "", &[]), "mode 0 is unknown"),
            (capability(access_mode::Mode::SingleNodeWriter, "ntfs", &[]), "ext4, ext3, xfs"),
            (capability(access_mode::Mode::SingleNodeWriter, "", &["bind"]), "mount_flags"),
        ];
        for (capability, words) in cases {
            let error = Access::parse(&capability).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn kinds_admit_what_they_can_honour() {
        let all = Capabilities::default();
        access(Mode::MultiNodeMultiWriter).check(Kind::Directory, &all).unwrap();
        access(Mode::MultiNodeReaderOnly).check(Kind::Image, &all).unwrap();
        access(Mode::SingleNodeSingleWriter).check(Kind::Image, &all).unwrap();
        for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter] {
            assert_eq!(access(mode).check(Kind::Image, &all).unwrap_err().code(), Code::InvalidArgument);
        }
        let block = |mode| Access { volume_mode: VolumeMode::Block, ..access(mode) };
        block(Mode::MultiNodeMultiWriter).check(Kind::Image, &all).unwrap();
        let refused = block(Mode::SingleNodeWriter).check(Kind::Directory, &all).unwrap_err();
        assert!(refused.to_string().contains("kind \"image\""), "{refused}");
        let debug = Access { mount_flags: vec!["debug".into()], ..access(Mode::SingleNodeWriter) };
        debug.check(Kind::Image, &all).unwrap();
        assert!(debug.check(Kind::Directory, &all).unwrap_err().to_string().contains("debug"));
    }

    #[test]
    fn lesser_drivers_admit_less() {
        let lesser = |capability| Capabilities::without([capability]);
        let table = [
            (Mode::SingleNodeSingleWriter, Capability::SingleNodeMultiWriter),
            (Mode::SingleNodeMultiWriter, Capability::SingleNodeMultiWriter),
            (Mode::MultiNodeReaderOnly, Capability::MultiNodeReaderOnly),
            (Mode::MultiNodeSingleWriter, Capability::MultiNodeSingleWriter),
            (Mode::MultiNodeMultiWriter, Capability::MultiNodeMultiWriter),
        ];
        for (mode, needed) in table {
            let error = access(mode).check(Kind::Directory, &lesser(needed)).unwrap_err();
            assert!(error.to_string().contains(needed.name()), "{error}");
            access(Mode::SingleNodeWriter).check(Kind::Directory, &lesser(needed)).unwrap();
        }
        let block = Access { volume_mode: VolumeMode::Block, ..access(Mode::SingleNodeWriter) };
        block.check(Kind::Image, &lesser(Capability::RawBlock)).unwrap_err();
    }

    #[test]
    fn who_may_join_whom() {
        use Mode::{MultiNodeMultiWriter, MultiNodeReaderOnly, MultiNodeSingleWriter, SingleNodeWriter};
        let other = NodeId::parse("other").unwrap();
        // (requested, its read-only, present, its read-only, admitted)
        let table = [
            (SingleNodeWriter, false, SingleNodeWriter, false, false),
            (SingleNodeWriter, true, SingleNodeWriter, true, false),
            (MultiNodeReaderOnly, false, SingleNodeWriter, false, false),
            (SingleNodeWriter, false, MultiNodeReaderOnly, false, false),
            (MultiNodeReaderOnly, false, MultiNodeReaderOnly, false, true),
            (MultiNodeMultiWriter, false, MultiNodeMultiWriter, false, true),
            (MultiNodeSingleWriter, false, MultiNodeSingleWriter, false, false),
            (MultiNodeSingleWriter, true, MultiNodeSingleWriter, false, true),
            (MultiNodeSingleWriter, false, MultiNodeSingleWriter, true, true),
        ];
        for (mine, read_only, existing, existing_read_only, admitted) in table {
            let answer = access(mine).join(read_only, [(&other, existing, existing_read_only)]);
            assert_eq!(
                answer.is_ok(),
                admitted,
                "{mine:?} {read_only} next to {existing:?} {existing_read_only}"
            );
            if let Err(error) = answer {
                assert_eq!(error.code(), Code::FailedPrecondition);
            }
        }
        access(SingleNodeWriter).join(false, []).unwrap();
    }
}
