//! A private `/run` for one process, with a directory of its own at `/var/run/secrets`: there programs of Kubernetes find
//! the credentials of their pod, and nothing may be created in the host's `/run`.

use std::{
    ffi::CString,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, symlink},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// The path of the host that is replaced; a link to `/run` nearly everywhere.
const RUN: &str = "/var/run";
/// The entry that the host's does not show.
const SECRETS: &str = "secrets";

/// What a process mounts before it executes its program.
#[derive(Clone, Debug)]
pub struct RunDirectory(Arc<Mounts>);

#[derive(Debug)]
struct Mounts {
    /// The host's entries, each with its place in the folder.
    entries: Vec<(CString, CString)>,
    /// The folder, and the directory that it replaces.
    folder: CString,
    target: CString,
}

impl RunDirectory {
    /// Prepares `folder` as `/run`: the host's entries, except for `secrets`, which is an empty directory of the folder.
    ///
    /// # Errors
    /// The machine has no `/var/run`, or the folder cannot be written.
    pub fn prepare(folder: &Path) -> io::Result<Self> {
        let run = fs::canonicalize(RUN)?;
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder.join(SECRETS))?;
        let mut entries = Vec::new();
        for entry in fs::read_dir(&run)? {
            let entry = entry?;
            let (from, to) = (entry.path(), folder.join(entry.file_name()));
            let kind = entry.file_type()?;
            if entry.file_name() == SECRETS || fs::symlink_metadata(&to).is_ok() {
                continue;
            }
            if kind.is_symlink() {
                symlink(fs::read_link(&from)?, &to)?;
                continue;
            }
            // A socket or a pipe is mounted on a file.
            match kind.is_dir() {
                true => fs::create_dir(&to)?,
                false => fs::write(&to, "")?,
            }
            entries.push((c_path(&from)?, c_path(&to)?));
        }
        Ok(Self(Arc::new(Mounts { entries, folder: c_path(folder)?, target: c_path(&run)? })))
    }

    /// The directory that the process sees at `/var/run/secrets`.
    pub fn secrets(folder: &Path) -> PathBuf {
        folder.join(SECRETS)
    }

    /// Moves this process into a mount namespace of its own, with that `/run`. What it mounts below the kubelet's
    /// directory still reaches the node, since that one is shared. Allocates nothing, as is required after fork.
    pub(crate) fn enter(&self) -> nix::Result<()> {
        let Mounts { entries, folder, target } = &*self.0;
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        unshare(CloneFlags::CLONE_NEWNS)?;
        for (from, to) in entries {
            // It may no longer exist.
            let _ = mount(Some(from.as_c_str()), to.as_c_str(), None::<&str>, bind, None::<&str>);
        }
        mount(Some(folder.as_c_str()), target.as_c_str(), None::<&str>, bind, None::<&str>)
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_has_a_place_for_each_entry_of_the_host() {
        let folder = std::env::temp_dir().join(format!("claimcheck-run-{}", std::process::id()));
        let prepared = RunDirectory::prepare(&folder).unwrap();
        assert!(RunDirectory::secrets(&folder).is_dir());
        for entry in fs::read_dir(RUN).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(fs::symlink_metadata(folder.join(&name)).is_ok(), "{name:?}");
        }
        // The next start finds it.
        let again = RunDirectory::prepare(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(again.0.entries.is_empty() && !prepared.0.entries.is_empty());
    }
}
