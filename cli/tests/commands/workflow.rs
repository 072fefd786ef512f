//! `.github/workflows`, as far as they can be tried without GitHub: they are YAML of a workflow's shape, and the
//! commands, paths and variables that `e2e.yaml` names are there.

use std::path::Path;

use clap::CommandFactory;
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace")
}

fn workflow() -> Value {
    let text = std::fs::read_to_string(root().join(".github/workflows/e2e.yaml")).expect("the workflow");
    serde_saphyr::from_str(&text).expect("YAML")
}

fn steps(workflow: &Value) -> &[Value] {
    workflow["jobs"]["kind"]["steps"].as_array().expect("a job with steps")
}

fn commands(workflow: &Value) -> Vec<&str> {
    steps(workflow).iter().filter_map(|step| step["run"].as_str()).flat_map(str::lines).collect()
}

/// A moving branch is no version of an action.
fn is_pinned(action: &str) -> bool {
    action.split_once('@').is_some_and(|(_, version)| version.starts_with('v'))
}

#[test]
fn workflows_pin_actions_and_run_scripts_that_exist() {
    let folder = std::fs::read_dir(root().join(".github/workflows")).expect("the workflows");
    let mut names = Vec::new();
    for file in folder.map(|entry| entry.expect("an entry").path()) {
        let text = std::fs::read_to_string(&file).expect("text");
        let workflow: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert!(workflow["permissions"].is_object() && workflow["on"].is_object(), "{}", file.display());
        for job in workflow["jobs"].as_object().expect("jobs").values() {
            for step in job["steps"].as_array().expect("a job with steps") {
                assert!(step["uses"].is_string() != step["run"].is_string(), "{step}");
                assert!(step["uses"].as_str().is_none_or(is_pinned), "{step}");
                let commands = step["run"].as_str().into_iter().flat_map(str::lines);
                let scripts =
                    commands.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("ci/")));
                for script in scripts {
                    assert!(root().join(script).exists(), "{}: {script}", file.display());
                }
            }
        }
        names.push(file.file_name().expect("a name").to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["e2e.yaml", "release.yaml", "test.yaml"]);
}

#[test]
fn every_step_does_one_thing() {
    let workflow = workflow();
    assert!(workflow["on"].get("pull_request").is_some());
    assert_eq!(workflow["permissions"], serde_json::json!({ "contents": "read" }));
    let versions = workflow["jobs"]["kind"]["strategy"]["matrix"]["kubernetes"].as_array().expect("a matrix");
    assert!(
        versions.len() > 1
            && versions.iter().all(|version| version.as_str().is_some_and(|v| v.starts_with("v1.")))
    );
}

#[test]
fn the_commands_exist() {
    let workflow = workflow();
    let tests: Vec<&str> =
        commands(&workflow).into_iter().filter(|line| line.starts_with("cargo ")).collect();
    let required = "cargo run --locked --package claimcheck-needs -- required";
    assert_eq!(
        tests,
        [required, "cargo test --locked --test e2e --no-run", "cargo test --locked --test e2e"]
    );
    assert!(root().join("suites/run/tests/e2e.rs").exists());
    for line in commands(&workflow) {
        let program = line.split_whitespace().next().unwrap_or_default();
        assert!(["cargo", "go", "echo"].contains(&program) || root().join(program).exists(), "{line}");
    }
}

#[test]
fn the_paths_exist() {
    let workflow = workflow();
    let caching = steps(&workflow).iter().find(|step| step["with"]["key"].is_string()).expect("a cache");
    let key = caching["with"]["key"].as_str().expect("text");
    let hashed: Vec<&str> = key.split('\'').skip(1).step_by(2).collect();
    assert!(!hashed.is_empty());
    for file in hashed {
        assert!(root().join(file).exists(), "{file}");
    }
    // Where `suites/run/tests/e2e.rs` makes run folders.
    let kept: Vec<&str> = steps(&workflow)
        .iter()
        .filter(|step| {
            step["uses"].as_str().is_some_and(|action| action.starts_with("actions/upload-artifact@"))
        })
        .flat_map(|step| step["with"]["path"].as_str().expect("paths").lines())
        .collect();
    assert_eq!(kept, ["target/tmp", "!target/tmp/**/kubeconfig", "target/tmp/**/junit.xml"]);
    let folders = Path::new(env!("CARGO_TARGET_TMPDIR"));
    assert!(folders.ends_with("tmp"), "{}", folders.display());
}

#[test]
fn the_variables_are_those_of_claimcheck() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        _place: claimcheck_run::ClusterArgs,
    }
    let command = Line::command();
    let workflow = workflow();
    let matrix = &workflow["jobs"]["kind"]["strategy"]["matrix"];
    let given = workflow["jobs"]["kind"]["env"].as_object().expect("variables");
    for (name, value) in given {
        let argument = command.get_arguments().find(|a| a.get_env().is_some_and(|env| env == name.as_str()));
        let argument = argument.unwrap_or_else(|| panic!("no argument reads {name}"));
        let text = value.as_str().expect("text");
        let values: Vec<&str> =
            match text.strip_prefix("${{ matrix.").and_then(|rest| rest.strip_suffix(" }}")) {
                // Each value of the matrix, and of what it includes.
                Some(key) => {
                    let of_matrix = matrix[key].as_array().expect("a list of the matrix").iter();
                    let included = matrix["include"].as_array().into_iter().flatten().map(|one| &one[key]);
                    of_matrix.chain(included).filter_map(Value::as_str).collect()
                }
                None => vec![text],
            };
        let possible = argument.get_possible_values();
        let fits = |value: &&str| possible.is_empty() || possible.iter().any(|one| one.matches(value, false));
        assert!(values.iter().all(fits), "{name}: {values:?}");
    }
}
