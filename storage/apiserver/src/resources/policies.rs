//! Kinds of installations on which nothing acts here: they are stored and printed only. No disruption
//! budget, quota or limit range is enforced, and no webhook is called.

use serde_json::{Map, Value, json};

use super::columns::{NAME_AND_CREATED, policies as columns};
use super::pod::items_mut;
use super::{BASE, Generation, Resource, Storage, Write, default_to, pod, status_of};
use crate::admission::items;

/// The counts of a disruption budget that Go writes even when they are not set.
const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];

const CORE: Resource = Resource { namespaced: true, ..BASE };

const WEBHOOKS: Resource = Resource {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    unconditional: false,
    generation: Generation::Versions,
    columns: columns::WEBHOOKS,
    ..BASE
};

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::DisruptionBudgets,
            group: "policy",
            kind: "PodDisruptionBudget",
            plural: "poddisruptionbudgets",
            singular: "poddisruptionbudget",
            short_names: &["pdb"],
            namespaced: true,
            subresources: const { &[status_of("PodDisruptionBudget")] },
            unconditional: false,
            generation: Generation::Versions,
            default: |budget| default_to(budget, "spec", json!({})),
            begin: |budget| {
                budget["status"] = json!({});
                write_counts(budget);
            },
            settle_status: |_, budget| write_counts(budget),
            columns: columns::DISRUPTION_BUDGET,
            empty: concat!(
                r#","spec":{},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"#,
                r#""expectedPods":0}"#
            ),
            ..BASE
        },
        Resource {
            storage: Storage::Quotas,
            kind: "ResourceQuota",
            plural: "resourcequotas",
            singular: "resourcequota",
            short_names: &["quota"],
            subresources: const { &[status_of("ResourceQuota")] },
            returns_deleted: true,
            default: |quota| default_to(quota, "spec", json!({})),
            begin: |quota| quota["status"] = json!({}),
            settle_status: |_, quota| default_to(quota, "status", json!({})),
            columns: columns::QUOTA,
            empty: r#","spec":{},"status":{}"#,
            ..CORE
        },
        Resource {
            storage: Storage::LimitRanges,
            kind: "LimitRange",
            plural: "limitranges",
            singular: "limitrange",
            short_names: &["limits"],
            created_by_update: true,
            default: default_limit_range,
            begin: |range| {
                // `PrepareForCreate` of pkg/registry/core/limitrange names it.
                let name = &mut range["metadata"]["name"];
                if name.as_str().is_none_or(str::is_empty) {
                    *name = uuid::Uuid::new_v4().to_string().into();
                }
            },
            columns: NAME_AND_CREATED,
            empty: r#","spec":{"limits":null}"#,
            ..CORE
        },
        Resource {
            storage: Storage::MutatingWebhooks,
            kind: "MutatingWebhookConfiguration",
            plural: "mutatingwebhookconfigurations",
            singular: "mutatingwebhookconfiguration",
            default: |configuration| {
                default_webhooks(configuration);
                for webhook in items_mut(configuration, "webhooks") {
                    default_to(webhook, "reinvocationPolicy", "Never");
                }
            },
            warnings: webhook_warnings,
            ..WEBHOOKS
        },
        Resource {
            storage: Storage::ValidatingWebhooks,
            kind: "ValidatingWebhookConfiguration",
            plural: "validatingwebhookconfigurations",
            singular: "validatingwebhookconfiguration",
            default: default_webhooks,
            warnings: webhook_warnings,
            ..WEBHOOKS
        },
    ]
}

/// The difference from a stock API server that the writer should know.
fn webhook_warnings(configuration: &Value, _: Write) -> Vec<String> {
    let called = items(&configuration["webhooks"]).next().is_some();
    let warning = "claimcheck's API server stores admission webhooks, and does not call them";
    called.then(|| warning.to_owned()).into_iter().collect()
}

fn write_counts(budget: &mut Value) {
    for field in COUNTS {
        default_to(&mut budget["status"], field, 0);
    }
    pod::write_times(budget, &["lastTransitionTime"]);
}

/// Mirrors `SetDefaults_LimitRangeItem` of pkg/apis/core/v1.
fn default_limit_range(range: &mut Value) {
    default_to(&mut range["spec"], "limits", Value::Null);
    for limit in
        items_mut(&mut range["spec"], "limits").iter_mut().filter(|limit| limit["type"] == "Container")
    {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let amounts = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            amounts.into_iter().for_each(|(name, amount)| default_to(&mut limit[to], &name, amount));
        }
    }
}

/// Mirrors pkg/apis/admissionregistration/v1/defaults.go.
fn default_webhooks(configuration: &mut Value) {
    for webhook in items_mut(configuration, "webhooks") {
        default_to(webhook, "failurePolicy", "Fail");
        default_to(webhook, "matchPolicy", "Equivalent");
        default_to(webhook, "namespaceSelector", Value::Object(Map::new()));
        default_to(webhook, "objectSelector", Value::Object(Map::new()));
        default_to(webhook, "timeoutSeconds", 10);
        if let Some(service) = webhook["clientConfig"].get_mut("service") {
            default_to(service, "port", 443);
        }
        items_mut(webhook, "rules").iter_mut().for_each(|rule| default_to(rule, "scope", "*"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_for_containers_follow_from_each_other() {
        let mut range = json!({ "spec": { "limits": [
            { "type": "Container", "max": { "cpu": "2" }, "min": { "memory": "1Mi" }, "default": { "pods": "1" } },
            { "type": "Pod", "max": { "cpu": "2" } },
        ] } });
        default_limit_range(&mut range);
        let container = &range["spec"]["limits"][0];
        assert_eq!(container["default"], json!({ "pods": "1", "cpu": "2" }));
        assert_eq!(container["defaultRequest"], json!({ "pods": "1", "cpu": "2", "memory": "1Mi" }));
        assert_eq!(range["spec"]["limits"][1], json!({ "type": "Pod", "max": { "cpu": "2" } }));
    }

    #[test]
    fn defaults_of_webhooks() {
        let mut configuration = json!({ "webhooks": [
            { "clientConfig": { "service": {} }, "rules": [{}], "timeoutSeconds": 3 },
        ] });
        default_webhooks(&mut configuration);
        let expected = json!({
            "clientConfig": { "service": { "port": 443 } }, "rules": [{ "scope": "*" }], "timeoutSeconds": 3,
            "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
        });
        assert_eq!(configuration["webhooks"][0], expected);
    }
}
