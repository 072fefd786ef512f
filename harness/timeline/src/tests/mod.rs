//! The timeline's rules one by one; `order` and `counting` check it against oracles. Whole lifecycles are in
//! `tests/replay`.

mod balance;
mod counting;
mod order;
mod phases;
mod rules;
mod snapshots;

use claimcheck_csi::{
    Code,
    tap::{CallEnd, CallId, TapRecord},
};
use claimcheck_model::{CsiMethod, Event, Outcome, Phase, Stamp};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttachment,
};
use serde_json::{Value, json};

use super::Timeline;
use crate::evidence::{Change, Object, Observation};

fn stamp(ms: u64) -> Stamp {
    Stamp { mono_ns: ms * 1_000_000, wall_ns: ms * 1_000_000 }
}

fn call(method: CsiMethod, node: &str, target: &str, start: u64, end: Option<(u64, Code)>) -> TapRecord {
    let call = TapRecord::started(CallId { pid: 1, seq: 1 }, "", method, stamp(start));
    let call = TapRecord {
        driver: Some("d".into()),
        node: Some(node.into()),
        target: Some(target.into()),
        end: end.map(|(ms, code)| CallEnd::new(stamp(ms), code)),
        ..call
    };
    with_volume("h1", call)
}

/// The same call for another volume, by its handle or requested name.
fn with_volume(volume: &str, call: TapRecord) -> TapRecord {
    TapRecord { volume_id: Some(volume.into()), volume_name: Some(volume.into()), ..call }
}

fn ok(method: CsiMethod, node: &str, target: &str, start: u64, end: u64) -> Observation {
    call(method, node, target, start, Some((end, Code::Ok))).into()
}

/// An object of a kind at `ms`, which is also its resourceVersion.
fn seen<K: serde::de::DeserializeOwned + Into<Object>>(
    ms: u64,
    deleted: bool,
    mut object: Value,
) -> Observation {
    object["metadata"]["resourceVersion"] = json!(ms.to_string());
    let object = serde_json::from_value::<K>(object).unwrap().into();
    Observation::Watch(Box::new(Change { at: stamp(ms), object, deleted }))
}

fn claim(ms: u64, phase: &str, deleted: bool) -> Observation {
    let volume = if phase == "Bound" { json!("pv1") } else { Value::Null };
    let annotations = json!({ "volume.kubernetes.io/storage-provisioner": "d" });
    seen::<PersistentVolumeClaim>(
        ms,
        deleted,
        json!({
            "metadata": { "name": "c1", "namespace": "ns", "uid": "cu1", "annotations": annotations },
            "spec": { "volumeName": volume, "accessModes": ["ReadWriteOnce"] },
            "status": { "phase": phase },
        }),
    )
}

fn volume(ms: u64, deleted: bool) -> Observation {
    seen::<PersistentVolume>(
        ms,
        deleted,
        json!({
            "metadata": { "name": "pv1", "uid": "vu1", "annotations": { "pv.kubernetes.io/provisioned-by": "d" } },
            "spec": {
                "csi": { "driver": "d", "volumeHandle": "h1" },
                "claimRef": { "uid": "cu1" },
                "persistentVolumeReclaimPolicy": "Delete",
            },
        }),
    )
}

fn pod(ms: u64, uid: &str, node: Option<&str>, ended: bool) -> Observation {
    seen::<Pod>(
        ms,
        false,
        json!({
            "metadata": { "name": uid, "namespace": "ns", "uid": uid },
            "spec": {
                "containers": [{ "name": "c" }],
                "nodeName": node,
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c1" } }],
            },
            "status": { "phase": if ended { "Succeeded" } else { "Pending" } },
        }),
    )
}

fn claim_deleted(ms: u64) -> Observation {
    claim(ms, "Bound", true)
}

fn deleted_pod(ms: u64, uid: &str) -> Observation {
    let Observation::Watch(change) = pod(ms, uid, Some("n1"), true) else { unreachable!("a pod is watched") };
    Observation::Watch(Box::new(Change { deleted: true, ..*change }))
}

fn attachment(ms: u64, uid: &str, node: &str, attached: bool, deleted: bool) -> Observation {
    seen::<VolumeAttachment>(
        ms,
        deleted,
        json!({
            "metadata": { "name": uid, "uid": uid },
            "spec": { "attacher": "d", "nodeName": node, "source": { "persistentVolumeName": "pv1" } },
            "status": { "attached": attached },
        }),
    )
}

fn deleting_attachment(ms: u64, uid: &str, node: &str) -> Observation {
    let Observation::Watch(mut change) = attachment(ms, uid, node, true, false) else {
        unreachable!("an attachment is watched")
    };
    let Object::Attachment(object) = &mut change.object else { unreachable!("it is an attachment") };
    object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    Observation::Watch(change)
}

fn target(pod: &str) -> String {
    format!("/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/pv1/mount")
}

/// The outcome of each phase after all of the evidence.
fn outcomes(timeline: &mut Timeline, evidence: &[Observation]) -> Vec<(Phase, Outcome)> {
    let mut events: Vec<Event> = evidence.iter().flat_map(|evidence| timeline.feed(evidence)).collect();
    events.extend(timeline.finish());
    let samples = events.into_iter().filter_map(|event| match event {
        Event::Phase(sample) => Some((sample.phase, sample.outcome)),
        _ => None,
    });
    samples.collect()
}

fn millis(outcomes: &[(Phase, Outcome)], phase: Phase) -> Vec<f64> {
    let of_phase = outcomes.iter().filter(|(other, _)| *other == phase);
    of_phase
        .filter_map(|(_, o)| if let Outcome::Ok { seconds, .. } = o { Some(seconds * 1e3) } else { None })
        .collect()
}

fn bound() -> Vec<Observation> {
    vec![claim(1, "Pending", false), volume(3, false), claim(5, "Bound", false)]
}
