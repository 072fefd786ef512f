//! Claims in the middle of growing, and the next step of each.

use std::time::Duration;

use claimcheck_csi::v1::controller_service_capability::rpc::Type as Rpc;
use claimcheck_informer::{
    growth::Progress,
    key_of,
    testing::{self, DRIVER, annotate, bind},
};
use claimcheck_model::PRE_RESIZE_CAPACITY;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    decision::Decision,
    plan::{Action, Grown, Known, Refusal, plan},
};
use crate::rpc::DriverInfo;

const GI: i64 = 1 << 30;

/// A claim that has 1Gi, and its volume.
struct Scene {
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    pods: Vec<Pod>,
    driver: DriverInfo,
    known: Known,
    recovers: bool,
}

fn scene(requested: &str) -> Scene {
    let (mut claim, mut volume) = (testing::claim("c", "fast", "1Gi"), testing::volume("v", "fast", "1Gi"));
    bind(&mut claim, &mut volume);
    let driver = DriverInfo::new(DRIVER, &[], &[Rpc::ExpandVolume]);
    let scene = Scene { claim, volume, pods: Vec::new(), driver, known: Known::default(), recovers: true };
    scene.requested(requested)
}

fn storage(size: &str) -> Option<std::collections::BTreeMap<String, Quantity>> {
    Some([("storage".to_owned(), Quantity(size.into()))].into())
}

impl Scene {
    fn requested(mut self, size: &str) -> Self {
        self.claim.spec.as_mut().unwrap().resources.as_mut().unwrap().requests = storage(size);
        self
    }

    /// According to the status: growing to this size.
    fn growing(mut self, to: &str, progress: Progress) -> Self {
        let status = self.claim.status.as_mut().unwrap();
        status.allocated_resources = storage(to);
        status.allocated_resource_statuses = Some([("storage".into(), progress.name().into())].into());
        status.conditions = Some(vec![PersistentVolumeClaimCondition {
            type_: "Resizing".into(),
            status: "True".into(),
            ..Default::default()
        }]);
        self
    }

    fn volume_of(mut self, size: &str) -> Self {
        self.volume.spec.as_mut().unwrap().capacity = storage(size);
        self
    }

    fn failed(mut self, refusal: Refusal) -> Self {
        self.known.failed = Some(refusal);
        self
    }

    fn grown(mut self, gi: i64, node: bool) -> Self {
        self.known.grown = Some(Grown { bytes: gi * GI, node });
        self
    }

    fn without_controller(mut self) -> Self {
        self.driver = DriverInfo::new(DRIVER, &[], &[]);
        self
    }

    /// With RecoverVolumeExpansionFailure=false, and these conditions.
    fn without_recovery(mut self, conditions: &[&str]) -> Self {
        self.recovers = false;
        let condition = |name: &&str| PersistentVolumeClaimCondition {
            type_: (*name).to_owned(),
            status: "True".into(),
            ..Default::default()
        };
        self.claim.status.as_mut().unwrap().conditions = Some(conditions.iter().map(condition).collect());
        self
    }

    fn used(mut self) -> Self {
        self.pods.push(testing::pod("p", "", &["c"]));
        self
    }

    fn decision(&self) -> Decision<Action> {
        let mut world = testing::world([self.claim.clone().into(), self.volume.clone().into()]);
        for pod in &self.pods {
            world.apply(pod.clone());
        }
        let now = Timestamp::UNIX_EPOCH;
        plan(&key_of(&self.claim), &world, &self.driver, &self.known, self.recovers, now)
    }

    fn short(&self) -> String {
        let action = match self.decision() {
            Decision::Rest => return "rest".into(),
            Decision::Again(left) => return format!("again in {} s", left.as_secs()),
            Decision::Act(action) => action,
        };
        match action {
            Action::MarkInProgress { bytes, restart, .. } => {
                format!("mark {}{}", bytes / GI, if restart { " again" } else { "" })
            }
            Action::Expand { request, bytes, .. } => {
                let asked = request.map(|request| {
                    assert!(request.volume_capability.is_some());
                    (request.volume_id, request.capacity_range.unwrap().required_bytes)
                });
                let call = asked.map_or("no call", |asked| {
                    assert_eq!(asked, ("handle-v".into(), bytes));
                    "call"
                });
                format!("{call} {}", bytes / GI)
            }
            Action::RefuseInUse(_) => "in use".into(),
            Action::RaiseVolume { grown, .. } => format!("volume {}", grown.bytes / GI),
            Action::MarkNodePending(_) => "node".into(),
            Action::MarkFinished(_, bytes) => format!("finished {}", bytes / GI),
            Action::ForgetOldSize(_) => "forget".into(),
            Action::Fail(_, error) => error.to_string(),
        }
    }
}

