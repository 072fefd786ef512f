//! Binding of claims to pre-provisioned volumes.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_engine::skip;
use claimcheck_informer::Kind;
use claimcheck_model::CsiMethod;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "binding";

const fn binding(name: &'static str, run: Run) -> Case {
    row(SUITE, name, "PersistentVolumes", Pattern::STATIC, &[], run)
}

pub(super) const ROWS: &[Case] = &[
    binding("a PVC binds to the smallest PV that satisfies its request", case!(smallest_that_fits)),
    binding("a PVC binds to a PV that supports its access modes", case!(access_modes)),
    binding("a PVC binds only to a PV of its StorageClass", case!(class)),
    binding("a PVC with a selector binds to a PV with matching labels", case!(selector)),
    row(
        SUITE,
        "a filesystem PVC does not bind to a block PV",
        "volumeMode",
        Pattern::STATIC,
        &[],
        case!(volume_mode),
    ),
    binding(
        "a PVC with volumeName binds to that PV even if another PV fits better",
        case!(claim_names_volume),
    ),
    binding("a PV with claimRef stays reserved for that PVC", case!(volume_names_claim)),
    binding(
        "a PVC with volumeName stays Pending with event VolumeMismatch if that PV is too small",
        case!(named_volume_is_too_small),
    ),
    binding(
        "of two PVCs competing for one PV, one binds and the other waits for the next PV",
        case!(two_claims_race),
    ),
    binding("ten PVCs and ten PVs created at the same time bind one to one", case!(many_pairs)),
    binding("a bound PVC becomes Lost when its PV is deleted", case!(lost)),
    binding(
        "a Released PV does not bind to a new PVC until its claimRef is cleared",
        case!(released_stays_released),
    ),
    binding(
        "a PVC of a missing StorageClass gets event ProvisioningFailed, then binds to a new PV",
        case!(volume_comes_later),
    ),
    row(
        SUITE,
        "PVCs and PVs created while the controllers are down bind after the controllers restart",
        "PersistentVolumes",
        Pattern::STATIC,
        &[Need::Disrupt, Need::StopsBinder],
        case!(controllers_were_away),
    ),
    row(
        SUITE,
        "a WaitForFirstConsumer PVC binds to an existing PV accessible from the pod's node",
        "PersistentVolumes-local",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        &[Need::Nodes(2)],
        case!(claim_binds_to_available_volume_on_scheduling),
    ),
    row(
        SUITE,
        "a pod that waits for a local volume starts once the volume of another pod is released and created again",
        "PersistentVolumes-local",
        Pattern::STATIC,
        &[Need::HostPaths],
        case!(local_volume_freed),
    ),
];

/// The volume that a claim is bound to, after checking both references.
async fn bound_to(t: &Fixture, claim: &Claim) -> Result<String> {
    let volume = t.bound(claim).await?;
    let volume = t.volume_in_phase(&volume.name_any(), "Bound").await?;
    let pointed = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    ensure!(
        pointed.and_then(|claim| claim.uid.as_ref()) == Some(&claim.uid),
        "volume {} points to {pointed:?} instead of claim {}",
        volume.name_any(),
        claim.name
    );
    Ok(volume.name_any())
}

async fn expect(t: &Fixture, claim: &Claim, volume: &str) -> Result<()> {
    let bound = bound_to(t, claim).await?;
    ensure!(bound == t.global(volume), "claim {} is bound to {bound} instead of {volume}", claim.name);
    Ok(())
}

async fn volumes(t: &Fixture, expected: &[(&str, Value)]) -> Result<Vec<PersistentVolume>> {
    let made = try_join_all(expected.iter().map(|(name, spec)| t.static_volume(name, spec.clone()))).await?;
    for volume in &made {
        t.volume_in_phase(&volume.name_any(), "Available").await?;
    }
    Ok(made)
}

/// Another claim is bound to another volume meanwhile.
async fn binds_others(t: &Fixture) -> Result<()> {
    let class = t.global("control");
    t.static_volume("control", json!({ "storageClassName": class })).await?;
    let control = t.manual_claim("control", "1Gi", json!({ "storageClassName": class })).await?;
    expect(t, &control, "control").await
}

fn size(size: &str) -> Value {
    json!({ "capacity": { "storage": size } })
}

async fn smallest_that_fits(t: Arc<Fixture>) -> Result<()> {
    let sizes = [("small", "1Gi"), ("medium", "3Gi"), ("large", "10Gi")];
    volumes(&t, &sizes.map(|(name, expected)| (name, size(expected)))).await?;
    for (name, expected, volume) in [("a", "2Gi", "medium"), ("b", "2Gi", "large"), ("c", "1Gi", "small")] {
        let claim = t.manual_claim(name, expected, json!({})).await?;
        expect(&t, &claim, volume).await?;
    }
    Ok(())
}

async fn access_modes(t: Arc<Fixture>) -> Result<()> {
    let many = json!({ "accessModes": ["ReadWriteOnce", "ReadWriteMany"], "capacity": { "storage": "5Gi" } });
    volumes(&t, &[("one", json!({})), ("many", many)]).await?;
    let claim = t.manual_claim("claim", "1Gi", json!({ "accessModes": ["ReadWriteMany"] })).await?;
    expect(&t, &claim, "many").await
}

