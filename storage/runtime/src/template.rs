//! The root of all containers: a read-only view of the host's programs.
//!
//! Built once, by the zygote, in a mount namespace of its own that contains nothing else: cloning it for a
//! container costs a dozen mounts, not the node's whole mount table.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{chdir, pivot_root},
};
use rustix::fs::{StatVfsMountFlags, statvfs};

/// Parts of the host's root that programs need. A symbolic link on the host is the same link here.
const VISIBLE: [&str; 9] = ["usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];
/// Devices that programs expect; bind mounted one by one, since a user namespace may not create nodes.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Users and groups: those of a minimal image. Names of the host's would appear in what containers print: `ls -l` shows
/// a group that is unknown as a number.
const NAMES: [(&str, &str); 2] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
    ("etc/group", "root:x:0:\nnobody:x:65534:\n"),
];

/// A failed step of building the template.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path} for the container root")]
pub struct TemplateError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Adds the operation and its path to an error.
trait Doing<T> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T, TemplateError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T, TemplateError> {
        self.map_err(|error| TemplateError { what, path: path.to_owned(), source: error.into() })
    }
}

/// Builds the template below `at` (created if missing) and makes it the root of this mount namespace.
///
/// The caller has unshared its mount namespace; nothing of the old one stays visible.
pub(crate) fn enter(at: &Path) -> Result<(), TemplateError> {
    fs::create_dir_all(at).doing("make", at)?;
    mount(Some("pod"), at, Some("tmpfs"), MsFlags::MS_NODEV | MsFlags::MS_NOSUID, Some("mode=755,size=16m"))
        .doing("mount a tmpfs at", at)?;
    for name in VISIBLE {
        show(&Path::new("/").join(name), &at.join(name))?;
    }
    for (name, content) in NAMES {
        cover(&at.join(name), content, &at.join("names"))?;
    }
    devices(&at.join("dev"))?;
    let proc = directory(at.join("proc"))?;
    // Also what permits containers their own: a user namespace may mount proc only where it sees one.
    mount(Some("proc"), &proc, Some("proc"), secure(), None::<&str>).doing("mount proc at", &proc)?;
    directory(at.join("tmp"))?;
    chdir(at).doing("enter", at)?;
    pivot_root(".", ".").doing("make a root of", at)?;
    umount2(".", MntFlags::MNT_DETACH).doing("leave the old root below", at)?;
    chdir("/").doing("enter", Path::new("/"))
}

/// Bind mounts a part of the host, read-only; symbolic links are copied, and missing parts are omitted.
fn show(from: &Path, to: &Path) -> Result<(), TemplateError> {
    let Ok(metadata) = fs::symlink_metadata(from) else { return Ok(()) };
    if metadata.is_symlink() {
        let target = fs::read_link(from).doing("read", from)?;
        return symlink(target, to).doing("link", to);
    }
    let to = directory(to.to_owned())?;
    // Recursive, since a user namespace may not uncover what is mounted below.
    bind(from, &to)?;
    read_only(&to).doing("protect", &to)
}

/// Covers a file of the host, if it exists, by another content, which is written to `aside` first.
fn cover(path: &Path, content: &str, aside: &Path) -> Result<(), TemplateError> {
    if !path.is_file() {
        return Ok(());
    }
    fs::write(aside, content).doing("write", aside)?;
    bind(aside, path)?;
    read_only(path).doing("protect", path)?;
    fs::remove_file(aside).doing("remove", aside)
}

fn devices(dev: &Path) -> Result<(), TemplateError> {
    directory(dev.to_owned())?;
    for name in DEVICES {
        let to = dev.join(name);
        fs::write(&to, "").doing("make", &to)?;
        bind(&Path::new("/dev").join(name), &to)?;
    }
    for (name, target) in DEVICE_LINKS {
        let link = dev.join(name);
        symlink(target, &link).doing("link", &link)?;
    }
    Ok(())
}

fn directory(path: PathBuf) -> Result<PathBuf, TemplateError> {
    fs::create_dir_all(&path).doing("make", &path)?;
    Ok(path)
}

fn bind(from: &Path, to: &Path) -> Result<(), TemplateError> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).doing("bind to", to)
}

/// Makes a mount read-only and keeps its other restrictions, which a user namespace may not lift.
pub(crate) fn read_only(path: &Path) -> nix::Result<()> {
    // nix has no RELATIME on musl, with which releases are linked.
    let kept = statvfs(path).map_err(|error| Errno::from_raw(error.raw_os_error()))?.f_flag;
    let flags = [
        (StatVfsMountFlags::NOSUID, MsFlags::MS_NOSUID),
        (StatVfsMountFlags::NODEV, MsFlags::MS_NODEV),
        (StatVfsMountFlags::NOEXEC, MsFlags::MS_NOEXEC),
        (StatVfsMountFlags::NOATIME, MsFlags::MS_NOATIME),
        (StatVfsMountFlags::NODIRATIME, MsFlags::MS_NODIRATIME),
        (StatVfsMountFlags::RELATIME, MsFlags::MS_RELATIME),
    ];
    let kept = flags.iter().filter(|(has, _)| kept.contains(*has)).map(|(_, flag)| *flag);
    let flags = kept.fold(MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY, |all, one| all | one);
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
}

/// Flags of file systems without programs or devices.
pub(crate) fn secure() -> MsFlags {
    MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC
}
