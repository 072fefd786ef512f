//! What the commands print in JSON is valid by the schemas of the book, and what it is not they refuse.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use boon::{Compiler, Schemas};
use serde_json::Value;

const CASES: [&str; 2] = [
    "snapshottable::a snapshot of a volume in use",
    "retries::CreateVolume is retried after failure, and the PVC gets event ProvisioningFailed",
];

/// Checks a document with the schema of this name.
fn validate(name: &str, document: &Value) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/reference/schemas/{name}.json"));
    let schema = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    let schema = serde_json::from_slice(&schema).map_err(|error| error.to_string())?;
    compiler.add_resource(name, schema).map_err(|error| error.to_string())?;
    let schema = compiler.compile(name, &mut schemas).map_err(|error| error.to_string())?;
    schemas.validate(document, schema).map_err(|error| format!("{name}: {error:#}"))
}

fn claimcheck(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.args(args).env("XDG_STATE_HOME", home).current_dir(home);
    command.env_remove("CLAIMCHECK_NO_HISTORY").env_remove("CLAIMCHECK_HISTORY");
    command.output().expect("the binary runs")
}

/// Each value that a command prints, or writes to a file: JSON, or JSON lines.
fn documents(text: &[u8]) -> Vec<Value> {
    serde_json::Deserializer::from_slice(text).into_iter().collect::<Result<_, _>>().expect("JSON")
}

fn assert_valid(name: &str, text: &[u8]) -> Vec<Value> {
    let documents = documents(text);
    assert!(!documents.is_empty(), "{name}: no document");
    for document in &documents {
        validate(name, document).unwrap_or_else(|error| panic!("{error}\n{document}"));
    }
    documents
}

#[test]
fn outputs_are_valid_by_their_schemas() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    for run in ["a", "b"] {
        let output = claimcheck(home, &[&["run", "--out", run], &CASES[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let load = claimcheck(home, &["load", "--volumes", "3", "--out", "load"]);
    assert_eq!(load.status.code(), Some(0), "{}", String::from_utf8_lossy(&load.stderr));
    let driver = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}}",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let csi = claimcheck(home, &["csi", "--driver", &driver, "--format", "json", "--out", "csi", "identity"]);
    assert_valid("summary", &csi.stdout);
    for run in ["a", "load", "csi"] {
        let file = |name| fs::read(home.join(run).join(name)).expect("an output of the run");
        let summary = assert_valid("summary", &file("summary.json")).remove(0);
        let mut unfinished = summary;
        unfinished.as_object_mut().expect("an object").remove("phases");
        assert!(validate("summary", &unfinished).is_err(), "a summary has phases");
        let events = assert_valid("event", &file("events.ndjson"));
        let started = events.iter().find(|event| event["event"] == "run_started").expect("a start");
        assert!(started["schema"].is_u64(), "{started}");
    }
    let printed = |args: &[&str]| claimcheck(home, args).stdout;
    assert_valid("comparison", &printed(&["compare", "a", "b", "--format", "json"]));
    assert_valid("history", &printed(&["history", "--format", "json"]));
    assert_valid("history", &printed(&["history", "provision", "--format", "json"]));
    assert_valid("cases", &printed(&["list", "--format", "json"]));
    assert_valid("csi-cases", &printed(&["csi", "--list", "--format", "json"]));
}
