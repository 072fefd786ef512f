//! What a case requires, and the skip reason if the environment does not meet it.

use claimcheck_model::{Capability, ClusterKind};
use claimcheck_vendor::AbsentSidecars;

use crate::{
    case::{FsType, Provisioning},
    environment::{Environment, NO_ATTACHER, NO_PROVISIONER, NO_RESIZER, NO_SNAPSHOTTER},
    fixture::Variant,
    kubernetes::Feature,
};

/// A requirement of a case; without it the case is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This kind of cluster.
    Cluster(ClusterKind),
    /// This number of nodes.
    Nodes(usize),
    /// The cluster allows its components to be disrupted. Such a case runs alone, since it affects other cases too, unless
    /// it can have its [own node](Self::OwnNode).
    Disrupt,
    /// The case disrupts a node, and nothing else: a node of its own, where the cluster has such nodes.
    OwnNode,
    /// The case waits for seconds: it starts before others, so that the run does not end with its wait.
    LongWait,
    /// All other cases have run: the case checks what they caused.
    WholeRun,
    /// No other case runs at the same time, since it affects all of them.
    Alone,
    /// Controllers start the pods of Deployments, StatefulSets and Jobs.
    Workloads,
    /// ResourceQuotas are enforced.
    Quotas,
    /// Requests to the API server can be made to fail.
    ApiFaults,
    /// The controller that binds volumes can be stopped.
    StopsBinder,
    /// The cluster allows its node agents to be disrupted.
    Agents,
    /// Pods may have hostPath volumes.
    HostPaths,
    /// The processes of pods run as root, who may open block devices and give files to any group.
    Root,
    /// Components can be restarted with other arguments.
    Configure,
    /// Every CSI call can be observed and made to fail.
    Tap,
    /// A feature that older versions of Kubernetes lack.
    Feature(Feature),
    /// A variant of the built-in driver, deployed in addition to the cluster's driver; one case uses it at a time.
    Variant(Variant),
    /// The controllers remove VolumeAttachments that no attacher handles, once the driver needs no attachment.
    Retract,
    /// The sidecars are the built-in ones: upstream's behave differently, as docs/contributors/differences.md lists.
    BuiltinSidecars,
    /// The sidecars are the built-in ones: upstream's fail the case, by this issue.
    FixedSidecars(&'static str),
    /// Volumes that are provisioned like this.
    Provisioning(Provisioning),
    /// A file of this size in MiB fits on a volume.
    FileMiB(i64),
    /// The driver attaches volumes; otherwise there is nothing to test.
    Attach,
    /// The driver stages volumes.
    Stage,
    /// A capability of the driver that the case exercises.
    Capability(Capability),
    /// Volumes with this file system.
    FileSystem(FsType),
}

impl Need {
    /// Whether a driver meets it, and not the cluster or the host.
    pub(crate) fn is_of_driver(self) -> bool {
        match self {
            Self::Provisioning(_) | Self::FileMiB(_) | Self::Attach | Self::Stage | Self::Capability(_) => {
                true
            }
            Self::Cluster(_)
            | Self::Nodes(_)
            | Self::Disrupt
            | Self::OwnNode
            | Self::LongWait
            | Self::WholeRun
            | Self::Alone
            | Self::Workloads
            | Self::Quotas
            | Self::ApiFaults
            | Self::StopsBinder
            | Self::Agents
            | Self::HostPaths
            | Self::Root
            | Self::Configure
            | Self::Tap
            | Self::Feature(_)
            | Self::Variant(_)
            | Self::Retract
            | Self::BuiltinSidecars
            | Self::FixedSidecars(_)
            | Self::FileSystem(_) => false,
        }
    }
}

impl claimcheck_engine::Need for Need {
    type Environment = Environment;

