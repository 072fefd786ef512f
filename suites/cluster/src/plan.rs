//! Which cases run, and why the others do not: decided before anything starts.

use std::collections::BTreeMap;

use claimcheck_cluster::{Abilities, Takes};
use claimcheck_model::{Capability, CaseId};
use serde::Serialize;

use crate::{
    case::{Case, FsType, Provisioning},
    pod_security::PodSecurity,
};

/// What the cluster, the host and the driver offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// How many nodes.
    pub nodes: usize,
    /// The driver is our own, so that it can be deployed in other shapes too.
    pub builtin: bool,
    /// The topology keys by which the driver keeps further nodes from its volumes, where it does.
    pub apart: Option<String>,
    /// Which calls the driver takes.
    pub takes: Takes,
    /// Whether volumes are made for claims, or why nobody wants that.
    pub classes: Result<(), &'static str>,
    /// Whether it is known which volumes of the driver can be part of a pod.
    pub inline: Result<(), &'static str>,
    /// The largest file that volumes take, bytes; any where absent.
    pub largest_file: Option<i64>,
    /// What the driver declares, as far as it is known. What is not known of is tried.
    pub declared: BTreeMap<Capability, bool>,
    /// Which Pod Security level pods have.
    pub pod_security: PodSecurity,
    /// What the cluster offers beside its API.
    pub abilities: Abilities,
    /// Volumes with which file systems can be made.
    pub file_systems: FileSystems,
}

/// Which file systems can be asked for, and whether volumes without any can, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystems {
    /// ext3.
    pub ext3: Result<(), &'static str>,
    /// ext4.
    pub ext4: Result<(), &'static str>,
    /// xfs.
    pub xfs: Result<(), &'static str>,
    /// None: raw block volumes.
    pub block: Result<(), &'static str>,
}

impl FileSystems {
    /// Those of a driver that is not ours: what was said that it can make.
    pub fn told(file_systems: &[FsType]) -> Self {
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
    /// Why it does not run; none if it does.
    pub skip: Option<String>,
}

/// A planned case as `claimcheck list --format json` prints it.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// Our name.
    pub case: CaseId,
    /// The upstream suite.
    pub upstream: &'static str,
    /// What it needs, in words.
    pub needs: Vec<String>,
    /// Why it would be skipped.
    pub skip: Option<String>,
}

