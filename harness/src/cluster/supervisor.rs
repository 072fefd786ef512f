//! Keeps a component running, and does to it what a disruptive case asks for.
//!
//! One task owns each process. A component that dies unasked is started again: at once the first time,
//! then with a growing pause, as a kubelet restarts a container.

use std::{fs, path::Path, time::Duration};

use claimcheck_substrate::{Process, ProcessSpec};
use nix::sys::signal::Signal;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};
use tracing::{info, warn};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Having run this long, a component is healthy: its next restart is at once again.
const HEALTHY: Duration = Duration::from_secs(10);
/// What a component gets between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// How many lines say why a component does not run.
const LAST_LINES: usize = 5;

/// What can be done to a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// SIGKILL; it is started again at once.
    Kill,
    /// SIGTERM, and it stays down until [`Disruption::Start`].
    Stop,
    /// Starts it after [`Disruption::Stop`].
    Start,
    /// SIGSTOP: it hangs.
    Pause,
    /// SIGCONT.
    Resume,
    /// Ends it in order and starts it with these further arguments; with none, as it was at first.
    Configure(&'static [&'static str]),
}

/// A component under supervision. Dropping it kills the process and ends the supervision.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    orders: mpsc::UnboundedSender<(Disruption, oneshot::Sender<()>)>,
    pid: watch::Receiver<Option<u32>>,
    failures: watch::Receiver<u32>,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Takes over a started process; `spec` starts it again.
    pub fn new(spec: ProcessSpec, process: Process) -> Self {
        let name = spec.name.clone();
        let (orders, taken) = mpsc::unbounded_channel();
        let (tell, pid) = watch::channel(process.pid());
        let (tell_failures, failures) = watch::channel(0);
        let supervisor = Supervisor { spec, further: &[], orders: taken, pid: tell, failures: tell_failures };
        let task = tokio::spawn(supervisor.run(process));
        Self { name, orders, pid, failures, task }
    }

    /// Its name in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id; `None` while it is down.
    pub fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// Resolves once the component has ended by itself this many times in a row.
    pub async fn has_failed(&self, times: u32) {
        let mut failures = self.failures.clone();
        if failures.wait_for(|failures| *failures >= times).await.is_err() {
            // Nobody supervises it any more, so it will not be started again.
            std::future::pending().await
        }
    }

    /// Carries out a disruption; returns once the old process is gone, or the new one is started.
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
    /// Arguments beside those of the spec.
    further: &'static [&'static str],
    orders: mpsc::UnboundedReceiver<(Disruption, oneshot::Sender<()>)>,
    pid: watch::Sender<Option<u32>>,
    /// How often it has ended by itself in a row.
    failures: watch::Sender<u32>,
}

/// What follows an ended process.
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
                        if let Disruption::Configure(further) = order {
                            self.further = further;
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

    /// Until the process has ended; `None` where nobody supervises any more.
    async fn watch_over(&mut self, mut process: Process) -> Option<Next> {
        let started = Instant::now();
        loop {
            let (disruption, done) = tokio::select! {
                status = process.wait() => {
                    warn!(component = process.name(), ?status, "ended by itself, and is started again");
                    let _ = self.pid.send(None);
                    let healthy = started.elapsed() > HEALTHY;
                    self.failures.send_modify(|failures| *failures = if healthy { 0 } else { *failures + 1 });
                    return Some(Next::Restart);
                }
                order = self.orders.recv() => order?,
            };
            info!(component = process.name(), ?disruption, "is disrupted");
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
                Disruption::Configure(further) => {
                    self.further = further;
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

    /// Starts the component; `None` where an order to stay down came before it could be started.
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
            spec.args.extend(self.further.iter().map(Into::into));
            match spec.spawn() {
                Ok(process) => {
                    let _ = self.pid.send(process.pid());
                    return Some(process);
                }
                Err(error) => {
                    warn!(%error, "cannot be started again");
                    self.failures.send_modify(|failures| *failures += 1);
                }
            }
        }
    }
}

/// What a component that does not run has written last; empty where it wrote nothing.
pub(super) fn last_lines(log: &Path) -> String {
    let said = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// SIGTERM, and SIGKILL after the grace.
pub(crate) async fn stop(process: &mut Process) {
    // A stopped process would not see it.
    process.signal(Signal::SIGCONT);
    process.signal(Signal::SIGTERM);
    if tokio::time::timeout(GRACE, process.wait()).await.is_err() {
        process.signal(Signal::SIGKILL);
        let _ = process.wait().await;
    }
}
