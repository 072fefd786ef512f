//! The file systems of image volumes: names, tools, sizes, and detection from their superblocks.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Bytes from the start of an image that [`Found::detect`] requires.
pub const PROBE_LEN: usize = 2048;

/// Offset of the ext2/3/4 superblock; the fields below are relative to it (Documentation/filesystems/ext4).
const EXT_SUPERBLOCK: usize = 1024;
const EXT_MAGIC: usize = EXT_SUPERBLOCK + 56;
const EXT_BLOCKS: usize = EXT_SUPERBLOCK + 4;
const EXT_FIRST_BLOCK: usize = EXT_SUPERBLOCK + 20;
const EXT_LOG_BLOCK_SIZE: usize = EXT_SUPERBLOCK + 24;
const EXT_BLOCKS_PER_GROUP: usize = EXT_SUPERBLOCK + 32;
const EXT_INCOMPAT: usize = EXT_SUPERBLOCK + 96;
/// `EXT4_FEATURE_INCOMPAT_EXTENTS`: ext3 never has it, ext4 as made by mkfs always does.
const EXT_INCOMPAT_EXTENTS: u32 = 0x40;
/// `EXT4_FEATURE_INCOMPAT_64BIT`: the number of blocks has an upper half.
const EXT_INCOMPAT_64BIT: u32 = 0x80;
const EXT_BLOCKS_HIGH: usize = EXT_SUPERBLOCK + 0x150;
/// mkfs and resize2fs omit a last block group that has no space for data in addition to its own tables.
const EXT_LAST_GROUP_MIN: u64 = 640;
/// Offsets in the XFS superblock, big-endian (Documentation of the XFS disk format, `xfs_dsb`).
const XFS_BLOCK_SIZE: usize = 4;
const XFS_BLOCKS: usize = 8;
/// `XFS_MIN_AG_BLOCKS`: a smaller last allocation group is omitted.
const XFS_LAST_GROUP_MIN: u64 = 64;

/// A supported file system of an image volume.
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

    /// The name in the kernel and in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The program that creates it.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Ext3 => "mkfs.ext3",
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
        }
    }

    /// The Debian package of [`FsType::tool`].
    pub fn package(self) -> &'static str {
        match self {
            Self::Ext3 | Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
        }
    }

    /// The smallest image in bytes that [`FsType::tool`] accepts and that leaves space for data.
    pub fn min_bytes(self) -> u64 {
        match self {
            Self::Ext3 | Self::Ext4 => 8 << 20,
            Self::Xfs => 300 << 20,
        }
    }

    /// Options for [`FsType::tool`], chosen for speed on a sparse file.
    ///
    /// ext: ranges that a new sparse file has as zeros are neither zeroed nor discarded, and no blocks are
    /// reserved for root. Without `resize_inode` a 10 GiB image takes 4 ms and 170 KiB instead of 7 ms and 4
    /// MiB; the kernel can still expand it and then lays out new groups as `meta_bg` (`ext4_resize_fs` in
    /// fs/ext4/resize.c).
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

    /// The program that expands it.
    pub fn grow_tool(self) -> &'static str {
        match self {
            Self::Ext3 | Self::Ext4 => "resize2fs",
            Self::Xfs => "xfs_growfs",
        }
    }
}

/// A file system detected in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its type.
    pub fs: FsType,
    /// Its size in bytes, according to its superblock.
    pub bytes: u64,
    /// Additional bytes below which its size does not change.
    slack: u64,
}

impl Found {
    /// One just created in an image of `bytes`.
    pub fn filling(fs: FsType, bytes: u64) -> Self {
        Self { fs, bytes, slack: 1 }
    }

