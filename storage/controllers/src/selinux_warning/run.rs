//! Enqueues pods and volumes, and emits events.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use claimcheck_informer::{Change, Kind, KindSet, PodBy, VolumeBy, World, key_of, pod_claims};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::CSIDriver,
};

use super::plan::{Key, Reported, Warning, mounts_with_label, plan, readings};
use crate::{
    claims::{claim_ref, ref_key, volume_name},
    context::{Context, Failure},
    shell::{About, ActionOutcome, Controller, Plan},
};

/// The SELinux warning controller.
pub struct SelinuxWarning {
    /// What has been reported, by key; only for keys with warnings. It is lost with the process, as upstream's.
    reported: Mutex<HashMap<Key, Reported>>,
}

impl SelinuxWarning {
    /// A controller that exports the metric of conflicts through the context's meter.
    pub fn new(context: &Context) -> Self {
        context.count(readings);
        Self { reported: Mutex::default() }
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn reported(&self) -> MutexGuard<'_, HashMap<Key, Reported>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for SelinuxWarning {
    type Key = Key;
    type Action = Warning;

    const NAME: &'static str = "selinux warning";

    fn about(key: &Key) -> About<'_> {
        match key {
            Key::Pod(pod) => About::Pod(pod),
            Key::Volume { handle, .. } => About::Volume(handle),
        }
    }

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Pod, Kind::Claim, Kind::Volume, Kind::CsiDriver])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Key> {
        concerned(change, world)
    }

    fn plan(&self, key: &Key, world: &World, _: Timestamp) -> Plan<Warning> {
        let current = plan(key, world);
        let mut reported = self.reported();
        let mut of_key = reported.remove(key).unwrap_or_default();
        let unreported = of_key.unreported(current);
        if !of_key.is_empty() {
            reported.insert(key.clone(), of_key);
        }
        unreported.into()
    }

    async fn act(&self, context: &Context, key: &Key, warning: Warning) -> Result<ActionOutcome, Failure> {
        let (event_type, reason, text) = warning.event();
        context.event(&**warning.pod(), event_type, reason, text);
        self.reported().entry(key.clone()).or_default().insert(&warning);
        Ok(ActionOutcome::Unchanged)
    }
}

/// The keys that a change concerns.
pub(crate) fn concerned(change: &Change, world: &World) -> Vec<Key> {
    match change.kind {
        Kind::Pod => {
            let claims: Vec<ObjectKey> =
                change.states::<Pod>().flat_map(|pod| pod_claims(pod)).map(|used| used.claim).collect();
            let claims = claims.iter().filter_map(|claim| world.claims.get(claim));
            let volumes = claims.filter_map(|claim| volume_of(claim, world));
            [Key::Pod(change.key.clone())].into_iter().chain(volumes).collect()
        }
        Kind::Claim => {
            let volumes = change.states::<PersistentVolumeClaim>();
            let volumes = volumes.filter_map(|claim| volume_of(claim, world));
            volumes.chain(users(&change.key, world)).collect()
        }
        Kind::Volume => {
            let volumes = change.states::<PersistentVolume>().filter_map(|volume| Key::of_volume(volume));
            let claims = change.states::<PersistentVolume>();
            let claims = claims.filter_map(|volume| claim_ref(volume).map(ref_key));
            volumes.chain(claims.flat_map(|claim| users(&claim, world))).collect()
        }
        _ => {
            let (before, after) = change.both::<CSIDriver>();
            let [before, after] =
                [before, after].map(|driver| driver.is_some_and(|driver| mounts_with_label(driver)));
            if before == after {
                return Vec::new();
            }
            let volumes = world.volumes.by(VolumeBy::Driver, &change.key.name);
            volumes.filter_map(|volume| Key::of_volume(volume)).collect()
        }
    }
}

/// The volume that a claim names.
fn volume_of(claim: &PersistentVolumeClaim, world: &World) -> Option<Key> {
    Key::of_volume(world.volumes.named(volume_name(claim)?)?)
}

/// The pods that use a claim.
fn users(claim: &ObjectKey, world: &World) -> Vec<Key> {
    world.pods.by(PodBy::Claim, &claim.to_string()).map(|pod| Key::Pod(key_of(&**pod))).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, world};

    use super::*;

    #[test]
    fn changes_enqueue_the_pods_and_volumes_that_they_concern() {
        let (mut claim, mut volume) = (testing::claim("c", "", "1Gi"), testing::volume("v", "", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        let pod = testing::pod("p", "", &["c"]);
        let mut driver = testing::csi_driver(false);
        driver.spec.se_linux_mount = Some(true);
        let mut world = world([claim.into(), volume.into(), pod.into(), driver.clone().into()]);
        let of_pod = || Key::Pod(ObjectKey::new(testing::NAMESPACE, "p"));
        let of_volume = || Key::Volume { driver: testing::DRIVER.to_owned(), handle: "handle-v".to_owned() };
        let all: Vec<Change> = world.replay(SelinuxWarning::kinds()).collect();
        for change in &all {
            let keys = concerned(change, &world);
            assert!(keys.contains(&of_volume()), "{:?}: {keys:?}", change.kind);
            let is_of_pod = change.kind != Kind::CsiDriver;
            assert_eq!(keys.contains(&of_pod()), is_of_pod, "{:?}: {keys:?}", change.kind);
        }
        assert_eq!(all.len(), 4);

        // Another field of the driver.
        driver.spec.pod_info_on_mount = Some(true);
        let change = world.apply(driver.clone()).expect("a change");
        assert_eq!(concerned(&change, &world), []);
        driver.spec.se_linux_mount = Some(false);
        let change = world.apply(driver).expect("a change");
        assert_eq!(concerned(&change, &world), [of_volume()]);

        // A deleted pod, and a claim that is deleted before its pod.
        let change = world.forget(Kind::Pod, &ObjectKey::new(testing::NAMESPACE, "p")).expect("a change");
        assert_eq!(concerned(&change, &world), [of_pod(), of_volume()]);
        let change = world.forget(Kind::Claim, &ObjectKey::new(testing::NAMESPACE, "c")).expect("a change");
        assert_eq!(concerned(&change, &world), [of_volume()]);
        let change = world.forget(Kind::Volume, &ObjectKey::cluster("v")).expect("a change");
        assert_eq!(concerned(&change, &world), [of_volume()]);
    }
}
