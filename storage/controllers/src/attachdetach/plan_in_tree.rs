//! Plans volumes of plugins that are part of Kubernetes: iSCSI and FC volumes are attached by being reported, and pods
//! with migrated volumes get an event.
//!
//! Without attachment objects, the nodes' lists are the only record: a volume is attached where it is listed, as for
//! upstream's controller after a restart (`populateActualStateOfWorld` in `attach_detach_controller.go`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use claimcheck_informer::{NodeBy, World};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::{
    in_tree::{Users, users},
    plan::{Memory, Plan, Planner, is_managed},
    volume::attach_required,
};
use crate::claims::name;

/// Plans the volume with this [`unique`](claimcheck_informer::InTree::unique) name.
pub fn plan_in_tree(unique: &str, world: &World, memory: &Memory, now: Timestamp) -> Plan {
    let users = users(unique, world);
    let mut planner = Planner::new(unique, unique.to_owned(), &users.desired.sources, world, memory, now);
    match users.migrated_to {
        Some(driver) if attach_required(driver, world) => reject(&mut planner, driver, &users, world),
        Some(_) => {}
        None => report(&mut planner, unique, &users, world),
    }
    planner.finish()
}

/// Lists the volume on the nodes with pods that use it, and removes it from the others.
fn report(planner: &mut Planner<'_>, unique: &str, users: &Users, world: &World) {
    let Users { desired, shared, .. } = users;
    let mut holders = BTreeSet::new();
    let listed = world.nodes.by(NodeBy::Listed, unique);
    let doubtful = planner.doubtful().filter_map(|node| world.nodes.named(node));
    let nodes: BTreeMap<&str, &Arc<Node>> =
        listed.chain(doubtful).map(|node| (name(&**node), node)).collect();
    for (node, object) in nodes {
        let pods = desired.pods.get(node);
        let listed = planner.is_listed(object) || planner.is_doubtful(node);
        // A volume that is in use without pods may be mounted, listed or not; with pods it may also be waited for.
        if !listed && (pods.is_some() || !planner.is_in_use(object)) {
            continue;
        }
        let managed = is_managed(object);
        let unused = managed && pods.is_none() && !planner.has_to_stay(object, node);
        if managed && (pods.is_some() || unused) {
            planner.list(object, node, pods);
        }
        planner.pending |= unused && listed;
        // After a forced detach the volume may be in use forever.
        if listed || !unused {
            holders.insert(node);
        }
    }
    for (node, pods) in planner.missing(desired, &holders) {
        if *shared || holders.is_empty() {
            holders.insert(node);
            planner.pending = true;
            if let Some(object) = world.nodes.named(node) {
                planner.list(object, node, Some(pods));
            }
        } else {
            planner.refuse(node, pods, &holders, desired);
        }
    }
}

