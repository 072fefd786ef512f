//! One decision of every planner, as a function of a world: measured by `benches/planners.rs`.
//!
//! Planners are private; this module exposes them to the benchmark.

use std::collections::BTreeMap;

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as Rpc, plugin_capability::service::Type as Service,
};
use claimcheck_informer::World;
use claimcheck_model::ObjectKey;
use jiff::{SignedDuration, Timestamp};

use crate::{
    Naming, attachdetach, attacher, binder, ephemeral, node_lifecycle, protection,
    provisioner::{
        self, Settings,
        capacity::{
            plan::{Place, Questions},
            segments::DriverSegments,
        },
    },
    resizer,
    rpc::DriverInfo,
    scheduler,
    shell::Plan,
    snapshotter::{
        self, csi_snapshotter, csi_snapshotter_groups, snapshot_controller, snapshot_controller_groups,
    },
};

/// A planner and its input.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// The planner and the kind of its object.
    pub name: &'static str,
    /// Plans the object with this name; returns the number of planned actions.
    pub decide: fn(&World, &str) -> usize,
}

/// All planners.
pub const ALL: &[Decision] = &[
    Decision {
        name: "binder: claim",
        decide: |world, name| binder::plan::plan_claim(&key(name), world).len(),
    },
    Decision {
        name: "binder: volume",
        decide: |world, name| binder::plan_volume::plan_volume(&ObjectKey::cluster(name), world).len(),
    },
    Decision { name: "provisioner: create", decide: create },
    Decision {
        name: "provisioner: delete",
        decide: |world, name| {
            usize::from(provisioner::delete::plan::plan(name, world, &driver(), None, |_| false).is_some())
        },
    },
    Decision { name: "provisioner: capacity", decide: capacity },
    Decision {
        name: "resizer: claim",
        decide: |world, name| {
            let known = resizer::plan::Known::default();
            Plan::from(resizer::plan::plan(&key(name), world, &driver(), &known, NOW)).actions.len()
        },
    },
    Decision {
        name: "modifier: claim",
        decide: |world, name| {
            let known = resizer::modify::plan::Known::default();
            Plan::from(resizer::modify::plan::plan(&key(name), world, &driver(), &known, NOW)).actions.len()
        },
    },
    Decision {
        name: "snapshots: snapshot",
        decide: |world, name| {
            let options = snapshot_controller::ContentOptions {
                distribution: snapshot_controller::Distribution::Central,
                source_volume_mode: true,
            };
            let action = snapshot_controller::plan::plan_snapshot(&key(name), world, options, false);
            usize::from(action.is_some())
        },
    },
    Decision {
        name: "snapshotter: content",
        decide: |world, name| {
            let memory = csi_snapshotter::plan::Memory::default();
            let settings = snapshots(Naming::snapshots());
            let (action, _) = csi_snapshotter::plan::plan(name, world, &settings, &memory, NOW);
            usize::from(action.is_some())
        },
    },
    Decision {
        name: "snapshots: group",
        decide: |world, name| snapshot_controller_groups::plan::plan_group(&key(name), world).len(),
    },
    Decision {
        name: "snapshotter: group content",
        decide: |world, name| {
            let memory = csi_snapshotter_groups::plan::Memory::default();
            let settings = snapshots(Naming::group_snapshots());
            let (action, _) = csi_snapshotter_groups::plan::plan(name, world, &settings, &memory, NOW);
            usize::from(action.is_some())
        },
    },
    Decision { name: "scheduler: place, a node", decide: place },
    Decision { name: "scheduler: provision, a node", decide: place },
    Decision {
        name: "attach/detach: volume",
        decide: |world, name| {
            attachdetach::plan::plan(name, world, &attachdetach::plan::Memory::default(), NOW).actions.len()
        },
    },
    Decision {
        name: "attacher: attachment",
        decide: |world, name| {
            usize::from(attacher::plan::plan_attachment(name, world, &driver(), None).is_some())
        },
    },
    Decision {
        name: "protection: claim",
        decide: |world, name| usize::from(protection::plan::plan_claim(&key(name), world).is_some()),
    },
    Decision {
        name: "protection: volume",
        decide: |world, name| {
            usize::from(protection::plan::plan_volume(&ObjectKey::cluster(name), world).is_some())
        },
    },
    Decision { name: "ephemeral: pod", decide: |world, name| ephemeral::plan::plan(&key(name), world).len() },
    Decision {
        name: "node life cycle: node",
        decide: |world, name| {
            let memory = node_lifecycle::plan::Memory::default();
            node_lifecycle::plan::plan(name, world, &memory, SignedDuration::from_secs(50), NOW).actions.len()
        },
    },
];

/// The driver of all volumes.
const DRIVER: &str = "csi.test";
/// When everything is decided.
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn driver() -> DriverInfo {
    let rpcs = [
        Rpc::CreateDeleteVolume,
        Rpc::PublishUnpublishVolume,
        Rpc::ExpandVolume,
        Rpc::CreateDeleteSnapshot,
        Rpc::GetCapacity,
    ];
    DriverInfo::new(DRIVER, &[Service::ControllerService], &rpcs)
}

fn create(world: &World, name: &str) -> usize {
    let settings = Settings { driver: driver(), ..Settings::default() };
    let claim = world.claims.get(&key(name));
    usize::from(claim.and_then(|claim| provisioner::create::plan::plan(claim, world, &settings)).is_some())
}

/// The capacity of a class, of a driver without topology: the segments of others are not found again for a decision.
fn capacity(world: &World, name: &str) -> usize {
    let settings = Settings { driver: driver(), ..Settings::default() };
    let segments = DriverSegments::of(world, &settings);
    let place = Place { class: name.to_owned(), segment: BTreeMap::new() };
    let questions = Questions::default();
    provisioner::capacity::plan::plan(&place, world, &settings, &segments, &questions, NOW).0.len()
}

fn place(world: &World, name: &str) -> usize {
    let reserved = scheduler::reservations::Reservations::default();
    scheduler::plan::plan(&key(name), world, &reserved, scheduler::CapacityScoring::On, NOW).actions.len()
}

fn snapshots(names: Naming) -> snapshotter::Settings {
    snapshotter::Settings { driver: driver(), extra_create_metadata: false, names, node: None }
}
