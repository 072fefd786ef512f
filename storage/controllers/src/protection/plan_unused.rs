//! Decides the condition `Unused` of a claim: whether a pod refers to it, and since when none does. KEP-5541.
//!
//! Upstream: `updateUnusedCondition` in `pkg/controller/volume/pvcprotection/pvc_protection_controller.go`, behind the
//! feature gate PersistentVolumeClaimUnusedSinceTime.

use claimcheck_informer::{PodBy, World, is_terminal, pod_claims};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::plan::{ClaimAction, SetConditions};
use crate::claims::{is_deleting, is_owned_by};

/// The type of the condition.
const UNUSED: &str = "Unused";

/// The plan for the condition of a claim; `None` if it is up to date. That of a claim that is being deleted stays.
pub fn plan_unused(key: &ObjectKey, world: &World, now: Timestamp) -> Option<ClaimAction> {
    let claim = world.claims.get(key).filter(|claim| !is_deleting(&***claim))?;
    let is_used = world.pods.by(PodBy::Claim, &key.to_string()).any(|pod| refers(pod, claim));
    let conditions = claim.status.as_ref().and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    let status = conditions.iter().find(|condition| condition.type_ == UNUSED);
    let status = status.map(|condition| condition.status.as_str());
    let is_current = match (is_used, status) {
        (true, None | Some("True")) => false,
        (true, Some(_)) => true,
        (false, status) => status == Some("True"),
    };
    if is_current {
        return None;
    }
    let set = |condition| SetConditions { claim: claim.clone(), conditions: with(conditions, condition) };
    Some(match is_used {
        true => {
            let message = "A pod is currently referencing this PVC";
            ClaimAction::MarkUsed(set(condition("False", "PodUsingPVC", message, now)))
        }
        false => {
            let message = "No pods are currently referencing this PVC";
            ClaimAction::MarkUnused(set(condition("True", "NoPodsUsingPVC", message, now)))
        }
    })
}

/// Whether a pod that has not ended refers to the claim. In contrast to the protection of claims, an unscheduled pod
/// counts, and one that has ended does not. Upstream: `podUsesPVCForUnusedSince`.
pub fn refers(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let mut used = pod_claims(pod).filter(|used| Some(&used.claim.name) == claim.metadata.name.as_ref());
    !is_terminated(pod) && used.any(|used| !used.ephemeral || is_owned_by(claim, pod))
}

/// Whether the pod's containers have ended. One that is being deleted counts as ended as soon as none runs. Upstream:
/// `IsPodTerminated` in `pkg/volume/util/util.go`.
fn is_terminated(pod: &Pod) -> bool {
    let runs = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        state.is_none_or(|state| state.terminated.is_none() && state.waiting.is_none())
    };
    let is_running = pod.status.as_ref().is_some_and(|status| {
        let containers = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ];
        containers.into_iter().flatten().flatten().any(runs)
    });
    is_terminal(pod) || (is_deleting(pod) && !is_running)
}

fn condition(status: &str, reason: &str, message: &str, now: Timestamp) -> PersistentVolumeClaimCondition {
    PersistentVolumeClaimCondition {
        type_: UNUSED.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(Time(now)),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: None,
    }
}

