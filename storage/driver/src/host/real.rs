//! The real machine: files through `std`, mounts through `rustix`, loop devices through [`super::loops`], file
//! systems through their tools.
//!
//! Requires Linux 5.8 (`LOOP_CONFIGURE`, `STATX_ATTR_MOUNT_ROOT`).

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use nix::libc;
use rustix::{
    fs::{AtFlags, CWD, FileType, StatVfsMountFlags, StatxAttributes, StatxFlags},
    io::Errno,
    mount::{MountFlags, UnmountFlags},
    thread::CapabilitySet,
};

use super::{
    Backing, Entry, FileId, Host, LoopDevice, LoopUse, Mounted, RawLoop, Stamp, Usage, copy, freeze,
    holder::HolderClient, loops,
};
use crate::{
    filesystem::{Found, FsType, PROBE_LEN},
    mount_options::MountOptions,
};

/// The machine that the process runs on.
#[derive(Clone, Debug, Default)]
pub struct RealHost {
    holder: Option<HolderClient>,
}

impl RealHost {
    /// With a [`LoopHolder`](super::LoopHolder) at `socket`, which holds the loop devices of raw block volumes open.
    pub fn with_holder(socket: PathBuf) -> Self {
        Self { holder: Some(HolderClient::new(socket)) }
    }
}

