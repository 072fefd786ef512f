//! The driver's process, where we start it, and how it is started anew.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::{
    process::{Child, Command},
    sync::Mutex,
    time::timeout,
};

/// How long a process may take to end after its connections have.
const MOMENT: Duration = Duration::from_millis(100);

/// A driver that we start: in a process group of its own, its output in a file.
#[derive(Debug)]
pub struct DriverProcess {
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    child: Option<Child>,
}

/// The driver cannot be started.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// No such program, or not to be executed.
    #[error("cannot start the driver ({}): check that it exists and may be executed", .program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its output has no place to go.
    #[error("cannot write the driver's output to {}", .path.display())]
    Log {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The command that restarts it failed.
    #[error("--restart-command ended with {0}")]
    Command(ExitStatus),
    /// It could not be run at all.
    #[error("--restart-command cannot be run")]
    Shell(#[source] io::Error),
}

impl DriverProcess {
    /// Starts it; `log` is appended to.
    ///
    /// # Errors
    /// The program or the log cannot be opened.
    pub fn start(program: PathBuf, args: Vec<OsString>, log: PathBuf) -> Result<Self, ProcessError> {
        let mut process = Self { program, args, log, child: None };
        process.spawn()?;
        Ok(process)
    }

    fn spawn(&mut self) -> Result<(), ProcessError> {
        let log = |path: &PathBuf| -> io::Result<(File, File)> {
            let log = OpenOptions::new().create(true).append(true).open(path)?;
            Ok((log.try_clone()?, log))
        };
        let (output, errors) =
            log(&self.log).map_err(|source| ProcessError::Log { path: self.log.clone(), source })?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(output).stderr(errors);
        command.process_group(0).kill_on_drop(true);
        let started = command.spawn();
        let program = self.program.clone();
        self.child = Some(started.map_err(|source| ProcessError::Start { program, source })?);
        Ok(())
    }

    /// Kills it as a power failure would, with all that it started, and starts it again.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn restart(&mut self) -> Result<(), ProcessError> {
        self.kill();
        if let Some(mut child) = self.child.take() {
            // It is dead or dying: what there is to know of it is that it is gone.
            let _ = child.wait().await;
        }
        self.spawn()
    }

    /// Its number; none once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// Why it does not run, if it has ended. One that is about to end closes its connections first: after a
    /// `lost` call it is given a moment.
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
            // Not waited for yet, so the number is still its group's; an error says that all of it is gone.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a driver is started anew.
#[derive(Clone, Debug)]
pub enum Restart {
    /// These are ours.
    Processes(Arc<Mutex<Vec<DriverProcess>>>),
    /// A shell command does it.
    Command(String),
}

impl Restart {
    /// Kills the driver and starts it. Returns before it listens.
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