/// The conditions with this one in the place of the one of its type, or at the end.
fn with(
    conditions: &[PersistentVolumeClaimCondition],
    condition: PersistentVolumeClaimCondition,
) -> Vec<PersistentVolumeClaimCondition> {
    let mut conditions = conditions.to_vec();
    match conditions.iter_mut().find(|existing| existing.type_ == condition.type_) {
        Some(existing) => *existing = condition,
        None => conditions.push(condition),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, deleting, world};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const USED: Option<&str> = Some("False");
    const FREE: Option<&str> = Some("True");

    /// The claim `c`, with this status of its condition between two others.
    fn claim(status: Option<&str>) -> PersistentVolumeClaim {
        let mut claim = testing::claim("c", "fast", "1Gi");
        let of = |kind: &str, status: &str| PersistentVolumeClaimCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            ..PersistentVolumeClaimCondition::default()
        };
        let unused = status.map(|status| of(UNUSED, status));
        let all = [of("Resizing", "True")].into_iter().chain(unused).chain([of("ModifyingVolume", "True")]);
        claim.status.as_mut().unwrap().conditions = Some(all.collect());
        claim
    }

    /// The planned status of the condition of `c`, and whether a live list has to confirm it.
    fn planned(claim: PersistentVolumeClaim, pods: Vec<Pod>) -> Option<(&'static str, bool)> {
        let mut world = world([claim.into()]);
        for pod in pods {
            world.apply(pod);
        }
        let (set, is_confirmed) = match plan_unused(&ObjectKey::new(testing::NAMESPACE, "c"), &world, NOW)? {
            ClaimAction::MarkUsed(set) => (set, false),
            ClaimAction::MarkUnused(set) => (set, true),
            ClaimAction::Protect(_) | ClaimAction::Release(_) => panic!("not planned here"),
        };
        let condition = set.conditions.iter().find(|condition| condition.type_ == UNUSED).unwrap();
        Some((if condition.status == "True" { "True" } else { "False" }, is_confirmed))
    }

    /// The part "PVC UnusedSince condition" of `TestPVCProtectionController` in upstream's
    /// pvc_protection_controller_test.go, and more.
    #[test]
    fn the_condition_shows_whether_a_pod_refers_to_the_claim() {
        let pod = |node: &str| testing::pod("p", node, &["c"]);
        let ended = |phase: &str| {
            let mut pod = pod("n1");
            pod.status.as_mut().unwrap().phase = Some(phase.into());
            pod
        };
        let deleted = |state: serde_json::Value| {
            let mut pod = deleting(pod("n1"), &["held"]);
            let status = json!({
                "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            });
            let status = serde_json::from_value(status).unwrap();
            pod.status.as_mut().unwrap().container_statuses = Some(vec![status]);
            pod
        };
        let (becomes_used, becomes_unused) = (Some(("False", false)), Some(("True", true)));
        let table = [
            ("unused", None, vec![], becomes_unused),
            ("unused, and known", FREE, vec![], None),
            ("not used any more", USED, vec![], becomes_unused),
            ("an unknown status", Some("Unknown"), vec![], becomes_unused),
            ("used", None, vec![pod("n1")], becomes_used),
            ("used, and known", USED, vec![pod("n1")], None),
            ("used, with an unknown status", Some("Unknown"), vec![pod("n1")], None),
            ("used again", FREE, vec![pod("n1")], becomes_used),
            ("by a pod without a node", FREE, vec![pod("")], becomes_used),
            ("another claim", FREE, vec![testing::pod("p", "n1", &["d"])], None),
            ("the pod has succeeded", USED, vec![ended("Succeeded")], becomes_unused),
            ("the pod has failed", USED, vec![ended("Failed")], becomes_unused),
            ("the pod is being deleted and runs", USED, vec![deleted(json!({"running": {}}))], None),
            (
                "the pod is being deleted, and its container has ended",
                USED,
                vec![deleted(json!({"terminated": {"exitCode": 0}}))],
                becomes_unused,
            ),
        ];
        for (what, status, pods, expected) in table {
            assert_eq!(planned(claim(status), pods), expected, "{what}");
        }
        assert_eq!(planned(deleting(claim(None), &["held"]), vec![]), None, "it is being deleted");
    }

    #[test]
    fn other_conditions_stay_and_the_time_is_that_of_the_change() {
        for (status, types) in
            [(None, ["Resizing", "ModifyingVolume", UNUSED]), (USED, ["Resizing", UNUSED, "ModifyingVolume"])]
        {
            let world = world([claim(status).into()]);
            let planned = plan_unused(&ObjectKey::new(testing::NAMESPACE, "c"), &world, NOW);
            let Some(ClaimAction::MarkUnused(set)) = planned else { panic!("it is not marked as unused") };
            let found: Vec<&str> = set.conditions.iter().map(|condition| condition.type_.as_str()).collect();
            assert_eq!(found, types);
            let written = set.conditions.iter().find(|condition| condition.type_ == UNUSED);
            let message = "No pods are currently referencing this PVC";
            assert_eq!(written, Some(&condition("True", "NoPodsUsingPVC", message, NOW)));
        }
    }

    #[test]
    fn only_the_pod_that_owns_it_refers_to_an_ephemeral_claim() {
        let mut pod = testing::pod("p", "n1", &["data"]);
        let volume = &mut pod.spec.as_mut().unwrap().volumes.as_mut().unwrap()[0];
        volume.persistent_volume_claim = None;
        volume.ephemeral = Some(Default::default());
        let mut claim = testing::claim("p-data", "fast", "1Gi");
        assert!(!refers(&pod, &claim));
        claim.metadata.owner_references = Some(vec![OwnerReference {
            controller: Some(true),
            uid: "uid-p".into(),
            ..OwnerReference::default()
        }]);
        assert!(refers(&pod, &claim));
    }
}
