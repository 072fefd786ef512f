//! Rules of CustomResourceDefinitions, valid and invalid ones.

use serde_json::{Value, json};

use super::script::{Kind, Scenario, Script};

/// A schema and rules, with the answers that the unit tests expect.
const ANSWERS: &str = include_str!("../../../src/custom/rules/checker/answers.txt");

/// A limit of items with which the errors about most of the rules show their costs, since they are the factors of the
/// excess.
const ITEMS: u32 = 1_000_000;

/// The scenario for definitions: some with all rules of `answers.txt`, which exist on neither server afterwards.
pub fn scenario(kind: &Kind) -> Option<Scenario> {
    if kind.plural != "customresourcedefinitions" {
        return None;
    }
    let (schema, rules) = ANSWERS.split_once("---\n").expect("a schema, and rules");
    let schema: Value =
        serde_saphyr::from_str(schema).unwrap_or_else(|error| panic!("the schema of the rules: {error}"));
    let (mut valid, mut invalid) = (Vec::new(), Vec::new());
    let mut lines = rules.lines().peekable();
    while let Some(rule) = lines.next() {
        let mut is_valid = true;
        while let Some(answer) = lines.next_if(|line| line.starts_with("    ")) {
            is_valid &= answer.starts_with("    cost ");
        }
        if is_valid { &mut valid } else { &mut invalid }.push(json!({ "rule": rule }));
    }
    let field = |rules: &[Value]| {
        let mut field = schema.clone();
        field["x-kubernetes-validations"] = rules.into();
        field
    };
    let list = |limit: Value| json!({ "type": "array", "items": field(&valid), "maxItems": limit });
    let mut script = Script::new(kind, "rules");
    for (title, field) in [
        ("valid", field(&valid)),
        ("invalid", field(&invalid)),
        ("expensive", list(ITEMS.into())),
        ("without a limit", list(Value::Null)),
    ] {
        let mut definition = script.object("a");
        definition["spec"]["versions"] = json!([{
            "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "properties": { "f": field } } },
        }]);
        script.post("dryRun=All", definition).titled(title);
    }
    Some(script.finish())
}
