//! The selection of cases, and the skip reasons of the others: decided before the first case starts.

use claimcheck_model::CaseId;
use serde::Serialize;

use crate::{
    capabilities::DriverCapabilities,
    case::{Case, Need},
    spec::Strength,
};

/// A case of this run.
#[derive(Clone, Copy)]
pub struct Planned {
    /// The case.
    pub case: Case,
    /// The first missing requirement; none if the case runs.
    pub missing: Option<Need>,
}

/// A planned case as `claimcheck csi --list --format json` prints it.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// The name of the case.
    pub case: CaseId,
    /// The section of the CSI specification.
    pub rule: &'static str,
    /// The sentence in that section which the case checks.
    pub sentence: &'static str,
    /// How strongly the sentence binds a driver.
    pub strength: Strength,
    /// The test of csi-sanity that checks the same.
    pub upstream: Option<&'static str>,
    /// Its requirements, as text.
    pub needs: Vec<String>,
    /// The skip reason.
    pub skip: Option<String>,
}

impl Planned {
    /// The skip reason.
    pub fn skip(&self) -> Option<String> {
        self.missing.map(why)
    }

    /// The entry in the list of cases.
    pub fn listed(&self) -> Listed {
        let row = self.case.row;
        let needs = self.case.needs().map(Need::name).collect();
        Listed {
            case: self.case.id(),
            rule: row.rule.section,
            sentence: row.rule.text,
            strength: row.rule.strength,
            upstream: row.upstream,
            needs,
            skip: self.skip(),
        }
    }
}

/// The cases with a name that contains one of `filters` (all cases without filters); without `offers` none is skipped.
pub fn plan(cases: &[Case], filters: &[String], capabilities: Option<&DriverCapabilities>) -> Vec<Planned> {
    let wanted = |case: &&Case| {
        let id = case.id().to_string();
        filters.is_empty() || filters.iter().any(|filter| id.contains(filter.as_str()))
    };
    let planned = |case: &Case| {
        let missing =
            capabilities.and_then(|capabilities| case.needs().find(|&need| !capabilities.has(need)));
        Planned { case: *case, missing }
    };
    cases.iter().filter(wanted).map(planned).collect()
}

/// The skip reason for a missing requirement.
fn why(missing: Need) -> String {
    match missing {
        Need::Plugin(_) | Need::Expansion(_) => format!("the driver does not declare {}", missing.name()),
        Need::Controller(_) | Need::Group(_) => {
            format!("the driver's controller does not declare {}", missing.name())
        }
        Need::Node(capability) => {
            format!("the driver's node does not declare {}", capability.as_str_name())
        }
        Need::Access(access) => {
            format!("the driver supports no {access} volumes, or --access-type excludes them")
        }
        Need::Files => "the driver's paths are not accessible here (path commands are configured)".to_owned(),
        Need::Restart => {
            "the driver cannot be restarted: set --restart-command, or let --driver start it".to_owned()
        }
        Need::SecondNode => "no second node: set --second-endpoint".to_owned(),
        Need::TwoEndpoints => "controller and node share one endpoint".to_owned(),
        Need::MutableParameters => "no mutable parameters are configured: set --mutable-parameter".to_owned(),
        Need::InvalidMutableParameters => {
            "no mutable parameters are configured that the driver rejects: set --invalid-mutable-parameter"
                .to_owned()
        }
        Need::Tokens => "the driver requests no tokens, or --token-audience is not set".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::v1::controller_service_capability::rpc::Type as ControllerType;

    use super::*;
    use crate::{
        case::{Access, Row},
        catalogue, spec,
    };

    #[test]
    fn a_case_runs_only_if_all_requirements_are_met() {
        const NEEDS: &[Need] = &[Need::Controller(ControllerType::GetCapacity), Need::Restart];
        let row = Row::new("x", spec::CAPACITY, |_| Box::pin(async { Ok(()) })).needs(NEEDS).each();
        let cases = row.cases("s", "about s");
        let mut capabilities =
            DriverCapabilities { accesses: vec![Access::Mount], ..DriverCapabilities::default() };
        let missing = |capabilities: &DriverCapabilities| plan(&cases, &[], Some(capabilities)).map_missing();
        assert_eq!(missing(&capabilities), [Some(NEEDS[0]), Some(NEEDS[0])]);
        capabilities.controller.push(ControllerType::GetCapacity as i32);
        assert_eq!(missing(&capabilities), [Some(NEEDS[1]), Some(NEEDS[1])]);
        capabilities.restart = true;
        assert_eq!(missing(&capabilities), [None, Some(Need::Access(Access::Block))]);
        assert_eq!(plan(&cases, &[], None).map_missing(), [None, None]);
        assert_eq!(plan(&cases, &["[block]".to_owned()], None).len(), 1);
    }

    trait Missing {
        fn map_missing(self) -> Vec<Option<Need>>;
    }

    impl Missing for Vec<Planned> {
        fn map_missing(self) -> Vec<Option<Need>> {
            self.into_iter().map(|planned| planned.missing).collect()
        }
    }

    #[test]
    fn no_two_cases_have_one_name() {
        let cases = catalogue();
        let names: std::collections::BTreeSet<_> = cases.iter().map(Case::id).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.len() >= 140, "{} cases", cases.len());
    }
}
