//! The listener of the tap socket: collects the records of all processes, CSI calls and API writes, sends them fault
//! plans, and waits until all records up to a moment have arrived.

use std::{
    collections::VecDeque,
    io,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use claimcheck_model::ApiWrite;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tracing::{debug, warn};

use super::{fault::FaultPlan, record::TapRecord};
use crate::socket::{BindError, Listener};

/// How long a process may take to put a plan in force.
const ARM_LIMIT: Duration = Duration::from_secs(5);

/// A process's confirmation that it has carried out the last order; its earlier records precede it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Confirmed {
    pub(super) confirmed: bool,
}

/// A line to a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Put this plan in force.
    Faults(FaultPlan),
    /// Only confirm this line.
    Confirm,
}

/// A line from a process.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Record(Box<TapRecord>),
    Write(Box<ApiWrite>),
    Confirmed(Confirmed),
}

/// The listening end of the tap socket.
#[derive(Debug)]
pub struct Telemetry {
    /// The CSI calls of all processes.
    pub records: mpsc::UnboundedReceiver<TapRecord>,
    /// The API writes of the processes that record them.
    pub writes: mpsc::UnboundedReceiver<ApiWrite>,
    /// Sets the faults of all processes.
    pub faults: FaultControl,
    /// Waits for the records of all processes.
    pub barrier: Barrier,
}

/// The senders to both receivers of a [`Telemetry`].
#[derive(Clone, Debug)]
struct Senders {
    records: mpsc::UnboundedSender<TapRecord>,
    writes: mpsc::UnboundedSender<ApiWrite>,
}

impl Senders {
    /// Waits until both receivers are dropped.
    async fn closed(&self) {
        self.records.closed().await;
        self.writes.closed().await;
    }
}

/// Listens at `path` for the records of every process that connects.
///
/// Records of one process arrive in order; those of different processes are ordered by their timestamps, not by
/// arrival. A partial line of a killed process is dropped. Dropping both receivers ends listening and removes the
/// socket file. Must be called within a tokio runtime.
///
/// # Errors
/// If the socket cannot be made; see [`BindError`].
pub fn listen(path: &Path) -> Result<Telemetry, BindError> {
    let listener = Listener::bind(path)?;
    let (to_records, records) = mpsc::unbounded_channel();
    let (to_writes, writes) = mpsc::unbounded_channel();
    let faults = FaultControl::default();
    let (queries, queried) = mpsc::unbounded_channel();
    let senders = Senders { records: to_records, writes: to_writes };
    tokio::spawn(accept(listener, senders, faults.clone(), queried));
    Ok(Telemetry { records, writes, faults, barrier: Barrier(queries) })
}

/// Waits until all records have arrived that processes had written at a moment; clones wait for the same.
#[derive(Clone, Debug)]
pub struct Barrier(mpsc::UnboundedSender<oneshot::Sender<Vec<Awaited>>>);

/// A process that is to confirm that its earlier records precede the confirmation.
#[derive(Debug)]
struct Awaited {
    process: Peer,
    confirmation: mpsc::Receiver<()>,
}

