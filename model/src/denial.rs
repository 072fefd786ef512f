//! Requests that RBAC does not permit: which account lacks which rule, and the remedy.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NAMESPACE;

/// The prefix of the users of service accounts (apiserver pkg/authentication/serviceaccount).
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The user of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// A verb on a resource that RBAC does not permit a user, which requested it at least once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// The user, `system:serviceaccount:NAMESPACE:NAME` for a service account.
    pub user: String,
    /// The API group of the resource; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, with the subresource if there is one: `pods/status`; empty for a path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The path of a request that is not about objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The verb.
    pub verb: String,
    /// The namespace of the first such request; empty for all namespaces and for objects in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// What RBAC reports in addition, such as a missing role.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The roles that bindings grant to the account: `ClusterRole runner`, `Role ns/leases`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// An object that denied requests were about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedObject {
    /// The right that is missing, in the namespace of the object.
    pub denial: Denial,
    /// The name of the object; empty for a list, and for an object that would be created.
    pub name: String,
    /// The number of requests.
    pub times: u32,
}

impl Denial {
    /// What two denials that one rule resolves have in common: user, verb, group, resource and path. The namespace of
    /// the requests and RBAC's reason are not part of it, so that a program that polls is reported once.
    pub fn identity(&self) -> [&str; 5] {
        [&self.user, &self.verb, &self.group, &self.resource, &self.path]
    }

    /// The denial in a message of the API server (`ForbiddenMessage` of apiserver
    /// pkg/endpoints/handlers/responsewriters/errors.go); none if another part than the authorizer rejects the request.
    pub fn from_message(message: &str) -> Option<Self> {
        let (user, text) = message.split_once("User \"")?.1.split_once("\" cannot ")?;
        let (verb, text) = text.split_once(' ')?;
        let of = Self { user: user.to_owned(), verb: verb.to_owned(), ..Self::default() };
        if let Some(path) = text.strip_prefix("path \"") {
            return Some(Self { path: path.split_once('"')?.0.to_owned(), ..of });
        }
        let (resource, text) = text.strip_prefix("resource \"")?.split_once("\" in API group \"")?;
        let (group, text) = text.split_once('"')?;
        let namespace = text.strip_prefix(" in the namespace \"").and_then(|text| text.split_once('"'));
        let namespace = namespace.map_or("", |(namespace, _)| namespace).to_owned();
        Some(Self { group: group.to_owned(), resource: resource.to_owned(), namespace, ..of })
    }

    /// A denial for tests: `ServiceAccount storage/driver may not list nodes`, with the role `ClusterRole runner`.
    #[doc(hidden)]
    pub fn example() -> Self {
        Self {
            user: format!("{SERVICE_ACCOUNT}storage:driver"),
            resource: "nodes".to_owned(),
            verb: "list".to_owned(),
            roles: vec!["ClusterRole runner".to_owned()],
            ..Self::default()
        }
    }

    /// The namespace and name of the service account, if the user is one.
    pub fn account(&self) -> Option<(&str, &str)> {
        account(&self.user)
    }

    /// Who lacks the right: `ServiceAccount ns/name`, or the user.
    pub fn subject(&self) -> String {
        subject(&self.user)
    }

    /// What the verb is applied to: `pods/status in namespace ns`.
    pub fn target(&self) -> String {
        if self.resource.is_empty() {
            return self.path.clone();
        }
        let resource = match self.group.as_str() {
            "" => self.resource.clone(),
            group => match self.resource.split_once('/') {
                Some((resource, subresource)) => format!("{resource}.{group}/{subresource}"),
                None => format!("{}.{group}", self.resource),
            },
        };
        match self.namespace.as_str() {
            "" => format!("{resource} at the cluster scope"),
            namespace => format!("{resource} in namespace {namespace}"),
        }
    }

    /// The rule that permits these verbs, in YAML.
    fn rule(&self, verbs: &str) -> String {
        if self.resource.is_empty() {
            return format!("{{nonResourceURLs: [\"{}\"], verbs: [{verbs}]}}", self.path);
        }
        let group = if self.group.is_empty() { "\"\"" } else { &self.group };
        format!("{{apiGroups: [{group}], resources: [{}], verbs: [{verbs}]}}", self.resource)
    }

    /// What permits these verbs.
    pub fn remedy(&self, verbs: &str) -> String {
        let rule = self.rule(verbs);
        match self.account() {
            _ if self.user == ANONYMOUS => {
                "the program sends no credentials: pass it {kubeconfig}, or let it use the \
                 credentials of its pod"
                    .to_owned()
            }
            Some((NAMESPACE, _)) => {
                format!(
                    "the default roles lack it: add --sidecar-rbac FILE with a role of the program's vendor that has {rule}"
                )
            }
            Some(_) if self.roles.is_empty() => {
                let kind = if self.namespace.is_empty() { "ClusterRole" } else { "Role" };
                format!("no role is bound to it: bind a {kind} with the rule {rule}")
            }
            Some(_) => format!("add the rule {rule} to {}", self.roles.join(" or ")),
            None => format!("bind a role with the rule {rule} to it"),
        }
    }
}

fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
}

/// A user as a subject: `ServiceAccount ns/name`, or `user jane`.
pub(crate) fn subject(user: &str) -> String {
    match account(user) {
        Some((namespace, name)) => format!("ServiceAccount {namespace}/{name}"),
        None => format!("user {user}"),
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} may not {} {}", self.subject(), self.verb, self.target())?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, " ({})", self.reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(user: &str, resource: &str, namespace: &str, roles: &[&str]) -> Denial {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        Denial {
            user: user.into(),
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            verb: "list".into(),
            roles: roles.iter().map(ToString::to_string).collect(),
            ..Denial::default()
        }
    }

    #[test]
    fn requests_that_one_rule_permits_are_one_denial() {
        let first = Denial::example();
        let again = Denial { namespace: "ns".into(), reason: "x".into(), roles: Vec::new(), ..first.clone() };
        assert_eq!(first.identity(), again.identity());
        for other in [
            Denial { user: "jane".into(), ..first.clone() },
            Denial { verb: "get".into(), ..first.clone() },
            Denial { group: "apps".into(), ..first.clone() },
            Denial { resource: "nodes/status".into(), ..first.clone() },
            Denial { resource: String::new(), path: "nodes".into(), ..first.clone() },
        ] {
            assert_ne!(first.identity(), other.identity(), "{other}");
        }
    }

    #[test]
    fn a_denial_is_read_from_the_message_of_the_api_server() {
        let text = |message: &str| Denial::from_message(message).map(|denial| denial.to_string());
        for (message, expected) in [
            (
                "pods \"p\" is forbidden: User \"system:serviceaccount:ns:a\" cannot patch resource \"pods/status\" in API \
                 group \"\" in the namespace \"n\": RBAC: role.rbac.authorization.k8s.io \"x\" not found",
                "ServiceAccount ns/a may not patch pods/status in namespace n",
            ),
            (
                "volumeattachments.storage.k8s.io is forbidden: User \"jane\" cannot list resource \"volumeattachments\" \
                 in API group \"storage.k8s.io\" at the cluster scope",
                "user jane may not list volumeattachments.storage.k8s.io at the cluster scope",
            ),
            ("forbidden: User \"jane\" cannot get path \"/metrics\"", "user jane may not get /metrics"),
        ] {
            assert_eq!(text(message).as_deref(), Some(expected));
        }
        for other in ["pods \"p\" is forbidden: exceeded quota: q", "User \"jane\" cannot", ""] {
            assert_eq!(text(other), None, "{other}");
        }
    }

    #[test]
    fn a_denial_names_the_account_the_right_and_the_remedy() {
        let account = "system:serviceaccount:storage:runner";
        let table = [
            (
                denial(account, "nodes", "", &["ClusterRole a", "Role storage/b"]),
                "ServiceAccount storage/runner may not list nodes at the cluster scope",
                "add the rule {apiGroups: [\"\"], resources: [nodes], verbs: [list]} to ClusterRole a or Role storage/b",
            ),
            (
                denial(account, "leases.coordination.k8s.io", "storage", &[]),
                "ServiceAccount storage/runner may not list leases.coordination.k8s.io in namespace storage",
                "no role is bound to it: bind a Role with the rule {apiGroups: [coordination.k8s.io], resources: [leases], \
                 verbs: [list]}",
            ),
            (
                denial("system:serviceaccount:claimcheck-system:x", "nodes", "", &["ClusterRole a"]),
                "ServiceAccount claimcheck-system/x may not list nodes at the cluster scope",
                "the default roles lack it: add --sidecar-rbac FILE with a role of the program's vendor that has \
                 {apiGroups: [\"\"], resources: [nodes], verbs: [list]}",
            ),
            (
                denial("jane", "nodes", "", &[]),
                "user jane may not list nodes at the cluster scope",
                "bind a role with the rule {apiGroups: [\"\"], resources: [nodes], verbs: [list]} to it",
            ),
        ];
        for (denial, text, remedy) in table {
            assert_eq!((denial.to_string().as_str(), denial.remedy("list").as_str()), (text, remedy));
        }
        let mut path = denial(account, "", "", &["ClusterRole a"]);
        (path.path, path.verb, path.reason) = ("/metrics".into(), "get".into(), "RBAC: x".into());
        assert_eq!(path.to_string(), "ServiceAccount storage/runner may not get /metrics (RBAC: x)");
        assert_eq!(
            path.remedy("get"),
            "add the rule {nonResourceURLs: [\"/metrics\"], verbs: [get]} to ClusterRole a"
        );
        let mut status = denial(account, "volumeattachments/status", "", &[]);
        status.group = "storage.k8s.io".into();
        assert_eq!(status.target(), "volumeattachments.storage.k8s.io/status at the cluster scope");
        assert!(denial(ANONYMOUS, "nodes", "", &[]).remedy("list").contains("no credentials"));
    }
}
