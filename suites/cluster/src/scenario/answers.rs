//! The script of the driver, as faults of calls for the scenario's volumes.
//!
//! A volume has no handle before it exists: a rule that is given before names the claim, which the tap knows of CreateVolume,
//! and then of the volume. [`Answers::rules`] is called again whenever more is known.

use std::collections::BTreeMap;

use claimcheck_csi::{
    Code,
    tap::{FaultAction, FaultRule},
};
use claimcheck_model::CsiMethod;
use claimcheck_scenario::{Answer, Key, References, Script, Store};
use serde_json::Value;

use super::inline;
use crate::refusal::INJECTED;

/// How calls are answered now.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    script: BTreeMap<String, Vec<Meant>>,
    /// Methods of which calls are held.
    held: BTreeMap<String, Meant>,
}

/// An answer, and how the calls that it is meant for are found: by the handles of volumes if these existed when it was given,
/// else by their claims. That does not change later, since a rule that changes begins to count again.
#[derive(Clone, Debug)]
struct Meant {
    answer: Answer,
    by_handle: bool,
}

impl Answers {
    /// Calls of these methods are answered so from now on.
    pub(super) fn follow(&mut self, script: &Script, references: &References, store: &Store) {
        for (method, answers) in script {
            let meant = answers.iter().map(|answer| Meant::new(method, answer.clone(), references, store));
            self.script.insert(method.clone(), meant.collect());
        }
    }

    /// Calls of a method are held.
    pub(super) fn hold(&mut self, method: &str, answer: Answer, references: &References, store: &Store) {
        self.held.insert(method.to_owned(), Meant::new(method, answer, references, store));
    }

    /// The claim of which calls of a method are held, if they are; all if it is `None`.
    pub(super) fn held(&self, method: CsiMethod) -> Option<Option<&str>> {
        self.held.get(method.as_str()).map(|meant| meant.answer.of.as_deref())
    }

    /// What is held, and how all calls are answered, in words.
    pub(super) fn in_words(&self) -> Vec<String> {
        let calls = |method: &str, meant: &Meant| match &meant.answer.of {
            Some(of) => format!("calls of {method} of {of}"),
            None => format!("calls of {method}"),
        };
        let mut words: Vec<String> =
            self.held.iter().map(|(method, meant)| format!("{} are held", calls(method, meant))).collect();
        for (method, answers) in &self.script {
            let lasting = answers.iter().filter(|meant| meant.answer.times == 0 || meant.answer.hang);
            words
                .extend(lasting.map(|meant| format!("{} {}", calls(method, meant), meant.answer.in_words())));
        }
        words
    }

    /// They go on.
    pub(super) fn release(&mut self, method: &str) {
        self.held.remove(method);
    }

    /// The rules for what is known now.
    pub(super) fn rules(&self, references: &References, store: &Store) -> Vec<FaultRule> {
        let mut rules = Vec::new();
        for (method, meant) in &self.held {
            let name = format!("{}/{method}", references.names.scenario);
            let rule = FaultRule::new(method.as_str(), FaultAction::Hold { name, refuse: false });
            rules.extend(meant.rules(rule, references, store));
        }
        for (method, answers) in &self.script {
            for meant in answers {
                let count = u32::try_from(meant.answer.times).ok().filter(|times| *times > 0);
                let action = action(&meant.answer, references);
                // A call is counted by the rules down to the one that decides: the next begins when this one is used up.
                let rule = FaultRule { count, ..FaultRule::new(method.as_str(), action) };
                rules.extend(meant.rules(rule, references, store));
            }
        }
        rules
    }
}

fn action(answer: &Answer, references: &References) -> FaultAction {
    if let Some(fail) = &answer.fail {
        let (name, message) = fail.split_once(' ').unwrap_or((fail, ""));
        let code = claimcheck_scenario::code(name);
        let message = if message.is_empty() { INJECTED } else { message };
        return FaultAction::Error { code: code.unwrap_or(Code::Unknown), message: message.to_owned() };
    }
    if !answer.with.is_null() {
        return FaultAction::Answer { with: references.filled(&answer.with) };
    }
    match answer.late {
        Some(ms) => FaultAction::Delay { ms },
        None if answer.lost => FaultAction::DropAfter,
        // Until the end of the scenario: its clean-up would have to wait for it.
        None => FaultAction::Hold { name: format!("{}/hang", references.names.scenario), refuse: true },
    }
}