/// Emits one event per pod; kubelets only wait.
fn reject(planner: &mut Planner<'_>, driver: &str, users: &Users, world: &World) {
    for (node, source) in &users.desired.sources {
        if !world.nodes.named(node).is_some_and(|node| is_managed(node)) {
            continue;
        }
        for pod in users.desired.pods.get(node).into_iter().flatten() {
            let message = format!(
                "AttachVolume.Attach failed for volume {source:?} : it is migrated to the CSI driver {driver}, and \
                 claimcheck does not support migrated volumes: use a PersistentVolume with a csi source, or the \
                 stock controllers"
            );
            planner.warn_once(pod, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use claimcheck_model::OUT_OF_SERVICE;
    use k8s_openapi::api::core::v1::{
        AttachedVolume, NodeSpec, PersistentVolume, PersistentVolumeClaim, Pod, Taint,
    };
    use serde_json::json;

    use super::{
        super::{
            plan::Action,
            plan_tests::{NOW, bound, node, pod},
        },
        *,
    };

    const UNIQUE: &str = "kubernetes.io/iscsi/10.0.0.1:iqn:0";

    fn iscsi(modes: &[&str]) -> (PersistentVolumeClaim, PersistentVolume) {
        let (claim, mut volume) = bound(modes);
        let spec = volume.spec.get_or_insert_default();
        spec.csi = None;
        let source = json!({"targetPortal": "10.0.0.1", "iqn": "iqn", "lun": 0});
        spec.iscsi = Some(serde_json::from_value(source).unwrap());
        (claim, volume)
    }

    /// A node with or without the volume in its lists.
    fn lists(name: &str, attached: bool, in_use: bool) -> Node {
        let mut node = node(name, false, false);
        let status = node.status.get_or_insert_default();
        let listed = AttachedVolume { name: UNIQUE.into(), device_path: String::new() };
        status.volumes_attached = attached.then(|| vec![listed]);
        status.volumes_in_use = in_use.then(|| vec![UNIQUE.into()]);
        node
    }

    /// A pod that contains a volume's source.
    fn inline(name: &str, node: &str, source: serde_json::Value) -> Pod {
        let mut pod = testing::pod(name, node, &[]);
        let mut volume = source;
        volume["name"] = json!("disk");
        let volume = serde_json::from_value(volume).unwrap();
        pod.spec.get_or_insert_default().volumes = Some(vec![volume]);
        pod
    }

    fn inline_iscsi(name: &str, node: &str) -> Pod {
        inline(name, node, json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn", "lun": 0}}))
    }

    /// The actions in short, in order.
    fn shorts(plan: &Plan) -> Vec<String> {
        let short = |action: &Action| match action {
            Action::List { node, volume, unique, waiting, .. } => {
                assert_eq!(unique, UNIQUE);
                match waiting {
                    Some(pods) => format!("list {volume} on {node} for {}", pods.len()),
                    None => format!("unlist on {node}"),
                }
            }
            Action::Warn { pod, message } => {
                format!("warn {}: {message}", pod.name.as_deref().unwrap_or_default())
            }
            Action::Attach { .. } | Action::Detach { .. } => panic!("an attachment: {action:?}"),
        };
        plan.actions.iter().map(short).collect()
    }

    fn run(world: &World) -> Vec<String> {
        shorts(&plan_in_tree(UNIQUE, world, &Memory::default(), NOW))
    }

    macro_rules! world {
        ($mode:expr; $($object:expr),* $(,)?) => {{
            let (claim, volume) = iscsi(&[$mode]);
            let mut world = testing::world([claim.into(), volume.into()]);
            $(world.apply($object);)*
            world
        }};
    }

    #[test]
    fn a_volume_is_attached_by_being_reported() {
        let once = "ReadWriteOnce";
        let mut dead = lists("a", false, true);
        let taint = Taint { key: OUT_OF_SERVICE.into(), ..Taint::default() };
        dead.spec = Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() });
        let warning = "warn q: Multi-Attach error for volume \"pv\" Volume is already";
        for (what, world, expected) in [
            ("no pod uses it", world![once; lists("a", false, false)], vec![]),
            (
                "a pod waits for it",
                world![once; lists("a", false, true), pod("p", "a")],
                vec!["list pv on a for 1".to_owned()],
            ),
            (
                "a pod contains it",
                world![once; lists("a", false, true), inline_iscsi("p", "a")],
                vec!["list disk on a for 1".to_owned()],
            ),
            ("the kubelet attaches", world![once; testing::node("a"), pod("p", "a")], vec![]),
            ("all done", world![once; lists("a", true, true), pod("p", "a")], vec![]),
            ("still mounted", world![once; lists("a", true, true)], vec![]),
            ("unmounted", world![once; lists("a", true, false)], vec!["unlist on a".to_owned()]),
            (
                "used by a pod elsewhere",
                world![once; lists("a", true, true), lists("b", false, true), pod("p", "a"), pod("q", "b")],
                vec![format!("{warning} used by pod(s) p")],
            ),
            (
                "unmounted elsewhere just now",
                world![once; lists("a", true, false), lists("b", false, true), pod("q", "b")],
                vec!["unlist on a".to_owned()],
            ),
            (
                "unlisted elsewhere, but mounted",
                world![once; lists("a", false, true), lists("b", false, true), pod("q", "b")],
                vec![format!("{warning} exclusively attached to one node and can't be attached to another")],
            ),
            (
                "on a node that is shut down for certain",
                world![once; dead, lists("b", false, true), pod("q", "b")],
                vec!["list pv on b for 1".to_owned()],
            ),
            (
                "shared",
                world!["ReadOnlyMany"; lists("a", true, true), lists("b", false, true), pod("p", "a"), pod("q", "b")],
                vec!["list pv on b for 1".to_owned()],
            ),
        ] {
            assert_eq!(run(&world), expected, "{what}");
        }
    }

    #[test]
    fn pods_with_migrated_volumes_are_warned_once() {
        let unique = "kubernetes.io/aws-ebs/vol-1";
        let p = inline("p", "a", json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}));
        let mut world = testing::world([node("a", false, false).into(), p.into()]);
        let first = plan_in_tree(unique, &world, &Memory::default(), NOW);
        let message = "AttachVolume.Attach failed for volume \"disk\" : it is migrated to the CSI driver \
                       ebs.csi.aws.com, and claimcheck does not support migrated volumes: use a PersistentVolume \
                       with a csi source, or the stock controllers";
        assert_eq!(shorts(&first), [format!("warn p: {message}")]);
        assert_eq!(shorts(&plan_in_tree(unique, &world, &first.memory, NOW)), [""; 0]);

        let mut driver = testing::csi_driver(false);
        driver.metadata.name = Some("ebs.csi.aws.com".into());
        world.apply(driver);
        assert_eq!(shorts(&plan_in_tree(unique, &world, &Memory::default(), NOW)), [""; 0], "not attached");
    }
}
