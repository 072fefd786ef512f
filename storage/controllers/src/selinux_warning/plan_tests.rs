//! Tables of worlds and the warnings about them.

use claimcheck_informer::{
    EventType, Object, World,
    testing::{self, DRIVER, bind, claim, csi_driver, volume},
};
use claimcheck_model::{ObjectKey, meter::Reading, metric::SELINUX_VOLUME_CONFLICT};
use k8s_openapi::api::{core::v1::Pod, storage::v1::CSIDriver};
use serde_json::{Value, json};

use super::plan::{Key, Reported, Warning, plan, readings};

const SAME_NODE: &str = "If both pods land on the same node, only one of them may access the volume.";

fn driver(se_linux_mount: Option<bool>) -> CSIDriver {
    let mut driver = csi_driver(false);
    driver.spec.se_linux_mount = se_linux_mount;
    driver
}

/// A pod with a container that mounts the claim `c`, and this security context.
fn pod(name: &str, context: Value) -> Pod {
    let mut pod = testing::pod(name, "", &["c"]);
    let container = json!({"name": "main", "volumeMounts": [{"name": "c", "mountPath": "/data"}]});
    let spec = pod.spec.as_mut().unwrap();
    spec.containers = vec![serde_json::from_value(container).unwrap()];
    spec.security_context = Some(serde_json::from_value(context).unwrap());
    pod
}

fn level(level: &str) -> Value {
    json!({"seLinuxOptions": {"level": level}})
}

fn recursive(level: &str) -> Value {
    json!({"seLinuxOptions": {"level": level}, "seLinuxChangePolicy": "Recursive"})
}

/// The driver with `seLinuxMount`, the claim `c`, its volume, and these pods.
fn world(pods: impl IntoIterator<Item = Pod>) -> World {
    let (mut claim, mut volume) = (claim("c", "", "1Gi"), volume("v", "", "1Gi"));
    bind(&mut claim, &mut volume);
    let mut world = testing::world([driver(Some(true)).into(), claim.into(), volume.into()]);
    for pod in pods {
        world.apply(pod);
    }
    world
}

fn of_volume() -> Key {
    Key::Volume { driver: DRIVER.to_owned(), handle: "handle-v".to_owned() }
}

fn of_pod(name: &str) -> Key {
    Key::Pod(ObjectKey::new(testing::NAMESPACE, name))
}

/// The pods and reasons of the warnings about the volume, sorted.
fn reasons(world: &World) -> Vec<(String, &'static str)> {
    let name = |warning: &Warning| warning.pod().metadata.name.clone().unwrap_or_default();
    let mut found: Vec<_> =
        plan(&of_volume(), world).iter().map(|warning| (name(warning), warning.event().1)).collect();
    found.sort();
    found
}

#[test]
fn pods_conflict_if_their_labels_or_policies_differ() {
    let label = |pods: [&str; 2]| pods.map(|pod| (pod.to_owned(), "SELinuxLabelConflict")).to_vec();
    let policy = |pods: [&str; 2]| pods.map(|pod| (pod.to_owned(), "SELinuxChangePolicyConflict")).to_vec();
    let both = |[a, b]: [&str; 2]| {
        let mut all = [label([a, b]), policy([a, b])].concat();
        all.sort();
        all
    };
    let mount_option = json!({"seLinuxOptions": {"level": "s0:c1"}, "seLinuxChangePolicy": "MountOption"});
    let table = [
        ("one pod", vec![level("s0:c1")], vec![]),
        ("the same label", vec![level("s0:c1"), level("s0:c1")], vec![]),
        ("another level", vec![level("s0:c1"), level("s0:c2")], label(["p0", "p1"])),
        ("the default policy, written", vec![level("s0:c1"), mount_option], vec![]),
        ("no label, so no mount option", vec![level("s0:c1"), json!({})], both(["p0", "p1"])),
        (
            "a type alone has no level, as no label",
            vec![json!({"seLinuxOptions": {"type": "spc_t"}}), json!({})],
            policy(["p0", "p1"]),
        ),
        ("both recursive", vec![recursive("s0:c1"), recursive("s0:c2")], vec![]),
        ("one recursive", vec![level("s0:c1"), recursive("s0:c1")], both(["p0", "p1"])),
        ("no labels", vec![json!({}), json!({})], vec![]),
        (
            "equal pods do not conflict with each other",
            vec![level("s0:c1"), level("s0:c2"), level("s0:c1")],
            vec![
                ("p0".to_owned(), "SELinuxLabelConflict"),
                ("p1".to_owned(), "SELinuxLabelConflict"),
                ("p1".to_owned(), "SELinuxLabelConflict"),
                ("p2".to_owned(), "SELinuxLabelConflict"),
            ],
        ),
    ];
    for (what, contexts, expected) in table {
        let pods = contexts.into_iter().enumerate().map(|(at, context)| pod(&format!("p{at}"), context));
        assert_eq!(reasons(&world(pods)), expected, "{what}");
    }
}