impl Meant {
    fn new(method: &str, answer: Answer, references: &References, store: &Store) -> Self {
        let new = Self { answer, by_handle: false };
        // A node has not seen which claim a volume was created for.
        let of_node = method.parse().is_ok_and(CsiMethod::is_node);
        let exists = || !new.handles(method, references, store).is_empty();
        let by_handle =
            method != CsiMethod::CreateVolume.as_str() && (of_node || is_of_snapshot(method) || exists());
        Self { by_handle, ..new }
    }

    /// The rule for each volume that it concerns.
    fn rules(&self, rule: FaultRule, references: &References, store: &Store) -> Vec<FaultRule> {
        let component = self.answer.node.as_deref().map(|node| format!("node/{node}"));
        let rule = FaultRule { component, ..rule };
        let of = |handles: Vec<String>| {
            handles.into_iter().map(|handle| rule.clone().on_volume(handle)).collect::<Vec<_>>()
        };
        let by_claim = rule.clone().on_volume(match self.claim(references) {
            Some((_, namespace, name)) => format!("/{namespace}/{name}/"),
            None => format!("/{}/", references.names.scenario),
        });
        if !self.by_handle {
            // No call has said for which claim a static volume is.
            let statics = self.volumes(references, store).filter(|volume| !is_provisioned(volume));
            let mut rules = of(statics.filter_map(handle).collect());
            rules.push(by_claim);
            return rules;
        }
        let mut rules = of(self.handles(&rule.method, references, store));
        if self.answer.of.is_none() && !is_of_snapshot(&rule.method) {
            // The publication of an inline volume names its pod; later calls have only its handle.
            match rule.method == CsiMethod::NodePublishVolume.as_str() {
                true => rules.push(by_claim),
                false => rules.extend(of(inline::handles(store, &references.driver))),
            }
        }
        rules
    }

    fn claim(&self, references: &References) -> Option<Key> {
        self.answer.of.as_ref().and_then(|of| references.key(of).ok())
    }

    /// The handles of the volumes, or snapshots, that exist.
    fn handles(&self, method: &str, references: &References, store: &Store) -> Vec<String> {
        if is_of_snapshot(method) {
            let handles = store.own("VolumeSnapshotContent");
            return handles
                .filter_map(|(_, of)| Some(of["status"]["snapshotHandle"].as_str()?.to_owned()))
                .collect();
        }
        self.volumes(references, store).filter_map(handle).collect()
    }

    /// The volumes that exist and are meant.
    fn volumes<'s>(&self, references: &References, store: &'s Store) -> impl Iterator<Item = &'s Value> {
        let claim = self.claim(references);
        let scenario = references.names.scenario.clone();
        let is_meant = move |volume: &Value| {
            let reference = &volume["spec"]["claimRef"];
            let namespace = reference["namespace"].as_str().unwrap_or_default();
            match &claim {
                Some((_, of, name)) => namespace == of && reference["name"] == name.as_str(),
                None => claimcheck_scenario::scenario_of(namespace) == scenario,
            }
        };
        store.own("PersistentVolume").map(|(_, volume)| volume).filter(move |volume| is_meant(volume))
    }
}

fn handle(volume: &Value) -> Option<String> {
    Some(volume["spec"]["csi"]["volumeHandle"].as_str()?.to_owned())
}

/// Whether a provisioner has created a volume, so that its calls are known by the claim.
fn is_provisioned(volume: &Value) -> bool {
    volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"].is_string()
}

/// Whether calls of a method have the id of a snapshot.
fn is_of_snapshot(method: &str) -> bool {
    [CsiMethod::DeleteSnapshot.as_str(), CsiMethod::GetSnapshot.as_str()].contains(&method)
}
