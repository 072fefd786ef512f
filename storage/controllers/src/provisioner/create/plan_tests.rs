//! Claims and what is asked of the driver for them, and what its answers make.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use claimcheck_csi::v1::{
    CreateVolumeRequest, Topology, Volume,
    controller_service_capability::rpc::Type as Rpc,
    plugin_capability::service::Type as Service,
    volume_capability::{AccessType, access_mode::Mode},
};
use claimcheck_informer::{
    Kind, World,
    testing::{self, DRIVER},
};
use claimcheck_model::{
    ObjectKey, PROVISIONED_BY, PROVISIONER_FINALIZER, RESTORE_PROTECTION, SELECTED_NODE, STORAGE_PROVISIONER,
    snapshot::{VolumeSnapshotContentStatus, VolumeSnapshotStatus},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{
            PersistentVolume, PersistentVolumeClaim, TopologySelectorLabelRequirement, TopologySelectorTerm,
            TypedLocalObjectReference,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use serde_json::json;

use super::{
    plan::{Action, Known, Next, SLOW, after_failure, plan, plan_known},
    request::{Job, Refusal},
};
use crate::{
    Provisioning,
    provisioner::{Incapable, Settings},
    rpc::{Certainty, DriverInfo},
};

const ZONE: &str = "test/zone";

/// Of a driver that creates volumes, with these capabilities in addition.
fn settings(services: &[Service]) -> Settings {
    capable(services, &[])
}

fn capable(services: &[Service], rpcs: &[Rpc]) -> Settings {
    let services = [&[Service::ControllerService][..], services].concat();
    let rpcs = [&[Rpc::CreateDeleteVolume][..], rpcs].concat();
    Settings {
        driver: DriverInfo::new(DRIVER, &services, &rpcs),
        identity: "me".into(),
        ..Settings::default()
    }
}

/// A claim that asks the test driver.
fn asking() -> PersistentVolumeClaim {
    let mut claim = testing::claim("data", "fast", "64Mi");
    testing::annotate(&mut claim.metadata, STORAGE_PROVISIONER, DRIVER);
    claim
}

fn selecting(node: &str) -> PersistentVolumeClaim {
    let mut claim = asking();
    testing::annotate(&mut claim.metadata, SELECTED_NODE, node);
    claim
}

fn with_parameters(parameters: &[(&str, &str)]) -> StorageClass {
    let pairs = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    StorageClass { parameters: Some(pairs.collect()), ..testing::class("fast", DRIVER) }
}

/// A world with this class.
fn world(class: StorageClass) -> World {
    let mut world = World::default();
    world.apply(class);
    world
}

/// Nodes a1, a2 in zone a and b1 in zone b, all with the driver.
fn zones(class: StorageClass) -> World {
    let mut world = world(class);
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let mut node = testing::node(name);
        node.metadata.labels.get_or_insert_default().insert(ZONE.into(), zone.into());
        world.apply(node);
        let mut csi_node = testing::csi_node(name, None);
        csi_node.spec.drivers[0].topology_keys = Some(vec![ZONE.into()]);
        world.apply(csi_node);
    }
    world
}

fn planned(claim: PersistentVolumeClaim, world: &World, settings: &Settings) -> Option<Action> {
    plan(&Arc::new(claim), world, settings)
}

fn job(claim: PersistentVolumeClaim, world: &World, settings: &Settings) -> Job {
    match planned(claim, world, settings) {
        Some(Action::Provision(job)) => *job,
        other => panic!("expected to provision, not {other:?}"),
    }
}

fn refusal(claim: PersistentVolumeClaim, world: &World) -> Refusal {
    match planned(claim, world, &settings(&[])) {
        Some(Action::Refuse { refusal, .. }) => refusal,
        other => panic!("expected a refusal, not {other:?}"),
    }
}

#[test]
fn the_responsible_provisioner_acts() {
    let immediate = || world(testing::class("fast", DRIVER));
    let late = || world(testing::wait_for_first_consumer_class("fast", DRIVER));
    let mut foreign = asking();
    testing::annotate(&mut foreign.metadata, STORAGE_PROVISIONER, "other.driver");
    let mut beta = testing::claim("data", "fast", "1Gi");
    testing::annotate(&mut beta.metadata, claimcheck_model::STORAGE_PROVISIONER_BETA, DRIVER);
    let mut taken = asking();
    taken.spec.get_or_insert_default().volume_name = Some("pv".into());
    let mut done = immediate();
    done.apply(testing::volume("pvc-uid-data", "fast", "1Gi"));
    let mut annotated = asking();
    annotated.spec.get_or_insert_default().storage_class_name = None;
    testing::annotate(&mut annotated.metadata, "volume.beta.kubernetes.io/storage-class", "fast");
    for (what, claim, world, expected) in [
        ("immediate", asking(), immediate(), true),
        ("beta annotation", beta, immediate(), true),
        ("class in the beta annotation", annotated, immediate(), true),
        ("not asked yet", testing::claim("data", "fast", "1Gi"), immediate(), false),
        ("other driver", foreign, immediate(), false),
        ("class of another driver", asking(), world(testing::class("fast", "other")), false),
        ("has a volume", taken, immediate(), false),
        ("volume made, not bound yet", asking(), done, false),
        ("late, no node yet", asking(), late(), false),
        ("late, node given up", selecting(""), late(), false),
        ("late, node selected", selecting("a1"), late(), true),
    ] {
        assert_eq!(planned(claim, &world, &settings(&[])).is_some(), expected, "{what}");
    }
}

#[test]
fn the_request_matches_the_claim_and_the_class() {
    let mut class = with_parameters(&[
        ("kind", "image"),
        ("csi.storage.k8s.io/fstype", "xfs"),
        ("csi.storage.k8s.io/provisioner-secret-name", "key"),
        ("csi.storage.k8s.io/provisioner-secret-namespace", "${pvc.namespace}"),
    ]);
    class.mount_options = Some(vec!["noatime".into()]);
    let job = job(asking(), &world(class), &settings(&[]));
    let CreateVolumeRequest { name, capacity_range, volume_capabilities, parameters, secrets, .. } =
        job.request.clone();
    assert_eq!(name, "pvc-uid-data");
    assert_eq!(capacity_range.unwrap().required_bytes, 64 << 20);
    assert_eq!(parameters, BTreeMap::from([("kind".to_owned(), "image".to_owned())]));
    assert_eq!(secrets, BTreeMap::new(), "the planner sees no secret");
    assert_eq!(job.secret.clone().unwrap().namespace.as_deref(), Some("default"));
    assert_eq!(volume_capabilities.len(), 1);
    assert_eq!(volume_capabilities[0].access_mode.unwrap().mode(), Mode::SingleNodeWriter);
    let Some(AccessType::Mount(mount)) = &volume_capabilities[0].access_type else { panic!("not a mount") };
    assert_eq!((mount.fs_type.as_str(), mount.mount_flags.as_slice()), ("xfs", &["noatime".to_owned()][..]));
}

#[test]
fn block_volumes_and_extra_metadata() {
    let mut claim = asking();
    let spec = claim.spec.get_or_insert_default();
    spec.volume_mode = Some("Block".into());
    spec.access_modes = Some(vec!["ReadWriteOnce".into(), "ReadWriteMany".into()]);
    let options = Provisioning { extra_create_metadata: true, ..Provisioning::default() };
    let settings = Settings { options, ..capable(&[], &[Rpc::SingleNodeMultiWriter]) };
    let job = job(claim, &world(with_parameters(&[("fsType", "ext4")])), &settings);
    let modes: Vec<Mode> = job
        .request
        .volume_capabilities
        .iter()
        .map(|capability| capability.access_mode.unwrap().mode())
        .collect();
    assert_eq!(modes, [Mode::SingleNodeMultiWriter, Mode::MultiNodeMultiWriter]);
    assert!(matches!(job.request.volume_capabilities[0].access_type, Some(AccessType::Block(_))));
    let parameters = serde_json::to_value(&job.request.parameters).unwrap();
    assert_eq!(
        parameters,
        json!({
            "csi.storage.k8s.io/pv/name": "pvc-uid-data",
            "csi.storage.k8s.io/pvc/name": "data",
            "csi.storage.k8s.io/pvc/namespace": "default",
            "fsType": "ext4",
        })
    );
    let volume = job.finish(Volume { volume_id: "h".into(), ..Volume::default() }).unwrap();
    assert_eq!(volume.spec.unwrap().csi.unwrap().fs_type, None, "a device has no file system");
}

#[test]
fn claims_that_cannot_be_served_are_refused() {
    let plain = || world(testing::class("fast", DRIVER));
    let change = |change: fn(&mut k8s_openapi::api::core::v1::PersistentVolumeClaimSpec)| {
        let mut claim = asking();
        change(claim.spec.get_or_insert_default());
        claim
    };
    let reserved = ("csi.storage.k8s.io/typo", "x");
    let two = [("fsType", "ext4"), ("csi.storage.k8s.io/fstype", "xfs")];
    let selector = change(|spec| spec.selector = Some(LabelSelector::default()));
    let sizeless = change(|spec| spec.resources = None);
    let modes = change(|spec| spec.access_modes = Some(vec!["Sometimes".into()]));
    let group = change(|spec| {
        spec.data_source = Some(TypedLocalObjectReference {
            api_group: Some("example.com".into()),
            kind: "VolumeSnapshot".into(),
            name: "s".into(),
        });
    });
    let modified = change(|spec| spec.volume_attributes_class_name = Some("silver".into()));
    assert_eq!(refusal(asking(), &World::default()), Refusal::NoClass("fast".into()));
    assert_eq!(refusal(sizeless, &plain()), Refusal::Size(String::new()));
    for (claim, class, text) in [
        (selector, testing::class("fast", DRIVER), "claim Selector is not supported"),
        (modes, testing::class("fast", DRIVER), "unsupported AccessMode combination: [Sometimes]"),
        (
            group,
            testing::class("fast", DRIVER),
            "the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, Got \
             example.com",
        ),
        (
            modified,
            testing::class("fast", DRIVER),
            "CSI driver does not support VolumeAttributesClass: controller MODIFY_VOLUME capability is not \
             reported",
        ),
        (
            asking(),
            with_parameters(&two),
            "fstype specified in parameters with both \"fstype\" and \"csi.storage.k8s.io/fstype\" keys",
        ),
        (
            asking(),
            with_parameters(&[reserved]),
            "failed to strip CSI Parameters of prefixed keys: found unknown parameter key \
             \"csi.storage.k8s.io/typo\" with reserved namespace csi.storage.k8s.io/",
        ),
    ] {
        assert_eq!(refusal(claim, &world(class)).to_string(), text);
    }
}

/// A claim that is to be created from something.
fn created_from(kind: &str, source: &str) -> PersistentVolumeClaim {
    let mut claim = asking();
    claim.metadata.name = Some("copy".into());
    claim.spec.get_or_insert_default().data_source = Some(TypedLocalObjectReference {
        api_group: (kind == "VolumeSnapshot").then(|| claimcheck_model::snapshot::GROUP.to_owned()),
        kind: kind.into(),
        name: source.into(),
    });
    claim
}

#[test]
fn an_unusable_source_is_reported_with_the_text_of_upstream() {
    let settings = capable(&[], &[Rpc::CloneVolume, Rpc::CreateDeleteSnapshot]);
    let text = |kind: &str, world: &World, settings: &Settings| match planned(
        created_from(kind, "source"),
        world,
        settings,
    ) {
        Some(Action::Refuse { refusal, .. }) => refusal.to_string(),
        other => panic!("expected a refusal, not {other:?}"),
    };
    let mut sources = world(testing::class("fast", DRIVER));
    for (kind, lacks, missing) in [
        (
            "PersistentVolumeClaim",
            "CSI driver does not support clone operations: controller CLONE_VOLUME capability is not reported",
            "error getting handle for DataSource Type PersistentVolumeClaim by Name source: error getting PVC source \
             (namespace \"default\") from api server: persistentvolumeclaim \"source\" not found",
        ),
        (
            "VolumeSnapshot",
            "CSI driver does not support snapshot restore: controller CREATE_DELETE_SNAPSHOT capability is not \
             reported",
            "error getting handle for DataSource Type VolumeSnapshot by Name source: error getting snapshot source \
             from api server: volumesnapshots.snapshot.storage.k8s.io \"source\" not found",
        ),
    ] {
        assert_eq!(text(kind, &sources, &capable(&[], &[])), lacks);
        assert_eq!(text(kind, &sources, &settings), missing);
    }
    for (phase, size, expected) in [
        (
            "Pending",
            "128Mi",
            "the PVC DataSource source must have a status of Bound.  Got {Pending [] map[] [] map[] map[] <nil> \
             <nil>}",
        ),
        (
            "Bound",
            "128Mi",
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested \
             67108864 but source is 134217728",
        ),
        ("Bound", "64Mi", "volume name is empty in source PVC source"),
    ] {
        let mut source = testing::claim("source", "fast", size);
        source.status.get_or_insert_default().phase = Some(phase.into());
        sources.apply(source);
        let handle = "error getting handle for DataSource Type PersistentVolumeClaim by Name source: ";
        assert_eq!(text("PersistentVolumeClaim", &sources, &settings), format!("{handle}{expected}"));
    }
}

#[test]
fn a_snapshot_gets_the_finalizer_before_the_call() {
    let settings = capable(&[], &[Rpc::CreateDeleteSnapshot]);
    let snapshot = |finalizers: &[&str]| {
        let mut snapshot = testing::snapshot("s", "data", "class");
        snapshot.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        snapshot.status = Some(VolumeSnapshotStatus {
            bound_volume_snapshot_content_name: Some("content".into()),
            ready_to_use: Some(true),
            ..VolumeSnapshotStatus::default()
        });
        snapshot
    };
    let going = |finalizers: &[&str]| testing::deleting(snapshot(&[]), finalizers);
    for (what, snapshot, held) in [
        ("without the finalizer", snapshot(&["other"]), false),
        ("with it", snapshot(&["other", RESTORE_PROTECTION]), true),
        // The API server accepts no new finalizers on an object that is being deleted.
        ("being deleted", going(&["other"]), true),
    ] {
        let mut world = world(testing::class("fast", DRIVER));
        let mut content = testing::snapshot_content("content", &snapshot, "Delete");
        content.status = Some(VolumeSnapshotContentStatus {
            snapshot_handle: Some("handle".into()),
            ..VolumeSnapshotContentStatus::default()
        });
        world.apply(content);
        world.apply(snapshot);
        match planned(created_from("VolumeSnapshot", "s"), &world, &settings) {
            Some(Action::Hold { source, job }) => {
                assert!(!held, "{what}");
                assert_eq!(source.finalizer(), RESTORE_PROTECTION, "{what}");
                assert!(job.request.volume_content_source.is_some(), "{what}");
            }
            Some(Action::Provision(_)) => assert!(held, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn a_volume_of_another_mode_than_its_snapshots_source_is_refused_if_that_is_prevented() {
    let mut snapshot = testing::snapshot("s", "data", "class");
    snapshot.metadata.finalizers = Some(vec![RESTORE_PROTECTION.to_owned()]);
    snapshot.status = Some(VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: Some("content".into()),
        ready_to_use: Some(true),
        ..VolumeSnapshotStatus::default()
    });
    let mut content = testing::snapshot_content("content", &snapshot, "Delete");
    content.spec.source_volume_mode = Some("Block".into());
    content.status = Some(VolumeSnapshotContentStatus {
        snapshot_handle: Some("handle".into()),
        ..VolumeSnapshotContentStatus::default()
    });
    let mut world = world(testing::class("fast", DRIVER));
    world.apply(content);
    world.apply(snapshot);
    for prevent_mode_conversion in [true, false] {
        let settings = capable(&[], &[Rpc::CreateDeleteSnapshot]);
        let options = Provisioning { prevent_mode_conversion, ..settings.options };
        let action = planned(created_from("VolumeSnapshot", "s"), &world, &Settings { options, ..settings });
        match action {
            Some(Action::Refuse { .. }) => assert!(prevent_mode_conversion),
            Some(Action::Provision(_)) => assert!(!prevent_mode_conversion),
            other => panic!("{prevent_mode_conversion}: {other:?}"),
        }
    }
}

#[test]
fn a_driver_that_creates_no_volumes_is_not_called() {
    let world = world(testing::class("fast", DRIVER));
    for (driver, reason) in [
        (DriverInfo::new(DRIVER, &[], &[Rpc::CreateDeleteVolume]), Incapable::NoController),
        (DriverInfo::new(DRIVER, &[Service::ControllerService], &[]), Incapable::NoVolumes),
    ] {
        let settings = Settings { driver, ..Settings::default() };
        let Some(Action::Refuse { refusal, .. }) = planned(asking(), &world, &settings) else {
            panic!("expected a refusal")
        };
        assert_eq!(refusal, Refusal::Incapable(reason));
    }
}

/// With the option alone, whatever the driver's capabilities.
#[test]
fn volumes_are_read_only_if_that_is_configured() {
    let world = world(testing::class("fast", DRIVER));
    for (modes, controller_publish_readonly, expected) in [
        (&["ReadOnlyMany"][..], false, None),
        (&["ReadOnlyMany"], true, Some(true)),
        (&["ReadOnlyMany", "ReadWriteMany"], true, None),
        (&["ReadWriteOnce"], true, None),
    ] {
        for rpcs in [&[][..], &[Rpc::PublishReadonly][..]] {
            let options = Provisioning { controller_publish_readonly, ..Provisioning::default() };
            let settings = Settings { options, ..capable(&[], rpcs) };
            let mut claim = asking();
            let modes = modes.iter().map(ToString::to_string);
            claim.spec.get_or_insert_default().access_modes = Some(modes.collect());
            let volume = job(claim, &world, &settings).finish(Volume::default()).unwrap();
            assert_eq!(volume.spec.unwrap().csi.unwrap().read_only, expected, "{settings:?}");
        }
    }
}

/// The object that a stock provisioner made of the same answer (recordings/writes).
#[test]
fn the_volume_is_the_stock_provisioners() {
    let mut claim = asking();
    claim.metadata.resource_version = Some("387".into());
    let job = job(
        claim,
        &zones(testing::class("fast", DRIVER)),
        &settings(&[Service::VolumeAccessibilityConstraints]),
    );
    let answer = Volume {
        capacity_bytes: 64 << 20,
        volume_id: "4205bd0a".into(),
        volume_context: BTreeMap::from([("kind".into(), "directory".into())]),
        accessible_topology: vec![Topology { segments: BTreeMap::from([(ZONE.into(), "a".into())]) }],
        ..Volume::default()
    };
    let volume: PersistentVolume = job.finish(answer).unwrap();
    let expected = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "pvc-uid-data",
            "annotations": {
                PROVISIONED_BY: DRIVER,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
            "finalizers": [PROVISIONER_FINALIZER],
        },
        "spec": {
            "capacity": {"storage": "64Mi"},
            "csi": {
                "driver": DRIVER,
                "volumeHandle": "4205bd0a",
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "me", "kind": "directory"},
            },
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": "data",
                "uid": "uid-data",
                "apiVersion": "v1",
                "resourceVersion": "387",
            },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]},
            ]}},
        },
    });
    assert_eq!(serde_json::to_value(&volume).unwrap(), expected);
}

