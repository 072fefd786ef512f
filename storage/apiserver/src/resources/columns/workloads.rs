//! The columns of Deployments, DaemonSets and bindings of roles.

use super::{
    super::cells::{
        Cell::{Computed, Number},
        workloads as cells,
    },
    AGE, Column, NAME, column, string, wide,
};

const CONTAINERS: Column =
    wide("Containers", Computed(cells::containers), "Names of each container in the template.");
const IMAGES: Column =
    wide("Images", Computed(cells::images), "Images referenced by each container in the template.");

pub(in crate::resources) const DAEMON_SET: &[Column] = &[
    NAME,
    column(
        "Desired",
        "integer",
        Number("/status/desiredNumberScheduled"),
        "The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    column(
        "Current",
        "integer",
        Number("/status/currentNumberScheduled"),
        "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    column(
        "Ready",
        "integer",
        Number("/status/numberReady"),
        "numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon pod running with a Ready Condition.",
    ),
    column(
        "Up-to-date",
        "integer",
        Number("/status/updatedNumberScheduled"),
        "The total number of nodes that are running updated daemon pod",
    ),
    column(
        "Available",
        "integer",
        Number("/status/numberAvailable"),
        "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and available (ready for at least spec.minReadySeconds)",
    ),
    string(
        "Node Selector",
        Computed(cells::node_selector),
        "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        Computed(cells::selector),
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::resources) const DEPLOYMENT: &[Column] = &[
    NAME,
    string("Ready", Computed(cells::ready_replicas), "Number of the pod with ready state"),
    string(
        "Up-to-date",
        Number("/status/updatedReplicas"),
        "Total number of non-terminating pods targeted by this deployment that have the desired template spec.",
    ),
    string(
        "Available",
        Number("/status/availableReplicas"),
        "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        Computed(cells::selector),
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment. It must match the pod template's labels.",
    ),
];

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
