//! The binder's plans as tables: a world, and the planned steps.

use std::{sync::Arc, time::Duration};

use claimcheck_informer::{
    EventType, World,
    testing::{
        self, NAMESPACE, annotate, bind, claim, claim_ref, class, deleting, pod, volume,
        wait_for_first_consumer_class, world,
    },
};
use claimcheck_model::{
    DEFAULT_CLASS, MIGRATED_TO, ObjectKey, PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, Time},
};
use serde_json::{Value, json};

use super::{
    action::{Action, Write},
    plan::{plan_claim, plan_consumer},
    plan_volume::plan_volume,
};

/// A step in a few words.
fn brief(action: &Action) -> String {
    let of_claim = |claim: &Arc<PersistentVolumeClaim>| claim.metadata.name.clone().unwrap();
    let of_volume = |volume: &Arc<PersistentVolume>| volume.metadata.name.clone().unwrap();
    match action {
        Action::Confirm(absent) => format!("confirm {absent:?}").chars().take_while(|c| *c != '(').collect(),
        Action::PointVolume(volume, claim) => format!("{} -> {}", of_volume(volume), of_claim(claim)),
        Action::UnpointVolume(volume) => format!("{} -> nothing", of_volume(volume)),
        Action::SetVolumePhase(volume, phase) => format!("{} {}", of_volume(volume), phase.name()),
        Action::FailVolume(volume, _) => format!("{} Failed", of_volume(volume)),
        Action::PointClaim(claim, volume) => format!("{} -> {}", of_claim(claim), of_volume(volume)),
        Action::SetClaimBound(claim, _) => format!("{} Bound", of_claim(claim)),
        Action::SetClaimPending(claim) => format!("{} Pending", of_claim(claim)),
        Action::SetClaimLost(claim) => format!("{} Lost", of_claim(claim)),
        Action::AskProvisioner(claim, provisioner) => format!("{} asks {provisioner}", of_claim(claim)),
        Action::AssignClass(claim, class) => format!("{} of class {class}", of_claim(claim)),
        Action::Event(_, _, reason, _) => format!("event {reason}"),
    }
}

fn claim_steps(world: &World) -> Vec<String> {
    plan_claim(&ObjectKey::new(NAMESPACE, "c"), world).iter().map(brief).collect()
}

fn volume_steps(world: &World) -> Vec<String> {
    plan_volume(&ObjectKey::cluster("v"), world).iter().map(brief).collect()
}

