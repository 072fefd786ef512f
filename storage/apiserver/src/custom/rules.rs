//! The CEL rules of schemas (`x-kubernetes-validations`).
//!
//! ```text
//! rule: a rule, read from a schema
//!     program: its compiled expressions; library: the functions of Kubernetes
//!         budget: the limit of their cost
//! this file: which rules apply to which parts of an object
//!     convert: values of CEL for those parts; evaluate: the result of an expression
//! unsupported: warnings about rules that are not evaluated
//! ```
//!
//! The crate `cel` parses and evaluates expressions. Types are not checked and costs not estimated when a definition is
//! written: a rule fails when it is evaluated, and one that cannot be evaluated is ignored, with a warning on the
//! definition. The limits of an evaluation differ from upstream's: see `budget`.
//!
//! Mirrors pkg/apiserver/schema/cel/validation.go.

mod budget;
mod convert;
mod evaluate;
mod field_path;
mod library;
mod opaque;
mod program;
mod rule;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod tests;
mod unsupported;

use std::collections::HashMap;

use serde_json::Value;

pub use rule::Rule;
pub use unsupported::warnings;

use super::schema::{Additional, ListType, Schema, list};
use crate::status::FieldError;
use evaluate::{Failure, Variables};
use rule::Reason;

/// The longest message of a `messageExpression`, in bytes (MaxEvaluatedMessageExpressionSizeBytes).
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The field of errors without one: Go prints the missing path so.
pub const NO_FIELD: &str = "<nil>";

/// The errors of an object, or of its change from `old`. Both have a kind, and of their metadata only names.
pub fn check(object: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
    check_within(object, old, schema, budget::PER_REQUEST)
}

fn check_within(object: &Value, old: Option<&Value>, schema: &Schema, left: u64) -> Vec<FieldError> {
    let mut check = Check { errors: Vec::new(), left, is_stopped: false };
    let ratchet = Ratchet { current: old.map(|old| (old, object)), nearest: None };
    check.visit(schema, schema, Part { path: "", new: object, old, ratchet, is_root: true });
    check.errors
}

/// A part of the object.
#[derive(Clone, Copy)]
struct Part<'a> {
    path: &'a str,
    new: &'a Value,
    /// The value before the change, if it can be correlated.
    old: Option<&'a Value>,
    ratchet: Ratchet<'a>,
    is_root: bool,
}

/// What decides whether a part that is invalid was so before (KEP-4008, `ratchetingOptions`).
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    /// The old and the new value of the part, if they can be correlated.
    current: Option<(&'a Value, &'a Value)>,
    /// The same of the nearest part around it for which that is so.
    nearest: Option<(&'a Value, &'a Value)>,
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(self) -> bool {
        self.current.or(self.nearest).is_some_and(|(old, new)| old == new)
    }

    fn below(self, old: Option<&'a Value>, new: &'a Value) -> Self {
        match self.current {
            None => self,
            Some(_) => Self { current: old.map(|old| (old, new)), nearest: self.current },
        }
    }

    fn field(self, name: &str, old: Option<&'a Value>, new: &'a Value) -> Self {
        // These never differ in the versions of an object that are compared.
        if self.current.is_some() && self.nearest.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self::default();
        }
        self.below(old, new)
    }
}

struct Check {
    errors: Vec<FieldError>,
    /// The rest of the budget of the request.
    left: u64,
    /// Whether the budget is spent.
    is_stopped: bool,
}

