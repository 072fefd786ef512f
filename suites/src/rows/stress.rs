//! Many at once.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern},
    fixture::{Fixture, Wanted},
};

const SUITE: &str = "stress";
const VOLUMES: usize = 50;

pub(super) const ROWS: &[Case] = &[row(
    SUITE,
    "50 volumes with a pod each, up and gone at once",
    "volume-stress",
    Pattern::LATE,
    Needs::NOTHING,
    case!(many_at_once),
)];

async fn many_at_once(t: Arc<Fixture>) -> Result<()> {
    // Before the crowd, or they would race for it.
    t.class().await?;
    let names: Vec<String> = (0..VOLUMES).map(|n| format!("v{n}")).collect();
    try_join_all(names.iter().map(|name| one(&t, name))).await?;
    let balance = t.balance().await?;
    let once = |method: &str| t.expect_called(&balance, method, VOLUMES as u64);
    once("CreateVolume")?;
    once("ControllerPublishVolume")?;
    once("NodeStageVolume")?;
    once("NodePublishVolume")?;
    once("DeleteVolume")
}

async fn one(t: &Fixture, name: &str) -> Result<()> {
    let claim = t.claim(name).await?;
    let script = format!("echo {name} > /data/name && test \"$(cat /data/name)\" = {name}");
    let pod = t.ready_pod(&Wanted::staying(name, &claim, &script)).await?;
    t.bound(&claim).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}
