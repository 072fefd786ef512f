//! Point-in-time copies of volumes that may be in use.
//!
//! ```text
//! volume                    what makes its copy consistent
//! not mounted, read-only    no writers: the volume's lock keeps it so
//! file system in an image   frozen while it is copied
//! directory, raw image      compared: unchanged from before the first copy to after the last, or copied again
//! ```
//!
//! Only the node that has an image mounted sees the mount, and that may be another node. But its loop device is
//! visible to every node of the machine, and mounting that again gives the same file system: so it is mounted
//! at a *mark* in the volume's directory, and frozen there. The mark is created before anything else and
//! removed last. If a driver crashes in between, writers stay blocked until it restarts, which is why a
//! starting driver looks for its marks first.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tracing::{info, warn};

use crate::{
    driver::Driver,
    error::{Doing, Error, Result},
    filesystem::FsType,
    host::Stamp,
    id::VolumeId,
    mount_options::MountOptions,
    parameters::Kind,
    volume::{NodeId, Volume},
};

/// Maximum time that writers may be blocked.
const LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of attempts to copy volumes that are not frozen.
const ATTEMPTS: u32 = 5;
/// The kernel's change times have a granularity of at most 10 ms: two changes within one tick have the same
/// time.
const TICK: Duration = Duration::from_millis(10);
const MARK: &str = "freeze-";

/// A volume, which the caller has locked, and the target of its copy.
pub(crate) struct Copy<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) to: PathBuf,
}

/// A frozen file system; writers are blocked until this is dropped.
struct Frozen<'a> {
    driver: &'a Driver,
    mark: PathBuf,
    thawed: bool,
}

impl Frozen<'_> {
    fn thaw(mut self) -> Result<()> {
        self.thawed = true;
        self.driver.remove_mark(&self.mark)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.thawed
            && let Err(error) = self.driver.remove_mark(&self.mark)
        {
            warn!(mark = %self.mark.display(), %error, "cannot thaw; restart this driver");
        }
    }
}

/// Result of one attempt to copy.
enum Round {
    /// All copies show this point in time.
    At(SystemTime),
    /// They do, except for writes to this volume in the meantime.
    Disturbed(SystemTime, VolumeId),
}