#[test]
fn the_capacity_is_the_drivers_unless_it_does_not_know() {
    let job = job(asking(), &world(testing::class("fast", DRIVER)), &settings(&[]));
    let capacity = |bytes| {
        let volume = job.finish(Volume { capacity_bytes: bytes, ..Volume::default() });
        volume.map(|volume| volume.spec.unwrap().capacity.unwrap()["storage"].0.clone())
    };
    assert_eq!(capacity(0).unwrap(), "64Mi");
    assert_eq!(capacity(1 << 30).unwrap(), "1Gi");
    assert!(capacity(1 << 20).is_err());
}

/// The zones of a requirement: requisite, preferred.
fn zones_asked(
    claim: PersistentVolumeClaim,
    class: StorageClass,
    strict: bool,
) -> Result<(String, String), String> {
    let settings = Settings {
        options: Provisioning { strict_topology: strict, ..Provisioning::default() },
        ..settings(&[Service::VolumeAccessibilityConstraints])
    };
    let names =
        |topologies: &[Topology]| topologies.iter().map(|t| t.segments[ZONE].clone()).collect::<String>();
    match planned(claim, &zones(class), &settings) {
        Some(Action::Provision(job)) => {
            let asked = job.request.accessibility_requirements.unwrap();
            Ok((names(&asked.requisite), names(&asked.preferred)))
        }
        Some(Action::Refuse { refusal, .. }) => Err(format!("refused: {refusal}")),
        Some(Action::Reschedule { refusal, .. }) => Err(format!("rescheduled: {refusal}")),
        other @ (Some(Action::Hold { .. } | Action::Own { .. } | Action::LeaveToPopulator(_)) | None) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn topology_of_the_request() {
    let class = || testing::class("fast", DRIVER);
    let only = |zone: &str| {
        let requirement = TopologySelectorLabelRequirement { key: ZONE.into(), values: vec![zone.into()] };
        let term = TopologySelectorTerm { match_label_expressions: Some(vec![requirement]) };
        StorageClass { allowed_topologies: Some(vec![term]), ..class() }
    };
    let asked = |requisite: &str, preferred: &str| Ok((requisite.to_owned(), preferred.to_owned()));
    assert_eq!(zones_asked(selecting("b1"), class(), false), asked("ab", "ba"));
    assert_eq!(zones_asked(selecting("a2"), class(), false), asked("ab", "ab"));
    assert_eq!(zones_asked(selecting("b1"), class(), true), asked("b", "b"));
    assert_eq!(zones_asked(asking(), only("b"), false), asked("b", "b"));
    assert_eq!(zones_asked(selecting("b1"), only("b"), true), asked("b", "b"));
    for (strict, reason) in [
        (false, "topology [{test/zone a}] from selected node \"a1\" is not in requisite: [[{test/zone b}]]"),
        (
            true,
            "selected node '\"a1\"' topology '[{test/zone a}]' is not in allowed topologies: [[{test/zone b}]]",
        ),
    ] {
        let refused = zones_asked(selecting("a1"), only("b"), strict).unwrap_err();
        assert_eq!(refused, format!("refused: error generating accessibility requirements: {reason}"));
    }
    let deleted = zones_asked(selecting("c1"), class(), false).unwrap_err();
    let expected = "rescheduled: failed to get selected CSINode c1: csinode.storage.k8s.io \"c1\" not found";
    assert_eq!(deleted, expected);
}

/// Claims of a StatefulSet's pods begin at one zone after the other, those of one pod at the same.
#[test]
fn claims_of_a_set_are_spread() {
    let first = |name: &str| {
        let mut claim = asking();
        claim.metadata.name = Some(name.into());
        zones_asked(claim, testing::class("fast", DRIVER), false).unwrap().1[..1].to_owned()
    };
    assert_ne!(first("data-web-0"), first("data-web-1"));
    assert_eq!(first("data-web-0"), first("data-web-2"));
    assert_eq!(first("data-web-1"), first("logs-web-1"));
}

#[test]
fn a_driver_with_topology_waits_for_a_node_and_one_without_does_not_ask() {
    let empty = world(testing::class("fast", DRIVER));
    let with = settings(&[Service::VolumeAccessibilityConstraints]);
    let mut nodeless = zones(testing::class("fast", DRIVER));
    for name in ["a1", "a2", "b1"] {
        nodeless.forget(Kind::Node, &ObjectKey::cluster(name));
    }
    for (world, claim, reason) in [
        (&empty, asking(), "no available topology found"),
        (&nodeless, asking(), "topologyKeys [test/zone] were not found on any nodes"),
        (
            &nodeless,
            selecting("a1"),
            "topology labels from selected node map[] does not match topology keys from CSINode [test/zone]",
        ),
    ] {
        let Some(Action::Refuse { refusal, .. } | Action::Reschedule { refusal, .. }) =
            planned(claim, world, &with)
        else {
            panic!("expected a refusal")
        };
        let expected = format!("error generating accessibility requirements: {reason}");
        assert_eq!(refusal.to_string(), expected);
    }
    assert_eq!(job(asking(), &empty, &settings(&[])).request.accessibility_requirements, None);
}

#[test]
fn what_follows_a_failure() {
    for (certainty, may_reschedule, next) in [
        (Certainty::Unknown, true, Next::RepeatTillCertain),
        (Certainty::Unknown, false, Next::RepeatTillCertain),
        (Certainty::Exhausted, true, Next::Reschedule),
        (Certainty::Exhausted, false, Next::Retry),
        (Certainty::Final, true, Next::Retry),
        (Certainty::Infeasible, true, Next::RetrySlowly),
    ] {
        assert_eq!(after_failure(certainty, may_reschedule), next, "{certainty:?} {may_reschedule}");
    }
    let late = zones(testing::wait_for_first_consumer_class("fast", DRIVER));
    assert!(
        job(selecting("a1"), &late, &settings(&[Service::VolumeAccessibilityConstraints])).may_reschedule
    );
    assert!(!job(selecting("a1"), &late, &settings(&[])).may_reschedule, "the next call would be the same");
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

#[test]
fn a_call_in_doubt_is_repeated_whatever_has_changed() {
    type Change = fn(&mut World);
    let settings = settings(&[Service::VolumeAccessibilityConstraints]);
    let late = || zones(testing::wait_for_first_consumer_class("fast", DRIVER));
    let first = job(selecting("a1"), &late(), &settings);
    let known = Known::InDoubt(Box::new(first.clone()));
    let planned = |claim: Option<PersistentVolumeClaim>, change: Change| {
        let mut world = late();
        change(&mut world);
        plan_known(claim.map(Arc::new).as_ref(), Some(&known), &world, &settings, now())
    };
    let mut edited = selecting("a1");
    testing::annotate(&mut edited.metadata, "note", "edited");
    let mut foreign = selecting("a1");
    testing::annotate(&mut foreign.metadata, STORAGE_PROVISIONER, "other.driver");
    let table: [(&str, Option<PersistentVolumeClaim>, Change); 8] = [
        ("nothing", Some(selecting("a1")), |_| {}),
        ("the node is gone", Some(selecting("a1")), |world| {
            world.forget(Kind::Node, &ObjectKey::cluster("a1"));
        }),
        ("the driver is gone from the node", Some(selecting("a1")), |world| {
            world.forget(Kind::CsiNode, &ObjectKey::cluster("a1"));
        }),
        ("another zone is gone", Some(selecting("a1")), |world| {
            world.forget(Kind::Node, &ObjectKey::cluster("b1"));
        }),
        ("the class is gone", Some(edited), |world| {
            world.forget(Kind::Class, &ObjectKey::cluster("fast"));
        }),
        ("the class has other parameters", Some(foreign), |world| {
            world.apply(with_parameters(&[("kind", "image")]));
        }),
        ("the node was given up", Some(selecting("")), |_| {}),
        ("the claim is gone", None, |_| {}),
    ];
    for (what, claim, change) in table {
        let (Some(Action::Provision(again)), None) = planned(claim.clone(), change) else {
            panic!("expected to provision: {what}")
        };
        assert_eq!(again.request, first.request, "{what}");
        assert_eq!(*again.claim, claim.unwrap_or_else(|| selecting("a1")), "{what}");
    }
    let mut taken = selecting("a1");
    taken.spec.get_or_insert_default().volume_name = Some("pv".into());
    assert!(planned(Some(taken), |_| {}).0.is_none(), "the claim got another volume");
    let created: Change = |world| drop(world.apply(testing::volume("pvc-uid-data", "fast", "1Gi")));
    assert!(planned(Some(selecting("a1")), created).0.is_none(), "the object of the volume exists");
}

#[test]
fn an_infeasible_call_is_repeated_slowly_unless_the_claim_or_class_changes() {
    let class = || testing::class("fast", DRIVER);
    let first = job(asking(), &world(class()), &settings(&[]));
    let known = Known::Infeasible { job: Box::new(first), until: now() + SLOW };
    let mut class_again = class();
    class_again.metadata.uid = Some("another".into());
    let mut annotated = asking();
    testing::annotate(&mut annotated.metadata, "note", "edited");
    let mut attributed = asking();
    attributed.spec.get_or_insert_default().volume_attributes_class_name = Some(String::new());
    let minute = Duration::from_secs(60);
    for (what, claim, class, later, expected) in [
        ("at once", asking(), Some(class()), Duration::ZERO, Some(SLOW)),
        ("a minute later", asking(), Some(class()), minute, Some(SLOW - minute)),
        ("a note on the claim", annotated, Some(class()), minute, Some(SLOW - minute)),
        ("five minutes later", asking(), Some(class()), SLOW, None),
        ("another class of the name", asking(), Some(class_again), minute, None),
        ("no class", asking(), None, minute, None),
        ("another claim", attributed, Some(class()), minute, None),
        ("another node", selecting("a1"), Some(class()), minute, None),
    ] {
        let world = class.map_or_else(World::default, world);
        let claim = Arc::new(claim);
        let (action, again) = plan_known(Some(&claim), Some(&known), &world, &settings(&[]), now() + later);
        assert_eq!((action.is_none(), again), (expected.is_some(), expected), "{what}");
    }
    let (action, again) = plan_known(None, Some(&known), &world(class()), &settings(&[]), now());
    assert!(action.is_none() && again.is_none(), "the claim is gone");
}
