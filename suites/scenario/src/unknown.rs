//! Names of claims, pods and snapshots that nothing in a scenario creates: mistakes in writing, for which a run would
//! wait in vain.

use std::collections::BTreeSet;

use claimcheck_model::unknown;
use serde_json::Value;

use crate::{
    check::Slip,
    file::{Answer, Object, Scenario, Script, Step},
    kind::Kind,
    reference::{named_by, split},
    subject::Subject,
};

/// The kinds of which a scenario creates what it names.
const CHECKED: [&str; 3] = ["claim", "pod", "snapshot"];

type Name = (&'static Kind, String);

/// Each name that is not known, with the line of its step.
pub fn names(scenario: &Scenario) -> Vec<Slip> {
    let created: Vec<Name> = scenario.objects().filter_map(|(_, object)| object.kind_and_name()).collect();
    let mut slips: Vec<Slip> = Vec::new();
    let mut look = |line: u64, prefix: &str, (kind, name): Name| {
        if is_known(&created, kind, &name) {
            return;
        }
        let same = created.iter().filter(|(other, _)| other.short == kind.short);
        let known: BTreeSet<&str> = same.map(|(_, name)| name.as_str()).collect();
        let what = match known.is_empty() {
            true => format!("{prefix}no step creates a {}, so there is no {} {name}", kind.short, kind.short),
            false => format!("{prefix}{}", unknown(kind.short, &name, &Vec::from_iter(known))),
        };
        let slip = Slip { line, what };
        if !slips.contains(&slip) {
            slips.push(slip);
        }
    };
    for name in of_script(&scenario.driver) {
        look(0, "driver: ", name);
    }
    for step in &scenario.steps {
        for name in of_step(step) {
            look(step.line, "", name);
        }
    }
    for seen in scenario.expect.events.iter().chain(&scenario.expect.no_events) {
        for name in object(&seen.of) {
            look(0, "expect: ", name);
        }
    }
    slips
}

/// Controllers derive names from those of workloads, pods and claim templates: `web-0`, `data-web-0`, `pod-scratch`.
fn is_known(created: &[Name], kind: &Kind, name: &str) -> bool {
    let is_generated = |(of, part): &Name| {
        let makes = match kind.short {
            "pod" => of.is_workload(),
            "claim" => of.is_workload() || of.short == "pod",
            // Members of groups.
            _ => of.short == "group",
        };
        makes && (kind.short == "snapshot" || name.contains(part.as_str()))
    };
    !CHECKED.contains(&kind.short)
        || name.contains('$')
        || created.iter().any(|(of, known)| of.short == kind.short && known == name)
        || created.iter().any(is_generated)
}

fn of_step(step: &Step) -> Vec<Name> {
    let objects = [&step.patch, &step.delete, &step.exec, &step.write, &step.read, &step.remove, &step.of];
    let pod = step.node.as_ref().filter(|node| node.starts_with("pod "));
    let objects = objects.into_iter().flatten().chain(pod).flat_map(|text| object(text));
    let subjects = [&step.until, &step.never].into_iter().flatten().flat_map(|text| subject(text));
    let claim = Kind::named("claim").expect("it is in the table");
    // In the namespace of the pod.
    let place = match step.create.as_ref().or(step.apply.as_ref()).and_then(Object::short) {
        Some(pod) if pod.contains(" other/") => "other/",
        _ => "",
    };
    let used = step.uses.iter().map(|used| (claim, format!("{place}{}", used.claim)));
    let values = [&step.with, step.has.as_ref().unwrap_or(&Value::Null)].into_iter().flat_map(in_value);
    let script = step.driver.iter().flat_map(of_script);
    objects.chain(subjects).chain(used).chain(values).chain(script).collect()
}

fn of_script(script: &Script) -> Vec<Name> {
    let pod = |answer: &Answer| answer.node.clone().filter(|node| node.starts_with("pod "));
    let texts = script.values().flatten().flat_map(|answer| answer.of.clone().into_iter().chain(pod(answer)));
    texts.flat_map(|text| object(&text)).collect()
}

/// What `until` and `never` name.
fn subject(text: &str) -> Vec<Name> {
    match Subject::parse(text) {
        Ok(Subject::Object(name) | Subject::Event(name)) => object(name),
        Ok(Subject::Call { claim, .. } | Subject::Phase { claim, .. }) => {
            claim.map(object).unwrap_or_default()
        }
        Err(_) => Vec::new(),
    }
}

/// The object of a text such as `claim data`, or those that its references name.
fn object(text: &str) -> Vec<Name> {
    match named_by(text) {
        references if references.is_empty() => {
            split(text).map(|(kind, name)| (kind, name.to_owned())).into_iter().collect()
        }
        references => references,
    }
}

fn in_value(value: &Value) -> Vec<Name> {
    match value {
        Value::String(text) => named_by(text),
        Value::Array(items) => items.iter().flat_map(in_value).collect(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, value)| named_by(key).into_iter().chain(in_value(value))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::read::parse;

    fn slips(steps: &str) -> Vec<String> {
        let head = "apiVersion: claimcheck.dev/v1alpha1\nkind: Scenario\nname: one\nsteps:\n";
        match parse(Path::new("a.yaml"), &format!("{head}{steps}")) {
            Ok(_) => Vec::new(),
            Err(error) => error.to_string().lines().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn a_name_that_no_step_creates_is_an_error_with_a_suggestion() {
        let steps = "  - create: claim data\n  - { create: pod app, uses: [dta] }\n";
        for (step, message) in [
            ("until: claim dat", "a.yaml:7: unknown claim dat: did you mean data?"),
            (
                "{ create: pod web, uses: [{ claim: dat, readOnly: true }] }",
                "a.yaml:7: unknown claim dat: did you mean data?",
            ),
            ("never: event pod ap", "a.yaml:7: unknown pod ap: did you mean app?"),
            (
                "{ until: call NodeStageVolume of claim databases }",
                "a.yaml:7: unknown claim databases: known are data",
            ),
            ("delete: volume $volume(dato)", "a.yaml:7: unknown claim dato: did you mean data?"),
            (
                "{ patch: claim data, with: { metadata: { labels: { node: $node(ap) } } } }",
                "a.yaml:7: unknown pod ap: did you mean app?",
            ),
            (
                "until: snapshot monday",
                "a.yaml:7: no step creates a snapshot, so there is no snapshot monday",
            ),
            (
                "driver: { NodeStageVolume: [{ fail: INTERNAL no, of: claim dota, node: pod axp }] }",
                "a.yaml:7: unknown claim dota: did you mean data?\na.yaml:7: unknown pod axp: did you mean app?",
            ),
        ] {
            let expected = format!("a.yaml:6: unknown claim dta: did you mean data?\n{message}");
            assert_eq!(slips(&format!("{steps}  - {step}\n")).join("\n"), expected, "{step}");
        }
    }

    #[test]
    fn names_that_controllers_derive_and_names_of_other_kinds_are_known() {
        let set =
            "  - create: { apiVersion: apps/v1, kind: StatefulSet, metadata: { name: web }, spec: {} }\n";
        for step in [
            "until: pod web-0",
            "until: claim data-web-0",
            "until: claim $anything",
            "until: volume elsewhere",
            "until: node $node-1",
        ] {
            assert_eq!(slips(&format!("{set}  - {step}\n")), Vec::<String>::new(), "{step}");
        }
        assert_eq!(slips("  - create: pod app\n  - until: claim app-scratch\n"), Vec::<String>::new());
        assert_eq!(slips(&format!("{set}  - until: pod wep-0\n")).len(), 1);
    }
}
