//! Loop devices through their ioctls: no safe wrapper exists for these requests, hence the `unsafe` code.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use nix::libc;
use rustix::{
    fs::{CWD, FileType, Mode},
    io::Errno,
};

use super::{FileId, LoopUse, RawLoop, holder::HolderClient};

/// Block major number of loop devices (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: u32 = 7;
const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4C07;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LO_FLAGS_READ_ONLY: u32 = 1;
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

/// The control device, which allocates free loop devices.
pub(super) fn open_control() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/loop-control")
}

/// Opens the device node and creates it first where `/dev` is a static copy (containers) that lacks it.
pub(super) fn open(path: &Path, number: u32) -> io::Result<File> {
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

/// The device node of loop device `number`.
pub(super) fn path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// The number of the loop device `device`, encoded as by `stat`; `None` if it is another kind of device.
pub(super) fn number(device: u64) -> Option<u32> {
    (rustix::fs::major(device) == LOOP_MAJOR).then(|| rustix::fs::minor(device))
}

/// State of an attached loop device.
pub(super) struct Status {
    /// The backing file.
    pub file: FileId,
    flags: u32,
}

/// The loop devices for raw use backed by `image`, which has the identity `file`.
pub(super) fn raw(
    image: &Path,
    file: Option<FileId>,
    holder: Option<&HolderClient>,
) -> io::Result<Vec<RawLoop>> {
    let mut raw = Vec::new();
    for (number, flags) in attached(image, file)? {
        if is_raw(number, flags, holder)? {
            raw.push(RawLoop { path: path(number), read_only: flags & LO_FLAGS_READ_ONLY != 0 });
        }
    }
    Ok(raw)
}

/// The loop devices below mounts backed by `image`, which has the identity `file`.
pub(super) fn below_mounts(
    image: &Path,
    file: Option<FileId>,
    holder: Option<&HolderClient>,
) -> io::Result<Vec<PathBuf>> {
    let mut mounted = Vec::new();
    for (number, flags) in attached(image, file)? {
        if !is_raw(number, flags, holder)? {
            mounted.push(path(number));
        }
    }
    Ok(mounted)
}

/// Whether a device is for raw use: those have no `autoclear`, or are held.
fn is_raw(number: u32, flags: u32, holder: Option<&HolderClient>) -> io::Result<bool> {
    match holder {
        _ if flags & LO_FLAGS_AUTOCLEAR == 0 => Ok(true),
        Some(holder) => holder.holds(number),
        None => Ok(false),
    }
}

/// The numbers of all loop devices of an image, with their flags. One that is attached to an image that was deleted, or
/// replaced by another file, is still the image's: nothing else will detach it.
///
/// Candidates come from sysfs, so that unrelated devices are not opened: an open descriptor prevents their
/// automatic clearing for that moment. The kernel names files from the root of the mount they were opened in,
/// which may be another mount namespace, so only the end of the path can be compared.
fn attached(image: &Path, file: Option<FileId>) -> io::Result<Vec<(u32, u32)>> {
    let tail: PathBuf = image.iter().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect();
    let mut found = Vec::new();
    for (number, backing) in backing_files()? {
        let deleted = without_deleted(&backing).is_some_and(|backing| backing.ends_with(&tail));
        if !deleted && !backing.ends_with(&tail) {
            continue;
        }
        if let Some(status) = status_of(number)?
            && (deleted || Some(status.file) == file)
        {
            found.push((number, status.flags));
        }
    }
    Ok(found)
}

/// The name of the backing file of a loop device, if it was deleted.
pub(super) fn deleted_file(number: u32) -> io::Result<Option<PathBuf>> {
    let mut backing = backing_files()?.into_iter().filter(|(other, _)| *other == number);
    Ok(backing.find_map(|(_, file)| without_deleted(&file)))
}

/// The name of a file without the suffix that the kernel appends once it is deleted (`d_path` in fs/d_path.c).
fn without_deleted(file: &Path) -> Option<PathBuf> {
    file.to_str()?.strip_suffix(" (deleted)").map(PathBuf::from)
}

/// The numbers of the attached loop devices, and the kernel's names of their backing files.
pub(super) fn backing_files() -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix("loop")?.parse().ok()) else {
            continue;
        };
        // No such file: nothing is attached.
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        found.push((number, PathBuf::from(backing.trim_end_matches('\n'))));
    }
    Ok(found)
}

#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_CTL_GET_FREE")]
pub(super) fn free(control: &File) -> io::Result<u32> {
    // SAFETY: the request takes no argument and `control` is open for the whole call.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Attaches `backing`. A device for raw use has `autoclear` only if it is going to be `held`.
#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_CONFIGURE")]
pub(super) fn configure(device: &File, backing: &File, expected: LoopUse, held: bool) -> io::Result<()> {
    let raw = if held { LO_FLAGS_AUTOCLEAR } else { 0 };
    let flags = match expected {
        LoopUse::Mount => LO_FLAGS_AUTOCLEAR,
        LoopUse::Raw { read_only: true } => raw | LO_FLAGS_READ_ONLY,
        LoopUse::Raw { read_only: false } => raw,
    };
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).expect("an open descriptor is not negative"),
        block_size: 0,
        info: LoopInfo { flags, ..LoopInfo::ZERO },
        reserved: [0; 8],
    };
    // SAFETY: `config` has the layout of the kernel's struct loop_config, is valid for the whole call and is
    // only read; both descriptors are open.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The backing file of loop device `number`; `None` if it is not attached, or is being detached after its last close.
pub(super) fn status_of(number: u32) -> io::Result<Option<Status>> {
    match open(&path(number), number) {
        Ok(device) => status(&device),
        Err(error) => unattached_is_none(error),
    }
}

/// The backing file of a loop device; `None` if it is not attached.
#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_GET_STATUS64")]
pub(super) fn status(device: &File) -> io::Result<Option<Status>> {
    let mut info = LoopInfo::ZERO;
    // SAFETY: `info` has the layout of the kernel's struct loop_info64, of which every bit pattern is valid,
    // and is valid for the whole call.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) } {
        0 => Ok(Some(Status { file: FileId { device: info.device, inode: info.inode }, flags: info.flags })),
        _ => unattached_is_none(io::Error::last_os_error()),
    }
}

/// Detaches the file; at once, or with the last user if it is in use. Succeeds if nothing is attached.
#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_CLR_FD")]
pub(super) fn clear(device: &File) -> io::Result<()> {
    // SAFETY: the request takes no argument and `device` is open for the whole call.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) } {
        0 => Ok(()),
        _ => unattached_is_none::<()>(io::Error::last_os_error()).map(drop),
    }
}

/// Sets the device's size to the current size of its file.
#[expect(unsafe_code, reason = "no safe wrapper offers LOOP_SET_CAPACITY")]
pub(super) fn set_capacity(device: &File) -> io::Result<()> {
    // SAFETY: the request takes no argument and `device` is open for the whole call.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn unattached_is_none<T>(error: io::Error) -> io::Result<Option<T>> {
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}
