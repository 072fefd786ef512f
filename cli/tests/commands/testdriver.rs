//! `claimcheck testdriver`: from a driver's answers to a file that our own reader takes, and that nothing overwrites.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use claimcheck_model::Capability;
use claimcheck_suites::testdriver::{Class, TestDriver};

fn testdriver(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_claimcheck");
    Command::new(program).arg("testdriver").args(args).output().expect("the binary runs")
}

fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What was written, read again.
fn written(out: &Path, args: &[&str]) -> TestDriver {
    let out_arg = out.display().to_string();
    let output = testdriver(&[args, &["--out", &out_arg]].concat());
    assert!(output.status.success(), "{}", output_of(&output));
    assert!(output_of(&output).contains(&out_arg), "{}", output_of(&output));
    TestDriver::read(out).expect("our own reader takes it")
}

#[test]
fn the_builtin_driver_is_queried_and_its_class_is_written_next_to_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("driver.yaml");
    let driver = written(&out, &["--driver", "builtin", "--driver-param", "kind=image"]);
    assert_eq!(driver.name(), "claimcheck.csi.dev");
    let Class::Object(class) = driver.class() else { panic!("{:?}", driver.class()) };
    assert_eq!(class.parameters.as_ref().expect("parameters")["kind"], "image");
    let can = driver.capabilities();
    assert!(
        can[&Capability::SnapshotDataSource] && can[&Capability::OnlineExpansion] && can[&Capability::Block]
    );
    assert!(!can[&Capability::Rwx] && !can[&Capability::VolumeMountGroup]);
    assert_eq!(driver.file_systems().collect::<Vec<_>>(), ["ext3", "ext4", "xfs"]);
}

/// A driver with a controller of its own, and without many capabilities of the built-in one.
#[test]
fn an_external_driver_is_described_as_it_declares() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("driver.yaml");
    let program = env!("CARGO_BIN_EXE_claimcheck");
    let external = format!(
        "exec:{program} driver --driver-name stranger.example.com --endpoint {{endpoint}} --node-id {{node_id}} \
         --state-dir {{state_dir}} --topology example.com/zone=a --max-volumes 7"
    );
    let controller = format!("{external} --disable CREATE_DELETE_SNAPSHOT --disable EXPAND_VOLUME");
    let args = [
        "--driver",
        &*external,
        "--driver-controller",
        &controller,
        "--fs-type",
        "ext4",
        "--fs-type",
        "block",
    ];
    let driver = written(&out, &args);
    assert_eq!((driver.name(), driver.class()), ("stranger.example.com", &Class::Name));
    let can = driver.capabilities();
    assert!(can[&Capability::VolumeLimits] && can[&Capability::Topology] && can[&Capability::Block]);
    assert!(can[&Capability::NodeExpansion], "its node declares EXPAND_VOLUME");
    assert!(!can[&Capability::SnapshotDataSource] && !can[&Capability::ControllerExpansion]);
    let text = fs::read_to_string(&out).expect("a file");
    for line in [
        "  TopologyKeys:\n  - example.com/zone\n",
        "block: true                             # given by --capability",
        "volumeLimits: true                      # declared: NodeGetInfo max_volumes_per_node; slow",
        "RWX: false                              # unknown:",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn nothing_is_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    for present in ["driver.yaml", "other-class.yaml"] {
        fs::write(path(present), "mine").expect("a file");
    }
    for (out, args) in [("driver.yaml", [].as_slice()), ("other.yaml", &["--driver-param", "kind=image"])] {
        let output = testdriver(&[&["--driver", "builtin", "--out", &path(out)], args].concat());
        assert_eq!(output.status.code(), Some(2), "{}", output_of(&output));
        assert!(
            output_of(&output).contains("is not overwritten: remove it, or name another"),
            "{}",
            output_of(&output)
        );
    }
    assert_eq!(fs::read_to_string(path("driver.yaml")).expect("a file"), "mine");
    assert!(!Path::new(&path("other.yaml")).exists());
}

#[test]
fn a_driver_that_cannot_be_queried_is_reported_with_its_log() {
    let out = testdriver(&["--driver", "exec:/no/such/driver {endpoint}"]);
    assert_eq!(out.status.code(), Some(3), "{}", output_of(&out));
    assert!(output_of(&out).contains("/no/such/driver") && out.stdout.is_empty(), "{}", output_of(&out));
}