impl Check {
    /// Checks a part with the rules of one schema. It has the other schema, which is the same unless the rules are in
    /// `allOf`.
    fn visit(&mut self, rules: &Schema, schema: &Schema, part: Part<'_>) {
        // The rules of a nullable value do not apply to null.
        if self.is_stopped || !rules.has_rules || part.new.is_null() {
            return;
        }
        let part = Part { old: part.old.filter(|old| !old.is_null()), ..part };
        self.apply(rules, schema, part);
        for alternative in &rules.all_of {
            let ratchet = Ratchet { current: None, nearest: part.ratchet.nearest };
            self.visit(alternative, schema, Part { ratchet, ..part });
        }
        match part.new {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = part.old.and_then(|old| old.get(name));
                    let below = (field_of(rules, name), field_of(schema, name));
                    let (Some((rules, is_key)), Some((schema, _))) = below else { continue };
                    let path = match (is_key, part.path) {
                        (true, path) => format!("{path}[{name}]"),
                        (false, "") => name.clone(),
                        (false, path) => format!("{path}.{name}"),
                    };
                    let ratchet = part.ratchet.field(name, old, value);
                    let is_root = schema.embedded;
                    self.visit(rules, schema, Part { path: &path, new: value, old, ratchet, is_root });
                }
            }
            Value::Array(items) => {
                let (Some(rules), Some(below)) = (&rules.items, &schema.items) else { return };
                if !rules.has_rules {
                    return;
                }
                let correlated = Correlated::new(schema, part.old);
                for (index, item) in items.iter().enumerate() {
                    let old = correlated.find(item);
                    let path = format!("{}[{index}]", part.path);
                    let ratchet = part.ratchet.below(old, item);
                    let is_root = below.embedded;
                    self.visit(rules, below, Part { path: &path, new: item, old, ratchet, is_root });
                }
            }
            _ => {}
        }
    }

    /// Evaluates the rules of one schema (`validateExpressions`).
    fn apply(&mut self, rules: &Schema, schema: &Schema, part: Part<'_>) {
        let variables = |is_optional| Variables::new(part.new, part.old, schema, part.is_root, is_optional);
        let (mut plain, mut optional) = (None, None);
        for rule in &rules.rules {
            let Some(program) = rule.program() else { continue };
            let is_optional = rule.optional_old == Some(true);
            // A rule about a change does not apply to a new value.
            if program.uses_old && part.old.is_none() && !is_optional {
                continue;
            }
            let field = if part.path.is_empty() { NO_FIELD } else { part.path };
            let kind = Value::from(schema.kind.as_str());
            if self.left == 0 {
                let detail = "validation failed due to running out of cost budget, no further validation rules \
                              will be run";
                self.stop(FieldError::invalid(field, &kind, detail));
                return;
            }
            let variables = match is_optional {
                true => &*optional.get_or_insert_with(|| variables(true)),
                false => &*plain.get_or_insert_with(|| variables(false)),
            };
            match variables.is_satisfied(program, &mut self.left) {
                Ok(true) => {}
                Ok(false) => {
                    let error = self.error_of(rule, variables, schema, part);
                    if program.uses_old || !part.ratchet.is_unchanged() {
                        self.errors.push(error);
                    }
                    if self.is_stopped {
                        return;
                    }
                }
                Err(Failure::Error(error)) => {
                    let detail = format!("{error} evaluating rule: {}", rule.name());
                    self.errors.push(FieldError::invalid(field, &kind, detail));
                }
                Err(Failure::Exhausted) => {
                    let detail = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run \
                         due to call cost exceeds limit for rule: {}",
                        rule.name()
                    );
                    self.stop(FieldError::invalid(field, &kind, detail));
                    return;
                }
            }
        }
    }

    fn stop(&mut self, error: FieldError) {
        self.errors.push(error);
        self.is_stopped = true;
    }

    /// The error of a rule that is not satisfied.
    fn error_of(
        &mut self,
        rule: &Rule,
        variables: &Variables,
        schema: &Schema,
        part: Part<'_>,
    ) -> FieldError {
        let below = match rule.field.is_empty() {
            true => None,
            false => field_path::normalize(&rule.field, schema),
        };
        let field = match (part.path, below) {
            ("", None) => NO_FIELD.to_owned(),
            ("", Some(below)) => below,
            (path, None) => path.to_owned(),
            (path, Some(below)) => format!("{path}.{below}"),
        };
        let message = rule.message_program().map(|program| variables.message(program, &mut self.left));
        let detail = match message {
            Some(Ok(text)) if is_usable(text.trim()) => text.trim().to_owned(),
            Some(Err(Failure::Exhausted)) => {
                self.is_stopped = true;
                let detail = "messageExpression evaluation failed due to running out of cost budget, no further \
                              validation rules will be run";
                return FieldError::invalid(field, &schema.kind.as_str().into(), detail);
            }
            // As upstream, a message that cannot be made is replaced.
            Some(_) | None => rule.default_message(),
        };
        let has_parts = matches!(schema.kind.as_str(), "object" | "array");
        match (rule.reason, has_parts) {
            (Reason::Forbidden, _) => FieldError::forbidden(field, detail),
            (Reason::Required, _) => FieldError::required(field, &detail),
            (Reason::Duplicate, true) => FieldError::duplicate_part(field),
            (Reason::Duplicate, false) => FieldError::duplicate(field, part.new),
            (Reason::Invalid, true) => FieldError::invalid_part(field, detail),
            (Reason::Invalid, false) => FieldError::invalid(field, part.new, detail),
        }
    }
}

/// Whether a message of an expression is shown (`evalMessageExpression`).
fn is_usable(message: &str) -> bool {
    !message.is_empty() && message.len() <= LONGEST_MESSAGE && !message.contains('\n')
}

/// The schema of a field, and whether the field is the key of a map.
fn field_of<'a>(schema: &'a Schema, name: &str) -> Option<(&'a Schema, bool)> {
    match (schema.properties.get(name), &schema.additional) {
        (Some(below), _) => Some((below, false)),
        (None, Additional::Schema(below)) => Some((&**below, true)),
        (None, Additional::None | Additional::Any) => None,
    }
}

/// The old items of a list, if they have an identity over changes: those of a map (`makeMapList`).
pub struct Correlated<'a> {
    keys: &'a [String],
    items: HashMap<String, &'a Value>,
}

impl<'a> Correlated<'a> {
    /// Those of `old`, a list with the schema.
    pub fn new(schema: &'a Schema, old: Option<&'a Value>) -> Self {
        let (ListType::Map(keys), Some(old)) = (&schema.list, old) else {
            return Self { keys: &[], items: HashMap::new() };
        };
        let mut items = HashMap::new();
        for item in list(old) {
            items.entry(convert::identity(item, keys)).or_insert(item);
        }
        Self { keys, items }
    }

    /// The old one of `item`.
    pub fn find(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&convert::identity(item, self.keys)).copied()
    }
}
