//! Life cycles that begin before and after the first list, and across a gap.

use std::collections::HashSet;

use claimcheck_informer::testing::{
    DRIVER, annotate, attachment, bind, claim, class, csi_driver, pod, volume,
};
use claimcheck_model::{PROVISIONED_BY, Phase, STORAGE_PROVISIONER};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::PodCondition, apimachinery::pkg::apis::meta::v1::Time};

use super::*;

fn at(second: u64) -> Stamp {
    Stamp { mono_ns: second * 1_000_000_000, wall_ns: second * 1_000_000_000 }
}

fn life() -> Life {
    Life::new(Scope::default())
}

fn versioned<K: Followed>(mut object: K, version: u64) -> K {
    object.metadata_mut().resource_version = Some(version.to_string());
    object
}

fn pending() -> PersistentVolumeClaim {
    let mut claim = claim("c", "fast", "1Gi");
    annotate(&mut claim.metadata, STORAGE_PROVISIONER, DRIVER);
    claim
}

fn bound() -> (PersistentVolumeClaim, PersistentVolume) {
    let (mut claim, mut volume) = (pending(), volume("v", "fast", "1Gi"));
    annotate(&mut volume.metadata, PROVISIONED_BY, DRIVER);
    bind(&mut claim, &mut volume);
    (claim, volume)
}

/// Each phase with its result and whole seconds.
fn phases(events: Vec<Event>) -> Vec<(Phase, &'static str, u64)> {
    let phase = |event: Event| match event {
        Event::Phase(sample) => {
            let seconds = if let Outcome::Ok { seconds, .. } = sample.outcome { seconds as u64 } else { 0 };
            Some((sample.phase, sample.outcome.name(), seconds))
        }
        _ => None,
    };
    events.into_iter().filter_map(phase).collect()
}

/// The events of a claim that is provisioned and bound at 10 and 12 seconds.
fn provisioned(life: &mut Life) -> Vec<Event> {
    let (claim, volume) = bound();
    let mut events = life.enter(versioned(volume, 10), Seen::Live(at(10)), at(10));
    events.extend(life.enter(versioned(claim, 11), Seen::Live(at(12)), at(12)));
    events
}

#[test]
fn a_life_cycle_after_the_first_list_is_measured() {
    let mut life = life();
    life.sync();
    life.enter(versioned(pending(), 5), Seen::Live(at(7)), at(7));
    assert_eq!(phases(provisioned(&mut life)), [(Phase::Provision, "ok", 3), (Phase::Bind, "ok", 2)]);
}

#[test]
fn a_phase_that_started_before_the_list_is_unobserved_and_the_next_is_measured() {
    let mut life = life();
    life.enter(versioned(pending(), 5), Seen::Listed, at(7));
    life.sync();
    assert_eq!(phases(provisioned(&mut life)), [(Phase::Provision, "unobserved", 0), (Phase::Bind, "ok", 2)]);
}

#[test]
fn phases_that_were_over_before_the_list_are_not_reported() {
    let mut life = life();
    let (claim, volume) = bound();
    let mut events = life.enter(versioned(volume, 10), Seen::Listed, at(10));
    events.extend(life.enter(versioned(claim, 11), Seen::Listed, at(10)));
    life.enter(csi_driver(true), Seen::Listed, at(10));
    events.extend(life.enter(versioned(attachment("a", "v", "n", true), 9), Seen::Listed, at(10)));
    assert_eq!(events, []);
}

#[test]
fn a_phase_that_ended_in_a_gap_is_unobserved() {
    let mut life = life();
    life.sync();
    life.enter(versioned(pending(), 5), Seen::Live(at(7)), at(7));
    let (claim, volume) = bound();
    let mut events = life.enter(versioned(volume, 10), Seen::Listed, at(20));
    events.extend(life.enter(versioned(claim, 11), Seen::Listed, at(20)));
    assert_eq!(phases(events), [(Phase::Provision, "unobserved", 0), (Phase::Bind, "unobserved", 0)]);
}

#[test]
fn an_object_that_is_missing_from_a_list_was_deleted_and_state_is_forgotten_later() {
    let mut life = life();
    life.sync();
    life.enter(versioned(pending(), 5), Seen::Live(at(7)), at(7));
    let stays = HashSet::from(["uid-c".to_owned()]);
    life.listed::<PersistentVolumeClaim>(&stays, at(8));
    assert_eq!((life.active.timeline.claims(), life.world.claims.len()), (1, 1));
    life.listed::<PersistentVolumeClaim>(&HashSet::new(), at(9));
    assert_eq!((life.active.timeline.claims(), life.world.claims.len()), (1, 0));
    assert_eq!(life.retire(at(60)), []);
    assert_eq!(life.active.timeline.claims(), 1);
    assert_eq!(phases(life.retire(at(70))), [(Phase::Provision, "aborted", 0)]);
    assert_eq!(life.active.timeline.claims(), 0);
}

#[test]
fn a_claim_is_followed_until_its_volume_is_deleted() {
    let mut life = life();
    life.sync();
    life.enter(versioned(pending(), 5), Seen::Live(at(7)), at(7));
    provisioned(&mut life);
    let (claim, volume) = bound();
    life.remove(versioned(claim, 20), Seen::Live(at(20)), at(20));
    life.retire(at(100));
    assert_eq!(life.active.timeline.claims(), 1, "its volume exists");
    let events = life.remove(versioned(volume, 30), Seen::Live(at(120)), at(120));
    assert_eq!(phases(events), [(Phase::Delete, "ok", 100)]);
    life.retire(at(200));
    assert_eq!(life.active.timeline.claims(), 0);
}

