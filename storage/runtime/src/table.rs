//! The zygote's table: the containers of a node, their processes, and what signals do to them.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::fd::OwnedFd,
};

use claimcheck_model::Stamp;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    Exit, State,
    exec::{self, Program},
    protocol::Container,
};

/// The containers of the node, and which process belongs to which.
#[derive(Default)]
pub(crate) struct Table {
    containers: BTreeMap<String, State>,
    /// What further programs of a running container inherit.
    specs: HashMap<String, Container>,
    by_pid: HashMap<i32, String>,
    /// Killed in place of another signal, since the kernel ignores its default action for a namespace's first
    /// process.
    by_default: HashMap<i32, Signal>,
}

impl Table {
    pub fn contains(&self, id: &str) -> bool {
        self.containers.contains_key(id)
    }

    pub fn list(&self) -> Vec<(String, State)> {
        self.containers.iter().map(|(id, state)| (id.clone(), *state)).collect()
    }

    pub fn insert(&mut self, container: Container, pid: Pid) {
        let (id, pid) = (container.id.clone(), pid.as_raw());
        self.containers.insert(id.clone(), State::Running { pid, started: Stamp::now() });
        self.by_pid.insert(pid, id.clone());
        self.specs.insert(id, container);
    }

    pub fn exec(
        &self,
        id: &str,
        argv: Vec<String>,
        terminal: bool,
        fds: Vec<OwnedFd>,
    ) -> Result<(Pid, OwnedFd), String> {
        let (pid, container) = match (self.containers.get(id), self.specs.get(id)) {
            (Some(State::Running { pid, .. }), Some(container)) => (*pid, container),
            (Some(_), _) => return Err("is not running".to_owned()),
            (None, _) => return Err("is unknown".to_owned()),
        };
        let count = fds.len();
        let stdio: [OwnedFd; 3] =
            fds.try_into().map_err(|_| format!("a program requires 3 descriptors, not {count}"))?;
        // Not reaped yet, so the number is still its own.
        exec::fork(pid, container, &Program { argv, stdio, terminal })
            .map_err(|error| format!("cannot fork into it: {error}"))
    }

    /// A signal has the same effect on a container as on any process, as if it had a small init: the kernel
    /// ignores signals that would end a PID namespace's first process by default, and a shell that has not
    /// reached its `trap` yet would use up its whole grace period. Checking its handlers costs one read when it
    /// is stopped, while an init would cost a fork and a process for its lifetime.
    pub fn signal(&mut self, id: &str, signal: i32) -> Result<(), String> {
        match self.containers.get(id) {
            None => Err("is unknown".to_owned()),
            Some(State::Exited { .. }) => Ok(()),
            Some(State::Running { pid, .. }) => {
                let signal = Signal::try_from(signal).map_err(|_| format!("{signal} is not a signal"))?;
                // Not reaped yet, so the number is still its own.
                let sent = if ends_by_default(signal) && !is_handled(*pid, signal) {
                    self.by_default.insert(*pid, signal);
                    Signal::SIGKILL
                } else {
                    signal
                };
                kill(Pid::from_raw(*pid), sent).map_err(|error| format!("cannot send {signal}: {error}"))
            }
        }
    }

    /// Forgets a container that failed before its program ran.
    pub fn forget(&mut self, id: &str, pid: Pid) {
        self.containers.remove(id);
        self.specs.remove(id);
        self.by_pid.remove(&pid.as_raw());
    }

    pub fn remove(&mut self, id: &str) -> Result<(), String> {
        if matches!(self.containers.get(id), Some(State::Running { .. })) {
            return Err("it is still running: stop it first".to_owned());
        }
        self.containers.remove(id);
        Ok(())
    }

    pub fn exited(&mut self, pid: Pid, exit: Exit) -> Option<(String, State)> {
        let id = self.by_pid.remove(&pid.as_raw())?;
        let exit = match (self.by_default.remove(&pid.as_raw()), exit) {
            (Some(signal), Exit::Signal(_)) => Exit::Signal(signal as i32),
            _ => exit,
        };
        self.specs.remove(&id);
        let state = self.containers.get_mut(&id)?;
        let (State::Running { started, .. } | State::Exited { started, .. }) = *state;
        *state = State::Exited { exit, started, finished: Stamp::now() };
        Some((id, *state))
    }
}

/// Whether the signal's default action ends a process (signal(7)).
fn ends_by_default(signal: Signal) -> bool {
    use Signal::{SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    !matches!(signal, SIGCHLD | SIGCONT | SIGKILL | SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU | SIGURG | SIGWINCH)
}

/// Whether a process blocks, ignores or catches a signal (proc_pid_status(5)). If that is unknown, yes is
/// assumed, which leaves the decision to the kernel.
fn is_handled(pid: i32, signal: Signal) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    handles(&status, signal)
}

fn handles(status: &str, signal: Signal) -> bool {
    let bit = 1u64 << (signal as i32 - 1);
    let masks = status.lines().filter_map(|line| {
        let (name, mask) = line.split_once(':')?;
        ["SigBlk", "SigIgn", "SigCgt"].contains(&name).then(|| u64::from_str_radix(mask.trim(), 16))
    });
    let mut known = false;
    for mask in masks {
        match mask {
            Ok(mask) if mask & bit == 0 => known = true,
            Ok(_) | Err(_) => return true,
        }
    }
    !known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_handles_is_read_from_its_status() {
        let status = |blocked: &str, ignored: &str, caught: &str| {
            format!("Name:\tsh\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        let none = "0000000000000000";
        let term = "0000000000004000";
        let rows = [
            (status(none, none, none), false),
            (status(term, none, none), true),
            (status(none, term, none), true),
            (status(none, none, term), true),
            (status(none, "0000000000000006", none), false),
            (status(none, none, "nonsense"), true),
            ("Name:\tsh\n".to_owned(), true),
        ];
        for (status, expected) in rows {
            assert_eq!(handles(&status, Signal::SIGTERM), expected, "{status}");
        }
        // Whoever started this test may have had it ignored.
        let own_status = fs::read_to_string("/proc/self/status").unwrap();
        let expected = handles(&own_status, Signal::SIGTERM);
        assert_eq!(is_handled(std::process::id() as i32, Signal::SIGTERM), expected, "{own_status}");
        assert!(is_handled(0, Signal::SIGTERM), "there is no such process");
    }
}