impl Barrier {
    /// Returns once all records are in [`Telemetry::records`] that any process had written before this call: each
    /// confirms it in its stream of records. The stream of a process that has exited is read to its end.
    ///
    /// # Errors
    /// The processes that did not confirm in time.
    pub async fn reach(&self, timeout: Duration) -> Result<(), Vec<String>> {
        let deadline = Instant::now() + timeout;
        let (query, processes) = oneshot::channel();
        // Without a listener, no record is written any more.
        let (Ok(()), Ok(processes)) = (self.0.send(query), processes.await) else { return Ok(()) };
        let mut missing = Vec::new();
        for Awaited { process, mut confirmation } in processes {
            // Nothing is ever sent: it returns when the sender is dropped.
            if timeout_at(deadline, confirmation.recv()).await.is_err() {
                missing.push(process.describe());
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}

/// Sets the faults of all processes at the tap socket; clones control the same.
#[derive(Clone, Debug, Default)]
pub struct FaultControl(Arc<Mutex<Control>>);

#[derive(Debug, Default)]
struct Control {
    plan: FaultPlan,
    connections: Vec<Connection>,
}

/// A connected process.
#[derive(Debug)]
struct Connection {
    process: Peer,
    commands: mpsc::UnboundedSender<Command>,
}

/// How a process is named in messages.
#[derive(Clone, Debug, Default)]
struct Peer {
    pid: Option<i32>,
    /// The component of its first record.
    component: Arc<OnceLock<String>>,
}

impl Peer {
    fn describe(&self) -> String {
        let pid = self.pid.map_or_else(String::new, |pid| format!("process {pid}"));
        match self.component.get() {
            Some(component) => format!("{component} ({pid})"),
            None => pid,
        }
    }
}

/// An order on its way to one process. `done` is dropped when it is confirmed, or the process has exited.
#[derive(Debug)]
struct Command {
    order: Order,
    done: mpsc::Sender<()>,
}

impl FaultControl {
    /// Replaces the plan everywhere and returns once every connected process has it in force.
    ///
    /// Processes that connect later receive it too, but may make a call before it arrives; where that matters,
    /// start them with `CLAIMCHECK_FAULTS`. Each process counts for itself; a rule that was in force before
    /// keeps its count.
    pub async fn set(&self, plan: FaultPlan) {
        let (done, mut all_done) = mpsc::channel(1);
        {
            let mut control = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            control.plan = plan.clone();
            control.connections.retain(|connection| {
                let (order, done) = (Order::Faults(plan.clone()), done.clone());
                connection.commands.send(Command { order, done }).is_ok()
            });
        }
        drop(done);
        // Nothing is ever sent: it answers when the last sender is gone.
        if tokio::time::timeout(ARM_LIMIT, all_done.recv()).await.is_err() {
            warn!("a process did not confirm its fault plan within {ARM_LIMIT:?}");
        }
    }

    /// Removes all faults, as [`Self::set`] with an empty plan.
    pub async fn clear(&self) {
        self.set(FaultPlan::default()).await;
    }

    /// A new process: its commands from now on, the first of which is the plan in force, if any.
    fn register(&self, process: Peer) -> mpsc::UnboundedReceiver<Command> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let mut control = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !control.plan.rules.is_empty() {
            let command = Command { order: Order::Faults(control.plan.clone()), done: mpsc::channel(1).0 };
            commands.send(command).expect("the receiver is held here");
        }
        control.connections.push(Connection { process, commands });
        receiver
    }

    /// Requests a confirmation of every connected process. One that has exited is awaited, too, as long as its stream is
    /// not read to the end.
    fn confirmations(&self) -> Vec<Awaited> {
        let mut control = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut awaited = Vec::new();
        control.connections.retain(|Connection { process, commands }| {
            let (done, confirmation) = mpsc::channel(1);
            let sent = commands.send(Command { order: Order::Confirm, done }).is_ok();
            if sent {
                awaited.push(Awaited { process: process.clone(), confirmation });
            }
            sent
        });
        awaited
    }
}

async fn accept(
    mut listener: Listener,
    senders: Senders,
    control: FaultControl,
    mut queries: mpsc::UnboundedReceiver<oneshot::Sender<Vec<Awaited>>>,
) {
    let begin = |accepted: io::Result<UnixStream>| match accepted {
        Ok(stream) => {
            let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
            let process = Peer { pid, ..Peer::default() };
            let commands = control.register(process.clone());
            tokio::spawn(attend(stream, senders.clone(), process, commands));
        }
        Err(error) => warn!(%error, "a process could not connect to the tap"),
    };
    loop {
        tokio::select! {
            () = senders.closed() => return,
            accepted = listener.accept() => begin(accepted),
            Some(query) = queries.recv() => {
                // A process may have connected and recorded calls that is not accepted yet.
                while let Some(accepted) = listener.accept_pending().transpose() {
                    let failed = accepted.is_err();
                    begin(accepted);
                    if failed {
                        break;
                    }
                }
                // The caller may have given up.
                let _ = query.send(control.confirmations());
            }
        }
    }
}

/// One process, from its connection to its end.
async fn attend(
    stream: UnixStream,
    senders: Senders,
    process: Peer,
    commands: mpsc::UnboundedReceiver<Command>,
) {
    let (read, write) = stream.into_split();
    if let Err(error) = exchange(read, write, &senders, &process, commands).await {
        debug!(%error, "a process disconnected from the tap");
    }
}

async fn exchange(
    read: OwnedReadHalf,
    mut write: OwnedWriteHalf,
    senders: &Senders,
    process: &Peer,
    mut commands: mpsc::UnboundedReceiver<Command>,
) -> io::Result<()> {
    let mut lines = BufReader::new(read).lines();
    let mut unconfirmed = VecDeque::new();
    loop {
        tokio::select! {
            () = senders.closed() => return Ok(()),
            Some(command) = commands.recv() => {
                let mut line = serde_json::to_vec(&command.order)?;
                line.push(b'\n');
                // A process that has exited reads nothing, but what it wrote before remains to be read.
                if let Err(error) = write.write_all(&line).await {
                    debug!(%error, "a process reads no orders");
                }
                unconfirmed.push_back(command.done);
            }
            line = lines.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                match serde_json::from_str(&line) {
                    Ok(Line::Record(record)) => {
                        process.component.get_or_init(|| record.component.clone());
                        drop(senders.records.send(*record));
                    }
                    Ok(Line::Write(write)) => drop(senders.writes.send(*write)),
                    Ok(Line::Confirmed(Confirmed { .. })) => drop(unconfirmed.pop_front()),
                    Err(error) => debug!(%error, "ignoring a partial line from a process"),
                }
            }
        }
    }
}
