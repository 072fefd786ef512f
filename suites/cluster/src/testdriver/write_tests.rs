//! Generated driver files: they can be read back unchanged, and their entries for the built-in driver are correct.

use std::path::Path;

use claimcheck_driver::{access::Access, capability::Capabilities, parameters::Kind};
use claimcheck_model::Capability;
use proptest::{collection, option, prelude::*, sample};

use super::{
    builtin,
    write::{ClassOption, Draft, DriverOptions, Origin, class, draft},
    *,
};
use claimcheck_cluster::{DriverCapabilities, DriverDescription, SupportedCalls};

/// A driver that declares these capabilities, as far as they can be declared. A driver that expands volumes and
/// declares neither online nor offline expansion reports neither.
fn description(name: &str, declares: &[Capability], supported_calls: SupportedCalls) -> DriverDescription {
    let when = [Capability::OnlineExpansion, Capability::OfflineExpansion];
    let silent =
        declares.contains(&Capability::ControllerExpansion) && !when.iter().any(|of| declares.contains(of));
    let can_be_declared = Capability::ALL.iter().filter(|of| claimcheck_cluster::declared_by(**of).is_some());
    let answered = can_be_declared.filter(|of| !(silent && when.contains(of)));
    let capabilities = answered.map(|of| (*of, declares.contains(of))).collect();
    DriverDescription {
        name: name.to_owned(),
        declared: DriverCapabilities { capabilities, supported_calls },
        topology_keys: Vec::new(),
    }
}

/// The capabilities that the built-in driver declares with the arguments of a cluster.
fn builtin_driver() -> DriverDescription {
    let declares = [
        Capability::SnapshotDataSource,
        Capability::SnapshotMetadata,
        Capability::GroupSnapshot,
        Capability::PvcDataSource,
        Capability::ControllerExpansion,
        Capability::NodeExpansion,
        Capability::OnlineExpansion,
        Capability::OfflineExpansion,
        Capability::Capacity,
        Capability::ReadWriteOncePod,
    ];
    description(claimcheck_driver::DRIVER_NAME, &declares, SupportedCalls::ALL)
}

fn read(draft: &Draft) -> File {
    let read_class = |name: &str| Ok((name.into(), class(&draft.file.driver_info.name, &BTreeMap::new())));
    let read = TestDriver::parse(Path::new("driver.yaml"), &draft.to_string(), read_class);
    read.unwrap_or_else(|error| panic!("{error}\n{draft}")).file().clone()
}

#[test]
fn the_builtin_driver_as_it_is_written() {
    let options =
        DriverOptions { class: ClassOption::Existing("claimcheck-image".into()), ..DriverOptions::default() };
    let content = Content::from_class(Some("claimcheck-image"), &BTreeMap::new());
    let written = draft(&builtin_driver(), &options, Some(content));
    assert_eq!(read(&written), written.file);
    insta::assert_snapshot!("ours_image", written.to_string());
    let written = draft(&builtin_driver(), &DriverOptions::default(), Some(Content::Either));
    assert_eq!(read(&written), written.file);
    insta::assert_snapshot!("ours", written.to_string());
}

#[test]
fn a_minimal_driver_as_it_is_written() {
    let supported_calls = SupportedCalls { create: false, attach: false, stage: false };
    let minimal = draft(&description("d.example.com", &[], supported_calls), &DriverOptions::default(), None);
    assert_eq!(read(&minimal), minimal.file);
    insta::assert_snapshot!("minimal", minimal.to_string());
}

#[test]
fn overrides_as_they_are_written() {
    let pairs = BTreeMap::from([("size".to_owned(), "1Gi".to_owned())]);
    let declares = [Capability::Topology, Capability::ControllerExpansion, Capability::Capacity];
    let mut zoned = description("d.example.com", &declares, SupportedCalls::ALL);
    zoned.topology_keys = vec!["d.example.com/zone".into()];
    let options = DriverOptions {
        class: ClassOption::File("/etc/driver-class.yaml".into()),
        snapshot_class: Some("snapshots".into()),
        group_snapshot_class: Some("groups".into()),
        attributes_class: Some("fast".into()),
        file_systems: ["ext4".into(), "xfs".into()].into(),
        mount_options: ["noatime".into()].into(),
        smallest: Some("10Gi".into()),
        largest: Some("16Ti".into()),
        largest_file: Some(1 << 20),
        inline_volumes: vec![BTreeMap::new(), pairs],
        client_node: Some("node-1".into()),
        stress: Some(3),
        capabilities: [(Capability::Block, true), (Capability::SnapshotDataSource, true)]
            .into_iter()
            .chain([(Capability::Capacity, false)])
            .collect(),
    };
    let written = draft(&zoned, &options, None);
    assert_eq!(read(&written), written.file);
    insta::assert_snapshot!("overrides", written.to_string());
}

