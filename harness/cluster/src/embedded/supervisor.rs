//! Supervises a component, and carries out the disruptions of disruptive cases.
//!
//! One task owns each process. A component that exits unexpectedly is restarted: immediately the first time,
//! then with increasing backoff, as a kubelet restarts a container.

use std::{fs, path::Path, time::Duration};

use claimcheck_csi::tap::without_tokens;
use claimcheck_model::ComponentEnd;
use claimcheck_substrate::{Process, ProcessSpec, SpawnError};
use nix::sys::signal::Signal;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::{info, warn};

use super::last_lines::last_lines;
use crate::{disruption::Disruption, secrets::Secrets};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The uptime after which a component is healthy, and its backoff is reset.
const HEALTHY: Duration = Duration::from_secs(10);
/// The grace period between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// How long a component must run at first before the cluster is ready: the time in which a program with a flag that it
/// does not have, or without a file that it requires, exits.
const STEADY: Duration = Duration::from_millis(500);
/// The same if it has exited before: on a busy machine a program requires longer until it exits again. A stock attacher
/// also exits if its first calls last longer than a second; it runs for longer than this, and is given more attempts.
const STEADY_AGAIN: Duration = Duration::from_secs(2);

/// The running binary: the program of built-in components. The link, not its target: a program that was rebuilt meanwhile
/// has no path.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// A supervised component. Dropping it kills the process and ends the supervision.
#[derive(Debug)]
pub struct Supervised {
    spec: ProcessSpec,
    orders: mpsc::UnboundedSender<(Disruption, oneshot::Sender<()>)>,
    pid: watch::Receiver<Option<u32>>,
    failures: watch::Receiver<u32>,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Starts a component. Unexpected exits are sent to `ends`.
    ///
    /// # Errors
    /// The program, or its log, cannot be opened.
    pub fn start(spec: ProcessSpec, ends: mpsc::UnboundedSender<ComponentEnd>) -> Result<Self, SpawnError> {
        let process = spec.spawn()?;
        let (orders, taken) = mpsc::unbounded_channel();
        let (sender, pid) = watch::channel(process.pid());
        let (tell_failures, failures) = watch::channel(0);
        let supervisor = Supervisor {
            spec: spec.clone(),
            extra_args: &[],
            orders: taken,
            pid: sender,
            failures: tell_failures,
            ends,
        };
        let task = tokio::spawn(supervisor.run(process));
        Ok(Self { spec, orders, pid, failures, task })
    }

    /// Its name in logs.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Whether it is a built-in component.
    pub(crate) fn is_builtin(&self) -> bool {
        is_builtin(&self.spec)
    }

    /// The current command line, as in a shell, without secrets.
    pub fn command_line(&self) -> String {
        let words = std::iter::once(self.spec.program.display().to_string())
            .chain(self.spec.args.iter().map(|word| word.display().to_string()));
        let line = hidden(&self.spec).hide(&words.map(quoted).collect::<Vec<_>>().join(" "));
        // A variable may have a secret under any name.
        self.spec.filter.as_ref().map_or(line.clone(), |filter| filter.apply(&line))
    }

    /// The last lines of its output, with the secrets of its command line redacted; empty without output.
    pub fn last_lines(&self) -> String {
        last_output(&self.spec)
    }

    /// The file with its output.
    pub(crate) fn log(&self) -> &Path {
        &self.spec.log
    }

    /// Its whole output, with the secrets of its command line redacted.
    pub(crate) fn output(&self) -> String {
        // The output of a vendor's driver need not be UTF-8.
        let log = fs::read(&self.spec.log).unwrap_or_default();
        hidden(&self.spec).hide(&String::from_utf8_lossy(&log))
    }

    /// Its process id; `None` while it is down.
    pub fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// Resolves once the component has exited unexpectedly this many times in a row.
    pub async fn has_failed(&self, times: u32) {
        let mut failures = self.failures.clone();
        if failures.wait_for(|failures| *failures >= times).await.is_err() {
            // It is no longer supervised, so it will not be restarted.
            std::future::pending().await
        }
    }

