//! Files that flags name: one that cannot be read is told with its flag.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A file that a flag names cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: cannot be read: {source}", path.display())]
pub struct Unreadable {
    flag: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What is in it.
pub(crate) fn read(flag: &'static str, path: &Path) -> Result<String, Unreadable> {
    fs::read_to_string(path).map_err(|source| Unreadable { flag, path: path.to_owned(), source })
}