impl Planned {
    /// For people and programs that want to know the catalogue.
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
            words.push("volumes of the host".to_owned());
        }
        if needs.configure {
            words.push("configure".to_owned());
        }
        if needs.tap {
            words.push("tap".to_owned());
        }
        if needs.variant.is_some() {
            words.push("builtin driver".to_owned());
        }
        if needs.attach {
            words.push("a driver that attaches".to_owned());
        }
        if needs.stage {
            words.push("a driver that stages".to_owned());
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

/// The cases whose name contains one of `filters` (all, if there is none), with the reasons for skips.
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
    if case.needs.variant.is_some() && !environment.abilities.further {
        return Some("the cluster takes no further drivers: use --cluster embedded or kind".to_owned());
    }
    if case.needs.variant.is_some() && !environment.builtin {
        return Some("tries claimcheck's own driver in another shape: use --driver builtin".to_owned());
    }
    if let (true, Some(keys)) = (case.needs.nodes > environment.nodes, &environment.apart) {
        return Some(format!(
            "needs {} nodes that one volume can be on, the driver's topology ({keys}) keeps them apart",
            case.needs.nodes
        ));
    }
    if case.needs.nodes > environment.nodes {
        return Some(format!("needs {} nodes, the cluster has {}", case.needs.nodes, environment.nodes));
    }
    if case.needs.retract && !environment.abilities.retracts {
        return Some(
            "Kubernetes' own controllers leave such an attachment behind: use --controllers ours".to_owned(),
        );
    }
    if case.needs.our_sidecars && environment.abilities.upstream_sidecars {
        return Some(
            "kubernetes-csi's sidecars do otherwise, as ARCHITECTURE.md lists: use --sidecars ours"
                .to_owned(),
        );
    }
    if case.needs.disrupt && !environment.abilities.disrupt {
        return Some(
            "the cluster does not let its components be disrupted: an existing one takes --install and \
             --allow-disruptive"
                .to_owned(),
        );
    }
    if case.needs.agents && !environment.abilities.agents {
        return Some("the cluster does not let its node agents be stopped: use --cluster kind".to_owned());
    }
    if case.needs.host_paths && !environment.pod_security.admits_host_paths() {
        let level = environment.pod_security.name();
        return Some(format!("--pod-security {level} admits no pods with volumes of the host"));
    }
    if case.needs.configure && !environment.abilities.configure {
        return Some("the cluster's components keep the arguments that they have".to_owned());
    }
    if case.needs.tap && !environment.abilities.tap {
        return Some("calls to the driver are not seen here, nor made to fail".to_owned());
    }
    // A variant of our own driver has what its case needs.
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

/// What the driver does not do that the case is about.
fn lack_of_driver(case: &Case, environment: &Environment) -> Option<String> {
    let Environment { takes, declared, .. } = environment;
    let leaves_out =
        |what: &str, capability: &str| Some(format!("the driver {what} (it declares no {capability})"));
    if case.pattern.provisioning == Provisioning::Dynamic && !takes.create {
        return leaves_out("makes no volumes", "CREATE_DELETE_VOLUME");
    }
    let volumes = match case.pattern.provisioning {
        Provisioning::Dynamic => environment.classes,
        Provisioning::Inline => environment.inline,
        Provisioning::PreProvisioned | Provisioning::InPod => Ok(()),
    };
    if let Err(why) = volumes {
        return Some(why.to_owned());
    }
    if environment.largest_file.is_some_and(|largest| largest < case.needs.file) {
        return Some(format!("writes a file of {} MiB, MaxFileSize is less", case.needs.file >> 20));
    }
    if case.needs.attach && !takes.attach {
        return leaves_out("attaches no volumes", "PUBLISH_UNPUBLISH_VOLUME");
    }
    if case.needs.stage && !takes.stage {
        return leaves_out("stages no volumes", "STAGE_UNSTAGE_VOLUME");
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
        apart: None,
        takes: Takes::ALL,
        classes: Ok(()),
        inline: Ok(()),
        largest_file: None,
        declared: BTreeMap::new(),
        pod_security: PodSecurity::Privileged,
        abilities: Embedded::ABILITIES,
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
    fn everything_runs_where_everything_is_there() {
        assert!(plan(&catalogue(), &[], &ALL).iter().all(|planned| planned.skip.is_none()));
    }

    #[test]
    fn every_lack_is_a_reason() {
        let with = |file_systems| Environment { file_systems, ..ALL };
        let lacks = [
            (Environment { nodes: 1, ..ALL }, "needs 2 nodes, the cluster has 1"),
            (Environment { nodes: 1, apart: Some("zone".into()), ..ALL }, "topology (zone) keeps them apart"),
            (Environment { builtin: false, ..ALL }, "another shape"),
            (Environment { abilities: Abilities { disrupt: false, ..ALL.abilities }, ..ALL }, "does not let"),
            (
                Environment { abilities: Abilities { configure: false, ..ALL.abilities }, ..ALL },
                "keep the arg",
            ),
            (Environment { abilities: Abilities { agents: false, ..ALL.abilities }, ..ALL }, "node agents"),
            (Environment { pod_security: PodSecurity::Baseline, ..ALL }, "--pod-security baseline"),
            (Environment { abilities: Abilities { further: false, ..ALL.abilities }, ..ALL }, "no further"),
            (
                Environment { abilities: Abilities { retracts: false, ..ALL.abilities }, ..ALL },
                "leave such an attachment",
            ),
            (
                Environment { abilities: Abilities { upstream_sidecars: true, ..ALL.abilities }, ..ALL },
                "kubernetes-csi's sidecars do otherwise",
            ),
            (Environment { abilities: Abilities { tap: false, ..ALL.abilities }, ..ALL }, "not seen"),
            (Environment { takes: Takes { create: false, ..Takes::ALL }, ..ALL }, "makes no volumes"),
            (Environment { takes: Takes { attach: false, ..Takes::ALL }, ..ALL }, "attaches no volumes"),
            (Environment { takes: Takes { stage: false, ..Takes::ALL }, ..ALL }, "stages no volumes"),
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
