//! The rules of a definition: which are rejected.
//!
//! Mirrors the part of ValidateCustomResourceDefinitionOpenAPISchema in pkg/apis/apiextensions/validation/validation.go
//! that concerns `x-kubernetes-validations`, without the estimates of costs.

use serde_json::{Value, json};

use super::field_path;
use super::program::Fault;
use super::rule::Rule;
use crate::custom::schema::{Additional, ListType, Schema, list};
use crate::status::FieldError;

/// Valid reasons.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The errors of the rules of `schema`, which `document` declares at `path`.
pub fn validate(schema: &Schema, document: &Value, path: &str) -> Vec<FieldError> {
    let mut rules = Vec::new();
    collect(schema, document, path, None, &mut rules);
    let mut errors: Vec<FieldError> = rules.iter().flat_map(Declared::check_texts).collect();
    // As upstream, expressions are compiled once the schema is valid.
    if errors.is_empty() {
        errors = rules.iter().flat_map(Declared::check_programs).collect();
    }
    errors
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
    uncorrelatable: Option<String>,
}

/// The rules of a schema; those of its parts come first.
fn collect<'a>(
    schema: &'a Schema,
    document: &'a Value,
    path: &str,
    uncorrelatable: Option<&str>,
    rules: &mut Vec<Declared<'a>>,
) {
    if !schema.has_rules {
        return;
    }
    if let Additional::Schema(below) = &schema.additional {
        let name = "additionalProperties";
        collect(below, &document[name], &format!("{path}.{name}"), uncorrelatable, rules);
    }
    for (name, below) in &schema.properties {
        let place = format!("{path}.properties[{name}]");
        collect(below, &document["properties"][name], &place, uncorrelatable, rules);
    }
    for (index, below) in schema.all_of.iter().enumerate() {
        let place = format!("{path}.allOf[{index}]");
        collect(below, &document["allOf"][index], &place, uncorrelatable, rules);
    }
    if let Some(below) = &schema.items {
        let is_map = matches!(schema.list, ListType::Map(_));
        let uncorrelatable = uncorrelatable.or((!is_map).then_some(path));
        collect(below, &document["items"], &format!("{path}.items"), uncorrelatable, rules);
    }
    let documents = list(&document["x-kubernetes-validations"]);
    for (index, (rule, document)) in schema.rules.iter().zip(documents).enumerate() {
        rules.push(Declared {
            rule,
            document,
            schema,
            path: format!("{path}.x-kubernetes-validations[{index}]"),
            uncorrelatable: uncorrelatable.map(str::to_owned),
        });
    }
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

    fn check_programs(&self) -> Vec<FieldError> {
        let rule = self.rule;
        let mut errors = Vec::new();
        let programs = [("rule", rule.program()), ("messageExpression", rule.message_program())];
        for (field, program) in programs {
            match program {
                Some(Err(Fault::Invalid(detail))) => {
                    errors.push(FieldError::invalid(self.at(field), &self.shown(), detail.as_str()));
                }
                // An object that upstream rejects would be accepted here.
                Some(Err(Fault::Unsupported(feature))) => {
                    let detail = format!(
                        "this API server does not evaluate {feature}: write the rule without it, or use a stock \
                         kube-apiserver"
                    );
                    errors.push(FieldError::invalid(self.at(field), &self.shown(), detail));
                }
                Some(Ok(_)) | None => {}
            }
        }
        let Some(program) = rule.ready() else { return errors };
        if program.uses_old {
            if let Some(path) = &self.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
                );
                errors.push(FieldError::invalid(self.at("rule"), &rule.text.as_str().into(), detail));
            }
        } else if let Some(optional) = rule.optional_old {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(self.at("optionalOldSelf"), &optional.into(), detail));
        }
        errors
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
