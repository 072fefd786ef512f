//! Definitions of which the rules are too expensive, with the answers of kube-apiserver.

use serde_json::{Value, json};

use super::validate;
use crate::custom::schema::Schema;

const REMEDY: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, \
                      and strings are declared)";

/// The errors of a definition of which the field `f` has the schema and the rules.
fn errors(mut field: Value, rules: Value) -> Vec<String> {
    field["x-kubernetes-validations"] = rules;
    let document = json!({ "type": "object", "properties": { "f": field } });
    let errors = validate(&Schema::read(&document), &document, "s");
    errors.iter().map(|error| error.to_string().replace(&format!(" {REMEDY}"), "")).collect()
}

#[test]
fn expensive_rules_are_refused() {
    let text = || json!({ "type": "string", "maxLength": 10 });
    let list = |limit: Value, items: Value| json!({ "type": "array", "maxItems": limit, "items": items });
    let pairs = || json!({ "rule": "self.all(x, self.all(y, x == y))" });
    let excess = "Forbidden: estimated rule cost exceeds budget by factor of";
    let total = "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds \
                 budget by factor of";
    let contributed = "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
    let place = |field: &str| format!("s.properties[f].x-kubernetes-validations[{field}: ");
    assert_eq!(errors(list(json!(1000), text()), json!([pairs()])), Vec::<String>::new());
    let rule = place("0].rule");
    assert_eq!(
        errors(list(Value::Null, text()), json!([pairs()])),
        [
            format!("{rule}{excess} more than 100x"),
            format!("{rule}{contributed}"),
            format!("{total} more than 100x"),
        ]
    );
    // The cost of a rule is multiplied by the number of values.
    let mut text = json!({ "type": "string", "maxLength": 100 });
    text["x-kubernetes-validations"] = json!([{ "rule": "self.matches('^a+$')" }]);
    let lists = json!({
        "type": "object", "maxProperties": 1000, "additionalProperties": list(json!(1000), text),
    });
    let place_below = "s.properties[f].additionalProperties.items.x-kubernetes-validations[0].rule: ";
    assert_eq!(errors(lists, json!([])), [format!("{place_below}{excess} 4.2x")]);
    // Each of many rules is cheap enough.
    let many =
        errors(list(json!(900), json!({ "type": "string", "maxLength": 10 })), vec![pairs(); 14].into());
    let first_four = (0..4).map(|index| format!("{}{contributed}", place(&format!("{index}].rule"))));
    assert_eq!(many, first_four.chain([format!("{total} 1.021230x")]).collect::<Vec<_>>());
    let message = json!([{ "rule": "true", "messageExpression": "string(self) + 'x'" }]);
    let at = place("0].messageExpression");
    assert_eq!(
        errors(json!({ "type": "integer" }), message),
        [
            format!(
                "{at}Forbidden: estimated messageExpression cost exceeds budget by factor of more than 100x"
            ),
            format!("{at}{contributed}"),
            format!("{total} more than 100x"),
        ]
    );
}