#[test]
fn objects_outside_the_scope_are_dropped() {
    let scope = Scope { namespaces: BTreeSet::from(["other".to_owned()]), ..Scope::default() };
    let mut life = Life::new(scope);
    life.enter(pending(), Seen::Listed, at(1));
    life.enter(pod("p", "n", &["c"]), Seen::Listed, at(1));
    assert_eq!((life.world.claims.len(), life.world.pods.len()), (0, 0));
    let of_class = Scope { classes: BTreeSet::from(["slow".to_owned()]), ..Scope::default() };
    let mut life = Life::new(of_class.clone());
    life.enter(pending(), Seen::Listed, at(1));
    assert_eq!(life.world.claims.len(), 0);
    let mut life = Life::new(Scope { canary: Some("default".to_owned()), ..of_class });
    life.enter(pending(), Seen::Listed, at(1));
    assert_eq!(life.world.claims.len(), 1, "the canary's claims have any class");
    let mut life = Life::new(Scope::default());
    life.enter(pod("none", "n", &[]), Seen::Listed, at(1));
    assert_eq!(life.world.pods.len(), 0, "a pod without claims");
}

#[test]
fn the_status_has_the_observed_start() {
    let mut life = life();
    life.sync();
    life.enter(class("fast", DRIVER), Seen::Listed, at(1));
    life.enter(versioned(pending(), 5), Seen::Live(at(7)), at(7));
    let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(17);
    let clock = Clock::at(now, SignedDuration::from_secs(5));
    let status = life.status(&Messages::new(), &clock);
    let [row] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
    assert_eq!((row.phase, row.seconds, row.stuck), (Phase::Provision, 10.0, true));
}

#[test]
fn an_old_attachment_is_unused_since_its_last_pod_was_deleted() {
    let mut life = life();
    let (bound_claim, bound_volume) = bound();
    let mut attached = attachment("a", "v", "n", true);
    attached.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    life.enter(versioned(bound_volume, 10), Seen::Listed, at(1));
    life.enter(versioned(bound_claim, 11), Seen::Listed, at(1));
    life.enter(versioned(pod("p", "n", &["c"]), 12), Seen::Listed, at(1));
    life.enter(versioned(attached, 13), Seen::Listed, at(1));
    life.sync();
    life.remove(versioned(pod("p", "n", &["c"]), 14), Seen::Live(at(100)), at(100));
    let unused = |now: i64| {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(now);
        let clock = Clock::at(now, SignedDuration::from_secs(30));
        let found = life.status(&Messages::new(), &clock).leftovers;
        found.into_iter().map(|one| (one.object, one.since.map(Timestamp::as_second))).collect::<Vec<_>>()
    };
    assert_eq!(unused(120), [], "it is to be detached");
    assert_eq!(unused(140), [("a".to_owned(), Some(100))]);
}

#[test]
fn the_open_objects_follow_each_change() {
    let mut life = life();
    life.sync();
    let (bound_claim, bound_volume) = bound();
    let check = |life: &Life, expected: usize, what: &str| {
        assert_eq!(life.open.clone().timeless(), Open::of(&life.world), "{what}");
        assert_eq!(life.open.len(), expected, "{what}");
    };
    life.enter(class("fast", DRIVER), Seen::Listed, at(1));
    life.enter(versioned(pending(), 5), Seen::Listed, at(1));
    check(&life, 1, "a pending claim");
    life.enter(versioned(bound_volume.clone(), 10), Seen::Listed, at(2));
    life.enter(versioned(bound_claim.clone(), 11), Seen::Listed, at(2));
    check(&life, 0, "a bound claim");
    life.enter(versioned(attachment("a", "v", "n", true), 12), Seen::Listed, at(3));
    check(&life, 1, "an attachment without a pod");
    let waiting = pod("p", "n", &["c"]);
    life.enter(versioned(waiting.clone(), 13), Seen::Listed, at(3));
    check(&life, 1, "a pod that waits, and its attachment");
    let mut started = waiting;
    started.status.get_or_insert_default().conditions = Some(vec![PodCondition {
        type_: "PodReadyToStartContainers".into(),
        status: "True".into(),
        ..PodCondition::default()
    }]);
    life.enter(versioned(started.clone(), 14), Seen::Listed, at(4));
    check(&life, 0, "a pod that has started");
    let mut larger = bound_claim.clone();
    let requested = claim("x", "fast", "2Gi").spec.and_then(|spec| spec.resources);
    larger.spec.get_or_insert_default().resources = requested;
    life.enter(versioned(larger, 15), Seen::Listed, at(5));
    check(&life, 1, "a claim that is to be expanded");
    let mut expanded = bound_volume;
    let capacity = volume("x", "fast", "2Gi").spec.and_then(|spec| spec.capacity);
    expanded.spec.get_or_insert_default().capacity = capacity;
    life.enter(versioned(expanded.clone(), 16), Seen::Listed, at(6));
    check(&life, 0, "its volume was expanded");
    life.remove(versioned(bound_claim, 17), Seen::Listed, at(7));
    check(&life, 1, "a pod without its claim");
    life.remove(versioned(started, 18), Seen::Listed, at(8));
    check(&life, 1, "an attachment without a pod");
    life.remove(versioned(expanded, 19), Seen::Listed, at(9));
    check(&life, 1, "an attachment without a volume");
    life.remove(versioned(attachment("a", "v", "n", true), 20), Seen::Listed, at(10));
    check(&life, 0, "nothing");
}
