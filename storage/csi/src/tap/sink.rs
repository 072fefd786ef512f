//! Sinks of records: none, the tap socket, which also delivers fault plans, and channels.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use claimcheck_model::ApiWrite;
use serde::Serialize;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::{
    fault::Faults,
    listen::{Confirmed, Order},
    record::TapRecord,
};

/// How long a write may block on a reader that does not read, before the component continues without a tap.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// Receives the records of a process.
#[derive(Debug)]
pub(super) enum Sink {
    None,
    Socket(Arc<Socket>),
    /// Into the first, then into the channel.
    Tee(Arc<Sink>, mpsc::UnboundedSender<TapRecord>),
}

impl Sink {
    /// Delivers the record; when this returns, no later record can overtake it.
    pub(super) fn write(&self, record: TapRecord) {
        match self {
            Self::None => {}
            Self::Socket(socket) => socket.write_line(&record),
            Self::Tee(first, records) => {
                first.write(record.clone());
                // A dropped receiver needs no more records.
                drop(records.send(record));
            }
        }
    }

    /// Delivers an API write. Only the socket has a receiver of them.
    pub(super) fn write_api_write(&self, write: &ApiWrite) {
        match self {
            Self::None => {}
            Self::Socket(socket) => socket.write_line(write),
            Self::Tee(first, _) => first.write_api_write(write),
        }
    }
}

/// The connection of a process to the tap socket.
///
/// Writes block, on purpose: a record must be in the socket before the RPC's result is acted upon, and
/// a line into a socket buffer takes microseconds.
#[derive(Debug)]
pub(super) struct Socket {
    /// `None` once it is broken.
    stream: Mutex<Option<UnixStream>>,
}

impl Socket {
    /// Connects, and from then on applies the plans that it receives to `faults`.
    pub(super) fn connect(path: &Path, faults: Faults) -> io::Result<Arc<Self>> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(WRITE_LIMIT))?;
        let reader = stream.try_clone()?;
        let socket = Arc::new(Self { stream: Mutex::new(Some(stream)) });
        let weak = Arc::downgrade(&socket);
        std::thread::Builder::new()
            .name("tap-orders".to_owned())
            .spawn(move || receive_orders(reader, &weak, &faults))?;
        Ok(socket)
    }

    fn write_line(&self, line: &impl Serialize) {
        let mut bytes = serde_json::to_vec(line).expect("records are plain structs with string keys");
        bytes.push(b'\n');
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = stream.as_mut()
            && let Err(error) = writer.write_all(&bytes)
        {
            warn!(%error, "the tap socket broke: RPCs are no longer recorded");
            *stream = None;
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = stream {
            // Ends the thread, which holds the stream open. If it cannot, the stream is closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

/// Carries out every received order and confirms it, until the connection ends.
fn receive_orders(reader: UnixStream, socket: &Weak<Socket>, faults: &Faults) {
    for line in BufReader::new(reader).lines() {
        let Ok(line) = line else { return };
        match serde_json::from_str(&line) {
            Ok(Order::Faults(plan)) => faults.set(plan),
            Ok(Order::Confirm) => {}
            Err(error) => {
                debug!(%error, "ignoring an invalid order");
                continue;
            }
        }
        let Some(socket) = socket.upgrade() else { return };
        // After the records so far, since they are written before their calls go on.
        socket.write_line(&Confirmed { confirmed: true });
    }
}
