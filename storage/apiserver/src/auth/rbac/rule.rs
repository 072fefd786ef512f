//! A rule of a role, and what it permits.
//!
//! Mirrors pkg/apis/rbac/v1/evaluation_helpers.go and `RuleAllows` in plugin/pkg/auth/authorizer/rbac/rbac.go.

use serde_json::Value;

use crate::auth::action::{Action, ActionTarget, ResourceTarget};

/// The wildcard of verbs, groups, resources and paths.
const ALL: &str = "*";

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The permitted verbs.
    pub verbs: Vec<String>,
    /// The API groups of the resources.
    pub groups: Vec<String>,
    /// The resources, with their subresources.
    pub resources: Vec<String>,
    /// The names of the objects; any if it is empty.
    pub names: Vec<String>,
    /// The paths that are not about objects.
    pub paths: Vec<String>,
}

impl Rule {
    /// Reads the rules of a role.
    pub fn read_all(rules: &Value) -> Vec<Self> {
        rules.as_array().into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let texts = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            paths: texts("nonResourceURLs"),
        }
    }

    /// As a `PolicyRule`.
    pub fn to_value(&self) -> Value {
        let fields = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ];
        let set = fields.into_iter().filter(|(_, texts)| !texts.is_empty());
        set.map(|(name, texts)| (name.to_owned(), texts.iter().map(String::as_str).collect::<Value>()))
            .collect()
    }

    /// Whether it permits `action`.
    pub fn allows(&self, action: &Action) -> bool {
        contains(&self.verbs, &action.verb)
            && match &action.target {
                ActionTarget::Path(path) => self.paths.iter().any(|allowed| covers_path(allowed, path)),
                ActionTarget::Resource(target) => {
                    contains(&self.groups, &target.group)
                        && self.covers_resource(target)
                        && (self.names.is_empty() || self.names.contains(&target.name))
                }
            }
    }

    fn covers_resource(&self, target: &ResourceTarget) -> bool {
        let combined = target.combined();
        self.resources.iter().any(|allowed| {
            allowed == ALL
                || *allowed == combined
                || !target.subresource.is_empty()
                    && allowed.strip_prefix("*/") == Some(target.subresource.as_str())
        })
    }
}

fn contains(allowed: &[String], requested: &str) -> bool {
    allowed.iter().any(|allowed| allowed == ALL || allowed == requested)
}

fn covers_path(allowed: &str, path: &str) -> bool {
    allowed == ALL
        || allowed == path
        || allowed.ends_with('*') && path.starts_with(allowed.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Group, resource, subresource, name.
    fn on(verb: &str, [group, resource, subresource, name]: [&str; 4]) -> Action {
        let [group, resource, subresource, name] = [group, resource, subresource, name].map(str::to_owned);
        let target = ResourceTarget { group, resource, subresource, name, ..ResourceTarget::default() };
        Action::on_resource(verb, target)
    }

    fn rule(value: Value) -> Rule {
        Rule::read(&value)
    }

    #[test]
    fn rules_permit_verbs_on_resources() {
        let pods = ["", "pods", "", "p"];
        let status = ["", "pods", "status", "p"];
        let plain = |verbs: &str, groups: &str, resources: &str| {
            rule(json!({ "verbs": [verbs], "apiGroups": [groups], "resources": [resources] }))
        };
        for (rule, action, expected) in [
            (plain("get", "", "pods"), on("get", pods), true),
            (plain("get", "", "pods"), on("list", pods), false),
            (plain("*", "", "pods"), on("deletecollection", pods), true),
            (plain("get", "apps", "pods"), on("get", pods), false),
            (plain("get", "*", "pods"), on("get", pods), true),
            (plain("get", "", "*"), on("get", pods), true),
            (plain("get", "", "nodes"), on("get", pods), false),
            // A subresource is a resource apart.
            (plain("get", "", "pods"), on("get", status), false),
            (plain("get", "", "pods/status"), on("get", status), true),
            (plain("get", "", "pods/status"), on("get", pods), false),
            (plain("get", "", "*/status"), on("get", status), true),
            (plain("get", "", "*/status"), on("get", pods), false),
            (plain("get", "", "*/log"), on("get", status), false),
            (plain("get", "", "*"), on("get", status), true),
            (plain("get", "", "pods/*"), on("get", status), false),
            (Rule::default(), on("get", pods), false),
        ] {
            assert_eq!(rule.allows(&action), expected, "{rule:?} {action:?}");
        }
    }

    #[test]
    fn names_restrict_to_single_objects() {
        let rule = rule(json!({
            "verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"],
        }));
        for (verb, name, expected) in [
            ("get", "a", true),
            ("get", "b", true),
            ("get", "c", false),
            ("list", "", false),
            ("list", "a", true),
        ] {
            assert_eq!(rule.allows(&on(verb, ["", "secrets", "", name])), expected, "{verb} {name}");
        }
    }

    #[test]
    fn paths_match_by_prefix() {
        let rule = rule(json!({ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"] }));
        for (verb, path, expected) in [
            ("get", "/healthz", true),
            ("get", "/healthz/etcd", false),
            ("get", "/api/", true),
            ("get", "/api/v1", true),
            ("get", "/api", false),
            ("post", "/healthz", false),
        ] {
            assert_eq!(rule.allows(&Action::on_path(verb, path)), expected, "{verb} {path}");
        }
        // A rule for paths says nothing about resources, and the reverse.
        assert!(!rule.allows(&on("get", ["", "pods", "", ""])));
        let everything = Rule::read(&json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }));
        assert!(!everything.allows(&Action::on_path("get", "/metrics")));
        let everywhere = Rule::read(&json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }));
        assert!(everywhere.allows(&Action::on_path("get", "/metrics")));
    }
}
