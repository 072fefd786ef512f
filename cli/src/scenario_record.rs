//! `claimcheck scenario record`: writes down what users do in a namespace of a cluster in use, as a scenario to begin with.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use claimcheck_monitor_install::connect;
use claimcheck_run::{interrupt, positive_duration};
use claimcheck_scenario::{Kind, RECORDED, Record, Scope, Store, parse, recording};
use clap::Args;
use futures::future::try_join_all;
use kube::{Client, api::ListParams};
use tokio::task::JoinSet;

use crate::object_name::namespace;

/// How long the watches may take to deliver what exists.
const STARTED: Duration = Duration::from_secs(30);

/// How long they may take to deliver what happened before recording ends.
const ENDED: Duration = Duration::from_secs(5);

/// Arguments of `scenario record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The kind of cluster: only one in use is recorded
    #[arg(long, default_value = "existing", value_parser = ["existing"])]
    cluster: String,
    /// The namespace of the claims, pods and snapshots that are followed; classes are followed in the whole cluster
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    namespace: String,
    /// Path of the kubeconfig [default: KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// How long to record [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
    limit: Option<Duration>,
    /// The file to write, which must not exist yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl RecordArgs {
    /// Records, and writes the scenario.
    pub async fn run(self) -> Result<ExitCode> {
        if let Some(file) = self.out.as_ref().filter(|file| file.exists()) {
            return Ok(crate::usage(&*anyhow!(
                "--out {} exists already: choose another file",
                file.display()
            )));
        }
        let interrupted = interrupt::token()?;
        let client = connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        let kinds = served(&client, &self.namespace).await?;
        let record = Record::new(Scope::All);
        let mut watches = JoinSet::new();
        for kind in &kinds {
            watches.spawn(record.watch(&client, kind, Some(&self.namespace)));
        }
        let seen =
            record.until(STARTED, |store| kinds.iter().all(|kind| store.is_listed(kind)).then_some(()));
        if seen.await.is_none() {
            bail!(
                "the API server did not send all objects of namespace {} within {STARTED:?}",
                self.namespace
            );
        }
        let before = record.read(|store| store.versions.len());
        eprintln!(
            "claimcheck: recording namespace {}: {}",
            self.namespace,
            self.limit.map_or_else(|| "Ctrl-C ends it".to_owned(), |limit| format!("for {limit:?}"))
        );
        let limit = async {
            match self.limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = limit => {}
            () = interrupted.cancelled() => {}
        }
        if !is_complete(&client, &self.namespace, &kinds, &record).await {
            eprintln!("claimcheck: what happened within the last {ENDED:?} may be missing");
        }
        watches.shutdown().await;
        let recording = record.read(|store| recording("recorded", &store.versions, before));
        if recording.steps == 0 {
            eprintln!(
                "claimcheck: nothing happened in namespace {}: there is no scenario to write",
                self.namespace
            );
            return Ok(ExitCode::FAILURE);
        }
        match &self.out {
            Some(file) => fs::write(file, &recording.text)
                .with_context(|| format!("cannot write {}", file.display()))?,
            None => io::stdout().write_all(recording.text.as_bytes())?,
        }
        eprintln!("claimcheck: {} steps; left out:", recording.steps);
        for what in &recording.left_out {
            eprintln!("  - {what}");
        }
        let name = self.out.unwrap_or_else(|| PathBuf::from("recorded.yaml"));
        if let Err(error) = parse(&name, &recording.text) {
            eprintln!("claimcheck: mend before it runs: {error}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits until the watches have delivered what has happened up to now: false if they do not in time.
async fn is_complete(client: &Client, namespace: &str, kinds: &[&'static Kind], record: &Record) -> bool {
    let lists = kinds.iter().map(|kind| async {
        kind.api(client, Some(namespace)).list(&ListParams::default()).await.map(|list| (*kind, list))
    });
    let complete = async {
        let Ok(lists) = try_join_all(lists).await else { return false };
        let reached =
            |store: &Store| lists.iter().all(|(kind, list)| store.has_reached(kind, list)).then_some(());
        record.until(ENDED, reached).await.is_some()
    };
    tokio::time::timeout(ENDED, complete).await.unwrap_or(false)
}

/// The recorded kinds that the cluster has.
async fn served(client: &Client, namespace: &str) -> Result<Vec<&'static Kind>> {
    let mut kinds = Vec::new();
    for kind in RECORDED.into_iter().filter_map(Kind::named) {
        match kind.api(client, Some(namespace)).list(&ListParams::default().limit(1)).await {
            Ok(_) => kinds.push(kind),
            // Of an older Kubernetes, or without the definitions of snapshots.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                bail!("not permitted: {}: recording needs get, list and watch of that", status.message)
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot list the {} objects", kind.kind));
            }
        }
    }
    Ok(kinds)
}
