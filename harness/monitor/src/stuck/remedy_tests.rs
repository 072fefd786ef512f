//! No remedy removes what protects an object, unless the facts prove that nothing uses it.

use claimcheck_informer::{
    World, is_terminal,
    testing::{
        attachment, bind, claim, claim_ref, class, csi_driver, deleting, node, pod, snapshot, volume, world,
    },
};
use claimcheck_model::{PV_PROTECTION, PVC_PROTECTION};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use proptest::prelude::*;

use super::{cause::Remedy, facts::not_ready, *};

/// Words of a text that removes something, or its protection.
const REMOVES: [&str; 8] =
    ["delete the", "delete it", "delete them", "remove", "force", "out-of-service", "unmount", "patch"];

fn removes(text: &str) -> bool {
    let text = text.to_lowercase();
    REMOVES.iter().any(|words| text.contains(words))
}

#[test]
fn only_one_remedy_removes_something() {
    let of_causes = Cause::ALL.iter().map(|cause| cause.remedy());
    let of_facts = Remedy::ALL.iter().map(|remedy| remedy.text());
    let all = of_causes.chain(of_facts).chain(LeftoverKind::ALL.iter().map(|kind| kind.remedy()));
    let removing: Vec<_> = all.filter(|text| removes(text)).collect();
    assert_eq!(removing, [Remedy::EndedPod.text()]);
}

const PHASES: [&str; 4] = ["Pending", "Running", "Succeeded", "Failed"];

/// The phase, node and deletion of a pod that refers to the claim; how far the deletion of the claim and its volume is;
/// whether the node is ready, and the volume attached.
#[derive(Clone, Debug)]
struct Case {
    pods: Vec<(usize, bool, bool)>,
    claim_is_deleting: bool,
    claim_exists: bool,
    volume_is_deleting: bool,
    volume_phase: &'static str,
    policy: &'static str,
    node: u8,
    attached: bool,
    attachment_is_deleting: bool,
    message: &'static str,
}

fn case() -> impl Strategy<Value = Case> {
    let flags = || (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let volume_phase = prop::sample::select(vec!["Bound", "Released", "Failed", "Available"]);
    let message = prop::sample::select(vec!["", "rpc error: x", "secret \"s\" not found", "timed out"]);
    let pods = prop::collection::vec((0..PHASES.len(), any::<bool>(), any::<bool>()), 0..4);
    let policy = prop::sample::select(vec!["Delete", "Retain"]);
    (pods, flags(), volume_phase, policy, 0..3_u8, message).prop_map(
        |(
            pods,
            (claim_is_deleting, claim_exists, volume_is_deleting, attached, attachment_is_deleting),
            volume_phase,
            policy,
            node,
            message,
        )| {
            Case {
                pods,
                claim_is_deleting,
                claim_exists,
                volume_is_deleting,
                volume_phase,
                policy,
                node,
                attached,
                attachment_is_deleting,
                message,
            }
        },
    )
}

fn world_of(case: &Case) -> World {
    let (mut of_case, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
    bind(&mut of_case, &mut volume);
    let spec = volume.spec.get_or_insert_default();
    spec.claim_ref = Some(claim_ref(&of_case));
    spec.persistent_volume_reclaim_policy = Some(case.policy.into());
    volume.status.get_or_insert_default().phase = Some(case.volume_phase.into());
    let mut world =
        world([class("fast", "csi.test").into(), csi_driver(true).into(), snapshot("s", "c", "k").into()]);
    if case.claim_exists {
        world.apply(if case.claim_is_deleting { deleting(of_case, &[PVC_PROTECTION]) } else { of_case });
    }
    world.apply(if case.volume_is_deleting { deleting(volume, &[PV_PROTECTION]) } else { volume });
    let mut here: Node = node("n");
    if case.node == 1 {
        here.status = None;
    }
    if case.node < 2 {
        world.apply(here);
    }
    for (nth, (phase, is_scheduled, is_deleting)) in case.pods.iter().enumerate() {
        let mut pod: Pod = pod(&format!("p{nth}"), if *is_scheduled { "n" } else { "" }, &["c"]);
        pod.status.get_or_insert_default().phase = Some(PHASES[*phase].into());
        if *is_deleting {
            pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            pod.metadata.finalizers = Some(vec!["f".into()]);
        }
        world.apply(pod);
    }
    if case.attached {
        let attachment = attachment("a", "v", "n", true);
        let finalizers = ["external-attacher/csi-test"];
        world.apply(if case.attachment_is_deleting { deleting(attachment, &finalizers) } else { attachment });
    }
    world
}

proptest! {
    #[test]
    fn a_remedy_that_removes_something_is_proven(case in case()) {
        let world = world_of(&case);
        let message = Message { reason: "FailedMount".into(), text: case.message.into(), ..Message::default() };
        let messages = ["uid-c", "uid-v", "uid-p0"].map(|uid| (uid.to_owned(), vec![message.clone()])).into();
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(9);
        let status = plan(&world, &messages, &Clock::at(now, SignedDuration::ZERO));
        let pods: Vec<_> = world.pods.iter().collect();
        for row in status.waiting.iter().filter(|row| removes(&row.remedy)) {
            let held = pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
            prop_assert!(case.claim_exists && case.claim_is_deleting && row.phase == Phase::Delete, "{row:?}");
            prop_assert!(held.clone().count() > 0 && held.clone().all(|pod| is_terminal(pod)), "{row:?}");
            prop_assert!(not_ready("n", world.nodes.named("n")).is_none(), "{row:?}");
        }
        for one in status.leftovers.iter().filter(|one| one.kind == LeftoverKind::Finalizer) {
            match &*one.object {
                "v" => prop_assert!(!case.claim_exists && case.volume_phase != "Bound" && !case.attached, "{one:?}"),
                _ => prop_assert!(pods.is_empty(), "{one:?}"),
            }
        }
    }
}
