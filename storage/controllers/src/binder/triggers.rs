//! The claims and volumes that a change concerns.

use claimcheck_informer::{Change, ClaimBy, Kind, VolumeBy, World, class::is_default, key_of, pod_claims};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};

use super::{action::VolumePhase, plan::is_unscheduled};
use crate::claims::{
    claim_ref, is_deleting, matches, ref_key, volume_class, volume_name, volume_phase,
    waits_for_first_consumer,
};

/// The kinds of objects that concern claims and volumes.
pub(super) const KINDS: &[Kind] = &[Kind::Claim, Kind::Volume, Kind::Class, Kind::Pod];

/// A key of the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A claim.
    Claim(ObjectKey),
    /// A volume.
    Volume(ObjectKey),
    /// A claim that has got another pod, and perhaps waits for it to be scheduled.
    Consumer(ObjectKey),
}

/// The claims and volumes to plan again.
pub(crate) fn concerned(change: &Change, world: &World) -> Vec<Key> {
    match change.kind {
        Kind::Claim => keys_for_claim(change, world),
        Kind::Volume => keys_for_volume(change, world),
        Kind::Class => keys_for_class(change, world),
        Kind::Pod => keys_for_pod(change),
        Kind::Node
        | Kind::Attachment
        | Kind::CsiDriver
        | Kind::CsiNode
        | Kind::Capacity
        | Kind::Lease
        | Kind::ReferenceGrant
        | Kind::Populator
        | Kind::Snapshot
        | Kind::SnapshotContent
        | Kind::SnapshotClass
        | Kind::GroupSnapshot
        | Kind::GroupSnapshotContent
        | Kind::GroupSnapshotClass
        | Kind::AttributesClass => Vec::new(),
    }
}

/// The claim, the volumes that point to it, and the one it points (or pointed) to.
fn keys_for_claim(change: &Change, world: &World) -> Vec<Key> {
    let pointing = world.volumes.by(VolumeBy::Claim, &change.key.to_string());
    let pointing = pointing.map(|volume| Key::Volume(key_of(&**volume)));
    let named = change.states::<PersistentVolumeClaim>().filter_map(|claim| volume_name(claim));
    let named = named.map(|name| Key::Volume(ObjectKey::cluster(name)));
    [Key::Claim(change.key.clone())].into_iter().chain(pointing).chain(named).collect()
}

/// The volume, the claims it points (or pointed) to, those that point to it, and those that could use it.
fn keys_for_volume(change: &Change, world: &World) -> Vec<Key> {
    let referenced = change.states::<PersistentVolume>().filter_map(|volume| claim_ref(volume)).map(ref_key);
    let bound = world.claims.by(ClaimBy::Volume, &change.key.name).map(|claim| key_of(&**claim));
    let takers = offered(change, world).into_iter().flat_map(|volume| {
        let waiting = world.claims.by(ClaimBy::Unbound, volume_class(volume));
        waiting.filter(|claim| matches(volume, claim).is_ok()).map(|claim| key_of(&**claim))
    });
    let claims = referenced.chain(bound).chain(takers).map(Key::Claim);
    [Key::Volume(change.key.clone())].into_iter().chain(claims).collect()
}

/// The volume, if claims may take it that could not take it before: all claims are planned when volumes are replayed, and
/// those of a class that waits for the first consumer get their volumes from the scheduler.
fn offered<'c>(change: &'c Change, world: &World) -> Option<&'c PersistentVolume> {
    let (old, new) = change.both::<PersistentVolume>();
    let new = new.filter(|volume| !change.replayed && is_available(volume))?;
    let is_same = old.is_some_and(|old| {
        let (old_spec, new_spec) = (old.spec.as_ref(), new.spec.as_ref());
        is_available(old)
            && old.metadata.labels == new.metadata.labels
            && volume_class(old) == volume_class(new)
            && old_spec.map(|spec| (&spec.capacity, &spec.access_modes, &spec.volume_mode))
                == new_spec.map(|spec| (&spec.capacity, &spec.access_modes, &spec.volume_mode))
            && old_spec.map(|spec| &spec.volume_attributes_class_name)
                == new_spec.map(|spec| &spec.volume_attributes_class_name)
    });
    let class = world.classes.named(volume_class(new));
    let is_late = class.is_some_and(|class| waits_for_first_consumer(class));
    (!is_same && !is_late).then_some(&**new)
}

/// Whether a volume is in the index of those that claims can take.
fn is_available(volume: &PersistentVolume) -> bool {
    claim_ref(volume).is_none()
        && volume_phase(volume) == VolumePhase::Available.name()
        && !is_deleting(volume)
}

/// The claims of a new pod without node. With a replayed one all claims are planned.
fn keys_for_pod(change: &Change) -> Vec<Key> {
    let (old, new) = change.both::<Pod>();
    let is_another = |new: &Pod| old.is_none_or(|old| old.metadata.uid != new.metadata.uid);
    let new = new.filter(|new| !change.replayed && is_another(new) && is_unscheduled(new));
    new.into_iter().flat_map(|pod| pod_claims(pod)).map(|used| Key::Consumer(used.claim)).collect()
}

