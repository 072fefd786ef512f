//! Programs of a test, which end with it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{Options, PrepareError, Prepared, preparing};

/// The lines of each log that are printed if a program does not start.
const LAST_LINES: usize = 30;

/// Running programs with their logs in one folder. Dropping it kills them, the last one first: the clients of etcd
/// precede it.
pub struct Programs {
    logs: PathBuf,
    running: Vec<(String, Child)>,
}

impl Drop for Programs {
    fn drop(&mut self) {
        for (_, program) in self.running.iter_mut().rev() {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl Programs {
    /// Starts etcd and kube-apiserver from the folder `assets`; they may not be ready yet.
    ///
    /// # Errors
    /// They cannot be prepared or started.
    pub fn start(assets: &Path, folder: &Path, options: &Options) -> Result<(Self, Prepared), PrepareError> {
        let prepared = Prepared::new(folder, options)?;
        let mut programs =
            Self { logs: options.logs.clone().unwrap_or_else(|| folder.to_owned()), running: Vec::new() };
        programs.spawn(&assets.join("etcd"), "etcd", &prepared.etcd, &[])?;
        programs.spawn(&assets.join("kube-apiserver"), "kube-apiserver", &prepared.apiserver, &[])?;
        Ok((programs, prepared))
    }

    /// Starts a program, with a log of this name, that the kernel kills with the calling thread, however that ends.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(
        &mut self,
        program: &Path,
        name: &str,
        arguments: &[String],
        env: &[(&str, &str)],
    ) -> Result<(), PrepareError> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments).envs(env.iter().copied());
        let mut start = || {
            let log = File::create(self.logs.join(format!("{name}.log")))?;
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
        };
        self.running.push((name.to_owned(), start().map_err(preparing(program.display()))?));
        Ok(())
    }

    /// The programs that have exited, with their statuses.
    pub fn ended(&mut self) -> Vec<String> {
        let ended = self.running.iter_mut().filter_map(|(name, program)| match program.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("{name} ({status})")),
            Err(error) => Some(format!("{name} ({error})")),
        });
        ended.collect()
    }

    /// The last lines of all logs.
    pub fn last_lines(&self) -> String {
        let logs = self.running.iter().map(|(name, _)| {
            let log = fs::read(self.logs.join(format!("{name}.log"))).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            format!("\nlast lines of {name}:\n{}", lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"))
        });
        logs.collect()
    }
}
