//! The segments of all nodes, followed node by node, equal those of a look at all nodes.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::{Kind, World, testing};
use claimcheck_model::ObjectKey;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// A node's zone and rack.
    Node {
        name: u8,
        zone: Option<u8>,
        rack: Option<u8>,
    },
    Deleted {
        name: u8,
    },
    /// Labels are asked for from here on.
    Asked(Vec<String>),
}

fn step() -> impl Strategy<Value = Step> {
    let keys = prop::sample::subsequence(vec!["zone".to_owned(), "rack".to_owned(), "none".to_owned()], 1..3);
    prop_oneof![
        6 => (0..4_u8, prop::option::of(0..2_u8), prop::option::of(0..2_u8))
            .prop_map(|(name, zone, rack)| Step::Node { name, zone, rack }),
        2 => (0..4_u8).prop_map(|name| Step::Deleted { name }),
        1 => keys.prop_map(Step::Asked),
    ]
}

/// Looks at all nodes.
fn naive(world: &World, keys: &[String]) -> BTreeSet<BTreeMap<String, String>> {
    let segments = world.nodes.iter().filter_map(|node| {
        let labels = node.metadata.labels.as_ref()?;
        keys.iter().map(|key| Some((key.clone(), labels.get(key)?.clone()))).collect()
    });
    segments.collect()
}

proptest! {
    #[test]
    fn node_by_node_gives_the_segments_of_all(steps in prop::collection::vec(step(), 0..40)) {
        let mut world = World::default();
        let mut asked = BTreeSet::new();
        for (version, step) in steps.into_iter().enumerate() {
            match step {
                Step::Node { name, zone, rack } => {
                    let mut node = testing::node(&format!("n{name}"));
                    // One that was deleted does not return.
                    node.metadata.uid = None;
                    node.metadata.resource_version = Some((version + 1).to_string());
                    let labels = node.metadata.labels.get_or_insert_default();
                    labels.extend(zone.map(|zone| ("zone".to_owned(), zone.to_string())));
                    labels.extend(rack.map(|rack| ("rack".to_owned(), rack.to_string())));
                    world.apply(node);
                }
                Step::Deleted { name } => {
                    world.forget(Kind::Node, &ObjectKey::cluster(format!("n{name}")));
                }
                Step::Asked(keys) => {
                    asked.insert(keys);
                }
            }
            for keys in &asked {
                prop_assert_eq!(world.node_segments(keys), naive(&world, keys));
            }
        }
    }
}
