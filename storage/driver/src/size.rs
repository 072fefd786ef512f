//! Sizes: from a requested range of bytes to the size of a volume.

use claimcheck_csi::v1::CapacityRange;

use crate::{
    error::{Error, Result},
    filesystem::FsType,
    parameters::Kind,
};

/// Size in bytes if the request sets none.
pub const DEFAULT_BYTES: u64 = 1 << 30;
/// Images have a whole number of blocks of this size, the block size of their file systems.
const BLOCK: u64 = 4096;

/// A requested range of bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The minimum; 0 if the request sets none.
    pub required: u64,
    /// The maximum.
    pub limit: Option<u64>,
}

impl SizeRange {
    /// Parses the field `capacity_range`.
    pub fn parse(range: Option<CapacityRange>) -> Result<Self> {
        let CapacityRange { required_bytes, limit_bytes } = range.unwrap_or_default();
        let positive = |field: &str, bytes: i64| {
            u64::try_from(bytes).map_err(|_| Error::OutOfRange(format!("{field} {bytes} is negative")))
        };
        let required = positive("capacity_range.required_bytes", required_bytes)?;
        let limit = positive("capacity_range.limit_bytes", limit_bytes)?;
        let limit = (limit > 0).then_some(limit);
        if limit.is_some_and(|limit| limit < required) {
            return Err(Error::OutOfRange(format!(
                "capacity_range.limit_bytes {limit_bytes} is less than required_bytes {required_bytes}"
            )));
        }
        Ok(Self { required, limit })
    }

    /// Whether a volume of `bytes` satisfies the request.
    pub fn contains(&self, bytes: u64) -> bool {
        bytes >= self.required && self.limit.is_none_or(|limit| bytes <= limit)
    }

    /// The size of a new volume: the required size or [`DEFAULT_BYTES`], rounded up to a supported size.
    /// Volumes larger than `max` bytes are rejected.
    pub fn choose(&self, kind: Kind, fs: FsType, max: u64) -> Result<u64> {
        let bytes = match self.required {
            0 => DEFAULT_BYTES.min(self.limit.unwrap_or(u64::MAX)),
            required => required,
        };
        let size = match kind {
            Kind::Directory => bytes,
            Kind::Image => bytes.max(fs.min_bytes()).next_multiple_of(BLOCK),
        };
        if let Some(limit) = self.limit.filter(|limit| size > *limit) {
            return Err(Error::OutOfRange(format!(
                "limit_bytes {limit} is below {size}, the smallest that kind \"{kind}\" with {fs} supports here"
            )));
        }
        Self::check_max(size, max)?;
        Ok(size)
    }

    /// The size of a new volume with content copied from a source of `source` bytes: at least that. Requests
    /// for less are rejected, and so are volumes larger than `max` bytes.
    pub fn choose_copy(&self, kind: Kind, fs: FsType, source: u64, max: u64) -> Result<u64> {
        if self.required == 0 {
            return self.grow(kind, source, max);
        }
        let size = self.choose(kind, fs, max)?;
        if size < source {
            return Err(Error::OutOfRange(format!(
                "{size} bytes were requested, and the source has {source}; request at least as many"
            )));
        }
        Ok(size)
    }

    /// The new size of a volume of `present` bytes on expansion; never smaller. Volumes larger than `max` bytes
    /// are rejected, and so are limits that the volume already exceeds.
    pub fn grow(&self, kind: Kind, present: u64, max: u64) -> Result<u64> {
        let size = match kind {
            _ if self.required <= present => present,
            Kind::Directory => self.required,
            Kind::Image => self.required.next_multiple_of(BLOCK),
        };
        if let Some(limit) = self.limit.filter(|limit| size > *limit) {
            return Err(Error::OutOfRange(format!(
                "limit_bytes {limit} is below {size}; the volume has {present} bytes and does not shrink"
            )));
        }
        if size > present {
            Self::check_max(size, max)?;
        }
        Ok(size)
    }

    fn check_max(size: u64, max: u64) -> Result<()> {
        if size <= max {
            return Ok(());
        }
        let reason = format!("{size} bytes exceed the driver's --max-volume-bytes {max}");
        Err(Error::OutOfRange(reason))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    const MAX: u64 = 1 << 43;

    fn range(required_bytes: i64, limit_bytes: i64) -> Result<SizeRange> {
        SizeRange::parse(Some(CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn sizes() {
        const MIB: i64 = 1 << 20;
        let table = [
            (Kind::Directory, 0, 0, Ok(DEFAULT_BYTES)),
            (Kind::Directory, 5, 0, Ok(5)),
            (Kind::Directory, 0, 7, Ok(7)),
            (Kind::Image, 1, 0, Ok(8 << 20)),
            (Kind::Image, 10 * MIB + 1, 0, Ok((10 << 20) + 4096)),
            (Kind::Image, 0, MIB, Err(Code::OutOfRange)),
            (Kind::Image, 10 * MIB + 1, 10 * MIB + 2, Err(Code::OutOfRange)),
            (Kind::Directory, i64::MAX, 0, Err(Code::OutOfRange)),
            (Kind::Image, i64::MAX, 0, Err(Code::OutOfRange)),
        ];
        for (kind, required, limit, expected) in table {
            let size = range(required, limit).unwrap().choose(kind, FsType::Ext4, MAX);
            assert_eq!(size.map_err(|error| error.code()), expected, "{kind} {required} {limit}");
        }
        let growth = [
            (Kind::Directory, 4, 0, Ok(10)),
            (Kind::Directory, 11, 0, Ok(11)),
            (Kind::Directory, 4, 9, Err(Code::OutOfRange)),
            (Kind::Image, 11, 0, Ok(4096)),
            (Kind::Image, 11, 12, Err(Code::OutOfRange)),
            (Kind::Image, i64::MAX, 0, Err(Code::OutOfRange)),
        ];
        for (kind, required, limit, expected) in growth {
            let size = range(required, limit).unwrap().grow(kind, 10, MAX);
            assert_eq!(size.map_err(|error| error.code()), expected, "{kind} {required} {limit}");
        }
        for (required, limit) in [(-1, 0), (0, -1), (2, 1)] {
            assert_eq!(range(required, limit).unwrap_err().code(), Code::OutOfRange);
        }
    }

    #[test]
    fn copies_are_no_smaller_than_their_source() {
        let source = 10 << 20;
        let table = [
            (0, 0, Ok(source)),
            // A wish that was rounded up when the source was made is rounded up again.
            (source as i64 - 7, 0, Ok(source)),
            (11 << 20, 0, Ok(11 << 20)),
            (9 << 20, 0, Err(Code::OutOfRange)),
            (0, 9 << 20, Err(Code::OutOfRange)),
            (i64::MAX, 0, Err(Code::OutOfRange)),
        ];
        for (required, limit, expected) in table {
            let size = range(required, limit).unwrap().choose_copy(Kind::Image, FsType::Ext4, source, MAX);
            assert_eq!(size.map_err(|error| error.code()), expected, "{required} {limit}");
        }
    }

    proptest! {
        #[test]
        fn a_chosen_size_is_within_the_range(
            required in 0..1i64 << 50, limit in 0..1i64 << 50, image: bool,
        ) {
            let Ok(range) = range(required, limit) else { return Ok(()) };
            let kind = if image { Kind::Image } else { Kind::Directory };
            if let Ok(size) = range.choose(kind, FsType::Ext4, MAX) {
                prop_assert!(range.contains(size) && size <= MAX);
            }
        }
    }
}
