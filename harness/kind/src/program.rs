//! Runs external programs: returns their output, or an error.
//!
//! Each runs in its own process group, so that Ctrl-C reaches only this process, which controls the order of shutdown.
//! A dropped call kills the whole group: `kind` starts child processes.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    process::{Child, Command},
};
use tracing::debug;

use super::remedy;

/// How many of a program's last lines are quoted in an error.
const LAST_LINES: usize = 12;

/// The search path of programs, and their additional environment variables.
#[derive(Clone, Debug)]
pub struct Tools {
    path: OsString,
    provider: Option<String>,
    environment: Vec<(String, OsString)>,
}

impl Tools {
    /// Those of this process: `PATH`, and the engine in `KIND_EXPERIMENTAL_PROVIDER`.
    pub fn from_environment() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let provider = std::env::var("KIND_EXPERIMENTAL_PROVIDER").ok().filter(|name| !name.is_empty());
        Self { path, provider, environment: Vec::new() }
    }

    /// With `path` (directories separated by colons) and the engine of this name; without one, the default
    /// of `kind` itself.
    pub fn on(path: impl Into<OsString>, provider: Option<&str>) -> Self {
        Self { path: path.into(), provider: provider.map(str::to_owned), environment: Vec::new() }
    }

    /// Adds an environment variable for programs.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// The requested engine.
    pub(super) fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// Finds a program.
    ///
    /// # Errors
    /// It is missing; `remedy` describes how to install it.
    pub(super) fn find(&self, name: &str, remedy: &'static str) -> Result<Program, ProgramError> {
        let found = std::env::split_paths(&self.path).map(|folder| folder.join(name)).find(|file| runs(file));
        let missing = || ProgramError::Missing { program: name.to_owned(), remedy };
        let mut environment = self.environment.clone();
        environment.push(("PATH".to_owned(), self.path.clone()));
        Ok(Program { name: name.to_owned(), file: found.ok_or_else(missing)?, environment })
    }
}

fn runs(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// An existing program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    name: String,
    file: PathBuf,
    environment: Vec<(String, OsString)>,
}

/// A program failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is missing.
    #[error("{program} is not on the PATH: {remedy}")]
    Missing {
        /// Its name.
        program: String,
        /// How to install it.
        remedy: &'static str,
    },
    /// It cannot be started.
    #[error("{} cannot be started", .program.display())]
    Start {
        /// The file.
        program: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It exited with an error.
    #[error("`{command}` failed ({status}){}{}", quoted(.stderr), advice(.remedy))]
    Failed {
        /// Program and arguments.
        command: String,
        /// The exit status.
        status: ExitStatus,
        /// The last lines of its standard error.
        stderr: Vec<String>,
        /// The remedy, if known.
        remedy: Option<&'static str>,
    },
    /// It hung, and was killed.
    #[error("`{command}` did not exit within {} s, and was killed{}", .limit.as_secs(), quoted(.stderr))]
    TimedOut {
        /// Program and arguments.
        command: String,
        /// The timeout.
        limit: Duration,
        /// The last lines of its standard error.
        stderr: Vec<String>,
    },
    /// Its output is not as expected.
    #[error("`{command}` returned {answer:?}: expected {expected}")]
    Answer {
        /// Program and arguments.
        command: String,
        /// Its output.
        answer: String,
        /// The expected output.
        expected: &'static str,
    },
}

fn quoted(stderr: &[String]) -> String {
    stderr.iter().fold(String::new(), |mut text, line| {
        let _ = write!(text, "\n    {line}");
        text
    })
}

fn advice(remedy: &Option<&'static str>) -> String {
    remedy.map(|remedy| format!("\n  {remedy}")).unwrap_or_default()
}

impl ProgramError {
    /// The remedy, if known.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Missing { remedy, .. } => Some(remedy),
            Self::Failed { remedy, .. } => *remedy,
            Self::Start { .. } | Self::TimedOut { .. } | Self::Answer { .. } => None,
        }
    }

    /// The last line of its output.
    pub fn gist(&self) -> String {
        match self {
            Self::Failed { stderr, .. } | Self::TimedOut { stderr, .. } if !stderr.is_empty() => {
                stderr[stderr.len() - 1].clone()
            }
            other => other.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    }
}

