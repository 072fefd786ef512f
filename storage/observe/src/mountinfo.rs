//! The format of `/proc/<pid>/mountinfo` (`man 5 proc_pid_mountinfo`, kernel `fs/proc_namespace.c`), reduced to
//! the mount points.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! id parent dev root mount-point ...
//! ```
//!
//! A table is long and changes by a few lines, so the lines of two readings are compared as bytes, and only those that
//! differ are parsed.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kernel's number for it. Numbers are reused.
    pub id: u32,
    /// Its path, relative to the root of the process that the table belongs to.
    pub path: PathBuf,
}

/// The mounts of a table, in its order.
#[derive(Clone, Debug)]
pub struct Mounts<'a> {
    lines: std::slice::Split<'a, u8, fn(&u8) -> bool>,
}

impl<'a> Mounts<'a> {
    /// Parses a table, or any lines of one. Paths are bytes: a table need not be UTF-8.
    pub fn of(table: &'a [u8]) -> Self {
        Self { lines: table.split(|byte| *byte == b'\n') }
    }
}

impl Iterator for Mounts<'_> {
    type Item = Entry;

    /// The next mount. Invalid lines are skipped: one broken line must not hide the others.
    fn next(&mut self) -> Option<Entry> {
        self.lines.find_map(entry)
    }
}

/// The lines by which two readings of a table differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference<'a> {
    /// The lines that the later reading lacks.
    pub removed: Vec<&'a [u8]>,
    /// The lines that only the later reading has.
    pub added: Vec<&'a [u8]>,
    /// The lines with the same number in the same place, before and after: the mount has other options, or it was the last
    /// one, and another has its number.
    pub changed: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Difference<'a> {
    /// Compares two readings. The kernel appends mounts and keeps their order: a line that has moved to the end is that of
    /// another mount, and is both removed and added.
    pub fn between(mut old: &'a [u8], mut new: &'a [u8]) -> Self {
        let mut difference = Self::default();
        while !(old.is_empty() && new.is_empty()) {
            let same = common_lines(old, new);
            (old, new) = (&old[same..], &new[same..]);
            let ((deleted, later_old), (next, later_new)) = (first_line(old), first_line(new));
            if deleted.is_empty() {
                // The end, or an empty line, which a table does not have.
                difference.added.extend(Some(next).filter(|line| !line.is_empty()));
                (old, new) = (later_old, later_new);
                continue;
            }
            old = later_old;
            if id(deleted) == id(next) {
                difference.changed.push((deleted, next));
                new = later_new;
            } else {
                // What follows in both may be equal.
                difference.removed.push(deleted);
            }
        }
        difference
    }
}

/// The length of the lines with which both texts begin.
fn common_lines(old: &[u8], new: &[u8]) -> usize {
    /// Compared at a time, which is faster than byte by byte.
    const BLOCK: usize = 256;
    let blocks = old.chunks_exact(BLOCK).zip(new.chunks_exact(BLOCK));
    let blocks = blocks.take_while(|(old, new)| old == new).count() * BLOCK;
    let bytes = old[blocks..].iter().zip(&new[blocks..]).take_while(|(old, new)| old == new).count();
    let same = &old[..blocks + bytes];
    same.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

/// The first line, without its end, and what follows it.
fn first_line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[]),
    }
}

/// The first field.
fn id(line: &[u8]) -> Option<&[u8]> {
    line.split(|byte| *byte == b' ').next().filter(|id| !id.is_empty())
}

fn entry(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = fields.nth(3).filter(|path| path.starts_with(b"/"))?;
    Some(Entry { id, path: unescape(path).into() })
}

/// Decodes the kernel's escapes: three octal digits after a backslash. Other backslashes are left unchanged.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        match (first, tail) {
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', tail @ ..]) => {
                bytes.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// A path as the kernel writes it (`seq_path` with `" \t\n\\#"`).
