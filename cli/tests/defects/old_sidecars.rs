//! Old versions of kubernetes-csi's sidecars have bugs that were fixed since: the cases that `ci/old-sidecars.yaml` names find
//! them, and pass with the newest version.

use std::{env, fs};

use claimcheck_saboteur::row::is_case;
use claimcheck_suites::catalogue;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{cases_with, findings, missed, run_cluster, several_at_a_time};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// How long a step of a case may take with an old version: cases wait for what does not happen, but sidecars retry late.
const OLD: &str = "40s";
/// The same with the newest version, which passes.
const NEWEST: &str = "240s";

/// An old version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sidecar {
    /// The repository of kubernetes-csi.
    repository: String,
    /// The name of the program.
    program: String,
    /// The version.
    tag: String,
    /// The arguments of the program.
    arguments: String,
    /// What was fixed since.
    bugs: Vec<Bug>,
}

/// A bug.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    /// What it does, in one sentence.
    does: String,
    /// What fixed it.
    pull_request: String,
    /// The first version without it.
    fixed: String,
    /// The cases that must fail.
    fails: Vec<String>,
    /// Words that the message of one of them contains.
    message: String,
}

impl Sidecar {
    fn name(&self) -> String {
        format!("{} {}", self.program, self.tag)
    }

    fn cases(&self) -> Vec<&str> {
        self.bugs.iter().flat_map(|bug| &bug.fails).map(String::as_str).collect()
    }

    /// The summary of a run of its cases with a program in place of the built-in sidecar.
    fn run(&self, program: &str, step: &str) -> Value {
        let name = self.program.trim_start_matches("csi-");
        let sidecar = format!("{name}=exec:{program} {}", self.arguments);
        run_cluster(&["--sidecar", &sidecar], &self.cases(), step).summary
    }

    /// The bugs that the cases do not find.
    fn missed(&self) -> Vec<String> {
        let program = format!("{}/{}-{}", folder("CLAIMCHECK_OLD_SIDECARS"), self.program, self.tag);
        let found = findings(&self.run(&program, OLD));
        let missed = |bug: &Bug| {
            let name = format!("{}: {}", self.name(), bug.does);
            let defect =
                json!({ "name": name, "does": bug.does, "fails": bug.fails, "message": bug.message });
            let missed = missed(&serde_json::from_value(defect).unwrap(), &found, &[])?;
            Some(format!("{name} {missed}"))
        };
        self.bugs.iter().filter_map(missed).collect()
    }

    /// The cases that do not pass with the newest version.
    fn fails_with_newest(&self) -> Vec<String> {
        let program = format!("{}/{}", folder("CLAIMCHECK_STOCK_SIDECARS"), self.program);
        let summary = self.run(&program, NEWEST);
        let passed = cases_with(&summary, "passed");
        let found = findings(&summary);
        let fails = |case: &&str| {
            !passed.iter().any(|id| is_case(case, id)) || found.iter().any(|found| is_case(case, &found.case))
        };
        self.cases().into_iter().filter(fails).map(|case| format!("{program}: {case}: {found:?}")).collect()
    }
}

fn sidecars() -> Vec<Sidecar> {
    serde_saphyr::from_str(&fs::read_to_string(format!("{ROOT}/ci/old-sidecars.yaml")).unwrap()).unwrap()
}

fn folder(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run ci/old-sidecars"))
}

#[test]
#[ignore = "ci/old-sidecars runs it"]
fn each_bug_is_found_and_fixed_in_the_newest_version() {
    claimcheck_needs::require("sidecars");
    let wrong = several_at_a_time(&sidecars(), |sidecar| {
        let wrong = [sidecar.missed(), sidecar.fails_with_newest()].concat();
        println!("{}: {} bugs, {} wrong", sidecar.name(), sidecar.bugs.len(), wrong.len());
        Some(wrong)
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bugs_of_old_sidecars_are_on_the_page_with_cases_that_exist() {
    let page = fs::read_to_string(format!("{ROOT}/docs/vendors/sidecars.md")).unwrap();
    let cases = catalogue();
    let known: Vec<String> = cases.iter().map(|case| claimcheck_engine::Case::id(case).to_string()).collect();
    for sidecar in sidecars() {
        for Bug { does, pull_request, fixed, fails, .. } in &sidecar.bugs {
            let cases: Vec<String> = fails.iter().map(|id| format!("`{id}`")).collect();
            let name = sidecar.name();
            let line = format!("| {name} | {does} | {pull_request} | {fixed} | {} |", cases.join(", "));
            assert!(page.contains(&line), "the page does not contain {line:?}");
            assert!(pull_request.starts_with(&format!("{}#", sidecar.repository)), "{pull_request}");
            let unknown = fails.iter().find(|id| !known.iter().any(|case| is_case(id, case)));
            assert_eq!(unknown, None, "there is no such case");
        }
    }
}