    /// Resolves once the component has run for half a second, or for two seconds if it has exited before.
    pub async fn is_steady(&self) {
        let (mut failures, mut enough) = (self.failures.clone(), STEADY);
        while let Ok(changed) = timeout(enough, failures.changed()).await {
            enough = STEADY_AGAIN;
            if changed.is_err() {
                // It is no longer supervised, so it will not be restarted.
                std::future::pending().await
            }
        }
    }

    /// Carries out a disruption; returns once the old process has exited, or the new one is started.
    pub async fn disrupt(&self, disruption: Disruption) {
        let (done, carried_out) = oneshot::channel();
        if self.orders.send((disruption, done)).is_ok() {
            let _ = carried_out.await;
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Supervisor {
    spec: ProcessSpec,
    /// Arguments in addition to those of the spec.
    extra_args: &'static [&'static str],
    orders: mpsc::UnboundedReceiver<(Disruption, oneshot::Sender<()>)>,
    pid: watch::Sender<Option<u32>>,
    /// The number of unexpected exits in a row.
    failures: watch::Sender<u32>,
    ends: mpsc::UnboundedSender<ComponentEnd>,
}

/// The action after the exit of a process.
enum Next {
    Restart,
    StayDown,
}

impl Supervisor {
    async fn run(mut self, process: Process) {
        let mut current = Some(process);
        loop {
            current = match current {
                Some(process) => match self.watch_over(process).await {
                    Some(Next::Restart) => self.restart().await,
                    Some(Next::StayDown) => None,
                    None => return,
                },
                None => match self.orders.recv().await {
                    Some((
                        order @ (Disruption::Start | Disruption::Kill | Disruption::Configure(_)),
                        done,
                    )) => {
                        if let Disruption::Configure(extra_args) = order {
                            self.extra_args = extra_args;
                        }
                        let process = self.restart().await;
                        let _ = done.send(());
                        process
                    }
                    Some((Disruption::Stop | Disruption::Pause | Disruption::Resume, done)) => {
                        let _ = done.send(());
                        None
                    }
                    None => return,
                },
            };
        }
    }

    /// Waits until the process has exited; `None` if it is no longer supervised.
    async fn watch_over(&mut self, mut process: Process) -> Option<Next> {
        let started = Instant::now();
        loop {
            let (disruption, done) = tokio::select! {
                status = process.wait() => {
                    let _ = self.pid.send(None);
                    self.emit_end(status.map_or_else(|error| error.to_string(), |status| status.to_string()));
                    let healthy = started.elapsed() > HEALTHY;
                    self.failures.send_modify(|failures| *failures = if healthy { 0 } else { *failures + 1 });
                    return Some(Next::Restart);
                }
                order = self.orders.recv() => order?,
            };
            info!(component = process.name(), ?disruption, "disrupting component");
            let next = match disruption {
                Disruption::Kill => {
                    process.signal(Signal::SIGKILL);
                    let _ = process.wait().await;
                    Some(Next::Restart)
                }
                Disruption::Stop => {
                    stop(&mut process).await;
                    Some(Next::StayDown)
                }
                Disruption::Pause => {
                    process.signal(Signal::SIGSTOP);
                    None
                }
                Disruption::Resume => {
                    process.signal(Signal::SIGCONT);
                    None
                }
                Disruption::Configure(extra_args) => {
                    self.extra_args = extra_args;
                    stop(&mut process).await;
                    Some(Next::Restart)
                }
                Disruption::Start => None,
            };
            if next.is_some() {
                let _ = self.pid.send(None);
            }
            let _ = done.send(());
            if next.is_some() {
                return next;
            }
        }
    }

    /// Reports an unexpected exit.
    fn emit_end(&self, status: String) {
        let spec = &self.spec;
        warn!(component = spec.name, status, "exited unexpectedly, restarting");
        let last_lines = last_output(spec).lines().map(str::to_owned).collect();
        // Without listeners the event is dropped.
        let (component, builtin) = (spec.name.clone(), is_builtin(spec));
        let _ = self.ends.send(ComponentEnd { component, status, last_lines, builtin });
    }

    /// Starts the component; `None` if it was stopped before it could be started.
    async fn restart(&mut self) -> Option<Process> {
        loop {
            let failures = *self.failures.borrow();
            if failures > 1 {
                let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 2).min(16)).min(LONGEST_PAUSE);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    Some((Disruption::Stop, done)) = self.orders.recv() => {
                        let _ = done.send(());
                        return None;
                    }
                }
            }
            let mut spec = self.spec.clone();
            spec.args.extend(self.extra_args.iter().map(Into::into));
            match spec.spawn() {
                Ok(process) => {
                    let _ = self.pid.send(process.pid());
                    return Some(process);
                }
                Err(error) => {
                    warn!(%error, "restart failed");
                    self.failures.send_modify(|failures| *failures += 1);
                }
            }
        }
    }
}

