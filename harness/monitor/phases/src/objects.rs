//! What is retained of objects: a few strings of each, taken on arrival. Pure.

use std::collections::BTreeSet;

use claimcheck_model::{ObjectKey, VolumeMode};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, Pod},
    storage::v1::CSIDriver,
};

/// A driver's name and a volume handle.
pub type Handle = (String, String);

/// The prefix of a CSI volume in a Node's status: `GetUniqueVolumeName` (`pkg/volume/util/util.go`) with the name of
/// the plugin (`pkg/volume/csi/csi_plugin.go`).
const PLUGIN: &str = "kubernetes.io/csi/";
/// Between driver and handle: `volNameSep` of `pkg/volume/csi/csi_plugin.go`.
const SEPARATOR: char = '^';

/// A pod with claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its uid.
    pub uid: String,
    /// Its claims.
    pub claims: Vec<ObjectKey>,
    /// Whether it was ready, or is complete.
    pub ready: bool,
    /// Whether its containers ended for good.
    pub terminated: bool,
}

/// A PersistentVolume of a CSI driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
    /// The driver's name.
    pub driver: String,
    /// The volume handle.
    pub handle: String,
    /// The SHA-256 of the handle, as in the kubelet's staging path.
    pub handle_sha256: String,
    /// Its claim.
    pub claim: ObjectKey,
    /// Its storage class; empty if it has none.
    pub class: String,
    /// File system or block.
    pub mode: VolumeMode,
    /// When it was created, by the API server's clock, seconds since the Unix epoch; 0 if that is not known.
    pub created_seconds: i64,
}

/// A pod's facts; none without a claim.
///
/// The claim of a generic ephemeral volume is called `<pod>-<volume>` (`VolumeClaimName`, component-helpers'
/// `storage/ephemeral`).
pub fn pod_facts(pod: &Pod) -> Option<PodFacts> {
    let meta = &pod.metadata;
    let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(ObjectKey::new(namespace, &*source.claim_name)),
        (None, Some(_)) => Some(ObjectKey::new(namespace, format!("{name}-{}", volume.name))),
        (None, None) => None,
    });
    let claims: Vec<ObjectKey> = claims.collect();
    if claims.is_empty() {
        return None;
    }
    Some(PodFacts { uid: meta.uid.clone()?, claims, ready: is_ready(pod), terminated: containers_ended(pod) })
}

/// Whether a pod is ready; one that completed without that counts as started, too. As `is_ready` in
/// `harness/timeline/src/state.rs`.
fn is_ready(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
        || status.phase.as_deref() == Some("Succeeded")
}

/// Whether the containers of a pod ended for good: those of a pod that is not being deleted may restart, unless the
/// pod is complete. As `containers_ended` in `harness/timeline/src/state.rs`.
fn containers_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let declared = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ended = statuses.filter(|one| one.state.as_ref().is_some_and(|state| state.terminated.is_some()));
    matches!(phase, Some("Succeeded" | "Failed")) || (deleting && declared > 0 && ended.count() == declared)
}

/// A volume's facts; none for one without a CSI driver, or without a claim.
pub fn volume_facts(volume: &PersistentVolume) -> Option<VolumeFacts> {
    let spec = volume.spec.as_ref()?;
    let (csi, claim) = (spec.csi.as_ref()?, spec.claim_ref.as_ref()?);
    let created = volume.metadata.creation_timestamp.as_ref();
    Some(VolumeFacts {
        driver: csi.driver.clone(),
        handle: csi.volume_handle.clone(),
        handle_sha256: claimcheck_model::sha256(&csi.volume_handle),
        claim: ObjectKey::new(claim.namespace.as_deref()?, claim.name.as_deref()?),
        class: spec.storage_class_name.clone().unwrap_or_default(),
        mode: match spec.volume_mode.as_deref() {
            Some("Block") => VolumeMode::Block,
            _ => VolumeMode::Filesystem,
        },
        created_seconds: created.map_or(0, |time| time.0.as_second()),
    })
}

/// The CSI volumes that are attached to a node, by its status.
pub fn attached_volumes(node: &Node) -> BTreeSet<Handle> {
    let listed = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
    let handles = listed.filter_map(|attached| {
        let (driver, handle) = attached.name.strip_prefix(PLUGIN)?.split_once(SEPARATOR)?;
        Some((driver.to_owned(), handle.to_owned()))
    });
    handles.collect()
}

