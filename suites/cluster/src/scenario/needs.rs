//! What a scenario requires: what its file says, and what follows from its steps.

use claimcheck_model::Capability;
use claimcheck_scenario::{Kind, Scenario};

use crate::{kubernetes::Feature, need::Need};

/// All requirements, each once.
pub(super) fn of(scenario: &Scenario) -> Vec<Need> {
    let requires = &scenario.requires;
    let mut needs: Vec<Need> = requires.cluster.map(Need::Cluster).into_iter().collect();
    if requires.nodes > 1 {
        needs.push(Need::Nodes(requires.nodes));
    }
    let kinds: Vec<&Kind> = kinds(scenario).collect();
    let has = |short: &str| kinds.iter().any(|kind| kind.short == short);
    let steps = || scenario.steps.iter();
    let disrupts = |what: &str| steps().any(|step| step.disrupt.as_deref() == Some(what));
    let answers = !scenario.driver.is_empty() || steps().any(|step| step.driver.is_some());
    let names_calls = |text: &Option<String>| text.as_deref().is_some_and(|text| text.starts_with("call "));
    let counts = steps().any(|step| names_calls(&step.until) || names_calls(&step.never))
        || !scenario.expect.calls.is_empty()
        || !scenario.expect.order.is_empty();
    let faults = || steps().filter_map(|step| step.fault.as_deref()).flatten();
    let follows = [
        (steps().any(|step| step.disrupt.is_some()), Need::Disrupt),
        (["agent", "node", "registration"].into_iter().any(disrupts), Need::Agents),
        (steps().any(|step| step.remove.is_some()), Need::Agents),
        (answers || counts || steps().any(|step| step.hold.is_some()), Need::Tap),
        (has("attributes-class"), Need::Feature(Feature::AttributesClasses)),
        (has("snapshot"), Need::Capability(Capability::SnapshotDataSource)),
        (has("group"), Need::Capability(Capability::GroupSnapshot)),
        (kinds.iter().any(|kind| kind.is_workload()), Need::Workloads),
        (has("quota"), Need::Quotas),
        (scenario.alone || steps().any(|step| step.fault.is_some()), Need::Alone),
        (faults().any(|fault| fault.starts_with("api") || fault.starts_with("watch")), Need::ApiFaults),
        (faults().any(|fault| fault.starts_with("rpc")), Need::Tap),
        (requires.root, Need::Root),
        (requires.attach, Need::Attach),
        (requires.stage, Need::Stage),
    ];
    needs.extend(follows.into_iter().filter_map(|(holds, need)| holds.then_some(need)));
    needs.extend(requires.capabilities.iter().copied().map(Need::Capability));
    let mut once: Vec<Need> = Vec::new();
    for need in needs {
        if !once.contains(&need) {
            once.push(need);
        }
    }
    once
}

/// Whether it has claims, for which a driver provisions volumes.
pub(super) fn has_claims(scenario: &Scenario) -> bool {
    kinds(scenario).any(|kind| kind.short == "claim" || kind.short == "stateful-set")
}

fn kinds(scenario: &Scenario) -> impl Iterator<Item = &'static Kind> {
    scenario.objects().filter_map(|(_, object)| Some(object.kind_and_name()?.0))
}