fn is_builtin(spec: &ProcessSpec) -> bool {
    spec.program == Path::new(OURSELVES)
}

/// The secrets of its command line.
fn hidden(spec: &ProcessSpec) -> Secrets {
    Secrets::of(spec.args.iter().filter_map(|word| word.to_str()))
}

pub(crate) fn last_output(spec: &ProcessSpec) -> String {
    without_tokens(&hidden(spec).hide(&last_lines(&spec.log))).into_owned()
}

fn quoted(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@{}+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{word}'") }
}

/// SIGTERM, and SIGKILL after the grace period.
pub(crate) async fn stop(process: &mut Process) {
    // A stopped process would not handle it.
    process.signal(Signal::SIGCONT);
    process.signal(Signal::SIGTERM);
    if timeout(GRACE, process.wait()).await.is_err() {
        process.signal(Signal::SIGKILL);
        let _ = process.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_exited_component_is_reported_without_secrets_and_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo \"cannot log in with $2\" >&2; exit 3";
        let spec = shell(folder.path(), script);
        let (sender, mut ends) = mpsc::unbounded_channel();
        let component = Supervised::start(spec, sender).unwrap();
        component.has_failed(2).await;
        for _ in 0..2 {
            let end = ends.recv().await.unwrap();
            assert_eq!((end.component.as_str(), end.status.as_str()), ("driver node-1", "exit status: 3"));
            assert_eq!(end.last_lines.last().unwrap(), "cannot log in with ***");
        }
        assert!(component.command_line().ends_with("sh --password ***"), "{}", component.command_line());
        assert!(!component.last_lines().contains("hunter2"));
    }

    #[tokio::test]
    async fn a_component_that_exits_is_not_steady() {
        let folder = tempfile::tempdir().unwrap();
        let start = |script: &str| {
            let (sender, ends) = mpsc::unbounded_channel();
            (Supervised::start(shell(folder.path(), script), sender).unwrap(), ends)
        };
        let (component, _ends) = start("exec sleep 600");
        component.is_steady().await;
        // After the first time, as slowly as on a busy machine.
        let (component, _ends) = start("if [ -e $0 ]; then sleep 0.7; fi; touch $0; exit 3");
        tokio::select! {
            () = component.is_steady() => panic!("it keeps exiting"),
            () = component.has_failed(3) => {}
        }
    }

    fn shell(folder: &Path, script: &str) -> ProcessSpec {
        ProcessSpec {
            name: "driver node-1".to_owned(),
            program: "sh".into(),
            args: vec![
                "-c".into(),
                script.into(),
                folder.join("sh").into(),
                "--password".into(),
                "hunter2".into(),
            ],
            env: Vec::new(),
            log: folder.join("driver-node-1.log"),
            filter: None,
            namespace: None,
            run_directory: None,
            capabilities: claimcheck_substrate::Capabilities::All,
        }
    }
}
