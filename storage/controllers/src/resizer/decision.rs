//! The decision of a claim's planner.

use std::time::Duration;

use crate::shell::Plan;

/// The action, or the time of the next plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision<A> {
    /// Nothing.
    Rest,
    /// This action.
    Act(A),
    /// Nothing until then.
    Again(Duration),
}

impl<A> From<Decision<A>> for Plan<A> {
    fn from(decision: Decision<A>) -> Self {
        match decision {
            Decision::Rest => Vec::new().into(),
            Decision::Act(action) => vec![action].into(),
            Decision::Again(requeue_after) => {
                Self { actions: Vec::new(), requeue_after: Some(requeue_after) }
            }
        }
    }
}
