//! The path of the history.

use std::{
    env,
    ffi::OsString,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// `$XDG_STATE_HOME/claimcheck/history.ndjson`, or the same below `~/.local/state`; none if the environment
/// defines neither. In the private namespaces of a run on virtual nodes it is the same file, since paths resolve to
/// the same there.
pub fn default_path() -> Option<PathBuf> {
    below(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))
}

/// A relative directory is ignored, as the XDG Base Directory Specification requires.
fn below(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state.and_then(absolute);
    let state = state.or_else(|| Some(home.and_then(absolute)?.join(".local/state")));
    Some(state?.join("claimcheck/history.ndjson"))
}

/// Creates the file, accessible to its user only, if it does not exist.
pub(super) fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}

/// Makes a file that existed accessible to its user only. Devices are not the history's to change.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    if found.is_file() && found.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_private_whatever_its_mode_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/history.ndjson");
        for existing in [false, true] {
            if existing {
                fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            }
            make(&path).unwrap();
            make_private(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn the_state_directory_is_the_users() {
        let path = |state: Option<&str>, home: Option<&str>| {
            below(state.map(Into::into), home.map(Into::into)).map(|path| path.display().to_string())
        };
        assert_eq!(path(Some("/s"), Some("/h")).as_deref(), Some("/s/claimcheck/history.ndjson"));
        let of_home = Some("/h/.local/state/claimcheck/history.ndjson".to_owned());
        for state in [None, Some(""), Some("relative")] {
            assert_eq!(path(state, Some("/h")), of_home, "{state:?}");
        }
        assert_eq!(path(None, None), None);
        assert_eq!(path(None, Some("")), None);
    }
}
