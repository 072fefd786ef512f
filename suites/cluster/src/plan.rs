//! Selects the cases to run and gives the skip reason of the others, before anything starts.

use std::collections::BTreeMap;

use claimcheck_cluster::{ClusterCapabilities, SupportedCalls};
use claimcheck_model::{Capability, CaseId};
use serde::Serialize;

use crate::{
    case::{Case, FsType, Provisioning},
    pod_security::PodSecurity,
};

/// Capabilities of the cluster, the host and the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Number of nodes.
    pub nodes: usize,
    /// The driver is the built-in one, so that variants of it can be deployed too.
    pub builtin: bool,
    /// The topology keys by which the driver restricts its volumes to fewer nodes, if it does.
    pub topology_keys: Option<String>,
    /// The optional CSI calls that the driver implements.
    pub supported_calls: SupportedCalls,
    /// Whether volumes are provisioned dynamically, or the reason why not.
    pub classes: Result<(), &'static str>,
    /// Whether CSI inline volumes of the driver are known, or the reason why not.
    pub inline: Result<(), &'static str>,
    /// The maximum file size on a volume, in bytes; `None` means unlimited.
    pub largest_file: Option<i64>,
    /// Capabilities that the driver declares, as far as known. Cases for unknown ones run.
    pub declared: BTreeMap<Capability, bool>,
    /// The Pod Security level of the pods.
    pub pod_security: PodSecurity,
    /// What the cluster supports in addition to its API.
    pub cluster_capabilities: ClusterCapabilities,
    /// The file systems that volumes can have.
    pub file_systems: FileSystems,
}

/// Support for each file system and for raw block volumes, or the reason why it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystems {
    /// ext3.
    pub ext3: Result<(), &'static str>,
    /// ext4.
    pub ext4: Result<(), &'static str>,
    /// xfs.
    pub xfs: Result<(), &'static str>,
    /// No file system: raw block volumes.
    pub block: Result<(), &'static str>,
}

impl FileSystems {
    /// File systems of a user-provided driver: those that the user named.
    pub fn given(file_systems: &[FsType]) -> Self {
        let known = |wanted, why| if file_systems.contains(&wanted) { Ok(()) } else { Err(why) };
        Self {
            ext3: known(FsType::Ext3, "--fs-type ext3 was not given"),
            ext4: known(FsType::Ext4, "--fs-type ext4 was not given"),
            xfs: known(FsType::Xfs, "--fs-type xfs was not given"),
            block: known(FsType::Block, "--fs-type block was not given"),
        }
    }
}

/// A case of this run.
#[derive(Clone)]
pub struct Planned {
    /// The case.
    pub case: Case,
    /// The skip reason; `None` if the case runs.
    pub skip: Option<String>,
}

/// A planned case as `claimcheck list --format json` prints it.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// The case's name.
    pub case: CaseId,
    /// The upstream suite.
    pub upstream: &'static str,
    /// Requirements, as short texts.
    pub needs: Vec<String>,
    /// The skip reason, if it would be skipped.
    pub skip: Option<String>,
}

impl Planned {
    /// The entry of the case in `claimcheck list`.
    pub fn listed(&self) -> Listed {
        let needs = self.case.needs;
        let mut words = Vec::new();
        if needs.nodes > 1 {
            words.push(format!("{} nodes", needs.nodes));
        }
        if needs.disrupt {
            words.push("disrupt".to_owned());
        }
        if needs.agents {
            words.push("node agents".to_owned());
        }
        if needs.host_paths {
            words.push("hostPath volumes".to_owned());
        }
        if needs.configure {
            words.push("configure".to_owned());
        }
        if needs.tap {
            words.push("tap".to_owned());
        }
        if needs.variant.is_some() {
            words.push("built-in driver".to_owned());
        }
        if needs.attach {
            words.push("driver with attach".to_owned());
        }
        if needs.stage {
            words.push("driver with stage".to_owned());
        }
        words.extend(needs.exercises.iter().map(|capability| capability.name().to_owned()));
        match self.case.pattern.fs {
            FsType::Default => {}
            FsType::Block => words.push("loop devices".to_owned()),
            FsType::Ext3 | FsType::Ext4 | FsType::Xfs => {
                words.push(format!("loop devices, mkfs.{}", self.case.pattern.fs.name()));
            }
        }
        Listed { case: self.case.id(), upstream: self.case.upstream, needs: words, skip: self.skip.clone() }
    }
}

/// The cases with a name that contains one of `filters` (all cases if there are no filters), with skip reasons.
pub fn plan(cases: &[Case], filters: &[String], environment: &Environment) -> Vec<Planned> {
    let wanted = |case: &Case| {
        let id = case.id().to_string();
        filters.is_empty() || filters.iter().any(|filter| id.contains(filter.as_str()))
    };
    cases
        .iter()
        .filter(|case| wanted(case))
        .map(|case| Planned { case: *case, skip: skip(case, environment) })
        .collect()
}

