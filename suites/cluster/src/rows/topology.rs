//! Topology: volumes that are accessible in one zone only.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_model::Capability;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, InstalledDriver, TestPod, Variant, ZONE},
    need::Need,
};

const SUITE: &str = "topology";
const ZONED: &[Need] =
    &[Need::Nodes(2), Need::Variant(Variant::Zoned), Need::Capability(Capability::Topology)];
const SCRIPT: &str = "echo here > /data/file && test \"$(cat /data/file)\" = here";

const fn topology(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "topology", pattern, ZONED, run)
}

pub(super) const ROWS: &[Case] = &[
    topology(
        "a WaitForFirstConsumer volume is provisioned in the zone of its pod",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(volume_follows_pod),
    ),
    topology("a pod is scheduled to the zone of its volume", Pattern::IMMEDIATE, case!(pod_follows_volume)),
    topology(
        "a WaitForFirstConsumer volume and its pod stay within allowedTopologies",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(allowed_late),
    ),
    topology(
        "an Immediate volume is provisioned within allowedTopologies",
        Pattern::IMMEDIATE,
        case!(allowed_at_once),
    ),
    topology(
        "a pod that cannot run in its volume's zone gets event FailedScheduling",
        Pattern::IMMEDIATE,
        case!(conflict),
    ),
    topology(
        "two WaitForFirstConsumer volumes of one pod are provisioned in the same zone",
        Pattern::WAIT_FOR_FIRST_CONSUMER,
        case!(two_volumes),
    ),
];

const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";

/// The only zone from which a volume is accessible.
fn zone_of(volume: &PersistentVolume) -> Option<&str> {
    let terms = &volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
    let [term] = &terms[..] else { return None };
    let zones = term.match_expressions.iter().flatten().find(|expected| expected.key == ZONE)?;
    let [zone] = &zones.values.as_ref()?[..] else { return None };
    Some(zone)
}

fn allowing(zone: &str, binding: &str) -> Value {
    json!({
        "volumeBindingMode": binding,
        "allowedTopologies": [{ "matchLabelExpressions": [{ "key": ZONE, "values": [zone] }] }],
    })
}

async fn volume_follows_pod(t: Arc<Fixture>) -> Result<()> {
    let zoned =
        t.install_driver(Variant::Zoned, json!({ "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER })).await?;
    for node in t.nodes() {
        let [a, b, c] = claims(&t, &zoned, &node).await?;
        let pod = TestPod::long_running(&node, &a, SCRIPT).also(&b).also(&c);
        t.ready_pod(&pod.on(&node)).await?;
        for claim in [a, b, c] {
            let volume = t.bound(&claim).await?;
            ensure!(zone_of(&volume) == Some(&node), "a volume for {node} is in {:?}", zone_of(&volume));
        }
    }
    Ok(())
}

/// Several claims for one zone: a provisioner that spreads volumes over all zones may create one there by chance.
async fn claims(t: &Fixture, driver: &InstalledDriver, zone: &str) -> Result<[Claim; 3]> {
    let claim = async |number: u32| t.claim_of_driver(driver, &format!("{zone}-{number}"), "1Mi").await;
    Ok([claim(0).await?, claim(1).await?, claim(2).await?])
}

async fn pod_follows_volume(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    for (number, zone) in nodes.iter().enumerate() {
        let zoned = t.install_driver(Variant::Zoned, allowing(zone, "Immediate")).await?;
        let claim = t.claim_of_driver(&zoned, zone, "1Mi").await?;
        let volume = t.bound(&claim).await?;
        // Without its volume, the pod would run elsewhere.
        let other = &nodes[(number + 1) % nodes.len()];
        let pod = t.ready_pod(&TestPod::long_running(zone, &claim, SCRIPT).preferring(other)).await?;
        let node = t.node_of(&pod);
        ensure!(
            node.as_ref() == Some(zone) && zone_of(&volume) == Some(zone),
            "the volume for zone {zone} is in {:?}, its pod on {node:?}",
            zone_of(&volume)
        );
    }
    Ok(())
}

async fn allowed_late(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    for (number, zone) in nodes.iter().enumerate() {
        let zoned = t.install_driver(Variant::Zoned, allowing(zone, WAIT_FOR_FIRST_CONSUMER)).await?;
        let claim = t.claim_of_driver(&zoned, zone, "1Mi").await?;
        // Without allowedTopologies, the pod would run elsewhere.
        let other = &nodes[(number + 1) % nodes.len()];
        let pod = t.ready_pod(&TestPod::long_running(zone, &claim, SCRIPT).preferring(other)).await?;
        let volume = t.bound(&claim).await?;
        ensure!(zone_of(&volume) == Some(zone), "allowed zone {zone}, volume in {:?}", zone_of(&volume));
        ensure!(t.node_of(&pod).as_ref() == Some(zone), "allowed zone {zone}, pod on {:?}", t.node_of(&pod));
    }
    Ok(())
}

async fn allowed_at_once(t: Arc<Fixture>) -> Result<()> {
    for zone in t.nodes() {
        let zoned = t.install_driver(Variant::Zoned, allowing(&zone, "Immediate")).await?;
        for claim in claims(&t, &zoned, &zone).await? {
            let volume = t.bound(&claim).await?;
            ensure!(zone_of(&volume) == Some(&zone), "allowed zone {zone}, volume in {:?}", zone_of(&volume));
        }
    }
    Ok(())
}

async fn conflict(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let zoned = t.install_driver(Variant::Zoned, allowing(&nodes[0], "Immediate")).await?;
    let claim = t.claim_of_driver(&zoned, "claim", "1Mi").await?;
    t.bound(&claim).await?;
    let pod = t.pod(&TestPod::long_running("pod", &claim, "").on(&nodes[1])).await?;
    // The message up to Kubernetes 1.33, and since.
    t.unschedulable(&pod, &["volume node affinity conflict", "didn't match PersistentVolume's node affinity"])
        .await
}

async fn two_volumes(t: Arc<Fixture>) -> Result<()> {
    let zoned =
        t.install_driver(Variant::Zoned, json!({ "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER })).await?;
    // A provisioner that spreads volumes does so by these numbers.
    let first = t.claim_of_driver(&zoned, "claim-0", "1Mi").await?;
    let second = t.claim_of_driver(&zoned, "claim-1", "1Mi").await?;
    let script = "echo 1 > /data/file && echo 2 > /data1/file";
    let pod = t.ready_pod(&TestPod::long_running("pod", &first, script).also(&second)).await?;
    let node = t.node_of(&pod);
    for claim in [&first, &second] {
        let volume = t.bound(claim).await?;
        ensure!(zone_of(&volume) == node.as_deref(), "pod on {node:?}, volume in {:?}", zone_of(&volume));
    }
    Ok(())
}
