//! Which type can be used where another is expected, and what that decides about type parameters.
//!
//! Mirrors cel-go checker/types.go and mapping.go.

use super::types::{Parameter, Type};

/// What is known about type parameters.
#[derive(Debug, Default)]
pub struct Substitutions<'a> {
    known: Vec<(Parameter, Type<'a>)>,
    /// The number of variables.
    variables: usize,
}

impl<'a> Substitutions<'a> {
    /// A new type that its use decides.
    pub fn variable(&mut self) -> Type<'a> {
        self.variables += 1;
        Type::Parameter(Parameter::Variable(self.variables - 1))
    }

    /// Whether each of `given` can be used as the one of `expected`. If so, remembers what that decides.
    pub fn are_assignable(&mut self, given: &[Type<'a>], expected: &[Type<'a>]) -> bool {
        let known = self.known.clone();
        let is_assignable = given.len() == expected.len()
            && given.iter().zip(expected).all(|(given, expected)| self.unify(given, expected));
        if !is_assignable {
            self.known = known;
        }
        is_assignable
    }

    /// See [`Self::are_assignable`].
    pub fn is_assignable(&mut self, given: &Type<'a>, expected: &Type<'a>) -> bool {
        self.are_assignable(std::slice::from_ref(given), std::slice::from_ref(expected))
    }

    /// The type with all that is known.
    pub fn apply(&self, found: &Type<'a>) -> Type<'a> {
        self.apply_or(found, Type::Parameter)
    }

    /// As [`Self::apply`], and what is not known can be anything.
    pub fn decide(&self, found: &Type<'a>) -> Type<'a> {
        self.apply_or(found, |_| Type::Dyn)
    }

    fn apply_or(&self, found: &Type<'a>, unknown: fn(Parameter) -> Type<'a>) -> Type<'a> {
        match found {
            Type::Parameter(parameter) => match self.find(*parameter) {
                Some(known) => self.apply_or(known, unknown),
                None => unknown(*parameter),
            },
            other => other.map_parameters(|inner| self.apply_or(inner, unknown)),
        }
    }

    fn find(&self, parameter: Parameter) -> Option<&Type<'a>> {
        self.known.iter().find(|(known, _)| *known == parameter).map(|(_, found)| found)
    }

    fn add(&mut self, parameter: Parameter, found: Type<'a>) {
        match self.known.iter_mut().find(|(known, _)| *known == parameter) {
            Some((_, known)) => *known = found,
            None => self.known.push((parameter, found)),
        }
    }

    /// `internalIsAssignable`
    fn unify(&mut self, given: &Type<'a>, expected: &Type<'a>) -> bool {
        if let Type::Parameter(parameter) = expected {
            match self.decides(given, *parameter) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Parameter(parameter) = given {
            return self.decides(expected, *parameter).0;
        }
        match (given, expected) {
            (Type::Dyn | Type::Error, _) | (_, Type::Dyn | Type::Error) => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Kind(_), Type::Kind(_)) => true,
            (Type::List(_) | Type::Map(..) | Type::Optional(_), _) => {
                let (own, others) = (given.parameters(), expected.parameters());
                std::mem::discriminant(given) == std::mem::discriminant(expected)
                    && own.iter().zip(others).all(|(own, other)| self.unify(own, other))
            }
            _ => given == expected,
        }
    }

    /// Whether the parameter can be `found`, and whether anything was known about it (`isValidTypeSubstitution`).
    fn decides(&mut self, found: &Type<'a>, parameter: Parameter) -> (bool, bool) {
        let itself = Type::Parameter(parameter);
        if *found == itself {
            return (true, true);
        }
        if let Some(known) = self.find(parameter).cloned() {
            if *found == known {
                return (true, true);
            }
            if self.unify(found, &known) {
                let general = most_general(found, &known).clone();
                if !self.occurs(&itself, &general) {
                    self.add(parameter, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        let is_free = !self.occurs(&itself, found);
        if is_free {
            self.add(parameter, found.clone());
        }
        (is_free, false)
    }

    /// Whether a type contains `part` (the negation of `notReferencedIn`).
    fn occurs(&self, part: &Type<'a>, within: &Type<'a>) -> bool {
        part == within
            || match within {
                Type::Parameter(parameter) => {
                    self.find(*parameter).is_some_and(|known| self.occurs(part, known))
                }
                other => other.parameters().iter().any(|inner| self.occurs(part, inner)),
            }
    }
}

/// `internalIsAssignableNull`
fn is_nullable(found: &Type<'_>) -> bool {
    matches!(
        found,
        Type::Null
            | Type::Optional(_)
            | Type::Opaque(_)
            | Type::Library(_)
            | Type::Object(_)
            | Type::Duration
            | Type::Timestamp
    )
}

/// The one of two types that can be used for each other that says less.
pub fn most_general<'t, 'a>(first: &'t Type<'a>, second: &'t Type<'a>) -> &'t Type<'a> {
    if is_equal_or_less_specific(first, second) { first } else { second }
}

fn is_equal_or_less_specific(first: &Type<'_>, second: &Type<'_>) -> bool {
    match (first, second) {
        (Type::Dyn | Type::Parameter(_), _) => true,
        (_, Type::Dyn | Type::Parameter(_)) => false,
        (Type::Kind(_), Type::Kind(_)) => true,
        (Type::List(_) | Type::Map(..) | Type::Optional(_), _) => {
            std::mem::discriminant(first) == std::mem::discriminant(second)
                && first
                    .parameters()
                    .iter()
                    .zip(second.parameters())
                    .all(|(first, second)| is_equal_or_less_specific(first, second))
        }
        _ => first == second,
    }
}
