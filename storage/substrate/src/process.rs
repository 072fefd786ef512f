//! Components as processes: each in a session of its own, so that Ctrl-C reaches them only through the harness,
//! and those of a node in that node's mount namespace.

use std::{
    env,
    ffi::{CString, OsString},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use claimcheck_files::append_private;
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::{Pid, chdir, setsid},
};
use tokio::{
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    Capabilities, RunDirectory,
    output::{LineFilter, filtered},
};

/// The limit for the output that a process has left in its pipe.
const REST_OF_OUTPUT: Duration = Duration::from_millis(500);

/// A node's mount namespace, held open.
#[derive(Clone, Debug)]
pub struct NodeNamespace(Arc<File>);

impl NodeNamespace {
    /// The mount namespace of process `pid`.
    ///
    /// # Errors
    /// If the process has exited.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self(Arc::new(File::open(format!("/proc/{pid}/ns/mnt"))?)))
    }
}

/// Specification of a process.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// For logs and errors: `driver on node-1`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Added to the inherited environment.
    pub env: Vec<(String, OsString)>,
    /// The file to which standard output and error are appended.
    pub log: PathBuf,
    /// What is logged in place of each line; the process writes into the file itself if absent.
    pub filter: Option<LineFilter>,
    /// The node's namespace; the run's own if absent.
    pub namespace: Option<NodeNamespace>,
    /// A `/run` of its own; that of the namespace if absent.
    pub run_directory: Option<RunDirectory>,
    /// Its capabilities, in a run as root.
    pub capabilities: Capabilities,
}

/// A component cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {name} ({program}): {hint}")]
pub struct SpawnError {
    name: String,
    program: PathBuf,
    hint: &'static str,
    #[source]
    source: io::Error,
}

/// A running component. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Writes its log.
    output: Option<JoinHandle<()>>,
}

impl ProcessSpec {
    /// Starts it, with its output in the log.
    ///
    /// # Errors
    /// If the program or the log cannot be opened.
    pub fn spawn(&self) -> Result<Process, SpawnError> {
        let log =
            append_private(&self.log).map_err(|source| self.error("its log cannot be opened", source))?;
        let (log, output) = match &self.filter {
            None => (OwnedFd::from(log), None),
            Some(filter) => {
                let piped = filtered(log, filter.clone());
                let (end, task) = piped.map_err(|source| self.error("its log cannot be filtered", source))?;
                (end, Some(task))
            }
        };
        let errors = log.try_clone().map_err(|source| self.error("its log cannot be shared", source))?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        Ok(Process { output, ..self.start(command)? })
    }

    /// Starts it with standard input and output as pipes, for a handshake; errors go to the log.
    ///
    /// # Errors
    /// If the program or the log cannot be opened.
    pub fn spawn_piped(&self) -> Result<Process, SpawnError> {
        let log =
            append_private(&self.log).map_err(|source| self.error("its log cannot be opened", source))?;
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        self.start(command)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(k, v)| (k, v))).kill_on_drop(true);
        prepare(&mut command, self.namespace.clone(), self.run_directory.clone(), self.capabilities);
        command
    }

    fn start(&self, mut command: Command) -> Result<Process, SpawnError> {
        let child = command.spawn().map_err(|source| {
            // Only the mounts before the program require permissions.
            let is_mount = self.run_directory.is_some() && source.raw_os_error() == Some(nix::libc::EPERM);
            let hint = match is_mount {
                true => "its own /var/run/secrets with a service account cannot be mounted here: run as root",
                false => "check that it exists and is executable",
            };
            self.error(hint, source)
        })?;
        Ok(Process { name: self.name.clone(), child, output: None })
    }

    fn error(&self, hint: &'static str, source: io::Error) -> SpawnError {
        SpawnError { name: self.name.clone(), program: self.program.clone(), hint, source }
    }
}

#[expect(unsafe_code, reason = "what runs between fork and exec cannot be checked by the compiler")]
fn prepare(
    command: &mut Command,
    namespace: Option<NodeNamespace>,
    run_directory: Option<RunDirectory>,
    capabilities: Capabilities,
) {
    let here = env::current_dir().ok().and_then(|here| CString::new(here.into_os_string().into_vec()).ok());
    let enter = move || {
        setsid()?;
        if let Some(NodeNamespace(file)) = &namespace {
            setns(file, CloneFlags::CLONE_NEWNS)?;
            // That led to the root, and a vendor's command line may name files from here. A node that lacks the
            // directory is no reason not to start.
            if let Some(here) = &here {
                let _ = chdir(here.as_c_str());
            }
        }
        if let Some(run_directory) = &run_directory {
            run_directory.enter()?;
        }
        capabilities.limit();
        Ok(())
    };
    // SAFETY: setsid, setns, chdir, unshare, mount and prctl are bare system calls: no allocation, no lock.
    unsafe { command.pre_exec(enter) };
}

impl Process {
    /// Its name in logs and errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id; `None` once it has been waited for.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The pipes of [`ProcessSpec::spawn_piped`]; can be taken once.
    pub fn pipes(&mut self) -> Option<(tokio::process::ChildStdin, tokio::process::ChildStdout)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?))
    }

    /// Sends a signal; does nothing if it has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.id() {
            // Not waited for yet, so the number is still its own.
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Waits for its end, and until its log is written.
    ///
    /// # Errors
    /// If the system call fails.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        if let Some(output) = &mut self.output {
            // A program that it has started may go on writing.
            let _ = timeout(REST_OF_OUTPUT, output).await;
            self.output = None;
        }
        Ok(status)
    }
}
