//! Files given by flags: errors name the flag.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A file given by a flag cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: cannot be read: {source}", path.display())]
pub struct FileFlagError {
    flag: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Its content.
pub(crate) fn read(flag: &'static str, path: &Path) -> Result<String, FileFlagError> {
    fs::read_to_string(path).map_err(|source| FileFlagError { flag, path: path.to_owned(), source })
}
