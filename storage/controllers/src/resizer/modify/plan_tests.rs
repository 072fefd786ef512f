//! Claims on the way to another attributes class, and the next step of each.

use std::time::Duration;

use claimcheck_csi::v1::controller_service_capability::rpc::Type as Rpc;
use claimcheck_informer::{
    key_of,
    modification::{Condition, Progress, with_conditions, without_all},
    testing::{self, DRIVER, annotate, bind},
};
use claimcheck_model::Backoff;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::VolumeAttributesClass,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::plan::{Action, Known, first_retry, plan};
use crate::{
    provisioner::{MODIFY_SECRET_NAME, MODIFY_SECRET_NAMESPACE},
    resizer::decision::Decision,
    rpc::DriverInfo,
};

#[test]
fn an_infeasible_class_is_retried_with_the_first_backoff_after_the_maximum() {
    for (base, max, expected) in [(300, 3_000, 4_500), (1_000, 300_000, 511_000), (100, 100, 100), (0, 1, 0)]
    {
        let backoff = Backoff { base: Duration::from_millis(base), max: Duration::from_millis(max) };
        assert_eq!(first_retry(backoff), Duration::from_millis(expected), "{backoff:?}");
    }
}

/// A claim with a volume of class `silver`; `gold` exists too.
struct Scene {
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    classes: Vec<VolumeAttributesClass>,
    known: Known,
}

fn scene(expected: &str) -> Scene {
    let (mut claim, mut volume) = (testing::claim("c", "fast", "1Gi"), testing::volume("v", "fast", "1Gi"));
    bind(&mut claim, &mut volume);
    claim.status.as_mut().unwrap().current_volume_attributes_class_name = Some("silver".into());
    volume.spec.as_mut().unwrap().volume_attributes_class_name = Some("silver".into());
    let classes = vec![testing::attributes_class("silver", "10"), testing::attributes_class("gold", "99")];
    Scene { claim, volume, classes, known: Known::default() }.wanting(expected)
}

impl Scene {
    fn wanting(mut self, class: &str) -> Self {
        self.claim.spec.as_mut().unwrap().volume_attributes_class_name =
            (!class.is_empty()).then(|| class.to_owned());
        self
    }

    fn on_the_way(mut self, to: &str, progress: Progress) -> Self {
        let modifying = Condition::Modifying.with(None, String::new(), Timestamp::UNIX_EPOCH);
        let conditions = with_conditions(&self.claim, vec![modifying]);
        let status = self.claim.status.as_mut().unwrap();
        let modified = status.modify_volume_status.get_or_insert_default();
        modified.status = progress.name().into();
        modified.target_volume_attributes_class_name = Some(to.into());
        status.conditions = Some(conditions);
        self
    }

    fn refused(mut self) -> Self {
        self.known.refused = true;
        self
    }

    fn slow(mut self, class: &str, until: i64) -> Self {
        self.known.slow = Some((class.into(), Timestamp::from_second(until).unwrap()));
        self
    }

    fn modified(mut self, class: &str) -> Self {
        self.known.modified = Some(class.into());
        self
    }

    fn with_volume_class(mut self, class: &str) -> Self {
        self.volume.spec.as_mut().unwrap().volume_attributes_class_name = Some(class.into());
        self
    }

    fn decision(&self) -> Decision<Action> {
        let mut world = testing::world([self.claim.clone().into(), self.volume.clone().into()]);
        for class in &self.classes {
            world.apply(class.clone());
        }
        let driver = DriverInfo::new(DRIVER, &[], &[Rpc::ModifyVolume]);
        plan(&key_of(&self.claim), &world, &driver, &self.known, Timestamp::UNIX_EPOCH)
    }

    fn short(&self) -> String {
        let action = match self.decision() {
            Decision::Rest => return "rest".into(),
            Decision::Again(left) => return format!("again in {} s", left.as_secs()),
            Decision::Act(action) => action,
        };
        match action {
            Action::MarkPending(_, why) => format!("pending: {why}"),
            Action::MarkInProgress(_, class) => format!("mark {class}"),
            Action::Modify { class, request, .. } => {
                assert_eq!(request.volume_id, "handle-v");
                format!("call {class} {:?}", request.mutable_parameters)
            }
            Action::SetVolume(_, class) => format!("volume {class}"),
            Action::MarkModified(_, class) => format!("modified {class}"),
            Action::Cancel(_) => "cancel".into(),
        }
    }
}

