//! Rules of CustomResourceDefinitions, valid and invalid ones.

use serde_json::{Value, json};

use super::script::{Kind, Scenario, Script};

/// A schema and rules, with the answers that the unit tests expect.
const ANSWERS: &str = include_str!("../../../src/custom/rules/checker/answers.txt");

/// The scenario for definitions: two with all rules of `answers.txt`, which exist on neither server afterwards.
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
        while lines.next_if(|line| line.starts_with("    ")).is_some() {
            is_valid = false;
        }
        if is_valid { &mut valid } else { &mut invalid }.push(json!({ "rule": rule }));
    }
    let mut script = Script::new(kind, "rules");
    for (title, rules) in [("valid", valid), ("invalid", invalid)] {
        let mut field = schema.clone();
        field["x-kubernetes-validations"] = rules.into();
        let mut definition = script.object("a");
        definition["spec"]["versions"] = json!([{
            "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "properties": { "f": field } } },
        }]);
        script.post("dryRun=All", definition).titled(title);
    }
    Some(script.finish())
}
