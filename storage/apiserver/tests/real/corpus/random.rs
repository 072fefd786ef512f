//! Random scenarios: sequences of writes by several managers on few objects, from a fixed seed.

use fastrand::Rng;
use serde_json::{Value, json};

use super::script::{APPLY, Encoding, JSON_PATCH, Kind, MERGE, PROTOBUF, STRATEGIC, Scenario, Script};

/// The scenarios of each kind, and the requests of each.
const SCENARIOS: u64 = 4;
const STEPS: usize = 20;
const SHORTS: [&str; 2] = ["a", "b"];
const MANAGERS: [&str; 3] = ["one", "two", "three"];

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    // Their seed depends on the name of the kind only, so that a new kind does not change the others.
    let seed =
        kind.qualified().bytes().fold(18, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    (0..SCENARIOS)
        .map(|number| scenario(kind, &mut Rng::with_seed(seed.wrapping_add(number)), number))
        .collect()
}

fn scenario(kind: &Kind, rng: &mut Rng, number: u64) -> Scenario {
    let mut script = Script::new(kind, &format!("random{number}"));
    script.create("a", "");
    for _ in 0..STEPS {
        step(&mut script, rng);
    }
    script.list("");
    script.finish()
}

fn step(script: &mut Script<'_>, rng: &mut Rng) {
    let short = SHORTS[rng.usize(..SHORTS.len())];
    let mut query = format!("fieldManager={}", MANAGERS[rng.usize(..MANAGERS.len())]);
    if rng.u8(..8) == 0 {
        query += "&dryRun=All";
    }
    match rng.u8(..12) {
        0 => script.create(short, &query),
        1 => {
            let accept = rng.choice(["application/json", PROTOBUF, "application/yaml"]).unwrap();
            script.get(short, "").accept(accept)
        }
        2 | 3 => {
            let patch = change(script, rng);
            let encoding = rng.choice([Encoding::Json, Encoding::Yaml, Encoding::Protobuf]).unwrap();
            script.update(short, &query, &patch).encoded(encoding)
        }
        4 | 5 => {
            let patch = change(script, rng);
            script.patch(short, &query, MERGE, &patch)
        }
        6 => {
            let patch = change(script, rng);
            script.patch(short, &query, STRATEGIC, &patch)
        }
        7 => {
            let (field, value) = (rng.u8(..3), rng.u8(..3).to_string());
            let path = format!("/metadata/labels/r{field}");
            let operation = match rng.u8(..3) {
                0 => json!({ "op": "add", "path": path, "value": value }),
                1 => json!({ "op": "replace", "path": path, "value": value }),
                _ => json!({ "op": "remove", "path": path }),
            };
            script.patch(short, &query, JSON_PATCH, &json!([operation]))
        }
        8..=10 => {
            let mut object = script.object(short);
            json_patch::merge(&mut object, &change(script, rng));
            if rng.bool() {
                query += "&force=true";
            }
            script.patch(short, &query, APPLY, &object)
        }
        _ => {
            let query = if query.contains("dryRun") { "dryRun=All" } else { "" };
            script.delete(short, query, &Value::Null)
        }
    };
}

/// A valid change, mostly of metadata.
fn change(script: &Script<'_>, rng: &mut Rng) -> Value {
    let mut change = match rng.u8(..4) {
        0 => script.kind.sample.change.clone(),
        1 => script
            .kind
            .sample
            .strategic
            .first()
            .filter(|patch| !has_directives(patch))
            .cloned()
            .unwrap_or(json!({})),
        _ => json!({}),
    };
    let value = |rng: &mut Rng| if rng.u8(..4) == 0 { Value::Null } else { rng.u8(..3).to_string().into() };
    for map in ["labels", "annotations"] {
        if rng.bool() {
            let (field, value) = (format!("r{}", rng.u8(..3)), value(rng));
            json_patch_add(&mut change, map, &field, value);
        }
    }
    if rng.u8(..6) == 0 {
        let finalizers = json!({ "metadata": { "finalizers": [format!("example.com/{}", rng.u8(..2))] } });
        json_patch::merge(&mut change, &finalizers);
    }
    change
}

/// Adds a field to a map of the metadata; null stays, since it removes the field.
fn json_patch_add(change: &mut Value, map: &str, field: &str, value: Value) {
    change["metadata"][map][field] = value;
}

fn has_directives(patch: &Value) -> bool {
    patch.to_string().contains('$')
}
