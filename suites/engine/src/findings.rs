//! `--expect FILE`: compares the known findings about a driver with the results of a run.
//!
//! The format is documented in `ci/findings`. A case that fails and is not listed is a new finding; a listed case that
//! does not fail means that the list is outdated.

use std::{fmt, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

/// The known findings about one version of a driver.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "documentation fields are parsed so that their names are validated")]
struct Known {
    driver: String,
    version: String,
    source: String,
    #[serde(default)]
    run: Vec<String>,
    #[serde(default)]
    passed: u64,
    #[serde(default)]
    skipped: Vec<String>,
    findings: Option<Vec<Finding>>,
    #[serde(default, alias = "left")]
    leaked: Vec<Leaked>,
    csi: Option<Calls>,
}

/// The known findings of `claimcheck csi`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "documentation fields are parsed so that their names are validated")]
struct Calls {
    run: Vec<String>,
    passed: u64,
    skipped: u64,
    findings: Vec<Finding>,
}

/// A defect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finding {
    /// A substring of the name of the case that finds it.
    case: String,
    /// Its description in one sentence.
    defect: String,
    /// Whether it is a race that does not show in every run.
    #[serde(default, alias = "sometimes")]
    flaky: bool,
}

/// A leak, or a violation of the call order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Leaked {
    /// A substring of the run's description of it: kind, name or case.
    what: String,
    /// Its description in one sentence.
    defect: String,
}

/// The part of a file that a run is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `claimcheck run`: `findings` and `leaked`.
    Cluster,
    /// `claimcheck csi`: `csi.findings`.
    Calls,
}

/// What a run found, as a first list for `--expect`.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The name that GetPluginInfo returns.
    pub driver: &'a str,
    /// The number of passed cases.
    pub passed: u64,
    /// The number of skipped cases.
    pub skipped: u64,
    /// The failed cases, and why.
    pub failed: Vec<(String, String)>,
    /// Parts of the descriptions of leaks and violations, which do not differ from run to run.
    pub leaked: Vec<String>,
}

