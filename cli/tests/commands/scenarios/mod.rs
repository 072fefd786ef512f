//! Scenario files: the examples pass, and each fails with a defect of what it is about.

mod controllers;
mod record;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use boon::{Compiler, Schemas};
use serde::Deserialize;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_claimcheck");
/// Of this many rows of the table ci/test tries one.
const SAMPLE: usize = 15;

/// A row of `defects.yaml`: arguments with which a scenario fails.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defect {
    scenario: String,
    with: Vec<String>,
    /// A part of the message.
    message: String,
}

fn table() -> Vec<Defect> {
    serde_saphyr::from_str(include_str!("defects.yaml")).expect("a table")
}

/// The examples.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

fn claimcheck(args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).env("CLAIMCHECK_NO_HISTORY", "1");
    command.output().expect("the binary runs")
}

/// Runs scenarios, with these arguments in addition.
fn run(scenario: &Path, args: &[&str], folder: &Path) -> (Output, Value) {
    let (out, scenario) = (folder.join("run"), scenario.to_str().expect("UTF-8"));
    let given = ["run", "--scenario", scenario, "--out", out.to_str().expect("UTF-8")];
    let output = claimcheck(&[&given[..], args].concat());
    let text = fs::read_to_string(out.join("summary.json")).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    (output, serde_json::from_str(&text).expect("JSON"))
}

