//! The rules of a definition: which are rejected.
//!
//! Mirrors the part of ValidateCustomResourceDefinitionOpenAPISchema in pkg/apis/apiextensions/validation/validation.go
//! that concerns `x-kubernetes-validations`, and cel_validation.go there.

use serde_json::{Value, json};

use super::checker::shape::{LARGEST_REQUEST, Shape};
use super::checker::{self, Checked};
use super::field_path;
use super::program::{Fault, Purpose};
use super::rule::Rule;
use crate::custom::schema::{Additional, Limits, ListType, Schema, list};
use crate::status::FieldError;

/// Valid reasons.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The cost that a rule may have, and all rules of a schema.
const MOST_PER_RULE: u64 = 10_000_000;
const MOST_PER_SCHEMA: u64 = 100_000_000;

/// The errors of the rules of `schema`, which `document` declares at `path`.
pub fn validate(schema: &Schema, document: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let root =
        Part { schema, document, path: path.to_owned(), is_root: true, uncorrelatable: None, count: Some(1) };
    root.visit(Scope::Outside, &mut errors);
    let of_costs = errors.costs.errors(path);
    errors.of_texts.into_iter().chain(errors.of_expressions).chain(of_costs).collect()
}

/// The errors of all rules. Those of texts come first.
#[derive(Default)]
struct Errors {
    of_texts: Vec<FieldError>,
    of_expressions: Vec<FieldError>,
    costs: Costs,
}

/// The costs of all expressions (`TotalCost`).
#[derive(Default)]
struct Costs {
    total: u64,
    /// The most expensive ones with their places, in descending order.
    most: Vec<(String, u64)>,
}

impl Costs {
    fn add(&mut self, path: String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= MOST_PER_SCHEMA / 100 {
            self.most.push((path, cost));
            self.most.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.most.truncate(4);
        }
    }

    fn errors(self, path: &str) -> Vec<FieldError> {
        if self.total <= MOST_PER_SCHEMA {
            return Vec::new();
        }
        let contributed =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let most = self.most.into_iter().map(|(path, _)| FieldError::forbidden(path, contributed));
        most.chain([FieldError::forbidden(path, excess(what, self.total, MOST_PER_SCHEMA))]).collect()
    }
}