/// Whether a driver requires attach: it does unless its CSIDriver has `attachRequired: false` (`skipAttach`,
/// `pkg/volume/csi/csi_plugin.go`).
pub fn requires_attach(driver: Option<&CSIDriver>) -> bool {
    driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(more: &Value, status: &Value) -> Option<PodFacts> {
        let mut pod = json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u" },
            "spec": { "containers": [{ "name": "a" }, { "name": "b" }], "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": "c" } },
                { "name": "tmp", "emptyDir": {} },
                { "name": "own", "ephemeral": {} },
            ] },
            "status": status,
        });
        if let (Value::Object(meta), Value::Object(more)) = (&mut pod["metadata"], more) {
            meta.extend(more.clone());
        }
        pod_facts(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_is_reduced_to_its_claims_and_whether_it_ended() {
        let ended = |name: &str| {
            json!({ "name": name, "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": { "terminated": { "exitCode": 0 } } })
        };
        let deleting = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let table = [
            (json!({}), json!({}), false, false),
            (json!({}), json!({ "phase": "Succeeded" }), true, true),
            (json!({}), json!({ "phase": "Failed" }), false, true),
            (json!({}), json!({ "conditions": [{ "type": "Ready", "status": "True" }] }), true, false),
            (json!({}), json!({ "conditions": [{ "type": "Ready", "status": "False" }] }), false, false),
            (json!({}), json!({ "containerStatuses": [ended("a"), ended("b")] }), false, false),
            (deleting.clone(), json!({ "containerStatuses": [ended("a")] }), false, false),
            (deleting, json!({ "containerStatuses": [ended("a"), ended("b")] }), false, true),
        ];
        for (more, status, ready, terminated) in table {
            let facts = pod(&more, &status).unwrap();
            assert_eq!(facts.claims, [ObjectKey::new("ns", "c"), ObjectKey::new("ns", "p-own")]);
            let found = (&*facts.uid, facts.ready, facts.terminated);
            assert_eq!(found, ("u", ready, terminated), "{more} {status}");
        }
        let without: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u" },
            "spec": { "containers": [], "volumes": [{ "name": "tmp", "emptyDir": {} }] },
        }))
        .unwrap();
        assert_eq!(pod_facts(&without), None);
    }

    #[test]
    fn a_volume_is_reduced_to_the_values_of_its_labels() {
        let volume = |spec: Value| {
            let meta = json!({ "name": "pv", "creationTimestamp": "1970-01-01T00:01:00Z" });
            let volume = serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap();
            volume_facts(&volume)
        };
        let csi = json!({ "driver": "d", "volumeHandle": "abc" });
        let claim = json!({ "namespace": "ns", "name": "c" });
        let facts = volume(
            json!({ "csi": csi, "claimRef": claim, "storageClassName": "fast", "volumeMode": "Block" }),
        );
        let facts = facts.unwrap();
        assert_eq!((&*facts.driver, &*facts.handle, &*facts.class), ("d", "abc", "fast"));
        assert_eq!((facts.mode, facts.created_seconds), (VolumeMode::Block, 60));
        // The test vector of FIPS 180-4.
        assert!(facts.handle_sha256.starts_with("ba7816bf"), "{}", facts.handle_sha256);
        assert_eq!(volume(json!({ "csi": csi })), None);
        assert_eq!(volume(json!({ "hostPath": { "path": "/x" }, "claimRef": claim })), None);
    }

    #[test]
    fn attached_volumes_are_those_of_csi_drivers() {
        let names = ["kubernetes.io/csi/d.io^h^1", "kubernetes.io/aws-ebs/aws://x", "kubernetes.io/csi/none"];
        let listed: Vec<Value> = names.iter().map(|name| json!({ "name": name, "devicePath": "" })).collect();
        let node = json!({ "metadata": {}, "status": { "volumesAttached": listed } });
        let found = attached_volumes(&serde_json::from_value(node).unwrap());
        assert_eq!(found, BTreeSet::from([("d.io".to_owned(), "h^1".to_owned())]));
    }

    #[test]
    fn a_driver_requires_attach_unless_it_declares_otherwise() {
        let driver = |spec: Value| -> CSIDriver {
            serde_json::from_value(json!({ "metadata": { "name": "d" }, "spec": spec })).unwrap()
        };
        assert!(requires_attach(None));
        assert!(requires_attach(Some(&driver(json!({})))));
        assert!(requires_attach(Some(&driver(json!({ "attachRequired": true })))));
        assert!(!requires_attach(Some(&driver(json!({ "attachRequired": false })))));
    }
}
