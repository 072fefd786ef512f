//! What stock controllers with the embedded API server replace, and their arguments.
//!
//! Their informers wait forever for a kind that the API server does not serve (`WaitForCacheSync`), so the enabled
//! controllers and plugins are those with kinds that it does serve:
//!
//! - The controllers of `manager_arguments` watch pods, nodes, claims, volumes, the kinds of storage.k8s.io, leases, and
//!   the workloads of apps and batch (`cmd/kube-controller-manager/app/core.go`, `apps.go`, `batch.go`).
//! - The scheduler watches resource claims, slices and device classes since Kubernetes 1.34, even if no plugin uses
//!   them (`New` in `pkg/scheduler/scheduler.go`), and the gate DynamicResourceAllocation is locked since 1.35: the run
//!   adds these kinds as CustomResourceDefinitions (`DEVICE_KINDS`).

use std::path::Path;

use claimcheck_controllers::Name;
use serde_json::{Value, json};

use crate::embedded::{
    controller_manager::{self, CLIENT_LIMITS},
    stock::CONTROLLER_MANAGER,
};

/// A stock program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Manager,
    Scheduler,
}

impl Program {
    /// The name of the program, of its log and of its kubeconfig.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Manager => CONTROLLER_MANAGER,
            Self::Scheduler => "kube-scheduler",
        }
    }

    /// Its user (staging/src/k8s.io/apiserver/pkg/authentication/user/user.go).
    pub(crate) fn user(self) -> &'static str {
        match self {
            Self::Manager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
        }
    }
}

/// Its annotation of the first node shows that the controllers have started. Garbage collection, the deletion of
/// namespaces and default service accounts are part of the embedded API server.
const TTL_CONTROLLER: &str = "ttl-controller";

/// The annotation that the controller `ttl-controller` adds to every node (`ObjectTTLAnnotationKey` in
/// pkg/apis/core/annotation_key_constants.go).
pub(crate) const TTL_ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// The controllers that create the pods of workloads, for which there are no built-in ones.
const WORKLOADS: [&str; 7] = [
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "job-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
];

/// Whether a built-in controller does not run, since a stock one does its work.
pub(crate) fn is_replaced(name: Name, with_scheduler: bool) -> bool {
    match name {
        Name::Binder
        | Name::AttachDetach
        | Name::Expander
        | Name::Protection
        | Name::Ephemeral
        | Name::NodeLifecycle => true,
        Name::Scheduler => with_scheduler,
        // Sidecars; the garbage collector is that of the API server; the last one is off by default.
        Name::Provisioner
        | Name::Attacher
        | Name::Resizer
        | Name::SnapshotController
        | Name::Snapshotter
        | Name::Garbage
        | Name::DataSourceValidator => false,
    }
}

/// The arguments of kube-controller-manager. As with kubeadm, each controller has its own service account, to which the
/// role `system:controller:NAME` is bound.
pub(crate) fn manager_arguments(kubeconfig: &Path) -> Vec<String> {
    let more: Vec<&str> = WORKLOADS.into_iter().chain([TTL_CONTROLLER]).collect();
    let mut arguments = controller_manager::arguments(kubeconfig, &more);
    arguments.push("--use-service-account-credentials=true".to_owned());
    arguments
}

/// The arguments of kube-scheduler. Those about clients and leader election are ignored with `--config`
/// (`ApplyDeprecated` and `ApplyLeaderElectionTo` in cmd/kube-scheduler/app/options).
pub(crate) fn scheduler_arguments(configuration: &Path) -> Vec<String> {
    vec![format!("--config={}", configuration.display()), "--secure-port=0".to_owned()]
}

/// The configuration of kube-scheduler; JSON is YAML, too.
pub(crate) fn scheduler_configuration(kubeconfig: &Path) -> Value {
    let [qps, burst] = CLIENT_LIMITS;
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig.display().to_string(), "qps": qps, "burst": burst },
        "leaderElection": { "leaderElect": false },
    })
}

/// A kind of resource.k8s.io that the scheduler watches.
pub(crate) struct DeviceKind {
    kind: &'static str,
    singular: &'static str,
    plural: &'static str,
    scope: &'static str,
}

