//! All roles and bindings, indexed by namespace and subject.
//!
//! Mirrors `DefaultRuleResolver` in pkg/registry/rbac/validation/rule.go, which goes through all bindings for
//! every request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::Rule;
use super::aggregation;
use crate::auth::action::{Action, ActionTarget};
use crate::auth::user::{self, User};
use crate::store::Object;

/// The stored objects of a policy, each kind in the order of its keys.
#[derive(Default)]
pub struct Objects {
    /// ClusterRoles.
    pub cluster_roles: Vec<Arc<Object>>,
    /// ClusterRoleBindings.
    pub cluster_bindings: Vec<Arc<Object>>,
    /// Roles.
    pub roles: Vec<Arc<Object>>,
    /// RoleBindings.
    pub bindings: Vec<Arc<Object>>,
}

/// Who may do what.
#[derive(Default)]
pub struct Policy {
    cluster: Subjects,
    namespaces: HashMap<String, Subjects>,
}

/// The grants of one scope by subject.
#[derive(Default)]
struct Subjects {
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

/// What a binding grants to one of its subjects.
struct Grant {
    /// The positions of the binding in its scope, and of the subject in the binding.
    place: (usize, usize),
    /// As in upstream's reason for a permission.
    source: String,
    /// The rules of the role, or why there are none.
    rules: Result<Arc<[Rule]>, String>,
}

/// The evaluation of an action.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is permitted, with the reason.
    Allowed(String),
    /// No rule permits it. The reason is empty unless roles are missing.
    Denied(String),
    /// It is permitted for objects that have to do with the node that the user is, which this has not.
    Unrelated(String),
}

/// The rules of a user in a namespace.
pub struct UserRules {
    /// The rules.
    pub rules: Vec<Rule>,
    /// The missing roles.
    pub errors: Vec<String>,
}

impl Policy {
    /// Indexes `objects`.
    pub fn new(objects: &Objects) -> Self {
        let cluster_roles = aggregation::rules(&objects.cluster_roles);
        let roles: BTreeMap<(&str, &str), Arc<[Rule]>> = objects
            .roles
            .iter()
            .map(|role| {
                let rules = Rule::read_all(&role.value["rules"]);
                ((&*role.key.namespace, &*role.key.name), Arc::from(rules))
            })
            .collect();
        let find = |namespace: &str, reference: &Value| {
            let name = reference["name"].as_str().unwrap_or_default();
            let missing = |kind: &str| format!("{kind}.rbac.authorization.k8s.io \"{name}\" not found");
            match reference["kind"].as_str().unwrap_or_default() {
                "ClusterRole" => cluster_roles.get(name).cloned().ok_or_else(|| missing("clusterrole")),
                "Role" => roles.get(&(namespace, name)).cloned().ok_or_else(|| missing("role")),
                other => Err(format!("unsupported role reference kind: \"{other}\"")),
            }
        };
        let mut policy = Self::default();
        for (index, binding) in objects.cluster_bindings.iter().enumerate() {
            policy.cluster.add(index, binding, &find("", &binding.value["roleRef"]));
        }
        for (index, binding) in objects.bindings.iter().enumerate() {
            let namespace = &*binding.key.namespace;
            let subjects = policy.namespaces.entry(namespace.to_owned()).or_default();
            subjects.add(index, binding, &find(namespace, &binding.value["roleRef"]));
        }
        policy
    }

    /// Whether `user` may do `action`.
    pub fn decide(&self, user: &User, action: &Action) -> Decision {
        let namespace = match &action.target {
            ActionTarget::Resource(target) => target.namespace.as_str(),
            ActionTarget::Path(_) => "",
        };
        let mut errors = Vec::new();
        for grant in self.grants(user, namespace) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(action)) => {
                    return Decision::Allowed(format!("RBAC: allowed by {}", grant.source));
                }
                Ok(_) => {}
                Err(error) => errors.push(error.clone()),
            }
        }
        match aggregate(errors) {
            None => Decision::Denied(String::new()),
            Some(errors) => Decision::Denied(format!("RBAC: {errors}")),
        }
    }

    /// The rules that apply to `user` in `namespace`.
    pub fn rules_of(&self, user: &User, namespace: &str) -> UserRules {
        let mut found = UserRules { rules: Vec::new(), errors: Vec::new() };
        for grant in self.grants(user, namespace) {
            match &grant.rules {
                Ok(rules) => found.rules.extend(rules.iter().cloned()),
                Err(error) => found.errors.push(error.clone()),
            }
        }
        found
    }

    /// The grants of the cluster, then those of the namespace, one per binding.
    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = self.namespaces.get(namespace).map(|subjects| subjects.of(user)).unwrap_or_default();
        self.cluster.of(user).into_iter().chain(local)
    }
}

impl Subjects {
    fn add(&mut self, index: usize, binding: &Object, rules: &Result<Arc<[Rule]>, String>) {
        let namespace = &*binding.key.namespace;
        for (place, subject) in binding.value["subjects"].as_array().into_iter().flatten().enumerate() {
            let text = |field: &str| subject[field].as_str().unwrap_or_default();
            let (kind, name) = (text("kind"), text("name"));
            let (map, key, described) = match kind {
                "User" => (&mut self.users, name.to_owned(), name.to_owned()),
                "Group" => (&mut self.groups, name.to_owned(), name.to_owned()),
                "ServiceAccount" => {
                    let of = Some(text("namespace")).filter(|of| !of.is_empty()).unwrap_or(namespace);
                    if of.is_empty() {
                        continue;
                    }
                    (&mut self.users, user::service_account(of, name), format!("{name}/{of}"))
                }
                _ => continue,
            };
            let source = format!("{} to {kind} \"{described}\"", describe(binding));
            let grant = Grant { place: (index, place), source, rules: rules.clone() };
            map.entry(key).or_default().push(grant);
        }
    }

    /// The grants to a user, one per binding, in the order of the bindings.
    fn of(&self, user: &User) -> Vec<&Grant> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group));
        let mut grants: Vec<&Grant> =
            self.users.get(&user.name).into_iter().chain(groups).flatten().collect();
        grants.sort_by_key(|grant| grant.place);
        grants.dedup_by_key(|grant| grant.place.0);
        grants
    }
}

fn describe(binding: &Object) -> String {
    let reference = &binding.value["roleRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (kind, name) = match binding.key.namespace.is_empty() {
        true => ("ClusterRoleBinding", binding.key.name.to_string()),
        false => ("RoleBinding", format!("{}/{}", binding.key.name, binding.key.namespace)),
    };
    format!("{kind} \"{name}\" of {} \"{}\"", text("kind"), text("name"))
}

/// The text of several errors, as `utilerrors.NewAggregate` of apimachinery; `None` if there are none.
pub fn aggregate(mut errors: Vec<String>) -> Option<String> {
    let mut known = Vec::new();
    errors.retain(|error| {
        let new = !known.contains(error);
        known.push(error.clone());
        new
    });
    match &errors[..] {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests;