    /// Detects the file system from the first [`PROBE_LEN`] bytes of an image; `None` if it is not a supported
    /// one.
    pub fn detect(head: &[u8]) -> Option<Self> {
        if head.starts_with(b"XFSB") {
            let block = u64::from(u32::from_be_bytes(field(head, XFS_BLOCK_SIZE)?));
            let blocks = u64::from_be_bytes(field(head, XFS_BLOCKS)?);
            let bytes = blocks.saturating_mul(block);
            return Some(Self { fs: FsType::Xfs, bytes, slack: block.saturating_mul(XFS_LAST_GROUP_MIN) });
        }
        if field(head, EXT_MAGIC)? != [0x53, 0xef] {
            return None;
        }
        let number = |offset| field(head, offset).map(u32::from_le_bytes);
        let incompat = number(EXT_INCOMPAT)?;
        let fs = match incompat & EXT_INCOMPAT_EXTENTS {
            0 => FsType::Ext3,
            _ => FsType::Ext4,
        };
        let block = 1024u64.checked_shl(number(EXT_LOG_BLOCK_SIZE)?)?;
        let high = match incompat & EXT_INCOMPAT_64BIT {
            0 => 0,
            _ => number(EXT_BLOCKS_HIGH)?,
        };
        let blocks = u64::from(high) << 32 | u64::from(number(EXT_BLOCKS)?);
        let in_groups = blocks.saturating_sub(number(EXT_FIRST_BLOCK)?.into());
        let whole_groups = in_groups.checked_rem(number(EXT_BLOCKS_PER_GROUP)?.into()) == Some(0);
        let slack = if whole_groups { EXT_LAST_GROUP_MIN } else { 1 };
        Some(Self { fs, bytes: blocks.saturating_mul(block), slack: slack.saturating_mul(block) })
    }

    /// Whether it already fills an image of `image_bytes`.
    pub fn fills(&self, image_bytes: u64) -> bool {
        image_bytes < self.bytes.saturating_add(self.slack)
    }
}

fn field<const N: usize>(head: &[u8], offset: usize) -> Option<[u8; N]> {
    head.get(offset..offset + N)?.try_into().ok()
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

    fn ext_head(incompat: u32, blocks: u32) -> Vec<u8> {
        let mut head = vec![0; PROBE_LEN];
        head[EXT_MAGIC..EXT_MAGIC + 2].copy_from_slice(&[0x53, 0xef]);
        for (offset, value) in [
            (EXT_INCOMPAT, incompat),
            (EXT_BLOCKS, blocks),
            (EXT_FIRST_BLOCK, 1),
            (EXT_BLOCKS_PER_GROUP, 8192),
        ] {
            head[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
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
        let fs = |head: &[u8]| Found::detect(head).map(|found| found.fs);
        assert_eq!(fs(&ext_head(0x2c2, 9)), Some(FsType::Ext4));
        assert_eq!(fs(&ext_head(0x2, 9)), Some(FsType::Ext3));
        assert_eq!(fs(b"XFSB\0\0\x10\0\0\0\0\0\0\0\0\x09"), Some(FsType::Xfs));
        assert_eq!(fs(&[0; PROBE_LEN]), None);
        assert_eq!(fs(b"short"), None);
    }

    #[test]
    fn knows_when_there_is_room_to_grow() {
        let mib = |mib: u64| mib << 20;
        // Two whole groups of 8192 blocks of 1 KiB: a third one must have room for its tables.
        let whole = Found::detect(&ext_head(0x2c2, 2 * 8192 + 1)).unwrap();
        assert_eq!(whole.bytes, mib(16) + 1024);
        assert!(whole.fills(mib(16)) && whole.fills(mib(16) + 600 * 1024) && !whole.fills(mib(17)));
        // Within a group every block counts.
        let part = Found::detect(&ext_head(0x2c2, 2 * 8192 + 5)).unwrap();
        assert!(part.fills(part.bytes) && part.fills(part.bytes + 1023) && !part.fills(part.bytes + 1024));
        let xfs = Found::detect(b"XFSB\0\0\x10\0\0\0\0\0\0\x01\0\0").unwrap();
        assert_eq!(xfs.bytes, mib(256));
        assert!(xfs.fills(mib(256)) && !xfs.fills(mib(257)));
    }
}