/// A claim and a volume bound to each other, after changes.
fn bound(
    change: impl FnOnce(&mut PersistentVolumeClaim, &mut PersistentVolume),
) -> (PersistentVolumeClaim, PersistentVolume) {
    let (mut claim, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
    bind(&mut claim, &mut volume);
    change(&mut claim, &mut volume);
    (claim, volume)
}

fn volume_spec(volume: &mut PersistentVolume) -> &mut k8s_openapi::api::core::v1::PersistentVolumeSpec {
    volume.spec.as_mut().unwrap()
}

fn claim_spec(
    claim: &mut PersistentVolumeClaim,
) -> &mut k8s_openapi::api::core::v1::PersistentVolumeClaimSpec {
    claim.spec.as_mut().unwrap()
}

fn set_volume_phase(volume: &mut PersistentVolume, phase: &str) {
    volume.status.as_mut().unwrap().phase = Some(phase.into());
}

#[test]
fn an_immediate_claim_asks_its_provisioner_once() {
    let mut world = world([claim("c", "fast", "1Gi").into(), class("fast", "csi.test").into()]);
    assert_eq!(claim_steps(&world), ["c asks csi.test", "event ExternalProvisioning"]);
    let mut asked = claim("c", "fast", "1Gi");
    annotate(&mut asked.metadata, STORAGE_PROVISIONER, "csi.test");
    world.apply(asked);
    assert_eq!(claim_steps(&world), [""; 0]);
}

#[test]
fn a_wait_for_first_consumer_claim_waits_for_its_node() {
    let mut world =
        world([claim("c", "late", "1Gi").into(), wait_for_first_consumer_class("late", "csi.test").into()]);
    // A free volume is the scheduler's to choose.
    world.apply(volume("v", "late", "1Gi"));
    assert_eq!(claim_steps(&world), ["event WaitForFirstConsumer"]);
    world.apply(pod("p", "", &["c"]));
    assert_eq!(claim_steps(&world), ["event WaitForPodScheduled"]);
    let mut selected = claim("c", "late", "1Gi");
    annotate(&mut selected.metadata, SELECTED_NODE, "n1");
    world.apply(selected);
    assert_eq!(claim_steps(&world), ["c asks csi.test", "event ExternalProvisioning"]);
    let mut reserved = volume("v", "late", "1Gi");
    volume_spec(&mut reserved).claim_ref = Some(claim_ref(&claim("c", "late", "1Gi")));
    world.apply(reserved);
    assert_eq!(claim_steps(&world), ["v Bound"], "the scheduler chose it");
}

#[test]
fn a_late_claim_names_the_pods_that_it_waits_for() {
    let late = || {
        world([claim("c", "late", "1Gi").into(), wait_for_first_consumer_class("late", "csi.test").into()])
    };
    let mut ended = pod("ended", "", &["c"]);
    ended.status.as_mut().unwrap().phase = Some("Failed".into());
    let of_no_use = [pod("running", "n1", &["c"]), ended, deleting(pod("going", "", &["c"]), &["f"])];
    let cases: [(&[&str], &str, &str); 3] = [
        (&[], "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        (&["p"], "WaitForPodScheduled", "waiting for pod p to be scheduled"),
        (&["p", "q"], "WaitForPodScheduled", "waiting for pods p,q to be scheduled"),
    ];
    for (pods, expected, text) in cases {
        let mut world = late();
        for pod in of_no_use.iter().cloned().chain(pods.iter().map(|name| pod(name, "", &["c"]))) {
            world.apply(pod);
        }
        let planned = plan_claim(&ObjectKey::new(NAMESPACE, "c"), &world);
        let [Action::Event(_, _, reason, message)] = &planned[..] else { panic!("{planned:?}") };
        assert_eq!((*reason, message.as_str()), (expected, text));
    }
}

#[test]
fn a_late_claim_names_a_later_pod_only_if_that_is_not_scheduled_at_once() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let created = |name: &str, node: &str, second| {
        let mut pod = pod(name, node, &["c"]);
        pod.metadata.creation_timestamp = Some(Time(at(second)));
        pod
    };
    let late = |change: &dyn Fn(&mut PersistentVolumeClaim)| {
        let mut claim = claim("c", "late", "1Gi");
        claim.status.get_or_insert_default().phase = Some("Pending".into());
        change(&mut claim);
        world([claim.into(), wait_for_first_consumer_class("late", "csi.test").into()])
    };
    let planned = |world: &World, second| {
        let (actions, again) = plan_consumer(&ObjectKey::new(NAMESPACE, "c"), world, at(second));
        let messages = actions.iter().map(|action| match action {
            Action::Event(_, _, "WaitForPodScheduled", message) => message.clone(),
            other => panic!("{other:?}"),
        });
        (messages.collect::<Vec<_>>(), again)
    };
    let (nothing, seconds) = (Vec::<String>::new(), Duration::from_secs);
    let mut waiting = late(&|_| {});
    assert_eq!(planned(&waiting, 100), (nothing.clone(), None), "no pod");
    waiting.apply(created("p", "", 100));
    assert_eq!(planned(&waiting, 100), (nothing.clone(), Some(seconds(15))));
    assert_eq!(planned(&waiting, 0), (nothing.clone(), Some(seconds(15))), "the API server's clock is ahead");
    assert_eq!(planned(&waiting, 110), (nothing.clone(), Some(seconds(5))));
    assert_eq!(planned(&waiting, 115), (vec!["waiting for pod p to be scheduled".into()], None));
    waiting.apply(created("q", "", 120));
    assert_eq!(planned(&waiting, 120), (vec!["waiting for pods p,q to be scheduled".into()], None));
    for pod in ["p", "q"] {
        waiting.apply(created(pod, "n1", 100));
    }
    assert_eq!(planned(&waiting, 200), (nothing.clone(), None), "both are scheduled");

    type Change = fn(&mut PersistentVolumeClaim);
    let is_over: [(&str, Change); 3] = [
        ("a node is selected", |claim| annotate(&mut claim.metadata, SELECTED_NODE, "n1")),
        ("it names a volume", |claim| claim_spec(claim).volume_name = Some("v".into())),
        ("it is being deleted", |claim| *claim = deleting(claim.clone(), &["f"])),
    ];
    for (text, change) in is_over {
        let mut world = late(&change);
        world.apply(created("p", "", 100));
        assert_eq!(planned(&world, 200), (nothing.clone(), None), "{text}");
    }
    let mut immediate = world([claim("c", "fast", "1Gi").into(), class("fast", "csi.test").into()]);
    immediate.apply(created("p", "", 100));
    assert_eq!(planned(&immediate, 200), (nothing, None));
}

#[test]
fn a_reserved_volume_comes_first_unless_a_free_one_has_fewer_access_modes() {
    let with_modes = |name: &str, modes: &[&str], reserved: bool| {
        let mut volume = volume(name, "fast", "1Gi");
        volume_spec(&mut volume).access_modes = Some(modes.iter().map(|mode| (*mode).to_owned()).collect());
        set_volume_phase(&mut volume, "Available");
        if reserved {
            let mut reference = claim_ref(&claim("c", "fast", "1Gi"));
            reference.uid = None;
            volume_spec(&mut volume).claim_ref = Some(reference);
        }
        volume
    };
    let (once, shared) = (&["ReadWriteOnce"][..], &["ReadWriteOnce", "ReadWriteMany"][..]);
    for (reserved, free, expected) in [
        (once, once, "reserved -> c"),
        (once, shared, "reserved -> c"),
        (shared, shared, "reserved -> c"),
        (shared, once, "free -> c"),
    ] {
        let volumes = [with_modes("free", free, false), with_modes("reserved", reserved, true)];
        let mut immediate = world([claim("c", "fast", "1Gi").into(), class("fast", "csi.test").into()]);
        let late_class = wait_for_first_consumer_class("fast", "csi.test");
        let mut late = world([claim("c", "fast", "1Gi").into(), late_class.into()]);
        for volume in volumes {
            immediate.apply(volume.clone());
            late.apply(volume);
        }
        assert_eq!(claim_steps(&immediate), [expected], "reserved {reserved:?}, free {free:?}");
        assert_eq!(claim_steps(&late), ["reserved -> c"], "the scheduler chooses among free ones");
    }
}

#[test]
fn a_binding_is_completed_step_by_step() {
    let done = bound(|_, _| {});
    let unpointed = bound(|claim, volume| {
        *claim = testing::claim("c", "fast", "1Gi");
        volume_spec(volume).claim_ref = None;
        set_volume_phase(volume, "Available");
    });
    let reserved_by_name = bound(|claim, volume| {
        *claim = testing::claim("c", "fast", "1Gi");
        volume_spec(volume).claim_ref.as_mut().unwrap().uid = None;
        set_volume_phase(volume, "Available");
    });
    let pointed = bound(|claim, volume| {
        *claim = testing::claim("c", "fast", "1Gi");
        set_volume_phase(volume, "Pending");
    });
    let phased = bound(|claim, _| *claim = testing::claim("c", "fast", "1Gi"));
    let completed = bound(|claim, _| claim.status = testing::claim("c", "fast", "1Gi").status);
    let cases: [(&str, _, &[&str]); 6] = [
        ("free", unpointed, &["v -> c"]),
        ("reserved by name", reserved_by_name, &["v -> c"]),
        ("pointed", pointed, &["v Bound"]),
        ("volume says Bound", phased, &["c -> v"]),
        ("claim points back", completed, &["c Bound"]),
        ("done", done, &[]),
    ];
    for (what, (claim, volume), expected) in cases {
        let world = world([claim.into(), volume.into(), class("fast", "csi.test").into()]);
        assert_eq!(claim_steps(&world), expected, "{what}");
    }
}

#[test]
fn the_smallest_volume_that_fits_is_taken() {
    let mut large = volume("large", "", "10Gi");
    volume_spec(&mut large).access_modes = Some(vec!["ReadWriteOnce".into(), "ReadOnlyMany".into()]);
    let mut labelled = volume("labelled", "", "5Gi");
    labelled.metadata.labels = Some([("disk".to_owned(), "ssd".to_owned())].into());
    let mut block = volume("block", "", "2Gi");
    volume_spec(&mut block).volume_mode = Some("Block".into());
    let mut pending = volume("pending", "", "1Gi");
    set_volume_phase(&mut pending, "Pending");
    let volumes = [
        large,
        labelled,
        block,
        pending,
        volume("other-class", "fast", "1Gi"),
        volume("small", "", "500Mi"),
        volume("exact", "", "3Gi"),
        deleting(volume("going", "", "1Gi"), &["f"]),
    ];
    let mut world = World::default();
    for volume in volumes {
        world.apply(volume);
    }
    type Change = fn(&mut PersistentVolumeClaim);
    let cases: [(&str, Change, &[&str]); 6] = [
        ("1Gi", |_| {}, &["exact -> c"]),
        ("3Gi", |_| {}, &["exact -> c"]),
        ("4Gi", |_| {}, &["labelled -> c"]),
        ("1Gi block", |c| claim_spec(c).volume_mode = Some("Block".into()), &["block -> c"]),
        (
            "1Gi read-only many",
            |c| claim_spec(c).access_modes = Some(vec!["ReadOnlyMany".into()]),
            &["large -> c"],
        ),
        ("20Gi", |_| {}, &["event FailedBinding"]),
    ];
    for (what, change, expected) in cases {
        let mut claim = claim("c", "", what.split(' ').next().unwrap());
        change(&mut claim);
        world.apply(claim);
        assert_eq!(claim_steps(&world), expected, "{what}");
    }
    let mut selective = claim("c", "", "1Gi");
    claim_spec(&mut selective).selector = Some(LabelSelector {
        match_labels: Some([("disk".to_owned(), "ssd".to_owned())].into()),
        match_expressions: None,
    });
    world.apply(selective);
    assert_eq!(claim_steps(&world), ["labelled -> c"]);
}

#[test]
fn a_volume_with_fewer_access_modes_comes_before_a_smaller_one() {
    let with_modes = |name: &str, size: &str, modes: &[&str]| {
        let mut volume = volume(name, "", size);
        volume_spec(&mut volume).access_modes = Some(modes.iter().map(|mode| (*mode).to_owned()).collect());
        volume
    };
    let mut world = world([
        claim("c", "", "1Gi").into(),
        with_modes("shared", "2Gi", &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]).into(),
        with_modes("also-read", "5Gi", &["ReadOnlyMany", "ReadWriteOnce"]).into(),
    ]);
    assert_eq!(claim_steps(&world), ["also-read -> c"]);
    world.apply(with_modes("larger", "20Gi", &["ReadWriteOnce"]));
    world.apply(with_modes("large", "10Gi", &["ReadWriteOnce"]));
    assert_eq!(claim_steps(&world), ["large -> c"]);
    let mut reading = claim("c", "", "6Gi");
    claim_spec(&mut reading).access_modes = Some(vec!["ReadOnlyMany".into()]);
    world.apply(reading);
    assert_eq!(claim_steps(&world), ["event FailedBinding"], "those that can be read are too small");
}

