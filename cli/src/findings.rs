//! `--expect FILE`: compares the known findings about a driver with the results of a run.
//!
//! The format is documented in `ci/findings`. A case that fails and is not listed is a new finding; a listed case that
//! does not fail means that the list is outdated.

use std::{fmt, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_model::CaseResult;
use claimcheck_report::Summary;
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
    #[serde(default)]
    left: Vec<Left>,
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
    #[serde(default)]
    sometimes: bool,
}

/// A leak, or a violation of the call order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Left {
    /// A substring of the run's description of it: kind, name or case.
    what: String,
    /// Its description in one sentence.
    defect: String,
}

/// The part of a file that a run is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `claimcheck run`: `findings` and `left`.
    Cluster,
    /// `claimcheck csi`: `csi.findings`.
    Calls,
}

/// The exact set of findings that a run must have.
#[derive(Debug)]
pub struct Expected {
    findings: Vec<Finding>,
    left: Vec<Left>,
}

impl Expected {
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
                Ok(Self { findings, left: known.left })
            }
            Level::Calls => {
                let findings = known.csi.context("it has no `csi`")?.findings;
                Ok(Self { findings, left: Vec::new() })
            }
        }
    }

    /// Compares a run with the list.
    pub fn compare(&self, summary: &Summary) -> Difference {
        let failed: Vec<String> = summary
            .results
            .iter()
            .filter(|line| matches!(line.result, CaseResult::Failed { .. }))
            .map(|line| line.case.to_string())
            .collect();
        let unexpected =
            failed.iter().filter(|case| !self.findings.iter().any(|known| case.contains(&known.case)));
        let missing = self
            .findings
            .iter()
            .filter(|it| !it.sometimes && !failed.iter().any(|case| case.contains(&it.case)));
        let left = left_of(summary);
        let not_left = self.left.iter().filter(|known| !left.iter().any(|it| it.contains(&known.what)));
        let not_left = not_left.map(|known| format!("{} ({})", known.what, known.defect)).collect();
        let left = left.into_iter().filter(|it| !self.left.iter().any(|known| it.contains(&known.what)));
        Difference {
            unexpected: unexpected.cloned().collect(),
            missing: missing.map(|known| format!("{} ({})", known.case, known.defect)).collect(),
            left: left.collect(),
            not_left,
        }
    }
}

/// Describes the leaks and violations of a run.
fn left_of(summary: &Summary) -> Vec<String> {
    let leaks = summary.leaks.iter().map(|leak| {
        let by_case = leak.case.as_ref().map(|case| format!(" by {case}")).unwrap_or_default();
        format!("left behind{by_case}: {} {}", leak.kind.name(), leak.name)
    });
    let violations =
        summary.violations.iter().map(|(rule, times)| format!("out of order: {} {times} times", rule.name()));
    leaks.chain(violations).collect()
}

/// The differences between the findings of a run and the list.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    unexpected: Vec<String>,
    missing: Vec<String>,
    /// Leaks and violations that are not listed.
    left: Vec<String>,
    /// Listed leaks and violations that did not occur.
    not_left: Vec<String>,
}

impl Difference {
    fn is_none(&self) -> bool {
        [&self.unexpected, &self.missing, &self.left, &self.not_left].iter().all(|list| list.is_empty())
    }

    /// 0 if there are no differences, else 1.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(!self.is_none()))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("the findings match the expected ones");
        }
        f.write_str("the findings differ from the expected ones")?;
        self.unexpected.iter().try_for_each(|case| write!(f, "\n  failed but not listed: {case}"))?;
        self.missing.iter().try_for_each(|case| write!(f, "\n  listed but did not fail: {case}"))?;
        self.left.iter().try_for_each(|what| write!(f, "\n  not listed as `left`: {what}"))?;
        self.not_left.iter().try_for_each(|what| write!(f, "\n  listed as `left` but did not occur: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CaseId;
    use claimcheck_report::CaseLine;

    use super::*;

    const FILE: &str = "{driver: d, version: v1, source: s, run: [], passed: 1, skipped: [], findings: [], \
        csi: {run: [], passed: 1, skipped: 0, findings: [{case: 'list::pages', defect: it stops}]}}";

    fn summary(failed: &[&str]) -> Summary {
        let line = |name: &&str| CaseLine {
            case: CaseId::new("list", *name),
            result: CaseResult::Failed { why: "it did".to_owned() },
            seconds: 0.0,
        };
        Summary { results: failed.iter().map(line).collect(), ..Summary::default() }
    }

    #[test]
    fn unexpected_and_missing_ones_are_named() {
        let calls = Expected::parse(FILE, Level::Calls).unwrap();
        let same = calls.compare(&summary(&["pages of one"]));
        assert_eq!((same.exit_code(), same.missing.len()), (ExitCode::SUCCESS, 0));
        let other = calls.compare(&summary(&["tokens"]));
        assert_eq!(other.exit_code(), ExitCode::from(1));
        let text = other.to_string();
        assert!(
            text.contains("not listed: list::tokens") && text.contains("list::pages (it stops)"),
            "{text}"
        );
        let cluster = Expected::parse(FILE, Level::Cluster).unwrap();
        assert_eq!(cluster.compare(&summary(&[])).exit_code(), ExitCode::SUCCESS);
        assert_eq!(cluster.compare(&summary(&["pages"])).unexpected, ["list::pages"]);
    }

    #[test]
    fn a_race_need_not_show() {
        let file = FILE.replace("defect: it stops", "sometimes: true, defect: it stops");
        let calls = Expected::parse(&file, Level::Calls).unwrap();
        assert_eq!(calls.compare(&summary(&[])).exit_code(), ExitCode::SUCCESS);
        assert_eq!(calls.compare(&summary(&["pages of one"])).exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn leftovers_are_listed_separately() {
        let mut summary = summary(&[]);
        summary.violations.insert(claimcheck_model::Rule::AttachTwice, 1);
        let news = Expected::parse(FILE, Level::Cluster).unwrap().compare(&summary);
        assert_eq!(news.exit_code(), ExitCode::from(1));
        assert!(news.to_string().contains("not listed as `left`: out of order: attach_twice"), "{news}");
        let listed =
            FILE.replace("findings: [],", "findings: [], left: [{what: attach_twice, defect: it forgets}],");
        let expected = Expected::parse(&listed, Level::Cluster).unwrap();
        assert_eq!(expected.compare(&summary).exit_code(), ExitCode::SUCCESS);
        summary.violations.clear();
        let gone = expected.compare(&summary);
        assert_eq!(gone.exit_code(), ExitCode::from(1));
        assert!(gone.to_string().contains("but did not occur: attach_twice (it forgets)"), "{gone}");
    }

    #[test]
    fn the_lists_of_the_project_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/findings");
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
