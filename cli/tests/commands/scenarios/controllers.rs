//! Scenarios of `world: controllers`, which are compared on API servers without nodes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{PROGRAM, printed};

const ASSETS: &str = "KUBEBUILDER_ASSETS";
const SIDECARS: &str = "CLAIMCHECK_STOCK_SIDECARS";

/// Writes the example of the book.
fn example(folder: &Path) -> PathBuf {
    let page = include_str!("../../../../docs/own-cases/scenarios.md");
    let section = page.split_once("## Controllers without nodes").expect("the section").1;
    let text = section.split("```").nth(1).and_then(|block| block.strip_prefix("yaml\n"));
    let file = folder.join("attach.yaml");
    fs::write(&file, text.expect("an example")).expect("a file");
    file
}

fn compare(file: &Path, args: &[&str], programs: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["scenario", "compare"]).arg(file).args(args).env("CLAIMCHECK_NO_HISTORY", "1");
    command.env_remove(ASSETS).env_remove(SIDECARS).envs(programs.iter().copied());
    command.output().expect("the binary runs")
}

fn assert_ends(output: &Output, code: i32, parts: &[&str]) {
    let text = printed(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn what_does_not_fit_the_world_is_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = example(folder.path());
    let is_of = "attach-and-detach (";
    for (args, remedy) in [
        (&["--with", "stock", "--on", "--nodes 1"][..], "omit --on"),
        (&["--with", "--nodes 1"], "write --with stock"),
    ] {
        assert_ends(&compare(&file, args, &[]), 2, &[is_of, "is of `world: controllers`", remedy]);
    }
    let run = Command::new(PROGRAM).args(["run", "--scenario"]).arg(&file).output().expect("the binary runs");
    assert_ends(
        &run,
        2,
        &["attach.yaml:3: attach-and-detach is of", "claimcheck scenario compare", "--with stock"],
    );
    let check =
        Command::new(PROGRAM).args(["scenario", "check"]).arg(&file).output().expect("the binary runs");
    assert_ends(&check, 0, &["6 steps (world: controllers, for `claimcheck scenario compare`)"]);

    let other = "---\napiVersion: claimcheck.dev/v1alpha1\nkind: Scenario\nname: claim\nsteps: [create: claim data]\n";
    fs::write(&file, fs::read_to_string(&file).expect("the example") + other).expect("a file");
    let output = compare(&file, &["--with", "stock"], &[]);
    assert_ends(&output, 2, &[is_of, "others are of `world: cluster`: compare them in two commands"]);
}

#[test]
fn missing_programs_are_named_with_how_to_get_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, out) = (example(folder.path()), folder.path().join("out"));
    let (assets, empty) = (folder.path().join("assets"), folder.path().join("empty"));
    fs::create_dir(&assets).expect("a folder");
    fs::create_dir(&empty).expect("a folder");
    for program in ["etcd", "kube-apiserver", "kube-controller-manager"] {
        fs::write(assets.join(program), "").expect("a file");
    }
    let args = ["--with", "stock", "--out", out.to_str().expect("UTF-8")];
    for (programs, parts) in [
        (&[][..], ["KUBEBUILDER_ASSETS is not set: set it to a folder with etcd, ", "setup-envtest use"]),
        (&[(ASSETS, empty.as_path())], ["which has no etcd: ", "setup-envtest use"]),
        (&[(ASSETS, assets.as_path())], ["CLAIMCHECK_STOCK_SIDECARS is not set", "external-provisioner"]),
        (
            &[(ASSETS, assets.as_path()), (SIDECARS, empty.as_path())],
            ["which has no csi-provisioner: ", "external-provisioner"],
        ),
    ] {
        assert_ends(&compare(&file, &args, programs), 3, &parts);
    }
    assert!(!out.exists(), "a folder was made");
}

/// Provisioning always differs in what emits its events, which claimcheck's own list permits.
#[test]
#[ignore = "requires envtest, stock, sidecars"]
fn the_example_of_the_book_differs_in_what_is_permitted_only() {
    claimcheck_needs::require("envtest, stock, sidecars");
    let folder = tempfile::tempdir().expect("a folder");
    let file = example(folder.path());
    let permitted =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../storage/controllers/tests/differential/differences.yaml");
    let differs = [
        "attach-and-detach: differs event PersistentVolumeClaim",
        "built-in: external-provisioner stock: main.csi",
        "1 compared, 1 differ",
    ];
    let equal = [
        "built-in: built-in controllers, kube-apiserver v",
        "attach-and-detach: equal",
        "1 compared, 0 differ",
    ];
    for (args, code, parts) in [(&[][..], 1, differs), (&["--allow", permitted], 0, equal)] {
        let out = folder.path().join(format!("out-{code}"));
        let mut command = Command::new(PROGRAM);
        command.args(["scenario", "compare", "--with", "stock"]).arg(&file).arg("--out").arg(&out).args(args);
        assert_ends(&command.output().expect("the binary runs"), code, &parts);
        for log in ["built-in/kube-apiserver.log", "stock/kube-apiserver.log", "stock/csi-attacher.log"] {
            assert!(out.join(log).is_file(), "{log} is missing");
        }
    }
}
