//! From a component's process to the run: a unix socket with one [`ApiWrite`] per line.

use std::{ffi::OsStr, io, path::Path};

use claimcheck_model::ApiWrite;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::mpsc,
};

/// The environment variable with the socket's path, if writes are to be recorded.
pub const WRITES_ENV: &str = "CLAIMCHECK_WRITES";

/// The recipient of records of writes. Sending never blocks: they are associated with volumes after their deletion.
#[derive(Clone, Debug)]
pub struct ApiWriteRecorder(mpsc::UnboundedSender<ApiWrite>);

impl ApiWriteRecorder {
    /// Sends within this process.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<ApiWrite>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends to the run that a component belongs to, if it records writes. If that fails, the component
    /// works nevertheless.
    pub async fn of_environment() -> Option<Self> {
        let path = std::env::var_os(WRITES_ENV)?;
        match Self::connect(&path).await {
            Ok(recorder) => Some(recorder),
            Err(error) => {
                tracing::warn!(%error, "cannot connect to {WRITES_ENV}: API writes are not recorded");
                None
            }
        }
    }

    /// Sends to a socket.
    pub(super) async fn connect(path: impl AsRef<OsStr>) -> io::Result<Self> {
        let stream = UnixStream::connect(Path::new(path.as_ref())).await?;
        let (recorder, writes) = Self::channel();
        tokio::spawn(async move {
            if let Err(error) = write_lines(writes, stream).await {
                tracing::debug!(%error, "the recipient of API writes disconnected");
            }
        });
        Ok(recorder)
    }

    /// Sends a record of a write.
    pub fn record(&self, write: ApiWrite) {
        // The receiver may have been dropped at the end of the run.
        let _ = self.0.send(write);
    }
}

async fn write_lines(
    mut writes: mpsc::UnboundedReceiver<ApiWrite>,
    mut stream: UnixStream,
) -> io::Result<()> {
    while let Some(write) = writes.recv().await {
        let mut line = serde_json::to_vec(&write)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
    }
    Ok(())
}

/// Listens on `path`, in a folder that is private to the run, and forwards the records of all processes. It ends when
/// the receiver is dropped. Must be called within a tokio runtime.
///
/// # Errors
/// The socket cannot be created.
pub fn listen(path: &Path) -> io::Result<mpsc::UnboundedReceiver<ApiWrite>> {
    let listener = UnixListener::bind(path)?;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(tokio::spawn(read_lines(stream, sender.clone()))),
                    Err(error) => tracing::warn!(%error, "a process could not connect to report writes"),
                },
            }
        }
    });
    Ok(receiver)
}

/// Serves one process until it disconnects.
async fn read_lines(stream: UnixStream, sender: mpsc::UnboundedSender<ApiWrite>) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(write) => {
                if sender.send(write).is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "ignoring an incomplete line of a killed process"),
        }
    }
}