impl Program {
    /// Its name, as requested.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds an environment variable.
    pub(super) fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// The command line.
    pub(super) fn line<A: AsRef<OsStr>>(&self, args: &[A]) -> String {
        args.iter().fold(self.name.clone(), |line, arg| {
            let arg = arg.as_ref().to_string_lossy();
            let plain = |c: char| c.is_alphanumeric() || "-_./:=,@+%".contains(c);
            let arg = if !arg.is_empty() && arg.chars().all(plain) { arg } else { format!("'{arg}'").into() };
            format!("{line} {arg}")
        })
    }

    fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> std::process::Command {
        let mut command = std::process::Command::new(&self.file);
        command.args(args).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// Runs it to completion and returns its standard output. Dropping the future kills it.
    ///
    /// # Errors
    /// It cannot be started, fails, or does not exit within `limit`.
    pub(super) async fn call<A: AsRef<OsStr>>(
        &self,
        args: &[A],
        limit: Duration,
    ) -> Result<String, ProgramError> {
        debug!(command = self.line(args), "running");
        let mut command = Command::from(self.command(args));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().map_err(|source| self.unstartable(source))?;
        let mut group = Group(child);
        let (mut stderr, mut answer) = (VecDeque::new(), Vec::new());
        let (out, err) = (group.0.stdout.take(), group.0.stderr.take());
        let ended = tokio::time::timeout(limit, async {
            let (.., status) =
                tokio::join!(gather(out, &mut answer), listen(&self.name, err, &mut stderr), group.0.wait());
            status
        });
        let status = ended.await;
        let stderr = Vec::from(stderr);
        match status {
            Ok(Ok(status)) if status.success() => Ok(String::from_utf8_lossy(&answer).into_owned()),
            Ok(Ok(status)) => Err(self.failed(args, status, stderr)),
            Ok(Err(source)) => Err(self.unstartable(source)),
            Err(_) => Err(ProgramError::TimedOut { command: self.line(args), limit, stderr }),
        }
    }

    fn unstartable(&self, source: io::Error) -> ProgramError {
        ProgramError::Start { program: self.file.clone(), source }
    }

    fn failed<A: AsRef<OsStr>>(&self, args: &[A], status: ExitStatus, stderr: Vec<String>) -> ProgramError {
        let remedy = remedy::for_stderr(&stderr);
        ProgramError::Failed { command: self.line(args), status, stderr, remedy }
    }

    /// Unexpected output.
    pub(super) fn strange<A: AsRef<OsStr>>(
        &self,
        args: &[A],
        answer: &str,
        expected: &'static str,
    ) -> ProgramError {
        ProgramError::Answer { command: self.line(args), answer: answer.trim().to_owned(), expected }
    }
}

/// A child that leads a process group, which is killed with it.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Until it has been waited for, its process id cannot be reused.
        if let Some(leader) = self.0.id().and_then(|id| i32::try_from(id).ok()) {
            // An error means that no process is left.
            let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
        }
    }
}

async fn gather(out: Option<impl AsyncRead + Unpin>, answer: &mut Vec<u8>) {
    if let Some(mut out) = out {
        // A broken pipe is treated like end of file.
        let _ = out.read_to_end(answer).await;
    }
}

/// Keeps the last non-empty lines.
async fn listen(program: &str, err: Option<impl AsyncRead + Unpin>, stderr: &mut VecDeque<String>) {
    let Some(err) = err else { return };
    let (mut reader, mut line) = (BufReader::new(err), Vec::new());
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if text.trim().is_empty() {
            continue;
        }
        debug!(program, text, "says");
        if stderr.len() == LAST_LINES {
            stderr.pop_front();
        }
        stderr.push_back(text);
    }
}
