//! What wakes a claim: nothing that leaves a failed call as it was.

use std::time::Duration;

use claimcheck_csi::{Driver, Endpoint, tap::Tap};
use claimcheck_informer::{
    Change, Kind, World,
    growth::Progress,
    key_of, modification, pod_claims,
    testing::{self, DRIVER, annotate, bind},
};
use claimcheck_model::{Meter, ObjectKey};
use k8s_openapi::{
    api::core::v1::{
        ModifyVolumeStatus, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Settings,
    modify::Modifier,
    plan::{Known, Refusal},
    run::{Resizer, no_longer_used},
};
use crate::{Resizing, rpc::DriverInfo, shell::Controller};

/// A claim and its volume, in the cache and bound to each other; and both controllers of the driver.
struct Scene {
    world: World,
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    resizer: Resizer,
    modifier: Modifier,
}

fn scene() -> Scene {
    scene_with(Resizing::default())
}

fn scene_with(options: Resizing) -> Scene {
    let (mut claim, mut volume) = (testing::claim("c", "fast", "1Gi"), testing::volume("v", "fast", "1Gi"));
    bind(&mut claim, &mut volume);
    claim.spec.as_mut().unwrap().volume_attributes_class_name = Some("gold".into());
    let driver = Driver::new(Endpoint::Unix("/nowhere/csi.sock".into()), Tap::none(), "resizer");
    let info = DriverInfo::new(DRIVER, &[], &[]);
    let settings = Settings {
        slow_retry: Duration::from_secs(300),
        first_modify_retry: Duration::from_secs(300),
        options,
    };
    let resizer = Resizer::new(driver.clone(), info.clone(), Meter::default(), settings);
    let modifier = Modifier::new(driver, info, settings);
    let world = testing::world([claim.clone().into(), volume.clone().into()]);
    Scene { world, claim, volume, resizer, modifier }
}

impl Scene {
    /// Which controllers a change wakes.
    fn enqueued(&self, change: Option<Change>) -> Vec<&'static str> {
        let change = change.unwrap();
        let (resizer, modifier) =
            (self.resizer.map_to_keys(&change, &self.world), self.modifier.map_to_keys(&change, &self.world));
        let keys = [("resizer", resizer), ("modifier", modifier)];
        keys.into_iter().filter(|(_, keys)| !keys.is_empty()).map(|(name, _)| name).collect()
    }

    fn claim(&mut self, edit: impl FnOnce(&mut PersistentVolumeClaim)) -> Vec<&'static str> {
        edit(&mut self.claim);
        let change = self.world.apply(self.claim.clone());
        self.enqueued(change)
    }

    fn volume(&mut self, edit: impl FnOnce(&mut PersistentVolume)) -> Vec<&'static str> {
        edit(&mut self.volume);
        let change = self.world.apply(self.volume.clone());
        self.enqueued(change)
    }

    fn pod(&mut self, pod: Pod) -> Vec<&'static str> {
        let change = self.world.apply(pod);
        self.enqueued(change)
    }
}

fn storage(size: &str) -> Option<std::collections::BTreeMap<String, Quantity>> {
    Some([("storage".to_owned(), Quantity(size.into()))].into())
}

#[tokio::test]
async fn a_claim_is_enqueued_by_what_its_calls_depend_on() {
    let mut scene = scene();
    let none: [&str; 0] = [];
    assert_eq!(scene.claim(|claim| annotate(&mut claim.metadata, "a", "b")), none);
    let failed =
        PersistentVolumeClaimCondition { type_: "ControllerResizeError".into(), ..Default::default() };
    assert_eq!(scene.claim(|claim| claim.status.as_mut().unwrap().conditions = Some(vec![failed])), none);
    let requests = |claim: &mut PersistentVolumeClaim, size: &str| {
        claim.spec.as_mut().unwrap().resources.as_mut().unwrap().requests = storage(size);
    };
    assert_eq!(scene.claim(|claim| requests(claim, "2Gi")), ["resizer"]);
    assert_eq!(scene.claim(|claim| requests(claim, "1Gi")), ["resizer"], "it may be lowered again");
    let statuses = [("storage".to_owned(), Progress::NodeInfeasible.name().to_owned())].into();
    let refused = |claim: &mut PersistentVolumeClaim| {
        claim.status.as_mut().unwrap().allocated_resource_statuses = Some(statuses);
    };
    assert_eq!(scene.claim(refused), ["resizer"]);
    assert_eq!(scene.claim(|claim| claim.status.as_mut().unwrap().capacity = storage("2Gi")), ["resizer"]);

    let class = |claim: &mut PersistentVolumeClaim, class: &str| {
        claim.spec.as_mut().unwrap().volume_attributes_class_name = Some(class.into());
    };
    assert_eq!(scene.claim(|claim| class(claim, "silver")), ["modifier"]);
    let progress = |claim: &mut PersistentVolumeClaim, progress: modification::Progress| {
        let modified = ModifyVolumeStatus { status: progress.name().into(), ..Default::default() };
        claim.status.as_mut().unwrap().modify_volume_status = Some(modified);
    };
    use modification::Progress::{AtWork, Infeasible};
    assert_eq!(scene.claim(|claim| progress(claim, AtWork)), ["modifier"]);
    assert_eq!(scene.claim(|claim| progress(claim, Infeasible)), none, "the error is its own");
}

