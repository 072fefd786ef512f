//! The parsed path and query of a request.

use crate::custom::Registry;
use crate::resources::{self, Resource};

/// The target of a path.
#[derive(Debug)]
pub enum Target {
    /// `/healthz`, `/livez`, `/readyz`, and the checks below them.
    Health,
    /// `/version`.
    Version,
    /// `/openid/v1/jwks`: the keys that verify the tokens of service accounts.
    KeySet,
    /// `/api`: the versions of the core group.
    CoreVersions,
    /// `/apis`: all groups.
    Groups,
    /// `/apis/<group>`: the versions of one group.
    Group(String),
    /// `/api/v1` or `/apis/<group>/<version>`: the resources of one version; the group is empty for core.
    GroupVersion(String, String),
    /// `/openapi/v3`: the index of the descriptions.
    OpenApi,
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3/api/v1` or `/openapi/v3/apis/<group>/<version>`: the description of one version.
    OpenApiDocument(String, String),
    /// Objects of one resource.
    Objects(ObjectPath),
    /// A group and version that exist, with a resource that does not.
    UnknownResource,
    /// Anything else.
    Unknown,
}

/// A path below a resource.
#[derive(Debug, Clone)]
pub struct ObjectPath {
    /// The kind of object.
    pub resource: &'static Resource,
    /// Set for an object or a collection in one namespace.
    pub namespace: Option<String>,
    /// Unset for a collection.
    pub name: Option<String>,
    /// E.g. `status`.
    pub subresource: Option<String>,
}

impl Target {
    /// Parses `path` (not decoded). Kinds that are not built in are looked up in `custom`.
    pub fn parse(path: &str, custom: &Registry) -> Self {
        let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["version"] => Self::Version,
            ["openid", "v1", "jwks"] => Self::KeySet,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group(group.to_owned()),
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApi,
            ["openapi", "v3", "api", version] => Self::OpenApiDocument(String::new(), version.to_owned()),
            ["openapi", "v3", "apis", group, version] => {
                Self::OpenApiDocument(group.to_owned(), version.to_owned())
            }
            ["api", version] => Self::GroupVersion(String::new(), version.to_owned()),
            ["apis", group, version] => Self::GroupVersion(group.to_owned(), version.to_owned()),
            ["api", version, ref rest @ ..] => Self::objects("", version, rest, custom),
            ["apis", group, version, ref rest @ ..] => Self::objects(group, version, rest, custom),
            _ => Self::Unknown,
        }
    }

    fn objects(group: &str, version: &str, rest: &[&str], custom: &Registry) -> Self {
        let built_in = resources::all().iter().any(|r| r.group == group && r.version == version);
        if !built_in && !custom.kinds().serves(group, version) {
            // A built-in group has handlers for all its paths.
            let is_group = resources::all().iter().any(|row| row.group == group);
            return if is_group { Self::UnknownResource } else { Self::Unknown };
        }
        let owned = |s: &str| Some(s.to_owned());
        let (plural, namespace, name, subresource) = match *rest {
            // A namespace's own subresources look like collections in it.
            ["namespaces", name, sub @ ("status" | "finalize")] => {
                ("namespaces", None, owned(name), owned(sub))
            }
            ["namespaces", namespace, plural] => (plural, owned(namespace), None, None),
            ["namespaces", namespace, plural, name] => (plural, owned(namespace), owned(name), None),
            ["namespaces", namespace, plural, name, sub] => {
                (plural, owned(namespace), owned(name), owned(sub))
            }
            [plural] => (plural, None, None, None),
            [plural, name] => (plural, None, owned(name), None),
            [plural, name, sub] => (plural, None, owned(name), owned(sub)),
            _ => return Self::UnknownResource,
        };
        let found = resources::find(group, version, plural);
        match found.or_else(|| custom.kinds().find(group, version, plural)) {
            // Objects of a namespaced resource are reached through their namespace only, and the reverse.
            Some(resource)
                if resource.namespaced != namespace.is_some() && (namespace.is_some() || name.is_some()) =>
            {
                Self::UnknownResource
            }
            Some(resource) => Self::Objects(ObjectPath { resource, namespace, name, subresource }),
            None => Self::UnknownResource,
        }
    }
}

/// The query of a request, decoded.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a raw query string.
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// The first value of `name`, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// All values of `name`.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether `name` is given and not false.
    pub fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|(n, v)| n == name && !matches!(v.as_str(), "false" | "0"))
    }

    /// Adds a value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Whether this is a dry run.
    pub fn dry_run(&self) -> bool {
        self.get("dryRun").is_some()
    }
}

/// Percent-decoding; invalid escapes are left unchanged.
pub fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(path: &str) -> String {
        match Target::parse(path, &Registry::default()) {
            Target::Objects(p) => {
                let part = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{} {} {} {}",
                    p.resource.plural,
                    part(p.namespace),
                    part(p.name),
                    part(p.subresource)
                )
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn paths() {
        for (path, expected) in [
            ("/readyz", "Health"),
            ("/readyz/etcd", "Health"),
            ("/version", "Version"),
            ("/api/v1", "GroupVersion(\"\", \"v1\")"),
            ("/api/v1/pods", "pods - - -"),
            ("/api/v1/namespaces", "namespaces - - -"),
            ("/api/v1/namespaces/a", "namespaces - a -"),
            ("/api/v1/namespaces/a/status", "namespaces - a status"),
            ("/api/v1/namespaces/a/pods", "pods a - -"),
            ("/api/v1/namespaces/a/pods/p%2Eq/binding", "pods a p.q binding"),
            ("/api/v1/nodes/n/status", "nodes - n status"),
            ("/api/v1/pods/p", "UnknownResource"),
            ("/api/v1/namespaces/a/nodes", "UnknownResource"),
            ("/apis/storage.k8s.io/v1/volumeattachments/v", "volumeattachments - v -"),
            ("/apis/nope/v1/things", "Unknown"),
            ("/apis/storage.k8s.io/v1beta1/csinodes", "UnknownResource"),
            ("/api/v1/nopes", "UnknownResource"),
        ] {
            assert_eq!(describe(path), expected, "{path}");
        }
    }

    #[test]
    fn queries() {
        let query = Query::parse(Some("labelSelector=app+notin+(a)&watch=1&f=a%3Db&force=false&empty="));
        assert_eq!(query.get("labelSelector"), Some("app notin (a)"));
        assert_eq!(query.get("f"), Some("a=b"));
        assert_eq!(query.get("empty"), None);
        assert!(query.flag("watch") && !query.flag("force"));
    }
}