#[test]
fn a_class_of_a_migrated_plugin_is_refused_with_the_name_of_its_driver() {
    let world = world([claim("c", "old", "1Gi").into(), class("old", "kubernetes.io/aws-ebs").into()]);
    let [Action::Event(_, EventType::Warning, "ProvisioningFailed", message)] =
        &plan_claim(&ObjectKey::new(NAMESPACE, "c"), &world)[..]
    else {
        panic!("{:?}", claim_steps(&world));
    };
    assert!(message.contains("use a class with provisioner ebs.csi.aws.com"), "{message}");
}

#[test]
fn the_beta_annotation_is_the_class() {
    let beta = "volume.beta.kubernetes.io/storage-class";
    let (mut old_claim, mut old_volume) = (claim("c", "", "1Gi"), volume("v", "", "1Gi"));
    annotate(&mut old_claim.metadata, beta, "old");
    let mut world = world([old_claim.into(), class("old", "csi.test").into(), old_volume.clone().into()]);
    assert_eq!(claim_steps(&world), ["c asks csi.test", "event ExternalProvisioning"]);
    annotate(&mut old_volume.metadata, beta, "old");
    world.apply(old_volume);
    assert_eq!(claim_steps(&world), ["v -> c"]);
}

#[test]
fn a_volume_reserved_for_a_claim_is_bound_whatever_its_class() {
    let reserved = |class: &str, size: &str| {
        let mut volume = volume("v", class, size);
        volume_spec(&mut volume).claim_ref = Some(claim_ref(&claim("c", "fast", "1Gi")));
        volume_spec(&mut volume).claim_ref.as_mut().unwrap().uid = None;
        volume
    };
    for (volume, expected) in [
        (reserved("", "1Gi"), &["v -> c"][..]),
        (reserved("other", "2Gi"), &["v -> c"]),
        (reserved("other", "512Mi"), &["c asks csi.test", "event ExternalProvisioning"]),
        (
            deleting(reserved("other", "1Gi"), &["example.com/held"]),
            &["c asks csi.test", "event ExternalProvisioning"],
        ),
    ] {
        let world = world([
            claim("c", "fast", "1Gi").into(),
            class("fast", "csi.test").into(),
            volume.clone().into(),
        ]);
        assert_eq!(claim_steps(&world), expected, "{volume:?}");
    }
}

