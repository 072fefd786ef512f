//! The populator as tables.

use claimcheck_informer::testing::{self, DRIVER};
use k8s_openapi::api::core::v1::{
    CSIVolumeSource, ContainerStatus, EmptyDirVolumeSource, HostPathVolumeSource, LocalObjectReference,
    PersistentVolumeClaim, PodSecurityContext, PodStatus, SecretVolumeSource, VolumeDevice, VolumeMount,
};

use serde_json::json;

use super::*;

/// A bound claim and its volume.
fn bound(name: &str) -> (PersistentVolumeClaim, PersistentVolume) {
    let mut claim = testing::claim(name, "class", "1Gi");
    let mut volume = testing::volume(&format!("pv-{name}"), "class", "1Gi");
    testing::bind(&mut claim, &mut volume);
    claim.status.get_or_insert_default().phase = Some("Bound".into());
    (claim, volume)
}

fn world(objects: Vec<(PersistentVolumeClaim, PersistentVolume)>) -> World {
    let mut world = World::default();
    for (claim, volume) in objects {
        world.apply(claim);
        world.apply(volume);
    }
    world
}

/// A pod with one container that mounts the volumes of these names, out of all that `claims` and `others` make.
fn pod(claims: &[&str], others: Vec<Volume>, mounted: &[&str]) -> Pod {
    let mut pod = testing::pod("p", "n", claims);
    let spec = pod.spec.as_mut().unwrap();
    spec.volumes.get_or_insert_default().extend(others);
    let mount = |name: &&str| VolumeMount {
        name: (*name).into(),
        mount_path: format!("/{name}"),
        ..VolumeMount::default()
    };
    spec.containers = vec![Container {
        name: "c".into(),
        volume_mounts: Some(mounted.iter().map(mount).collect()),
        ..Container::default()
    }];
    pod
}

fn keys(population: &Population) -> Vec<VolumeKey> {
    population.expected.iter().map(|expected| expected.key.clone()).collect()
}

fn problem(population: &Population) -> (bool, &str) {
    assert_eq!(population.problems.len(), 1, "{:?}", population.problems);
    (population.problems[0].waiting, &population.problems[0].message)
}