#[test]
fn a_class_with_parameters_is_read_again() {
    let parameters =
        BTreeMap::from([("pool".to_owned(), "yes".to_owned()), ("n".to_owned(), "1".to_owned())]);
    let text = class("d.example.com", &parameters);
    let file = "StorageClass: {FromFile: c.yaml}\nDriverInfo: {Name: d.example.com}\n";
    let read = TestDriver::parse(Path::new("d.yaml"), file, |name| Ok((name.into(), text.clone()))).unwrap();
    let Class::Object(class) = read.class() else { panic!("{:?}", read.class()) };
    assert_eq!(class.parameters.as_ref(), Some(&parameters), "{text}");
}

#[test]
fn the_content_of_a_class_is_known_by_its_name_or_its_parameters() {
    let of = |name, kind: Option<&str>| {
        let parameters = kind.map(|kind| ("kind".to_owned(), kind.to_owned())).into_iter().collect();
        Content::from_class(name, &parameters)
    };
    assert_eq!(of(None, None), Content::Either);
    assert_eq!(of(Some("standard"), None), Content::Either);
    assert_eq!(of(Some("claimcheck-image-late"), None), Content::Image);
    assert_eq!(of(Some("claimcheck-directory"), None), Content::Directory);
    assert_eq!(of(None, Some("image")), Content::Image);
    assert_eq!(of(None, Some("directory")), Content::Directory);
}

/// The known properties of the built-in driver match its behaviour: the supported access modes of each backend.
#[test]
fn the_known_capabilities_of_the_builtin_driver_are_correct() {
    let accepts = |kind, mode: &str, volume_mode: &str| {
        let access = format!("{{\"mode\": \"{mode}\", \"volume_mode\": \"{volume_mode}\"}}");
        let access: Access = serde_json::from_str(&access).unwrap();
        access.check(kind, &Capabilities::default()).is_ok()
    };
    let contents = [
        (Content::Either, Kind::Directory, Kind::Image),
        (Content::Directory, Kind::Directory, Kind::Directory),
        (Content::Image, Kind::Image, Kind::Image),
    ];
    for (content, of_file_systems, of_devices) in contents {
        let known = |capability| builtin::known(content, capability).unwrap().0;
        let mounted = |mode| accepts(of_file_systems, mode, "filesystem");
        assert_eq!(
            known(Capability::Block),
            accepts(of_devices, "single_node_writer", "block"),
            "{content:?}"
        );
        assert_eq!(known(Capability::Rwx), mounted("multi_node_multi_writer"), "{content:?}");
        assert_eq!(known(Capability::CapReadOnlyMany), mounted("multi_node_reader_only"), "{content:?}");
    }
}

/// The known properties of the installation match manifests/.
#[test]
fn the_known_installation_is_that_of_the_manifests() {
    let manifest = include_str!("../../../../manifests/csidriver/csidriver.yaml");
    let driver: k8s_openapi::api::storage::v1::CSIDriver = serde_saphyr::from_str(manifest).unwrap();
    let known = |capability| builtin::known(Content::Image, capability).unwrap().0;
    assert_eq!(driver.spec.fs_group_policy.as_deref() == Some("File"), known(Capability::FsGroup));
    assert_eq!(driver.spec.storage_capacity == Some(true), known(Capability::Capacity));
    assert_eq!(driver.spec.se_linux_mount == Some(true), known(Capability::SeLinuxMount));
    let modes = driver.spec.volume_lifecycle_modes.unwrap_or_default();
    assert!(modes.iter().any(|mode| mode == "Ephemeral"), "InlineVolumes: {modes:?}");
    let crds = include_str!("../../../../manifests/snapshots/crds/kustomization.yaml");
    let group = builtin::known(Content::Image, Capability::GroupSnapshot);
    assert!(crds.contains("group") && group.is_none(), "the driver's declaration decides: {group:?}");
    assert_eq!(crds.contains("metadata"), known(Capability::SnapshotMetadata));
}

