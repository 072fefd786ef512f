//! Volume cloning: claims with another claim as data source.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_csi::Code;
use claimcheck_informer::Kind;
use claimcheck_model::Capability;
use futures::future::try_join_all;
use serde_json::json;

use super::{
    case, row,
    snapshottable::{expect, write, written},
};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Fixture, TestPod, VolumeSource},
    need::Need,
};

const SUITE: &str = "clone";
const CLONES: Need = Need::Capability(Capability::PvcDataSource);

const fn cloned(name: &'static str, upstream: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, upstream, pattern, &[CLONES], run)
}

const fn independent(pattern: Pattern) -> Case {
    let name = "a clone has the data of its source and is independent of it";
    cloned(name, "provisioning", pattern, case!(does_not_share))
}

/// With xfs see `restore.rs`.
const fn in_one_pod(pattern: Pattern) -> Case {
    let name = "a clone and its source are mounted in one pod with independent data";
    cloned(name, "multiVolume", pattern, case!(in_one_pod_with_source))
}

pub(super) const ROWS: &[Case] = &[
    independent(Pattern::IMMEDIATE),
    independent(Pattern::WAIT_FOR_FIRST_CONSUMER),
    independent(Pattern::EXT4),
    independent(Pattern::XFS),
    cloned(
        "several clones of one PVC are created at the same time",
        "provisioning",
        Pattern::IMMEDIATE,
        case!(several),
    ),
    in_one_pod(Pattern::EXT4),
    in_one_pod(Pattern::XFS),
    row(
        SUITE,
        "a clone stays Pending until its source PVC is Bound",
        "provisioning",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[Need::LongWait, CLONES],
        case!(waits),
    ),
    cloned(
        "a clone smaller than its source is rejected with event ProvisioningFailed",
        "provisioning",
        Pattern::IMMEDIATE,
        case!(too_small),
    ),
    cloned(
        "a clone can have another StorageClass than its source",
        "none",
        Pattern::IMMEDIATE,
        case!(of_other_class),
    ),
    row(
        SUITE,
        "deletion of a source PVC is deferred while a clone of it is pending",
        "provisioning",
        Pattern::IMMEDIATE,
        &[Need::Tap, Need::LongWait, CLONES],
        case!(source_deleted),
    ),
];

async fn does_not_share(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "before").await?;
    let clone = t.claim_from("clone", VolumeSource::Claim(&claim), &t.usual_size()).await?;
    expect(&t, &clone, "before").await?;
    write(&t, &claim, "source").await?;
    expect(&t, &clone, "before").await?;
    write(&t, &clone, "clone").await?;
    expect(&t, &claim, "source").await
}

async fn several(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "shared").await?;
    let names: Vec<String> = (0..4).map(|n| format!("clone-{n}")).collect();
    let clones = names.iter().map(|name| {
        let (t, claim) = (&t, &claim);
        async move {
            let clone = t.claim_from(name, VolumeSource::Claim(claim), &t.usual_size()).await?;
            expect(t, &clone, "shared").await
        }
    });
    try_join_all(clones).await.map(drop)
}

async fn in_one_pod_with_source(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "before").await?;
    let clone = t.claim_from("clone", VolumeSource::Claim(&claim), &t.usual_size()).await?;
    let script = "cat /data1/file && echo source > /data/file && echo clone > /data1/file && sync\n\
                  cat /data/file /data1/file";
    let output = t.output(&TestPod::run_to_completion("pod", &claim, script).also(&clone)).await?;
    ensure!(output == "before\nsource\nclone", "unexpected pod output {output:?}");
    Ok(())
}

async fn waits(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let clone = t.claim_from("clone", VolumeSource::Claim(&claim), &t.usual_size()).await?;
    let reader = t.pod(&TestPod::run_to_completion("reader", &clone, "cat /data/file || echo empty")).await?;
    t.event_containing("clone", &["ProvisioningFailed"], "must have a status of Bound").await?;
    t.output(&TestPod::run_to_completion("other", &t.claim("control").await?, "true")).await?;
    t.is_not_provisioned(&clone).await?;
    write(&t, &claim, "there").await?;
    // The clone may be created as soon as its source is Bound, before the text is written.
    let read = t.ended(&reader).await?;
    ensure!(read == "there" || read.ends_with("empty"), "the clone contains {read:?}");
    expect(&t, &claim, "there").await
}

async fn too_small(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    t.claim_from("clone", VolumeSource::Claim(&claim), "16Mi").await?;
    t.event_containing("clone", &["ProvisioningFailed"], "must be greater than or equal in size").await
}

async fn of_other_class(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "copied").await?;
    let source = json!({
        "accessModes": t.access_modes(),
        "dataSource": VolumeSource::Claim(&claim).source(),
    });
    t.manual_class().await?;
    let clone = t.manual_claim("clone", &t.usual_size(), source).await?;
    expect(&t, &clone, "copied").await
}

async fn source_deleted(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "kept").await?;
    // The clone waits for its class until CreateVolume is made to fail.
    let source = json!({ "dataSource": VolumeSource::Claim(&claim).source() });
    let clone = t.manual_claim("clone", &t.usual_size(), source).await?;
    t.event("clone", "ProvisioningFailed").await?;
    t.fail_creation(&clone, Code::Internal, u32::MAX).await;
    t.manual_class().await?;
    t.event_containing("clone", &["ProvisioningFailed"], "Internal").await?;
    t.delete_claim(&claim).await?;
    // Another source is not kept any longer than its clone is pending.
    let other = t.claim("other").await?;
    t.bound(&other).await?;
    let copy = t.claim_from("copy", VolumeSource::Claim(&other), &t.usual_size()).await?;
    t.bound(&copy).await?;
    t.delete_claim(&other).await?;
    t.deleted(Kind::Claim, &other.name).await?;
    t.claim_remains(&claim).await.context("the source PVC was removed while a clone of it is pending")?;
    // Whether the clone would still be created is unspecified: upstream's provisioner rejects a source in deletion.
    t.remove_claim(&clone).await?;
    t.deleted(Kind::Claim, &claim.name).await
}