#[test]
fn a_volume_with_a_file_of_variables_is_mounted_though_no_container_mounts_it() {
    let scratch = Volume {
        name: "scratch".into(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let mut pod = pod(&[], vec![scratch], &[]);
    assert_eq!(populate(&pod, &world(Vec::new()), &Pending::new(), None).expected.len(), 0);
    let reference = json!({"fileKeyRef": {"volumeName": "scratch", "path": "env", "key": "K"}});
    let variable = json!([{"name": "A", "valueFrom": reference}]);
    pod.spec.as_mut().unwrap().containers[0].env = Some(serde_json::from_value(variable).unwrap());
    assert_eq!(populate(&pod, &world(Vec::new()), &Pending::new(), None).expected.len(), 1);
}

#[test]
fn a_bound_claim_is_a_csi_volume() {
    let world = world(vec![bound("a"), bound("b")]);
    let population = populate(&pod(&["a", "b"], vec![], &["a"]), &world, &Pending::new(), None);
    assert_eq!(keys(&population), [VolumeKey::csi(DRIVER, "handle-pv-a")], "b is not mounted by anyone");
    let mount = &population.expected[0].mount;
    assert_eq!((mount.directory.as_str(), mount.read_only), ("pv-a", false));
    assert_eq!(population.problems, []);
}

#[test]
fn what_is_not_there_yet_is_waited_for() {
    let (claim, volume) = bound("a");
    let pod = pod(&["a"], vec![], &["a"]);
    let mut some = World::default();
    assert_eq!(
        problem(&populate(&pod, &some, &Pending::new(), None)),
        (true, "error processing PVC default/a: the claim does not exist")
    );
    let mut pending = claim.clone();
    pending.status.get_or_insert_default().phase = Some("Pending".into());
    some.apply(pending);
    assert_eq!(
        problem(&populate(&pod, &some, &Pending::new(), None)),
        (true, "error processing PVC default/a: PVC is not bound")
    );
    some.apply(claim);
    assert!(problem(&populate(&pod, &some, &Pending::new(), None)).0);
    let mut taken = volume.clone();
    taken.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("other".into());
    some.apply(taken);
    assert!(
        problem(&populate(&pod, &some, &Pending::new(), None))
            .1
            .ends_with("PV pv-a is bound to another claim")
    );
    some.apply(volume);
    assert_eq!(keys(&populate(&pod, &some, &Pending::new(), None)).len(), 1);
}

#[test]
fn what_was_resolved_stays_while_the_pod_runs() {
    let (claim, volume) = bound("a");
    let pod = pod(&["a"], vec![], &["a"]);
    let before = populate(&pod, &world(vec![(claim.clone(), volume.clone())]), &Pending::new(), None);
    let deleted = world(vec![(testing::deleting(claim, &["kubernetes.io/pvc-protection"]), volume)]);
    assert_eq!(populate(&pod, &deleted, &Pending::new(), Some(&before)), before);
    assert_eq!(
        problem(&populate(&pod, &deleted, &Pending::new(), None)),
        (false, "error processing PVC default/a: PVC is being deleted")
    );
}

/// The agent may have been restarted since it resolved them.
#[test]
fn only_a_pod_that_has_run_uses_a_claim_that_is_being_deleted() {
    let (claim, volume) = bound("a");
    let world = world(vec![(testing::deleting(claim, &["kubernetes.io/pvc-protection"]), volume)]);
    for (container_id, uses) in [(None, false), (Some("claimcheck://1".to_owned()), true)] {
        let mut pod = pod(&["a"], vec![], &["a"]);
        let container = ContainerStatus { container_id, name: "main".into(), ..ContainerStatus::default() };
        pod.status = Some(PodStatus { container_statuses: Some(vec![container]), ..PodStatus::default() });
        assert_eq!(keys(&populate(&pod, &world, &Pending::new(), None)).len(), usize::from(uses));
    }
}

#[test]
fn a_claim_used_twice_is_published_once() {
    let world = world(vec![bound("a")]);
    let mut pod = pod(&["a", "a"], vec![], &["a", "again"]);
    let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
    volumes[0].persistent_volume_claim.as_mut().unwrap().read_only = Some(true);
    volumes[1].name = "again".into();
    let population = populate(&pod, &world, &Pending::new(), None);
    assert_eq!(population.expected.len(), 1);
    assert_eq!(population.expected[0].mount.names, ["a", "again"]);
    assert!(!population.expected[0].mount.read_only, "one of the two may write");
}

#[test]
fn volumes_of_the_node_and_volumes_that_it_lacks() {
    let volume = |name: &str| Volume { name: name.into(), ..Volume::default() };
    let empty = Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..volume("empty") };
    let huge = EmptyDirVolumeSource { medium: Some("HugePages".into()), ..EmptyDirVolumeSource::default() };
    let huge = Volume { empty_dir: Some(huge), ..volume("huge") };
    let host = HostPathVolumeSource { path: "/etc".into(), type_: Some("Directory".into()) };
    let host = Volume { host_path: Some(host), ..volume("host") };
    let secret = Volume { secret: Some(SecretVolumeSource::default()), ..volume("secret") };
    let inline = CSIVolumeSource {
        driver: "d".into(),
        read_only: Some(true),
        node_publish_secret_ref: Some(LocalObjectReference { name: "s".into() }),
        ..CSIVolumeSource::default()
    };
    let inline = Volume { csi: Some(inline), ..volume("inline") };
    let other = volume("other");
    let names = ["empty", "huge", "host", "secret", "inline", "other"];
    let pod = pod(&[], vec![empty, huge, host, secret, inline, other], &names);
    let population = populate(&pod, &World::default(), &Pending::new(), None);
    let of = |name: &str| population.expected.iter().find(|expected| expected.mount.names == [name]).unwrap();
    let local = |plugin, name: &str| VolumeKey::Local { plugin, pod: uid_of(&pod), name: name.into() };
    assert_eq!(of("empty").key, local(Plugin::EmptyDir, "empty"));
    let path = HostPath { path: "/etc".into(), kind: HostPathKind::Directory };
    assert_eq!(of("host").spec, VolumeSpec::HostPath(path));
    assert_eq!(of("secret").key, local(Plugin::Secret, "secret"));
    let inline = of("inline");
    assert_eq!(inline.key, VolumeKey::inline("d", &uid_of(&pod), "inline"));
    assert!(inline.mount.read_only);
    let VolumeSpec::Csi(volume) = &inline.spec else { panic!("{:?}", inline.spec) };
    assert_eq!(volume.publish_secret, Some(ObjectKey::new("default", "s")));
    let refused: Vec<&str> = population.problems.iter().map(|problem| problem.volume.as_str()).collect();
    assert_eq!(refused, ["huge", "other"]);
    assert!(population.problems.iter().all(|problem| !problem.waiting));
}

#[test]
fn an_ephemeral_claim_must_be_the_pods_own() {
    let (mut claim, mut volume) = bound("p-v");
    let ephemeral = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    let pod = pod(&[], vec![serde_json::from_value(ephemeral).unwrap()], &["v"]);
    volume.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().name = Some("p-v".into());
    let foreign = world(vec![(claim.clone(), volume.clone())]);
    assert!(!problem(&populate(&pod, &foreign, &Pending::new(), None)).0, "it will never be the pod's");
    assert!(problem(&populate(&pod, &World::default(), &Pending::new(), None)).0, "it is about to be made");
    claim.metadata.owner_references = Some(vec![OwnerReference {
        controller: Some(true),
        uid: pod.metadata.uid.clone().unwrap(),
        ..OwnerReference::default()
    }]);
    let population = populate(&pod, &world(vec![(claim, volume)]), &Pending::new(), None);
    assert_eq!(keys(&population), [VolumeKey::csi(DRIVER, "handle-pv-p-v")]);
}

#[test]
fn a_claim_may_be_a_path_of_the_node() {
    let rows = [
        (json!({"hostPath": {"path": "/x", "type": "File"}}), Some(HostPathKind::File)),
        (json!({"local": {"path": "/x"}}), Some(HostPathKind::Directory)),
        (json!({"nfs": {"path": "/x", "server": "s"}}), None),
    ];
    for (source, kind) in rows {
        let (claim, mut volume) = bound("a");
        let before = volume.spec.take().unwrap();
        let mut spec = serde_json::to_value(&before).unwrap();
        spec.as_object_mut().unwrap().remove("csi");
        spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        volume.spec = serde_json::from_value(spec).unwrap();
        let population =
            populate(&pod(&["a"], vec![], &["a"]), &world(vec![(claim, volume)]), &Pending::new(), None);
        let specs: Vec<&VolumeSpec> = population.expected.iter().map(|expected| &expected.spec).collect();
        match kind {
            Some(kind) => assert_eq!(specs, [&VolumeSpec::HostPath(HostPath { path: "/x".into(), kind })]),
            None => assert!(!problem(&population).0, "{:?}", population.problems),
        }
    }
}

#[test]
fn the_pod_and_not_the_pv_makes_a_volume_read_only() {
    // (the pod's use of the claim, the PV, what is published)
    for (claim, volume, expected) in [(false, false, false), (true, false, true), (false, true, false)] {
        let (bound_claim, mut bound_volume) = bound("a");
        bound_volume.spec.as_mut().unwrap().csi.as_mut().unwrap().read_only = Some(volume);
        let mut pod = pod(&["a"], vec![], &["a"]);
        let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
        volumes[0].persistent_volume_claim.as_mut().unwrap().read_only = Some(claim);
        let population = populate(&pod, &world(vec![(bound_claim, bound_volume)]), &Pending::new(), None);
        assert_eq!(population.expected[0].mount.read_only, expected, "claim {claim}, volume {volume}");
    }
}

#[test]
fn a_group_comes_with_its_policy() {
    for (policy, on_root_mismatch) in [(None, false), (Some("Always"), false), (Some("OnRootMismatch"), true)]
    {
        let mut pod = pod(&["a"], vec![], &["a"]);
        pod.spec.as_mut().unwrap().security_context = Some(PodSecurityContext {
            fs_group: Some(7),
            fs_group_change_policy: policy.map(str::to_owned),
            ..PodSecurityContext::default()
        });
        let population = populate(&pod, &world(vec![bound("a")]), &Pending::new(), None);
        assert_eq!(population.expected[0].mount.fs_group, Some(FsGroup { gid: 7, on_root_mismatch }));
    }
}

#[test]
fn the_mode_must_fit_its_use() {
    let (claim, mut volume) = bound("a");
    volume.spec.as_mut().unwrap().volume_mode = Some("Block".into());
    let block = world(vec![(claim, volume)]);
    let mounts = pod(&["a"], vec![], &["a"]);
    assert_eq!(
        problem(&populate(&mounts, &block, &Pending::new(), None)),
        (false, "volume a has volumeMode Block, but is specified in volumeMounts")
    );
    let mut devices = pod(&["a"], vec![], &[]);
    devices.spec.as_mut().unwrap().containers[0].volume_devices =
        Some(vec![VolumeDevice { name: "a".into(), device_path: "/dev/a".into() }]);
    assert_eq!(
        problem(&populate(&devices, &world(vec![bound("a")]), &Pending::new(), None)),
        (false, "volume a has volumeMode Filesystem, but is specified in volumeDevices")
    );
}
