//! The component: the watch, its records on standard output, the clock, and with `--metrics` the phases.

use std::{convert::Infallible, io};

use http::Request;
use hyper::body::Incoming;
use kube::Client;
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::{
    Args, Record, ServeError, WatchError, clock,
    phases::{ApiError, Series, api_client, follow},
    watch,
};

/// Errors that end the component.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The mount table cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The clock, or the metrics, cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// `--metrics` has no API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The thread cannot be created.
    #[error("cannot start the watch thread")]
    Thread(#[source] io::Error),
    /// The reader of standard output has exited.
    #[error("cannot write records to standard output")]
    Write(#[source] io::Error),
}

/// Observes until `stop` resolves.
///
/// # Errors
/// See [`RunError`].
pub async fn run(args: Args, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let clock = match args.listen {
        Some(address) => Some(clock::bind(address, "--listen").await?),
        None => None,
    };
    let (copies, metrics) = match args.metrics {
        Some(address) => {
            let client = api_client(args.kubeconfig.as_deref()).await?;
            let listener = clock::bind(address, "--metrics").await?;
            let (copies, records) = unbounded_channel();
            let series = Series::new(&args.canary_namespace);
            (Some(copies), Some(Metrics { listener, client, node: args.node_name.clone(), records, series }))
        }
        None => (None, None),
    };
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
    let metrics = async {
        match metrics {
            Some(metrics) => metrics.run().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        watched = watching => Ok(watched.map_err(|error| RunError::Thread(error.into()))??),
        written = write(records, copies) => written.map_err(RunError::Write),
        never = clock => match never {},
        never = metrics => match never {},
        () = stop => Ok(()),
    }
}

/// The phases of the node, and where they are served.
struct Metrics {
    listener: TcpListener,
    client: Client,
    node: String,
    records: UnboundedReceiver<Record>,
    series: Series,
}

impl Metrics {
    /// Measures and serves forever.
    async fn run(self) -> Infallible {
        let served = self.series.clone();
        let pages = move |request: &Request<Incoming>| clock::metrics(request, &served);
        let (never, ()) = tokio::join!(
            clock::serve(self.listener, pages),
            follow(self.client, &self.node, self.records, &self.series)
        );
        never
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
