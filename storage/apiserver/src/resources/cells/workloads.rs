//! The cells of workloads and bindings of roles.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{list, since};
use crate::admission::labels;
use crate::time;

pub(in crate::resources) fn ready_replicas(deployment: &Value) -> Value {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    format!("{}/{}", number(&deployment["status"]["readyReplicas"]), number(&deployment["spec"]["replicas"]))
        .into()
}

pub(in crate::resources) fn containers(workload: &Value) -> Value {
    of_containers(workload, "name")
}

pub(in crate::resources) fn images(workload: &Value) -> Value {
    of_containers(workload, "image")
}

fn of_containers(workload: &Value, field: &str) -> Value {
    of_template(&workload["spec"]["template"], field)
}

/// A field of each container of a pod template (`layoutContainerCells`).
pub(in crate::resources) fn of_template(template: &Value, field: &str) -> Value {
    let containers = list(&template["spec"]["containers"]).iter();
    let fields: Vec<&str> =
        containers.map(|container| container[field].as_str().unwrap_or_default()).collect();
    fields.join(",").into()
}

pub(in crate::resources) fn node_selector(workload: &Value) -> Value {
    format_labels(&workload["spec"]["template"]["spec"]["nodeSelector"])
}

/// `FormatLabels` in apimachinery pkg/labels/labels.go.
pub(in crate::resources) fn format_labels(labels: &Value) -> Value {
    let labels = sorted(equalities(labels));
    if labels.is_empty() { "<none>".into() } else { labels.into() }
}

pub(in crate::resources) fn selector(workload: &Value) -> Value {
    selector_text(&workload["spec"]["selector"]).into()
}

pub(in crate::resources) fn label_selector(workload: &Value) -> Value {
    format_selector(&workload["spec"]["selector"])
}

