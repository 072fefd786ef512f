//! What the rules of a definition use that is not evaluated here.

use super::program::compile;
use crate::custom::schema::{Additional, Schema};

/// A warning for each expression of `schema` that cannot be evaluated, with its place.
pub fn warnings(schema: &Schema) -> Vec<String> {
    let mut warnings = Vec::new();
    visit(schema, "", &mut warnings);
    warnings
}

fn visit(schema: &Schema, path: &str, warnings: &mut Vec<String>) {
    if !schema.has_rules {
        return;
    }
    for (index, rule) in schema.rules.iter().enumerate() {
        for (field, text) in [("rule", &rule.text), ("messageExpression", &rule.message_text)] {
            let Some(Err(reason)) = (!text.trim().is_empty()).then(|| compile(text)) else { continue };
            warnings.push(format!(
                "{path}x-kubernetes-validations[{index}].{field}: claimcheck's API server does not evaluate {text:?}: \
                 {reason}"
            ));
        }
    }
    for (name, below) in &schema.properties {
        visit(below, &format!("{path}properties[{name}]."), warnings);
    }
    if let Additional::Schema(below) = &schema.additional {
        visit(below, &format!("{path}additionalProperties."), warnings);
    }
    if let Some(below) = &schema.items {
        visit(below, &format!("{path}items."), warnings);
    }
    for (index, below) in schema.all_of.iter().enumerate() {
        visit(below, &format!("{path}allOf[{index}]."), warnings);
    }
}