#[test]
fn only_bound_volumes_of_drivers_with_se_linux_mount_are_compared() {
    let pods = || [pod("p", level("s0:c1")), pod("q", level("s0:c2"))];
    let changed = |change: Object| {
        let mut world = world(pods());
        world.apply_any(change);
        reasons(&world).len()
    };
    let mut unbound = claim("c", "", "1Gi");
    unbound.spec.as_mut().unwrap().volume_name = Some("v".into());
    let mut bound = claim("c", "", "1Gi");
    let mut of_another_claim = volume("v", "", "1Gi");
    bind(&mut bound, &mut of_another_claim);
    of_another_claim.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("other".into());
    let ended = |phase: &str| {
        let mut pod = pod("p", level("s0:c1"));
        pod.status.as_mut().unwrap().phase = Some(phase.into());
        pod
    };
    let mut raw = pod("p", level("s0:c1"));
    raw.spec.as_mut().unwrap().containers[0].volume_mounts = None;
    for (what, change, expected) in [
        ("nothing else", driver(Some(true)).into(), 2),
        ("seLinuxMount is false", driver(Some(false)).into(), 0),
        ("seLinuxMount is not set", driver(None).into(), 0),
        ("the claim is not Bound", unbound.into(), 0),
        ("the volume is bound to an earlier claim", of_another_claim.into(), 0),
        ("a pod runs", ended("Running").into(), 2),
        ("a pod has succeeded", ended("Succeeded").into(), 0),
        ("a pod has failed", ended("Failed").into(), 0),
        ("no container of a pod mounts the volume", raw.into(), 0),
    ] {
        assert_eq!(changed(change), expected, "{what}");
    }
    let mut without_driver = world(pods());
    without_driver.forget(claimcheck_informer::Kind::CsiDriver, &ObjectKey::cluster(DRIVER));
    assert!(reasons(&without_driver).is_empty());
}

#[test]
fn pods_of_two_namespaces_share_a_volume_through_two_objects() {
    let (mut other_claim, mut other_volume) = (claim("c", "", "1Gi"), volume("v-2", "", "1Gi"));
    other_claim.metadata.namespace = Some("secret".into());
    other_claim.metadata.uid = Some("uid-secret".into());
    bind(&mut other_claim, &mut other_volume);
    other_volume.spec.as_mut().unwrap().csi.as_mut().unwrap().volume_handle = "handle-v".into();
    let mut other = pod("q", level("s0:c2"));
    other.metadata.namespace = Some("secret".into());
    let mut world = world([pod("p", level("s0:c1"))]);
    world.apply(other_claim);
    world.apply(other_volume);
    world.apply(other);
    let texts: Vec<_> = plan(&of_volume(), &world).iter().map(|warning| warning.event().2).collect();
    let text = |level: &str| {
        format!(
            "SELinuxLabel\":::s0:{level}\" conflicts with another pod that uses the same volume as this pod with a \
             different SELinuxLabel. {SAME_NODE}"
        )
    };
    assert_eq!(texts.len(), 2);
    assert!(texts.contains(&text("c1")) && texts.contains(&text("c2")), "{texts:?}");
}