#[test]
fn a_claim_grows_step_by_step() {
    use Progress::{ControllerAtWork, NodeAtWork, NodePending};
    let rows = [
        (scene("1Gi"), "rest"),
        (scene("2Gi"), "mark 2 again"),
        (scene("2Gi").growing("2Gi", ControllerAtWork), "call 2"),
        (scene("2Gi").growing("2Gi", ControllerAtWork).without_controller(), "no call 2"),
        (scene("2Gi").growing("2Gi", ControllerAtWork).grown(3, true), "volume 3"),
        (scene("2Gi").growing("2Gi", ControllerAtWork).grown(3, true).volume_of("3Gi"), "node"),
        (scene("2Gi").growing("2Gi", ControllerAtWork).grown(3, false).volume_of("3Gi"), "finished 3"),
        // Started again between the driver's answer and the claim: asked once more.
        (scene("2Gi").growing("2Gi", ControllerAtWork).volume_of("2Gi"), "call 2"),
        (scene("2Gi").growing("2Gi", NodePending).volume_of("2Gi"), "rest"),
        (scene("2Gi").growing("2Gi", NodeAtWork).volume_of("2Gi"), "rest"),
    ];
    for (scene, expected) in rows {
        assert_eq!(scene.short(), expected, "{:?}", scene.claim.status);
    }
}

#[test]
fn another_size_waits_for_a_started_expansion() {
    use Progress::{ControllerAtWork, ControllerInfeasible, NodeInfeasible, NodePending};
    let rows = [
        // It may still go on.
        (scene("3Gi").growing("2Gi", ControllerAtWork), "call 2"),
        (scene("3Gi").growing("2Gi", ControllerAtWork).failed(Refusal::Uncertain), "call 2"),
        // The driver has said that it does not.
        (scene("3Gi").growing("2Gi", ControllerAtWork).failed(Refusal::Final), "mark 3 again"),
        (scene("2Gi").growing("9Gi", ControllerInfeasible), "mark 2 again"),
        // The node first, then the rest.
        (scene("3Gi").growing("2Gi", NodePending).volume_of("2Gi"), "rest"),
        (scene("3Gi").growing("2Gi", NodePending), "call 2"),
        // What the node refused the controller has to look at again, so that the node may try again.
        (scene("2Gi").growing("9Gi", NodeInfeasible).volume_of("9Gi"), "call 9"),
        (scene("2Gi").growing("9Gi", NodeInfeasible).volume_of("9Gi").without_controller(), "mark 2 again"),
    ];
    for (scene, expected) in rows {
        assert_eq!(scene.short(), expected, "{:?}", scene.claim.status);
    }
}

#[test]
fn what_never_works_is_asked_for_seldom() {
    let mut refused = scene("9Gi").growing("9Gi", Progress::ControllerInfeasible).failed(Refusal::Infeasible);
    refused.known.slow = Some((9 * GI, Timestamp::from_second(60).unwrap()));
    assert_eq!(refused.short(), "again in 60 s");
    assert_eq!(refused.decision(), Decision::Again(Duration::from_secs(60)));
    refused.known.slow = Some((9 * GI, Timestamp::from_second(-1).unwrap()));
    assert_eq!(refused.short(), "call 9");
    refused.known.slow = Some((9 * GI, Timestamp::from_second(60).unwrap()));
    let smaller = refused.requested("2Gi");
    assert_eq!(smaller.short(), "mark 2 again");
    assert_eq!(
        smaller.growing("2Gi", Progress::ControllerAtWork).short(),
        "call 2",
        "of which it said nothing"
    );
}

