//! Whatever happens in whatever order: the planner against an attacher, kubelets and users, all simulated.
//!
//! The simulated kubelet is honest about the one thing that the protocol rests on: it reports a volume in
//! use before it looks whether the volume is attached, and mounts only then. Reports reach the planner late:
//! it sees a node as of its own last write to it, or as of a later sync.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::{World, testing};
use k8s_openapi::api::core::v1::{AttachedVolume, Node};
use proptest::prelude::*;

use super::{
    plan::{Action, Memory, plan},
    plan_tests::{NOW, UNIQUE, attachment, bound, node},
};

const NODES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    /// The pod of this node comes or goes.
    TogglePod(usize),
    /// The kubelet sees its pods: reports volumes in use, or stops doing so.
    KubeletReports(usize),
    /// The kubelet mounts if it may, unmounts if it should.
    KubeletMounts(usize),
    /// The planner sees the newest state of the node.
    SyncNode(usize),
    /// The attacher finishes what it was asked for.
    Attacher,
    /// The planner runs and its first actions are carried out.
    Plan,
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES.len();
    prop_oneof![
        2 => node.clone().prop_map(Step::TogglePod),
        2 => node.clone().prop_map(Step::KubeletReports),
        2 => node.clone().prop_map(Step::KubeletMounts),
        1 => node.prop_map(Step::SyncNode),
        2 => Just(Step::Attacher),
        4 => Just(Step::Plan),
    ]
}

struct Simulation {
    /// What the planner sees.
    seen: World,
    memory: Memory,
    /// The nodes as they are: volume listed as attached, reported in use.
    nodes: BTreeMap<&'static str, (bool, bool)>,
    pods: BTreeSet<&'static str>,
    mounted: BTreeSet<&'static str>,
    /// Attachments: whether attached.
    attachments: BTreeMap<String, bool>,
}

impl Simulation {
    fn new() -> Self {
        let (claim, volume) = bound(&["ReadWriteOnce"]);
        let mut seen = World::default();
        seen.apply(claim);
        seen.apply(volume);
        let mut this = Self {
            seen,
            memory: Memory::default(),
            nodes: NODES.iter().map(|name| (*name, (false, false))).collect(),
            pods: BTreeSet::new(),
            mounted: BTreeSet::new(),
            attachments: BTreeMap::new(),
        };
        NODES.iter().for_each(|name| this.sync(name));
        this
    }

    fn sync(&mut self, name: &str) {
        let (listed, in_use) = self.nodes[name];
        self.seen.apply(node(name, listed, in_use));
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::TogglePod(index) => {
                let (name, pod) =
                    (NODES[index], testing::pod(&format!("pod-{index}"), NODES[index], &["data"]));
                if self.pods.remove(name) {
                    self.seen.pods.remove(&pod);
                    // A pod that comes back is another one.
                    self.seen = std::mem::take(&mut self.seen);
                } else {
                    self.pods.insert(name);
                    let mut pod = pod;
                    pod.metadata.uid = None;
                    self.seen.apply(pod);
                }
            }
            Step::KubeletReports(index) => {
                let name = NODES[index];
                let needed = self.pods.contains(name) || self.mounted.contains(name);
                self.nodes.entry(name).and_modify(|(_, in_use)| *in_use = needed);
            }
            Step::KubeletMounts(index) => {
                let name = NODES[index];
                if !self.pods.contains(name) {
                    self.mounted.remove(name);
                } else if self.nodes[name] == (true, true) {
                    self.mounted.insert(name);
                }
            }
            Step::SyncNode(index) => self.sync(NODES[index]),
            Step::Attacher => {
                for (name, attached) in &mut self.attachments {
                    *attached = true;
                    self.seen.apply(attachment(name, true));
                }
            }
            Step::Plan => self.plan(),
        }
    }

    /// Plans and carries out, checking what must never happen.
    fn plan(&mut self) {
        let planned = plan("pv", &self.seen, &self.memory, NOW);
        self.memory = planned.memory;
        for action in planned.actions {
            match action {
                Action::Attach { attachment: new, .. } => {
                    assert!(self.attachments.is_empty(), "attached to {:?} already", self.attachments);
                    self.attachments.insert(new.spec.node_name.clone(), false);
                    let mut created = attachment(&new.spec.node_name, false);
                    created.metadata.uid = None;
                    self.seen.apply(created);
                }
                Action::List { node, waiting, .. } => {
                    let name = NODES.into_iter().find(|name| *name == node).unwrap();
                    if waiting.is_some() {
                        assert!(self.attachments[name], "listed on {name} without being attached");
                    }
                    self.nodes.entry(name).and_modify(|(listed, _)| *listed = waiting.is_some());
                    // The answer to the write.
                    self.sync(name);
                }
                Action::Detach { attachment } => {
                    let name = attachment.spec.node_name.as_str();
                    assert!(!self.mounted.contains(name), "detached from {name} while mounted");
                    assert!(!self.nodes[name].0, "detached from {name} while listed");
                    self.attachments.remove(name);
                    self.seen.attachments.remove(&attachment);
                }
                Action::Warn { .. } => {}
            }
        }
        assert!(self.mounted.len() <= 1, "mounted on {:?}", self.mounted);
    }

    /// Lets everybody catch up, without users.
    fn settle(&mut self) {
        for _ in 0..12 {
            for index in 0..NODES.len() {
                self.take(&Step::KubeletMounts(index));
                self.take(&Step::KubeletReports(index));
                self.take(&Step::SyncNode(index));
            }
            self.take(&Step::Attacher);
            self.take(&Step::Plan);
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
        match simulation.pods.len() {
            0 => {
                prop_assert!(simulation.attachments.is_empty());
                prop_assert!(simulation.nodes.values().all(|lists| *lists == (false, false)));
            }
            _ => {
                prop_assert_eq!(simulation.attachments.len(), 1);
                prop_assert_eq!(simulation.mounted.len(), 1);
            }
        }
    }
}

/// The simulation's nodes are built by the helper that rows use; this keeps the two honest.
#[test]
fn the_helper_lists_what_it_says() {
    let lists = |node: &Node| {
        let status = node.status.clone().unwrap();
        let attached: Vec<AttachedVolume> = status.volumes_attached.unwrap_or_default();
        (attached.iter().any(|volume| volume.name == UNIQUE), status.volumes_in_use.is_some())
    };
    assert_eq!(lists(&node("a", true, false)), (true, false));
    assert_eq!(lists(&node("a", false, true)), (false, true));
}
