//! The cases of a vendor: two on a cluster, one of single CSI calls.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck::{
    Cases,
    cluster::{self, Case, Need, TestPod},
    csi::{self, Row, Sentence, Strength},
};

/// All of them.
pub fn cases() -> Cases {
    Cases { cluster: on_a_cluster(), csi: Row::all("acme", "Calls as Acme's documentation promises them.", ROWS) }
}

/// Those on a cluster.
pub fn on_a_cluster() -> Vec<Case> {
    vec![
        Case::new("acme", "a database log survives a restart of its pod", |t| Box::pin(log_survives(t)))
            .with_needs(&[Need::Attach]),
        Case::new("acme", "two volumes of a pod are apart", |t| Box::pin(two_volumes(t))),
    ]
}

async fn log_survives(t: Arc<cluster::Fixture>) -> Result<()> {
    let claim = t.claim("log").await?;
    let first = t.ready_pod(&TestPod::long_running("db-0", &claim, "echo one >> /data/log; sync")).await?;
    t.remove_pod(&first).await?;
    let second = TestPod::run_to_completion("db-1", &claim, "echo two >> /data/log; cat /data/log");
    let log = t.output(&second).await?;
    ensure!(log == "one\ntwo", "the log is {log:?}");
    Ok(())
}

async fn two_volumes(t: Arc<cluster::Fixture>) -> Result<()> {
    let (data, log) = (t.claim("data").await?, t.claim("log").await?);
    let script = "echo data > /data/file; echo log > /data1/file; sync; cat /data/file /data1/file";
    let output = t.output(&TestPod::run_to_completion("pod", &data, script).also(&log)).await?;
    ensure!(output == "data\nlog", "the files hold {output:?}");
    Ok(())
}

static VERSION: Sentence = Sentence::of_vendor(
    "https://acme.example/docs/csi#version",
    "GetPluginInfo returns a version of three numbers.",
    Strength::Must,
);
const ROWS: &[Row] = &[Row::new("GetPluginInfo returns a version of three numbers", &VERSION, |t| {
    Box::pin(async move { version(&t).await })
})];

async fn version(t: &csi::Fixture) -> Result<()> {
    let version = t.get_plugin_info(csi::v1::GetPluginInfoRequest {}).await?.vendor_version;
    let numbers: Vec<Result<u32, _>> = version.split('.').map(str::parse).collect();
    ensure!(numbers.len() == 3 && numbers.iter().all(Result::is_ok), "the version is {version:?}");
    Ok(())
}
