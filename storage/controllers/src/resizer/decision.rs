//! What planners of one claim decide.

use std::time::Duration;

use crate::shell::Plan;

/// What to do, or when to look again though nothing has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision<A> {
    /// Nothing.
    Rest,
    /// This.
    Act(A),
    /// Nothing until then.
    Again(Duration),
}

impl<A> From<Decision<A>> for Plan<A> {
    fn from(decision: Decision<A>) -> Self {
        match decision {
            Decision::Rest => Vec::new().into(),
            Decision::Act(action) => vec![action].into(),
            Decision::Again(again) => Self { actions: Vec::new(), again: Some(again) },
        }
    }
}
