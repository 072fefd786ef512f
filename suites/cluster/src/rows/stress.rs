//! Many volumes and pods at the same time.

use std::sync::Arc;

use anyhow::Result;
use claimcheck_model::{Capability, CsiMethod};
use futures::future::try_join_all;

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Claim, Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "stress";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "many volumes with one pod each are created and deleted concurrently",
        "volume-stress",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[Need::Capability(Capability::Persistence)],
        case!(many_at_once),
    ),
    row(
        SUITE,
        "many PVCs deleted while they are provisioned leave no PV and no volume",
        "none",
        Pattern::IMMEDIATE,
        &[],
        case!(deleted_at_once),
    ),
];

/// Deletes each claim without waiting for its volume: which of them have one by then is a matter of time.
async fn deleted_at_once(t: Arc<Fixture>) -> Result<()> {
    t.class().await?;
    let names: Vec<String> = (0..t.stress().num_pods).map(|n| format!("c{n}")).collect();
    try_join_all(names.iter().map(|name| async {
        let claim = t.claim(name).await?;
        t.remove_claim(&claim).await?;
        // It may get an object only after its claim is deleted: then the check for leaks finds it.
        t.volume_deleted(&format!("pvc-{}", claim.uid)).await
    }))
    .await
    .map(drop)
}

async fn many_at_once(t: Arc<Fixture>) -> Result<()> {
    // In advance, to avoid a race between the tasks.
    t.class().await?;
    let scale = t.stress();
    let names: Vec<String> = (0..scale.num_pods).map(|n| format!("v{n}")).collect();
    // Each volume is read only after all of them were written: two that share storage have one name by then.
    let pods = scale.num_restarts.max(1) + 1;
    let claims = try_join_all(names.iter().map(|name| written(&t, name))).await?;
    try_join_all(claims.iter().map(|claim| read_back(&t, claim, pods - 1))).await?;
    let balance = t.balance().await?;
    let volumes = scale.num_pods as u64;
    let pods = volumes * pods as u64;
    let called = |method, times| t.expect_called(&balance, method, times);
    called(CsiMethod::CreateVolume, volumes)?;
    called(CsiMethod::ControllerPublishVolume, pods)?;
    called(CsiMethod::NodeStageVolume, pods)?;
    called(CsiMethod::NodePublishVolume, pods)?;
    called(CsiMethod::DeleteVolume, volumes)
}

/// A volume to which its first pod has written the volume's name.
async fn written(t: &Fixture, name: &str) -> Result<Claim> {
    let claim = t.claim(name).await?;
    used(t, &claim, &format!("test ! -e /data/name && echo {name} > /data/name && sync")).await?;
    Ok(claim)
}

/// Reads a volume's name in several pods, one after the other, and deletes the volume.
async fn read_back(t: &Fixture, claim: &Claim, pods: usize) -> Result<()> {
    for _ in 0..pods {
        used(t, claim, &format!("test \"$(cat /data/name)\" = {}", claim.name)).await?;
    }
    t.remove_claim(claim).await
}

/// Uses a volume in a pod that runs this script, until it is detached.
async fn used(t: &Fixture, claim: &Claim, script: &str) -> Result<()> {
    let pod = t.ready_pod(&TestPod::long_running(&claim.name, claim, script)).await?;
    let volume = t.bound(claim).await?;
    t.remove_pod(&pod).await?;
    t.attachments_deleted(&volume).await
}
