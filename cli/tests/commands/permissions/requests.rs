//! What the components asked the API server for, from its audit log.

use std::collections::BTreeSet;

use serde_json::Value;

/// What a right is about: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// E.g. `patch`.
    pub verb: String,
    /// The API group; empty for core.
    pub group: String,
    /// The resource with its subresource, e.g. `nodes/status`.
    pub resource: String,
}

impl Right {
    pub fn new(verb: &str, group: &str, resource: &str) -> Self {
        Self { verb: verb.to_owned(), group: group.to_owned(), resource: resource.to_owned() }
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, group, resource } = self;
        if group.is_empty() { write!(f, "{verb} {resource}") } else { write!(f, "{verb} {resource}.{group}") }
    }
}

/// A request, as far as it needs a right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The user agent without its version.
    pub agent: String,
    pub right: Right,
    /// None for all namespaces, and for what is in none.
    pub namespace: Option<String>,
    /// None for a collection.
    pub name: Option<String>,
}

impl Request {
    /// Reads a line of the audit log, the embedded API server's or kube-apiserver's; `None` for what is no resource.
    fn of(line: &Value) -> Option<Self> {
        let text = |embedded: &str, stock: &str| line[embedded].as_str().or(line[stock].as_str());
        let agent = text("who", "userAgent")?.split('/').next()?.to_owned();
        let uri = text("uri", "requestURI")?;
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let group = match parts[0] {
            "api" => parts.drain(..2.min(parts.len())).next().map(|_| "")?,
            "apis" if parts.len() > 3 => parts.drain(..3).nth(1)?,
            _ => return None,
        };
        let namespace = match parts[..] {
            ["namespaces", namespace, _, ..] => {
                parts.drain(..2);
                Some(namespace.to_owned())
            }
            _ => None,
        };
        let (resource, name, subresource) = match parts[..] {
            [resource] => (resource, None, None),
            [resource, name] => (resource, Some(name), None),
            [resource, name, subresource] => (resource, Some(name), Some(subresource)),
            _ => return None,
        };
        // A list of one name needs the right on that name only.
        let only = query.split('&').find_map(|part| {
            part.strip_prefix("fieldSelector=metadata.name%3D")
                .or(part.strip_prefix("fieldSelector=metadata.name="))
        });
        let resource = match subresource {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        };
        Some(Self {
            agent,
            right: Right { verb: line["verb"].as_str()?.to_owned(), group: group.to_owned(), resource },
            namespace,
            name: name.or(only).map(str::to_owned),
        })
    }
}

/// All requests of a log, each once.
pub fn read(log: &str) -> BTreeSet<Request> {
    let lines = log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    lines.filter_map(|line: Value| Request::of(&line)).collect()
}

#[test]
fn an_audit_line_is_parsed_as_the_required_right() {
    let read = |who: &str, verb: &str, uri: &str| {
        Request::of(&serde_json::json!({ "who": who, "verb": verb, "uri": uri }))
    };
    let found =
        read("claimcheck-x/0.1.0", "patch", "/api/v1/nodes/n/status?fieldManager=x").expect("a request");
    assert_eq!(
        (found.agent.as_str(), found.right),
        ("claimcheck-x", Right::new("patch", "", "nodes/status"))
    );
    assert_eq!((found.namespace, found.name.as_deref()), (None, Some("n")));
    let uri = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?fieldSelector=metadata.name%3Dl&watch=true";
    let found = read("a/1", "watch", uri).expect("a request");
    assert_eq!(found.right, Right::new("watch", "coordination.k8s.io", "leases"));
    assert_eq!((found.namespace.as_deref(), found.name.as_deref()), (Some("kube-system"), Some("l")));
    let found = read("a/1", "list", "/apis/storage.k8s.io/v1/csinodes?limit=500").expect("a request");
    assert_eq!((found.right, found.name), (Right::new("list", "storage.k8s.io", "csinodes"), None));
    for nothing in ["/version", "/apis", "/apis/storage.k8s.io/v1", "/openapi/v3"] {
        assert_eq!(read("a/1", "get", nothing), None, "{nothing}");
    }
}
