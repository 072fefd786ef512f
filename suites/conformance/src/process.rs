//! The driver process, if claimcheck starts it, and its restart.

use std::{
    ffi::OsString,
    fs::File,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use claimcheck_files::append_private;
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::{
    process::{Child, Command},
    sync::Mutex,
    time::timeout,
};

/// Time for a process to exit after its connections are closed.
const MOMENT: Duration = Duration::from_millis(100);

/// A driver started by claimcheck: in a separate process group, with its output in a file.
#[derive(Debug)]
pub struct DriverProcess {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    log: PathBuf,
    child: Option<Child>,
}

/// The driver cannot be started.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// No such program, or not to be executed.
    #[error("cannot start the driver ({}): check that it exists and may be executed", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Its log file cannot be written.
    #[error("cannot write the driver's output to {}", .path.display())]
    Log {
        /// The log file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The command that restarts it failed.
    #[error("--restart-command ended with {0}")]
    Command(ExitStatus),
    /// It could not be run.
    #[error("--restart-command cannot be run")]
    Shell(#[source] io::Error),
}

impl DriverProcess {
    /// Starts it, with these variables in addition to those of this process; `log` is appended to.
    ///
    /// # Errors
    /// The program or the log cannot be opened.
    pub fn start(
        program: PathBuf,
        args: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        log: PathBuf,
    ) -> Result<Self, ProcessError> {
        let mut process = Self { program, args, env, log, child: None };
        process.spawn()?;
        Ok(process)
    }

    fn spawn(&mut self) -> Result<(), ProcessError> {
        let log = |path: &PathBuf| -> io::Result<(File, File)> {
            let log = append_private(path)?;
            Ok((log.try_clone()?, log))
        };
        let (output, errors) =
            log(&self.log).map_err(|source| ProcessError::Log { path: self.log.clone(), source })?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(output).stderr(errors);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.process_group(0).kill_on_drop(true);
        let started = command.spawn();
        let program = self.program.clone();
        self.child = Some(started.map_err(|source| ProcessError::Start { program, source })?);
        Ok(())
    }

    /// Kills its process group with SIGKILL, and starts it again.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn restart(&mut self) -> Result<(), ProcessError> {
        self.kill();
        if let Some(mut child) = self.child.take() {
            // It was killed; its exit status is irrelevant.
            let _ = child.wait().await;
        }
        self.spawn()
    }

    /// The process id; none once it has exited.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// The exit status, if it has exited. An exiting process closes its connections first, so after a `lost` call it
    /// is awaited briefly.
    pub async fn ended(&mut self, lost: bool) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        match lost {
            true => timeout(MOMENT, child.wait()).await.ok()?.ok(),
            false => child.try_wait().ok()?,
        }
    }

    fn kill(&self) {
        let pid = self.child.as_ref().and_then(Child::id).and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            // Not reaped yet, so the id is still valid; an error means that the whole group has exited.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a driver is restarted.
#[derive(Clone, Debug)]
pub enum Restart {
    /// Processes started by claimcheck.
    Processes(Arc<Mutex<Vec<DriverProcess>>>),
    /// A shell command.
    Command(String),
}

impl Restart {
    /// Kills and starts the driver. Returns before it listens.
    ///
    /// # Errors
    /// It cannot be started, or the command fails.
    pub async fn restart(&self) -> Result<(), ProcessError> {
        match self {
            Self::Processes(processes) => {
                for process in processes.lock().await.iter_mut() {
                    process.restart().await?;
                }
                Ok(())
            }
            Self::Command(command) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null());
                let status = shell.status().await.map_err(ProcessError::Shell)?;
                if status.success() { Ok(()) } else { Err(ProcessError::Command(status)) }
            }
        }
    }
}