#[test]
fn a_claim_that_names_its_volume_gets_that_one_or_waits() {
    let mut asking = claim("c", "fast", "2Gi");
    claim_spec(&mut asking).volume_name = Some("v".into());
    let mut taken = volume("v", "fast", "2Gi");
    volume_spec(&mut taken).claim_ref = Some(claim_ref(&claim("other", "fast", "2Gi")));
    let cases: [(&str, Option<PersistentVolume>, &[&str]); 5] = [
        ("there is none", None, &[]),
        ("it fits", Some(volume("v", "fast", "2Gi")), &["v -> c"]),
        ("it is too small", Some(volume("v", "fast", "1Gi")), &["event VolumeMismatch"]),
        ("it is taken", Some(taken), &["event FailedBinding"]),
        (
            "it is being deleted",
            Some(deleting(volume("v", "fast", "2Gi"), &["example.com/held"])),
            &["event VolumeMismatch"],
        ),
    ];
    for (what, volume, expected) in cases {
        let mut world = world([asking.clone().into(), class("fast", "csi.test").into()]);
        if let Some(volume) = volume {
            world.apply(volume);
        }
        assert_eq!(claim_steps(&world), expected, "{what}");
    }
}

#[test]
fn a_claim_that_cannot_be_served_has_a_reason() {
    let mut classless = claim("c", "", "1Gi");
    claim_spec(&mut classless).storage_class_name = None;
    let mut default = class("standard", "csi.test");
    annotate(&mut default.metadata, DEFAULT_CLASS, "true");
    let unprovisioned = class("manual", "kubernetes.io/no-provisioner");
    let cases: [(&str, World, &[&str]); 6] = [
        ("unknown class", world([claim("c", "fast", "1Gi").into()]), &["event ProvisioningFailed"]),
        ("no class, no default", world([classless.clone().into()]), &["event FailedBinding"]),
        ("no class said", world([classless.into(), default.clone().into()]), &["c of class standard"]),
        ("no class wanted", world([claim("c", "", "1Gi").into(), default.into()]), &["event FailedBinding"]),
        (
            "no provisioner",
            world([claim("c", "manual", "1Gi").into(), unprovisioned.into()]),
            &["event ProvisioningFailed"],
        ),
        (
            "being deleted",
            world([deleting(claim("c", "fast", "1Gi"), &["f"]).into(), class("fast", "csi.test").into()]),
            &[],
        ),
    ];
    for (what, world, expected) in cases {
        assert_eq!(claim_steps(&world), expected, "{what}");
    }
}

