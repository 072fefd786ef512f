//! The listener of the tap socket: collects the records of all processes, CSI calls and API writes, and sends them
//! fault plans.

use std::{
    collections::VecDeque,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
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
    sync::mpsc,
};
use tracing::{debug, warn};

use super::{fault::FaultPlan, record::TapRecord};
use crate::socket::{BindError, Listener};

/// How long a process may take to put a plan in force.
const ARM_LIMIT: Duration = Duration::from_secs(5);

/// A process's confirmation that the last plan is in force.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultsArmed {
    pub(super) armed: bool,
}

/// A line from a process.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Record(Box<TapRecord>),
    Write(Box<ApiWrite>),
    Armed(FaultsArmed),
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
    tokio::spawn(accept(listener, Senders { records: to_records, writes: to_writes }, faults.clone()));
    Ok(Telemetry { records, writes, faults })
}

/// Sets the faults of all processes at the tap socket; clones control the same.
#[derive(Clone, Debug, Default)]
pub struct FaultControl(Arc<Mutex<Control>>);

#[derive(Debug, Default)]
struct Control {
    plan: FaultPlan,
    connections: Vec<mpsc::UnboundedSender<Command>>,
}

/// A plan on its way to one process. `done` is dropped when it is in force there, or the process has exited.
#[derive(Clone, Debug)]
struct Command {
    plan: FaultPlan,
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
            let command = Command { plan, done };
            control.connections.retain(|connection| connection.send(command.clone()).is_ok());
        }
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
    fn register(&self) -> mpsc::UnboundedReceiver<Command> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut control = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !control.plan.rules.is_empty() {
            let command = Command { plan: control.plan.clone(), done: mpsc::channel(1).0 };
            sender.send(command).expect("the receiver is held here");
        }
        control.connections.push(sender);
        receiver
    }
}

async fn accept(mut listener: Listener, senders: Senders, control: FaultControl) {
    loop {
        tokio::select! {
            () = senders.closed() => return,
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    let commands = control.register();
                    tokio::spawn(attend(stream, senders.clone(), commands));
                }
                Err(error) => warn!(%error, "a process could not connect to the tap"),
            },
        }
    }
}

/// One process, from its connection to its end.
async fn attend(stream: UnixStream, senders: Senders, commands: mpsc::UnboundedReceiver<Command>) {
    let (read, write) = stream.into_split();
    if let Err(error) = exchange(read, write, &senders, commands).await {
        debug!(%error, "a process disconnected from the tap");
    }
}

async fn exchange(
    read: OwnedReadHalf,
    mut write: OwnedWriteHalf,
    senders: &Senders,
    mut commands: mpsc::UnboundedReceiver<Command>,
) -> io::Result<()> {
    let mut lines = BufReader::new(read).lines();
    let mut unconfirmed = VecDeque::new();
    loop {
        tokio::select! {
            () = senders.closed() => return Ok(()),
            Some(command) = commands.recv() => {
                let mut line = serde_json::to_vec(&command.plan)?;
                line.push(b'\n');
                write.write_all(&line).await?;
                unconfirmed.push_back(command.done);
            }
            line = lines.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                match serde_json::from_str(&line) {
                    Ok(Line::Record(record)) => drop(senders.records.send(*record)),
                    Ok(Line::Write(write)) => drop(senders.writes.send(*write)),
                    Ok(Line::Armed(FaultsArmed { .. })) => drop(unconfirmed.pop_front()),
                    Err(error) => debug!(%error, "ignoring a partial line from a process"),
                }
            }
        }
    }
}