impl Driver {
    /// Copies all volumes as of one point in time, and returns that time. Existing copies are replaced.
    ///
    /// A single directory is at worst copied while it changes, as any backup program would.
    pub(crate) fn copy_at_one_time(&self, copies: &[Copy<'_>]) -> Result<SystemTime> {
        let until = Instant::now() + LIMIT;
        let mut attempt = 1;
        loop {
            match (self.copy_once(copies, until)?, copies) {
                (Round::At(moment), _) => return Ok(moment),
                (Round::Disturbed(..), _) if attempt < ATTEMPTS => {}
                (Round::Disturbed(moment, volume), [one]) if one.volume.kind == Kind::Directory => {
                    warn!(%volume, "the volume changed while it was copied; the copy may be inconsistent");
                    return Ok(moment);
                }
                (Round::Disturbed(_, volume), _) => {
                    return Err(Error::Precondition(format!(
                        "volume {volume} was written to each of {ATTEMPTS} times that it was copied, and cannot \
                         be frozen; pause its writers or detach it"
                    )));
                }
            }
            std::thread::sleep(TICK * attempt);
            attempt += 1;
        }
    }

    fn copy_once(&self, copies: &[Copy<'_>], until: Instant) -> Result<Round> {
        let mut frozen = Vec::new();
        let mut watched = Vec::new();
        for copy in copies.iter().filter(|copy| copy.volume.has_writers()) {
            match self.freeze(copy.volume)? {
                Some(standing) => frozen.push(standing),
                None => {
                    self.flush_devices(copy.volume)?;
                    watched.push((&copy.volume.id, self.store.content(&copy.volume.id, copy.volume.kind)))
                }
            }
        }
        let hurried = !(frozen.is_empty() && watched.is_empty());
        let moment = SystemTime::now();
        let stamps = || watched.iter().map(|(_, path)| self.host.stamp(path).doing("look at", path));
        let before = stamps().collect::<Result<Vec<_>>>()?;
        for copy in copies {
            self.copy(copy, hurried.then_some(until))?;
        }
        let after = stamps().collect::<Result<Vec<_>>>()?;
        frozen.into_iter().rev().try_for_each(Frozen::thaw)?;

        let looks = before.iter().zip(&after);
        let disturbed =
            watched.iter().zip(looks).find(|(_, (then, now))| then != now || !settled(then, moment));
        Ok(match disturbed {
            Some(((volume, _), _)) => Round::Disturbed(moment, (*volume).clone()),
            None => Round::At(moment),
        })
    }

    fn copy(&self, Copy { volume, to }: &Copy<'_>, until: Option<Instant>) -> Result<()> {
        let content = self.store.content(&volume.id, volume.kind);
        let copied = self.copy_content(volume.kind, &content, to, until);
        match copied {
            Err(Error::Host { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {
                Err(Error::Busy(format!(
                    "volume {} could not be copied within the {LIMIT:?} for which its writers may be kept \
                     waiting; detach it, or put --state-dir on a file system with reflinks (XFS, Btrfs)",
                    volume.id
                )))
            }
            copied => copied,
        }
    }

    /// Copies the content of a volume or snapshot. Remains of a crash at `to` are replaced.
    pub(crate) fn copy_content(
        &self,
        kind: Kind,
        from: &Path,
        to: &Path,
        until: Option<Instant>,
    ) -> Result<()> {
        match kind {
            Kind::Directory => {
                if self.host.file_id(to).doing("look at", to)?.is_some() {
                    self.host.remove_tree(to).doing("remove", to)?;
                }
                self.host.copy_tree(from, to, until)
            }
            Kind::Image => self.host.copy_file(from, to, until),
        }
        .doing("copy a volume to", to)
    }

    /// Flushes a raw volume: the kernel writes to its image with a delay.
    fn flush_devices(&self, volume: &Volume) -> Result<()> {
        if volume.kind == Kind::Directory {
            return Ok(());
        }
        let image = self.store.content(&volume.id, volume.kind);
        for device in self.host.raw_loops(&image).doing("list the loop devices of", &image)? {
            self.host.flush(&device.path).doing("flush", device.path)?;
        }
        Ok(())
    }

    /// Freezes the file system in a volume, if it has one that is writable.
    fn freeze(&self, volume: &Volume) -> Result<Option<Frozen<'_>>> {
        if volume.kind == Kind::Directory {
            return Ok(None);
        }
        // This call holds the lock, so these were left by drivers that crashed.
        self.remove_marks(&volume.id, |_| true)?;
        let image = self.store.content(&volume.id, volume.kind);
        for device in self.host.mounted_loops(&image).doing("list the loop devices of", &image)? {
            let mark = self.store.dir(&volume.id).join(mark_name(self.node_id(), &device));
            self.host.make_dir(&mark, 0o700).doing("make", &mark)?;
            let frozen = Frozen { driver: self, mark, thawed: false };
            if self.mount_mark(&image, &device, &frozen.mark)? {
                self.host.freeze(&frozen.mark).doing("freeze the file system at", &frozen.mark)?;
                return Ok(Some(frozen));
            }
            frozen.thaw()?;
        }
        Ok(None)
    }

    /// `false` if the file system on `device` is mounted read-only, so that it has no writers.
    fn mount_mark(&self, image: &Path, device: &Path, mark: &Path) -> Result<bool> {
        let found = self.host.probe_filesystem(image).doing("read", image)?;
        let Some(fs) = found.map(|found| found.fs) else { return Ok(false) };
        let mut options = MountOptions::parse(["nosuid", "nodev", "noexec"])?;
        if fs == FsType::Xfs {
            options.filesystem.push("nouuid".to_owned());
        }
        match self.host.mount(device, mark, fs, &options) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ResourceBusy | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Ok(false)
            }
            mounted => mounted.map(|()| true).doing("mount the image a second time at", mark),
        }
    }

    /// Thaws the file system at a mark and removes the mark.
    fn remove_mark(&self, mark: &Path) -> Result<()> {
        if self.host.mounted(mark).doing("look at", mark)?.is_some() {
            self.host.thaw(mark).doing("thaw the file system at", mark)?;
            self.host.unmount_lazy(mark).doing("unmount", mark)?;
        }
        self.host.remove_dir(mark).doing("remove", mark)
    }

    /// Removes those marks in a volume's directory that are stale, judged by the node that created them, and
    /// thaws the file systems behind them: also where the mount at the mark disappeared with the driver's
    /// container, since the file system is then still frozen.
    pub(crate) fn remove_marks(&self, id: &VolumeId, is_stale: impl Fn(&NodeId) -> bool) -> Result<()> {
        let dir = self.store.dir(id);
        for name in self.host.list_dir(&dir).doing("list", &dir)? {
            let Some((node, device)) = parse_mark(&name) else { continue };
            if !is_stale(&node) {
                continue;
            }
            let mark = dir.join(&name);
            info!(volume = %id, mark = %mark.display(), "thawing a file system that a crashed driver left frozen");
            let image = self.store.content(id, Kind::Image);
            if self.host.mounted(&mark).doing("look at", &mark)?.is_none() {
                let devices = self.host.mounted_loops(&image).doing("list the loop devices of", &image)?;
                if let Some(device) = devices.iter().find(|path| path.ends_with(device)) {
                    self.mount_mark(&image, device, &mark)?;
                }
            }
            self.remove_mark(&mark)?;
        }
        Ok(())
    }
}

fn settled(stamp: &Stamp, moment: SystemTime) -> bool {
    let moment = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    stamp.newest + TICK < moment
}

fn mark_name(node: &NodeId, device: &Path) -> String {
    let device = device.file_name().unwrap_or_default().to_string_lossy();
    format!("{MARK}{node}-{device}")
}

/// The node that created a mark, and the name of the loop device.
fn parse_mark(name: &str) -> Option<(NodeId, &str)> {
    let (node, device) = name.strip_prefix(MARK)?.rsplit_once('-')?;
    Some((NodeId::parse(node)?, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_node_and_device() {
        let node = NodeId::parse("node-1-b").unwrap();
        let name = mark_name(&node, Path::new("/dev/loop12"));
        assert_eq!(parse_mark(&name), Some((node, "loop12")));
        for other in ["image", "mount-node-1", "freeze-", "freeze-x", "freeze-/-loop1"] {
            assert_eq!(parse_mark(other), None, "{other}");
        }
    }
}
