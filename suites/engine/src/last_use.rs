//! Which case is the last one of a run that uses something exclusively.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::{case::Case, plan::Planned};

/// What cases use ([`Case::exclusive`]), with the number of cases that have yet to use it.
#[derive(Debug, Default)]
pub struct LastUse(Mutex<BTreeMap<&'static str, usize>>);

impl LastUse {
    /// The uses of these cases.
    pub fn of<C: Case>(planned: &[Planned<C>]) -> Self {
        let mut uses = BTreeMap::new();
        for used in planned.iter().filter_map(|planned| planned.case.exclusive()) {
            *uses.entry(used).or_default() += 1;
        }
        Self(Mutex::new(uses))
    }

    /// A case that uses this has ended. Returns whether it was the last one, and none has failed: what a case has failed
    /// with stays, so that its logs can be read.
    pub fn ended(&self, used: &'static str, failed: bool) -> bool {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failed {
            uses.remove(used);
        }
        let Some(cases) = uses.get_mut(used) else { return false };
        *cases = cases.saturating_sub(1);
        *cases == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{case::tests::Toy, plan::plan};

    #[test]
    fn the_last_case_is_known_unless_one_has_failed() {
        let with = |name, used| Toy { exclusive: Some(used), ..Toy::new(name) };
        let cases = [with("1", "a"), with("2", "b"), with("3", "a"), with("4", "b"), Toy::new("any")];
        let uses = LastUse::of(&plan(&cases, &[], None));
        assert_eq!((uses.ended("a", false), uses.ended("b", true)), (false, false));
        assert_eq!((uses.ended("a", false), uses.ended("b", false)), (true, false));
        assert!(!uses.ended("of no case", false));
    }
}