async fn class(t: Arc<Fixture>) -> Result<()> {
    let other = json!({ "storageClassName": t.global("other") });
    volumes(&t, &[("other", other), ("matching", size("9Gi"))]).await?;
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    expect(&t, &claim, "matching").await
}

async fn selector(t: Arc<Fixture>) -> Result<()> {
    volumes(&t, &[("small", size("1Gi")), ("chosen", size("9Gi"))]).await?;
    let selector = json!({ "selector": { "matchLabels": { "name": t.global("chosen") } } });
    let claim = t.manual_claim("claim", "1Gi", selector).await?;
    expect(&t, &claim, "chosen").await
}

async fn volume_mode(t: Arc<Fixture>) -> Result<()> {
    volumes(&t, &[("block", json!({ "volumeMode": "Block" }))]).await?;
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    t.event("claim", "ProvisioningFailed").await?;
    // It is never Available, since the claim is already waiting for it.
    t.static_volume("filesystem", size("9Gi")).await?;
    expect(&t, &claim, "filesystem").await?;
    let phase = t.volume_now(&t.global("block")).await?.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Available"), "the block volume is {phase:?}");
    Ok(())
}

async fn claim_names_volume(t: Arc<Fixture>) -> Result<()> {
    volumes(&t, &[("fitting", size("1Gi")), ("named", size("9Gi"))]).await?;
    let claim = t.manual_claim("claim", "1Gi", json!({ "volumeName": t.global("named") })).await?;
    expect(&t, &claim, "named").await
}

async fn volume_names_claim(t: Arc<Fixture>) -> Result<()> {
    let reserved = json!({ "claimRef": { "namespace": t.namespace(), "name": "awaited" } });
    volumes(&t, &[("reserved", reserved), ("large", size("9Gi"))]).await?;
    let other = t.manual_claim("other", "1Gi", json!({})).await?;
    expect(&t, &other, "large").await?;
    let awaited = t.manual_claim("awaited", "1Gi", json!({})).await?;
    expect(&t, &awaited, "reserved").await
}

async fn named_volume_is_too_small(t: Arc<Fixture>) -> Result<()> {
    volumes(&t, &[("small", size("1Gi"))]).await?;
    let claim = t.manual_claim("claim", "2Gi", json!({ "volumeName": t.global("small") })).await?;
    t.event_containing("claim", &["VolumeMismatch"], "Cannot bind to requested volume").await?;
    binds_others(&t).await?;
    t.stays_pending(&claim).await
}

async fn two_claims_race(t: Arc<Fixture>) -> Result<()> {
    let claims = ["first", "second"].map(|name| t.manual_claim(name, "1Gi", json!({})));
    let claims = try_join_all(claims).await?;
    for claim in &claims {
        t.event(&claim.name, "ProvisioningFailed").await?;
    }
    t.static_volume("one", json!({})).await?;
    let volume = t.volume_in_phase(&t.global("one"), "Bound").await?;
    let taker = volume.spec.and_then(|spec| spec.claim_ref).and_then(|claim| claim.uid);
    let (winner, loser) = if taker.as_ref() == Some(&claims[0].uid) { (0, 1) } else { (1, 0) };
    expect(&t, &claims[winner], "one").await?;
    t.claim_in_phase(&claims[loser], "Pending").await?;
    t.static_volume("two", json!({})).await?;
    expect(&t, &claims[loser], "two").await
}

async fn many_pairs(t: Arc<Fixture>) -> Result<()> {
    let names: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
    let pairs = names.iter().map(|name| async {
        let (_, claim) =
            futures::try_join!(t.static_volume(name, json!({})), t.manual_claim(name, "1Gi", json!({})))?;
        anyhow::Ok(claim)
    });
    let claims = try_join_all(pairs).await?;
    let mut taken = try_join_all(claims.iter().map(|claim| bound_to(&t, claim))).await?;
    taken.sort();
    taken.dedup();
    ensure!(taken.len() == 10, "ten claims share {} volumes", taken.len());
    Ok(())
}

async fn lost(t: Arc<Fixture>) -> Result<()> {
    volumes(&t, &[("volume", json!({}))]).await?;
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    expect(&t, &claim, "volume").await?;
    let name = t.global("volume");
    t.delete_volume(&name).await?;
    // As an administrator who removes the protection finalizer by force.
    t.patch_volume(&name, json!({ "metadata": { "finalizers": null } })).await?;
    t.volume_deleted(&name).await?;
    t.claim_in_phase(&claim, "Lost").await?;
    t.event_containing("claim", &["ClaimLost"], "Data on the volume is lost").await?;
    Ok(())
}