    fn listed(&self) -> Option<String> {
        let text = match *self {
            Self::Cluster(kind) => format!("--cluster {}", kind.name()),
            Self::Nodes(count) => format!("{count} nodes"),
            Self::Disrupt => "disrupt".to_owned(),
            Self::Agents => "node agents".to_owned(),
            Self::Workloads => "controllers of workloads".to_owned(),
            Self::Quotas => "quotas".to_owned(),
            Self::ApiFaults => "faults of the API server".to_owned(),
            Self::HostPaths => "hostPath volumes".to_owned(),
            Self::Root => "pods as root".to_owned(),
            Self::Configure => "configure".to_owned(),
            Self::Tap => "tap".to_owned(),
            Self::Variant(_) => "built-in driver".to_owned(),
            Self::Attach => "driver with attach".to_owned(),
            Self::Stage => "driver with stage".to_owned(),
            Self::Capability(capability) => capability.name().to_owned(),
            Self::FileSystem(FsType::Block) => "loop devices".to_owned(),
            Self::FileSystem(fs @ (FsType::Ext3 | FsType::Ext4 | FsType::Xfs)) => {
                format!("loop devices, mkfs.{}", fs.name())
            }
            Self::OwnNode
            | Self::LongWait
            | Self::WholeRun
            | Self::Alone
            | Self::StopsBinder
            | Self::Feature(_)
            | Self::Retract
            | Self::BuiltinSidecars
            | Self::FixedSidecars(_)
            | Self::Provisioning(_)
            | Self::FileMiB(_)
            | Self::FileSystem(FsType::Default) => return None,
        };
        Some(text)
    }

    fn unmet(&self, environment: &Environment) -> Option<String> {
        let Environment {
            cluster_capabilities: cluster,
            supported_calls: calls,
            absent_sidecars: absent,
            ..
        } = environment;
        match *self {
            Self::Cluster(kind) => (kind != environment.cluster).then(|| {
                let (name, here) = (kind.name(), environment.cluster.name());
                format!("the scenario is for --cluster {name}, and this one is {here}")
            }),
            Self::Nodes(count) => (count > environment.nodes).then(|| match &environment.topology_keys {
                Some(keys) => format!(
                    "needs {count} nodes that can access the same volume, but the driver's topology ({keys}) \
                     separates the nodes"
                ),
                None => format!("needs {count} nodes, the cluster has {}", environment.nodes),
            }),
            Self::Disrupt => unless(
                cluster.disrupt,
                "the cluster does not allow its components to be disrupted: an existing cluster requires \
                 --install and --allow-disruptive",
            ),
            Self::OwnNode | Self::LongWait | Self::WholeRun | Self::Alone => None,
            Self::ApiFaults => unless(
                cluster.api_faults,
                "requests to the API server cannot be made to fail on this cluster: use --cluster embedded",
            ),
            Self::Quotas => unless(
                cluster.quotas,
                "ResourceQuotas are not enforced on this cluster: use --cluster kind",
            ),
            Self::Workloads => unless(
                cluster.workloads,
                "no controller of this cluster starts the pods of Deployments, StatefulSets and Jobs: use --controllers \
                 stock, or --cluster kind",
            ),
            Self::Feature(feature) => environment.kubernetes.lack(feature),
            Self::StopsBinder => unless(
                cluster.stops_binder,
                "the cluster's own kube-controller-manager binds volumes, and cannot be stopped: use --controllers ours, or \
                 --cluster embedded",
            ),
            Self::Agents => unless(
                cluster.agents,
                "the cluster does not allow its node agents to be stopped: use --cluster kind",
            ),
            Self::HostPaths => (!environment.pod_security.admits_host_paths()).then(|| {
                let level = environment.pod_security.name();
                format!("--pod-security {level} does not admit pods with hostPath volumes")
            }),
            Self::Root => (!environment.pod_security.admits_root()).then(|| {
                let level = environment.pod_security.name();
                format!("--pod-security {level} does not admit pods that run as root")
            }),
            Self::Configure => {
                unless(cluster.configure, "the arguments of the cluster's components cannot be changed")
            }
            Self::Tap => unless(cluster.tap, "CSI calls cannot be observed or made to fail on this cluster"),
            Self::Variant(_) => {
                let additional = "the cluster supports no additional drivers: use --cluster embedded or kind";
                let builtin = "needs a variant of the built-in driver: use --driver builtin";
                unless(cluster.additional_drivers, additional)
                    .or_else(|| unless(environment.builtin, builtin))
            }
            Self::Retract => unless(
                cluster.retracts,
                "the upstream controllers do not remove such a VolumeAttachment (kubernetes#129572): use \
                 --controllers ours",
            ),
            Self::BuiltinSidecars => unless(
                !cluster.upstream_sidecars,
                "kubernetes-csi's sidecars behave differently, see docs/contributors/differences.md: where claimcheck \
                 starts them, use --sidecars ours, or omit --sidecar",
            ),
            Self::FixedSidecars(issue) => cluster.upstream_sidecars.then(|| {
                format!(
                    "kubernetes-csi's sidecars behave differently ({issue}): where claimcheck starts them, use \
                     --sidecars ours, or omit --sidecar"
                )
            }),
            Self::Provisioning(Provisioning::Dynamic) => {
                let creates = declared(calls.create, "does not create volumes", "CREATE_DELETE_VOLUME");
                creates
                    .or_else(|| environment.classes.err().map(str::to_owned))
                    .or_else(|| unless(!absent.provisioner, NO_PROVISIONER))
                    .or_else(|| unless(!absent.attacher, NO_ATTACHER))
            }
            Self::Provisioning(Provisioning::Inline) => environment.inline.err().map(str::to_owned),
            Self::Provisioning(Provisioning::PreProvisioned) => unless(!absent.attacher, NO_ATTACHER),
            Self::Provisioning(Provisioning::PodLocal) => None,
            Self::FileMiB(size) => environment
                .largest_file
                .is_some_and(|largest| largest < size << 20)
                .then(|| format!("writes a file of {size} MiB, which exceeds MaxFileSize")),
            Self::Attach => declared(calls.attach, "does not attach volumes", "PUBLISH_UNPUBLISH_VOLUME"),
            Self::Stage => declared(calls.stage, "does not stage volumes", "STAGE_UNSTAGE_VOLUME"),
            Self::Capability(capability) => (environment.declared.get(&capability) == Some(&false))
                .then(|| format!("the driver does not declare {capability}"))
                .or_else(|| without_sidecar(capability, *absent)),
            Self::FileSystem(fs) => environment.file_systems.of(fs).err().map(str::to_owned),
        }
    }
}

