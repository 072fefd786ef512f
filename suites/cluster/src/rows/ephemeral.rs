//! Generic ephemeral volumes: claims that are created for a pod.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_informer::Kind;
use serde_json::{Value, json};

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Fixture, Script},
};

const SUITE: &str = "ephemeral";

const fn generic(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "ephemeral", pattern, &[], run)
}

pub(super) const ROWS: &[Case] = &[
    generic(
        "the PVC of a generic ephemeral volume is created and deleted with its pod",
        Pattern::IMMEDIATE,
        case!(comes_and_goes),
    ),
    generic(
        "the PVC of a generic ephemeral volume is created and deleted with its pod",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(comes_and_goes),
    ),
    generic(
        "a pod deleted in the foreground is gone after its generic ephemeral PVC",
        Pattern::IMMEDIATE,
        case!(in_foreground),
    ),
    generic("a generic ephemeral volume can be mounted read-only", Pattern::EXT4, case!(read_only)),
    generic(
        "two pods with the same volumeClaimTemplate get separate volumes",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(two_pods),
    ),
    generic("a pod can have several generic ephemeral volumes", Pattern::IMMEDIATE, case!(several)),
    generic(
        "an existing PVC that the pod does not own is not used as its ephemeral volume",
        Pattern::IMMEDIATE,
        case!(foreign_claim),
    ),
];

/// A generic ephemeral volume of the case's class.
async fn source(t: &Fixture) -> Result<Value> {
    let spec = json!({
        "accessModes": t.access_modes(),
        "storageClassName": t.class().await?,
        "resources": { "requests": { "storage": t.usual_size() } },
    });
    Ok(json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } }))
}

const SCRIPT: &str = "echo mine > /v/data/file && test \"$(cat /v/data/file)\" = mine";

async fn comes_and_goes(t: Arc<Fixture>) -> Result<()> {
    let pod = t.script(&Script::long_running("pod", SCRIPT).volume("data", source(&t).await?)).await?;
    t.ready(&pod).await?;
    let claim = t.adopt_claim("pod-data").await?;
    let object = t.claim_now(&claim).await?;
    let owner = object.metadata.owner_references.unwrap_or_default();
    let owner = owner.first().context("the claim has no owner")?;
    ensure!(owner.uid == pod.uid && owner.controller == Some(true), "the claim's owner is {owner:?}");
    let volume = t.bound(&claim).await?.metadata.name.unwrap_or_default();
    t.remove_pod(&pod).await?;
    t.deleted(Kind::Claim, &claim.name).await?;
    t.volume_deleted(&volume).await
}

/// `processDeletingDependentsItem` in pkg/controller/garbagecollector/garbagecollector.go. kubectl and Kubernetes' own
/// e2e tests delete pods in this way.
async fn in_foreground(t: Arc<Fixture>) -> Result<()> {
    let pod = t.script(&Script::long_running("pod", SCRIPT).volume("data", source(&t).await?)).await?;
    t.ready(&pod).await?;
    let claim = t.adopt_claim("pod-data").await?;
    let volume = t.bound(&claim).await?.metadata.name.unwrap_or_default();
    t.remove_pod_in_foreground(&pod, &claim).await?;
    t.volume_deleted(&volume).await
}

async fn read_only(t: Arc<Fixture>) -> Result<()> {
    let script = "touch /v/data/file 2>&1 | grep -o 'Read-only file system'";
    let source = source(&t).await?;
    let output = t
        .script_output(&Script::run_to_completion("pod", script).mounted(
            "data",
            source,
            json!({ "readOnly": true }),
        ))
        .await?;
    ensure!(output == "Read-only file system", "unexpected pod output {output:?}");
    t.adopt_claim("pod-data").await.map(drop)
}

async fn two_pods(t: Arc<Fixture>) -> Result<()> {
    let script = "test ! -e /v/data/file && echo here > /v/data/file";
    for name in ["one", "two"] {
        let pod = t.script(&Script::long_running(name, script).volume("data", source(&t).await?)).await?;
        t.ready(&pod).await?;
        t.adopt_claim(&format!("{name}-data")).await?;
    }
    Ok(())
}

async fn several(t: Arc<Fixture>) -> Result<()> {
    let script = "echo 1 > /v/first/file && echo 2 > /v/second/file && cat /v/*/file";
    let expected = Script::run_to_completion("pod", script)
        .volume("first", source(&t).await?)
        .volume("second", source(&t).await?);
    let output = t.script_output(&expected).await?;
    ensure!(output == "1\n2", "unexpected pod output {output:?}");
    for name in ["pod-first", "pod-second"] {
        t.adopt_claim(name).await?;
    }
    Ok(())
}

async fn foreign_claim(t: Arc<Fixture>) -> Result<()> {
    t.claim("pod-data").await?;
    let pod = t.script(&Script::run_to_completion("pod", SCRIPT).volume("data", source(&t).await?)).await?;
    t.unschedulable(&pod, &["was not created for"]).await
}
