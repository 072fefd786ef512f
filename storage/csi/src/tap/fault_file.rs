//! A fault plan in a file: for processes on nodes without a tap socket.
//!
//! The file is checked before each call, and parsed again if it was replaced. So after a new plan has been
//! renamed to its path, the next call obeys it; a check costs one `stat`.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::fault::FaultPlan;

/// A file with a [`FaultPlan`] as JSON. While it does not exist no faults are injected.
#[derive(Debug)]
pub(super) struct FaultFile {
    path: PathBuf,
    last: Mutex<Version>,
}

/// Identifies a version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    NeverRead,
    Absent,
    Present { inode: u64, changed: (i64, i64), size: u64 },
}

impl FaultFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, last: Mutex::new(Version::NeverRead) }
    }

    /// Puts the plan in force with `set`, if it may differ from the one before. A file that cannot be read or
    /// parsed is logged, and the previous plan stays in force.
    pub(super) fn refresh(&self, set: impl FnOnce(FaultPlan)) {
        // Held until the plan is in force: no older plan replaces a newer one, and no call that comes meanwhile takes
        // the file for one that is in force already.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = version(&self.path);
        if now == *last {
            return;
        }
        *last = now;
        match read(&self.path) {
            Ok(plan) => set(plan),
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "the faults file is not a valid fault plan");
            }
        }
    }
}

fn version(path: &Path) -> Version {
    match fs::metadata(path) {
        Ok(meta) => Version::Present {
            inode: meta.ino(),
            changed: (meta.ctime(), meta.ctime_nsec()),
            size: meta.size(),
        },
        Err(_) => Version::Absent,
    }
}

fn read(path: &Path) -> io::Result<FaultPlan> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FaultPlan::default()),
        Err(error) => Err(error),
    }
}

/// Replaces the plan at `path` atomically: readers see the old one or this one.
///
/// # Errors
/// The file cannot be written.
pub fn write_faults(path: &Path, plan: &FaultPlan) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(plan)?)?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{CsiMethod, Stamp};

    use super::{
        super::{CallId, TapRecord, fault::*},
        *,
    };

    #[test]
    fn each_call_obeys_the_plan_that_was_written_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.json");
        let faults = Faults::from_file(path.clone());
        let id = CallId { pid: 1, seq: 1 };
        let call = TapRecord::started(id, "n", CsiMethod::NodeStageVolume, Stamp::default());
        let next = || faults.next(&call);
        assert_eq!(next(), None, "a file that is absent holds no faults");
        let once = FaultRule::new("NodeStageVolume", FaultAction::Hang).times(1);
        write_faults(&path, &once.clone().into()).unwrap();
        assert_eq!((next(), next()), (Some(FaultAction::Hang), None));
        // A rule that stays keeps its count, one that is added counts from zero.
        let other = FaultRule::new("NodeStageVolume", FaultAction::DropAfter).times(1);
        write_faults(&path, &FaultPlan { rules: vec![once, other] }).unwrap();
        assert_eq!((next(), next()), (Some(FaultAction::DropAfter), None));
        write_faults(&path, &FaultRule::new("*", FaultAction::Hang).into()).unwrap();
        fs::write(&path, "no plan").unwrap();
        assert_eq!(next(), None, "the plan before it was never read");
        fs::remove_file(&path).unwrap();
        assert_eq!(next(), None);
        write_faults(&path, &FaultRule::new("*", FaultAction::Hang).into()).unwrap();
        assert_eq!(next(), Some(FaultAction::Hang));
        fs::write(&path, "no plan").unwrap();
        assert_eq!(next(), Some(FaultAction::Hang), "a plan stays until there is another");
    }
}
