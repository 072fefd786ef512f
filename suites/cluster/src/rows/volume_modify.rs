//! Modification of volumes with VolumeAttributesClasses (KEP-3751).
//!
//! The mutable parameters of a vendor's driver are unknown, so these cases use a variant of the built-in driver.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_informer::modification::Progress;
use futures::future::try_join_all;
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, InstalledDriver, TestPod, Variant, refusal},
    kubernetes::Feature,
    need::Need,
};

const SUITE: &str = "volume_modify";
const UPSTREAM: &str = "volume-modify";
const STRESS: &str = "volume-modify-stress";
const CLASSES: Need = Need::Feature(Feature::AttributesClasses);

const fn modifies(name: &'static str, run: Run) -> Case {
    row(SUITE, name, UPSTREAM, Pattern::IMMEDIATE, &[CLASSES, Need::Variant(Variant::Modified)], run)
}

pub(super) const ROWS: &[Case] = &[
    modifies("a volume is created with the VolumeAttributesClass of its PVC", case!(made_with)),
    modifies("a PVC stays Pending until its VolumeAttributesClass exists", case!(made_late)),
    modifies(
        "provisioning fails if the driver rejects the parameters of the VolumeAttributesClass",
        case!(made_with_invalid),
    ),
    modifies("an existing volume can be given a VolumeAttributesClass", case!(given)),
    modifies(
        "a volume in use is modified to another VolumeAttributesClass and keeps its data",
        case!(changed),
    ),
    modifies(
        "modification to a missing VolumeAttributesClass stays Pending until another one is set",
        case!(waits),
    ),
    row(
        SUITE,
        "a VolumeAttributesClass of another driver is never applied",
        UPSTREAM,
        Pattern::IMMEDIATE,
        &[CLASSES, Need::Variant(Variant::Modified), Need::BuiltinSidecars],
        case!(foreign),
    ),
    modifies("a PVC recovers from a VolumeAttributesClass that the driver rejects", case!(recovers)),
    modifies("a PVC recovers from a rejected first VolumeAttributesClass by having none again", case!(unset)),
    modifies("an applied VolumeAttributesClass cannot be removed from its PVC", case!(stays_set)),
    modifies("deletion of a VolumeAttributesClass is deferred while a volume uses it", case!(protected)),
    row(
        SUITE,
        "many volumes are modified repeatedly and concurrently",
        STRESS,
        Pattern::IMMEDIATE,
        &[CLASSES, Need::Variant(Variant::Modified)],
        case!(many),
    ),
];

const SIZE: &str = "64Mi";

async fn driver(t: &Fixture) -> Result<InstalledDriver> {
    t.install_driver(Variant::Modified, json!({})).await
}

async fn class(t: &Fixture, name: &str, iops: &str) -> Result<String> {
    t.attributes_class(Variant::Modified, name, iops).await
}

/// A claim that is created with a VolumeAttributesClass.
async fn with(t: &Fixture, driver: &InstalledDriver, class: &str) -> Result<Claim> {
    t.claim_of_driver_with(driver, "claim", SIZE, json!({ "volumeAttributesClassName": class })).await
}

/// A claim with a volume that has a VolumeAttributesClass already.
async fn having(t: &Fixture, driver: &InstalledDriver, class: &str) -> Result<Claim> {
    let claim = with(t, driver, class).await?;
    t.modified(&claim, class).await?;
    Ok(claim)
}

async fn made_with(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let silver = class(&t, "silver", "100").await?;
    having(&t, &driver, &silver).await.map(drop)
}

async fn made_late(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let claim = with(&t, &driver, &t.global("late")).await?;
    t.event_containing("claim", &["ProvisioningFailed"], "not found").await?;
    t.bound(&t.claim_of_driver(&driver, "control", SIZE).await?).await?;
    t.is_not_provisioned(&claim).await?;
    let late = class(&t, "late", "100").await?;
    t.modified(&claim, &late).await
}

async fn made_with_invalid(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let invalid = class(&t, "invalid", "0").await?;
    let claim = with(&t, &driver, &invalid).await?;
    t.event_containing("claim", &["ProvisioningFailed"], "iops").await?;
    t.bound(&t.claim_of_driver(&driver, "control", SIZE).await?).await?;
    t.stays_pending(&claim).await
}

async fn given(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let silver = class(&t, "silver", "100").await?;
    let claim = t.claim_of_driver(&driver, "claim", SIZE).await?;
    t.bound(&claim).await?;
    t.modify(&claim, &silver).await?;
    t.modified(&claim, &silver).await?;
    t.driver_modified(1).await?;
    t.event_containing("claim", &["VolumeModifySuccessful"], &silver).await
}

async fn changed(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let (silver, gold) = (class(&t, "silver", "100").await?, class(&t, "gold", "1000").await?);
    let claim = having(&t, &driver, &silver).await?;
    let pod = TestPod::long_running("pod", &claim, "echo kept > /data/ticket && sync");
    let pod = t.ready_pod(&pod.probing("cat /data/ticket && date > /data/later")).await?;
    t.modify(&claim, &gold).await?;
    t.modified(&claim, &gold).await?;
    t.driver_modified(1).await?;
    let read = t.probed(&pod).await?;
    ensure!(read == "kept", "after the modification the pod that uses the volume reads and writes: {read:?}");
    t.remove_pod(&pod).await?;
    let output = t.output(&TestPod::run_to_completion("reader", &claim, "cat /data/ticket")).await?;
    ensure!(output.trim() == "kept", "after the modification the next pod read {output:?}");
    Ok(())
}

