//! The container's side: from the fork to its program.
//!
//! Runs in the child, PID 1 of a new PID namespace and alone in a copy of the template's mount
//! namespace. The zygote has one thread, so the child may allocate.

use std::{
    convert::Infallible,
    ffi::CString,
    fs,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{MetadataExt, symlink},
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::CloneFlags,
    sys::{
        signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask},
        statvfs::{FsFlags, statvfs},
    },
    unistd::{
        Gid, Pid, Uid, chdir, execve, pipe2, pivot_root, setgid, setgroups, sethostname, setsid, setuid,
    },
};
use rustix::{
    fs::CWD,
    mount::{MoveMountFlags, move_mount},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

use crate::{
    protocol::{Container, Target},
    template,
};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Forks a container. Its program has started when the returned pipe ends; data read before that is the error.
pub(crate) fn fork(container: &Container, fds: Vec<OwnedFd>) -> io::Result<(Pid, OwnedFd)> {
    let (why, fails) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS;
    match clone(namespaces)? {
        Some(child) => Ok((child, why)),
        None => {
            let Err(failure) = become_program(container, fds);
            let _ = fs::File::from(fails).write_all(failure.as_bytes());
            std::process::exit(127)
        }
    }
}

#[expect(unsafe_code, reason = "fork and unshare in one call exist only as the raw system call")]
pub(crate) fn clone(namespaces: CloneFlags) -> io::Result<Option<Pid>> {
    let flags = i64::from(namespaces.bits() | nix::libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with no stack this is fork(2); the zygote has one thread, so the
    // child finds no lock held by another.
    let pid = unsafe { nix::libc::syscall(nix::libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(Pid::from_raw(i32::try_from(pid).expect("a process id fits i32")))),
    }
}

/// Adds the attempted operation to an error.
pub(crate) trait Doing<T> {
    fn doing(self, what: &str) -> Result<T, String>;
}

impl<T, E: std::fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: &str) -> Result<T, String> {
        self.map_err(|error| format!("cannot {what}: {error}"))
    }
}

fn become_program(container: &Container, mut fds: Vec<OwnedFd>) -> Result<Infallible, String> {
    let _ = setsid();
    signals().doing("reset signals")?;
    sethostname(&container.hostname).doing("set the host name")?;
    let tmp = Some("mode=1777,size=64m");
    mount(Some("tmp"), "/tmp", Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, tmp)
        .doing("mount /tmp")?;
    mount(Some("proc"), "/proc", Some("proc"), template::secure(), None::<&str>).doing("mount /proc")?;
    let log = fds.remove(0);
    if container.mounts.iter().any(is_other_below_root) {
        own_root().doing("make a root for this container")?;
    }
    for target in &container.mounts {
        make_room(target)?;
    }
    for (target, fd) in container.mounts.iter().zip(fds) {
        attach(target, fd)?;
    }
    template::read_only(Path::new("/")).doing("protect the root")?;
    let null = fs::File::open("/dev/null").doing("open /dev/null")?;
    dup2_stdin(&null).doing("set standard input")?;
    dup2_stdout(&log).doing("set standard output")?;
    dup2_stderr(&log).doing("set standard error")?;
    chdir(container.cwd.as_str()).doing(&format!("enter working directory {}", container.cwd))?;
    identity(container)?;
    execute(&container.argv, &container.env)
}

pub(crate) fn signals() -> nix::Result<()> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    // Rust ignores SIGPIPE, and an ignored signal stays so over exec.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    set_action(Signal::SIGPIPE, &default)
}

#[expect(unsafe_code, reason = "sigaction is unsafe for the sake of handlers, and this sets none")]
fn set_action(signal: Signal, action: &SigAction) -> nix::Result<()> {
    // SAFETY: the default action runs no user code.
    unsafe { sigaction(signal, action) }.map(drop)
}

/// Whether an earlier container needed a file where this one needs a directory, or the reverse, directly below the root.
fn is_other_below_root(target: &Target) -> bool {
    let path = Path::new(&target.path);
    let root = Path::new("/");
    let found = |path: &Path| fs::metadata(path).ok();
    match (path.parent(), found(path), found(root)) {
        (Some(parent), Some(present), Some(top)) => {
            parent == root && present.dev() == top.dev() && present.is_dir() != target.directory
        }
        _ => false,
    }
}

/// Replaces the shared root by a tmpfs of this container, without the mount points of other containers.
fn own_root() -> io::Result<()> {
    // Never removed: removing a directory unmounts what other namespaces have mounted there.
    let aside = Path::new("/.room");
    fs::create_dir_all(aside)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("pod"), aside, Some("tmpfs"), flags, Some("mode=755,size=1m"))?;
    let shared = fs::metadata("/")?.dev();
    copy_mounts(Path::new("/"), aside, shared)?;
    fs::create_dir(aside.join("dev"))?;
    copy_mounts(Path::new("/dev"), &aside.join("dev"), shared)?;
    chdir(aside)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    Ok(())
}

