//! Driver files as vendors write them, with and without mistakes.

use super::*;

fn parse(text: &str) -> Result<TestDriver, TestDriverError> {
    let class = "kind: StorageClass\napiVersion: storage.k8s.io/v1\nprovisioner: d.example.com\nparameters: {pool: a}\n";
    TestDriver::parse(Path::new("driver.yaml"), text, |name| Ok((name.into(), class.to_owned())))
}

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

const NAME: &str = "DriverInfo:\n  Name: d.example.com\n";

#[test]
fn everything_that_upstream_knows_is_read() {
    let driver = parse(
        "
StorageClass:
  FromFile: class.yaml
SnapshotClass:
  FromName: true
GroupSnapshotClass:
  FromExistingClassName: groups
VolumeAttributesClass:
  FromFile: vac.yaml
InlineVolumes:
- Attributes: {size: 1Gi}
  Shared: true
  ReadOnly: true
ClientNodeName: node-1
NodeSelectors: {disk: ssd}
Timeouts:
  PodStart: 15m
  ClaimProvision: 90s
  SystemPodsStartup: 1h30m
DriverInfo:
  Name: d.example.com
  InTreePluginName: kubernetes.io/d
  TestTags: [slow]
  MaxFileSize: 1048576
  SupportedSizeRange: {Min: 1Gi, Max: 16Ti, Step: 1Gi}
  SupportedFsType: {\"\": {}, ext4: {}, xfs: {}, btrfs:}
  SupportedMountOption: {noatime: {}}
  RequiredMountOption: {hard: {}}
  Capabilities: {persistence: true, controllerExpansion: true, onlineExpansion: false, RWX: true, exec: false}
  RequiredAccessModes: [ReadWriteMany]
  TopologyKeys: [d.example.com/zone]
  NumAllowedTopologies: 2
  StressTestOptions: {NumPods: 4, NumRestarts: 2}
  VolumeSnapshotStressTestOptions: {NumPods: 1, NumSnapshots: 3}
  VolumeModifyStressTestOptions: {NumPods: 1}
  VolumeGroupSnapshotStressTestOptions: {NumPods: 1, NumSnapshots: 3}
  PerformanceTestOptions:
    ProvisioningOptions:
      VolumeSize: 1Gi
      Count: 300
      ExpectedMetrics: {AvgLatency: 120000000000, Throughput: 0.5}
",
    )
    .unwrap();
    assert_eq!(driver.name(), "d.example.com");
    let Class::Object(class) = driver.class() else { panic!("{:?}", driver.class()) };
    assert_eq!(class.parameters.as_ref().unwrap()["pool"], "a");
    assert_eq!((driver.fit(1), driver.fit(2 << 30), driver.fit(i64::MAX)), (1 << 30, 2 << 30, 16 << 40));
    assert_eq!(
        driver.timeout(),
        Some(Duration::from_secs(900)),
        "that of SystemPodsStartup is not waited for"
    );
    assert_eq!(driver.file_systems().collect::<Vec<_>>(), ["btrfs", "ext4", "xfs"]);
    assert_eq!(driver.mount_options(), ["hard"]);
    assert_eq!(driver.access_modes(), BTreeSet::from([AccessMode::ReadWriteMany]));
    let can = driver.capabilities();
    assert!(can[&Capability::Rwx] && can[&Capability::OfflineExpansion]);
    assert!(!can[&Capability::OnlineExpansion] && !can[&Capability::Exec] && !can[&Capability::Block]);
    assert_eq!(driver.file().driver_info.stress_test_options.unwrap().num_restarts, 2);
    assert_eq!(driver.without_effect().len(), 15, "{:?}", driver.without_effect());
}

#[test]
fn omitted_fields_have_the_defaults_of_upstream() {
    let driver = parse(NAME).unwrap();
    assert_eq!((driver.class(), driver.fit(1)), (&Class::None, 5 << 30));
    assert_eq!(driver.access_modes(), BTreeSet::from([AccessMode::ReadWriteOnce]));
    assert!(driver.capabilities().values().all(|can| !can));
    assert_eq!((driver.timeout(), driver.without_effect()), (None, vec![]));
    let small = parse(&format!("{NAME}  SupportedSizeRange: {{Max: 1Gi}}\n")).unwrap();
    assert_eq!((small.fit(5), small.fit(2 << 30)), (5, 1 << 30), "only a whole range has a default");
}

#[test]
fn mistakes_are_reported_with_line_and_suggestion() {
    let table = [
        // Two mistakes in files of well-known drivers.
        (
            format!("{NAME}  StressTestOptions:\n    NumPods: 1\n    NumSnapshots: 2\n"),
            "driver.yaml:5: unknown field NumSnapshots: it belongs to DriverInfo.VolumeGroupSnapshotStressTestOptions or",
        ),
        (
            format!("VolumeAttributeClass:\n  FromFile: a\n{NAME}"),
            "driver.yaml:1: unknown field VolumeAttributeClass: did you mean VolumeAttributesClass?",
        ),
        (
            format!("{NAME}InlineVolumes:\n- shared: true\n"),
            "driver.yaml:4: unknown field shared: did you mean Shared?",
        ),
        (
            format!("{NAME}  Capabilities:\n    presistence: true\n"),
            "driver.yaml:4: unknown field presistence: did you mean persistence?",
        ),
        (
            format!("{NAME}VolumeAttributesClass:\n  FromName: true\n"),
            "driver.yaml:4: unknown field FromName: it belongs to GroupSnapshotClass or SnapshotClass or StorageClass, not to",
        ),
        (
            format!("{NAME}Timeouts:\n  PodStrt: 5m\n"),
            "driver.yaml:4: unknown field PodStrt: did you mean PodStart?",
        ),
        (
            format!("{NAME}  RequiredAccessModes: [RWX]\n"),
            "driver.yaml:3: DriverInfo.RequiredAccessModes: unknown name RWX: known are ReadWriteOnce",
        ),
        (
            format!("{NAME}  RequiredAccessModes: [ReadWriteMany, ReadWriteOncePod]\n"),
            "driver.yaml:3: RequiredAccessModes: ReadWriteOncePod excludes the others",
        ),
        ("StorageClass: {FromName: true}\n".to_owned(), "driver.yaml: DriverInfo.Name is missing"),
        (
            format!("{NAME}Timeouts: {{PodStart: soon}}\n"),
            "driver.yaml:3: Timeouts.PodStart \"soon\" is not a Go duration",
        ),
        (
            format!("{NAME}  SupportedSizeRange: {{Min: much}}\n"),
            "driver.yaml:3: SupportedSizeRange.Min \"much\" is not a quantity",
        ),
        (
            format!("{NAME}  SupportedSizeRange: {{Min: 2Gi, Max: 1Gi}}\n"),
            "driver.yaml:3: SupportedSizeRange: Min 2Gi is above Max 1Gi",
        ),
        (
            "StorageClass: {FromFile: class.yaml}\nDriverInfo: {Name: other}\n".to_owned(),
            "class.yaml: its provisioner is \"d.example.com\", but the driver is \"other\"",
        ),
    ];
    for (text, expected) in table {
        let error = refused(&text);
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = TestDriver::read(Path::new("/nowhere/driver.yaml")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/driver.yaml"), "{error}");
}

/// As in the files of several drivers, for which upstream's suite runs.
#[test]
fn fields_that_upstream_ignores_are_accepted_and_listed() {
    let text = "ShortName: x\nStorageClass: {FromName: true}\nSnapshotClass:\nDriverInfo: {Name: d, FeatureTag: ''}\n";
    let driver = parse(text).unwrap();
    assert_eq!(driver.ignored(), ["ShortName (line 1)", "DriverInfo.FeatureTag (line 4)"]);
    assert_eq!((driver.class(), driver.name()), (&Class::Name, "d"));
    assert_eq!(parse(NAME).unwrap().ignored(), [""; 0]);
}

/// As in the files of Alibaba Cloud and of EBS.
#[test]
fn files_are_named_relative_to_the_file_or_to_the_root_of_its_repository() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("test/e2e");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("driver.yaml");
    let class = "provisioner: d.example.com\nparameters: {pool: a}\n";
    fs::write(folder.join("class.yaml"), class).unwrap();
    for name in ["class.yaml", "test/e2e/class.yaml"] {
        fs::write(&path, format!("StorageClass: {{FromFile: {name}}}\n{NAME}")).unwrap();
        let driver = TestDriver::read(&path).unwrap();
        assert!(matches!(driver.class(), Class::Object(_)), "{name}");
    }
    fs::write(&path, format!("StorageClass: {{FromFile: other.yaml}}\n{NAME}")).unwrap();
    let error = TestDriver::read(&path).unwrap_err().to_string();
    assert!(error.contains("test/e2e/other.yaml"), "{error}");
}
