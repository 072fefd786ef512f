//! Mount options as Kubernetes passes them (`mountOptions` of a class or volume), sorted by where they apply.
//!
//! A bind mount supports only the flags of a mount point (read-only, `noexec`, ..); all other options belong to
//! the file system and are fixed when that is first mounted. Sorting them early lets a directory volume reject
//! unsupported options instead of dropping them silently.

use rustix::mount::MountFlags;
use thiserror::Error;

/// Why an option was rejected.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// The option would change the kind of mount.
    #[error("mount option {0:?} is not allowed: the driver decides how volumes are mounted")]
    NotAllowed(String),
    /// The option has invalid characters.
    #[error("mount option {0:?} is malformed: only printable characters without spaces are allowed")]
    Malformed(String),
}

/// Options by where they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Flags of a single mount point: `ro`, `nosuid`, `nodev`, `noexec`, `noatime`, `nodiratime`, `relatime`.
    pub point: Vec<PointFlag>,
    /// All other options, for the file system itself, as given.
    pub filesystem: Vec<String>,
}

/// A flag that can differ between two mount points of one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointFlag {
    /// `ro`
    ReadOnly,
    /// `nosuid`
    NoSuid,
    /// `nodev`
    NoDev,
    /// `noexec`
    NoExec,
    /// `noatime`
    NoAtime,
    /// `nodiratime`
    NoDirAtime,
    /// `relatime`
    RelAtime,
    /// `strictatime`
    StrictAtime,
}

impl PointFlag {
    fn parse(option: &str) -> Option<Self> {
        Some(match option {
            "ro" => Self::ReadOnly,
            "nosuid" => Self::NoSuid,
            "nodev" => Self::NoDev,
            "noexec" => Self::NoExec,
            "noatime" => Self::NoAtime,
            "nodiratime" => Self::NoDirAtime,
            "relatime" => Self::RelAtime,
            "strictatime" => Self::StrictAtime,
            _ => return None,
        })
    }

    fn bits(self) -> MountFlags {
        match self {
            Self::ReadOnly => MountFlags::RDONLY,
            Self::NoSuid => MountFlags::NOSUID,
            Self::NoDev => MountFlags::NODEV,
            Self::NoExec => MountFlags::NOEXEC,
            Self::NoAtime => MountFlags::NOATIME,
            Self::NoDirAtime => MountFlags::NODIRATIME,
            Self::RelAtime => MountFlags::RELATIME,
            Self::StrictAtime => MountFlags::STRICTATIME,
        }
    }
}

/// Options that are the default.
const DEFAULTS: [&str; 7] = ["", "defaults", "rw", "suid", "dev", "exec", "atime"];
/// Options that change the kind of mount, or hide it from the driver.
const REFUSED: [&str; 14] = [
    "bind",
    "rbind",
    "move",
    "remount",
    "loop",
    "shared",
    "rshared",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
    "_netdev",
];

impl MountOptions {
    /// Sorts options; each may itself be a comma-separated list.
    pub fn parse<'a>(options: impl IntoIterator<Item = &'a str>) -> Result<Self, OptionError> {
        let mut parsed = Self::default();
        for option in options.into_iter().flat_map(|list| list.split(',')) {
            if option.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(OptionError::Malformed(option.to_owned()));
            }
            let key = option.split('=').next().unwrap_or(option);
            if REFUSED.contains(&key) {
                return Err(OptionError::NotAllowed(option.to_owned()));
            }
            if DEFAULTS.contains(&option) {
                continue;
            }
            match PointFlag::parse(option) {
                Some(flag) => parsed.add(flag),
                None => parsed.filesystem.push(option.to_owned()),
            }
        }
        Ok(parsed)
    }

    /// The same options, with `ro` if `read_only`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        if read_only {
            self.add(PointFlag::ReadOnly);
        }
        self
    }

    /// Whether the mount is read-only.
    pub fn is_read_only(&self) -> bool {
        self.point.contains(&PointFlag::ReadOnly)
    }

    /// The flags of the mount point in the kernel's format.
    pub fn flags(&self) -> MountFlags {
        self.point.iter().fold(MountFlags::empty(), |flags, flag| flags | flag.bits())
    }

    /// The file system's own options in the kernel's format.
    pub fn data(&self) -> String {
        self.filesystem.join(",")
    }

    fn add(&mut self, flag: PointFlag) {
        if !self.point.contains(&flag) {
            self.point.push(flag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_options_by_where_they_act() {
        let options = MountOptions::parse(["noatime,debug", "rw", "ro", "data=ordered", "ro"]).unwrap();
        assert_eq!(options.point, [PointFlag::NoAtime, PointFlag::ReadOnly]);
        assert_eq!(options.data(), "debug,data=ordered");
        assert_eq!(options.flags(), MountFlags::NOATIME | MountFlags::RDONLY);
        assert!(options.is_read_only());
        assert!(!MountOptions::default().is_read_only());
        assert!(MountOptions::default().read_only(true).is_read_only());
    }

    #[test]
    fn refuses_what_changes_the_kind_of_mount() {
        for option in ["bind", "remount", "loop=/dev/loop7", "rshared", "noatime,move"] {
            assert!(matches!(MountOptions::parse([option]), Err(OptionError::NotAllowed(_))), "{option}");
        }
        for option in ["a b", "x\n", "\0"] {
            assert!(matches!(MountOptions::parse([option]), Err(OptionError::Malformed(_))), "{option:?}");
        }
    }
}