impl Host for RealHost {
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        match DirBuilder::new().mode(mode).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::set_permissions(path, Permissions::from_mode(mode))
    }

    fn make_sparse(&self, path: &Path, size: u64) -> io::Result<()> {
        private(path)?.set_len(size)
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = private(path)?;
        file.write_all(content)?;
        file.sync_data()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        missing_is_fine(fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        missing_is_fine(fs::remove_dir(path))
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        missing_is_fine(fs::remove_dir_all(path))
    }

    fn make_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn grow_file(&self, path: &Path, size: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        if file.metadata()?.len() < size { file.set_len(size) } else { Ok(()) }
    }

    fn make_filesystem(&self, image: &Path, fs: FsType) -> io::Result<()> {
        run_tool(fs.tool(), Stdio::null(), &[0], |tool| tool.args(fs.tool_args()).arg(image))
    }

    fn grow_image(&self, image: &Path, fs: FsType, hold: &File) -> io::Result<()> {
        if fs == FsType::Xfs {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "XFS grows only while it is mounted"));
        }
        // resize2fs requires a checked file system; that also replays the journal of one that was not
        // unmounted. 1 means that errors were corrected.
        run_tool("e2fsck", hold.try_clone()?.into(), &[0, 1], |tool| tool.args(["-f", "-p"]).arg(image))?;
        run_tool(fs.grow_tool(), hold.try_clone()?.into(), &[0], |tool| tool.arg(image))
    }

    fn grow_mounted(&self, device: &Path, target: &Path, fs: FsType) -> io::Result<()> {
        run_tool(fs.grow_tool(), Stdio::null(), &[0], |tool| match fs {
            FsType::Ext3 | FsType::Ext4 => tool.arg(device),
            FsType::Xfs => tool.arg("-d").arg(target),
        })
    }

    fn attach_loop(&self, image: &Path, expected: LoopUse) -> io::Result<LoopDevice> {
        let read_only = matches!(expected, LoopUse::Raw { read_only: true });
        let backing = OpenOptions::new().read(true).write(!read_only).open(image)?;
        if let (Some(_), LoopUse::Raw { read_only: true }) = (&self.holder, expected) {
            // The writable device is held open, so no last close has written its cache back for readers.
            for raw in self.raw_loops(image)?.into_iter().filter(|raw| !raw.read_only) {
                self.flush(&raw.path)?;
            }
        }
        let control = loops::open_control()?;
        // Between asking for a free device and taking it another process may take it: then ask again. Every
        // lost round means that another process got a device, so this ends.
        loop {
            let number = loops::free(&control)?;
            let path = loops::path(number);
            let device = loops::open(&path, number)?;
            match loops::configure(&device, &backing, expected, self.holder.is_some()) {
                Ok(()) => {
                    if let (Some(holder), LoopUse::Raw { .. }) = (&self.holder, expected) {
                        // `device` is open until then, and the kernel detaches it if this fails.
                        holder.hold(number)?;
                    }
                    return Ok(LoopDevice { path, hold: Some(OwnedFd::from(device)) });
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn detach_loop(&self, device: &Path) -> io::Result<()> {
        let opened = File::open(device)?;
        if let Some(holder) = &self.holder
            && let Some(number) = loops::number(rustix::fs::fstat(&opened)?.st_rdev)
        {
            // No last close has written the device's cache back, and a detached device loses it. Errors are those of
            // writers, which fsync has reported.
            let _ = opened.sync_all();
            // Before it is cleared: the kernel clears a device that others have open only with the last of them.
            holder.release(number)?;
        }
        loops::clear(&opened)
    }

    fn resize_loop(&self, device: &Path) -> io::Result<()> {
        loops::set_capacity(&File::open(device)?)
    }

    fn mount(&self, device: &Path, target: &Path, fs: FsType, options: &MountOptions) -> io::Result<()> {
        let data = std::ffi::CString::new(options.data())?;
        Ok(rustix::mount::mount(device, target, fs.name(), options.flags(), data.as_c_str())?)
    }

    fn bind(&self, source: &Path, target: &Path) -> io::Result<()> {
        Ok(rustix::mount::mount_bind(source, target)?)
    }

    fn remount_bind(&self, target: &Path, options: &MountOptions) -> io::Result<()> {
        // In a user namespace the flags that the source mount carries are locked: a remount that leaves one
        // out is refused, so they are repeated.
        let present = rustix::fs::statvfs(target)?.f_flag;
        let mut flags = options.flags() | MountFlags::BIND;
        for (existing, expected) in [
            (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        ] {
            if present.contains(existing) {
                flags |= expected;
            }
        }
        Ok(rustix::mount::mount_remount(target, flags, c"")?)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)?)
    }

    fn unmount_lazy(&self, target: &Path) -> io::Result<()> {
        Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
    }

    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>> {
        Ok(look(path)?.map(|found| found.id))
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        Ok(look(path)?.map(|found| found.entry))
    }

    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>> {
        let Some(Look { id, is_mount: true, entry }) = look(path)? else { return Ok(None) };
        let read_only = rustix::fs::statvfs(path)?.f_flag.contains(StatVfsMountFlags::RDONLY);
        let device = match entry {
            Entry::BlockDevice { number } => number,
            Entry::Directory | Entry::File { .. } | Entry::Symlink | Entry::Other => id.device,
        };
        let backing = match loops::number(device) {
            Some(number) => loops::status(&File::open(loops::path(number))?)?
                .map(|status| Backing { loop_number: number, file: status.file }),
            None => None,
        };
        Ok(Some(Mounted { root: id, read_only, backing }))
    }

    fn deleted_at(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let backing = self.mounted(path)?.and_then(|mounted| mounted.backing);
        let file = backing.map(|backing| loops::deleted_file(backing.loop_number)).transpose()?.flatten();
        let table = fs::read_to_string("/proc/thread-self/mountinfo")?;
        Ok(file.into_iter().chain(deleted_root(&table, path)).collect())
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        // The longest part that exists, and the rest as it is written.
        for ancestor in path.ancestors() {
            if let Some(real) = missing_is_none(fs::canonicalize(ancestor))? {
                let rest = path.strip_prefix(ancestor).expect("an ancestor is a prefix");
                return Ok(real.join(rest));
            }
        }
        Ok(path.to_owned())
    }

    fn raw_loops(&self, image: &Path) -> io::Result<Vec<RawLoop>> {
        loops::raw(image, self.file_id(image)?, self.holder.as_ref())
    }

    fn copy_file(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
        copy::file(from, to, until)
    }

    fn copy_tree(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
        copy::tree(from, to, until)
    }

    fn flush(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn freeze(&self, path: &Path) -> io::Result<()> {
        freeze::freeze(path)
    }

    fn thaw(&self, path: &Path) -> io::Result<()> {
        freeze::thaw(path)
    }

    fn mounted_loops(&self, image: &Path) -> io::Result<Vec<PathBuf>> {
        loops::below_mounts(image, self.file_id(image)?, self.holder.as_ref())
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        copy::stamp(path)
    }

    fn open_file(&self, path: &Path) -> io::Result<Option<File>> {
        missing_is_none(OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path))
    }

    fn grows_mounted(&self, fs: FsType) -> io::Result<bool> {
        Ok(match fs {
            // XFS_IOC_FSGROWFSDATA takes the privilege of mounting, which made the mount.
            FsType::Xfs => true,
            // EXT4_IOC_RESIZE_FS: ext4_resize_begin in fs/ext4/resize.c.
            FsType::Ext3 | FsType::Ext4 => {
                rustix::thread::capabilities(None)?.effective.contains(CapabilitySet::SYS_RESOURCE)
            }
        })
    }

    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        missing_is_none(fs::read(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let Some(entries) = missing_is_none(fs::read_dir(path))? else { return Ok(Vec::new()) };
        // Names that are not UTF-8 are not the driver's.
        entries.filter_map(|entry| entry.map(|e| e.file_name().into_string().ok()).transpose()).collect()
    }

    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<Found>> {
        let mut head = Vec::with_capacity(PROBE_LEN);
        File::open(image)?.take(PROBE_LEN as u64).read_to_end(&mut head)?;
        match Found::detect(&head) {
            Some(found) => Ok(Some(found)),
            None if head.iter().all(|byte| *byte == 0) => Ok(None),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the image holds something that is not a known file system; it is left unchanged",
            )),
        }
    }

    fn usage(&self, path: &Path) -> io::Result<Usage> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Usage {
            total_bytes: stat.f_blocks * stat.f_frsize,
            used_bytes: stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize,
            available_bytes: stat.f_bavail * stat.f_frsize,
            total_inodes: stat.f_files,
            used_inodes: stat.f_files.saturating_sub(stat.f_ffree),
            available_inodes: stat.f_favail,
        })
    }

    fn probe_loop(&self) -> io::Result<()> {
        loops::open_control().map(drop)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<File>> {
        missing_is_none(
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path),
        )
    }
}

