//! The requests: scenarios for every kind that both servers serve, always the same ones.

mod applies;
mod creates;
mod deletes;
mod forms;
mod patches;
mod random;
mod reads;
mod script;
mod server;
mod writes;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

pub use script::{Body, Encoding, Kind, Sample, Scenario, Step};

const KINDS: &str = include_str!("kinds.yaml");
const DEFINITION: &str = include_str!("definition.yaml");
/// Scenarios that depend on the kind no further than these kinds show; the others have them only if all are
/// requested.
const GENERAL: [&str; 12] = [
    "bodies",
    "json",
    "metadata",
    "names",
    "pages",
    "random1",
    "random2",
    "random3",
    "selectors",
    "strict",
    "types",
    "versions",
];
const GENERAL_FOR: [&str; 7] = [
    "clusterroles.rbac.authorization.k8s.io",
    "configmaps",
    "events.events.k8s.io",
    "persistentvolumeclaims",
    "pods",
    "storageclasses.storage.k8s.io",
    "widgets.real.example.com",
];

/// The samples by the qualified names of their kinds.
pub fn samples() -> HashMap<String, Sample> {
    let strict = serde_saphyr::options! { strict_booleans: true };
    let samples: Vec<Sample> = serde_saphyr::from_str_with_options(KINDS, strict)
        .unwrap_or_else(|error| panic!("kinds.yaml: {error}"));
    samples.into_iter().map(|sample| (sample.kind.clone(), sample)).collect()
}

/// The kinds on which nothing built in acts, such as `deployments.apps`.
pub fn inert() -> HashSet<String> {
    let kinds: Vec<Value> = serde_saphyr::from_str(include_str!("../../../src/resources/inert.yaml"))
        .unwrap_or_else(|error| panic!("inert.yaml: {error}"));
    let name = |kind: &Value| match (kind["plural"].as_str(), kind["group"].as_str()) {
        (Some(plural), Some(group)) => format!("{plural}.{group}"),
        (plural, _) => plural.unwrap_or_default().to_owned(),
    };
    kinds.iter().map(name).collect()
}

/// A CustomResourceDefinition of a kind that is compared as the built-in ones.
pub fn definition() -> Value {
    let strict = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(DEFINITION, strict)
        .unwrap_or_else(|error| panic!("definition.yaml: {error}"))
}

/// The kinds in two documents of aggregated discovery (`/api` and `/apis`), without their samples.
pub fn kinds(documents: &[Value]) -> Vec<Kind> {
    let mut kinds = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for group in documents.iter().flat_map(|document| list(&document["items"])) {
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                kinds.push(Kind {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    plural: text(&resource["resource"]),
                    kind: text(&resource["responseKind"]["kind"]),
                    namespaced: resource["scope"] == "Namespaced",
                    verbs: list(&resource["verbs"]).iter().map(text).collect(),
                    subresources: list(&resource["subresources"])
                        .iter()
                        .map(|one| text(&one["subresource"]))
                        .collect(),
                    sample: Sample::default(),
                });
            }
        }
    }
    kinds
}

/// The scenarios; without `all` those of [`GENERAL`] only for few kinds.
pub fn scenarios(kinds: &[Kind], all: bool) -> Vec<Scenario> {
    let mut scenarios = server::scenarios(kinds);
    for kind in kinds {
        let mut of_kind = creates::scenarios(kind);
        of_kind.extend(forms::scenarios(kind));
        if kind.is_stored() && !kind.sample.asynchronous {
            of_kind.extend(writes::scenarios(kind));
            of_kind.extend(patches::scenarios(kind));
            of_kind.extend(applies::scenarios(kind));
            of_kind.extend(deletes::scenarios(kind));
            of_kind.extend(reads::scenarios(kind));
            of_kind.extend(random::scenarios(kind));
        }
        of_kind.extend(server::special(kind));
        let is_general = |scenario: &Scenario| {
            let title = scenario.name.rsplit('/').next().unwrap_or_default();
            GENERAL.contains(&title) && !GENERAL_FOR.contains(&scenario.kind.as_str())
        };
        scenarios.extend(of_kind.into_iter().filter(|scenario| all || !is_general(scenario)));
    }
    scenarios
}
