//! From a component's process to the run: a unix socket, an [`ApiWrite`] a line.

use std::{ffi::OsStr, io, path::Path};

use claimcheck_model::ApiWrite;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::mpsc,
};

/// The environment variable that names the socket, where somebody wants to know.
pub const WRITES_ENV: &str = "CLAIMCHECK_WRITES";

/// Who is told of writes. Nobody waits for it: what belongs to a volume is sorted out when its life has ended.
#[derive(Clone, Debug)]
pub struct Teller(mpsc::UnboundedSender<ApiWrite>);

impl Teller {
    /// Tells in this process.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<ApiWrite>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Tells the run that a component belongs to, if that wants to know. Where it cannot be told the component
    /// works all the same.
    pub async fn of_environment() -> Option<Self> {
        let path = std::env::var_os(WRITES_ENV)?;
        match Self::connect(&path).await {
            Ok(teller) => Some(teller),
            Err(error) => {
                tracing::warn!(%error, "nobody listens at {WRITES_ENV}: writes to the API are not told");
                None
            }
        }
    }

    /// Tells whoever listens at a socket.
    pub(super) async fn connect(path: impl AsRef<OsStr>) -> io::Result<Self> {
        let stream = UnixStream::connect(Path::new(path.as_ref())).await?;
        let (teller, writes) = Self::channel();
        tokio::spawn(async move {
            if let Err(error) = write_lines(writes, stream).await {
                tracing::debug!(%error, "nobody listens to writes any longer");
            }
        });
        Ok(teller)
    }

    /// Tells of a write.
    pub fn tell(&self, write: ApiWrite) {
        // One who has gone no longer wants to know.
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

/// Listens at `path`, whose folder is the run's own, and hands on what every process tells. Listening ends when
/// the receiver is dropped. Must be called within a tokio runtime.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(path: &Path) -> io::Result<mpsc::UnboundedReceiver<ApiWrite>> {
    let listener = UnixListener::bind(path)?;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(tokio::spawn(read_lines(stream, sender.clone()))),
                    Err(error) => tracing::warn!(%error, "a process could not connect to tell its writes"),
                },
            }
        }
    });
    Ok(receiver)
}

/// One process, to its end.
async fn read_lines(stream: UnixStream, sender: mpsc::UnboundedSender<ApiWrite>) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(write) => {
                if sender.send(write).is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "half a line of a process that was killed, left aside"),
        }
    }
}