async fn released_stays_released(t: Arc<Fixture>) -> Result<()> {
    volumes(&t, &[("volume", json!({}))]).await?;
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    expect(&t, &claim, "volume").await?;
    t.delete_claim(&claim).await?;
    t.volume_in_phase(&t.global("volume"), "Released").await?;
    // Another claim of the same name must not get access to the data of the first.
    let again = t.manual_claim("claim", "1Gi", json!({})).await?;
    t.event("claim", "ProvisioningFailed").await?;
    binds_others(&t).await?;
    t.stays_pending(&again).await?;
    t.volume_in_phase(&t.global("volume"), "Released").await?;
    // Until an administrator has handled the data and clears the claimRef.
    t.patch_volume(&t.global("volume"), json!({ "spec": { "claimRef": null } })).await?;
    expect(&t, &again, "volume").await
}

async fn volume_comes_later(t: Arc<Fixture>) -> Result<()> {
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    t.event_containing("claim", &["ProvisioningFailed"], "not found").await?;
    t.static_volume("volume", json!({})).await?;
    expect(&t, &claim, "volume").await
}

async fn controllers_were_away(t: Arc<Fixture>) -> Result<()> {
    use claimcheck_cluster::{Disruption, Victim};
    t.disrupt(Victim::Controllers, Disruption::Stop).await?;
    t.static_volume("fits", json!({})).await?;
    t.static_volume("doomed", json!({})).await?;
    let claim = t.manual_claim("claim", "1Gi", json!({})).await?;
    let deleted = t.manual_claim("gone", "1Gi", json!({})).await?;
    t.delete_volume(&t.global("doomed")).await?;
    t.delete_claim(&deleted).await?;
    t.disrupt(Victim::Controllers, Disruption::Start).await?;
    expect(&t, &claim, "fits").await?;
    t.deleted(Kind::Claim, &deleted.name).await?;
    t.volume_deleted(&t.global("doomed")).await
}

async fn claim_binds_to_available_volume_on_scheduling(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let mut volumes = Vec::new();
    for node in &nodes[..2] {
        volumes.push(volume_freed_on(&t, node).await?);
    }
    // In reverse order, so that the first volume is the wrong one.
    for (node, volume) in nodes[..2].iter().zip(&volumes).rev() {
        let claim = t.claim(&format!("late-{node}")).await?;
        let reader = format!("reader-{node}");
        let output =
            t.output(&TestPod::run_to_completion(&reader, &claim, "cat /data/node").on(node)).await?;
        ensure!(&output == node, "the pod on {node} read {output:?}");
        let taken = t.bound(&claim).await?.name_any();
        ensure!(&taken == volume, "the claim for {node} is bound to {taken} instead of {volume}");
        t.remove_named_pod(&reader).await?;
        t.set_policy(volume, "Delete").await?;
        t.remove_claim(&claim).await?;
    }
    t.expect_called(&t.balance().await?, CsiMethod::CreateVolume, 2)
}

/// As a provisioner of local volumes does it (local-static-provisioner#504).
async fn local_volume_freed(t: Arc<Fixture>) -> Result<()> {
    t.local_class().await?;
    let host = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [t.nodes().remove(0)] });
    let local = json!({
        "csi": null,
        "local": { "path": "/tmp" },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [host] }] } },
    });
    t.static_volume("local", local.clone()).await?;
    let volume = t.global("local");
    let claim = t.manual_claim("first", "1Gi", json!({})).await?;
    let first = t.ready_pod(&TestPod::long_running("first", &claim, "true")).await?;
    expect(&t, &claim, "local").await?;
    let next = t.manual_claim("next", "1Gi", json!({})).await?;
    let waiting = t.pod(&TestPod::run_to_completion("next", &next, "echo started")).await?;
    t.unschedulable(&waiting, &["didn't find available persistent volumes to bind"]).await?;
    t.remove_pod(&first).await?;
    t.delete_claim(&claim).await?;
    t.volume_in_phase(&volume, "Released").await?;
    t.delete_volume(&volume).await?;
    t.volume_deleted(&volume).await?;
    t.static_volume("local", local).await?;
    let output = t.ended(&waiting).await?;
    ensure!(output == "started", "unexpected pod output {output:?}");
    expect(&t, &next, "local").await
}

/// An Available volume that is accessible from one node only and contains a file with the name of that node.
async fn volume_freed_on(t: &Fixture, node: &str) -> Result<String> {
    let claim = t.claim(&format!("first-{node}")).await?;
    let writer = format!("writer-{node}");
    t.output(&TestPod::run_to_completion(&writer, &claim, &format!("echo {node} > /data/node")).on(node))
        .await?;
    let volume = t.bound(&claim).await?;
    if volume.spec.as_ref().is_some_and(|spec| spec.node_affinity.is_some()) {
        return Err(skip("the driver sets the node affinity of its volumes itself"));
    }
    let volume = volume.name_any();
    t.set_policy(&volume, "Retain").await?;
    t.remove_named_pod(&writer).await?;
    t.delete_claim(&claim).await?;
    t.volume_in_phase(&volume, "Released").await?;
    let host = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [host] }] } });
    t.patch_volume(&volume, json!({ "spec": { "claimRef": null, "nodeAffinity": affinity } })).await?;
    t.volume_in_phase(&volume, "Available").await?;
    Ok(volume)
}
