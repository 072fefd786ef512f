//! Whatever happens in whatever order: the planner against an attacher, kubelets and users, all simulated.
//!
//! The simulated kubelet is honest about the one thing that the protocol rests on: it reports a volume in
//! use before it looks whether the volume is attached, and mounts only then. The planner sees a node as of
//! its own last answered write to it, or as of a later sync; answers may get lost.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::{World, testing};
use k8s_openapi::api::{core::v1::Pod, storage::v1::VolumeAttachment};
use proptest::prelude::*;

use super::{
    plan::{Action, Memory, plan},
    plan_tests::{NOW, attachment, bound, node},
};

const NODES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    /// The pod of this node comes or goes.
    TogglePod(usize),
    /// The kubelet reports the volumes in use that its pods and mounts need.
    KubeletReports(usize),
    /// The kubelet mounts if it may, unmounts if it should.
    KubeletMounts(usize),
    /// The planner sees the newest state of the node.
    SyncNode(usize),
    /// The attacher finishes what it was asked for.
    Attacher,
    /// The planner runs, and what it decides is carried out.
    Plan(Write),
}

/// What becomes of a write to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Answered,
    AnswerLost,
    Lost,
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES.len();
    prop_oneof![
        2 => node.clone().prop_map(Step::TogglePod),
        2 => node.clone().prop_map(Step::KubeletReports),
        2 => node.clone().prop_map(Step::KubeletMounts),
        1 => node.prop_map(Step::SyncNode),
        2 => Just(Step::Attacher),
        4 => Just(Step::Plan(Write::Answered)),
        1 => Just(Step::Plan(Write::AnswerLost)),
        1 => Just(Step::Plan(Write::Lost)),
    ]
}

/// The nodes as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lists {
    attached: bool,
    in_use: bool,
}

struct Simulation {
    /// What the planner sees.
    seen: World,
    memory: Memory,
    nodes: BTreeMap<&'static str, Lists>,
    pods: BTreeMap<&'static str, Pod>,
    mounted: BTreeSet<&'static str>,
    attachments: BTreeMap<String, VolumeAttachment>,
    /// For uids: who comes back is another one.
    count: usize,
}

impl Simulation {
    fn new() -> Self {
        let (claim, volume) = bound(&["ReadWriteOnce"]);
        let mut this = Self {
            seen: World::default(),
            memory: Memory::default(),
            nodes: NODES.iter().map(|name| (*name, Lists::default())).collect(),
            pods: BTreeMap::new(),
            mounted: BTreeSet::new(),
            attachments: BTreeMap::new(),
            count: 0,
        };
        this.seen.apply(claim);
        this.seen.apply(volume);
        NODES.iter().for_each(|name| this.sync(name));
        this
    }

    fn sync(&mut self, name: &str) {
        let Lists { attached, in_use } = self.nodes[name];
        self.seen.apply(node(name, attached, in_use));
    }

    fn uid(&mut self) -> Option<String> {
        self.count += 1;
        Some(self.count.to_string())
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::TogglePod(index) => {
                let name = NODES[index];
                if let Some(pod) = self.pods.remove(name) {
                    self.seen.pods.remove(&pod);
                } else {
                    let mut pod = testing::pod(&format!("pod-{index}"), name, &["data"]);
                    pod.metadata.uid = self.uid();
                    self.pods.insert(name, pod.clone());
                    self.seen.apply(pod);
                }
            }
            Step::KubeletReports(index) => {
                let name = NODES[index];
                let needed = self.pods.contains_key(name) || self.mounted.contains(name);
                self.nodes.entry(name).and_modify(|lists| lists.in_use = needed);
            }
            Step::KubeletMounts(index) => {
                let name = NODES[index];
                if !self.pods.contains_key(name) {
                    self.mounted.remove(name);
                } else if self.nodes[name] == (Lists { attached: true, in_use: true }) {
                    self.mounted.insert(name);
                }
            }
            Step::SyncNode(index) => self.sync(NODES[index]),
            Step::Attacher => self.attacher(),
            Step::Plan(write) => self.plan(write),
        }
        assert!(self.mounted.len() <= 1, "mounted on {:?}", self.mounted);
    }

    fn attacher(&mut self) {
        for (name, attachment) in std::mem::take(&mut self.attachments) {
            if attachment.metadata.deletion_timestamp.is_some() {
                self.seen.attachments.remove(&attachment);
            } else {
                let mut attachment = attachment;
                attachment.status.get_or_insert_default().attached = true;
                self.seen.apply(attachment.clone());
                self.attachments.insert(name, attachment);
            }
        }
    }

    /// Plans and carries out, checking what must never happen.
    fn plan(&mut self, write: Write) {
        let planned = plan("pv", &self.seen, &self.memory, NOW);
        self.memory = planned.memory;
        for action in planned.actions {
            match action {
                Action::Attach { attachment: new, .. } => {
                    assert!(self.attachments.is_empty(), "attached already: {:?}", self.attachments);
                    let mut created = attachment(&new.spec.node_name, false);
                    created.metadata.uid = self.uid();
                    self.seen.apply(created.clone());
                    self.attachments.insert(new.spec.node_name.clone(), created);
                }
                Action::List { node, waiting, .. } => {
                    let name = NODES.into_iter().find(|name| *name == node).unwrap();
                    if waiting.is_some() {
                        let attached = self.attachments[name].status.as_ref().unwrap().attached;
                        assert!(attached, "listed on {name} without being attached");
                    }
                    if write != Write::Lost {
                        self.nodes.entry(name).and_modify(|lists| lists.attached = waiting.is_some());
                    }
                    self.memory.note_write(name, write == Write::Answered);
                    if write != Write::Answered {
                        return; // The rest waits for the next plan.
                    }
                    self.sync(name);
                }
                Action::Detach { attachment } => {
                    let name = attachment.spec.node_name.as_str();
                    assert!(!self.mounted.contains(name), "detached from {name} while mounted");
                    assert!(!self.nodes[name].attached, "detached from {name} while listed");
                    let going = testing::deleting((*attachment).clone(), &["attacher"]);
                    self.seen.apply(going.clone());
                    self.attachments.insert(name.to_owned(), going);
                }
                Action::Warn { .. } => {}
            }
        }
    }

    /// Lets all components catch up, without users and without losses.
    fn settle(&mut self) {
        for _ in 0..12 {
            for index in 0..NODES.len() {
                self.take(&Step::KubeletMounts(index));
                self.take(&Step::KubeletReports(index));
                self.take(&Step::SyncNode(index));
            }
            self.take(&Step::Attacher);
            self.take(&Step::Plan(Write::Answered));
        }
    }
}

proptest! {
    #[test]
    fn never_on_two_nodes_never_taken_while_mounted_and_always_settled(
        steps in proptest::collection::vec(step(), 0..80)
    ) {
        let mut simulation = Simulation::new();
        for step in &steps {
            simulation.take(step);
        }
        simulation.settle();
        if simulation.pods.is_empty() {
            prop_assert!(simulation.attachments.is_empty());
            prop_assert!(simulation.nodes.values().all(|lists| *lists == Lists::default()));
        } else {
            prop_assert_eq!(simulation.attachments.len(), 1);
            prop_assert_eq!(simulation.mounted.len(), 1);
        }
    }
}
