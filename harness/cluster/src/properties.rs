//! The properties in which kinds of cluster differ, as data: what cases may require, and how long they may take.

use std::time::Duration;

use claimcheck_model::Rule;

/// The abilities of a kind of cluster in addition to its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterCapabilities {
    /// Driver and controllers can be stopped and killed.
    pub disrupt: bool,
    /// Node agents can be stopped and killed.
    pub agents: bool,
    /// A case can have a node of its own, so that other cases run while it disturbs the node.
    pub own_nodes: bool,
    /// Components can be restarted with other arguments.
    pub configure: bool,
    /// Additional drivers can be deployed.
    pub additional_drivers: bool,
    /// Every CSI call is recorded, and faults can be injected.
    pub tap: bool,
    /// VolumeAttachments that are no longer required are deleted when the CSIDriver changes to attachRequired: false.
    /// The built-in controllers do that; with upstream's attach/detach controller they remain, if the attach call timed
    /// out only after that: it can no longer note the volume as attached (`AddVolumeNode` in its
    /// `actual_state_of_world.go`).
    pub retracts: bool,
    /// The controller that binds volumes can be stopped: it is not that of a real control plane.
    pub stops_binder: bool,
    /// The sidecars are those of kubernetes-csi. They may repeat completed calls to the driver's controller:
    /// they decide by caches that may not contain their own last write yet.
    pub upstream_sidecars: bool,
    /// Controllers start the pods of Deployments, StatefulSets and Jobs: those of kube-controller-manager.
    pub workloads: bool,
    /// ResourceQuotas are enforced: by kube-apiserver, and a controller that counts.
    pub quotas: bool,
    /// Faults can be injected into requests to the API server.
    pub api_faults: bool,
}

impl ClusterCapabilities {
    /// Those of an existing cluster, of which only the API is available. Its sidecars are unknown, thus assumed to be upstream's.
    pub const EXISTING: Self = Self {
        disrupt: false,
        agents: false,
        own_nodes: false,
        configure: false,
        additional_drivers: false,
        tap: false,
        retracts: false,
        stops_binder: false,
        upstream_sidecars: true,
        workloads: true,
        quotas: true,
        api_faults: false,
    };

    /// Those of the owner of a kind cluster; the other ones depend on its controllers and sidecars.
    pub const KIND: Self = Self {
        disrupt: true,
        agents: true,
        configure: true,
        additional_drivers: true,
        tap: true,
        upstream_sidecars: false,
        ..Self::EXISTING
    };

    /// Those of an embedded cluster.
    pub const EMBEDDED: Self = Self {
        own_nodes: true,
        retracts: true,
        stops_binder: true,
        workloads: false,
        quotas: false,
        api_faults: true,
        ..Self::KIND
    };
}

/// The properties of a running cluster that depend on its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    /// Whether kubelets run its nodes; otherwise they are virtual.
    pub real_nodes: bool,
    /// Its abilities in addition to the API.
    pub capabilities: ClusterCapabilities,
    /// The calls that may be repeated although the first one succeeded.
    pub repeatable_calls: &'static [Rule],
    /// The timeout for a step of a case.
    pub step_timeout: Duration,
    /// How long a deletion may take before the object counts as leaked.
    pub settling_time: Duration,
}

impl Properties {
    /// Those of an embedded cluster, with stock or built-in controllers, and stock or built-in sidecars. Stock sidecars
    /// wait longer after each failure, and the attacher decides by a cache that may be stale.
    pub(crate) fn embedded(stock_controllers: bool, upstream_sidecars: bool) -> Self {
        let (step_timeout, settling_time) = match (stock_controllers, upstream_sidecars) {
            (_, true) => (240, 90),
            (true, false) => (240, 30),
            (false, false) => (60, 5),
        };
        Self {
            real_nodes: false,
            capabilities: ClusterCapabilities { upstream_sidecars, ..ClusterCapabilities::EMBEDDED },
            repeatable_calls: if upstream_sidecars { &[Rule::AttachTwice] } else { &[] },
            step_timeout: Duration::from_secs(step_timeout),
            settling_time: Duration::from_secs(settling_time),
        }
    }

    /// Those of a cluster with real nodes and the built-in driver.
    ///
    /// A restarted kubelet stages and publishes volumes that it finds mounted, and records that are made next to the
    /// driver do not show that it is another process; upstream's attacher decides by a cache that may be stale. A real
    /// kubelet checks mounted ConfigMaps every minute or two, and some backoffs of Kubernetes grow to two minutes. An
    /// upstream control plane detaches a volume only after the kubelet has reported it as unused, which it does each
    /// 10 s by default, and sidecars wait longer after each failure.
    pub(crate) fn real(capabilities: ClusterCapabilities) -> Self {
        const BY_KUBELETS: [Rule; 2] = [Rule::StageTwice, Rule::PublishTwice];
        const BY_SIDECARS_TOO: [Rule; 3] = [Rule::StageTwice, Rule::PublishTwice, Rule::AttachTwice];
        Self {
            real_nodes: true,
            capabilities,
            repeatable_calls: if capabilities.upstream_sidecars { &BY_SIDECARS_TOO } else { &BY_KUBELETS },
            step_timeout: Duration::from_secs(240),
            settling_time: Duration::from_secs(90),
        }
    }

    /// Those of a cluster in which nothing was installed.
    pub(crate) fn existing() -> Self {
        Self::real(ClusterCapabilities::EXISTING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_sidecars_on_virtual_nodes_are_those_of_a_real_cluster() {
        let real =
            Properties::real(ClusterCapabilities { upstream_sidecars: true, ..ClusterCapabilities::KIND });
        for stock_controllers in [false, true] {
            let stock = Properties::embedded(stock_controllers, true);
            assert!(stock.capabilities.upstream_sidecars);
            assert_eq!(stock.repeatable_calls, [Rule::AttachTwice]);
            assert_eq!((stock.step_timeout, stock.settling_time), (real.step_timeout, real.settling_time));
            let builtin = Properties::embedded(stock_controllers, false);
            assert!(!builtin.capabilities.upstream_sidecars && builtin.repeatable_calls.is_empty());
            assert!(builtin.settling_time < stock.settling_time);
        }
    }
}
