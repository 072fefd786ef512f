//! PID 1 of the private namespace: builds its root, forks the worker process, and reaps.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    process,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl::set_pdeathsig,
        signal::{SigSet, SigmaskHow, Signal, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid},
};

use crate::{
    Privilege, capabilities,
    isolate::{IsolateError, forward, map_user, system},
    root,
};

/// Returns in the worker; init itself never does.
pub(crate) fn become_init(
    privilege: Privilege,
    (uid, gid): (u32, u32),
    lifeline: OwnedFd,
    signals: &SigSet,
) -> Result<(), IsolateError> {
    if privilege == Privilege::User {
        map_user(uid, gid)?;
    }
    // After the user map, which clears it. The outer process has one thread, so its thread's death is
    // its own.
    set_pdeathsig(Signal::SIGKILL).map_err(system("ask for the death signal"))?;
    root::build()?;
    capabilities::drop_unneeded();
    match fork().map_err(system("fork"))? {
        ForkResult::Child => {
            drop(lifeline);
            sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(signals), None).map_err(system("unblock signals"))
        }
        ForkResult::Parent { child } => match reap(child, &lifeline, signals) {
            Ok(code) => process::exit(code),
            Err(error) => {
                eprintln!("claimcheck: init of the private namespace failed: {error}");
                process::exit(3)
            }
        },
    }
}

#[expect(unsafe_code, reason = "fork is unsafe where threads exist")]
fn fork() -> nix::Result<ForkResult> {
    // SAFETY: this process has one thread.
    unsafe { nix::unistd::fork() }
}

/// Waits for the worker, and for orphans of components and pods, which would stay zombies.
fn reap(worker: Pid, lifeline: &OwnedFd, signals: &SigSet) -> io::Result<i32> {
    let signals = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(lifeline.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if fds[1].any().unwrap_or(false) {
            // The outer process is gone. It died between fork and set_pdeathsig.
            return Ok(3);
        }
        while let Some(info) = signals.read_signal()? {
            if info.ssi_signo != Signal::SIGCHLD as u32 {
                forward(worker, info.ssi_signo, info.ssi_code);
            }
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == worker => return Ok(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == worker => return Ok(128 + signal as i32),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
