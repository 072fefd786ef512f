//! The root of the private namespace: a tmpfs with the host's own directories.
//!
//! The host's root itself cannot be used, since `/var/lib/kubelet` and the state directory would have to be
//! created on it. So the root is a tmpfs, every top-level entry of the host's root is bind mounted into it, and
//! if the host has no `/var/lib/kubelet`, `/var` and `/var/lib` are directories of the tmpfs too. Paths are the
//! same inside and outside.

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{chdir, pivot_root},
};

use crate::STATE_DIR;

/// Where drivers and kubelets expect the kubelet's directory.
pub const KUBELET_DIR: &str = "/var/lib/kubelet";
const OLD: &str = "/.host";

/// A failed step of building the private root.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path} for the private root")]
pub struct RootError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Adds the operation and its path to an error.
trait Doing<T> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T, RootError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T, RootError> {
        self.map_err(|error| RootError { what, path: path.to_owned(), source: error.into() })
    }
}

/// Creates the private root and changes into it; the working directory stays the same one.
pub(crate) fn build() -> Result<(), RootError> {
    let here = env::current_dir().doing("find", Path::new("the working directory"))?;
    let old_root = Path::new("/");
    // Slave, not private: what the host mounts later is seen, what we mount is not seen there.
    mount(None::<&str>, old_root, None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
        .doing("detach the mounts below", old_root)?;
    enter_tmpfs()?;
    let host = Path::new(OLD);
    // Before the host's proc is out of sight: a user namespace may mount proc only while it sees one.
    directory(Path::new("/proc"), 0o555)?;
    let secure = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), secure, None::<&str>).doing("mount", Path::new("/proc"))?;
    show_entries(host, Path::new("/"))?;
    umount2(host, MntFlags::MNT_DETACH).doing("leave", host)?;
    fs::remove_dir(host).doing("remove", host)?;
    directory(Path::new(STATE_DIR), 0o755)?;
    chdir(&here).doing("return to", &here)
}

fn enter_tmpfs() -> Result<(), RootError> {
    let at = ["/tmp", "/mnt", "/media", "/srv"].into_iter().find(|dir| Path::new(dir).is_dir());
    let at = Path::new(at.unwrap_or("/proc"));
    mount(Some("claimcheck"), at, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .doing("mount a tmpfs at", at)?;
    let old = at.join(OLD.trim_start_matches('/'));
    directory(&old, 0o755)?;
    // The tmpfs leaves `at` with this: the host's own directory of that name is seen again.
    pivot_root(at, &old).doing("make a root of", at)?;
    chdir("/").doing("enter", Path::new("/"))
}

/// Bind mounts every entry of a host directory into a directory of the private root.
fn show_entries(host: &Path, new_root: &Path) -> Result<(), RootError> {
    let kubelet = Path::new(KUBELET_DIR);
    let make_kubelet_dir = !Path::new(OLD).join(&KUBELET_DIR[1..]).is_dir();
    for entry in fs::read_dir(host).doing("list", host)? {
        let entry = entry.doing("list", host)?;
        let (from, to) = (entry.path(), new_root.join(entry.file_name()));
        if to == Path::new("/proc") {
            continue;
        }
        let kind = entry.file_type().doing("inspect", &from)?;
        if kind.is_dir() && make_kubelet_dir && kubelet.starts_with(&to) {
            directory(&to, 0o755)?;
            show_entries(&from, &to)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&from).doing("read", &from)?, &to).doing("link", &to)?;
        } else if kind.is_dir() {
            directory(&to, 0o755)?;
            bind(&from, &to)?;
        } else if kind.is_file() {
            fs::write(&to, "").doing("make", &to)?;
            bind(&from, &to)?;
        }
    }
    if make_kubelet_dir && kubelet.starts_with(new_root) {
        fs::create_dir_all(kubelet).doing("make", kubelet)?;
    }
    Ok(())
}

/// Makes the mounts below a directory of the private root shared; the directory itself becomes a mount. This is
/// so for the kubelet's directory on a real node, and some drivers check it: `mount propagation is not
/// enabled`.
///
/// # Errors
/// The kernel's.
pub fn share(directory: &Path) -> Result<(), RootError> {
    bind(directory, directory)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_SHARED;
    mount(None::<&str>, directory, None::<&str>, flags, None::<&str>)
        .doing("share the mounts below", directory)
}

fn directory(path: &Path, mode: u32) -> Result<(), RootError> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).doing("make", path)
}

fn bind(from: &Path, to: &Path) -> Result<(), RootError> {
    // Recursive, since a user namespace may not uncover what is mounted below.
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).doing("bind", from)
}
