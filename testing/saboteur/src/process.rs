//! `claimcheck saboteur`: the driver as a child process, and the proxy at its endpoint.

use std::{
    ffi::OsString,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use claimcheck_csi::{Endpoint, Server};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    defects::defect,
    proxy::{Control, Proxy, Sabotaged},
};

/// How long the driver may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// Arguments of the saboteur.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The defect: see docs/defects.md
    #[arg(long, value_name = "NAME")]
    defect: String,
    /// The socket to listen on, which callers know as the driver's
    #[arg(long, value_name = "ENDPOINT", value_parser = Endpoint::parse)]
    listen: Endpoint,
    /// The socket on which the driver listens
    #[arg(long, value_name = "ENDPOINT", value_parser = Endpoint::parse)]
    driver: Endpoint,
    /// The file in which all processes of the driver keep what has happened
    #[arg(long, value_name = "FILE")]
    memory: PathBuf,
    /// The driver's program and arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The process of the driver.
static DRIVER: OnceLock<Pid> = OnceLock::new();

impl Args {
    /// Starts the driver, and serves its endpoint until SIGTERM or SIGINT, or until the driver exits. Must be called on
    /// the main thread, which must outlive the driver.
    ///
    /// # Errors
    /// The driver cannot be started or fails, or the socket cannot be served.
    pub fn run(self) -> Result<()> {
        let defect = defect(&self.defect)?;
        let (program, arguments) = self.command.split_first().context("the driver's command is missing")?;
        // This program's own path is that of setpriv once setpriv runs.
        let program = match program.to_str() {
            Some("/proc/self/exe") => format!("/proc/{}/exe", std::process::id()).into(),
            _ => program.clone(),
        };
        if !is_free(&self.driver) {
            bail!("another driver still listens at {}: end it first", self.driver);
        }
        // The kernel ends the driver with this process, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&program).args(arguments);
        let mut driver = command.spawn().with_context(|| {
            format!("cannot start {} with setpriv (Debian package util-linux)", program.display())
        })?;
        let pid = i32::try_from(driver.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("the driver has no process id")?;
        let _ = DRIVER.set(pid);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let served = runtime.block_on(async {
            let proxy =
                Proxy::new(defect, &self.memory, &self.driver, &self.listen, Some(Control { kill, stop }))?;
            let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            let server = Server::listen(&self.listen).await?;
            tokio::select! {
                served = server.serve_any(Sabotaged(Arc::new(proxy)), std::future::pending()) => served?,
                status = exited(&mut driver) => bail!("the driver ended with {}", status?),
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            anyhow::Ok(())
        });
        // An error means that it has exited.
        let _ = kill_process(pid, Signal::TERM);
        let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE, exited(&mut driver)).await });
        if ended.is_err() {
            let _ = driver.kill();
        }
        served
    }
}

/// Waits until no driver listens on an endpoint. If a saboteur was killed, the kernel then kills its driver, but no process
/// waits for that; a driver that is started meanwhile could not listen. False if a driver still listens.
fn is_free(endpoint: &Endpoint) -> bool {
    let Endpoint::Unix(path) = endpoint else { return true };
    let limit = Instant::now() + PATIENCE;
    while UnixStream::connect(path).is_ok() {
        if Instant::now() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Resolves when the driver has exited.
async fn exited(driver: &mut Child) -> Result<std::process::ExitStatus> {
    loop {
        if let Some(status) = driver.try_wait()? {
            return Ok(status);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kills the driver and this process, as if the driver had been killed.
fn kill() {
    if let Some(pid) = DRIVER.get() {
        let _ = kill_process(*pid, Signal::KILL);
    }
    std::process::exit(137)
}

/// Stops the driver and this process.
fn stop() {
    for pid in DRIVER.get().copied().into_iter().chain([getpid()]) {
        let _ = kill_process(pid, Signal::STOP);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_driver_is_started_once_the_one_before_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csi.sock");
        let before = UnixListener::bind(&path).unwrap();
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(before);
            Instant::now()
        });
        assert!(is_free(&Endpoint::Unix(path)));
        assert!(Instant::now() >= ends.join().unwrap());
    }
}
