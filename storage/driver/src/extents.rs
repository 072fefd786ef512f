//! Data ranges of a sparse file, and differences between two files.
//!
//! A hole is a range that was never written according to the file system (`SEEK_HOLE`): it reads as zeros, and
//! a copy can skip it. The file system may report more as data than was written, never less.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
};

use rustix::{fs::SeekFrom, io::Errno};

/// Granularity of differences in bytes: the block size of the supported file systems.
pub const BLOCK: u64 = 4096;
/// Bytes read at once for a comparison; whole blocks.
const CHUNK: u64 = 256 * BLOCK;

/// The ranges of `file` with data from `start` on, in order and disjoint.
pub fn data(file: &File, start: u64) -> impl Iterator<Item = io::Result<Range<u64>>> {
    let mut at = Some(start);
    std::iter::from_fn(move || {
        let found = next_data(file, at?);
        at = found.as_ref().ok().and_then(Option::as_ref).map(|range| range.end);
        found.transpose()
    })
}

fn next_data(file: &File, at: u64) -> io::Result<Option<Range<u64>>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        // The end of the file counts as a hole, so that there always is one.
        Ok(start) => Ok(Some(start..rustix::fs::seek(file, SeekFrom::Hole(start))?)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The ranges of whole blocks in which `file` has data, from the block of `start` on.
pub fn allocated(file: &File, start: u64) -> io::Result<impl Iterator<Item = io::Result<Range<u64>>>> {
    let size = file.metadata()?.size();
    let first = start - start % BLOCK;
    Ok(joined(data(file, first).map(move |range| range.map(|range| whole_blocks(&range, size)))))
}

/// The ranges of whole blocks in which `new` differs from `old`, from the block of `start` on. Missing bytes at
/// the end of `old` count as zeros.
pub fn changed<'a>(
    old: &'a File,
    new: &'a File,
    start: u64,
) -> io::Result<impl Iterator<Item = io::Result<Range<u64>>> + 'a> {
    let size = new.metadata()?.size();
    let first = start - start % BLOCK;
    // Where both have holes there is nothing to compare.
    let mut new_data = data(new, first).peekable();
    let mut old_data = data(old, first).peekable();
    let either = std::iter::from_fn(move || match (new_data.peek(), old_data.peek()) {
        (Some(Ok(a)), Some(Ok(b))) if b.start < a.start => old_data.next(),
        (Some(_), _) => new_data.next(),
        (None, _) => old_data.next(),
    });
    let candidates = joined(either.filter_map(move |range| match range {
        Ok(range) if range.start >= size => None,
        range => Some(range.map(|range| whole_blocks(&range, size))),
    }));
    let chunks = candidates.flat_map(|range| match range {
        Ok(range) => either_or(chunks(range).map(Ok)),
        Err(error) => either_or(std::iter::once(Err(error))),
    });
    let differing = chunks.flat_map(|chunk| match chunk.and_then(|chunk| differences(old, new, chunk)) {
        Ok(ranges) => either_or(ranges.into_iter().map(Ok)),
        Err(error) => either_or(std::iter::once(Err(error))),
    });
    Ok(joined(differing))
}

type Ranges<'a> = Box<dyn Iterator<Item = io::Result<Range<u64>>> + Send + 'a>;

fn either_or<'a>(ranges: impl Iterator<Item = io::Result<Range<u64>>> + Send + 'a) -> Ranges<'a> {
    Box::new(ranges)
}

fn whole_blocks(range: &Range<u64>, size: u64) -> Range<u64> {
    range.start - range.start % BLOCK..range.end.next_multiple_of(BLOCK).min(size)
}

fn chunks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(CHUNK as usize).map(move |start| start..(start + CHUNK).min(end))
}

/// Compares one chunk block by block.
fn differences(old: &File, new: &File, chunk: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let new_data = read(new, &chunk)?;
    let old_data = read(old, &chunk)?;
    let blocks = new_data.chunks(BLOCK as usize).zip(old_data.chunks(BLOCK as usize));
    let starts = (chunk.start..).step_by(BLOCK as usize);
    let differing = starts.zip(blocks).filter(|(_, (a, b))| a != b);
    Ok(differing.map(|(start, (block, _))| start..start + block.len() as u64).collect())
}

