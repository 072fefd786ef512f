//! Properties for arbitrary claims and volumes: matching equals a naive search, and binding has the same result
//! however often and wherever it is interrupted.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{
    Cached, World, key_of,
    testing::{claim, node, volume},
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    action::{Action, Write},
    fit,
    plan::plan_claim,
    plan_volume::plan_volume,
};
use crate::{
    claims::{
        capacity, claim_phase, claim_ref, class_name, is_bound, name, ref_uid, requested, volume_name,
        volume_phase,
    },
    selector::reaches,
};

const MODES: [&str; 3] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];
const CLASSES: [&str; 2] = ["", "fast"];

fn modes(bits: u8) -> Vec<String> {
    let chosen = MODES.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    chosen.map(|(_, mode)| (*mode).to_owned()).collect()
}

fn any_volume(index: usize) -> impl Strategy<Value = PersistentVolume> {
    (1..6_u8, 0..2_usize, 1..8_u8, any::<bool>(), 0..2_u8).prop_map(
        move |(size, class, bits, block, label)| {
            let mut volume = volume(&format!("v{index}"), CLASSES[class], &format!("{size}Gi"));
            let spec = volume.spec.as_mut().unwrap();
            spec.access_modes = Some(modes(bits));
            spec.volume_mode = block.then(|| "Block".to_owned());
            volume.metadata.labels = Some([("l".to_owned(), label.to_string())].into());
            volume
        },
    )
}

fn any_claim(index: usize) -> impl Strategy<Value = PersistentVolumeClaim> {
    (1..6_u8, 0..2_usize, 1..8_u8, prop::bool::weighted(0.3), prop::option::of(0..2_u8)).prop_map(
        move |(size, class, bits, block, label)| {
            let mut claim = claim(&format!("c{index}"), CLASSES[class], &format!("{size}Gi"));
            let spec = claim.spec.as_mut().unwrap();
            spec.access_modes = Some(modes(bits));
            spec.volume_mode = Some(if block { "Block" } else { "Filesystem" }.to_owned());
            spec.selector = label.map(|label| {
                serde_json::from_value(json!({"matchLabels": {"l": label.to_string()}})).unwrap()
            });
            claim
        },
    )
}

fn volumes(count: usize) -> impl Strategy<Value = Vec<PersistentVolume>> {
    (0..count).map(any_volume).collect::<Vec<_>>()
}

fn claims(count: usize) -> impl Strategy<Value = Vec<PersistentVolumeClaim>> {
    (0..count).map(any_claim).collect::<Vec<_>>()
}

/// Affinities with and without a label that finds them; of the nodes of [`any_node`].
fn any_affinity() -> impl Strategy<Value = Option<VolumeNodeAffinity>> {
    let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let labels = |requirements: &[Value]| json!({"matchExpressions": requirements});
    let on = requirement("kubernetes.io/hostname", "In", &["n1"]);
    let zones = requirement("topology.kubernetes.io/zone", "In", &["a", "b"]);
    let elsewhere = requirement("kubernetes.io/hostname", "NotIn", &["n1"]);
    let any = requirement("rack", "Exists", &[]);
    let none = requirement("rack", "In", &[]);
    let by_name = json!({"matchFields": [requirement("metadata.name", "In", &["n2", "n3"])]});
    let terms = vec![
        labels(std::slice::from_ref(&on)),
        labels(std::slice::from_ref(&zones)),
        labels(&[zones.clone(), elsewhere.clone()]),
        labels(&[elsewhere]),
        labels(&[any, zones]),
        labels(&[none, on]),
        by_name,
        json!({}),
    ];
    let required = prop::collection::vec(prop::sample::select(terms), 0..3)
        .prop_map(|terms| serde_json::from_value(json!({"required": {"nodeSelectorTerms": terms}})).unwrap());
    prop::option::of(required)
}

fn any_node() -> impl Strategy<Value = Node> {
    (1..4_u8, prop::option::of(0..3_usize), any::<bool>()).prop_map(|(index, zone, rack)| {
        let mut node = node(&format!("n{index}"));
        let labels = node.metadata.labels.get_or_insert_default();
        labels.extend(zone.map(|zone| ("topology.kubernetes.io/zone".into(), ["a", "b", "c"][zone].into())));
        labels.extend(rack.then(|| ("rack".into(), "r".into())));
        node
    })
}

