//! The columns of bindings of roles.

use super::{
    super::cells::{Cell::Computed, roles as cells},
    AGE, Column, NAME, string, wide,
};

pub(in crate::resources) const CLUSTER_ROLE_BINDING: &[Column] = &[
    NAME,
    string(
        "Role",
        Computed(cells::role),
        "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    wide("Users", Computed(cells::users), "Users in the clusterRoleBinding"),
    wide("Groups", Computed(cells::groups), "Groups in the clusterRoleBinding"),
    wide("ServiceAccounts", Computed(cells::service_accounts), "ServiceAccounts in the clusterRoleBinding"),
];

pub(in crate::resources) const ROLE_BINDING: &[Column] = &[
    NAME,
    string(
        "Role",
        Computed(cells::role),
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    wide("Users", Computed(cells::users), "Users in the roleBinding"),
    wide("Groups", Computed(cells::groups), "Groups in the roleBinding"),
    wide("ServiceAccounts", Computed(cells::service_accounts), "ServiceAccounts in the roleBinding"),
];
