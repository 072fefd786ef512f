//! Phases of snapshots and restored volumes, and what is left of snapshots.

use std::collections::BTreeMap;

use claimcheck_csi::Code;
use claimcheck_model::{
    CsiMethod, LeakKind, Outcome, Phase,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::{
    super::{Tap, Timeline},
    call, claim, ok, outcomes, seen, volume, with_volume,
};
use crate::evidence::Observation;

fn snapshot(ms: u64, ready: bool, deleted: bool) -> Observation {
    seen::<VolumeSnapshot>(
        ms,
        deleted,
        json!({
            "metadata": { "name": "s1", "namespace": "ns", "uid": "su1" },
            "spec": { "source": { "persistentVolumeClaimName": "c1" } },
            "status": { "boundVolumeSnapshotContentName": "sc1", "readyToUse": ready },
        }),
    )
}

fn content(ms: u64, handle: Option<&str>, deleted: bool) -> Observation {
    seen::<VolumeSnapshotContent>(
        ms,
        deleted,
        json!({
            "metadata": { "name": "sc1", "uid": "scu1" },
            "spec": {
                "deletionPolicy": "Delete",
                "driver": "d",
                "source": { "volumeHandle": "h1" },
                "volumeSnapshotRef": { "name": "s1", "namespace": "ns", "uid": "su1" },
            },
            "status": { "snapshotHandle": handle },
        }),
    )
}

fn restored(ms: u64, phase: &str) -> Observation {
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s1" });
    seen::<PersistentVolumeClaim>(
        ms,
        false,
        json!({
            "metadata": {
                "name": "c2", "namespace": "ns", "uid": "cu2",
                "annotations": { "volume.kubernetes.io/storage-provisioner": "d" },
            },
            "spec": { "dataSource": source, "volumeName": (phase == "Bound").then_some("pv2") },
            "status": { "phase": phase },
        }),
    )
}

#[test]
fn a_snapshot_is_measured_and_what_is_left_of_it_is_left_of_its_claim() {
    let mut timeline = Timeline::new(Tap::Present);
    let evidence = [
        claim(0, "Pending", false),
        volume(10, false),
        claim(20, "Bound", false),
        snapshot(30, false, false),
        ok(CsiMethod::CreateSnapshot, "", "", 40, 50),
        // Created before its source was ready, it waits: that is not part of its provisioning.
        restored(55, "Pending"),
        content(60, Some("sh1"), false),
        snapshot(80, true, false),
        seen::<PersistentVolume>(
            100,
            false,
            json!({
                "metadata": { "name": "pv2", "uid": "vu2", "annotations": { "pv.kubernetes.io/provisioned-by": "d" } },
                "spec": { "csi": { "driver": "d", "volumeHandle": "h2" }, "claimRef": { "uid": "cu2" } },
            }),
        ),
        restored(110, "Bound"),
    ];
    let seconds: BTreeMap<Phase, f64> = outcomes(&mut timeline, &evidence)
        .into_iter()
        .filter_map(|(phase, outcome)| match outcome {
            Outcome::Ok { seconds, .. } => Some((phase, (seconds * 1000.0).round())),
            Outcome::Aborted { .. } | Outcome::Unobserved => None,
        })
        .collect();
    let measured = |phase: Phase| seconds.get(&phase).copied();
    assert_eq!(measured(Phase::SnapshotCreate), Some(30.0));
    assert_eq!(measured(Phase::SnapshotReady), Some(20.0));
    assert_eq!(measured(Phase::Restore), Some(20.0));

    let left = |timeline: &Timeline| -> Vec<LeakKind> {
        let of_snapshots = [LeakKind::Snapshot, LeakKind::SnapshotContent, LeakKind::BackendSnapshot];
        let left = timeline.balance(["cu1"]).left.into_iter().map(|(kind, _)| kind);
        left.filter(|kind| of_snapshots.contains(kind)).collect()
    };
    assert_eq!(left(&timeline), [LeakKind::Snapshot, LeakKind::SnapshotContent, LeakKind::BackendSnapshot]);
    timeline.feed(&content(120, Some("sh1"), true));
    timeline.feed(&snapshot(130, true, true));
    assert_eq!(left(&timeline), [LeakKind::BackendSnapshot], "the driver still has it");
    let deleted = call(CsiMethod::DeleteSnapshot, "", "", 140, Some((150, Code::Ok)));
    timeline.feed(&with_volume("sh1", deleted).into());
    assert_eq!(left(&timeline), []);
}

#[test]
fn a_snapshot_of_a_group_is_deleted_with_the_group() {
    let mut timeline = Timeline::new(Tap::Present);
    let member = |ms, missing| {
        seen::<VolumeSnapshotContent>(
            ms,
            missing,
            json!({
                "metadata": { "name": "sc1", "uid": "scu1" },
                "spec": {
                    "deletionPolicy": "Delete",
                    "driver": "d",
                    "source": { "volumeHandle": "h1" },
                    "volumeSnapshotRef": { "name": "s1", "namespace": "ns", "uid": "su1" },
                },
                "status": { "snapshotHandle": "sh1", "volumeGroupSnapshotHandle": "gh1" },
            }),
        )
    };
    let evidence = [
        claim(0, "Pending", false),
        volume(10, false),
        claim(20, "Bound", false),
        snapshot(30, false, false),
        member(40, false),
        snapshot(50, true, false),
        member(60, true),
        snapshot(70, true, true),
    ];
    for evidence in &evidence {
        timeline.feed(evidence);
    }
    let left = |timeline: &Timeline| {
        let left = timeline.balance(["cu1"]).left;
        left.iter().filter(|(kind, _)| *kind == LeakKind::BackendSnapshot).count()
    };
    assert_eq!(left(&timeline), 1, "the driver still has it");
    let deleted = call(CsiMethod::DeleteVolumeGroupSnapshot, "", "", 80, Some((90, Code::Ok)));
    timeline.feed(&with_volume("gh1", deleted).into());
    assert_eq!(left(&timeline), 0);
}