/// The text of an output, in one line.
fn printed(output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The documents of the examples.
fn documents() -> Vec<Value> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(examples()).expect("examples").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let of = |file: &PathBuf| -> Vec<Value> {
        let text = fs::read_to_string(file).expect("a file");
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    files.iter().filter(|file| file.extension().is_some_and(|of| of == "yaml")).flat_map(of).collect()
}

#[test]
fn the_examples_pass_on_an_embedded_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let (output, summary) = run(&examples(), &[], folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let passed = summary["cases"]["passed"].as_u64().expect("a number");
    assert!(passed >= 30, "{passed} examples passed: {}", summary["cases"]);
}

/// The first of each group of rows; the rest is for ci/nightly.
#[test]
fn a_sample_of_the_examples_fails_for_its_defects() {
    assert_failed(table().into_iter().step_by(SAMPLE));
}

#[test]
#[ignore = "ci/nightly runs it"]
fn each_example_fails_for_its_defects() {
    assert_failed(table());
}

fn assert_failed(rows: impl IntoIterator<Item = Defect>) {
    let mut missed = Vec::new();
    for Defect { scenario, with, message } in rows {
        let folder = tempfile::tempdir().expect("a folder");
        let with: Vec<&str> = with.iter().map(String::as_str).collect();
        let args = [&[scenario.as_str(), "--step-timeout", "10s"], with.as_slice()].concat();
        let (output, summary) = run(&examples(), &args, folder.path());
        let results = summary["results"].as_array().cloned().unwrap_or_default();
        let failed =
            results.iter().filter(|line| line["result"] == "failed" && line["name"] == scenario.as_str());
        let reasons: Vec<&str> = failed.filter_map(|line| line["reason"].as_str()).collect();
        if !reasons.iter().any(|reason| reason.contains(&message)) {
            missed.push(format!(
                "{scenario} with {with:?} does not say {message:?}: {reasons:?} {}",
                printed(&output)
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn each_example_is_in_the_table_and_valid_by_the_schema() {
    let schema = claimcheck(&["scenario", "schema"]);
    let (mut compiler, mut compiled) = (Compiler::new(), Schemas::new());
    compiler
        .add_resource("scenario", serde_json::from_slice(&schema.stdout).expect("JSON"))
        .expect("a resource");
    let root = compiler.compile("scenario", &mut compiled).expect("a schema");
    let documents = documents();
    for document in &documents {
        let valid = compiled.validate(document, root);
        valid.unwrap_or_else(|error| panic!("{}: {error:#}", document["name"]));
    }
    let names: BTreeSet<&str> = documents.iter().filter_map(|document| document["name"].as_str()).collect();
    let table = table();
    let rows: BTreeSet<&str> = table.iter().map(|row| row.scenario.as_str()).collect();
    let missing: Vec<&&str> = names.difference(&rows).filter(|name| !WITHOUT_DEFECT.contains(name)).collect();
    assert!(missing.is_empty(), "no defect fails {missing:?}: add a row to defects.yaml");
    let unknown: Vec<&&str> = rows.difference(&names).collect();
    assert!(unknown.is_empty(), "there is no scenario {unknown:?}");
}

/// Those that the embedded cluster skips, and so do not fail there.
const WITHOUT_DEFECT: [&str; 1] = ["quota-refuses-a-claim"];

#[test]
fn a_failure_names_the_step_its_line_and_what_was_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.yaml");
    let text = "apiVersion: claimcheck.dev/v1alpha1\nkind: Scenario\nname: wrong\nsteps:\n  - create: claim data\n  - until: claim data\n    has: { status: { phase: Lost } }\n    within: 2\n";
    fs::write(&file, text).expect("a file");
    let (output, summary) = run(&file, &[], folder.path());
    assert_eq!(output.status.code(), Some(1));
    let reason = summary["results"][0]["reason"].as_str().expect("a reason");
    for part in [
        &format!("step 2 ({}:6), until claim data {{\"status\":{{\"phase\":\"Lost\"}}}}", file.display()),
        "not in time: claim data is not as expected:",
        "status.phase: expected \"Lost\", last seen \"Bound\"",
        "(its history: ",
    ] {
        assert!(reason.contains(part), "{part} is not in {reason}");
    }
}

#[test]
fn a_mistake_in_a_file_starts_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.yaml");
    let text =
        "apiVersion: claimcheck.dev/v1alpha1\nkind: Scenario\nname: wrong\nsteps:\n  - creat: claim data\n";
    fs::write(&file, text).expect("a file");
    let (file, empty) = (file.to_str().expect("UTF-8"), folder.path().join("empty"));
    fs::create_dir(&empty).expect("a folder");
    let mistake = "wrong.yaml:5: unknown field creat: did you mean create?";
    let fault = folder.path().join("fault.yaml");
    let text = "apiVersion: claimcheck.dev/v1alpha1\nkind: Scenario\nname: f\nsteps:\n  - fault: [rpc/CreateVolume=Unvailable]\n";
    fs::write(&fault, text).expect("a file");
    let fault = fault.to_str().expect("UTF-8");
    for (args, message) in [
        (&["scenario", "check", file][..], mistake),
        (&["run", "--scenario", file], mistake),
        (&["list", "--scenario", file], mistake),
        (&["scenario", "check", fault], "fault.yaml:5: fault: \"Unvailable\" is not supported for"),
        (&["run", "--scenario", fault], "fault.yaml:5: fault: "),
        (&["scenario", "compare", file, "--with", "--nodes 1"], mistake),
        (
            &["scenario", "check", empty.to_str().expect("UTF-8")],
            "there is no scenario: a file ends with .yaml",
        ),
        (&["run", "--set", "a=b"], "--scenario"),
        (&["run", "--with-catalogue"], "--scenario"),
    ] {
        let output = claimcheck(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", printed(&output));
        assert!(printed(&output).contains(message), "{args:?}: {}", printed(&output));
    }
    assert!(!Path::new("runs").exists(), "a run folder was made");
}

#[test]
fn steps_fail_if_what_they_expect_does_not_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/scenarios/steps.yaml");
    let (output, summary) = run(&file, &[], folder.path());
    let text = fs::read_to_string(&file).expect("a file");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("documents");
    let results = summary["results"].as_array().cloned().unwrap_or_default();
    for document in &documents {
        let (name, about) = (&document["name"], document["about"].as_str().expect("a text"));
        let result = results.iter().find(|result| result["name"] == *name).expect("it ran");
        let reason = result["reason"].as_str().unwrap_or_default();
        match name.as_str().is_some_and(|name| name.starts_with("wrong-")) {
            true => assert!(result["result"] == "failed" && reason.contains(about), "{name}: {reason}"),
            false => assert_eq!(result["result"], "passed", "{name}: {reason} {}", printed(&output)),
        }
    }
}

/// The same file on two clusters of one kind is equal; with a fault on one of them it is not.
#[test]
fn two_sides_are_compared_at_their_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("claim.yaml");
    let text = "apiVersion: claimcheck.dev/v1alpha1\nkind: Scenario\nname: claim\nsteps:\n  - create: claim data\n    until: claim data\n    has: { status: { phase: Bound } }\n";
    fs::write(&file, text).expect("a file");
    for (with, code, text) in [
        ("--nodes 1", 0, "1 compared, 0 differ"),
        ("--fault rpc/CreateVolume=Unavailablex1", 1, "Warning ProvisioningFailed"),
    ] {
        let out = folder.path().join(format!("out-{code}"));
        let (file, out) = (file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
        let output = claimcheck(&["scenario", "compare", file, "--with", with, "--out", out]);
        assert_eq!(output.status.code(), Some(code), "{}", printed(&output));
        assert!(printed(&output).contains(text), "{}", printed(&output));
    }
}
