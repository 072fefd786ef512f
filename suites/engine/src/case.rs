//! What a catalogue defines: its requirements, and its cases.

use claimcheck_model::CaseId;

use crate::schedule::Schedule;

/// A requirement of cases.
pub trait Need {
    /// The properties of a cluster or a driver that requirements are compared with.
    type Environment;

    /// The text in lists; none for a requirement that lists omit.
    fn listed(&self) -> Option<String>;

    /// The skip reason, if the environment does not meet the requirement.
    fn unmet(&self, environment: &Self::Environment) -> Option<String>;
}

/// A case of a catalogue.
pub trait Case {
    /// A requirement of cases of this catalogue.
    type Need: Need;

    /// The name in reports. Users select and skip cases by name, so names are stable.
    fn id(&self) -> CaseId;

    /// All requirements.
    fn needs(&self) -> impl Iterator<Item = Self::Need>;

    /// The phase in which it runs in this environment, or in any if none is given.
    fn schedule(&self, environment: Option<&<Self::Need as Need>::Environment>) -> Schedule;

    /// What it uses exclusively: of all cases with the same value, one runs at a time.
    fn exclusive(&self) -> Option<&'static str> {
        None
    }

    /// Whether cases with the same [`exclusive`](Self::exclusive) value run together with this one nevertheless: none of
    /// them affects the others.
    fn shares(&self) -> bool {
        false
    }

    /// Cases with a higher urgency start earlier in their phase. Those that use the same run one after the other, which
    /// takes longest.
    fn urgency(&self) -> u8 {
        u8::from(self.exclusive().is_some())
    }

    /// Whether it starts only after another case of its phase has ended: the result of that case decides whether this
    /// one is skipped.
    fn waits_for(&self, _other: &Self) -> bool {
        false
    }

    /// The skip reason: the first requirement that the environment does not meet.
    fn skip(&self, environment: &<Self::Need as Need>::Environment) -> Option<String> {
        self.needs().find_map(|need| need.unmet(environment))
    }
}

/// A catalogue for the tests of the engine.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A requirement: the environment is at least as large.
    pub(crate) struct AtLeast(u32);

    impl Need for AtLeast {
        type Environment = u32;

        fn listed(&self) -> Option<String> {
            (self.0 > 0).then(|| format!("size {}", self.0))
        }

        fn unmet(&self, environment: &u32) -> Option<String> {
            (self.0 > *environment).then(|| format!("needs size {}, not {environment}", self.0))
        }
    }

    /// A case.
    #[derive(Clone, Copy)]
    pub(crate) struct Toy {
        pub(crate) name: &'static str,
        pub(crate) needs: &'static [u32],
        pub(crate) schedule: Schedule,
        pub(crate) exclusive: Option<&'static str>,
        pub(crate) shares: bool,
        pub(crate) urgency: u8,
        /// The case that it waits for.
        pub(crate) after: Option<&'static str>,
    }

    impl Toy {
        pub(crate) const fn new(name: &'static str) -> Self {
            Self {
                name,
                needs: &[],
                schedule: Schedule::Parallel,
                exclusive: None,
                shares: false,
                urgency: 0,
                after: None,
            }
        }
    }

    impl Case for Toy {
        type Need = AtLeast;

        fn id(&self) -> CaseId {
            CaseId::new("volume_expand", self.name)
        }

        fn needs(&self) -> impl Iterator<Item = AtLeast> {
            self.needs.iter().map(|size| AtLeast(*size))
        }

        fn schedule(&self, _: Option<&u32>) -> Schedule {
            self.schedule
        }

        fn exclusive(&self) -> Option<&'static str> {
            self.exclusive
        }

        fn shares(&self) -> bool {
            self.shares
        }

        fn urgency(&self) -> u8 {
            self.urgency.max(u8::from(self.exclusive.is_some()))
        }

        fn waits_for(&self, other: &Self) -> bool {
            self.after == Some(other.name)
        }
    }
}
