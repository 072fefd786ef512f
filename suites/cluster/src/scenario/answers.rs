//! The script of the driver, as faults of calls for the scenario's volumes.
//!
//! A volume has no handle before it exists: until then a rule names the claim, which CreateVolume has in its parameters,
//! and the volume's name, which has the claim's uid. [`Answers::rules`] is called again whenever more is known.

use std::collections::BTreeMap;

use claimcheck_csi::{
    Code,
    tap::{FaultAction, FaultRule, code_name},
};
use claimcheck_model::CsiMethod;
use claimcheck_scenario::{Answer, References, Script, Store, code_key};

use crate::refusal::INJECTED;

/// How calls are answered now.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    script: BTreeMap<String, Vec<Answer>>,
    /// Methods whose calls are held, with the claim and the node.
    held: BTreeMap<String, (Option<String>, Option<String>)>,
}

impl Answers {
    /// Calls of these methods are answered so from now on.
    pub(super) fn follow(&mut self, script: &Script) {
        self.script.extend(script.clone());
    }

    /// Calls of a method are held.
    pub(super) fn hold(&mut self, method: &str, of: Option<String>, node: Option<String>) {
        self.held.insert(method.to_owned(), (of, node));
    }

    /// They go on.
    pub(super) fn release(&mut self, method: &str) {
        self.held.remove(method);
    }

    /// The rules for what is known now.
    pub(super) fn rules(&self, references: &References, store: &Store) -> Vec<FaultRule> {
        let mut rules = Vec::new();
        for (method, (of, node)) in &self.held {
            let name = format!("{}/{method}", references.names.scenario);
            let rule = FaultRule::new(method.as_str(), FaultAction::Hold { name, refuse: false });
            rules.extend(on_volumes(rule, of.as_deref(), node.as_deref(), references, store));
        }
        for (method, answers) in &self.script {
            let mut skip = 0;
            for answer in answers {
                let count = u32::try_from(answer.times).ok().filter(|times| *times > 0);
                let rule =
                    FaultRule { skip, count, ..FaultRule::new(method.as_str(), action(answer, references)) };
                // Each matching rule counts a call, down to the one that decides.
                skip += count.unwrap_or_default();
                rules.extend(on_volumes(
                    rule,
                    answer.of.as_deref(),
                    answer.node.as_deref(),
                    references,
                    store,
                ));
            }
        }
        rules
    }
}

fn action(answer: &Answer, references: &References) -> FaultAction {
    if let Some(fail) = &answer.fail {
        let (name, message) = fail.split_once(' ').unwrap_or((fail, ""));
        let codes = (0..17).map(Code::from);
        let code = codes.into_iter().find(|code| code_key(code_name(*code)) == code_key(name));
        let message = if message.is_empty() { INJECTED } else { message };
        return FaultAction::Error { code: code.unwrap_or(Code::Unknown), message: message.to_owned() };
    }
    match answer.late {
        Some(ms) => FaultAction::Delay { ms },
        None if answer.lost => FaultAction::DropAfter,
        // Until the end of the scenario, whose clean-up it would hold up.
        None => FaultAction::Hold { name: format!("{}/hang", references.names.scenario), refuse: true },
    }
}

/// The rule for each volume that it concerns.
fn on_volumes(
    rule: FaultRule,
    of: Option<&str>,
    node: Option<&str>,
    references: &References,
    store: &Store,
) -> Vec<FaultRule> {
    let claim = of.and_then(|of| references.key(of).ok());
    let (scenario, is_creation) =
        (&references.names.scenario, rule.method == CsiMethod::CreateVolume.as_str());
    let component = node.map(|node| format!("node/{}", references.fill(node)));
    let rule = FaultRule { component, ..rule };
    if is_creation {
        let part = match &claim {
            Some((_, namespace, name)) => format!("/{namespace}/{name}/"),
            None => format!("/{scenario}/"),
        };
        return vec![rule.on_volume(part)];
    }
    if [CsiMethod::DeleteSnapshot.as_str(), CsiMethod::GetSnapshot.as_str()].contains(&rule.method.as_str()) {
        let handles = store
            .own("VolumeSnapshotContent")
            .filter_map(|(_, content)| content["status"]["snapshotHandle"].as_str());
        return handles.map(|handle| rule.clone().on_volume(handle)).collect();
    }
    let is_meant = |volume: &&serde_json::Value| {
        let reference = &volume["spec"]["claimRef"];
        let namespace = reference["namespace"].as_str().unwrap_or_default();
        match &claim {
            Some((_, of, name)) => namespace == of && reference["name"] == name.as_str(),
            None => claimcheck_scenario::scenario_of(namespace) == scenario,
        }
    };
    let volumes = store.own("PersistentVolume").map(|(_, volume)| volume);
    let handles =
        volumes.filter(is_meant).filter_map(|volume| volume["spec"]["csi"]["volumeHandle"].as_str());
    handles.map(|handle| rule.clone().on_volume(handle)).collect()
}
