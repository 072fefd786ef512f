//! Secrets and tokens of volumes: no driver and no sidecar logs them.

use std::sync::Arc;

use anyhow::{Result, bail};
use claimcheck_cluster::LogSearch;
use claimcheck_engine::skip;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, TestPod},
    need::Need,
};

pub(super) const ROWS: &[Case] = &[row(
    "secrets",
    "the logs of driver and sidecars contain no secrets and no service account tokens",
    "none",
    Pattern::IMMEDIATE,
    &[Need::WholeRun],
    case!(not_logged),
)];

/// A volume with a secret of which the value occurs nowhere else.
async fn used(t: &Fixture) -> Result<()> {
    let claim = t.claim("claim").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "")).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}

async fn not_logged(t: Arc<Fixture>) -> Result<()> {
    t.node_secret("marker").await?;
    let used = used(&t).await;
    let LogSearch { searched, unread, found } = t.search_logs().await;
    if let Some((log, first)) = found.first() {
        let mut logs: Vec<&str> = found.iter().map(|(log, _)| log.as_str()).collect();
        logs.dedup();
        bail!(
            "{} lines contain a secret or a token that was passed to the driver (in {}); {log}, {first}",
            found.len(),
            logs.join(", ")
        );
    }
    if let Err(error) = used {
        return Err(skip(format!(
            "not observed: a volume with an additional secret cannot be used: {error:#}"
        )));
    }
    if !unread.is_empty() || searched.is_empty() {
        let reason =
            if unread.is_empty() { "no pods of the driver are known".to_owned() } else { unread.join(", ") };
        return Err(skip(format!("not observed: {reason}")));
    }
    Ok(())
}
