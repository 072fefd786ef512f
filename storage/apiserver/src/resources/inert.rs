//! Kinds on which nothing built in acts; they are data, in `inert.yaml`, which describes the format.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::columns;
use super::decode::decode;
use super::{BASE, Generation, Resource, Storage, Subresource, default_to, job, pod, scale, status_of};
use crate::custom::{leak, leak_all};
use crate::names::NameRule;

static KINDS: LazyLock<Vec<Inert>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("inert.yaml")).expect("a test reads inert.yaml"));

/// A kind, as `inert.yaml` describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inert {
    kind: String,
    #[serde(default)]
    group: String,
    #[serde(default = "first_version")]
    version: String,
    plural: String,
    singular: Option<String>,
    #[serde(default)]
    short: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default = "yes")]
    namespaced: bool,
    #[serde(default)]
    subresources: Vec<Below>,
    #[serde(default)]
    names: Names,
    #[serde(default = "yes")]
    generation: bool,
    #[serde(default = "yes")]
    unconditional: bool,
    #[serde(default)]
    created_by_update: bool,
    #[serde(default)]
    returns_deleted: bool,
    deprecation: Option<String>,
    warning: Option<String>,
    status: Option<Value>,
    template: Option<String>,
    #[serde(default)]
    written: Vec<String>,
    #[serde(default)]
    defaults: Vec<Map<String, Value>>,
    #[serde(default)]
    columns: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Below {
    Scale,
    Status,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Names {
    #[default]
    Subdomain,
    Label,
}

fn first_version() -> String {
    "v1".to_owned()
}

fn yes() -> bool {
    true
}

/// The number of these kinds.
pub(super) fn count() -> usize {
    KINDS.len()
}

/// The rows of all these kinds.
pub(super) fn rows() -> Vec<Resource> {
    KINDS.iter().enumerate().map(|(place, inert)| inert.row(place)).collect()
}

impl Inert {
    fn row(&'static self, place: usize) -> Resource {
        let texts = |texts: &'static [String]| leak_all(texts.iter().map(String::as_str).collect::<Vec<_>>());
        let below = |below: &Below| -> Subresource {
            match below {
                Below::Scale => scale(),
                Below::Status => status_of(&self.kind),
            }
        };
        let place = u8::try_from(place).expect("there are fewer kinds");
        let mut row = Resource {
            storage: Storage::Inert { place, namespaced: self.namespaced },
            group: &self.group,
            version: &self.version,
            kind: &self.kind,
            plural: &self.plural,
            singular: self.singular.as_deref().unwrap_or_else(|| leak(&self.kind.to_lowercase())),
            short_names: texts(&self.short),
            categories: texts(&self.categories),
            namespaced: self.namespaced,
            subresources: leak_all(self.subresources.iter().map(below).collect()),
            names: match self.names {
                Names::Subdomain => NameRule::Subdomain,
                Names::Label => NameRule::Label,
            },
            generation: if self.generation { Generation::Versions } else { Generation::AsGiven },
            unconditional: self.unconditional,
            created_by_update: self.created_by_update,
            returns_deleted: self.returns_deleted,
            deprecation: self.deprecation.as_deref(),
            // The stock controller of Jobs requires a selector, which upstream's API server makes.
            begin: if self.kind == "Job" { job::select_own_pods } else { BASE.begin },
            columns: leak_all(columns::read(&self.kind, &self.columns)),
            inert: Some(self),
            ..BASE
        };
        row.empty = leak(&self.empty(&row));
        row
    }

    /// What follows the metadata of an object without any field: whoever writes an object owns nothing of this.
    fn empty(&self, row: &Resource) -> String {
        let mut value = Value::Object(Map::new());
        for path in &self.written {
            at(&mut value, path, &mut |parent, field| default_to(parent, field, Map::new()));
        }
        let decoded = decode(row, value).expect("an empty object is valid");
        let mut value = decoded.value;
        if let Some(template) = &self.template {
            at(&mut value, template, &mut |parent, field| {
                parent[field] = json!({ "metadata": {}, "spec": { "containers": null } });
            });
        }
        self.complete_status(&mut value);
        let fields = value.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata");
        fields.map(|(name, value)| format!(",\"{name}\":{value}")).collect()
    }

    /// Sets the default values of optional fields.
    pub(super) fn set_defaults(&self, object: &mut Value) {
        for step in &self.defaults {
            let conditions = step.get("when").and_then(Value::as_object).into_iter().flatten();
            let is_met = |(path, expected): (&String, &Value)| match look(object, path) {
                Some(value) => expected == "*" || value == expected,
                None => expected.is_null(),
            };
            if !conditions.into_iter().all(is_met) {
                continue;
            }
            for (path, value) in step.iter().filter(|(path, _)| *path != "when") {
                let copied = value.get("$copy").and_then(Value::as_str);
                let value = match copied {
                    Some(from) => look(object, from).cloned(),
                    None => Some(value.clone()),
                };
                if let Some(value) = value {
                    at(object, path, &mut |parent, field| default_to(parent, field, value.clone()));
                }
            }
        }
        if let Some(template) = &self.template {
            at(object, template, &mut |parent, field| {
                let template = &mut parent[field];
                // Go writes it even when it is empty.
                default_to(template, "metadata", Map::new());
                pod::default_spec(&mut template["spec"]);
            });
        }
    }

    /// Sets the status of a new object.
    pub(super) fn begin(&self, object: &mut Value) {
        if let Value::Object(fields) = object {
            fields.shift_remove("status");
        }
        self.complete_status(object);
    }

    /// Sets the fields that every status has.
    pub(super) fn complete_status(&self, object: &mut Value) {
        let Some(Value::Object(least)) = &self.status else { return };
        default_to(object, "status", Map::new());
        for (field, value) in least {
            default_to(&mut object["status"], field, value.clone());
        }
    }

    /// The warning about an object that is written.
    pub(super) fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

/// The value at a path of names.
fn look<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Calls `act` with each parent of the field at the end of a path, and the name of this field.
fn at(value: &mut Value, path: &str, act: &mut dyn FnMut(&mut Value, &str)) {
    let (head, rest) = match path.split_once('.') {
        Some((head, rest)) => (head, Some(rest)),
        None => (path, None),
    };
    let name = head.trim_end_matches('?');
    if name != head && value.get(name).is_none_or(Value::is_null) {
        return;
    }
    match rest {
        _ if name == "*" => {
            let rest = rest.expect("a path does not end with *");
            value.as_array_mut().into_iter().flatten().for_each(|item| at(item, rest, act));
        }
        None => act(value, name),
        Some(rest) => {
            // Parents are made; the dot in the name of a label or an annotation does not occur in these paths.
            if value[name].is_null() {
                value[name] = Value::Object(Map::new());
            }
            at(&mut value[name], rest, act);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    fn completed(group: &str, plural: &str, mut object: Value) -> Value {
        let row = resources::all().iter().find(|row| row.group == group && row.plural == plural).unwrap();
        row.set_defaults(&mut object);
        row.set_first_status(&mut object);
        object
    }

    #[test]
    fn every_row_is_complete() {
        for row in rows() {
            let body = format!("{{\"metadata\":{{}}{}}}", row.empty);
            let empty: Value = serde_json::from_str(&body).unwrap();
            let mut object = empty.clone();
            row.set_defaults(&mut object);
            let decoded = decode(&row, object.clone()).unwrap();
            assert_eq!(
                decoded.faults,
                Vec::<String>::new(),
                "{}: a default sets a field that there is not",
                row.kind
            );
            assert!(row.columns.len() > 1, "{}", row.kind);
            row.columns.iter().for_each(|column| drop(column.cell.of(&object)));
            assert_eq!(row.has_status(), row.inert.unwrap().status.is_some(), "{}", row.kind);
        }
    }

    #[test]
    fn empty_objects_have_the_objects_that_go_writes() {
        let empty = |kind: &str| {
            let rows = rows();
            let row = rows.iter().find(|row| row.kind == kind).unwrap();
            serde_json::from_str::<Value>(&format!("{{\"metadata\":{{}}{}}}", row.empty)).unwrap()
        };
        let template = json!({ "metadata": {}, "spec": { "containers": null } });
        let deployment = json!({ "selector": null, "template": template, "strategy": {} });
        assert_eq!(empty("Deployment"), json!({ "metadata": {}, "spec": deployment, "status": {} }));
        assert_eq!(empty("Job"), json!({ "metadata": {}, "spec": { "template": template }, "status": {} }));
        let jobs = json!({ "metadata": {}, "spec": { "template": template } });
        let cron = json!({ "schedule": "", "jobTemplate": jobs });
        assert_eq!(empty("CronJob"), json!({ "metadata": {}, "spec": cron, "status": {} }));
        assert_eq!(empty("Ingress")["spec"], json!({}));
        assert_eq!(empty("PodTemplate"), json!({ "metadata": {}, "template": template }));
    }

    #[test]
    fn defaults_of_a_deployment() {
        let body = json!({ "spec": { "template": { "spec": { "containers": [{ "image": "i" }] } } }, "status": { "x": 1 } });
        let deployment = completed("apps", "deployments", body);
        let spec = &deployment["spec"];
        let update = json!({ "maxUnavailable": "25%", "maxSurge": "25%" });
        assert_eq!(spec["strategy"], json!({ "type": "RollingUpdate", "rollingUpdate": update }));
        let numbers = ["replicas", "revisionHistoryLimit", "progressDeadlineSeconds"];
        assert_eq!(numbers.map(|field| spec[field].as_i64().unwrap()), [1, 10, 600]);
        let pod = &spec["template"]["spec"];
        assert_eq!(
            (&pod["dnsPolicy"], &pod["containers"][0]["imagePullPolicy"]),
            (&json!("ClusterFirst"), &json!("Always"))
        );
        assert_eq!(deployment["status"], json!({}), "a new one has none");
        let other =
            completed("apps", "deployments", json!({ "spec": { "strategy": { "type": "Recreate" } } }));
        assert_eq!(other["spec"]["strategy"], json!({ "type": "Recreate" }));
    }

    #[test]
    fn steps_have_items_conditions_and_copies() {
        let policy = |spec: Value| {
            let policy = completed("networking.k8s.io", "networkpolicies", json!({ "spec": spec }));
            policy["spec"].clone()
        };
        assert_eq!(policy(json!({})), json!({ "podSelector": {}, "policyTypes": ["Ingress"] }));
        assert_eq!(policy(json!({ "egress": [{}] }))["policyTypes"], json!(["Ingress", "Egress"]));
        let ports = policy(json!({ "ingress": [{ "ports": [{ "port": 1 }, { "protocol": "UDP" }] }] }));
        let expected = json!([{ "port": 1, "protocol": "TCP" }, { "protocol": "UDP" }]);
        assert_eq!(ports["ingress"][0]["ports"], expected);
        let job =
            |spec: Value| completed("batch", "jobs", json!({ "spec": spec }))["spec"]["completions"].clone();
        assert_eq!([job(json!({})), job(json!({ "parallelism": 2 }))], [json!(1), Value::Null]);
        let labels = json!({ "a": "b" });
        let controller = completed(
            "",
            "replicationcontrollers",
            json!({ "spec": { "template": { "metadata": { "labels": labels } } } }),
        );
        assert_eq!((&controller["spec"]["selector"], &controller["metadata"]["labels"]), (&labels, &labels));
        let without = completed("", "replicationcontrollers", json!({ "spec": {} }));
        assert!(
            without["spec"].get("template").is_none() && without["spec"].get("selector").is_none(),
            "{without}"
        );
    }
}