#[test]
fn the_metric_has_each_conflict_in_both_directions() {
    let world = world([pod("p", level("s0:c1")), pod("q", recursive(""))]);
    let reading = |labels: [&str; 7]| Reading::new(&SELINUX_VOLUME_CONFLICT, &labels, 1.0);
    let mut found = readings(&world);
    found.sort_by(|a, b| a.labels.cmp(&b.labels));
    let (policy, label) = ("SELinuxChangePolicy", "SELinuxLabel");
    assert_eq!(
        found,
        [
            reading([policy, "default", "p", "MountOption", "default", "q", "Recursive"]),
            reading([policy, "default", "q", "Recursive", "default", "p", "MountOption"]),
            reading([label, "default", "p", ":::s0:c1", "default", "q", ""]),
            reading([label, "default", "q", "", "default", "p", ":::s0:c1"]),
        ]
    );
}

/// A pod with two containers that mount a volume with different labels.
fn with_several_labels(name: &str) -> Pod {
    let mut pod = pod(name, level("s0:c1"));
    let context = json!({"seLinuxOptions": {"level": "s0:c2"}});
    let containers = &mut pod.spec.as_mut().unwrap().containers;
    let mut second = containers[0].clone();
    second.security_context = Some(serde_json::from_value(context).unwrap());
    containers.push(second);
    pod
}

#[test]
fn a_pod_that_mounts_a_volume_with_several_labels_is_reported_and_not_compared() {
    let world = world([with_several_labels("p"), pod("q", level("s0:c1"))]);
    let events: Vec<_> = plan(&of_pod("p"), &world).iter().map(Warning::event).collect();
    let text = "Volume \"c\" is mounted twice with different SELinux labels inside this pod";
    assert_eq!(events, [(EventType::Warning, "MultipleSELinuxLabels", text.to_owned())]);
    assert_eq!(plan(&of_pod("q"), &world), []);
    assert_eq!(plan(&of_volume(), &world), []);
}

#[test]
fn several_labels_are_reported_for_volumes_of_all_kinds_once_they_are_bound() {
    let found = |pod: Pod, change: Option<Object>| {
        let mut world = world([pod]);
        if let Some(change) = change {
            world.apply_any(change);
        }
        plan(&of_pod("p"), &world).len()
    };
    let mut empty_dir = with_several_labels("p");
    let volume = &mut empty_dir.spec.as_mut().unwrap().volumes.as_mut().unwrap()[0];
    volume.persistent_volume_claim = None;
    volume.empty_dir = Some(Default::default());
    let mut ended = with_several_labels("p");
    ended.status.as_mut().unwrap().phase = Some("Failed".into());
    assert_eq!(found(with_several_labels("p"), None), 1);
    assert_eq!(found(with_several_labels("p"), Some(driver(None).into())), 1);
    assert_eq!(found(with_several_labels("p"), Some(claim("c", "", "1Gi").into())), 0);
    assert_eq!(found(empty_dir, None), 1);
    assert_eq!(found(ended, None), 0);
}

#[test]
fn a_warning_is_reported_once_and_again_after_it_has_ended() {
    let mut reported = Reported::default();
    let report = |reported: &mut Reported, world: &World| {
        let unreported = reported.unreported(plan(&of_volume(), world));
        unreported.iter().for_each(|warning| reported.insert(warning));
        unreported.len()
    };
    let mut world = world([pod("p", level("s0:c1")), pod("q", level("s0:c2"))]);
    assert_eq!(report(&mut reported, &world), 2);
    assert_eq!(report(&mut reported, &world), 0);
    world.apply(pod("r", level("s0:c1")));
    assert_eq!(report(&mut reported, &world), 2, "q and r; p and q are known");
    // Another pod of the same name, in place of the first.
    let mut next = pod("p", level("s0:c1"));
    next.metadata.uid = Some("another".into());
    world.apply(next);
    assert_eq!(report(&mut reported, &world), 2);
    world.apply(driver(Some(false)));
    assert_eq!(report(&mut reported, &world), 0);
    assert!(reported.is_empty());
    world.apply(driver(Some(true)));
    assert_eq!(report(&mut reported, &world), 4);
}
