//! Paths in requests: they belong to the caller, and never point into the driver's state directory.

use std::path::{Path, PathBuf};

use crate::{
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    host::Entry,
};

impl Driver {
    /// A staging or target path at which the driver creates or removes something.
    ///
    /// It must not be a symbolic link itself, and must not lead into the state directory, neither by name nor
    /// through symbolic links on its way (`/var/lib/kubelet` often is one). Nor may it be above the state
    /// directory, which a mount there would hide.
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
            let reason = format!("{} is inside or above the driver's --state-dir", path.display());
            return Err(Error::invalid(field, reason));
        }
        Ok(path)
    }

    /// Removes the target path of a publication that is over, only if it is empty: remaining content after the
    /// unmount does not belong to the volume.
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