/// The message about a cost above a limit (`getCostErrorMessage`).
fn excess(what: &str, cost: u64, limit: u64) -> String {
    let factor = match cost as f64 / limit as f64 {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// What is known about the value that the rules of a part check (`CELSchemaContext`).
#[derive(Clone, Copy)]
enum Scope<'a> {
    /// Expressions are not checked here.
    Skipped,
    /// No rule checks the whole value of which this is a part.
    Outside,
    /// A rule does; what it knows about the part.
    Within(Option<&'a Shape>),
    /// The schema declares nothing that an expression could read.
    Unreadable,
}

impl<'a> Scope<'a> {
    /// The scope of a part of the value.
    fn below(self, part: impl Fn(&'a Shape) -> Option<&'a Shape>) -> Self {
        match self {
            Self::Within(shape) => Self::Within(shape.and_then(part)),
            other => other,
        }
    }
}

/// A part of the schema.
struct Part<'a> {
    schema: &'a Schema,
    document: &'a Value,
    path: String,
    is_root: bool,
    /// The list around it, if its items have no identity over changes.
    uncorrelatable: Option<&'a str>,
    /// How many of its values an object can have; none if that is not limited.
    count: Option<u64>,
}

impl Part<'_> {
    /// Checks the rules of the parts below, and then the rules here.
    fn visit(&self, scope: Scope<'_>, errors: &mut Errors) {
        if !self.schema.has_rules {
            return;
        }
        let before = errors.of_texts.len();
        let owned;
        let scope = match scope {
            Scope::Outside if self.schema.rules.is_empty() => Scope::Outside,
            Scope::Outside | Scope::Within(None) => {
                owned = Shape::of(self.schema, self.is_root || self.schema.embedded);
                owned.as_ref().map_or(Scope::Unreadable, |shape| Scope::Within(Some(shape)))
            }
            other => other,
        };
        self.visit_below(scope, errors);
        let declared = || {
            let documents = list(&self.document["x-kubernetes-validations"]);
            self.schema.rules.iter().zip(documents).enumerate().map(|(index, (rule, document))| Declared {
                rule,
                document,
                schema: self.schema,
                path: format!("{}.x-kubernetes-validations[{index}]", self.path),
                uncorrelatable: self.uncorrelatable,
            })
        };
        errors.of_texts.extend(declared().flat_map(|declared| declared.check_texts()));
        // As upstream, expressions are compiled once the schema is valid.
        if errors.of_texts.len() > before || self.schema.rules.is_empty() {
            return;
        }
        match scope {
            Scope::Within(Some(shape)) => {
                // A value has a comma after it.
                let count = self.count.unwrap_or(LARGEST_REQUEST / (shape.least_size + 1));
                declared().for_each(|declared| declared.check_programs(shape, count, errors));
            }
            Scope::Unreadable => {
                let detail = "internal error: failed to construct type information for x-kubernetes-validations \
                              rules: unable to convert structural schema to CEL declarations";
                let path = format!("{}.x-kubernetes-validations", self.path);
                errors.of_expressions.push(FieldError::internal(path, detail));
            }
            Scope::Skipped | Scope::Outside | Scope::Within(None) => {}
        }
    }

    fn visit_below(&self, scope: Scope<'_>, errors: &mut Errors) {
        let (schema, document) = (self.schema, self.document);
        let uncorrelatable = self.uncorrelatable;
        let limit = |limits: &Limits| limits.max.map(|most| most as u64);
        let factor = match (schema.kind.as_str(), &schema.additional) {
            ("object", Additional::None) => Some(1),
            ("object", Additional::Any | Additional::Schema(_)) => limit(&schema.fields),
            ("array", _) => limit(&schema.count),
            _ => Some(1),
        };
        let count = self.count.zip(factor).map(|(count, factor)| count.saturating_mul(factor));
        let part = |schema, document, below: String| Part {
            schema,
            document,
            path: format!("{}.{below}", self.path),
            is_root: false,
            uncorrelatable,
            count,
        };
        if let Additional::Schema(below) = &schema.additional {
            let name = "additionalProperties";
            part(below, &document[name], name.to_owned()).visit(scope.below(Shape::inner), errors);
        }
        for (name, below) in &schema.properties {
            let part = part(below, &document["properties"][name], format!("properties[{name}]"));
            part.visit(scope.below(|shape| shape.field(name)), errors);
        }
        for (index, below) in schema.all_of.iter().enumerate() {
            part(below, &document["allOf"][index], format!("allOf[{index}]")).visit(Scope::Skipped, errors);
        }
        if let Some(below) = &schema.items {
            let is_map = matches!(schema.list, ListType::Map(_));
            let uncorrelatable = uncorrelatable.or((!is_map).then_some(self.path.as_str()));
            let part = Part { uncorrelatable, ..part(below, &document["items"], "items".to_owned()) };
            part.visit(scope.below(Shape::inner), errors);
        }
    }
}

/// A rule with its place.
struct Declared<'a> {
    rule: &'a Rule,
    document: &'a Value,
    /// The schema of the value.
    schema: &'a Schema,
    /// The place of the rule.
    path: String,
    /// The list around it, if its items have no identity over changes.
    uncorrelatable: Option<&'a str>,
}

