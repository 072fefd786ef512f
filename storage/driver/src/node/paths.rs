//! Paths that callers name: places of their own, and never anything of the driver's.

use std::path::{Path, PathBuf};

use crate::{
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    host::Entry,
};

impl Driver {
    /// A staging or target path at which something will be made or taken away.
    ///
    /// It is no symbolic link itself, and does not lead into the state directory, neither by name nor through
    /// links on its way (that `/var/lib/kubelet` is one is usual). Nor is it above the state directory, which a
    /// mount there would hide.
    pub(super) fn outside_path(&self, field: &'static str, path: &str) -> Result<PathBuf> {
        let path = fields::path(field, path)?;
        if self.host.entry(&path).doing("look at", &path)? == Some(Entry::Symlink) {
            return Err(Error::invalid(field, format!("{} is a symbolic link", path.display())));
        }
        let state = self.store.root();
        let real_state = self.host.resolve(state).doing("resolve", state)?;
        let real_path = self.host.resolve(&path).doing("resolve", &path)?;
        let clashes = [(&real_path, real_state.as_path()), (&path, state)]
            .into_iter()
            .any(|(path, state)| path.starts_with(state) || state.starts_with(path));
        if clashes {
            let reason = format!("{} is the driver's own: see --state-dir", path.display());
            return Err(Error::invalid(field, reason));
        }
        Ok(path)
    }

    /// Removes the target path of a publication that is over. Only ever what is empty: what lies there once
    /// nothing is mounted is not the volume's.
    pub(crate) fn remove_target(&self, target: &Path) -> Result<()> {
        match self.host.entry(target).doing("look at", target)? {
            None => Ok(()),
            Some(Entry::Directory) => self.host.remove_dir(target).doing("remove", target),
            Some(Entry::File { bytes: 0 }) => self.host.remove_file(target).doing("remove", target),
            Some(_) => Err(Error::Precondition(format!(
                "what is at {} is not the volume's; move it away",
                target.display()
            ))),
        }
    }
}