impl Draft<'_> {
    /// The file for this level. The run's arguments are not known to be free of secrets, and are left to the author, as are
    /// the driver's version and source.
    pub fn yaml(&self, level: Level) -> String {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let indent = match level {
            Level::Cluster => "",
            Level::Calls => "  ",
        };
        let list = |name: &str, key: &str, entries: &[(&str, &str)]| -> String {
            let entry = |(what, defect): &(&str, &str)| {
                format!("{indent}  - {key}: {}\n{indent}    defect: {}\n", text(what), text(defect))
            };
            match entries.is_empty() {
                true => format!("{indent}{name}: []\n"),
                false => format!("{indent}{name}:\n{}", entries.iter().map(entry).collect::<String>()),
            }
        };
        let failed: Vec<(&str, &str)> =
            self.failed.iter().map(|(case, reason)| (case.as_str(), first_line(reason))).collect();
        let findings = list("findings", "case", &failed);
        let header = format!(
            "# Findings of a run: check each, and replace the text of `defect` by one sentence about the driver.\n\
             driver: {}\nversion: unknown\nsource: unknown\n",
            text(self.driver)
        );
        let counts = format!("{indent}run: []\n{indent}passed: {}\n", self.passed);
        match level {
            Level::Cluster => {
                let leaked: Vec<(&str, &str)> =
                    self.leaked.iter().map(|what| (what.as_str(), "unknown")).collect();
                header + &counts + &findings + &list("leaked", "what", &leaked)
            }
            Level::Calls => format!("{header}csi:\n{counts}{indent}skipped: {}\n{findings}", self.skipped),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The exact set of findings that a run must have.
#[derive(Debug)]
pub struct Expected {
    findings: Vec<Finding>,
    leaked: Vec<Leaked>,
    /// Whether the run is one of some cases only.
    is_of_part: bool,
}

impl Expected {
    /// The findings that a run of the cases of a filter must have: those that are listed for its cases.
    #[must_use]
    pub fn of_part(self) -> Self {
        Self { is_of_part: true, ..self }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or parsed, or has no entry for this level.
    pub fn read(path: &Path, level: Level) -> Result<Self> {
        let yaml =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&yaml, level).with_context(|| format!("{} is not a list of findings", path.display()))
    }

    fn parse(yaml: &str, level: Level) -> Result<Self> {
        let known: Known = serde_saphyr::from_str(yaml)?;
        match level {
            Level::Cluster => {
                let findings = known.findings.context("it has no `findings`")?;
                Ok(Self { findings, leaked: known.leaked, is_of_part: false })
            }
            Level::Calls => {
                let findings = known.csi.context("it has no `csi`")?.findings;
                Ok(Self { findings, leaked: Vec::new(), is_of_part: false })
            }
        }
    }

    /// Compares a run with the list: the names of its failed cases, of its others with the reason why a case was skipped,
    /// and descriptions of its leaks and violations.
    pub fn compare(
        &self,
        failed: &[String],
        others: &[(String, Option<String>)],
        leaked: Vec<String>,
    ) -> Difference {
        let missed = |known: &Finding| {
            let Finding { case, defect, .. } = known;
            match others.iter().find(|(other, _)| other.contains(case)) {
                Some((_, Some(reason))) => Some(format!("was skipped: {case} ({defect}): {reason}")),
                Some((_, None)) => Some(format!("did not fail: {case} ({defect})")),
                None if self.is_of_part => None,
                None => Some(format!("is no case of the run: {case} ({defect})")),
            }
        };
        let unexpected =
            failed.iter().filter(|case| !self.findings.iter().any(|known| case.contains(&known.case)));
        let missing =
            self.findings.iter().filter(|it| !it.flaky && !failed.iter().any(|case| case.contains(&it.case)));
        // The case that leaks may be of those that did not run.
        let not_leaked = self.leaked.iter().filter(|_| !self.is_of_part);
        let not_leaked = not_leaked.filter(|known| !leaked.iter().any(|it| it.contains(&known.what)));
        let not_leaked = not_leaked.map(|known| format!("{} ({})", known.what, known.defect)).collect();
        let is_listed = |it: &String| self.leaked.iter().any(|known| it.contains(&known.what));
        let leaked = leaked.into_iter().filter(|it| !is_listed(it));
        Difference {
            unexpected: unexpected.cloned().collect(),
            missing: missing.filter_map(missed).collect(),
            leaked: leaked.collect(),
            not_leaked,
        }
    }
}

/// The differences between the findings of a run and the list.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    unexpected: Vec<String>,
    missing: Vec<String>,
    /// Leaks and violations that are not listed.
    leaked: Vec<String>,
    /// Listed leaks and violations that did not occur.
    not_leaked: Vec<String>,
}

impl Difference {
    fn is_none(&self) -> bool {
        [&self.unexpected, &self.missing, &self.leaked, &self.not_leaked].iter().all(|list| list.is_empty())
    }

    /// 0 if there are no differences, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.is_none())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("the findings match the expected ones");
        }
        f.write_str("the findings differ from the expected ones")?;
        self.unexpected.iter().try_for_each(|case| write!(f, "\n  failed but not listed: {case}"))?;
        self.missing.iter().try_for_each(|case| write!(f, "\n  listed but {case}"))?;
        self.leaked.iter().try_for_each(|what| write!(f, "\n  not listed as `leaked`: {what}"))?;
        let not_leaked = &self.not_leaked;
        not_leaked.iter().try_for_each(|what| write!(f, "\n  listed as `leaked` but did not occur: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "{driver: d, version: v1, source: s, run: [], passed: 1, skipped: [], findings: [], \
        csi: {run: [], passed: 1, skipped: 0, findings: [{case: 'list::pages', defect: it stops}]}}";

    fn compare(expected: &Expected, failed: &[&str], leaked: &[&str]) -> Difference {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        expected.compare(&owned(failed), &[], owned(leaked))
    }

    #[test]
    fn unexpected_and_missing_ones_are_named() {
        let calls = Expected::parse(FILE, Level::Calls).unwrap();
        let same = compare(&calls, &["list::pages of one"], &[]);
        assert_eq!((same.exit_code(), same.missing.len()), (0, 0));
        let other = compare(&calls, &["list::tokens"], &[]);
        assert_eq!(other.exit_code(), 1);
        let text = other.to_string();
        assert!(
            text.contains("not listed: list::tokens") && text.contains("list::pages (it stops)"),
            "{text}"
        );
        assert!(text.contains("listed but is no case of the run: list::pages (it stops)"), "{text}");
        for (reason, words) in [
            (Some("needs LIST".to_owned()), "listed but was skipped: list::pages (it stops): needs LIST"),
            (None, "listed but did not fail: list::pages (it stops)"),
        ] {
            let others = [("list::pages of one".to_owned(), reason)];
            let text = calls.compare(&[], &others, Vec::new()).to_string();
            assert!(text.contains(words), "{text}");
        }
        let cluster = Expected::parse(FILE, Level::Cluster).unwrap();
        assert_eq!(compare(&cluster, &[], &[]).exit_code(), 0);
        assert_eq!(compare(&cluster, &["list::pages"], &[]).unexpected, ["list::pages"]);
    }

    #[test]
    fn findings_of_cases_that_a_filter_excludes_are_not_missing() {
        let leaked = "findings: [{case: 'list::pages', defect: it stops}], leaked: [{what: attach_twice, defect: it forgets}],";
        let part =
            Expected::parse(&FILE.replacen("findings: [],", leaked, 1), Level::Cluster).unwrap().of_part();
        assert_eq!(compare(&part, &[], &[]).exit_code(), 0);
        let passed = [("list::pages of one".to_owned(), None)];
        let text = part.compare(&[], &passed, Vec::new()).to_string();
        assert!(text.contains("listed but did not fail: list::pages (it stops)"), "{text}");
        assert_eq!(compare(&part, &["list::tokens"], &[]).unexpected, ["list::tokens"]);
    }

    #[test]
    fn a_draft_is_the_list_of_its_run() {
        let draft = Draft {
            driver: "d.example.com",
            passed: 3,
            skipped: 2,
            failed: vec![("list::\"pages\": [block]".into(), "it stops\nhere".into())],
            leaked: vec!["left behind by list::pages: pod".into()],
        };
        for level in [Level::Cluster, Level::Calls] {
            let expected = Expected::parse(&draft.yaml(level), level).unwrap();
            assert_eq!(expected.findings[0].defect, "it stops");
            let leaks: &[&str] = match level {
                Level::Cluster => &["left behind by list::pages: pod cc-1234"],
                Level::Calls => &[],
            };
            let same = compare(&expected, &["list::\"pages\": [block]"], leaks);
            assert_eq!(same.exit_code(), 0, "{same}");
        }
        let none = Draft { failed: Vec::new(), leaked: Vec::new(), ..draft };
        for level in [Level::Cluster, Level::Calls] {
            let expected = Expected::parse(&none.yaml(level), level).unwrap();
            assert_eq!(compare(&expected, &[], &[]).exit_code(), 0);
        }
    }

    #[test]
    fn a_race_need_not_show() {
        let file = FILE.replace("defect: it stops", "flaky: true, defect: it stops");
        let calls = Expected::parse(&file, Level::Calls).unwrap();
        assert_eq!(compare(&calls, &[], &[]).exit_code(), 0);
        assert_eq!(compare(&calls, &["list::pages of one"], &[]).exit_code(), 0);
    }

    #[test]
    fn names_of_earlier_versions_are_read() {
        let file = FILE
            .replace("defect: it stops", "sometimes: true, defect: it stops")
            .replace("findings: [],", "findings: [], left: [{what: attach_twice, defect: it forgets}],");
        assert!(Expected::parse(&file, Level::Calls).unwrap().findings[0].flaky);
        assert_eq!(Expected::parse(&file, Level::Cluster).unwrap().leaked[0].what, "attach_twice");
    }

    #[test]
    fn leaks_are_listed_separately() {
        let leaks = ["out of order: attach_twice 1 times"];
        let news = compare(&Expected::parse(FILE, Level::Cluster).unwrap(), &[], &leaks);
        assert_eq!(news.exit_code(), 1);
        assert!(news.to_string().contains("not listed as `leaked`: out of order: attach_twice"), "{news}");
        let leaked = "findings: [], leaked: [{what: attach_twice, defect: it forgets}],";
        let listed = FILE.replace("findings: [],", leaked);
        let expected = Expected::parse(&listed, Level::Cluster).unwrap();
        assert_eq!(compare(&expected, &[], &leaks).exit_code(), 0);
        let deleted = compare(&expected, &[], &[]);
        assert_eq!(deleted.exit_code(), 1);
        assert!(deleted.to_string().contains("but did not occur: attach_twice (it forgets)"), "{deleted}");
    }

    #[test]
    fn the_lists_of_the_project_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/findings");
        let mut lists = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                Expected::read(&path, Level::Calls).unwrap();
                lists += 1;
            }
        }
        assert!(lists >= 5, "{lists}");
        Expected::parse("{driver: d, finding: []}", Level::Cluster).unwrap_err();
    }
}