/// The claims that wait for a volume of the class; if it becomes a default one, those without class wait for it. The
/// binder depends on no other field of a class.
fn keys_for_class(change: &Change, world: &World) -> Vec<Key> {
    let (old, new) = change.both::<StorageClass>();
    let [was_default, is_default] = [old, new].map(|class| class.is_some_and(|class| is_default(class)));
    let [before, after] =
        [old, new].map(|class| class.map(|class| (&class.provisioner, &class.volume_binding_mode)));
    let named = (before != after).then_some(change.key.name.as_str());
    let classless = (was_default != is_default).then_some("");
    let classes = named.into_iter().chain(classless);
    let waiting = classes.flat_map(|class| world.claims.by(ClaimBy::Unbound, class));
    waiting.map(|claim| Key::Claim(key_of(&**claim))).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::{KindSet, testing};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    /// A world with claims of the classes `static`, `late` and none, of which the one of `static` is too large for
    /// 1Gi.
    fn world() -> World {
        let mut none = testing::claim("none", "", "1Gi");
        none.spec.get_or_insert_default().storage_class_name = None;
        testing::world([
            testing::claim("small", "static", "1Gi").into(),
            testing::claim("large", "static", "2Gi").into(),
            testing::claim("waiting", "late", "1Gi").into(),
            none.into(),
            testing::wait_for_first_consumer_class("late", testing::DRIVER).into(),
        ])
    }

    fn claims(change: Option<Change>, world: &World) -> Vec<String> {
        let change = change.expect("an object without version is always new");
        let mut claims: Vec<String> = concerned(&change, world)
            .into_iter()
            .filter_map(|key| match key {
                Key::Claim(claim) => Some(claim.name),
                Key::Volume(_) | Key::Consumer(_) => None,
            })
            .collect();
        claims.sort();
        claims
    }

    #[test]
    fn a_free_volume_enqueues_the_claims_that_it_fits_only_when_that_is_new() {
        let mut world = world();
        let mut volume = testing::volume("v", "static", "1Gi");
        volume.status.get_or_insert_default().phase = Some("Pending".into());
        let mut after = |change: &dyn Fn(&mut PersistentVolume)| {
            change(&mut volume);
            let change = world.apply(volume.clone());
            claims(change, &world)
        };
        let phase = |phase: &'static str| {
            move |volume: &mut PersistentVolume| {
                volume.status.get_or_insert_default().phase = Some(phase.into());
            }
        };
        assert_eq!(after(&|_| {}), [""; 0], "not available yet");
        assert_eq!(after(&phase("Available")), ["small"]);
        assert_eq!(after(&|volume| testing::annotate(&mut volume.metadata, "any", "thing")), [""; 0]);
        let larger = |volume: &mut PersistentVolume| {
            let size = ("storage".to_owned(), Quantity("3Gi".into()));
            volume.spec.get_or_insert_default().capacity = Some([size].into());
        };
        assert_eq!(after(&larger), ["large", "small"]);
        assert_eq!(after(&phase("Released")), [""; 0]);
        assert_eq!(after(&phase("Available")), ["large", "small"]);
        let label = |volume: &mut PersistentVolume| {
            volume.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        };
        assert_eq!(after(&label), ["large", "small"]);
        let late = |volume: &mut PersistentVolume| {
            volume.spec.get_or_insert_default().storage_class_name = Some("late".into());
        };
        assert_eq!(after(&late), [""; 0], "the scheduler chooses among these");
        let all: Vec<Change> = world.replay(KindSet::of(&[Kind::Volume])).collect();
        assert!(
            all.into_iter().all(|change| claims(Some(change), &world).is_empty()),
            "claims are replayed, too"
        );
    }

    #[test]
    fn a_class_enqueues_its_claims_and_as_default_one_those_without_class() {
        let mut world = world();
        let mut class = testing::class("static", testing::DRIVER);
        let change = world.apply(class.clone());
        assert_eq!(claims(change, &world), ["large", "small"]);
        class.allow_volume_expansion = Some(true);
        let change = world.apply(class.clone());
        assert_eq!(claims(change, &world), [""; 0]);
        testing::annotate(&mut class.metadata, claimcheck_model::DEFAULT_CLASS, "true");
        let change = world.apply(class.clone());
        assert_eq!(claims(change, &world), ["none"]);
        class.volume_binding_mode = Some("WaitForFirstConsumer".into());
        let change = world.apply(class.clone());
        assert_eq!(claims(change, &world), ["large", "small"]);
        let change = world.remove(&class);
        assert_eq!(claims(change, &world), ["large", "none", "small"]);
    }

    #[test]
    fn a_new_pod_without_node_enqueues_its_claims_once() {
        let mut world = world();
        let consumers = |change: Option<Change>, world: &World| -> Vec<String> {
            let keys = concerned(&change.expect("it changes"), world);
            keys.into_iter()
                .map(|key| match key {
                    Key::Consumer(claim) => claim.name,
                    other => panic!("{other:?}"),
                })
                .collect()
        };
        let mut pod = testing::pod("p", "", &["waiting", "small"]);
        let change = world.apply(pod.clone());
        assert_eq!(consumers(change, &world), ["waiting", "small"]);
        let replayed = world.replay(KindSet::of(&[Kind::Pod])).next();
        assert_eq!(consumers(replayed, &world), [""; 0]);
        testing::annotate(&mut pod.metadata, "any", "thing");
        let change = world.apply(pod.clone());
        assert_eq!(consumers(change, &world), [""; 0]);
        pod.metadata.uid = Some("another".into());
        let change = world.apply(pod.clone());
        assert_eq!(consumers(change, &world), ["waiting", "small"], "one of the same name");
        let change = world.apply(testing::pod("q", "n1", &["waiting"]));
        assert_eq!(consumers(change, &world), [""; 0], "it has a node");
        let change = world.remove(&pod);
        assert_eq!(consumers(change, &world), [""; 0]);
    }
}
