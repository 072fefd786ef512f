//! The component: the watch, its records on standard output, and the clock.

use std::{convert::Infallible, io};

use tokio::{
    io::AsyncWriteExt,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::{Args, Record, ServeError, WatchError, clock, watch};

/// Errors that end the component.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The mount table cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The clock cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The thread cannot be created.
    #[error("cannot start the watch thread")]
    Thread(#[source] io::Error),
    /// The reader of standard output has exited.
    #[error("cannot write records to standard output")]
    Write(#[source] io::Error),
}

/// Observes until `stop` resolves. Copies of the records are sent to their user, if there is one, which runs as long.
///
/// # Errors
/// See [`RunError`].
pub async fn run(
    args: Args,
    user: Option<(UnboundedSender<Record>, impl Future<Output = Infallible>)>,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let clock = match args.listen {
        Some(address) => Some(clock::bind(address, "--listen").await?),
        None => None,
    };
    let (copies, user) = user.unzip();
    // The watch never waits for a reader: times would be late.
    let (sender, records) = unbounded_channel();
    // Its thread ends when `_watching` is dropped.
    let (stopped, _watching) = io::pipe().map_err(RunError::Thread)?;
    let watching = tokio::task::spawn_blocking(move || watch(&args, &stopped, sender));
    let clock = async {
        match clock {
            Some(listener) => clock::serve(listener, clock::clock).await,
            None => std::future::pending().await,
        }
    };
    let user = async {
        match user {
            Some(user) => user.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        watched = watching => Ok(watched.map_err(|error| RunError::Thread(error.into()))??),
        written = write(records, copies) => written.map_err(RunError::Write),
        never = clock => match never {},
        never = user => match never {},
        () = stop => Ok(()),
    }
}

/// Writes records to standard output, and sends copies of them.
async fn write(
    mut records: UnboundedReceiver<Record>,
    copies: Option<UnboundedSender<Record>>,
) -> io::Result<()> {
    let mut output = tokio::io::stdout();
    let mut lines = Vec::new();
    while let Some(record) = records.recv().await {
        serde_json::to_writer(&mut lines, &record)?;
        lines.push(b'\n');
        if let Some(copies) = &copies {
            // Without a receiver the component is ending.
            let _ = copies.send(record);
        }
        // A burst is one write.
        if records.is_empty() {
            output.write_all(&lines).await?;
            output.flush().await?;
            lines.clear();
        }
    }
    Ok(())
}