#[tokio::test]
async fn without_recovery_neither_a_smaller_request_nor_another_state_enqueues_a_claim() {
    let none: [&str; 0] = [];
    let mut scene = scene_with(Resizing { recover_expansion_failure: false, ..Resizing::default() });
    let requests = |claim: &mut PersistentVolumeClaim, size: &str| {
        claim.spec.as_mut().unwrap().resources.as_mut().unwrap().requests = storage(size);
    };
    assert_eq!(scene.claim(|claim| requests(claim, "3Gi")), ["resizer"]);
    assert_eq!(scene.claim(|claim| requests(claim, "2Gi")), none, "the backoff continues");
    let statuses = [("storage".to_owned(), Progress::NodeInfeasible.name().to_owned())].into();
    let refused = |claim: &mut PersistentVolumeClaim| {
        claim.status.as_mut().unwrap().allocated_resource_statuses = Some(statuses);
    };
    assert_eq!(scene.claim(refused), none);
    assert_eq!(scene.claim(|claim| claim.status.as_mut().unwrap().capacity = storage("2Gi")), ["resizer"]);
}

#[tokio::test]
async fn a_volume_enqueues_its_claim_by_another_spec_only() {
    let mut scene = scene();
    let none: [&str; 0] = [];
    assert_eq!(scene.volume(|volume| annotate(&mut volume.metadata, "a", "b")), none);
    assert_eq!(scene.volume(|volume| volume.metadata.finalizers = Some(vec!["f".into()])), none);
    assert_eq!(scene.volume(|volume| volume.status.as_mut().unwrap().phase = Some("Failed".into())), none);
    let grown = scene.volume(|volume| volume.spec.as_mut().unwrap().capacity = storage("2Gi"));
    assert_eq!(grown, ["resizer", "modifier"]);
    let freed = scene.volume(|volume| volume.spec.as_mut().unwrap().claim_ref = None);
    assert_eq!(freed, ["resizer", "modifier"], "the claim that it had");
}

#[tokio::test]
async fn a_class_enqueues_its_claims_when_it_is_created() {
    let mut scene = scene();
    let none: [&str; 0] = [];
    let mut class = testing::attributes_class("gold", "1");
    let change = scene.world.apply(class.clone());
    assert_eq!(scene.enqueued(change), ["modifier"]);
    annotate(&mut class.metadata, "a", "b");
    let change = scene.world.apply(class.clone());
    assert_eq!(scene.enqueued(change), none);
    class.metadata.uid = Some("created again".into());
    let change = scene.world.apply(class);
    assert_eq!(scene.enqueued(change), ["modifier"]);
}

#[tokio::test]
async fn the_end_of_a_pod_enqueues_the_claim_that_was_rejected_in_use() {
    let mut scene = scene();
    let none: [&str; 0] = [];
    let ended = |mut pod: Pod| {
        pod.status.get_or_insert_default().phase = Some("Succeeded".into());
        pod
    };
    scene.pod(testing::pod("idle", "", &["c"]));
    assert_eq!(scene.pod(ended(testing::pod("idle", "", &["c"]))), none, "no call has failed for it");
    let refused = Known { failed: Some(Refusal::InUse), ..Known::default() };
    scene.resizer.remember(&scene.claim, refused);
    assert_eq!(scene.pod(testing::pod("user", "", &["c"])), none);
    assert_eq!(scene.pod(testing::pod("user", "node", &["c"])), none, "it still uses it");
    assert_eq!(scene.pod(ended(testing::pod("user", "node", &["c"]))), ["resizer"]);
}

/// After a gap in the watch the deletion of a pod and the creation of one of the same name are one change.
#[test]
fn the_claims_of_a_replaced_pod_are_not_used_any_more() {
    let mut world = World::default();
    let claims = |change: Option<Change>| no_longer_used(&change.unwrap());
    let of = |pod: &Pod| pod_claims(pod).map(|used| used.claim).collect::<Vec<ObjectKey>>();
    let old = testing::pod("p", "", &["a", "b"]);
    assert_eq!(claims(world.apply(old.clone())), []);
    let mut new = testing::pod("p", "", &["c"]);
    new.metadata.uid = Some("another".into());
    assert_eq!(claims(world.apply(new.clone())), of(&old));
    let deleted = world.forget(Kind::Pod, &key_of(&new));
    assert_eq!(claims(deleted), of(&new));
}
