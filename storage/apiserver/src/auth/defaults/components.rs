//! The default roles of kube-controller-manager, its controllers of storage, nodes and workloads, and kube-scheduler, which run
//! with the embedded API server by `--controllers stock`.
//!
//! Mirrors `ClusterRoles` and `clusterRoleBindings` in policy.go, and `buildControllerRoles` in controller_policy.go
//! (plugin/pkg/auth/authorizer/rbac/bootstrappolicy), without the rules on single leases, since those programs run
//! without leader election.

use super::{Permission, READ, ROLE, Role};

const EVENTS: Permission = ("create update patch", "core events.k8s.io", "events");

/// The prefix of the roles of controllers; the rest is the name of the service account in kube-system.
const CONTROLLER: &str = "system:controller:";

/// The roles.
pub(super) const ROLES: &[Role] = &[
    Role {
        name: "system:kube-controller-manager",
        permissions: &[
            EVENTS,
            ("create", "coordination.k8s.io", "leases"),
            ("create", "core", "secrets serviceaccounts serviceaccounts/token"),
            ("delete", "core", "secrets"),
            ("get", "core", "namespaces secrets serviceaccounts configmaps"),
            ("update", "core", "secrets serviceaccounts"),
            ("create", "authentication.k8s.io", "tokenreviews"),
            ("create", "authorization.k8s.io", "subjectaccessreviews"),
            ("list watch", "*", "*"),
        ],
        ..ROLE
    },
    Role {
        name: "system:kube-scheduler",
        permissions: &[
            EVENTS,
            ("create", "coordination.k8s.io", "leases"),
            (
                "get list watch create delete deletecollection patch update",
                "coordination.k8s.io",
                "leasecandidates",
            ),
            (READ, "core", "nodes services replicationcontrollers namespaces"),
            ("get list watch delete", "core", "pods"),
            ("create", "core", "pods/binding bindings"),
            ("patch update", "core", "pods/status"),
            (READ, "apps extensions", "replicasets"),
            (READ, "apps", "statefulsets"),
            (READ, "policy", "poddisruptionbudgets"),
            (READ, "core", "persistentvolumeclaims persistentvolumes"),
            ("create", "authentication.k8s.io", "tokenreviews"),
            ("create", "authorization.k8s.io", "subjectaccessreviews"),
            (READ, "storage.k8s.io", "csinodes volumeattachments csidrivers csistoragecapacities"),
            (READ, "resource.k8s.io", "deviceclasses resourceslices"),
            ("get list watch update patch", "resource.k8s.io", "resourceclaims resourceclaims/status"),
            ("update", "core", "pods/finalizers"),
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:attachdetach-controller",
        permissions: &[
            ("list watch", "core", "persistentvolumes persistentvolumeclaims pods"),
            (READ, "core", "nodes"),
            ("patch update", "core", "nodes/status"),
            EVENTS,
            ("get create delete list watch", "storage.k8s.io", "volumeattachments"),
            (READ, "storage.k8s.io", "csidrivers csinodes"),
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:expand-controller",
        permissions: &[
            ("get list watch update patch", "core", "persistentvolumes"),
            ("update patch", "core", "persistentvolumeclaims/status"),
            (READ, "core", "persistentvolumeclaims"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:ephemeral-volume-controller",
        permissions: &[
            (READ, "core", "pods"),
            ("update", "core", "pods/finalizers"),
            ("get list watch create", "core", "persistentvolumeclaims"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:node-controller",
        permissions: &[
            ("get list watch update delete patch", "core", "nodes"),
            ("patch update", "core", "nodes/status pods/status"),
            ("list watch get delete", "core", "pods"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:persistent-volume-binder",
        permissions: &[
            ("get list watch update create delete", "core", "persistentvolumes"),
            ("update", "core", "persistentvolumes/status persistentvolumeclaims/status"),
            ("get list watch update", "core", "persistentvolumeclaims"),
            ("list watch get create delete", "core", "pods"),
            (READ, "storage.k8s.io", "storageclasses"),
            ("list watch", "core", "nodes"),
            EVENTS,
            ("watch", "core", "events"),
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:pod-garbage-collector",
        permissions: &[
            ("list watch delete", "core", "pods"),
            (READ, "core", "nodes"),
            ("patch", "core", "pods/status"),
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:pv-protection-controller",
        permissions: &[("get list watch update", "core", "persistentvolumes"), EVENTS],
        ..ROLE
    },
    Role {
        name: "system:controller:pvc-protection-controller",
        permissions: &[
            ("get list watch update", "core", "persistentvolumeclaims"),
            ("update", "core", "persistentvolumeclaims/status"),
            (READ, "core", "pods"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:cronjob-controller",
        permissions: &[
            ("get list watch update", "batch", "cronjobs"),
            ("get list watch create update delete patch", "batch", "jobs"),
            ("update", "batch", "cronjobs/status cronjobs/finalizers"),
            ("list watch delete", "core", "pods"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:daemon-set-controller",
        permissions: &[
            (READ, "extensions apps", "daemonsets"),
            ("update", "extensions apps", "daemonsets/status daemonsets/finalizers"),
            ("list watch", "core", "nodes"),
            ("list watch create delete patch", "core", "pods"),
            ("create", "core", "pods/binding"),
            ("get list watch create delete update patch", "apps", "controllerrevisions"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:deployment-controller",
        permissions: &[
            ("get list watch update", "extensions apps", "deployments"),
            ("update", "extensions apps", "deployments/status deployments/finalizers"),
            ("get list watch create update patch delete", "apps extensions", "replicasets"),
            ("get list watch update", "core", "pods"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:job-controller",
        permissions: &[
            ("get list watch update patch", "batch", "jobs"),
            ("update", "batch", "jobs/status jobs/finalizers"),
            ("list watch create delete patch", "core", "pods"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:replicaset-controller",
        permissions: &[
            ("get list watch update", "apps extensions", "replicasets"),
            ("update", "apps extensions", "replicasets/status replicasets/finalizers"),
            ("list watch patch create delete", "core", "pods"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:replication-controller",
        permissions: &[
            ("get list watch update", "core", "replicationcontrollers"),
            ("update", "core", "replicationcontrollers/status replicationcontrollers/finalizers"),
            ("list watch patch create delete", "core", "pods"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:statefulset-controller",
        permissions: &[
            ("get list watch create delete update patch", "core", "pods"),
            (READ, "apps", "statefulsets"),
            ("update", "apps", "statefulsets/status statefulsets/finalizers"),
            ("get list watch create delete update patch", "apps", "controllerrevisions"),
            ("get list watch create update delete", "core", "persistentvolumeclaims"),
            ("update", "core", "pods/finalizers"),
            EVENTS,
        ],
        ..ROLE
    },
    Role {
        name: "system:controller:ttl-controller",
        permissions: &[("update patch list watch", "core", "nodes"), EVENTS],
        ..ROLE
    },
    Role {
        name: "system:controller:volumeattributesclass-protection-controller",
        permissions: &[
            (READ, "core", "persistentvolumeclaims persistentvolumes"),
            ("get list watch update", "storage.k8s.io", "volumeattributesclasses"),
            EVENTS,
        ],
        ..ROLE
    },
];

/// ClusterRoles and the users that they are bound to, in bindings of the same name.
pub(super) const USERS: [(&str, &str); 3] = [
    ("system:kube-controller-manager", "system:kube-controller-manager"),
    ("system:kube-scheduler", "system:kube-scheduler"),
    ("system:volume-scheduler", "system:kube-scheduler"),
];

/// The roles of controllers and the service accounts in kube-system that they are bound to, in bindings of the same
/// name.
pub(super) fn controllers() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROLES.iter().filter_map(|role| Some((role.name, role.name.strip_prefix(CONTROLLER)?)))
}

#[cfg(test)]
mod tests {
    use crate::auth::User;
    use crate::auth::action::{Action, ResourceTarget};
    use crate::auth::rbac::{Decision, Rbac};
    use crate::bootstrap::bootstrap_cluster;
    use crate::store::Store;

    #[test]
    fn components_may_do_their_work_and_nothing_else() {
        const MANAGER: &str = "system:kube-controller-manager";
        const SCHEDULER: &str = "system:kube-scheduler";
        const BINDER: &str = "system:serviceaccount:kube-system:persistent-volume-binder";
        const ATTACHER: &str = "system:serviceaccount:kube-system:attachdetach-controller";
        const STATEFUL_SETS: &str = "system:serviceaccount:kube-system:statefulset-controller";
        let (store, _notices) = Store::new(256);
        bootstrap_cluster(&store, "");
        let rbac = Rbac::new(store);
        for (user, verb, group, resource, expected) in [
            (MANAGER, "watch", "apps", "daemonsets", true),
            (MANAGER, "create", "", "serviceaccounts/token", true),
            (MANAGER, "update", "", "persistentvolumes", false),
            (SCHEDULER, "create", "", "pods/binding", true),
            (SCHEDULER, "watch", "resource.k8s.io", "resourceclaims", true),
            // Of the role system:volume-scheduler.
            (SCHEDULER, "update", "", "persistentvolumeclaims", true),
            (SCHEDULER, "create", "", "pods", false),
            (BINDER, "update", "", "persistentvolumeclaims/status", true),
            (BINDER, "create", "storage.k8s.io", "volumeattachments", false),
            (ATTACHER, "create", "storage.k8s.io", "volumeattachments", true),
            (ATTACHER, "update", "", "persistentvolumes", false),
            (STATEFUL_SETS, "create", "", "persistentvolumeclaims", true),
            (STATEFUL_SETS, "update", "apps", "deployments", false),
        ] {
            let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let target = ResourceTarget {
                group: group.to_owned(),
                resource: plural.to_owned(),
                subresource: subresource.to_owned(),
                namespace: "default".to_owned(),
                ..ResourceTarget::default()
            };
            let action = Action::on_resource(verb, target);
            let caller = User { name: user.to_owned(), ..User::default() }.authenticated();
            let allowed = matches!(rbac.decide(&caller, &action), Decision::Allowed(_));
            assert_eq!(allowed, expected, "{user} {verb} {group} {resource}");
        }
    }
}