/// Binds to `to` what is mounted in a folder, and copies its symbolic links. The rest, which is on the device `shared`,
/// was created for other containers.
fn copy_mounts(from: &Path, to: &Path, shared: u64) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_symlink() {
            symlink(fs::read_link(entry.path())?, &to)?;
            continue;
        }
        // Not that of the entry, which is below the mount.
        let found = fs::metadata(entry.path())?;
        if found.dev() != shared && entry.path() != Path::new("/.room") {
            bind(&entry.path(), &to, found.is_dir())?;
        }
    }
    Ok(())
}

/// Binds a file or a directory with what is mounted below it to a new path.
fn bind(from: &Path, to: &Path, is_dir: bool) -> io::Result<()> {
    match is_dir {
        true => fs::create_dir(to)?,
        false => fs::write(to, "")?,
    }
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
    Ok(())
}

/// The root of containers is one tmpfs shared by a node: a path that is a directory in one container cannot be
/// a file in another. Then that path gets a separate tmpfs in this container. So does a path below a directory of the
/// host, which is read-only: an image's `/opt` may be a mount point's parent, whatever the host has there.
fn make_room(target: &Target) -> Result<(), String> {
    let path = Path::new(&target.path);
    let what = format!("make a mount point at {}", target.path);
    let Ok(found) = fs::metadata(path) else {
        let existing = path.ancestors().skip(1).find(|ancestor| ancestor.is_dir());
        let Some(parent) = existing.filter(|parent| *parent != Path::new("/")) else { return Ok(()) };
        let flags = statvfs(parent).doing(&what)?.flags();
        return match flags.contains(FsFlags::ST_RDONLY) {
            true => mirror(parent).doing(&what),
            false => Ok(()),
        };
    };
    let is_other = found.is_dir() != target.directory;
    let Some(parent) = path.parent().filter(|parent| is_other && *parent != Path::new("/")) else {
        return Ok(());
    };
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    // What the node itself has there must not be hidden: then mounting fails with an error.
    if device(parent).doing(&what)? == device(Path::new("/")).doing(&what)? {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("room"), parent, Some("tmpfs"), flags, Some("size=64k")).doing(&what)?;
    }
    Ok(())
}

/// Covers a directory by a tmpfs with the same entries, so that more can be added.
fn mirror(directory: &Path) -> io::Result<()> {
    let entries: Vec<fs::DirEntry> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    // Built aside, since the directory is hidden as soon as it is covered.
    let aside = Path::new("/tmp/.room");
    fs::create_dir(aside)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("room"), aside, Some("tmpfs"), flags, Some("mode=755,size=1m"))?;
    for entry in entries {
        let to = aside.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &to)?;
            continue;
        }
        bind(&entry.path(), &to, kind.is_dir())?;
        template::read_only(&to)?;
    }
    mount(Some(aside), directory, None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
    fs::remove_dir(aside)
}

fn attach(target: &Target, fd: OwnedFd) -> Result<(), String> {
    let path = Path::new(&target.path);
    let what = format!("make mount point {}", target.path);
    if target.directory {
        fs::create_dir_all(path).doing(&what)?;
    } else {
        path.parent().map_or(Ok(()), fs::create_dir_all).doing(&what)?;
        if !path.exists() {
            fs::write(path, "").doing(&what)?;
        }
    }
    move_mount(fd.as_fd(), c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .doing(&format!("mount {}", target.path))?;
    if target.read_only {
        template::read_only(path).doing(&format!("protect {}", target.path))?;
    }
    Ok(())
}

pub(crate) fn identity(container: &Container) -> Result<(), String> {
    if (container.uid, container.gid) == (0, 0) && container.groups.is_empty() {
        return Ok(());
    }
    let groups: Vec<Gid> = container.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).doing("set supplementary groups")?;
    setgid(Gid::from_raw(container.gid)).doing(&format!("become group {}", container.gid))?;
    setuid(Uid::from_raw(container.uid)).doing(&format!("become user {}", container.uid))
}

pub(crate) fn execute(argv: &[String], env: &[(String, String)]) -> Result<Infallible, String> {
    let program = argv.first().ok_or("no command given")?;
    let given = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    let path = given.unwrap_or(DEFAULT_PATH);
    let mut env: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if given.is_none() {
        env.push(format!("PATH={DEFAULT_PATH}"));
    }
    let strings =
        |list: &[String]| list.iter().map(|s| CString::new(s.as_str())).collect::<Result<Vec<_>, _>>();
    let argv = strings(argv).doing("pass an argument with a NUL byte")?;
    let env = strings(&env).doing("pass an environment variable with a NUL byte")?;
    let file = if program.contains('/') {
        program.clone()
    } else {
        let mut found = path.split(':').map(|dir| format!("{dir}/{program}"));
        found.find(|file| Path::new(file).is_file()).ok_or(format!("{program} is not in {path}"))?
    };
    let file = CString::new(file).doing("run a program with a NUL byte in its name")?;
    execve(&file, &argv, &env).doing(&format!("run {program}"))
}

/// Why a container did not start: `None` while the pipe is open, empty if its program runs.
pub(crate) fn failure(why: &OwnedFd) -> Option<String> {
    let mut buffer = [0; 4096];
    match nix::unistd::read(why.as_fd(), &mut buffer) {
        Ok(length) => Some(String::from_utf8_lossy(&buffer[..length]).into_owned()),
        Err(Errno::EAGAIN | Errno::EINTR) => None,
        Err(error) => Some(format!("cannot watch its start: {error}")),
    }
}