#[test]
fn a_claim_with_a_deleted_volume_is_lost() {
    let (claim, volume) = bound(|_, _| {});
    assert_eq!(
        claim_steps(&world([claim.clone().into()])),
        ["confirm Volume", "c Lost", "event ClaimLost"],
        "the volume is gone"
    );
    let mut reserved = volume.clone();
    volume_spec(&mut reserved).claim_ref.as_mut().unwrap().uid = None;
    let mut misbound = volume;
    volume_spec(&mut misbound).claim_ref = Some(claim_ref(&testing::claim("other", "fast", "1Gi")));
    for volume in [misbound, reserved] {
        let misbound = world([claim.clone().into(), volume.into()]);
        assert_eq!(claim_steps(&misbound), ["c Lost", "event ClaimMisbound"]);
    }

    let mut emptied = claim.clone();
    claim_spec(&mut emptied).volume_name = None;
    assert_eq!(claim_steps(&world([emptied.into()])), ["c Lost", "event ClaimLost"]);

    let mut lost = claim;
    lost.status.as_mut().unwrap().phase = Some("Lost".into());
    assert_eq!(claim_steps(&world([lost.into()])), [""; 0], "it says so already");
}

#[test]
fn a_bound_claims_capacity_is_left_to_the_resizer() {
    let (mut claim, mut volume) = bound(|_, _| {});
    volume_spec(&mut volume).capacity = testing::volume("v", "fast", "5Gi").spec.unwrap().capacity;
    assert_eq!(claim_steps(&world([claim.clone().into(), volume.clone().into()])), [""; 0]);
    claim.status.as_mut().unwrap().access_modes = None;
    let action = plan_claim(&ObjectKey::new(NAMESPACE, "c"), &world([claim.into(), volume.into()]));
    let Some(Write::ClaimStatus(_, status)) = action[0].write() else {
        panic!("expected a status, not {action:?}")
    };
    assert!(status.get("capacity").is_none(), "{status}");
}