/// The kinds that the scheduler watches and the embedded API server does not serve. No object of them exists.
pub(crate) const DEVICE_KINDS: [DeviceKind; 3] = [
    DeviceKind {
        kind: "ResourceClaim",
        singular: "resourceclaim",
        plural: "resourceclaims",
        scope: "Namespaced",
    },
    DeviceKind {
        kind: "ResourceSlice",
        singular: "resourceslice",
        plural: "resourceslices",
        scope: "Cluster",
    },
    DeviceKind { kind: "DeviceClass", singular: "deviceclass", plural: "deviceclasses", scope: "Cluster" },
];

impl DeviceKind {
    /// Its CustomResourceDefinition, without a schema.
    pub(crate) fn definition(&self) -> Value {
        const GROUP: &str = "resource.k8s.io";
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{GROUP}", self.plural),
                // A definition in a group of k8s.io requires it.
                "annotations": { "api-approved.kubernetes.io": "unapproved, for the informers of kube-scheduler" },
            },
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.singular,
                },
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "schema": { "openAPIV3Schema": schema },
                }],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_kind::StockController;

    use super::*;

    #[test]
    fn sidecars_stay_built_in_and_the_scheduler_without_a_program() {
        use Name::{Attacher, Provisioner, Resizer, Scheduler, SnapshotController, Snapshotter};
        for (with_scheduler, expected) in [
            (true, vec![Provisioner, Attacher, Resizer, SnapshotController, Snapshotter]),
            (false, vec![Provisioner, Attacher, Resizer, Scheduler, SnapshotController, Snapshotter]),
        ] {
            let remaining = Name::ALL.into_iter().filter(|name| !is_replaced(*name, with_scheduler));
            let mut remaining: Vec<&str> = remaining.map(Name::as_str).collect();
            let mut expected: Vec<&str> = expected.iter().map(|name| name.as_str()).collect();
            remaining.sort_unstable();
            expected.sort_unstable();
            assert_eq!(remaining, expected, "with a stock scheduler: {with_scheduler}");
        }
    }

    #[test]
    fn the_manager_runs_exactly_the_controllers_of_storage_and_workloads() {
        let args = manager_arguments(Path::new("/cc/kubeconfig-kube-controller-manager"));
        assert_eq!(args[0], "--kubeconfig=/cc/kubeconfig-kube-controller-manager");
        let controllers = args.iter().find_map(|arg| arg.strip_prefix("--controllers="));
        let controllers: Vec<&str> = controllers.into_iter().flat_map(|names| names.split(',')).collect();
        // Without `*` no other controller runs; each stock one that a built-in one replaces does.
        assert!(!controllers.contains(&"*"), "{controllers:?}");
        for replaced in StockController::REPLACED {
            assert!(controllers.contains(&replaced.name()), "{} is off", replaced.name());
        }
        for workload in WORKLOADS {
            assert!(controllers.contains(&workload), "{workload} is off");
        }
        for builtin in ["garbage-collector-controller", "namespace-controller", "serviceaccount-controller"] {
            assert!(!controllers.contains(&builtin), "{builtin} is part of the API server");
        }
        for flag in ["--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=true"] {
            assert!(args.iter().any(|arg| arg == flag), "{flag}");
        }
    }

    #[test]
    fn the_scheduler_watches_only_kinds_that_are_served() {
        assert_eq!(
            scheduler_arguments(Path::new("/cc/kube-scheduler.json")),
            ["--config=/cc/kube-scheduler.json", "--secure-port=0"]
        );
        let configuration = scheduler_configuration(Path::new("/cc/k"));
        assert_eq!(configuration["clientConnection"]["kubeconfig"], "/cc/k");
        assert_eq!(configuration["leaderElection"]["leaderElect"], false);
        let names = DEVICE_KINDS.map(|kind| kind.definition()["metadata"]["name"].clone());
        assert_eq!(
            names,
            [
                "resourceclaims.resource.k8s.io",
                "resourceslices.resource.k8s.io",
                "deviceclasses.resource.k8s.io"
            ]
        );
    }
}
