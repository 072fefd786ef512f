//! A further program in a running container: the fork into its namespaces.
//!
//! A process enters another PID namespace only by being forked into it. So the zygote selects the container's namespace
//! for its next child and selects its own again after the fork: the program is a child of the zygote, which reaps
//! it like a container, without a process in between. Mounts and host name are entered by the child.

use std::{
    convert::Infallible,
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

use nix::{
    fcntl::OFlag,
    sched::{CloneFlags, setns},
    unistd::{Pid, chdir, pipe2, setsid},
};
use rustix::{
    process::ioctl_tiocsctty,
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin},
};

use crate::{
    container::{self, Doing},
    protocol::Container,
};

/// A program to start.
pub(crate) struct Program {
    pub argv: Vec<String>,
    pub stdio: [OwnedFd; 3],
    pub terminal: bool,
}

/// The namespaces that a program enters itself.
struct Namespaces {
    mounts: File,
    names: File,
}

/// Forks a program into the container of process `init`, which has not been reaped. The program has started when the
/// returned pipe ends; data read before that is the error.
///
/// # Panics
/// If the zygote cannot select its own PID namespace again: later containers would be part of this one.
pub(crate) fn fork(init: i32, container: &Container, program: &Program) -> io::Result<(Pid, OwnedFd)> {
    let open = |of: &str, namespace: &str| File::open(format!("/proc/{of}/ns/{namespace}"));
    let of = init.to_string();
    let own = open("self", "pid")?;
    let processes = open(&of, "pid")?;
    let namespaces = Namespaces { mounts: open(&of, "mnt")?, names: open(&of, "uts")? };
    let (reason, fails) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    setns(&processes, CloneFlags::CLONE_NEWPID)?;
    let forked = container::clone(CloneFlags::empty());
    if let Ok(None) = forked {
        let Err(failure) = become_program(container, program, &namespaces);
        let _ = File::from(fails).write_all(failure.as_bytes());
        std::process::exit(127)
    }
    setns(&own, CloneFlags::CLONE_NEWPID).expect("a process may select the PID namespace that it is in");
    let child = forked?.expect("the child has executed its program or exited");
    Ok((child, reason))
}

fn become_program(
    container: &Container,
    program: &Program,
    namespaces: &Namespaces,
) -> Result<Infallible, String> {
    let _ = setsid();
    container::signals().doing("reset signals")?;
    setns(&namespaces.names, CloneFlags::CLONE_NEWUTS).doing("enter the container's host name")?;
    // Its root becomes that of the container.
    setns(&namespaces.mounts, CloneFlags::CLONE_NEWNS).doing("enter the container's mounts")?;
    let [input, output, error] = &program.stdio;
    dup2_stdin(input).doing("set standard input")?;
    dup2_stdout(output).doing("set standard output")?;
    dup2_stderr(error).doing("set standard error")?;
    if program.terminal {
        ioctl_tiocsctty(stdin()).doing("control the terminal")?;
    }
    chdir(container.cwd.as_str()).doing(&format!("enter working directory {}", container.cwd))?;
    container::identity(container)?;
    container::execute(&program.argv, &container.env)
}
