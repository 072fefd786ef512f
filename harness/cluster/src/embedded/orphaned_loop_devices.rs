//! Orphaned loop devices of dead runs.
//!
//! A driver may attach a device without `autoclear`. Such a device outlives a killed run, and keeps the
//! run's tmpfs, so that its device number is not reused: if no process has it mounted, the file behind the device
//! is no longer accessible.

use std::{collections::BTreeSet, fmt, fs, io, path::Path};

use claimcheck_driver::host::left::{self, AttachedLoop};
use claimcheck_substrate::STATE_DIR;
use rustix::{
    fs::{major, minor},
    io::Errno,
    process::geteuid,
};

/// The PID namespace with all processes of the machine (`PROC_PID_INIT_INO` in linux/proc_ns.h).
const ALL_PROCESSES: &str = "pid:[4026531836]";

/// The loop devices of dead runs cannot be determined, so that none is detached.
#[derive(Debug, thiserror::Error)]
pub enum OrphanedLoopDevicesError {
    /// Not root, or no `/sys`.
    #[error("cannot look for loop devices of dead runs")]
    Devices(#[source] io::Error),
    /// There may be an active run that is not visible.
    #[error(
        "{} may belong to a dead run or to an active one in another container, which cannot be determined here: check from \
         outside of containers, or detach it with `losetup --detach`",
        .0.path.display()
    )]
    Unseen(AttachedLoop),
    /// The mounts of a process cannot be read.
    #[error("cannot read the mounts of all processes")]
    Mounts(#[source] io::Error),
}

/// The result for a loop device of a dead run.
#[derive(Debug)]
pub struct OrphanedLoopDevice {
    device: AttachedLoop,
    /// Whether it was detached.
    pub detached: io::Result<()>,
}

impl fmt::Display for OrphanedLoopDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, file) = (self.device.path.display(), self.device.file.display());
        match &self.detached {
            Ok(()) => write!(f, "{path} is detached: it was leaked by a dead run ({file})"),
            Err(error) => write!(f, "{path} of a dead run cannot be detached ({file}): {error}"),
        }
    }
}

/// Detaches the loop devices of dead runs. Without root there are none, since only root can attach them.
///
/// # Errors
/// They cannot be determined.
pub fn detach_orphaned_loop_devices() -> Result<Vec<OrphanedLoopDevice>, OrphanedLoopDevicesError> {
    if !geteuid().is_root() {
        return Ok(Vec::new());
    }
    // Before the mounts: a device that was attached by now has its mount in a table that is read later, unless
    // the run is dead.
    let mut devices = left::below(Path::new(STATE_DIR)).map_err(OrphanedLoopDevicesError::Devices)?;
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let mounted = mounted().map_err(OrphanedLoopDevicesError::Mounts)?;
    devices.retain(|device| !mounted.contains(&file_system(device)));
    let seen = fs::read_link("/proc/self/ns/pid").map_err(OrphanedLoopDevicesError::Mounts)?;
    match devices.first() {
        Some(first) if seen != Path::new(ALL_PROCESSES) => {
            Err(OrphanedLoopDevicesError::Unseen(first.clone()))
        }
        _ => Ok(devices.into_iter().map(OrphanedLoopDevice::of).collect()),
    }
}

impl OrphanedLoopDevice {
    fn of(device: AttachedLoop) -> Self {
        let detached = device.detach();
        Self { device, detached }
    }
}

/// The file system of the file behind a device, as in mount tables.
fn file_system(device: &AttachedLoop) -> String {
    format!("{}:{}", major(device.id.device), minor(device.id.device))
}

/// The file systems that any process has mounted.
fn mounted() -> io::Result<BTreeSet<String>> {
    let mut mounted = BTreeSet::new();
    let mut namespaces = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // Once per namespace: a driver that leaks mounts may have a table of 100,000 (`fs.mount-max`).
        if let Ok(namespace) = fs::read_link(entry.path().join("ns/mnt"))
            && !namespaces.insert(namespace)
        {
            continue;
        }
        match fs::read_to_string(entry.path().join("mountinfo")) {
            // Field 3: proc(5).
            Ok(table) => {
                mounted.extend(table.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned));
            }
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(mounted)
}

/// Whether the process has exited, or is a zombie.
fn has_ended(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::NOENT, Errno::SRCH, Errno::INVAL].contains(&errno))
}

#[cfg(test)]
mod tests {
    use rustix::fs::stat;

    use super::*;

    #[test]
    fn what_is_mounted_is_seen() {
        let root = stat("/").unwrap();
        let id = claimcheck_driver::host::FileId { device: root.st_dev, inode: root.st_ino };
        let device = AttachedLoop { path: "/dev/loop0".into(), file: "/cc/image".into(), id };
        assert!(mounted().unwrap().contains(&file_system(&device)), "{}", file_system(&device));
        assert!(!mounted().unwrap().contains("4095:1048575"));
    }
}
