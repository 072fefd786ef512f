//! RBAC: roles and their bindings decide what users may do.
//!
//! Permissions are only evaluated: a user may write roles with more permissions than it has, since upstream's
//! escalation checks (`ConfirmNoEscalation`, and the verbs `bind` and `escalate`) are not implemented.

mod aggregation;
mod policy;
mod rule;

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use super::User;
use super::action::Action;
use crate::resources::Storage;
use crate::store::Store;

pub use aggregation::rules as aggregated_rules;
pub use policy::{Decision, Policy, aggregate};
pub use rule::Rule;

/// The kinds that the policy consists of.
const KINDS: [Storage; 4] =
    [Storage::ClusterRoles, Storage::ClusterRoleBindings, Storage::Roles, Storage::RoleBindings];

/// The policy of a store. Its index is rebuilt when a role or binding has changed since the last decision, so a
/// decision does not depend on the number of bindings.
pub struct Rbac {
    store: Arc<Store>,
    /// The last change of each kind.
    changes: [watch::Receiver<u64>; 4],
    /// The index, with the changes that it includes.
    current: RwLock<([u64; 4], Arc<Policy>)>,
}

impl Rbac {
    /// The policy of `store`.
    pub fn new(store: Arc<Store>) -> Self {
        let changes = KINDS.map(|kind| store.subscribe(kind));
        // Versions begin at 1: the first decision builds the index.
        Self { store, changes, current: RwLock::new(([0; 4], Arc::default())) }
    }

    /// Whether `user` may do `action`.
    pub fn decide(&self, user: &User, action: &Action) -> Decision {
        match user.is_master() {
            true => Decision::Allowed(String::new()),
            false => self.policy().decide(user, action),
        }
    }

    /// The present policy.
    pub fn policy(&self) -> Arc<Policy> {
        // Read before the objects: a change in between is seen by the next decision again.
        let versions = self.changes.each_ref().map(|changes| *changes.borrow());
        {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            if current.0 == versions {
                return current.1.clone();
            }
        }
        let [cluster_roles, cluster_bindings, roles, bindings] =
            KINDS.map(|kind| self.store.list(kind, None).0);
        let objects = policy::Objects { cluster_roles, cluster_bindings, roles, bindings };
        let policy = Arc::new(Policy::new(&objects));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (versions, policy.clone());
        policy
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::action::ResourceTarget;
    use crate::store::Key;

    #[test]
    fn changes_of_roles_and_bindings_take_effect_at_once() {
        let (store, _notices) = Store::new(16);
        let rbac = Rbac::new(store.clone());
        let user = User { name: "bob".to_owned(), ..User::default() };
        let target = ResourceTarget { resource: "pods".to_owned(), ..ResourceTarget::default() };
        let action = Action::on_resource("get", target);
        let allowed = || matches!(rbac.decide(&user, &action), Decision::Allowed(_));
        assert!(!allowed());
        let binding = json!({
            "metadata": {}, "roleRef": { "kind": "ClusterRole", "name": "r" },
            "subjects": [{ "kind": "User", "name": "bob" }],
        });
        let binding = store.create(Storage::ClusterRoleBindings, Key::cluster("b"), binding).unwrap();
        assert!(!allowed(), "the role is missing");
        let role = json!({ "metadata": {}, "rules": [{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }] });
        let role = store.create(Storage::ClusterRoles, Key::cluster("r"), role).unwrap();
        assert!(allowed());
        assert!(Arc::ptr_eq(&rbac.policy(), &rbac.policy()), "the index is rebuilt after changes only");
        let none = json!({ "metadata": {}, "rules": [] });
        let role = store.replace(Storage::ClusterRoles, &role, none).unwrap();
        assert!(!allowed());
        let all =
            json!({ "metadata": {}, "rules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }] });
        store.replace(Storage::ClusterRoles, &role, all).unwrap();
        assert!(allowed());
        store.remove(Storage::ClusterRoleBindings, &binding, binding.value.clone()).unwrap();
        assert!(!allowed());
    }

    #[test]
    fn masters_may_do_everything() {
        let (store, _notices) = Store::new(16);
        let action = Action::on_path("delete", "/everything");
        assert_eq!(Rbac::new(store).decide(&User::admin(), &action), Decision::Allowed(String::new()));
    }
}