/// The root of the topmost mount at `target` in a table of mounts, if it was deleted: the kernel appends `//deleted` to
/// its name (`dentry_path` in fs/d_path.c). The table has spaces, tabs, newlines and backslashes in octal.
fn deleted_root(table: &str, target: &Path) -> Option<PathBuf> {
    let target = target.to_str()?.replace('\\', "\\134");
    let target = [(' ', "\\040"), ('\t', "\\011"), ('\n', "\\012")]
        .iter()
        .fold(target, |text, (character, octal)| text.replace(*character, octal));
    let mut mounts = table.lines().rev().map(|line| line.split(' ').skip(3));
    let root = mounts.find_map(|mut fields| {
        let root = fields.next()?;
        (fields.next()? == target).then_some(root)
    })?;
    root.strip_suffix("//deleted").map(PathBuf::from)
}

/// An empty file that only its owner can read, also if it existed with another mode.
fn private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    missing_is_none(result).map(|_| ())
}

fn missing_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Searches `PATH` and Debian's directories for system tools, which the `PATH` of a service or user may lack.
fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|tool| tool.is_file())
}

/// Runs a tool to its end; exit codes other than `fine` are errors with the tool's output.
fn run_tool(
    name: &str,
    stdin: Stdio,
    fine: &[i32],
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> io::Result<()> {
    let tool = find_tool(name).ok_or(io::ErrorKind::NotFound)?;
    let output = arguments(&mut Command::new(tool)).stdin(stdin).output()?;
    if output.status.code().is_some_and(|code| fine.contains(&code)) {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name} ended with {}: {}", output.status, words.trim())))
}

struct Look {
    id: FileId,
    is_mount: bool,
    entry: Entry,
}

fn look(path: &Path) -> io::Result<Option<Look>> {
    match rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some(Look {
            id: FileId {
                device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
            },
            is_mount: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            entry: match FileType::from_raw_mode(stat.stx_mode.into()) {
                FileType::Directory => Entry::Directory,
                FileType::Symlink => Entry::Symlink,
                FileType::RegularFile => Entry::File { bytes: stat.stx_size },
                FileType::BlockDevice => Entry::BlockDevice {
                    number: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
                },
                _ => Entry::Other,
            },
        })),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
