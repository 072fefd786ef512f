//! From the process that the shell started to the one that may create threads.

use std::{fs, io, os::fd::AsFd, process};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::CloneFlags,
    sys::{
        signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, getegid, geteuid, pipe2},
};

use crate::{Privilege, init, root::RootError};

/// Signals that end a run; forwarded down the tree.
pub(crate) const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Why the private namespaces cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// The kernel rejects the namespaces.
    #[error(
        "cannot make private namespaces ({0}): run as root, or permit user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces, \
         kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    Namespaces(Errno),
    /// The user namespace rejects the user id.
    #[error("cannot map user {uid} into the private user namespace")]
    UserMap {
        /// The current user.
        uid: u32,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The private root cannot be built.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A basic system call failed.
    #[error("cannot {0} for the private namespaces")]
    System(&'static str, #[source] io::Error),
}

/// Moves the rest of this process into private namespaces.
///
/// Returns only in the worker process; the processes above it wait here and exit with its status. Must be
/// called before any thread exists.
///
/// # Errors
/// If the host does not permit it. The caller reports the error and exits, and its status is passed on as any
/// other.
pub fn isolate() -> Result<Privilege, IsolateError> {
    // Held open by the outer process alone: its end notifies init that no process waits any more.
    let (lifeline, held) = pipe2(OFlag::O_CLOEXEC).map_err(system("make a pipe"))?;
    // Before the fork, so that no signal is lost in between.
    let signals = block(&ENDING).map_err(system("block signals"))?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let (privilege, child) = clone_into_namespaces()?;
    match child {
        ForkResult::Child => {
            drop(held);
            init::become_init(privilege, (uid, gid), lifeline, &signals)?;
            Ok(privilege)
        }
        ForkResult::Parent { child } => {
            drop(lifeline);
            wait(child)
        }
    }
}

pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> IsolateError {
    move |error| IsolateError::System(what, error.into())
}

/// Blocks signals and returns the set, for a [`SignalFd`].
pub(crate) fn block(signals: &[Signal]) -> nix::Result<SigSet> {
    let set: SigSet = signals.iter().copied().chain([Signal::SIGCHLD]).collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    Ok(set)
}

/// Tries with the present privileges, then with a user namespace: trying is the only test that is reliable in
/// containers as well.
fn clone_into_namespaces() -> Result<(Privilege, ForkResult), IsolateError> {
    let plain = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    match clone(plain) {
        Ok(child) => Ok((Privilege::Root, child)),
        Err(Errno::EPERM) => clone(plain | CloneFlags::CLONE_NEWUSER)
            .map(|child| (Privilege::User, child))
            .map_err(IsolateError::Namespaces),
        Err(errno) => Err(IsolateError::Namespaces(errno)),
    }
}

#[expect(unsafe_code, reason = "fork and unshare in one call exist only as the raw system call")]
fn clone(namespaces: CloneFlags) -> nix::Result<ForkResult> {
    let flags = i64::from(namespaces.bits() | nix::libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with no stack this is fork(2), and this process has one thread.
    let pid = Errno::result(unsafe { nix::libc::syscall(nix::libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok(match i32::try_from(pid).expect("a process id fits i32") {
        0 => ForkResult::Child,
        pid => ForkResult::Parent { child: Pid::from_raw(pid) },
    })
}

/// The outer process: forwards signals to the worker and returns its exit status.
fn wait(init: Pid) -> ! {
    match supervise(init) {
        Ok(code) => process::exit(code),
        Err(error) => {
            eprintln!("claimcheck: lost its private namespace: {error}");
            process::exit(3)
        }
    }
}

fn supervise(init: Pid) -> io::Result<i32> {
    let set = ENDING.iter().copied().chain([Signal::SIGCHLD]).collect::<SigSet>();
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?;
    loop {
        match poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let Some(info) = signals.read_signal()? else { continue };
        if info.ssi_signo != Signal::SIGCHLD as u32 {
            forward(init, info.ssi_signo, info.ssi_code);
            continue;
        }
        return Ok(match waitpid(init, None)? {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => end_alike(signal),
            _ => continue,
        });
    }
}

/// A signal from a terminal has reached the whole process group already; one that was sent to this
/// process alone has not.
pub(crate) fn forward(to: Pid, signal: u32, code: i32) {
    const SI_KERNEL: i32 = 0x80;
    if code != SI_KERNEL
        && let Ok(signal) = Signal::try_from(signal.cast_signed())
    {
        let _ = kill(to, signal);
    }
}

/// Init was killed by a signal: exit by the same signal, so that the shell sees the real cause.
fn end_alike(signal: Signal) -> i32 {
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&SigSet::from(signal)), None);
    let _ = raise(signal);
    128 + signal as i32
}

/// Maps the current user to root of the user namespace.
pub(crate) fn map_user(uid: u32, gid: u32) -> Result<(), IsolateError> {
    let write = |file: &str, text: String| {
        fs::write(file, text).map_err(|source| IsolateError::UserMap { uid, source })
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}
