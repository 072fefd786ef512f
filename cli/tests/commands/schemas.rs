//! What the commands print in JSON is valid by the schemas of the book, and what it is not they refuse.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

const CASES: [&str; 2] = [
    "snapshottable::a snapshot of a volume in use",
    "retries::CreateVolume is retried after failure, and the PVC gets event ProvisioningFailed",
];

/// A schema of the book.
struct Schema {
    name: &'static str,
    compiled: Schemas,
    root: SchemaIndex,
}

impl Schema {
    fn read(name: &'static str) -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/reference/schemas/{name}.json"));
        let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut compiler, mut compiled) = (Compiler::new(), Schemas::new());
        compiler.add_resource(name, serde_json::from_slice(&text).expect("JSON")).expect("a resource");
        let root = compiler.compile(name, &mut compiled).expect("a schema");
        Self { name, compiled, root }
    }

    fn validate(&self, document: &Value) -> Result<(), String> {
        let valid = self.compiled.validate(document, self.root);
        valid.map_err(|error| format!("{}: {error:#}", self.name))
    }

    /// The documents in this text, each of which is valid: JSON, or JSON lines.
    fn assert_valid(&self, text: &[u8]) -> Vec<Value> {
        let read = serde_json::Deserializer::from_slice(text).into_iter().collect::<Result<_, _>>();
        let documents: Vec<Value> = read.expect("JSON");
        assert!(!documents.is_empty(), "{}: no document", self.name);
        for document in &documents {
            self.validate(document).unwrap_or_else(|error| panic!("{error}\n{document}"));
        }
        documents
    }
}

fn claimcheck(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.args(args).env("XDG_STATE_HOME", home).current_dir(home);
    command.env_remove("CLAIMCHECK_NO_HISTORY").env_remove("CLAIMCHECK_HISTORY");
    command.output().expect("the binary runs")
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
    let (summary_schema, event_schema) = (Schema::read("summary"), Schema::read("event"));
    let csi = claimcheck(home, &["csi", "--driver", &driver, "--format", "json", "--out", "csi", "identity"]);
    summary_schema.assert_valid(&csi.stdout);
    for run in ["a", "load", "csi"] {
        let file = |name| fs::read(home.join(run).join(name)).expect("an output of the run");
        let summary = summary_schema.assert_valid(&file("summary.json")).remove(0);
        let mut unfinished = summary;
        unfinished.as_object_mut().expect("an object").remove("phases");
        assert!(summary_schema.validate(&unfinished).is_err(), "a summary has phases");
        let events = event_schema.assert_valid(&file("events.ndjson"));
        let started = events.iter().find(|event| event["event"] == "run_started").expect("a start");
        assert!(started["schema"].is_u64(), "{started}");
    }
    let printed = |args: &[&str]| claimcheck(home, args).stdout;
    Schema::read("comparison").assert_valid(&printed(&["compare", "a", "b", "--format", "json"]));
    Schema::read("history").assert_valid(&printed(&["history", "--format", "json"]));
    Schema::read("history").assert_valid(&printed(&["history", "provision", "--format", "json"]));
    Schema::read("cases").assert_valid(&printed(&["list", "--format", "json"]));
    Schema::read("csi-cases").assert_valid(&printed(&["csi", "--list", "--format", "json"]));
}