#[test]
fn group_ownership_follows_from_what_is_known_of_it() {
    let fs_group = |declares: &[Capability], file_systems: &[&str]| {
        let file_systems = file_systems.iter().map(|name| (*name).to_owned()).collect();
        let options = DriverOptions { file_systems, ..DriverOptions::default() };
        let written = draft(&description("d", declares, SupportedCalls::ALL), &options, None);
        (written.file.driver_info.capabilities[&Capability::FsGroup], written.origins[&Capability::FsGroup])
    };
    assert!(matches!(fs_group(&[], &[]), (false, Origin::Unknown(_))));
    assert!(matches!(fs_group(&[], &["ext4"]), (true, Origin::Assumed(_))));
    assert!(matches!(fs_group(&[Capability::VolumeMountGroup], &[]), (true, Origin::Assumed(_))));
}

/// Text that YAML could misinterpret, and any other text without line breaks.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        sample::select(vec![
            "yes", "on", "~", "null", "1e3", "0x1", "1:30", "a: b", "- a", "#", "{}", "it's", "\\"
        ])
        .prop_map(str::to_owned),
        "[a-z0-9./-]{1,12}",
        "[^\\p{C}\\p{Z}]{1,6}( [^\\p{C}\\p{Z}]{1,4})?",
    ]
}

fn size() -> impl Strategy<Value = String> {
    (1..1000_u16).prop_map(|gi| format!("{gi}Gi"))
}

prop_compose! {
    fn any_options()(
        class in prop_oneof![
            Just(ClassOption::Name), text().prop_map(ClassOption::Existing), text().prop_map(ClassOption::File)
        ],
        names in collection::vec(option::of(text()), 4),
        file_systems in collection::btree_set(text(), 0..3),
        mount_options in collection::btree_set(text(), 0..3),
        smallest in option::of(size()),
        largest_file in option::of(1..i64::MAX),
        inline_volumes in collection::vec(collection::btree_map(text(), text(), 0..3), 0..3),
        stress in option::of(1..100_usize),
        capabilities in collection::btree_map(sample::select(Capability::ALL), any::<bool>(), 0..8),
    ) -> DriverOptions {
        let mut names = names.into_iter();
        let mut name = || names.next().flatten();
        DriverOptions {
            class, snapshot_class: name(), group_snapshot_class: name(), attributes_class: name(), file_systems,
            mount_options, smallest, largest: None, largest_file, inline_volumes, client_node: name(), stress,
            capabilities,
        }
    }
}

prop_compose! {
    fn any_driver()(
        name in "[a-z]{1,9}\\.csi\\.dev",
        declares in collection::vec(sample::select(Capability::ALL), 0..8),
        silent in collection::vec(sample::select(Capability::ALL), 0..4),
        (create, attach, stage) in any::<(bool, bool, bool)>(),
        topology_keys in collection::vec(text(), 0..3),
    ) -> DriverDescription {
        let mut description = description(&name, &declares, SupportedCalls { create, attach, stage });
        description.declared.capabilities.retain(|capability, _| !silent.contains(capability));
        DriverDescription { topology_keys, ..description }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        description in any_driver(), options in any_options(),
        content in option::of(sample::select(vec![Content::Either, Content::Directory, Content::Image])),
    ) {
        let written = draft(&description, &options, content);
        prop_assert_eq!(read(&written), written.file.clone(), "{}", written);
        let text = written.to_string();
        for capability in Capability::ALL {
            let value = written.file.driver_info.capabilities[capability];
            let line = format!("    {capability}: {value} ");
            let comment = format!("# {}", written.origins[capability]);
            let found = text.lines().any(|of| of.starts_with(&line) && of.contains(&comment));
            prop_assert!(found, "{}\n{}", line, text);
            if let Some(given) = options.capabilities.get(capability) {
                prop_assert_eq!(value, *given);
                prop_assert_eq!(written.origins[capability], Origin::Override);
            }
        }
    }
}
