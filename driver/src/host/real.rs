//! The real machine: files through `std`, mounts through `rustix`, loop devices through their ioctls.
//!
//! The only module of the crate with `unsafe` code, for the three loop ioctls that no safe wrapper offers.
//! Needs Linux 5.8 (`LOOP_CONFIGURE`, `STATX_ATTR_MOUNT_ROOT`).

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::libc;
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, StatVfsMountFlags, StatxAttributes, StatxFlags},
    io::Errno,
    mount::{MountFlags, UnmountFlags},
};

use super::{FileId, Host, LoopDevice, Mounted, Usage};
use crate::{
    filesystem::{FsType, PROBE_LEN},
    mount_options::MountOptions,
};

/// The machine that the process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealHost;

impl Host for RealHost {
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        match DirBuilder::new().mode(mode).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::set_permissions(path, Permissions::from_mode(mode))
    }

    fn make_sparse(&self, path: &Path, size: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.set_len(size)
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
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

    fn make_filesystem(&self, image: &Path, fs: FsType) -> io::Result<()> {
        let tool = find_tool(fs.tool()).ok_or(io::ErrorKind::NotFound)?;
        let output = Command::new(tool).args(fs.tool_args()).arg(image).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{} ended with {}: {}", fs.tool(), output.status, words.trim())))
    }

    fn attach_loop(&self, image: &Path) -> io::Result<LoopDevice> {
        let backing = OpenOptions::new().read(true).write(true).open(image)?;
        let control = open_loop_control()?;
        // Between asking for a free device and taking it another process may take it: then ask again. Every
        // lost round means that somebody else got a device, so this ends.
        loop {
            let number = loop_get_free(&control)?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open_loop_device(&path, number)?;
            match loop_configure(&device, &backing) {
                Ok(()) => return Ok(LoopDevice { path, hold: Some(OwnedFd::from(device)) }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error),
            }
        }
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
        for (there, wanted) in [
            (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        ] {
            if present.contains(there) {
                flags |= wanted;
            }
        }
        Ok(rustix::mount::mount_remount(target, flags, c"")?)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)?)
    }

    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>> {
        Ok(look(path)?.map(|found| found.id))
    }

    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>> {
        let Some(Look { id, is_mount: true, .. }) = look(path)? else { return Ok(None) };
        let read_only = rustix::fs::statvfs(path)?.f_flag.contains(StatVfsMountFlags::RDONLY);
        let (major, minor) = (rustix::fs::major(id.device), rustix::fs::minor(id.device));
        let backing =
            if major == LOOP_MAJOR { loop_backing(&File::open(format!("/dev/loop{minor}"))?)? } else { None };
        Ok(Some(Mounted { root: id, read_only, backing }))
    }

    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        missing_is_none(fs::read(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let Some(entries) = missing_is_none(fs::read_dir(path))? else { return Ok(Vec::new()) };
        // Names that are not UTF-8 are none of ours.
        entries.filter_map(|entry| entry.map(|e| e.file_name().into_string().ok()).transpose()).collect()
    }

    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<FsType>> {
        let mut head = Vec::with_capacity(PROBE_LEN);
        File::open(image)?.take(PROBE_LEN as u64).read_to_end(&mut head)?;
        match FsType::detect(&head) {
            Some(fs) => Ok(Some(fs)),
            None if head.iter().all(|byte| *byte == 0) => Ok(None),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the image holds something that is no known file system; it is left as it is",
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
        open_loop_control().map(drop)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<File>> {
        missing_is_none(
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path),
        )
    }
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    missing_is_none(result).map(|_| ())
}

fn missing_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks in `PATH` and where Debian keeps system tools, which the `PATH` of a service or user may lack.
fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|tool| tool.is_file())
}

struct Look {
    id: FileId,
    is_mount: bool,
}

fn look(path: &Path) -> io::Result<Option<Look>> {
    match rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some(Look {
            id: FileId {
                device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
            },
            is_mount: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        })),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Block major number of loop devices (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: u32 = 7;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl LoopInfo {
    const ZERO: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

fn open_loop_control() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/loop-control")
}

/// Opens the device node and makes it first where `/dev` is a static copy (containers) that lacks it.
fn open_loop_device(path: &Path, number: u32) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).write(true).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let device = rustix::fs::makedev(LOOP_MAJOR, number);
            match rustix::fs::mknodat(CWD, path, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, device) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(error) => Err(error.into()),
            }
        }
        opened => opened,
    }
}

#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_CTL_GET_FREE")]
fn loop_get_free(control: &File) -> io::Result<u32> {
    // SAFETY: the request takes no argument and `control` is open for the whole call.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_CONFIGURE")]
fn loop_configure(device: &File, backing: &File) -> io::Result<()> {
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).expect("an open descriptor is not negative"),
        block_size: 0,
        info: LoopInfo { flags: LO_FLAGS_AUTOCLEAR, ..LoopInfo::ZERO },
        reserved: [0; 8],
    };
    // SAFETY: `config` has the layout of the kernel's struct loop_config, lives for the whole call and is
    // only read; both descriptors are open.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The file behind a loop device; `None` if nothing is attached.
#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_GET_STATUS64")]
fn loop_backing(device: &File) -> io::Result<Option<FileId>> {
    let mut info = LoopInfo::ZERO;
    // SAFETY: `info` has the layout of the kernel's struct loop_info64, of which every bit pattern is valid,
    // and lives for the whole call.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) } {
        0 => Ok(Some(FileId { device: info.device, inode: info.inode })),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}