#[test]
fn a_volume_follows_its_claim() {
    let (claim, _) = bound(|_, _| {});
    type Change = fn(&mut PersistentVolumeClaim, &mut PersistentVolume);
    let cases: [(&str, Change, &[&str]); 5] = [
        ("bound", |_, _| {}, &[]),
        ("phase behind", |_, volume| set_volume_phase(volume, "Pending"), &["v Bound"]),
        ("claim not there yet", |claim, _| claim_spec(claim).volume_name = None, &[]),
        (
            "claim took another",
            |claim, _| claim_spec(claim).volume_name = Some("w".into()),
            &["v -> nothing"],
        ),
        (
            "made for a claim that took another",
            |claim, volume| {
                claim_spec(claim).volume_name = Some("w".into());
                annotate(&mut volume.metadata, PROVISIONED_BY, "csi.test");
            },
            &["v Released"],
        ),
    ];
    for (what, change, expected) in cases {
        let (claim, volume) = bound(change);
        assert_eq!(volume_steps(&world([claim.into(), volume.into()])), expected, "{what}");
    }
    let mut unpointed = volume("v", "fast", "1Gi");
    set_volume_phase(&mut unpointed, "Pending");
    assert_eq!(volume_steps(&world([unpointed.clone().into()])), ["v Available"]);
    volume_spec(&mut unpointed).claim_ref = Some(claim_ref(&claim));
    volume_spec(&mut unpointed).claim_ref.as_mut().unwrap().uid = None;
    assert_eq!(volume_steps(&world([unpointed.into()])), ["v Available"], "reserved for a claim to come");
}

#[test]
fn a_volume_is_released_when_its_claim_is_gone() {
    let (claim, volume) = bound(|_, _| {});
    let unsure = world([volume.clone().into()]);
    assert_eq!(volume_steps(&unsure), ["confirm Claim", "v Released"]);

    let mut seen = world([claim.clone().into(), volume.clone().into()]);
    seen.claims.remove(&claim).unwrap();
    assert_eq!(volume_steps(&seen), ["v Released"], "its end was seen");

    let mut recreated = claim;
    recreated.metadata.uid = Some("another".into());
    let recreated = world([recreated.into(), volume.into()]);
    assert_eq!(volume_steps(&recreated), ["confirm Claim", "v Released"]);
}