impl Declared<'_> {
    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    fn check_texts(&self) -> Vec<FieldError> {
        let rule = self.rule;
        let (text, message) = (rule.text.trim(), rule.message.trim());
        let shown = |text: &str| Value::from(text);
        let mut errors = Vec::new();
        if text.is_empty() {
            errors.push(FieldError::required(self.at("rule"), "rule is not specified"));
        } else if !rule.message.is_empty() && message.is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(self.at("message"), &shown(&rule.message), detail));
        } else if message.contains('\n') {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(self.at("message"), &shown(&rule.message), detail));
        } else if text.contains('\n') && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(self.at("message"), detail));
        }
        if !rule.message_text.is_empty() && rule.message_text.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(self.at("messageExpression"), detail));
        }
        if let Some(reason) = self.document["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
            errors.push(FieldError::not_supported(self.at("reason"), &shown(reason), &REASONS));
        }
        let field = |detail: &str| FieldError::invalid(self.at("fieldPath"), &shown(&rule.field), detail);
        if !rule.field.is_empty() {
            if rule.field.trim().is_empty() {
                errors.push(field("must be non-empty if specified"));
            }
            if rule.field.contains('\n') {
                errors.push(field("must not contain line breaks"));
            }
            if field_path::normalize(&rule.field, self.schema).is_none() {
                errors.push(field("must be a valid path"));
            }
        }
        errors
    }

    /// Adds the errors of the expressions, of which the rule is evaluated `count` times.
    fn check_programs(&self, shape: &Shape, count: u64, errors: &mut Errors) {
        let rule = self.rule;
        let is_optional = rule.optional_old == Some(true);
        let check = |text: &str, purpose| checker::check(text, purpose, shape, is_optional);
        let checked = check(&rule.text, Purpose::Rule);
        if let Ok(Checked { fault: None, cost, .. }) = checked {
            self.add_cost("rule", "estimated rule cost", cost.saturating_mul(count), errors);
            let message = &rule.message_text;
            match (!message.is_empty()).then(|| check(message, Purpose::Message)) {
                Some(Ok(Checked { fault: None, cost, .. })) => {
                    self.add_cost("messageExpression", "estimated messageExpression cost", cost, errors);
                }
                Some(checked) => self.add_fault("messageExpression", &checked, errors),
                None => {}
            }
        }
        self.add_fault("rule", &checked, errors);
        if matches!(checked, Err(Fault::Unsupported(_))) {
            return;
        }
        let uses_old = checked.is_ok_and(|checked| checked.uses_old);
        let error = match (uses_old, self.uncorrelatable, rule.optional_old) {
            (true, Some(path), _) => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
                );
                FieldError::invalid(self.at("rule"), &rule.text.as_str().into(), detail)
            }
            (false, _, Some(optional)) => {
                let detail = "may not be set if oldSelf is not used in rule";
                FieldError::invalid(self.at("optionalOldSelf"), &optional.into(), detail)
            }
            _ => return,
        };
        errors.of_expressions.push(error);
    }

    fn add_cost(&self, field: &str, what: &str, cost: u64, errors: &mut Errors) {
        if cost > MOST_PER_RULE {
            let detail = excess(what, cost, MOST_PER_RULE);
            errors.of_expressions.push(FieldError::forbidden(self.at(field), detail));
        }
        errors.costs.add(self.at(field), cost);
    }

    /// Adds the error of an expression that is refused.
    fn add_fault(&self, field: &str, checked: &Result<Checked, Fault>, errors: &mut Errors) {
        let detail = match checked {
            Ok(Checked { fault: None, .. }) => return,
            Ok(Checked { fault: Some(detail), .. }) | Err(Fault::Invalid(detail)) => detail.clone(),
            Err(Fault::Unsupported(feature)) => format!(
                "this API server does not evaluate {feature}: write the rule without it, or use a stock kube-apiserver"
            ),
        };
        errors.of_expressions.push(FieldError::invalid(self.at(field), &self.shown(), detail));
    }

    /// The rule as upstream prints its internal type.
    fn shown(&self) -> Value {
        json!({
            "Rule": self.rule.text,
            "Message": self.rule.message,
            "MessageExpression": self.rule.message_text,
            "Reason": self.document["reason"],
            "FieldPath": self.rule.field,
            "OptionalOldSelf": self.rule.optional_old,
        })
    }
}
