//! The users of the built-in components of a cluster with virtual nodes.

use std::collections::BTreeSet;

use claimcheck_component::accounts::CACHE;
use claimcheck_controllers::Name;
use claimcheck_deploy::install::{NAMESPACE, accounts};
use claimcheck_model::Denial;

/// The prefix of the users of nodes, and their group (apiserver pkg/authentication/user/user.go, and pkg/auth/nodeidentifier).
pub(super) const NODE_USER: &str = "system:node:";
pub(super) const NODE_GROUP: &str = "system:nodes";

/// The controllers that additional drivers have, whether or not those of the driver under test run.
pub(super) const OF_ADDITIONAL_DRIVERS: [Name; 3] = [Name::Provisioner, Name::Resizer, Name::Attacher];

/// The users of the built-in components of a cluster with virtual nodes.
#[derive(Clone, Debug)]
pub(super) struct BuiltinUsers(BTreeSet<String>);

impl BuiltinUsers {
    /// With these controllers, and those of additional drivers.
    pub(super) fn of(controllers: &[Name]) -> Self {
        let names = controllers.iter().copied().chain(OF_ADDITIONAL_DRIVERS).map(Name::as_str);
        let user = |name: &str| format!("system:serviceaccount:{NAMESPACE}:{}", accounts::account(name));
        Self(names.chain([CACHE]).map(user).collect())
    }

    /// Whether a built-in component sent the request.
    pub(super) fn sent(&self, denial: &Denial) -> bool {
        self.0.contains(&denial.user) || denial.user.starts_with(NODE_USER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_components_are_known_by_their_users() {
        let users = BuiltinUsers::of(&[Name::NodeLifecycle]);
        let sent = |user: &str| users.sent(&Denial { user: user.to_owned(), ..Denial::default() });
        for user in ["node-lifecycle", "provisioner", "cache"] {
            assert!(sent(&format!("system:serviceaccount:claimcheck-system:claimcheck-{user}")), "{user}");
        }
        assert!(sent("system:node:node-1"));
        // Upstream's snapshot-controller has the account of the built-in one, which does not run then.
        for user in ["snapshot-controller", "csi-provisioner"] {
            assert!(!sent(&format!("system:serviceaccount:claimcheck-system:claimcheck-{user}")), "{user}");
        }
        assert!(!sent("system:serviceaccount:vendor:claimcheck-provisioner") && !sent("claimcheck"));
    }
}