/// The sidecar that exercises a capability, if it is absent.
fn without_sidecar(capability: Capability, absent: AbsentSidecars) -> Option<String> {
    match capability {
        Capability::SnapshotDataSource | Capability::GroupSnapshot => {
            unless(!absent.snapshotter, NO_SNAPSHOTTER)
        }
        Capability::ControllerExpansion
        | Capability::NodeExpansion
        | Capability::OfflineExpansion
        | Capability::OnlineExpansion => unless(!absent.resizer, NO_RESIZER),
        Capability::Persistence
        | Capability::Block
        | Capability::FsGroup
        | Capability::VolumeMountGroup
        | Capability::Exec
        | Capability::PvcDataSource
        | Capability::Multipods
        | Capability::Rwx
        | Capability::VolumeLimits
        | Capability::SingleNodeVolume
        | Capability::Topology
        | Capability::FsResizeFromSourceNotSupported
        | Capability::ReadWriteOncePod
        | Capability::MultiplePvsSameId
        | Capability::CapReadOnlyMany
        | Capability::SeLinuxMount
        | Capability::SnapshotMetadata
        | Capability::Capacity => None,
    }
}

fn unless(met: bool, reason: &str) -> Option<String> {
    (!met).then(|| reason.to_owned())
}

fn declared(met: bool, lack: &str, capability: &str) -> Option<String> {
    (!met).then(|| format!("the driver {lack} (it does not declare {capability})"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use claimcheck_cluster::{ClusterCapabilities, SupportedCalls};
    use claimcheck_engine::{Case as _, Need as _, Schedule, plan};

    use super::*;
    use crate::{
        environment::FileSystems, kubernetes::Kubernetes, pod_security::PodSecurity, rows::catalogue,
    };

    const ALL: Environment = Environment {
        cluster: ClusterKind::Embedded,
        nodes: 2,
        builtin: true,
        topology_keys: None,
        supported_calls: SupportedCalls::ALL,
        classes: Ok(()),
        inline: Ok(()),
        largest_file: None,
        declared: BTreeMap::new(),
        pod_security: PodSecurity::Privileged,
        cluster_capabilities: ClusterCapabilities::EMBEDDED,
        kubernetes: Kubernetes::NEWEST,
        absent_sidecars: AbsentSidecars::NONE,
        file_systems: FileSystems { ext3: Ok(()), ext4: Ok(()), xfs: Ok(()), block: Ok(()) },
    };

    #[test]
    fn names_are_unique() {
        let mut ids: Vec<String> = catalogue().iter().map(|case| case.id().to_string()).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn all_cases_run_if_all_requirements_are_met() {
        assert!(plan(&catalogue(), &[], Some(&ALL)).iter().all(|planned| planned.skip.is_none()));
    }

    #[test]
    fn disruptive_cases_run_alone_unless_a_node_of_their_own_is_all_that_they_disrupt() {
        let cluster_capabilities = ClusterCapabilities { own_nodes: false, ..ALL.cluster_capabilities };
        let fixed = [
            Environment { cluster_capabilities, ..ALL },
            Environment { topology_keys: Some("zone".into()), ..ALL },
            Environment { nodes: 1, ..ALL },
        ];
        let schedules = |environment: &Environment| {
            let planned = plan(&catalogue(), &[], Some(environment)).into_iter();
            let disruptive = planned.filter(|planned| planned.case.needs.contains(&Need::Disrupt));
            disruptive.map(|planned| planned.schedule).collect::<Vec<_>>()
        };
        for environment in &fixed {
            assert!(
                schedules(environment).iter().all(|schedule| *schedule == Schedule::Serial),
                "{environment:?}"
            );
        }
        let all = schedules(&ALL);
        let alone = all.iter().filter(|schedule| **schedule == Schedule::Serial).count();
        assert_eq!((alone, all.len()), (5, 17), "the others have their own nodes");
        let with_own_node = catalogue().into_iter().filter(|case| case.needs.contains(&Need::OwnNode));
        assert!(with_own_node.into_iter().all(|case| case.needs.contains(&Need::Disrupt)));
    }

    #[test]
    fn every_lack_is_a_reason() {
        let with = |file_systems| Environment { file_systems, ..ALL };
        let lacks = |absent_sidecars| Environment { absent_sidecars, ..ALL };
        let lacks = [
            (Environment { nodes: 1, ..ALL }, "needs 2 nodes, the cluster has 1"),
            (
                Environment { nodes: 1, topology_keys: Some("zone".into()), ..ALL },
                "topology (zone) separates the nodes",
            ),
            (Environment { builtin: false, ..ALL }, "variant of the built-in driver"),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities { disrupt: false, ..ALL.cluster_capabilities },
                    ..ALL
                },
                "does not allow",
            ),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities {
                        configure: false,
                        ..ALL.cluster_capabilities
                    },
                    ..ALL
                },
                "cannot be changed",
            ),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities { agents: false, ..ALL.cluster_capabilities },
                    ..ALL
                },
                "node agents",
            ),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities {
                        stops_binder: false,
                        ..ALL.cluster_capabilities
                    },
                    ..ALL
                },
                "kube-controller-manager binds volumes",
            ),
            (Environment { pod_security: PodSecurity::Baseline, ..ALL }, "--pod-security baseline"),
            (Environment { pod_security: PodSecurity::Restricted, ..ALL }, "--pod-security restricted"),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities {
                        additional_drivers: false,
                        ..ALL.cluster_capabilities
                    },
                    ..ALL
                },
                "no additional",
            ),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities { retracts: false, ..ALL.cluster_capabilities },
                    ..ALL
                },
                "do not remove such",
            ),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities {
                        upstream_sidecars: true,
                        ..ALL.cluster_capabilities
                    },
                    ..ALL
                },
                "kubernetes-csi's sidecars behave differently",
            ),
            (
                Environment {
                    cluster_capabilities: ClusterCapabilities { tap: false, ..ALL.cluster_capabilities },
                    ..ALL
                },
                "cannot be observed",
            ),
            (
                Environment {
                    supported_calls: SupportedCalls { create: false, ..SupportedCalls::ALL },
                    ..ALL
                },
                "does not create volumes",
            ),
            (
                Environment {
                    supported_calls: SupportedCalls { attach: false, ..SupportedCalls::ALL },
                    ..ALL
                },
                "does not attach volumes",
            ),
            (
                Environment {
                    supported_calls: SupportedCalls { stage: false, ..SupportedCalls::ALL },
                    ..ALL
                },
                "does not stage volumes",
            ),
            (Environment { classes: Err("no classes"), ..ALL }, "no classes"),
            (lacks(AbsentSidecars { provisioner: true, ..AbsentSidecars::NONE }), "no csi-provisioner"),
            (lacks(AbsentSidecars { attacher: true, ..AbsentSidecars::NONE }), "no csi-attacher"),
            (lacks(AbsentSidecars { resizer: true, ..AbsentSidecars::NONE }), "no csi-resizer"),
            (lacks(AbsentSidecars { snapshotter: true, ..AbsentSidecars::NONE }), "no csi-snapshotter"),
            (Environment { inline: Err("no inline"), ..ALL }, "no inline"),
            (Environment { largest_file: Some(1 << 20), ..ALL }, "writes a file of 100 MiB"),
            (
                Environment { declared: [(Capability::FsGroup, false)].into(), ..ALL },
                "does not declare fsGroup",
            ),
            (with(FileSystems { ext3: Err("no ext3"), ..ALL.file_systems }), "no ext3"),
            (with(FileSystems { ext4: Err("no ext4"), ..ALL.file_systems }), "no ext4"),
            (with(FileSystems { xfs: Err("no xfs"), ..ALL.file_systems }), "no xfs"),
            (with(FileSystems { block: Err("no devices"), ..ALL.file_systems }), "no devices"),
        ];
        for (environment, why) in lacks {
            let skipped: Vec<_> =
                plan(&catalogue(), &[], Some(&environment)).into_iter().filter_map(|p| p.skip).collect();
            assert!(!skipped.is_empty(), "{why}");
            assert!(skipped.iter().all(|skip| skip.contains(why)), "{skipped:?}");
        }
    }

    #[test]
    fn a_variant_comes_first_and_has_what_the_case_requires_of_a_driver() {
        let cases = catalogue();
        let zoned = cases.iter().find(|case| case.suite == "topology").expect("there are such cases");
        let needs: Vec<_> = zoned.needs().filter_map(|need| need.listed()).collect();
        assert_eq!(needs, ["2 nodes", "built-in driver", "topology"]);
        let vendor = Environment { nodes: 1, builtin: false, ..ALL };
        assert_eq!(
            zoned.skip(&vendor).as_deref(),
            Some("needs a variant of the built-in driver: use --driver builtin")
        );
        let lacking = Environment {
            declared: [(Capability::Topology, false)].into(),
            classes: Err("no classes"),
            supported_calls: SupportedCalls { create: false, ..SupportedCalls::ALL },
            ..ALL
        };
        assert_eq!(zoned.skip(&lacking), None);
    }

    #[test]
    fn requirements_of_the_cluster_come_before_those_of_the_driver() {
        let cases = catalogue();
        let case = cases.iter().find(|case| case.suite == "attach").expect("there are such cases");
        let calls = SupportedCalls { create: false, attach: false, ..SupportedCalls::ALL };
        let reason = |nodes| case.skip(&Environment { nodes, supported_calls: calls, ..ALL });
        assert_eq!(reason(1).as_deref(), Some("needs 2 nodes, the cluster has 1"));
        assert!(reason(2).is_some_and(|reason| reason.contains("does not create volumes")));
    }
}
