//! A planned case in the lists that `claimcheck list` and `claimcheck csi --list` print.

use claimcheck_model::CaseId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    case::{Case, Need},
    plan::Planned,
};

/// The version of the schema of lists in JSON. Fields may be added under the same version.
const SCHEMA: u32 = 1;

/// What the lists print in JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CaseList<D> {
    /// The version of this schema.
    pub version: u32,
    /// The cases, in the order in which they would run.
    pub cases: Vec<Listed<D>>,
}

impl<D> CaseList<D> {
    /// A list of these cases.
    pub fn new(cases: Vec<Listed<D>>) -> Self {
        Self { version: SCHEMA, cases }
    }
}

/// An entry of a list of cases, with details that the catalogue adds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Listed<D> {
    /// The name of the case.
    pub case: CaseId,
    /// Details, in JSON as fields of the entry.
    #[serde(flatten)]
    pub details: D,
    /// Requirements, as short texts.
    pub needs: Vec<String>,
    /// The skip reason, if it would be skipped.
    pub skip: Option<String>,
}

impl<C: Case> Planned<C> {
    /// The entry of the case in a list.
    pub fn listed<D>(&self, details: D) -> Listed<D> {
        let needs = self.case.needs().filter_map(|need| need.listed()).collect();
        Listed { case: self.id(), details, needs, skip: self.skip.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{case::tests::Toy, plan::plan};

    #[test]
    fn details_are_fields_between_name_and_requirements() {
        #[derive(Serialize, JsonSchema)]
        struct Details {
            upstream: &'static str,
        }
        let cases = [Toy { needs: &[0, 2], ..Toy::new("grows") }];
        let listed = plan(&cases, &[], Some(&2))[0].listed(Details { upstream: "expand" });
        let expected = concat!(
            r#"{"case":{"suite":"volume_expand","name":"grows"},"upstream":"expand","#,
            r#""needs":["size 2"],"skip":null}"#
        );
        assert_eq!(serde_json::to_string(&listed).unwrap(), expected);
    }
}
