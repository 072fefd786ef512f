//! What a node passes to a driver, and what it does not: properties of volumes, and secrets.
//!
//! A driver that has only been tested with a lenient node breaks with the next one, and a harness with a node stricter
//! than a kubelet fails drivers that work.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_informer::Kind;
use claimcheck_model::CsiMethod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{case, row};
use crate::{
    case::{Case, Pattern},
    fixture::{Fixture, Script, TestPod, Variant},
    need::Need,
};

const SUITE: &str = "node_requests";
const WRITES: &str = "echo here > /data/file && test \"$(cat /data/file)\" = here";

pub(super) const ROWS: &[Case] = &[
    row(
        SUITE,
        "a pod writes to a PV with csi.readOnly if the driver needs no attachment",
        "CSI Mock volume attach",
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::NotAttached)],
        case!(read_only_source),
    ),
    row(
        SUITE,
        "a missing node-stage secret matters only to drivers with STAGE_UNSTAGE_VOLUME",
        "CSI Mock volume node stage",
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::NotStaged)],
        case!(stage_secret_without_stage),
    ),
    row(
        SUITE,
        "a secret that is not UTF-8 fails with event FailedMount, and NodePublishVolume is not called",
        "CSI Mock volume node stage",
        Pattern::IMMEDIATE,
        &[Need::Variant(Variant::NotAttached)],
        case!(secret_not_text),
    ),
];

/// The parameters of a class with a secret of this case.
fn with_secret(t: &Fixture, call: &str, name: &str) -> Value {
    json!({ "parameters": {
        "kind": "directory",
        format!("csi.storage.k8s.io/{call}-secret-name"): name,
        format!("csi.storage.k8s.io/{call}-secret-namespace"): t.namespace(),
    } })
}

/// `csi.readOnly` is the attacher's (ControllerPublishVolume). The kubelet reads the pod's field alone: `getReadOnlyFromSpec`
/// in pkg/volume/csi/csi_util.go.
async fn read_only_source(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::NotAttached, json!({ "reclaimPolicy": "Retain" })).await?;
    let first = t.claim_of_driver(&driver, "first", "1Mi").await?;
    let made = t.bound(&first).await?;
    t.delete_claim(&first).await?;
    t.deleted(Kind::Claim, &first.name).await?;
    t.delete_volume(&made.name_any()).await?;
    t.volume_deleted(&made.name_any()).await?;

    // The same volume of the driver again, with a source that an administrator wrote.
    let mut spec = json!(made.spec);
    let spec_fields = spec.as_object_mut().into_iter();
    spec_fields.for_each(|fields| drop(fields.remove("claimRef")));
    spec["csi"]["readOnly"] = json!(true);
    spec["persistentVolumeReclaimPolicy"] = json!("Delete");
    spec["storageClassName"] = json!(t.global("manual"));
    let name = t.global("read-only");
    let annotations = json!({ "pv.kubernetes.io/provisioned-by": Variant::NotAttached.name() });
    t.volume_like(json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec })).await?;
    let second = t.manual_claim("second", "1Mi", json!({ "volumeName": name })).await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &second, WRITES)).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&second).await
}

/// `MountDevice` in pkg/volume/csi/csi_attacher.go gets the secret for NodeStageVolume alone.
async fn stage_secret_without_stage(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::NotStaged, with_secret(&t, "node-stage", "missing")).await?;
    let claim = t.claim_of_driver(&driver, "claim", "1Mi").await?;
    let secret = t.bound(&claim).await?.spec.and_then(|spec| spec.csi?.node_stage_secret_ref);
    ensure!(secret.is_some(), "the volume has no nodeStageSecretRef");
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, WRITES)).await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await
}

/// Protobuf has no such strings: gRPC of a kubelet fails before the call.
async fn secret_not_text(t: Arc<Fixture>) -> Result<()> {
    t.secret_bytes("binary", "key", &[b'a', 0xff, b'b']).await?;
    let driver = t.install_driver(Variant::NotAttached, with_secret(&t, "node-publish", "binary")).await?;
    let claim = t.claim_of_driver(&driver, "claim", "1Mi").await?;
    let source = json!({ "persistentVolumeClaim": { "claimName": claim.name } });
    let pod = t.script(&Script::long_running("pod", "true").volume("data", source)).await?;
    t.event_containing("pod", &["FailedMount"], "UTF-8").await?;
    t.remove_pod(&pod).await?;
    t.remove_claim(&claim).await?;
    t.expect_called(&t.balance().await?, CsiMethod::NodePublishVolume, 0)
}