/// `FormatLabelSelector` in apimachinery pkg/apis/meta/v1/helpers.go.
pub(in crate::resources) fn format_selector(selector: &Value) -> Value {
    if labels::matches(selector, &Value::Null).is_none() {
        return "<error>".into();
    }
    let text = selector_text(selector);
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// `Requirement.String` in apimachinery pkg/labels/selector.go, sorted by key.
pub fn selector_text(selector: &Value) -> String {
    let expressions = list(&selector["matchExpressions"]).iter().map(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = list(&expression["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key.to_owned(), text)
    });
    sorted(equalities(&selector["matchLabels"]).chain(expressions))
}

fn equalities(labels: &Value) -> impl Iterator<Item = (String, String)> {
    let labels = labels.as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
}

/// Requirements in the order of their keys; those of one key in their own order.
fn sorted(requirements: impl Iterator<Item = (String, String)>) -> String {
    let mut of_keys = BTreeMap::<String, Vec<String>>::new();
    requirements.for_each(|(key, text)| of_keys.entry(key).or_default().push(text));
    of_keys.into_values().flatten().collect::<Vec<_>>().join(",")
}

/// The owner that controls a ControllerRevision.
pub(in crate::resources) fn controller(revision: &Value) -> Value {
    let owners = list(&revision["metadata"]["ownerReferences"]);
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else { return "<none>".into() };
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map(|(group, _)| format!(".{group}"));
    let kind = format!("{}{}", text("kind"), group.unwrap_or_default()).to_lowercase();
    format!("{kind}/{}", text("name")).into()
}

/// The first condition of these, in the order of `printJob`, decides; a deletion precedes the last three.
pub(in crate::resources) fn job_status(job: &Value) -> Value {
    let conditions = list(&job["status"]["conditions"]);
    let met = |kind: &&&str| {
        let condition = conditions.iter().find(|condition| condition["type"] == ***kind);
        condition.is_some_and(|condition| condition["status"] == "True")
    };
    let last = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
    let deleting = job["metadata"]["deletionTimestamp"].is_string().then_some("Terminating");
    let finished = ["Complete", "Failed"].iter().find(met).copied();
    finished.or(deleting).or_else(|| last.iter().find(met).copied()).unwrap_or("Running").into()
}

pub(in crate::resources) fn completions(job: &Value) -> Value {
    let succeeded = job["status"]["succeeded"].as_i64().unwrap_or_default();
    match (job["spec"]["completions"].as_i64(), job["spec"]["parallelism"].as_i64()) {
        (Some(completions), _) => format!("{succeeded}/{completions}").into(),
        (None, Some(parallelism @ 2..)) => format!("{succeeded}/1 of {parallelism}").into(),
        (None, _) => format!("{succeeded}/1").into(),
    }
}

pub(in crate::resources) fn job_duration(job: &Value) -> Value {
    let seconds = |field: &str| job["status"][field].as_str().and_then(time::seconds_since);
    match (seconds("startTime"), seconds("completionTime")) {
        (None, _) => "".into(),
        (Some(start), end) => time::human(start - end.unwrap_or_default()).into(),
    }
}

pub(in crate::resources) fn suspended(job: &Value) -> Value {
    match job["spec"]["suspend"].as_bool() {
        Some(true) => "True".into(),
        Some(false) => "False".into(),
        None => "<unset>".into(),
    }
}

pub(in crate::resources) fn last_schedule(job: &Value) -> Value {
    match job["status"]["lastScheduleTime"].as_str() {
        Some(last) => since(Some(last)),
        None => "<none>".into(),
    }
}

pub(in crate::resources) fn role(binding: &Value) -> Value {
    let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind"), text("name")).into()
}

pub(in crate::resources) fn users(binding: &Value) -> Value {
    subjects(binding, "User")
}

pub(in crate::resources) fn groups(binding: &Value) -> Value {
    subjects(binding, "Group")
}

pub(in crate::resources) fn service_accounts(binding: &Value) -> Value {
    subjects(binding, "ServiceAccount")
}

/// The subjects of a kind (`SubjectsStrings` in pkg/apis/rbac/helpers.go).
fn subjects(binding: &Value, kind: &str) -> Value {
    let subjects = list(&binding["subjects"]).iter().filter(|subject| subject["kind"] == kind);
    let names = subjects.map(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["namespace"].as_str() {
            namespace if kind == "ServiceAccount" => format!("{}/{name}", namespace.unwrap_or_default()),
            _ => name.to_owned(),
        }
    });
    names.collect::<Vec<_>>().join(", ").into()
}

pub(in crate::resources) fn scale_target(autoscaler: &Value) -> Value {
    let target = &autoscaler["spec"]["scaleTargetRef"];
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind"), text("name")).into()
}

pub(in crate::resources) fn least_replicas(autoscaler: &Value) -> Value {
    autoscaler["spec"]["minReplicas"].as_i64().map_or("<unset>".into(), |least| least.to_string().into())
}

/// `formatHPAMetrics`: the current and the desired value of each metric.
pub(in crate::resources) fn metrics(autoscaler: &Value) -> Value {
    const SHOWN: usize = 2;
    let wanted = list(&autoscaler["spec"]["metrics"]);
    if wanted.is_empty() {
        return "<none>".into();
    }
    let current = list(&autoscaler["status"]["currentMetrics"]);
    let texts = wanted
        .iter()
        .enumerate()
        .map(|(index, metric)| metric_text(metric, current.get(index).unwrap_or(&Value::Null)));
    let shown: Vec<String> = texts.take(SHOWN).collect();
    let more = wanted.len().saturating_sub(SHOWN);
    let shown = shown.join(", ");
    if more > 0 { format!("{shown} + {more} more...") } else { shown }.into()
}

fn metric_text(metric: &Value, status: &Value) -> String {
    let source = match metric["type"].as_str().unwrap_or_default() {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&metric[source]["target"], &status[source]["current"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let of = |field: &str, unset: &str| {
        let (have, want) = (text(&current[field]), text(&target[field]));
        format!(
            "{}/{}",
            have.unwrap_or_else(|| "<unknown>".to_owned()),
            want.unwrap_or_else(|| unset.to_owned())
        )
    };
    let average = !target["averageValue"].is_null();
    match source {
        "pods" => of("averageValue", "0"),
        "external" | "object" if average => format!("{} (avg)", of("averageValue", "0")),
        "external" | "object" => of("value", "<nil>"),
        _ => {
            let name = metric[source]["name"].as_str().unwrap_or_default();
            if average {
                return format!("{name}: {}", of("averageValue", ""));
            }
            let percent = |value: &Value| value.as_i64().map(|percent| format!("{percent}%"));
            let have = percent(&current["averageUtilization"]).unwrap_or_else(|| "<unknown>".to_owned());
            let want = percent(&target["averageUtilization"]).unwrap_or_else(|| "<auto>".to_owned());
            format!("{name}: {have}/{want}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workloads_are_as_printed_by_upstream() {
        let workload = json!({
            "spec": {
                "replicas": 3,
                "selector": {
                    "matchLabels": { "z": "y", "a": "b" },
                    "matchExpressions": [
                        { "key": "m", "operator": "In", "values": ["2", "1"] },
                        { "key": "n", "operator": "NotIn", "values": ["1"] },
                        { "key": "o", "operator": "Exists" },
                        { "key": "p", "operator": "DoesNotExist" },
                    ],
                },
                "template": { "spec": {
                    "nodeSelector": { "q": "r", "c": "d" },
                    "containers": [{ "name": "c1", "image": "i1" }, { "name": "c2", "image": "i2" }],
                } },
            },
            "status": { "readyReplicas": 1 },
        });
        assert_eq!(ready_replicas(&workload), "1/3");
        assert_eq!(containers(&workload), "c1,c2");
        assert_eq!(images(&workload), "i1,i2");
        assert_eq!(node_selector(&workload), "c=d,q=r");
        assert_eq!(selector(&workload), "a=b,m in (1,2),n notin (1),o,!p,z=y");
        assert_eq!(node_selector(&json!({})), "<none>");
    }

    #[test]
    fn jobs_are_as_printed_by_upstream() {
        let job = |conditions: &[&str], deleted: bool| {
            let conditions: Vec<Value> =
                conditions.iter().map(|kind| json!({ "type": kind, "status": "True" })).collect();
            let deletion = if deleted { json!("2020-01-01T00:00:00Z") } else { Value::Null };
            job_status(&json!({
                "metadata": { "deletionTimestamp": deletion }, "status": { "conditions": conditions },
            }))
        };
        assert_eq!(job(&[], false), "Running");
        assert_eq!(job(&["FailureTarget", "Suspended"], false), "Suspended");
        assert_eq!(job(&["Suspended"], true), "Terminating");
        assert_eq!(job(&["SuccessCriteriaMet", "Complete"], true), "Complete");
        let of = |spec: Value| completions(&json!({ "spec": spec, "status": { "succeeded": 1 } }));
        assert_eq!(of(json!({ "completions": 3, "parallelism": 2 })), "1/3");
        assert_eq!(of(json!({ "parallelism": 2 })), "1/1 of 2");
        assert_eq!(of(json!({ "parallelism": 1 })), "1/1");
        let times = json!({ "startTime": "2020-01-01T00:00:00Z", "completionTime": "2020-01-01T00:01:30Z" });
        assert_eq!(job_duration(&json!({ "status": times })), "90s");
        assert_eq!(job_duration(&json!({})), "");
        assert_eq!(
            [json!(true), json!(false), Value::Null]
                .map(|suspend| suspended(&json!({ "spec": { "suspend": suspend } }))),
            ["True", "False", "<unset>"]
        );
        assert_eq!(last_schedule(&json!({})), "<none>");
    }

    #[test]
    fn metrics_show_current_and_desired_values() {
        let of = |target: Value| json!({ "metric": { "name": "m" }, "name": "cpu", "target": target });
        let current = json!([
            { "resource": { "current": { "averageUtilization": 7 } } },
            { "external": { "current": { "averageValue": "2" } } },
        ]);
        let autoscaler =
            |wanted: Value| json!({ "spec": { "metrics": wanted }, "status": { "currentMetrics": current } });
        let percent = json!({ "type": "Resource", "resource": of(json!({ "averageUtilization": 80 })) });
        let external = json!({ "type": "External", "external": of(json!({ "averageValue": "3" })) });
        let object = json!({ "type": "Object", "object": of(json!({ "value": "5" })) });
        assert_eq!(metrics(&autoscaler(json!([percent, external]))), "cpu: 7%/80%, 2/3 (avg)");
        assert_eq!(
            metrics(&autoscaler(json!([percent, external, object]))),
            "cpu: 7%/80%, 2/3 (avg) + 1 more..."
        );
        assert_eq!(metrics(&json!({ "spec": { "metrics": [object] } })), "<unknown>/5");
        assert_eq!(metrics(&json!({})), "<none>");
        let target = json!({ "spec": { "scaleTargetRef": { "kind": "K", "name": "n" } } });
        assert_eq!((scale_target(&target), least_replicas(&target)), (json!("K/n"), json!("<unset>")));
    }

    #[test]
    fn revisions_show_their_controller() {
        let owner = |version: &str| {
            let owner =
                json!({ "apiVersion": version, "kind": "StatefulSet", "name": "s", "controller": true });
            controller(&json!({ "metadata": { "ownerReferences": [owner] } }))
        };
        assert_eq!(owner("apps/v1"), "statefulset.apps/s");
        assert_eq!(owner("v1"), "statefulset/s");
        assert_eq!(controller(&json!({})), "<none>");
    }

    #[test]
    fn subjects_are_listed_by_kind() {
        let binding = json!({
            "roleRef": { "kind": "ClusterRole", "name": "view" },
            "subjects": [
                { "kind": "User", "name": "u1" }, { "kind": "Group", "name": "g" }, { "kind": "User", "name": "u2" },
                { "kind": "ServiceAccount", "namespace": "n", "name": "s" },
            ],
        });
        assert_eq!(role(&binding), "ClusterRole/view");
        assert_eq!(users(&binding), "u1, u2");
        assert_eq!(groups(&binding), "g");
        assert_eq!(service_accounts(&binding), "n/s");
        assert_eq!(users(&json!({})), "");
    }
}