/// Looks at all volumes, with every condition spelt out; those that fit come in the order of their size and name.
fn naive<'a>(claim: &PersistentVolumeClaim, volumes: &'a [PersistentVolume]) -> Vec<&'a PersistentVolume> {
    let wants = claim.spec.as_ref().unwrap();
    let mut fitting: Vec<_> = volumes
        .iter()
        .filter(|volume| {
            let has = volume.spec.as_ref().unwrap();
            let has_modes = has.access_modes.clone().unwrap();
            let selector = wants.selector.as_ref().and_then(|selector| selector.match_labels.clone());
            capacity(volume) >= requested(claim)
                && has.storage_class_name.as_deref() == Some(class_name(claim))
                && has.volume_mode.clone().unwrap_or("Filesystem".into())
                    == wants.volume_mode.clone().unwrap()
                && wants.access_modes.clone().unwrap().iter().all(|mode| has_modes.contains(mode))
                && selector
                    .unwrap_or_default()
                    .iter()
                    .all(|(key, value)| volume.metadata.labels.as_ref().unwrap().get(key) == Some(value))
        })
        .collect();
    fitting.sort_by_key(|volume| (capacity(volume), name(*volume)));
    fitting
}

/// As the API server: merges a patch, unless it was decided on an older version.
fn write<K>(object: &Arc<K>, patch: &Value, world: &mut World, version: &mut u64)
where
    K: Cached + Clone + serde::Serialize + serde::de::DeserializeOwned,
{
    let current = K::store(world).get(&key_of(&**object)).unwrap().clone();
    if current.metadata().resource_version != object.metadata().resource_version {
        return;
    }
    let mut document = serde_json::to_value(&*current).unwrap();
    json_patch::merge(&mut document, patch);
    let mut changed: K = serde_json::from_value(document).unwrap();
    *version += 1;
    changed.metadata_mut().resource_version = Some(version.to_string());
    world.apply(changed).expect("a newer version changes the world");
}

fn carry_out(action: &Action, world: &mut World, version: &mut u64) {
    match action.write() {
        None => {}
        Some(Write::Claim(claim, patch)) => write(&claim, &patch, world, version),
        Some(Write::ClaimStatus(claim, status)) => write(&claim, &json!({"status": status}), world, version),
        Some(Write::Volume(volume, patch)) => write(&volume, &patch, world, version),
        Some(Write::VolumeStatus(volume, status)) => {
            write(&volume, &json!({"status": status}), world, version)
        }
    }
}

fn plans(world: &World) -> Vec<Vec<Action>> {
    let mut claims: Vec<_> = world.claims.iter().map(|claim| key_of(&**claim)).collect();
    let mut volumes: Vec<_> = world.volumes.iter().map(|volume| key_of(&**volume)).collect();
    claims.sort();
    volumes.sort();
    let of_claims = claims.iter().map(|key| plan_claim(key, world));
    of_claims.chain(volumes.iter().map(|key| plan_volume(key, world))).collect()
}

/// The first write that a plan asks for; of the last plan in `reverse`.
fn first_write(world: &World, reverse: bool) -> Option<Action> {
    let mut plans = plans(world);
    if reverse {
        plans.reverse();
    }
    plans.into_iter().flatten().find(|action| action.write().is_some())
}

/// Plans and writes until no plan writes anything any longer.
fn settle(world: &mut World, version: &mut u64, reverse: bool) {
    for _ in 0..200 {
        let Some(action) = first_write(world, reverse) else { return };
        carry_out(&action, world, version);
    }
    panic!("planning does not come to an end: {:?}", plans(world));
}

fn build(claims: &[PersistentVolumeClaim], volumes: &[PersistentVolume]) -> World {
    let mut world = World::default();
    for claim in claims {
        world.apply(claim.clone());
    }
    for volume in volumes {
        world.apply(volume.clone());
    }
    world
}

/// The claims that volumes point to.
fn pointers(world: &World) -> BTreeMap<String, String> {
    let pointing = world.volumes.iter().filter_map(|volume| {
        let uid = claim_ref(volume).and_then(ref_uid)?;
        Some((name(&**volume).to_owned(), uid.to_owned()))
    });
    pointing.collect()
}