#[test]
fn a_driver_with_offline_expansion_is_not_called_while_the_volume_is_used() {
    let growing = || scene("2Gi").growing("2Gi", Progress::ControllerAtWork);
    assert_eq!(growing().used().short(), "call 2", "the driver has not rejected it yet");
    assert_eq!(growing().used().failed(Refusal::InUse).short(), "in use");
    assert_eq!(growing().failed(Refusal::InUse).short(), "call 2");
    let mut ended = growing().used().failed(Refusal::InUse);
    ended.pods[0].status.get_or_insert_default().phase = Some("Succeeded".into());
    assert_eq!(ended.short(), "call 2");
}

#[test]
fn only_bound_volumes_of_the_driver_grow() {
    let mut foreign = scene("2Gi");
    foreign.volume.spec.as_mut().unwrap().csi.as_mut().unwrap().driver = "other".into();
    assert_eq!(foreign.short(), "rest");
    let mut of_another = scene("2Gi");
    of_another.volume.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("another".into());
    assert_eq!(of_another.short(), "rest");
    let mut lost = scene("2Gi");
    lost.claim.status.as_mut().unwrap().phase = Some("Lost".into());
    assert_eq!(lost.short(), "rest");
}

#[test]
fn the_old_size_is_forgotten_once_the_node_has_grown_the_volume() {
    let mut scene = scene("2Gi").volume_of("2Gi");
    annotate(&mut scene.volume.metadata, PRE_RESIZE_CAPACITY, "1Gi");
    assert_eq!(scene.short(), "mark 2 again", "the claim does not have it yet");
    scene.claim.status.as_mut().unwrap().capacity = storage("2Gi");
    assert_eq!(scene.short(), "forget");
}

#[test]
fn without_recovery_conditions_alone_show_how_far_a_claim_is() {
    use Progress::{ControllerAtWork, ControllerInfeasible, NodePending};
    let (resizing, pending) = (&["Resizing"][..], &["FileSystemResizePending"][..]);
    let rows = [
        (scene("1Gi").without_recovery(&[]), "rest"),
        (scene("2Gi").without_recovery(&[]), "mark 2"),
        (scene("2Gi").without_recovery(resizing), "call 2"),
        (scene("2Gi").without_recovery(resizing).without_controller(), "no call 2"),
        (scene("2Gi").without_recovery(resizing).grown(3, true), "volume 3"),
        (scene("2Gi").without_recovery(resizing).grown(3, true).volume_of("3Gi"), "node"),
        (scene("2Gi").without_recovery(resizing).grown(3, false).volume_of("3Gi"), "finished 3"),
        // Restarted between the driver's response and the write to the claim.
        (scene("2Gi").without_recovery(resizing).volume_of("2Gi"), "call 2"),
        (scene("2Gi").without_recovery(pending).volume_of("2Gi"), "rest"),
        (scene("3Gi").without_recovery(pending).volume_of("2Gi"), "mark 3 again"),
        // Errors of a kubelet, or from a time with recovery.
        (scene("2Gi").without_recovery(&["Resizing", "NodeResizeError"]), "mark 2 again"),
        // What an earlier resizer with recovery has written, counts for nothing.
        (scene("2Gi").growing("3Gi", ControllerAtWork).without_recovery(resizing), "call 2"),
        (scene("2Gi").growing("2Gi", ControllerInfeasible).without_recovery(resizing), "call 2"),
        (scene("2Gi").growing("2Gi", NodePending).volume_of("2Gi").without_recovery(resizing), "call 2"),
        // An expansion of unknown outcome is not completed first.
        (scene("2Gi").without_recovery(resizing).failed(Refusal::Uncertain), "call 2"),
        (scene("2Gi").without_recovery(resizing).failed(Refusal::Infeasible), "call 2"),
        (scene("2Gi").without_recovery(resizing).failed(Refusal::InUse), "call 2"),
        (scene("2Gi").without_recovery(resizing).failed(Refusal::InUse).used(), "in use"),
    ];
    for (scene, expected) in rows {
        assert_eq!(scene.short(), expected, "{:?}", scene.claim.status);
    }
}