/// Reads a range; bytes beyond the end are zero.
fn read(file: &File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(range.end - range.start).expect("a chunk fits into memory");
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], range.start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Merges ranges that touch or overlap. They must be ordered by their starts.
fn joined(
    ranges: impl Iterator<Item = io::Result<Range<u64>>>,
) -> impl Iterator<Item = io::Result<Range<u64>>> {
    let mut ranges = ranges.peekable();
    std::iter::from_fn(move || {
        let mut range = match ranges.next()? {
            Ok(range) => range,
            error => return Some(error),
        };
        while let Some(Ok(next)) = ranges.peek()
            && next.start <= range.end
        {
            range.end = range.end.max(next.end);
            ranges.next();
        }
        Some(Ok(range))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCKS: usize = 24;

    /// Writes to a file: (block, offset in it, value); value 0 writes zeros, which is not a hole.
    type Writes = Vec<(usize, usize, u8)>;

    fn writes() -> impl Strategy<Value = Writes> {
        proptest::collection::vec((0..BLOCKS, 0..BLOCK as usize, 0..3u8), 0..12)
    }

    fn apply(file: &File, model: &mut [u8], writes: &Writes) {
        for (block, offset, value) in writes {
            let at = block * BLOCK as usize + offset;
            if at < model.len() {
                file.write_all_at(&[*value], at as u64).unwrap();
                model[at] = *value;
            }
        }
    }

    fn starts(ranges: impl Iterator<Item = io::Result<Range<u64>>>, size: u64) -> Vec<u64> {
        let mut last_end = None;
        let mut blocks = Vec::new();
        for range in ranges {
            let range = range.unwrap();
            assert!(range.start < range.end && range.end <= size && range.start % BLOCK == 0, "{range:?}");
            assert!(last_end.is_none_or(|end| end < range.start), "neighbours are joined");
            last_end = Some(range.end);
            blocks.extend(range.step_by(BLOCK as usize));
        }
        blocks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Checked against a comparison of every byte, with a target that may be longer than its base.
        #[test]
        fn changed_blocks_are_those_with_different_bytes(
            base in writes(), later in writes(), grown in 0..4usize, start in 0..(BLOCKS * 4096) as u64,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let make = |name, blocks: usize| {
                let file = File::options().read(true).write(true).create_new(true)
                    .open(dir.path().join(name)).unwrap();
                file.set_len((blocks * BLOCK as usize) as u64).unwrap();
                (file, vec![0u8; blocks * BLOCK as usize])
            };
            let (old, mut old_model) = make("old", BLOCKS - 4);
            let (new, mut new_model) = make("new", BLOCKS - 4 + grown);
            apply(&old, &mut old_model, &base);
            apply(&new, &mut new_model, &base);
            apply(&new, &mut new_model, &later);
            old_model.resize(new_model.len(), 0);
            let first = start - start % BLOCK;
            let size = new_model.len() as u64;
            let expected: Vec<u64> = (first..size).step_by(BLOCK as usize).filter(|at| {
                let block = *at as usize..(*at + BLOCK) as usize;
                old_model[block.clone()] != new_model[block]
            }).collect();
            prop_assert_eq!(starts(changed(&old, &new, start).unwrap(), size), expected);

            // What is not allocated is zero, and what was written is allocated.
            let found = starts(allocated(&new, start).unwrap(), size);
            for at in (first..size).step_by(BLOCK as usize) {
                let block = &new_model[at as usize..(at + BLOCK) as usize];
                prop_assert!(found.contains(&at) || block.iter().all(|byte| *byte == 0));
            }
            for (block, offset, _) in base.iter().chain(&later) {
                let at = (block * BLOCK as usize) as u64;
                if at >= first && at + (*offset as u64) < size && *block < BLOCKS - 4 {
                    prop_assert!(found.contains(&at), "block {} was written", block);
                }
            }
        }
    }

    #[test]
    fn chunks_meet() {
        let size = 3 * CHUNK + 5 * BLOCK;
        let (old, new) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        for file in [&old, &new] {
            file.set_len(size).unwrap();
        }
        new.write_all_at(&vec![7; (2 * BLOCK) as usize], CHUNK - BLOCK).unwrap();
        let mut found = changed(&old, &new, 0).unwrap().map(Result::unwrap);
        assert_eq!((found.next(), found.next()), (Some(CHUNK - BLOCK..CHUNK + BLOCK), None));
        assert_eq!(allocated(&old, 0).unwrap().count(), 0);
    }
}
