//! What RBAC did not permit programs of a cluster with virtual nodes, with the roles in which the rules are missing.

use std::collections::BTreeSet;

use claimcheck_model::Denial;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use kube::{Api, Client, api::ListParams};
use serde_json::Value;

/// The group of all service accounts; that of a namespace has its name after a colon (apiserver
/// pkg/authentication/serviceaccount).
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// Adds the roles that are bound to each account. Without them the denials are still worth a report.
pub(crate) async fn with_roles(client: &Client, mut denials: Vec<Denial>) -> Vec<Denial> {
    if denials.is_empty() {
        return denials;
    }
    let all = ListParams::default();
    let (of_cluster, of_namespaces): (Api<ClusterRoleBinding>, Api<RoleBinding>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let (of_cluster, of_namespaces) = match tokio::join!(of_cluster.list(&all), of_namespaces.list(&all)) {
        (Ok(of_cluster), Ok(of_namespaces)) => (of_cluster.items, of_namespaces.items),
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(%error, "cannot list the roles of the accounts with missing rights");
            return denials;
        }
    };
    for denial in &mut denials {
        denial.roles = roles(denial, &of_cluster, &of_namespaces);
    }
    denials
}

/// The roles that apply to the denied request.
fn roles(denial: &Denial, of_cluster: &[ClusterRoleBinding], of_namespaces: &[RoleBinding]) -> Vec<String> {
    let Some(account) = denial.account() else { return Vec::new() };
    let mut roles = BTreeSet::new();
    for binding in of_cluster {
        if binding.subjects.iter().flatten().any(|subject| is_of(subject, account, "")) {
            roles.insert(title(&binding.role_ref, ""));
        }
    }
    for binding in of_namespaces {
        let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
        let is_subject = |subject: &Subject| is_of(subject, account, namespace);
        if namespace == denial.namespace && binding.subjects.iter().flatten().any(is_subject) {
            roles.insert(title(&binding.role_ref, namespace));
        }
    }
    roles.into_iter().collect()
}

/// Whether a subject of a binding, in this namespace, is the account or the group of its namespace. The group of all
/// accounts is not specific to it.
fn is_of(subject: &Subject, (namespace, name): (&str, &str), of_binding: &str) -> bool {
    match subject.kind.as_str() {
        "ServiceAccount" => {
            let of_subject = subject.namespace.as_deref().filter(|given| !given.is_empty());
            subject.name == name && of_subject.unwrap_or(of_binding) == namespace
        }
        "User" => subject.name == format!("system:serviceaccount:{namespace}:{name}"),
        "Group" => subject.name == format!("{SERVICE_ACCOUNTS}:{namespace}"),
        _ => false,
    }
}

fn title(role: &RoleRef, namespace: &str) -> String {
    match role.kind.as_str() {
        "Role" => format!("Role {namespace}/{}", role.name),
        kind => format!("{kind} {}", role.name),
    }
}

/// The denials in an audit log of kube-apiserver, once per user, verb and resource (`LogAnnotations` of apiserver
/// pkg/endpoints/filters/authorization.go).
pub(crate) fn from_audit_log(text: &str) -> Vec<Denial> {
    let (mut denials, mut known) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        if event["annotations"]["authorization.k8s.io/decision"] != "forbid"
            || !event["impersonatedUser"].is_null()
        {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["objectRef"];
        let (mut resource, subresource) = (text(&object["resource"]), text(&object["subresource"]));
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        let path = match resource.is_empty() {
            true => text(&event["requestURI"]).split('?').next().unwrap_or_default().to_owned(),
            false => String::new(),
        };
        let denial = Denial {
            user: text(&event["user"]["username"]),
            group: text(&object["apiGroup"]),
            resource,
            path,
            verb: text(&event["verb"]),
            namespace: text(&object["namespace"]),
            reason: text(&event["annotations"]["authorization.k8s.io/reason"]),
            roles: Vec::new(),
        };
        if known.insert(denial.identity().map(str::to_owned)) {
            denials.push(denial);
        }
    }
    denials
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_roles_of_an_account_are_those_that_bindings_grant() {
        let binding = |kind: &str, namespace: &str, role: &str, subject: Value| {
            let reference = json!({
                "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role,
            });
            json!({ "metadata": { "name": role, "namespace": namespace }, "roleRef": reference, "subjects": [subject] })
        };
        let account =
            |namespace: &str| json!({ "kind": "ServiceAccount", "name": "a", "namespace": namespace });
        let of_cluster: Vec<ClusterRoleBinding> = [
            binding("ClusterRole", "", "one", account("ns")),
            binding("ClusterRole", "", "of-another", account("other")),
            binding(
                "ClusterRole",
                "",
                "of-group",
                json!({ "kind": "Group", "name": "system:serviceaccounts:ns" }),
            ),
            binding(
                "ClusterRole",
                "",
                "of-all",
                json!({ "kind": "Group", "name": "system:serviceaccounts" }),
            ),
        ]
        .into_iter()
        .map(|value| serde_json::from_value(value).unwrap())
        .collect();
        let of_namespaces: Vec<RoleBinding> = [
            binding("Role", "ns", "two", json!({ "kind": "ServiceAccount", "name": "a" })),
            binding(
                "ClusterRole",
                "ns",
                "three",
                json!({ "kind": "User", "name": "system:serviceaccount:ns:a" }),
            ),
            binding("Role", "other", "elsewhere", account("ns")),
        ]
        .into_iter()
        .map(|value| serde_json::from_value(value).unwrap())
        .collect();
        let denial = |namespace: &str| Denial {
            user: "system:serviceaccount:ns:a".into(),
            namespace: namespace.into(),
            ..Denial::default()
        };
        let found = |namespace: &str| roles(&denial(namespace), &of_cluster, &of_namespaces);
        assert_eq!(found(""), ["ClusterRole of-group", "ClusterRole one"]);
        assert_eq!(
            found("ns"),
            ["ClusterRole of-group", "ClusterRole one", "ClusterRole three", "Role ns/two"]
        );
        assert_eq!(roles(&Denial { user: "jane".into(), ..Denial::default() }, &of_cluster, &[]), [""; 0]);
    }

    #[test]
    fn denials_are_read_from_an_audit_log() {
        let event = |verb: &str, decision: &str, uri: &str, object: Value| {
            json!({
                "kind": "Event", "stage": "ResponseComplete", "verb": verb, "requestURI": uri,
                "user": { "username": "system:serviceaccount:ns:a" }, "objectRef": object,
                "annotations": { "authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": "" },
            })
            .to_string()
        };
        let status = json!({
            "resource": "volumeattachments", "subresource": "status", "apiGroup": "storage.k8s.io", "name": "v",
        });
        let pods = json!({ "resource": "pods", "namespace": "ns" });
        let log = [
            event("patch", "forbid", "/apis/..", status.clone()),
            event("patch", "forbid", "/apis/..", status),
            event("list", "allow", "/api/v1/namespaces/ns/pods", pods.clone()),
            event("list", "forbid", "/api/v1/namespaces/ns/pods?limit=500", pods),
            event("get", "forbid", "/metrics?x=1", Value::Null),
            "{\"truncated".to_owned(),
        ]
        .join("\n");
        let found: Vec<String> = from_audit_log(&log).iter().map(ToString::to_string).collect();
        let expected = [
            "ServiceAccount ns/a may not patch volumeattachments.storage.k8s.io/status at the cluster scope",
            "ServiceAccount ns/a may not list pods in namespace ns",
            "ServiceAccount ns/a may not get /metrics",
        ];
        assert_eq!(found, expected);
    }
}