async fn waits(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let (silver, gold) = (class(&t, "silver", "100").await?, class(&t, "gold", "1000").await?);
    let claim = having(&t, &driver, &silver).await?;
    t.modify(&claim, &t.global("missing")).await?;
    t.modification_is(&claim, Progress::Pending).await?;
    t.event_containing("claim", &["VolumeModifyFailed"], "does not exist").await?;
    another_is_modified(&t, &driver, &gold).await?;
    t.keeps_attributes_class(&claim, &silver).await?;
    t.not_modified(&claim).await?;
    // Not by creating the missing class: upstream's resizer retries only when the claim changes.
    t.modify(&claim, &gold).await?;
    t.modified(&claim, &gold).await?;
    t.driver_modified(2).await
}

/// Checks that the resizer modifies another volume meanwhile.
async fn another_is_modified(t: &Fixture, driver: &InstalledDriver, class: &str) -> Result<()> {
    let control = t.claim_of_driver(driver, "control", SIZE).await?;
    t.bound(&control).await?;
    t.modify(&control, class).await?;
    t.modified(&control, class).await?;
    t.driver_modified(1).await
}

async fn foreign(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let (silver, gold) = (class(&t, "silver", "100").await?, class(&t, "gold", "1000").await?);
    let other = t.attributes_class(Variant::Limited, "other", "100").await?;
    let claim = having(&t, &driver, &silver).await?;
    t.modify(&claim, &other).await?;
    t.modification_is(&claim, Progress::Pending).await?;
    t.event_containing("claim", &["VolumeModifyFailed"], Variant::Limited.name()).await?;
    another_is_modified(&t, &driver, &gold).await?;
    t.keeps_attributes_class(&claim, &silver).await?;
    t.not_modified(&claim).await?;
    t.modify(&claim, &gold).await?;
    t.modified(&claim, &gold).await?;
    t.driver_modified(2).await
}

async fn recovers(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let (silver, gold) = (class(&t, "silver", "100").await?, class(&t, "gold", "1000").await?);
    let invalid = class(&t, "invalid", "0").await?;
    let claim = having(&t, &driver, &silver).await?;
    t.modify(&claim, &invalid).await?;
    t.modification_is(&claim, Progress::Infeasible).await?;
    t.modification_failed(&claim).await?;
    t.event_containing("claim", &["VolumeModifyFailed"], "iops").await?;
    t.modify(&claim, &gold).await?;
    t.modified(&claim, &gold).await?;
    // One of them with the rejected class.
    t.driver_modified(2).await
}

async fn unset(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let (invalid, silver) = (class(&t, "invalid", "0").await?, class(&t, "silver", "100").await?);
    let claim = t.claim_of_driver(&driver, "claim", SIZE).await?;
    t.bound(&claim).await?;
    t.modify(&claim, &invalid).await?;
    t.modification_is(&claim, Progress::Infeasible).await?;
    t.modify_to(&claim, json!(null)).await.context("the rejected class cannot be removed")?;
    let current =
        t.claim_now(&claim).await?.status.and_then(|status| status.current_volume_attributes_class_name);
    ensure!(current.is_none(), "the rejected class {current:?} is reported as that of the volume");
    t.modify(&claim, &silver).await?;
    t.modified(&claim, &silver).await
}

async fn stays_set(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let silver = class(&t, "silver", "100").await?;
    let claim = having(&t, &driver, &silver).await?;
    for (class, what) in [(json!(null), "nil"), (json!(""), "empty string")] {
        let rejected = refusal(t.modify_to(&claim, class).await)?;
        let expected = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName");
        ensure!(rejected.contains(&expected), "the update to {what} is rejected with {rejected:?}");
    }
    t.modified(&claim, &silver).await
}

async fn protected(t: Arc<Fixture>) -> Result<()> {
    let driver = driver(&t).await?;
    let (silver, gold) = (class(&t, "silver", "100").await?, class(&t, "gold", "1000").await?);
    let claim = having(&t, &driver, &silver).await?;
    t.attributes_class_is_protected(&silver).await?;
    t.delete_attributes_class(&silver).await?;
    t.attributes_class_remains(&silver, &class(&t, "unused", "100").await?).await?;
    t.modify(&claim, &gold).await?;
    t.modified(&claim, &gold).await?;
    t.attributes_class_is_deleted(&silver).await
}

async fn many(t: Arc<Fixture>) -> Result<()> {
    const VOLUMES: usize = 8;
    const TIMES: usize = 3;
    let driver = driver(&t).await?;
    let (silver, gold) = (class(&t, "silver", "100").await?, class(&t, "gold", "1000").await?);
    let named = |number| format!("claim-{number}");
    let begins = json!({ "volumeAttributesClassName": silver });
    let mut claims = Vec::new();
    for number in 0..VOLUMES {
        claims.push(t.claim_of_driver_with(&driver, &named(number), SIZE, begins.clone()).await?);
    }
    try_join_all(claims.iter().map(async |claim| {
        t.modified(claim, &silver).await?;
        for time in 0..TIMES {
            let next = if time % 2 == 0 { &gold } else { &silver };
            t.modify(claim, next).await?;
            t.modified(claim, next).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    t.driver_modified((VOLUMES * TIMES) as u64).await
}
