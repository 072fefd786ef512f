//! The capability matrix, computed from the planned cases and their results.

use std::collections::BTreeSet;

use claimcheck_model::{CapabilityLine, CapabilityPlan, CaseResult};

use super::{
    summary::{CaseLine, Summary},
    tables::{Style, number, short, table},
};

/// The maximum length of a reason in the table, on 100 columns; the list of skipped cases has the full text.
const BECAUSE: usize = 34;

/// One line per capability.
pub(super) fn matrix(planned: &[CapabilityPlan], results: &[CaseLine]) -> Vec<CapabilityLine> {
    planned.iter().map(|plan| line(plan, results)).collect()
}

fn line(plan: &CapabilityPlan, results: &[CaseLine]) -> CapabilityLine {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut reasons = BTreeSet::new();
    for result in results.iter().filter(|result| plan.cases.contains(&result.case)) {
        match &result.result {
            CaseResult::Passed => passed += 1,
            CaseResult::Failed { .. } => failed += 1,
            CaseResult::Skipped { reason } => {
                skipped += 1;
                reasons.insert(reason.clone());
            }
        }
    }
    let reason = if plan.cases.is_empty() {
        Some("no case in this run exercises it".to_owned())
    } else {
        Some(reasons.into_iter().collect::<Vec<_>>().join("; ")).filter(|reason| !reason.is_empty())
    };
    let CapabilityPlan { capability: name, declared, supported, .. } = *plan;
    CapabilityLine { name, declared, supported, detected: passed > 0, passed, failed, skipped, reason }
}

/// The matrix as text: exercised or declared capabilities as rows, the others in one sentence.
pub(super) fn render(summary: &Summary, style: Style) -> Option<String> {
    let has_cases = |line: &&CapabilityLine| {
        line.declared == Some(true)
            || line.supported.is_some()
            || line.passed + line.failed + line.skipped > 0
    };
    let because = BECAUSE.saturating_sub(Style::PLAIN.width - style.width);
    let mut lines =
        table(style, &["capability", "declared", "detected", "passed", "failed", "skipped", "reason"]);
    let mut any = false;
    for line in summary.capabilities.iter().filter(has_cases) {
        any = true;
        let declared = match (line.declared, line.supported) {
            (Some(true), Some(_)) => "yes (the driver: no)",
            (_, Some(_)) => "no (the driver: yes)",
            (Some(true), None) => "yes",
            (Some(false), None) => "no",
            (None, None) => "–",
        };
        lines.add_row(vec![
            line.name.name().into(),
            declared.into(),
            if line.detected { "yes" } else { "no" }.into(),
            number(line.passed.to_string()),
            number(line.failed.to_string()),
            number(line.skipped.to_string()),
            short(line.reason.as_deref().unwrap_or_default(), because).into(),
        ]);
    }
    let others: Vec<&str> =
        summary.capabilities.iter().filter(|line| !has_cases(line)).map(|line| line.name.name()).collect();
    let words = format!("neither declared nor exercised: {}", others.join(", "));
    let note = if others.is_empty() { String::new() } else { format!("\n{}", style.wrap(&words, "  ")) };
    any.then(|| lines.trim_fmt() + &note)
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{Capability, CaseId};

    use super::*;

    #[test]
    fn a_line_counts_its_cases_and_has_the_skip_reasons() {
        let case = |name: &str| CaseId::new("suite", name);
        let ended = |name: &str, result| CaseLine { case: case(name), result, seconds: 0.1 };
        let skip = || CaseResult::Skipped { reason: "no root".into() };
        let results = [
            ended("a", CaseResult::Passed),
            ended("b", skip()),
            ended("c", skip()),
            ended("other", CaseResult::failed("it broke")),
        ];
        let plan = |cases: &[&str]| CapabilityPlan {
            capability: Capability::FsGroup,
            declared: None,
            supported: None,
            cases: cases.iter().map(|name| case(name)).collect(),
        };
        let lines = matrix(&[plan(&["a", "b", "c"]), plan(&[])], &results);
        assert_eq!((lines[0].passed, lines[0].failed, lines[0].skipped, lines[0].detected), (1, 0, 2, true));
        assert_eq!(lines[0].reason.as_deref(), Some("no root"));
        assert_eq!(lines[1].reason.as_deref(), Some("no case in this run exercises it"));
    }
}
