//! The file systems that image volumes may carry: names, tools, sizes, and how to tell one from its bytes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// How many bytes from the start of an image [`FsType::detect`] wants to see.
pub const PROBE_LEN: usize = 2048;

/// Offset of the ext2/3/4 superblock; the fields below are relative to it (Documentation/filesystems/ext4).
const EXT_SUPERBLOCK: usize = 1024;
const EXT_MAGIC: usize = EXT_SUPERBLOCK + 56;
const EXT_INCOMPAT: usize = EXT_SUPERBLOCK + 96;
/// `EXT4_FEATURE_INCOMPAT_EXTENTS`: ext3 never has it, ext4 as made by mkfs always does.
const EXT_INCOMPAT_EXTENTS: u32 = 0x40;

/// A file system that an image volume can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsType {
    /// ext3, served by the kernel's ext4 driver.
    Ext3,
    /// ext4, the default.
    Ext4,
    /// XFS.
    Xfs,
}

impl FsType {
    /// Every supported file system, in the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Ext3, Self::Xfs];

    /// The name that the kernel and Kubernetes use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The program that makes it.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Ext3 => "mkfs.ext3",
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
        }
    }

    /// The Debian package with [`FsType::tool`].
    pub fn package(self) -> &'static str {
        match self {
            Self::Ext3 | Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
        }
    }

    /// The smallest image in bytes that [`FsType::tool`] accepts and that leaves room for data.
    pub fn min_bytes(self) -> u64 {
        match self {
            Self::Ext3 | Self::Ext4 => 8 << 20,
            Self::Xfs => 300 << 20,
        }
    }

    /// Options for [`FsType::tool`], chosen for speed on a sparse file.
    ///
    /// ext: nothing is zeroed or discarded that a fresh sparse file has as zeros anyway, and no blocks are
    /// reserved for root. Without `resize_inode` a 10 GiB image takes 4 ms and 170 KiB instead of 7 ms and
    /// 4 MiB; the kernel can grow it all the same, it then lays new groups out as `meta_bg` (`ext4_resize_fs`
    /// in fs/ext4/resize.c).
    pub fn tool_args(self) -> &'static [&'static str] {
        match self {
            Self::Ext3 | Self::Ext4 => &[
                "-q",
                "-F",
                "-m",
                "0",
                "-O",
                "^resize_inode",
                "-E",
                "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
            ],
            Self::Xfs => &["-q", "-f", "-K"],
        }
    }

    /// Tells the file system from the first [`PROBE_LEN`] bytes of an image; `None` if it is none of ours.
    pub fn detect(head: &[u8]) -> Option<Self> {
        if head.starts_with(b"XFSB") {
            return Some(Self::Xfs);
        }
        if head.get(EXT_MAGIC..EXT_MAGIC + 2)? != [0x53, 0xef] {
            return None;
        }
        let incompat: [u8; 4] = head.get(EXT_INCOMPAT..EXT_INCOMPAT + 4)?.try_into().ok()?;
        let extents = u32::from_le_bytes(incompat) & EXT_INCOMPAT_EXTENTS != 0;
        Some(if extents { Self::Ext4 } else { Self::Ext3 })
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FsType {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|fs| fs.name() == name).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ext_head(incompat: u32) -> Vec<u8> {
        let mut head = vec![0; PROBE_LEN];
        head[EXT_MAGIC..EXT_MAGIC + 2].copy_from_slice(&[0x53, 0xef]);
        head[EXT_INCOMPAT..EXT_INCOMPAT + 4].copy_from_slice(&incompat.to_le_bytes());
        head
    }

    #[test]
    fn names_round_trip() {
        for fs in FsType::ALL {
            assert_eq!(fs.name().parse(), Ok(fs));
        }
        assert_eq!("ntfs".parse::<FsType>(), Err(()));
    }

    #[test]
    fn detects_by_superblock() {
        assert_eq!(FsType::detect(&ext_head(0x2c2)), Some(FsType::Ext4));
        assert_eq!(FsType::detect(&ext_head(0x2)), Some(FsType::Ext3));
        assert_eq!(FsType::detect(b"XFSB\0\0\x10\0"), Some(FsType::Xfs));
        assert_eq!(FsType::detect(&[0; PROBE_LEN]), None);
        assert_eq!(FsType::detect(b"short"), None);
    }
}
