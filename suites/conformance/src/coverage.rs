//! The page `docs/csi-coverage.md`: for each sentence of the specification the cases that check it, or why there is none.

use std::collections::BTreeMap;

use crate::{
    catalogue,
    spec::{self, Note, Sentence, Strength},
};

/// The page, as Markdown.
pub fn coverage() -> String {
    let cases = cases();
    let mut page = String::from(
        "# Coverage of the CSI specification\n\n\
         The sentences of the [CSI specification 1.12.0][1] that bind a driver, and the cases of `claimcheck csi` that check\n\
         them. A violated MUST, SHALL or REQUIRED fails a case; a violated SHOULD is a warning, and with `--strict` fails the\n\
         case. *Kubernetes* marks what the specification does not require, but Kubernetes depends on: a violation fails the\n\
         case. *MAY* marks behaviour that is permitted but notable: it is a warning. `claimcheck csi --explain CASE` explains\n\
         a case.\n\n\
         Sentences that the specification repeats for several calls are listed once, and duties of callers are not listed: a\n\
         driver's duty to reject a request without a required field is in the section Error Scheme, as are the general\n\
         errors. Rows of tables of errors are quoted as `condition: code`.\n\n\
         This page is generated from `suites/conformance/src/spec.rs`, and a test compares it with the code. To update it:\n\
         `CLAIMCHECK_WRITE_COVERAGE=1 cargo test --package claimcheck-conformance coverage`.\n\n\
         [1]: https://github.com/container-storage-interface/spec/blob/v1.12.0/spec.md\n",
    );
    page.push_str("\n| strength | sentences | checked | not checked |\n|---|---:|---:|---:|\n");
    for strength in [Strength::Must, Strength::Should, Strength::May, Strength::Kubernetes] {
        let all = spec::ALL.iter().filter(|rule| rule.strength == strength);
        let sum = all.clone().count();
        let checked = all.filter(|rule| matches!(rule.note, Note::Why(_))).count();
        page.push_str(&format!("| {strength} | {sum} | {checked} | {} |\n", sum - checked));
    }
    let mut section = "";
    for rule in spec::ALL {
        if rule.section != section {
            section = rule.section;
            page.push_str(&format!("\n## [{section}]({})\n\n", rule.link()));
            page.push_str("| strength | sentence | cases |\n|---|---|---|\n");
        }
        let checked = match (cases.get(&key(rule)), rule.note) {
            (Some(names), _) => names.iter().map(|name| cell(name)).collect::<Vec<_>>().join("<br>"),
            (None, Note::Untested(reason)) => format!("*none:* {}", cell(reason)),
            (None, Note::Why(_)) => "*none*".to_owned(),
        };
        page.push_str(&format!("| {} | {} | {checked} |\n", rule.strength, cell(rule.text)));
    }
    page
}

/// What identifies a sentence.
fn key(rule: &Sentence) -> (&'static str, &'static str) {
    (rule.section, rule.text)
}

/// The names of the rows that check each sentence.
fn cases() -> BTreeMap<(&'static str, &'static str), Vec<String>> {
    let mut cases: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for case in catalogue() {
        let name = format!("{}::{}", case.suite, case.row.name);
        for rule in std::iter::once(&case.row.rule).chain(case.row.also) {
            let names = cases.entry(key(rule)).or_default();
            // A row with each access type is two cases.
            if names.last() != Some(&name) {
                names.push(name.clone());
            }
        }
    }
    cases
}

/// Escapes text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, env, fs};

    use super::*;

    /// Set to write the page.
    const WRITE: &str = "CLAIMCHECK_WRITE_COVERAGE";
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/csi-coverage.md");

    #[test]
    fn coverage_page_is_up_to_date() {
        let fresh = coverage();
        if env::var_os(WRITE).is_some() {
            fs::write(PAGE, &fresh).unwrap();
        }
        let page = fs::read_to_string(PAGE).unwrap_or_default();
        for (number, (has, want)) in page.lines().zip(fresh.lines()).enumerate() {
            assert_eq!(has, want, "line {} of docs/csi-coverage.md is stale: run with {WRITE}=1", number + 1);
        }
        assert_eq!(page.len(), fresh.len(), "docs/csi-coverage.md is stale: run with {WRITE}=1");
    }

    #[test]
    fn coverage_of_each_sentence_is_a_case_or_a_reason() {
        let cases = cases();
        let mut seen = BTreeSet::new();
        for rule in spec::ALL {
            assert!(seen.insert(key(rule)), "listed twice: {rule}");
            match (rule.note, cases.get(&key(rule))) {
                (Note::Why(_), None) => panic!("neither a case nor a reason why there is none: {rule}"),
                (Note::Untested(_), Some(cases)) => {
                    panic!("{} checks what counts as untested: {rule}", cases[0])
                }
                (Note::Why(text) | Note::Untested(text), _) => assert!(text.ends_with('.'), "{rule}: {text}"),
            }
            let keyword = ["MUST", "SHALL", "REQUIRED", "must"].iter().any(|word| rule.text.contains(word));
            let should = ["SHOULD", "RECOMMENDED", "should"].iter().any(|word| rule.text.contains(word));
            match rule.strength {
                // Rows of tables of errors have no keyword: the sentence before the table has it.
                Strength::Must => assert!(keyword || rule.text.contains(": ") || !should, "{rule}"),
                Strength::Should => assert!(should, "{rule}"),
                Strength::May | Strength::Kubernetes => {}
            }
        }
    }

    #[test]
    fn links_lead_to_headings() {
        let link = |rule: &Sentence| rule.link().rsplit_once('#').map(|(_, anchor)| anchor.to_owned());
        for (rule, anchor) in [
            (spec::CREATE, "createvolume"),
            (spec::FIELDS, "required-vs-optional"),
            (spec::READY, "the-ready_to_use-parameter"),
            (spec::SNAPSHOTS_READY, "createsnapshot-deletesnapshot-listsnapshots"),
            (spec::ENDPOINT, "csi_endpoint"),
        ] {
            assert_eq!(link(rule).as_deref(), Some(anchor));
        }
    }
}