fn skip(case: &Case, environment: &Environment) -> Option<String> {
    if case.needs.variant.is_some() && !environment.cluster_capabilities.additional_drivers {
        return Some("the cluster supports no additional drivers: use --cluster embedded or kind".to_owned());
    }
    if case.needs.variant.is_some() && !environment.builtin {
        return Some("needs a variant of the built-in driver: use --driver builtin".to_owned());
    }
    if let (true, Some(keys)) = (case.needs.nodes > environment.nodes, &environment.topology_keys) {
        return Some(format!(
            "needs {} nodes that can access the same volume, but the driver's topology ({keys}) separates the nodes",
            case.needs.nodes
        ));
    }
    if case.needs.nodes > environment.nodes {
        return Some(format!("needs {} nodes, the cluster has {}", case.needs.nodes, environment.nodes));
    }
    if case.needs.retract && !environment.cluster_capabilities.retracts {
        return Some(
            "the upstream controllers do not remove such a VolumeAttachment: use --controllers ours"
                .to_owned(),
        );
    }
    if case.needs.builtin_sidecars && environment.cluster_capabilities.upstream_sidecars {
        return Some(
            "kubernetes-csi's sidecars behave differently, see ARCHITECTURE.md: use --sidecars ours"
                .to_owned(),
        );
    }
    if case.needs.disrupt && !environment.cluster_capabilities.disrupt {
        return Some(
            "the cluster does not allow its components to be disrupted: an existing cluster requires --install \
             and --allow-disruptive"
                .to_owned(),
        );
    }
    if case.needs.agents && !environment.cluster_capabilities.agents {
        return Some(
            "the cluster does not allow its node agents to be stopped: use --cluster kind".to_owned(),
        );
    }
    if case.needs.host_paths && !environment.pod_security.admits_host_paths() {
        let level = environment.pod_security.name();
        return Some(format!("--pod-security {level} does not admit pods with hostPath volumes"));
    }
    if case.needs.configure && !environment.cluster_capabilities.configure {
        return Some("the arguments of the cluster's components cannot be changed".to_owned());
    }
    if case.needs.tap && !environment.cluster_capabilities.tap {
        return Some("CSI calls cannot be observed or made to fail on this cluster".to_owned());
    }
    // A variant of the built-in driver has what its case needs.
    if let (None, Some(why)) = (case.needs.variant, lack_of_driver(case, environment)) {
        return Some(why);
    }
    let can_be_made = match case.pattern.fs {
        FsType::Default => Ok(()),
        FsType::Ext3 => environment.file_systems.ext3,
        FsType::Ext4 => environment.file_systems.ext4,
        FsType::Xfs => environment.file_systems.xfs,
        FsType::Block => environment.file_systems.block,
    };
    can_be_made.err().map(str::to_owned)
}

/// The capability that the case needs and the driver lacks.
fn lack_of_driver(case: &Case, environment: &Environment) -> Option<String> {
    let Environment { supported_calls, declared, .. } = environment;
    let leaves_out =
        |what: &str, capability: &str| Some(format!("the driver {what} (it does not declare {capability})"));
    if case.pattern.provisioning == Provisioning::Dynamic && !supported_calls.create {
        return leaves_out("does not create volumes", "CREATE_DELETE_VOLUME");
    }
    let volumes = match case.pattern.provisioning {
        Provisioning::Dynamic => environment.classes,
        Provisioning::Inline => environment.inline,
        Provisioning::PreProvisioned | Provisioning::PodLocal => Ok(()),
    };
    if let Err(why) = volumes {
        return Some(why.to_owned());
    }
    if environment.largest_file.is_some_and(|largest| largest < case.needs.file) {
        return Some(format!("writes a file of {} MiB, which exceeds MaxFileSize", case.needs.file >> 20));
    }
    if case.needs.attach && !supported_calls.attach {
        return leaves_out("does not attach volumes", "PUBLISH_UNPUBLISH_VOLUME");
    }
    if case.needs.stage && !supported_calls.stage {
        return leaves_out("does not stage volumes", "STAGE_UNSTAGE_VOLUME");
    }
    let lacks = |capability: &&Capability| declared.get(*capability) == Some(&false);
    let lacking = case.needs.exercises.iter().find(lacks)?;
    Some(format!("the driver does not declare {lacking}"))
}

#[cfg(test)]
mod tests {
    use claimcheck_cluster::Embedded;

    use super::*;
    use crate::rows::catalogue;

    const ALL: Environment = Environment {
        nodes: 2,
        builtin: true,
        topology_keys: None,
        supported_calls: SupportedCalls::ALL,
        classes: Ok(()),
        inline: Ok(()),
        largest_file: None,
        declared: BTreeMap::new(),
        pod_security: PodSecurity::Privileged,
        cluster_capabilities: Embedded::CAPABILITIES,
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
        assert!(plan(&catalogue(), &[], &ALL).iter().all(|planned| planned.skip.is_none()));
    }

    #[test]
    fn every_lack_is_a_reason() {
        let with = |file_systems| Environment { file_systems, ..ALL };
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
            (Environment { pod_security: PodSecurity::Baseline, ..ALL }, "--pod-security baseline"),
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
                plan(&catalogue(), &[], &environment).into_iter().filter_map(|p| p.skip).collect();
            assert!(!skipped.is_empty(), "{why}");
            assert!(skipped.iter().all(|skip| skip.contains(why)), "{skipped:?}");
        }
    }

    #[test]
    fn filters_select_by_part_of_the_name() {
        let some = plan(&catalogue(), &["reclaim::".to_owned()], &ALL);
        assert!(!some.is_empty() && some.iter().all(|planned| planned.case.suite == "reclaim"));
        assert!(plan(&catalogue(), &["no such case".to_owned()], &ALL).is_empty());
    }
}
