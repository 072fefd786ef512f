//! That no wake is missed: whatever happens, no pod is left waiting that some node would fit.

use std::collections::{BTreeMap, VecDeque};

use claimcheck_informer::{
    Change, Kind, World,
    testing::{NAMESPACE, node, pod},
};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use proptest::prelude::*;
use serde_json::json;

use super::{Scheduler, action::Action, plan::plan, reservations::Reservations, score::CapacityScoring};
use crate::shell::Controller;

#[derive(Clone, Debug)]
enum Step {
    Pod { name: u8, cpu: u8 },
    PodDeleted { name: u8 },
    Node { name: u8, cpu: u8, cordoned: bool },
    NodeDeleted { name: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12u8, 1..4u8).prop_map(|(name, cpu)| Step::Pod { name, cpu }),
        2 => (0..12u8).prop_map(|name| Step::PodDeleted { name }),
        2 => (0..3u8, 0..6u8, prop::bool::weighted(0.2))
            .prop_map(|(name, cpu, cordoned)| Step::Node { name, cpu, cordoned }),
        1 => (0..3u8).prop_map(|name| Step::NodeDeleted { name }),
    ]
}

fn asking(name: u8, cpu: u8) -> Pod {
    let mut pod = pod(&format!("p{name}"), "", &[]);
    let container = json!([{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}]);
    pod.spec.as_mut().unwrap().containers = serde_json::from_value(container).unwrap();
    pod
}

fn having(name: u8, cpu: u8, cordoned: bool) -> Node {
    let mut node = node(&format!("n{name}"));
    let has = BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_string()))]);
    node.status.as_mut().unwrap().allocatable = Some(has);
    node.spec.get_or_insert_default().unschedulable = Some(cordoned);
    node
}

/// The scheduler on a world that does all actions at once.
#[derive(Default)]
struct Simulation {
    world: World,
    scheduler: Scheduler,
    plans: usize,
    /// Objects so far: each has a uid of its own, since the cache remembers those that are gone.
    made: usize,
}

impl Simulation {
    /// Lets a change wake pods, and those be planned, until nothing is left to do.
    fn settle(&mut self, change: Option<Change>) {
        let mut changes = VecDeque::from_iter(change);
        while let Some(change) = changes.pop_front() {
            for key in self.scheduler.map_to_keys(&change, &self.world) {
                self.plans += 1;
                for action in self.scheduler.plan(&key, &self.world, Timestamp::UNIX_EPOCH).actions {
                    if let Action::Bind(pod, node) = action {
                        let mut bound = (*pod).clone();
                        bound.spec.as_mut().unwrap().node_name = Some(node);
                        changes.extend(self.world.apply(bound));
                    }
                }
            }
        }
    }

    fn uid(&mut self) -> String {
        self.made += 1;
        self.made.to_string()
    }

    fn add(&mut self, mut pod: Pod) {
        pod.metadata.uid = Some(self.uid());
        let change = self.world.apply(pod);
        self.settle(change);
    }

    fn step(&mut self, step: &Step) {
        let change = match *step {
            // A pod of this name that is there stays as it is.
            Step::Pod { name, cpu } => match self.world.pods.get(&key_of_pod(name)) {
                Some(_) => None,
                None => return self.add(asking(name, cpu)),
            },
            Step::PodDeleted { name } => self.world.forget(Kind::Pod, &key_of_pod(name)),
            Step::Node { name, cpu, cordoned } => {
                let key = ObjectKey::cluster(format!("n{name}"));
                let mut node = having(name, cpu, cordoned);
                node.metadata.uid = match self.world.nodes.get(&key) {
                    Some(present) => present.metadata.uid.clone(),
                    None => Some(self.uid()),
                };
                self.world.apply(node)
            }
            Step::NodeDeleted { name } => {
                self.world.forget(Kind::Node, &ObjectKey::cluster(format!("n{name}")))
            }
        };
        self.settle(change);
    }
}

fn key_of_pod(name: u8) -> ObjectKey {
    ObjectKey::new(NAMESPACE, format!("p{name}"))
}

proptest! {
    #[test]
    fn who_waits_fits_nowhere(steps in prop::collection::vec(step(), 0..60)) {
        let mut simulation = Simulation::default();
        for step in &steps {
            simulation.step(step);
            for name in 0..12 {
                let key = key_of_pod(name);
                let fresh = Reservations::default();
                let decision = plan(&key, &simulation.world, &fresh, CapacityScoring::Off, Timestamp::UNIX_EPOCH);
                prop_assert_eq!(decision.node, None, "{} after {:?}", key, step);
            }
        }
    }
}

/// What a change costs hangs on how many kinds of pods wait, not on how many pods.
#[test]
fn a_thousand_equal_pods_are_one_try() {
    let mut simulation = Simulation::default();
    simulation.step(&Step::Node { name: 0, cpu: 1, cordoned: false });
    for n in 0..1000 {
        let mut pod = asking(0, if n % 2 == 0 { 1 } else { 2 });
        pod.metadata.name = Some(format!("many-{n}"));
        simulation.add(pod);
    }
    // The first has the processor; when it ends, the next of its kind gets it, and no other is looked at but
    // the one after that, and one that asks for more.
    simulation.plans = 0;
    let change = simulation.world.forget(Kind::Pod, &ObjectKey::new(NAMESPACE, "many-0"));
    simulation.settle(change);
    assert!(simulation.plans <= 6, "{} plans", simulation.plans);
    let running = simulation.world.pods.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.is_some());
    assert_eq!(running.count(), 1);
}
