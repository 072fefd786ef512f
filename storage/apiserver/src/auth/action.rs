//! What a request does, as far as permissions are concerned: a verb on a resource, or on another path.
//!
//! Mirrors `RequestInfoFactory` (apiserver pkg/endpoints/request/requestinfo.go) and the messages of
//! pkg/endpoints/handlers/responsewriters/errors.go. It is read from the path alone, so that unknown resources
//! are refused before it turns out that they are unknown.

use http::Method;

use super::User;
use crate::request::{Query, decode};

/// An action that RBAC permits or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// E.g. `deletecollection`; of paths the lower-case method.
    pub verb: String,
    /// What it is done to.
    pub target: ActionTarget,
}

/// The target of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionTarget {
    /// Objects.
    Resource(ResourceTarget),
    /// A path that is not about objects.
    Path(String),
}

/// Objects of a resource; what is not given is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTarget {
    /// The API group.
    pub group: String,
    /// E.g. `pods`.
    pub resource: String,
    /// E.g. `status`.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped objects and for all namespaces.
    pub namespace: String,
    /// The name of one object.
    pub name: String,
}

impl ResourceTarget {
    /// `pods` or `pods/status`.
    pub fn combined(&self) -> String {
        match self.subresource.is_empty() {
            true => self.resource.clone(),
            false => format!("{}/{}", self.resource, self.subresource),
        }
    }
}

impl Action {
    /// A verb on objects.
    pub fn on_resource(verb: &str, target: ResourceTarget) -> Self {
        Self { verb: verb.to_owned(), target: ActionTarget::Resource(target) }
    }

    /// A verb on a path.
    pub fn on_path(verb: &str, path: &str) -> Self {
        Self { verb: verb.to_owned(), target: ActionTarget::Path(path.to_owned()) }
    }

    /// The action of a request; `path` is not decoded.
    pub fn from_request(method: &Method, path: &str, query: &Query) -> Self {
        let segments: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, rest) = match segments[..] {
            ["api", _, ref rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, _, ref rest @ ..] if !rest.is_empty() => (group, rest),
            _ => return Self::on_path(&method.as_str().to_ascii_lowercase(), &decode(path)),
        };
        let (mut verb, rest) = match *rest {
            // The deprecated verbs in paths.
            [verb @ ("proxy" | "watch"), ref rest @ ..] if !rest.is_empty() => (verb, rest),
            _ => (verb_of(method), rest),
        };
        let (namespace, rest) = match *rest {
            ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize", ..] => {
                (namespace, rest)
            }
            ["namespaces", namespace, ref below @ ..] => (namespace, below),
            _ => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default();
        let mut name = part(1);
        let subresource = if matches!(verb, "proxy" | "watch") { "" } else { part(2) };
        if name.is_empty() && verb == "get" {
            verb = if query.flag("watch") { "watch" } else { "list" };
            name = query.get("fieldSelector").and_then(named).unwrap_or_default();
        }
        if name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        let target = ResourceTarget {
            group: group.to_owned(),
            resource: part(0).to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Self::on_resource(verb, target)
    }

    /// Upstream's message for a user to whom it is not permitted.
    pub fn refusal(&self, user: &User) -> String {
        let (user, verb) = (&user.name, &self.verb);
        match &self.target {
            ActionTarget::Path(path) => format!("User \"{user}\" cannot {verb} path \"{path}\""),
            ActionTarget::Resource(target) => {
                let (resource, group) = (target.combined(), &target.group);
                let scope = match target.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace \"{namespace}\""),
                };
                format!(
                    "User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}"
                )
            }
        }
    }
}

fn verb_of(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The only name that a field selector matches, if it is valid in a path.
fn named(selector: &str) -> Option<&str> {
    let value = selector.split(',').find_map(|term| {
        let value = term.trim().strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })?;
    (!matches!(value, "." | "..") && !value.contains(['/', '%'])).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let method: Method = method.parse().unwrap();
        let Action { verb, target } = Action::from_request(&method, path, &Query::parse(Some(query)));
        match target {
            ActionTarget::Path(path) => format!("{verb} {path}"),
            ActionTarget::Resource(target) => {
                format!("{verb} {}:{} {}/{}", target.group, target.combined(), target.namespace, target.name)
            }
        }
    }

    #[test]
    fn requests_are_actions() {
        for (method, uri, expected) in [
            ("GET", "/version", "get /version"),
            ("GET", "/api", "get /api"),
            ("GET", "/api/v1", "get /api/v1"),
            ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
            ("HEAD", "/apis", "head /apis"),
            ("GET", "/openapi/v3/apis/apps/v1", "get /openapi/v3/apis/apps/v1"),
            ("GET", "/api/v1/pods", "list :pods /"),
            ("GET", "/api/v1/pods?watch=1", "watch :pods /"),
            ("GET", "/api/v1/pods?watch=false", "list :pods /"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list :pods /p"),
            ("GET", "/api/v1/pods?watch=1&fieldSelector=a%3Db%2Cmetadata.name%3D%3Dp", "watch :pods /p"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Dp", "list :pods /"),
            ("POST", "/api/v1/namespaces/n/pods", "create :pods n/"),
            ("HEAD", "/api/v1/namespaces/n/pods/p", "get :pods n/p"),
            ("PUT", "/api/v1/namespaces/n/pods/p/status", "update :pods/status n/p"),
            ("POST", "/api/v1/namespaces/n/pods/p/binding", "create :pods/binding n/p"),
            ("DELETE", "/api/v1/namespaces/n/pods", "deletecollection :pods n/"),
            ("DELETE", "/api/v1/namespaces/n/pods/p", "delete :pods n/p"),
            ("GET", "/api/v1/namespaces", "list :namespaces /"),
            ("GET", "/api/v1/namespaces/n", "get :namespaces n/n"),
            ("PUT", "/api/v1/namespaces/n/finalize", "update :namespaces/finalize n/n"),
            ("GET", "/api/v1/watch/namespaces/n/pods", "watch :pods n/"),
            ("PATCH", "/apis/storage.k8s.io/v1/csinodes/c", "patch storage.k8s.io:csinodes /c"),
            ("GET", "/apis/unknown.example/v1/namespaces/n/things/t", "get unknown.example:things n/t"),
            ("OPTIONS", "/api/v1/pods", " :pods /"),
        ] {
            assert_eq!(action(method, uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn refusals_name_user_verb_resource_and_scope() {
        let user = User { name: "x".to_owned(), ..User::default() };
        let refusal = |method: &str, path: &str| {
            Action::from_request(&method.parse().unwrap(), path, &Query::default()).refusal(&user)
        };
        assert_eq!(
            refusal("GET", "/api/v1/namespaces/y/pods"),
            r#"User "x" cannot list resource "pods" in API group "" in the namespace "y""#
        );
        assert_eq!(
            refusal("PUT", "/apis/storage.k8s.io/v1/volumeattachments/v/status"),
            r#"User "x" cannot update resource "volumeattachments/status" in API group "storage.k8s.io" at the cluster scope"#
        );
        assert_eq!(refusal("GET", "/metrics"), r#"User "x" cannot get path "/metrics""#);
    }
}