#[test]
fn the_reclaim_policy_decides_what_becomes_of_a_released_volume() {
    // The policy, an annotation that says who deletes it, whether it is of CSI.
    let cases: [(&str, Option<&str>, bool, &[&str]); 7] = [
        ("Retain", None, true, &[]),
        ("Delete", Some(PROVISIONED_BY), true, &[]),
        ("Delete", None, true, &[]),
        ("Delete", Some(MIGRATED_TO), false, &[]),
        ("Delete", None, false, &["v Failed", "event VolumeFailedDelete"]),
        ("Recycle", None, true, &["v Failed", "event VolumeFailedRecycle"]),
        ("Shred", None, true, &["v Failed", "event VolumeUnknownReclaimPolicy"]),
    ];
    for (policy, annotation, csi, expected) in cases {
        let (_, volume) = bound(|_, volume| {
            set_volume_phase(volume, "Released");
            volume_spec(volume).persistent_volume_reclaim_policy = Some(policy.into());
            if !csi {
                volume_spec(volume).csi = None;
            }
            if let Some(annotation) = annotation {
                annotate(&mut volume.metadata, annotation, "csi.test");
            }
        });
        assert_eq!(volume_steps(&world([volume.into()])), expected, "{policy}, {annotation:?}");
    }
}

#[test]
fn a_failed_volume_has_the_message_of_its_event() {
    let unmatched = r#"error getting deleter volume plugin for volume "v": no volume plugin matched"#;
    let undeletable =
        r#"error getting deleter volume plugin for volume "v": no deletable volume plugin matched"#;
    let cases = [
        ("Delete", json!({"local": {"path": "/mnt"}}), unmatched),
        ("Delete", json!({"nfs": {"server": "none", "path": "/"}}), undeletable),
        ("Recycle", json!({"local": {"path": "/mnt"}}), "No recycler plugin found for the volume!"),
        ("Shred", json!({}), "Volume has unrecognized PersistentVolumeReclaimPolicy"),
    ];
    for (policy, source, expected) in cases {
        let (_, volume) = bound(|_, volume| {
            set_volume_phase(volume, "Released");
            let mut spec = serde_json::to_value(volume.spec.take()).unwrap();
            spec["csi"] = Value::Null;
            json_patch::merge(&mut spec, &source);
            volume.spec = serde_json::from_value(spec).unwrap();
            volume_spec(volume).persistent_volume_reclaim_policy = Some(policy.into());
        });
        let actions = plan_volume(&ObjectKey::cluster("v"), &world([volume.into()]));
        let Some(Write::VolumeStatus(_, status)) = actions[0].write() else {
            panic!("expected a status, not {actions:?}")
        };
        assert_eq!(status, json!({"phase": "Failed", "message": expected, "reason": null}), "{policy}");
        assert!(matches!(&actions[1], Action::Event(_, _, _, message) if message == expected), "{actions:?}");
    }
}

#[test]
fn a_volume_of_another_mode_than_its_claim_is_named_in_the_events_of_both() {
    let (claim, volume) = bound(|claim, volume| {
        claim_spec(claim).volume_name = None;
        volume_spec(volume).volume_mode = Some("Block".into());
    });
    let actions = plan_volume(&ObjectKey::cluster("v"), &world([claim.into(), volume.into()]));
    let messages: Vec<&str> = actions
        .iter()
        .map(|action| match action {
            Action::Event(_, _, "VolumeMismatch", message) => message.as_str(),
            other => panic!("expected an event, not {other:?}"),
        })
        .collect();
    let expected = [
        r#"Cannot bind PersistentVolume to requested PersistentVolumeClaim "c" due to incompatible volumeMode."#,
        r#"Cannot bind PersistentVolume "v" to requested PersistentVolumeClaim due to incompatible volumeMode."#,
    ];
    assert_eq!(messages, expected);
}
