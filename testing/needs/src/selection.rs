//! Which tests `ci/test` omits on this machine, and its list at the end of what did not run.

use std::fmt::Write;

use crate::{
    Need,
    scan::{Reason, Test},
};

/// How a script in `ci/` (`ci/not-run`) begins a line about what did not run.
const DID_NOT_RUN: &str = "did not run: ";

/// The names of the tests to omit: those that lack something here, and those that are ignored for another reason.
pub fn omitted(tests: &[Test], missing: impl Fn(Need) -> Option<String>) -> Vec<&str> {
    let is_omitted = |test: &&Test| match &test.ignored {
        None => false,
        Some(Reason::Requires(needs)) => needs.iter().any(|need| missing(*need).is_some()),
        Some(Reason::Other(_)) => true,
    };
    tests.iter().filter(is_omitted).map(|test| test.name.as_str()).collect()
}

/// Checks that what `CLAIMCHECK_REQUIRE` lists is present.
///
/// # Errors
/// All that is missing, a line each; or a word that is not the name of a [`Need`].
pub fn required(list: &str, missing: impl Fn(Need) -> Option<String>) -> Result<(), String> {
    let needs = match list.trim() {
        "" => return Ok(()),
        "all" => Need::ALL.to_vec(),
        list => Need::parse(list)?,
    };
    let lacks = |need: &Need| Some(format!("{} is required, but {}", need.name(), missing(*need)?));
    let lacking: Vec<String> = needs.iter().filter_map(lacks).collect();
    if lacking.is_empty() { Ok(()) } else { Err(lacking.join("\n")) }
}

/// The list at the end of `ci/test`: for each thing that is missing, the tests that did not run; and the lines of scripts
/// in `log` about what did not run.
pub fn summary(tests: &[Test], missing: impl Fn(Need) -> Option<String>, log: &str) -> String {
    let mut text = String::new();
    for need in Need::ALL {
        let requires =
            |test: &&Test| matches!(&test.ignored, Some(Reason::Requires(needs)) if needs.contains(&need));
        let tests: Vec<&Test> = tests.iter().filter(requires).collect();
        let Some(reason) = missing(need).filter(|_| !tests.is_empty()) else { continue };
        let _ = writeln!(text, "{}: {reason}", need.name());
        for test in tests {
            let _ = writeln!(text, "    {}: {}", test.file, test.name);
        }
    }
    let mut lines: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix(DID_NOT_RUN)).collect();
    lines.dedup();
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    match text.is_empty() {
        true => "== Everything ran: this machine has all that tests require\n".to_owned(),
        false => format!("== What did not run, and why\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests() -> Vec<Test> {
        let requires = |needs: &[Need]| Some(Reason::Requires(needs.to_vec()));
        let test = |name: &str, ignored| Test { file: "a.rs".to_owned(), name: name.to_owned(), ignored };
        vec![
            test("always", None),
            test("applies", requires(&[Need::Kubectl])),
            test("mounts", requires(&[Need::Root])),
            test("attaches", requires(&[Need::Root, Need::Loop])),
            test("[requires root]", requires(&[Need::Root])),
            test("matrix", Some(Reason::Other("ci/defects runs it".to_owned()))),
        ]
    }

    fn lacking(needs: &[Need]) -> impl Fn(Need) -> Option<String> {
        move |need| needs.contains(&need).then(|| format!("install {}", need.name()))
    }

    #[test]
    fn tests_that_lack_something_are_omitted_and_listed() {
        use Need::{Kubectl, Loop, Root, Xfs};
        let list = |text: &str| format!("== What did not run, and why\n{text}");
        let everything = "== Everything ran: this machine has all that tests require\n".to_owned();
        let table: [(&[Need], &[&str], String); 5] = [
            (&[], &["matrix"], everything.clone()),
            // No test requires it.
            (&[Xfs], &["matrix"], everything),
            (&[Kubectl], &["applies", "matrix"], list("kubectl: install kubectl\n    a.rs: applies\n")),
            (&[Loop], &["attaches", "matrix"], list("loop: install loop\n    a.rs: attaches\n")),
            (
                &[Root, Loop],
                &["mounts", "attaches", "[requires root]", "matrix"],
                list(concat!(
                    "root: install root\n    a.rs: mounts\n    a.rs: attaches\n    a.rs: [requires root]\n",
                    "loop: install loop\n    a.rs: attaches\n",
                )),
            ),
        ];
        for (missing, names, text) in table {
            assert_eq!(omitted(&tests(), lacking(missing)), names, "{missing:?}");
            assert_eq!(summary(&tests(), lacking(missing), ""), text, "{missing:?}");
        }
    }

    #[test]
    fn lines_of_scripts_are_listed() {
        let log =
            "== ci/kind quick\ndid not run: the cases on kind: kind is not in the PATH\nok: did not run: x\n";
        let text = summary(&tests(), lacking(&[]), log);
        assert_eq!(text, "== What did not run, and why\nthe cases on kind: kind is not in the PATH\n");
    }

    #[test]
    fn what_is_required_and_missing_is_an_error() {
        let missing = lacking(&[Need::Kubectl, Need::Npm]);
        let kubectl = "kubectl is required, but install kubectl";
        let both = format!("{kubectl}\nnpm is required, but install npm");
        for (list, expected) in
            [("", Ok(())), ("root,loop", Ok(())), ("root, kubectl", Err(kubectl)), ("all", Err(&*both))]
        {
            assert_eq!(required(list, &missing), expected.map_err(str::to_owned), "{list:?}");
        }
        assert!(required("root,kubctl", &missing).unwrap_err().starts_with("\"kubctl\" is not"));
    }
}
