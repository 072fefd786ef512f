//! The claims that wait for a driver to be registered on a node.

use std::sync::Arc;

use claimcheck_informer::{Change, ClaimBy, ClassBy, World};
use claimcheck_model::SELECTED_NODE;
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::CSINode};

use super::topology::first_with_keys;
use crate::claims::{annotation, class_name, name};

/// The claims that a change of a CSINode concerns, of the classes of this driver. Those that selected the node, and those
/// that selected none if their topology is determined from this node. The others depend on the values of labels only:
/// if no node had them, they are retried.
pub fn concerned<'w>(
    change: &Change,
    driver: &str,
    world: &'w World,
) -> impl Iterator<Item = &'w Arc<PersistentVolumeClaim>> + use<'w> {
    let node = &change.key.name;
    let registers = registers(change, driver);
    let is_first = registers && first_with_keys(world, driver).is_some_and(|first| name(first) == node);
    let selected = if registers { claims_on_node(node, driver, world) } else { Vec::new() };
    let others = if is_first { claims_without_node(driver, world) } else { Vec::new() };
    selected.into_iter().chain(others)
}

/// Whether a node changes its registration of the driver as far as topology depends on it: not if it only has
/// another limit of volumes.
fn registers(change: &Change, driver: &str) -> bool {
    let registered = |node: &Arc<CSINode>| {
        let registered = node.spec.drivers.iter().find(|registered| registered.name == driver)?;
        Some(registered.topology_keys.clone())
    };
    let (old, new) = change.both::<CSINode>();
    old.and_then(registered) != new.and_then(registered)
}

fn claims_on_node<'w>(node: &str, driver: &str, world: &'w World) -> Vec<&'w Arc<PersistentVolumeClaim>> {
    let selected = world.claims.by(ClaimBy::SelectedNode, node);
    let is_of_driver = |claim: &&Arc<PersistentVolumeClaim>| {
        world.classes.named(class_name(claim)).is_some_and(|class| class.provisioner == driver)
    };
    selected.filter(is_of_driver).collect()
}

fn claims_without_node<'w>(driver: &str, world: &'w World) -> Vec<&'w Arc<PersistentVolumeClaim>> {
    let classes = world.classes.by(ClassBy::Provisioner, driver);
    let claims = classes.flat_map(|class| world.claims.by(ClaimBy::Unbound, name(&**class)));
    claims.filter(|claim| annotation(&***claim, SELECTED_NODE).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, DRIVER};

    use super::*;

    #[test]
    fn a_registration_enqueues_the_claims_of_the_node_and_the_first_one_those_without_node() {
        let mut world = testing::world([
            testing::class("fast", DRIVER).into(),
            testing::class("other", "other.test").into(),
            testing::claim("without", "fast", "1Gi").into(),
            testing::claim("foreign", "other", "1Gi").into(),
        ]);
        for (name, node, class) in [
            ("on-a", "a", "fast"),
            ("on-b", "b", "fast"),
            ("on-c", "c", "fast"),
            ("foreign-on-a", "a", "other"),
        ] {
            let mut claim = testing::claim(name, class, "1Gi");
            testing::annotate(&mut claim.metadata, SELECTED_NODE, node);
            world.apply(claim);
        }
        let mut registered = |node: &str, keys: Option<&str>, limit: Option<i32>| {
            let mut csi_node = testing::csi_node(node, limit);
            csi_node.spec.drivers[0].topology_keys = keys.map(|key| vec![key.to_owned()]);
            let change = world.apply(csi_node).expect("a change");
            let claims = concerned(&change, DRIVER, &world).map(|claim| name(&**claim).to_owned());
            claims.collect::<Vec<_>>()
        };
        assert_eq!(registered("b", None, None), ["on-b"], "without topology");
        assert_eq!(registered("b", Some("zone"), None), ["on-b", "without"]);
        assert_eq!(registered("b", Some("zone"), Some(1)), [""; 0], "only another limit");
        assert_eq!(registered("c", Some("zone"), None), ["on-c"]);
        assert_eq!(registered("a", Some("rack"), None), ["on-a", "without"], "the first by name");
        assert_eq!(registered("a", None, None), ["on-a"]);
    }
}