pub fn escape(path: &Path) -> Vec<u8> {
    let escaped = path.as_os_str().as_bytes().iter().flat_map(|&byte| match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![byte],
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths(table: &str) -> Vec<(u32, String)> {
        Mounts::of(table.as_bytes()).map(|e| (e.id, e.path.to_string_lossy().into_owned())).collect()
    }

    #[test]
    fn mounts_are_read_and_what_is_none_is_passed_over() {
        let cases: &[(&str, &[(u32, &str)])] = &[
            ("36 35 98:0 /mnt1 /mnt2 rw master:1 - ext3 /dev/root rw\n", &[(36, "/mnt2")]),
            (
                "1 0 0:1 / / rw - tmpfs none rw\n2 1 0:2 / /a\\040b rw - tmpfs none rw\n",
                &[(1, "/"), (2, "/a b")],
            ),
            ("9 1 0:2 / /a\\011\\012\\134\\043 rw - tmpfs none rw", &[(9, "/a\t\n\\#")]),
            ("9 1 0:2 / /no\\escape\\9 rw - tmpfs none rw", &[(9, "/no\\escape\\9")]),
            ("9 1 0:2 / /über rw - tmpfs none rw", &[(9, "/über")]),
            // A bind mount of a file of another namespace's /proc: a root that is no path.
            ("9 1 0:4 net:[4026532008] /run/netns/x rw shared:1 - nsfs nsfs rw", &[(9, "/run/netns/x")]),
            ("nine 1 0:2 / /a rw - tmpfs none rw\n\n4 1 0:2\n5 1 0:2 / relative rw - x y z\n", &[]),
        ];
        for (table, expected) in cases {
            let expected: Vec<(u32, String)> =
                expected.iter().map(|(id, path)| (*id, (*path).into())).collect();
            assert_eq!(paths(table), expected, "{table}");
        }
    }

    #[test]
    fn a_path_that_is_no_text_is_read_too() {
        let entry = Mounts::of(b"7 1 0:2 / /a\xff\\040 rw - tmpfs none rw").next().unwrap();
        assert_eq!(entry.path.as_os_str().as_bytes(), b"/a\xff ");
    }

    #[test]
    fn a_difference_is_that_of_lines() {
        let difference = |old: &str, new: &str| {
            let difference = Difference::between(old.as_bytes(), new.as_bytes());
            let text = |lines: Vec<&[u8]>| {
                lines.into_iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>()
            };
            let (before, after): (Vec<_>, Vec<_>) = difference.changed.into_iter().unzip();
            let changed =
                text(before).into_iter().zip(text(after)).map(|(before, after)| format!("{before}>{after}"));
            let changed = changed.collect::<Vec<_>>().join(",");
            (text(difference.removed).join(","), text(difference.added).join(","), changed)
        };
        let cases = [
            ("", "", "", "", ""),
            ("1 a\n2 b\n", "1 a\n2 b\n", "", "", ""),
            ("", "1 a\n", "", "1 a", ""),
            ("1 a\n", "", "1 a", "", ""),
            ("1 a\n2 b\n3 c\n", "1 a\n3 c\n4 d\n", "2 b", "4 d", ""),
            ("1 a\n2 b\n3 c\n", "2 b\n", "1 a,3 c", "", ""),
            // Other options, a line that begins like another one, and a table without a last end of a line.
            ("1 a rw\n2 b\n", "1 a ro\n2 b\n", "", "", "1 a rw>1 a ro"),
            ("1 a\n12 b\n", "1 a\n1 b\n", "12 b", "1 b", ""),
            ("1 a\n2 b", "1 a\n2 bc", "", "", "2 b>2 bc"),
            ("1 a", "1 a\n2 b\n", "", "2 b", "1 a>1 a"),
            // To the end.
            ("1 a\n2 b\n", "2 b\n1 a\n", "1 a", "1 a", ""),
        ];
        for (old, new, removed, added, changed) in cases {
            let expected = (removed.to_owned(), added.to_owned(), changed.to_owned());
            assert_eq!(difference(old, new), expected, "{old:?} {new:?}");
        }
    }

    proptest! {
        /// Lines that are not in the difference are those of both, in whatever order.
        #[test]
        fn a_difference_leads_from_one_table_to_the_other(
            old in prop::collection::vec(0u8..9, 0..12),
            new in prop::collection::vec(0u8..9, 0..12),
            length in 1usize..300,
        ) {
            let text = |of: &[u8]| {
                of.iter().map(|id| format!("{id} {}\n", "x".repeat(length))).collect::<String>().into_bytes()
            };
            let (old, new) = (text(&old), text(&new));
            let difference = Difference::between(&old, &new);
            let with = |text: &[u8], lines: &[&[u8]]| {
                let own = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let mut all: Vec<Vec<u8>> = own.chain(lines.iter().copied()).map(<[u8]>::to_vec).collect();
                all.sort();
                all
            };
            let (before, after): (Vec<&[u8]>, Vec<&[u8]>) = difference.changed.into_iter().unzip();
            let (added, removed) = ([difference.added, after].concat(), [difference.removed, before].concat());
            prop_assert_eq!(with(&old, &added), with(&new, &removed));
        }

        #[test]
        fn every_path_survives_the_kernels_escapes(bytes in prop::collection::vec(1u8..=255, 0..64)) {
            let path = PathBuf::from(OsString::from_vec([b"/".as_slice(), &bytes].concat()));
            let line = [b"7 1 0:2 / ".as_slice(), &escape(&path), b" rw - tmpfs none rw\n"].concat();
            let read: Vec<Entry> = Mounts::of(&line).collect();
            // As bytes: a path's own comparison takes `/a/` for `/a`.
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(read[0].path.as_os_str(), path.as_os_str());
        }

        #[test]
        fn no_table_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            prop_assert!(Mounts::of(&bytes).count() <= lines);
        }
    }
}
