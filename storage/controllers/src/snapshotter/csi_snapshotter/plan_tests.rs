//! The steps of contents of snapshots and of groups, one table for both.

use claimcheck_csi::v1::controller_service_capability::rpc::Type as Rpc;
use claimcheck_informer::{
    World,
    testing::{self, DRIVER, deleting},
};
use claimcheck_model::{
    SNAPSHOT_GROUP, SNAPSHOT_MANAGED_BY,
    group_snapshot::{
        GroupSnapshotHandles, VolumeGroupSnapshotContent, VolumeGroupSnapshotContentStatus,
        VolumeSnapshotInfo,
    },
    snapshot::{VolumeSnapshotContent, VolumeSnapshotContentStatus},
};
use jiff::{SignedDuration, Timestamp};

use super::plan::{Action, plan};
use crate::{
    Naming,
    rpc::DriverInfo,
    snapshotter::{
        Settings,
        content::Content,
        requests::{Deletion, Found, Question},
        responses::Memory,
    },
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A kind of contents, with examples.
trait Example: Content {
    /// What the plan calls to create and to delete the example.
    const CALLS: [&'static str; 2];
    const NAMES: fn() -> Naming;
    /// The error if its class was deleted.
    const CLASSLESS: &'static str;

    /// A new one.
    fn new() -> Self;
    /// One of a snapshot or group that exists.
    fn existing() -> Self;
    /// With the driver's response in its status.
    fn responded(self, ready: bool) -> Self;
    fn new_members() -> Vec<VolumeSnapshotInfo>;
    fn set_retained(&mut self);
    fn set_unbound(&mut self);
    fn set_driver(&mut self, driver: &str);
    fn set_class(&mut self, class: &str);

    fn with(mut self, annotations: &[&str]) -> Self {
        annotations.iter().for_each(|key| testing::annotate(self.metadata_mut(), key, "yes"));
        self
    }

    fn deleted(self) -> Self {
        deleting(self, &[Self::PROTECTION])
    }
}

impl Example for VolumeSnapshotContent {
    const CALLS: [&'static str; 2] = ["create snapshot-uid-s of handle", "delete h with "];
    const NAMES: fn() -> Naming = Naming::snapshots;
    const CLASSLESS: &'static str = "failed to get input parameters to create snapshot for content c: \
                                     volumesnapshotclass.snapshot.storage.k8s.io \"gone\" not found";

    fn new() -> Self {
        testing::snapshot_content("c", &testing::snapshot("s", "data", "snap"), "Delete")
    }

    fn existing() -> Self {
        let mut content = Self::new();
        content.spec.source.volume_handle = None;
        content.spec.source.snapshot_handle = Some("h".into());
        content
    }

    fn responded(mut self, ready: bool) -> Self {
        self.status = Some(VolumeSnapshotContentStatus {
            snapshot_handle: Some("h".into()),
            ready_to_use: Some(ready),
            ..VolumeSnapshotContentStatus::default()
        });
        self
    }

    fn new_members() -> Vec<VolumeSnapshotInfo> {
        Vec::new()
    }

    fn set_retained(&mut self) {
        self.spec.deletion_policy = "Retain".into();
    }

    fn set_unbound(&mut self) {
        self.spec.volume_snapshot_ref.uid = None;
    }

    fn set_driver(&mut self, driver: &str) {
        self.spec.driver = driver.into();
    }

    fn set_class(&mut self, class: &str) {
        self.spec.volume_snapshot_class_name = Some(class.into());
    }
}

impl Example for VolumeGroupSnapshotContent {
    const CALLS: [&'static str; 2] = ["create groupsnapshot-uid-g of v1 v2", "delete h with s1 s2"];
    const NAMES: fn() -> Naming = Naming::group_snapshots;
    const CLASSLESS: &'static str = "failed to get input parameters to create group snapshot for group snapshot content c: \
         \"volumegroupsnapshotclass.groupsnapshot.storage.k8s.io \\\"gone\\\" not found\"";

    fn new() -> Self {
        let group = testing::group_snapshot("g", "groups");
        testing::group_snapshot_content("c", &group, &["v1", "v2"], "Delete")
    }

    fn existing() -> Self {
        let mut content = Self::new();
        content.spec.source.volume_handles = None;
        content.spec.source.group_snapshot_handles = Some(GroupSnapshotHandles {
            volume_group_snapshot_handle: "h".into(),
            volume_snapshot_handles: vec!["s1".into(), "s2".into()],
        });
        content
    }

    fn responded(mut self, ready: bool) -> Self {
        self.status = Some(VolumeGroupSnapshotContentStatus {
            volume_group_snapshot_handle: Some("h".into()),
            ready_to_use: Some(ready),
            volume_snapshot_info_list: Some(Self::new_members()),
            ..VolumeGroupSnapshotContentStatus::default()
        });
        self
    }

    fn new_members() -> Vec<VolumeSnapshotInfo> {
        let member = |volume: &str, snapshot: &str| VolumeSnapshotInfo {
            snapshot_handle: snapshot.into(),
            volume_handle: volume.into(),
            ..VolumeSnapshotInfo::default()
        };
        vec![member("v1", "s1"), member("v2", "s2")]
    }

    fn set_retained(&mut self) {
        self.spec.deletion_policy = "Retain".into();
    }

    fn set_unbound(&mut self) {
        self.spec.volume_group_snapshot_ref.uid = None;
    }

    fn set_driver(&mut self, driver: &str) {
        self.spec.driver = driver.into();
    }

    fn set_class(&mut self, class: &str) {
        self.spec.volume_group_snapshot_class_name = Some(class.into());
    }
}

fn settings<C: Example>(rpcs: &[Rpc]) -> Settings {
    let driver = DriverInfo::new(DRIVER, &[], rpcs);
    Settings { driver, extra_create_metadata: true, names: C::NAMES(), node: None }
}

/// The next action about a content `c`, with the classes of both kinds.
fn next<C: Example>(content: C, memory: &Memory, settings: &Settings) -> (Option<Action<C>>, Option<u128>) {
    let mut world = testing::world([
        testing::snapshot_class("snap", "Delete").into(),
        testing::group_snapshot_class("groups", "Delete").into(),
    ]);
    world.apply(content);
    let (action, again) = plan("c", &world, settings, memory, NOW);
    (action, again.map(|again| again.as_millis()))
}

/// The same in words.
fn step_of<C: Example>(content: C, memory: &Memory, rpcs: &[Rpc]) -> String {
    match next(content, memory, &settings::<C>(rpcs)) {
        (None, None) => "nothing".into(),
        (None, Some(again)) => format!("again in {again} ms"),
        (Some(action), _) => match action {
            Action::Announce { .. } => "announce".into(),
            Action::Ask { question, .. } => match question {
                Question::Create(request) => {
                    format!("create {} of {}", request.name, request.source_volume_id)
                }
                Question::CreateGroup(request) => {
                    format!("create {} of {}", request.name, request.source_volume_ids.join(" "))
                }
                Question::Get(request) => format!("get {}", request.snapshot_id),
                Question::GetGroup(request) => {
                    format!("get {} with {}", request.group_snapshot_id, request.snapshot_ids.join(" "))
                }
                Question::List(request) => format!("list {}", request.snapshot_id),
                Question::Trust(handle) => format!("trust {handle}"),
            },
            Action::Report { found, .. } => format!("report {}", found.ready),
            Action::Settle(_) => "settle".into(),
            Action::Delete { content, handle, .. } => match content.deletion(handle, [].into()) {
                Deletion::Snapshot(request) => format!("delete {} with ", request.snapshot_id),
                Deletion::Group(request) => {
                    format!("delete {} with {}", request.group_snapshot_id, request.snapshot_ids.join(" "))
                }
            },
            Action::Release(_) => "release".into(),
            Action::Fail { obstacle, .. } => obstacle.to_string(),
        },
    }
}

fn step<C: Example>(content: C, memory: &Memory) -> String {
    step_of(content, memory, &[Rpc::GetSnapshot])
}

fn responded(ready: bool, members: Vec<VolumeSnapshotInfo>) -> Memory {
    let found = Found { handle: "h".into(), ready, created: Some(1), size: 1, members, ..Found::default() };
    Memory { found: Some(found), ..Memory::default() }
}

fn is_created_and_deleted<C: Example>() {
    let nothing = &Memory::default();
    let found = |ready| responded(ready, C::new_members());
    let soon = NOW.saturating_add(SignedDuration::from_secs(1)).unwrap();
    let later = Memory { next: Some(soon), ..found(false) };
    let missing = &Memory { deleted: true, ..Memory::default() };
    let pending = || C::new().with(&[C::BEING_CREATED]);
    let deleted = || C::new().with(&[C::BEING_DELETED]);
    let both = || C::new().with(&[C::BEING_CREATED, C::BEING_DELETED]);
    let [create, delete] = C::CALLS;
    let mut retained = deleted().responded(true).deleted();
    retained.set_retained();
    let mut foreign = C::new();
    foreign.set_driver("other.driver");
    for (what, content, memory, expected) in [
        ("new", C::new(), nothing, "announce"),
        ("announced", pending(), nothing, create),
        ("the driver has responded", pending(), &found(true), "report true"),
        ("that is written", pending().responded(true), &found(true), "settle"),
        ("it is over", C::new().responded(true), &found(true), "nothing"),
        ("it is not ready", C::new().responded(false), &found(false), create),
        ("it was requested just now", C::new().responded(false), &later, "again in 1000 ms"),
        ("it is ready by now", C::new().responded(false), &found(true), "report true"),
        ("it is deleted before it is certain", both().deleted(), nothing, create),
        ("it is deleted", deleted().responded(true).deleted(), nothing, delete),
        ("the driver deleted it", deleted().responded(true).deleted(), missing, "release"),
        ("it never existed", deleted().deleted(), nothing, "release"),
        ("its snapshot or group stays", C::new().responded(true).deleted(), nothing, "nothing"),
        ("it is retained", retained, nothing, "release"),
        ("of another driver", foreign, nothing, "nothing"),
    ] {
        assert_eq!(step(content, memory), expected, "{}: {what}", C::WORDS.what);
    }
    let mut classless = pending();
    classless.set_class("gone");
    assert_eq!(step(classless, nothing), C::CLASSLESS);
}

#[test]
fn snapshots_and_groups_are_created_and_deleted() {
    is_created_and_deleted::<VolumeSnapshotContent>();
    is_created_and_deleted::<VolumeGroupSnapshotContent>();
}

#[test]
fn groups_have_members_and_snapshots_of_groups_follow_them() {
    let nothing = &Memory::default();
    let mut without_members =
        VolumeGroupSnapshotContent::new().with(&[VolumeGroupSnapshotContent::BEING_CREATED]).responded(true);
    without_members.status.as_mut().unwrap().volume_snapshot_info_list = None;
    let found = responded(true, VolumeGroupSnapshotContent::new_members());
    assert_eq!(step(without_members, &found), "report true", "its members are not written");
    assert_eq!(step(VolumeGroupSnapshotContent::existing(), nothing), "get h with s1 s2");
    let mut unbound = VolumeGroupSnapshotContent::existing().deleted();
    unbound.set_unbound();
    assert_eq!(step(unbound, nothing), "release", "it was never read");

    type Single = VolumeSnapshotContent;
    let of_group = || Single::new().with(&[SNAPSHOT_GROUP]);
    let mut grouped = responded(true, Vec::new());
    grouped.found.as_mut().unwrap().group = Some("g".into());
    for (what, content, memory, expected) in [
        ("the driver names its group", Single::new().responded(true), &grouped, "report true"),
        ("its group is not created yet", of_group(), nothing, "nothing"),
        ("it is imported and names its group", Single::existing().with(&[SNAPSHOT_GROUP]), nothing, "get h"),
        ("its group is not ready", of_group().responded(false), nothing, "get h"),
        ("its group stays", of_group().responded(true).deleted(), nothing, "nothing"),
        (
            "its group is deleted",
            of_group().with(&[Single::BEING_DELETED]).responded(true).deleted(),
            nothing,
            "release",
        ),
    ] {
        assert_eq!(step(content, memory), expected, "{what}");
    }
    let mut unbound = Single::existing().responded(true).deleted();
    unbound.set_unbound();
    assert_eq!(step(unbound, nothing), "delete h with ", "deleted without a snapshot");
}

#[test]
fn each_driver_is_asked_as_it_can_be() {
    for (rpcs, of_existing) in [
        (&[Rpc::GetSnapshot, Rpc::ListSnapshots][..], "get h"),
        (&[Rpc::ListSnapshots], "list h"),
        (&[], "trust h"),
    ] {
        let nothing = Memory::default();
        assert_eq!(step_of(VolumeSnapshotContent::existing(), &nothing, rpcs), of_existing, "{rpcs:?}");
        let created = VolumeSnapshotContent::new().responded(false);
        assert_eq!(step_of(created, &nothing, rpcs), VolumeSnapshotContent::CALLS[0], "{rpcs:?}");
    }
}

/// The action about a content of which the class has a secret `polls` for polling, and a parameter.
fn with_secrets<C: Example>(content: C) -> Action<C> {
    let mut world = World::default();
    let parameters = [
        ("csi.storage.k8s.io/snapshotter-list-secret-name", "polls"),
        ("csi.storage.k8s.io/snapshotter-list-secret-namespace", "system"),
        ("csi.storage.k8s.io/group-snapshotter-get-secret-name", "polls"),
        ("csi.storage.k8s.io/group-snapshotter-get-secret-namespace", "system"),
        ("tier", "cold"),
    ];
    let parameters = Some(parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let (mut class, mut of_groups) =
        (testing::snapshot_class("snap", "Delete"), testing::group_snapshot_class("groups", "Delete"));
    (class.parameters, of_groups.parameters) = (parameters.clone(), parameters);
    world.apply(class);
    world.apply(of_groups);
    world.apply(content);
    let settings = settings::<C>(&[Rpc::ListSnapshots]);
    plan("c", &world, &settings, &Memory::default(), NOW).0.expect("an action")
}

fn is_asked_for_with_the_secret_that_created_it<C: Example>() {
    let recorded = |mut content: C| {
        C::SECRET.into_iter().zip(["creates", "system"]).for_each(|(key, value)| {
            testing::annotate(content.metadata_mut(), key, value);
        });
        content
    };
    for (content, announces, expected) in [
        (recorded(C::new()), true, "creates"),
        (recorded(C::new().responded(false)), false, "creates"),
        (recorded(C::existing()), false, "polls"),
    ] {
        let action = with_secrets(content);
        let is_announced = matches!(action, Action::Announce { .. });
        let (Action::Ask { secret, .. } | Action::Announce { secret, .. }) = action else {
            panic!("expected a call, not {action:?}")
        };
        let secret = secret.and_then(|secret| secret.name);
        assert_eq!((is_announced, secret.as_deref()), (announces, Some(expected)), "{}", C::WORDS.what);
    }
}

#[test]
fn what_exists_is_asked_for_with_the_secret_that_created_it() {
    is_asked_for_with_the_secret_that_created_it::<VolumeSnapshotContent>();
    is_asked_for_with_the_secret_that_created_it::<VolumeGroupSnapshotContent>();
    let mut grouped = VolumeSnapshotContent::new().with(&[SNAPSHOT_GROUP]).responded(false);
    for (key, value) in VolumeSnapshotContent::SECRET.into_iter().zip(["creates", "system"]) {
        testing::annotate(&mut grouped.metadata, key, value);
    }
    let Action::Ask { secret: Some(secret), .. } = with_secrets(grouped) else { panic!("expected a call") };
    assert_eq!(secret.name.as_deref(), Some("creates"));
}

#[test]
fn the_request_has_the_names_of_the_group() {
    let announced = VolumeGroupSnapshotContent::new().with(&[VolumeGroupSnapshotContent::BEING_CREATED]);
    let Action::Ask { question: Question::CreateGroup(request), .. } = with_secrets(announced) else {
        panic!("expected CreateVolumeGroupSnapshot")
    };
    let expected = [
        ("csi.storage.k8s.io/volumegroupsnapshot/name", "g"),
        ("csi.storage.k8s.io/volumegroupsnapshot/namespace", "default"),
        ("csi.storage.k8s.io/volumegroupsnapshotcontent/name", "c"),
        ("tier", "cold"),
    ];
    let parameters: Vec<_> =
        request.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(parameters, expected);
}

fn is_handled_by_the_node_with_its_label<C: Example>() {
    for (node, label, expected) in [
        (None, None, true),
        (None, Some("b"), true),
        (Some("a"), None, false),
        (Some("a"), Some("a"), true),
        (Some("a"), Some("b"), false),
    ] {
        let settings = Settings { node: node.map(str::to_owned), ..settings::<C>(&[]) };
        let mut content = C::new();
        content.metadata_mut().labels =
            label.map(|label: &str| [(SNAPSHOT_MANAGED_BY.to_owned(), label.to_owned())].into());
        let (action, _) = next(content, &Memory::default(), &settings);
        assert_eq!(action.is_some(), expected, "node {node:?}, label {label:?}: {action:?}");
    }
}

#[test]
fn the_snapshotter_of_a_node_handles_the_contents_with_its_label() {
    is_handled_by_the_node_with_its_label::<VolumeSnapshotContent>();
    is_handled_by_the_node_with_its_label::<VolumeGroupSnapshotContent>();
}
