//! The selection of cases, and the skip reasons of the others: decided before the first case starts.

use std::collections::BTreeSet;

use claimcheck_model::{CaseId, nearest};

use crate::{
    case::{Case, Need},
    schedule::Schedule,
};

/// A case of a run.
#[derive(Clone, Debug)]
pub struct Planned<C> {
    /// The case.
    pub case: C,
    /// The phase in which it runs.
    pub schedule: Schedule,
    /// The skip reason; `None` if the case runs.
    pub skip: Option<String>,
    /// The case fails without running, since it is the first with this reason, which is a defect.
    pub fail: Option<String>,
}

/// Lets the first case with this skip reason fail with a text: the reason is a defect, which one case reports.
pub fn fail_once<C>(planned: &mut [Planned<C>], skip: &str, text: &str) {
    if let Some(first) = planned.iter_mut().find(|planned| planned.skip.as_deref() == Some(skip)) {
        first.skip = None;
        first.fail = Some(text.to_owned());
    }
}

/// The cases with a name that contains one of `filters` (all cases without filters); without an environment none is
/// skipped.
pub fn plan<C: Case + Clone>(
    cases: &[C],
    filters: &[String],
    environment: Option<&<C::Need as Need>::Environment>,
) -> Vec<Planned<C>> {
    let selected = |case: &&C| {
        let id = case.id().to_string();
        filters.is_empty() || filters.iter().any(|filter| id.contains(filter.as_str()))
    };
    let planned = |case: &C| {
        let skip = environment.and_then(|environment| case.skip(environment));
        Planned { case: case.clone(), schedule: case.schedule(environment), skip, fail: None }
    };
    cases.iter().filter(selected).map(planned).collect()
}

/// No case has a name that contains one of the filters.
#[derive(Debug, thiserror::Error)]
#[error("no test case matches {}{}", .filters.join(" or "), suggestion(.suite.as_deref()))]
pub struct NoMatch {
    filters: Vec<String>,
    /// The suite with the most similar name, if one is similar.
    suite: Option<String>,
}

impl NoMatch {
    /// The error for filters that select none of the cases.
    pub fn new<C: Case>(cases: &[C], filters: &[String]) -> Self {
        let suites: BTreeSet<String> = cases.iter().map(|case| case.id().suite).collect();
        let similar = |filter: &String| {
            let name = filter.split("::").next().unwrap_or_default();
            nearest(name, suites.iter().map(String::as_str)).map(str::to_owned)
        };
        Self { filters: filters.to_vec(), suite: filters.iter().find_map(similar) }
    }
}

fn suggestion(suite: Option<&str>) -> String {
    suite.map(|suite| format!(" (did you mean {suite}?)")).unwrap_or_default()
}

impl<C: Case> Planned<C> {
    /// The name of the case.
    pub fn id(&self) -> CaseId {
        self.case.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::tests::Toy;

    const CASES: [Toy; 2] =
        [Toy::new("a volume grows"), Toy { needs: &[0, 2, 3], ..Toy::new("a volume shrinks") }];

    fn skips(filters: &[&str], environment: Option<&u32>) -> Vec<Option<String>> {
        let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
        plan(&CASES, &filters, environment).into_iter().map(|planned| planned.skip).collect()
    }

    #[test]
    fn the_first_unmet_requirement_is_the_skip_reason() {
        let needs = |size: u32| Some(format!("needs size {size}, not {}", size - 1));
        assert_eq!(skips(&[], Some(&1)), [None, needs(2)]);
        assert_eq!(skips(&[], Some(&2)), [None, needs(3)]);
        assert_eq!(skips(&[], Some(&3)), [None, None]);
        assert_eq!(skips(&[], None), [None, None]);
    }

    #[test]
    fn a_defect_fails_the_first_case_that_it_would_skip() {
        let mut planned = plan(&CASES, &[], Some(&1));
        planned.extend(plan(&CASES, &[], Some(&1)));
        fail_once(&mut planned, "needs size 2, not 1", "too small");
        fail_once(&mut planned, "another reason", "other");
        let fails: Vec<_> = planned.iter().map(|planned| planned.fail.as_deref()).collect();
        assert_eq!(fails, [None, Some("too small"), None, None]);
        assert_eq!((planned[1].skip.as_deref(), planned[3].skip.is_some()), (None, true));
    }

    #[test]
    fn filters_select_by_part_of_the_name() {
        assert_eq!(skips(&["volume_expand::a volume g"], None).len(), 1);
        assert_eq!(skips(&["grows", "shrinks"], None).len(), 2);
        assert_eq!(skips(&["leaks"], None).len(), 0);
    }

    #[test]
    fn a_misspelt_suite_is_suggested() {
        let error = |filter: &str| NoMatch::new(&CASES, &[filter.to_owned()]).to_string();
        for (filter, message) in [
            ("volume_expnd", "no test case matches volume_expnd (did you mean volume_expand?)"),
            ("VolumeExpand::a", "no test case matches VolumeExpand::a (did you mean volume_expand?)"),
            ("leaks", "no test case matches leaks"),
        ] {
            assert_eq!(error(filter), message);
        }
    }
}
