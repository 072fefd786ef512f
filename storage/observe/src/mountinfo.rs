//! The format of `/proc/<pid>/mountinfo` (`man 5 proc_pid_mountinfo`, kernel `fs/proc_namespace.c`), reduced to
//! the mount points.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! id parent dev root mount-point ...
//! ```

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
    /// Parses a table. Paths are bytes: a table need not be UTF-8.
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
        for (table, wanted) in cases {
            let wanted: Vec<(u32, String)> = wanted.iter().map(|(id, path)| (*id, (*path).into())).collect();
            assert_eq!(paths(table), wanted, "{table}");
        }
    }

    #[test]
    fn a_path_that_is_no_text_is_read_too() {
        let entry = Mounts::of(b"7 1 0:2 / /a\xff\\040 rw - tmpfs none rw").next().unwrap();
        assert_eq!(entry.path.as_os_str().as_bytes(), b"/a\xff ");
    }

    proptest! {
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