#[test]
fn a_claim_is_modified_step_by_step() {
    use Progress::AtWork;
    let rows = [
        (scene("silver"), "rest"),
        (scene("gold"), "mark gold"),
        (scene("gold").on_the_way("gold", AtWork), r#"call gold {"iops": "99"}"#),
        (scene("gold").on_the_way("gold", AtWork).modified("gold"), "volume gold"),
        (
            scene("gold").on_the_way("gold", AtWork).modified("gold").with_volume_class("gold"),
            "modified gold",
        ),
        // Started again between the volume and the claim: asked once more.
        (scene("gold").on_the_way("gold", AtWork).with_volume_class("gold"), r#"call gold {"iops": "99"}"#),
    ];
    for (scene, expected) in rows {
        assert_eq!(scene.short(), expected, "{:?}", scene.claim.status);
    }
}

#[test]
fn another_class_waits_until_nothing_goes_on() {
    use Progress::{AtWork, Infeasible};
    let gold = || scene("silver").on_the_way("gold", AtWork);
    let rows = [
        // It may still go on, of this process or of one before it.
        (gold(), r#"call gold {"iops": "99"}"#),
        (gold().refused(), "mark silver"),
        (scene("silver").on_the_way("gold", Infeasible), "mark silver"),
        (gold().wanting(""), r#"call gold {"iops": "99"}"#),
        (gold().wanting("").refused(), r#"call gold {"iops": "99"}"#),
        (scene("").on_the_way("gold", Infeasible), "cancel"),
    ];
    for (scene, expected) in rows {
        assert_eq!(scene.short(), expected, "{:?}", scene.claim.status);
    }
}

#[test]
fn a_class_that_is_not_there_is_waited_for() {
    let mut bronze = scene("bronze");
    assert_eq!(bronze.short(), r#"pending: VAC "bronze" does not exist."#);
    bronze = bronze.on_the_way("", Progress::Pending);
    assert_eq!(bronze.short(), "rest");
    bronze.classes.push(testing::attributes_class("bronze", "1"));
    assert_eq!(bronze.short(), "mark bronze");
    bronze.classes[2].driver_name = "other".into();
    assert_eq!(bronze.short(), "rest");
    bronze.claim.status.as_mut().unwrap().modify_volume_status = None;
    let expected = r#"pending: VAC "bronze" is for driver "other"; name one of this volume's driver."#;
    assert_eq!(bronze.short(), expected);
}

#[test]
fn what_is_never_given_is_asked_for_seldom() {
    let refused = || scene("gold").on_the_way("gold", Progress::Infeasible).refused();
    assert_eq!(refused().slow("gold", 60).short(), "again in 60 s");
    assert_eq!(refused().slow("gold", -1).short(), "mark gold");
    assert_eq!(refused().short(), "mark gold", "a process that has just begun asks once");
    assert_eq!(refused().slow("gold", 60).wanting("silver").short(), "mark silver");
}

#[test]
fn the_secret_that_the_volume_names_is_used() {
    let mut scene = scene("gold").on_the_way("gold", Progress::AtWork);
    annotate(&mut scene.volume.metadata, MODIFY_SECRET_NAME, "s");
    annotate(&mut scene.volume.metadata, MODIFY_SECRET_NAMESPACE, "n");
    let Decision::Act(Action::Modify { secret: Some(secret), .. }) = scene.decision() else {
        panic!("{}", scene.short());
    };
    assert_eq!((secret.name.as_deref(), secret.namespace.as_deref()), (Some("s"), Some("n")));
}

#[test]
fn only_bound_volumes_of_the_driver_are_modified() {
    let mut foreign = scene("gold");
    foreign.volume.spec.as_mut().unwrap().csi.as_mut().unwrap().driver = "other".into();
    assert_eq!(foreign.short(), "rest");
    let mut pending = scene("gold");
    pending.claim.status.as_mut().unwrap().phase = Some("Pending".into());
    assert_eq!(pending.short(), "rest");
}

#[test]
fn the_status_of_growth_stays() {
    let now = Timestamp::UNIX_EPOCH;
    let mut claim = scene("gold").claim;
    let other = k8s_openapi::api::core::v1::PersistentVolumeClaimCondition {
        type_: "Resizing".into(),
        status: "True".into(),
        ..Default::default()
    };
    claim.status.as_mut().unwrap().conditions = Some(vec![other.clone()]);
    let error = Condition::Error.with(Some("Internal"), "no".into(), now);
    let conditions = with_conditions(&claim, vec![error.clone()]);
    let types: Vec<&str> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["Resizing", "ModifyVolumeError"]);
    assert_eq!(conditions[0], other);
    claim.status.as_mut().unwrap().conditions = Some(conditions);
    assert_eq!(without_all(&claim), [other]);
}

#[test]
fn a_condition_keeps_its_transition_time_until_its_status_or_reason_changes() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let mut claim = scene("gold").claim;
    let mut times = Vec::new();
    for (reason, second) in [("Internal", 1), ("Internal", 2), ("Unavailable", 3)] {
        let error = Condition::Error.with(Some(reason), "no".into(), at(second));
        let conditions = with_conditions(&claim, vec![error]);
        assert_eq!(conditions.len(), 1);
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        assert_eq!(time(&conditions[0].last_probe_time), Some(at(second)));
        times.push(time(&conditions[0].last_transition_time));
        claim.status.as_mut().unwrap().conditions = Some(conditions);
    }
    assert_eq!(times, [1, 1, 3].map(|second| Some(at(second))));
}