/// Every pointer has its counterpart, and the phases say so.
fn check_consistent(world: &World) -> Result<(), TestCaseError> {
    for claim in world.claims.iter().filter(|claim| volume_name(claim).is_some()) {
        prop_assert!(is_bound(claim) && claim_phase(claim) == "Bound", "{:?}", claim);
        let volume = world.volumes.named(volume_name(claim).unwrap()).unwrap();
        prop_assert_eq!(claim_ref(volume).and_then(ref_uid), claim.metadata.uid.as_deref());
        prop_assert_eq!(volume_phase(volume), "Bound");
    }
    for volume in world.volumes.iter().filter(|volume| claim_ref(volume).is_some()) {
        let takers = world.claims.iter().filter(|claim| volume_name(claim) == Some(name(&**volume)));
        prop_assert_eq!(takers.count(), 1, "of {:?}", volume);
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_best_fit_is_what_a_naive_search_finds(volumes in volumes(8), claims in claims(1)) {
        let world = build(&claims, &volumes);
        let fitting = naive(&claims[0], &volumes);
        let smallest = fit::smallest(&claims[0], &node("n"), &world, |_| true).map(|volume| &**volume);
        prop_assert_eq!(smallest, fitting.first().copied());

        let modes = |volume: &PersistentVolume| volume.spec.clone().unwrap().access_modes.unwrap();
        let closest = fit::closest(&claims[0], &world);
        prop_assert_eq!(closest.is_some(), smallest.is_some());
        if let Some(closest) = closest {
            let fewest = fitting.iter().map(|volume| modes(volume).len()).min();
            prop_assert_eq!(Some(modes(closest).len()), fewest);
            let alike = fitting.iter().copied().find(|volume| modes(volume) == modes(closest));
            prop_assert_eq!(Some(&**closest), alike, "the smallest with its modes");
        }
    }

    #[test]
    fn the_smallest_on_a_node_is_what_a_naive_search_finds(
        volumes in volumes(8),
        affinities in prop::collection::vec(any_affinity(), 8),
        claims in claims(1),
        node in any_node(),
    ) {
        let affine = volumes.into_iter().zip(affinities).map(|(mut volume, affinity)| {
            volume.spec.as_mut().unwrap().node_affinity = affinity;
            volume
        });
        let volumes: Vec<_> = affine.collect();
        let world = build(&claims, &volumes);
        let fitting = naive(&claims[0], &volumes);
        let accessible: Vec<_> = fitting.into_iter().filter(|volume| reaches(volume, &node)).collect();
        let smallest = fit::smallest(&claims[0], &node, &world, |_| true).map(|volume| &**volume);
        prop_assert_eq!(smallest, accessible.first().copied());
        let not_first = |volume: &PersistentVolume| accessible.first().is_none_or(|first| name(*first) != name(volume));
        let second = fit::smallest(&claims[0], &node, &world, not_first).map(|volume| &**volume);
        prop_assert_eq!(second, accessible.get(1).copied());
    }

    /// A binder that crashes after any number of writes is followed by one that processes objects in another
    /// order: it completes the pending bindings, and changes none of them.
    #[test]
    fn a_crash_in_between_leaves_no_half_binding(
        volumes in volumes(4),
        claims in claims(3),
        cut in 0..16_usize,
    ) {
        let (mut world, mut version) = (build(&claims, &volumes), 1);
        for _ in 0..cut {
            let Some(action) = first_write(&world, false) else { break };
            carry_out(&action, &mut world, &mut version);
        }
        let begun = pointers(&world);
        settle(&mut world, &mut version, true);
        check_consistent(&world)?;
        let ended = pointers(&world);
        prop_assert!(begun.iter().all(|(volume, claim)| ended.get(volume) == Some(claim)), "{begun:?} {ended:?}");
    }

    /// Workers that plan on the same moment and write in any order still bind each volume at most once,
    /// and leave no claim half bound.
    #[test]
    fn concurrent_workers_bind_consistently(
        volumes in volumes(3),
        claims in claims(4),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let (mut world, mut version) = (build(&claims, &volumes), 1);
        let mut decided: Vec<Action> = Vec::new();
        for pick in order {
            if decided.is_empty() {
                // Everybody plans on the world as it is now; by the time they write it has moved on.
                decided = plans(&world).into_iter().flatten().filter(|action| action.write().is_some()).collect();
            }
            if decided.is_empty() {
                break;
            }
            let action = decided.swap_remove(pick.index(decided.len()));
            carry_out(&action, &mut world, &mut version);
        }
        settle(&mut world, &mut version, false);
        check_consistent(&world)?;
    }
}
