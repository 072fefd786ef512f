//! One decision of every planner, and the objects that a change concerns, as functions of a world: measured by
//! `benches/planners`.
//!
//! Planners and triggers are private; this module exposes them to the benchmark.

use std::collections::BTreeMap;

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as Rpc, plugin_capability::service::Type as Service,
};
use claimcheck_informer::{Change, DataSource, World};
use claimcheck_model::ObjectKey;
use jiff::{SignedDuration, Timestamp};

use crate::{
    Naming, Provisioning, attachdetach, attacher, binder, data_source_validator, ephemeral, expander,
    garbage, node_lifecycle, protection,
    provisioner::{
        self, Settings,
        capacity::{
            plan::{Place, Questions},
            segments::DriverSegments,
        },
    },
    resizer,
    rpc::DriverInfo,
    scheduler, selinux_warning,
    shell::{Controller as _, Plan},
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
    pub decide: fn(&World, &Prepared, &str) -> usize,
}

/// What a controller derives from a world once, and follows from then on.
#[derive(Debug)]
pub struct Prepared {
    segments: DriverSegments,
}

impl Prepared {
    /// Of this world.
    pub fn of(world: &World) -> Self {
        Self { segments: DriverSegments::of(world, &with_topology()) }
    }
}

/// The keys that a controller enqueues on a change.
#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    /// The controller and the kind of the change.
    pub name: &'static str,
    /// The number of keys.
    pub concerned: fn(&Change, &World) -> usize,
}

/// Those with keys other than that of the changed object.
pub const TRIGGERS: &[Trigger] = &[
    Trigger {
        name: "binder: a free volume",
        concerned: |change, world| binder::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "binder: a class",
        concerned: |change, world| binder::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "binder: a claim",
        concerned: |change, world| binder::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "provisioner: a driver's node",
        concerned: |change, world| {
            provisioner::create::registration::concerned(change, DRIVER, world).count()
        },
    },
    Trigger { name: "provisioner: a source", concerned: keys_of_source },
    Trigger { name: "scheduler: a claim", concerned: keys_of_scheduler },
    Trigger { name: "scheduler: a volume", concerned: keys_of_scheduler },
    Trigger {
        name: "attach/detach: a pod",
        concerned: |change, world| attachdetach::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "attach/detach: a volume",
        concerned: |change, world| attachdetach::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "attach/detach: a node's lists",
        concerned: |change, world| attachdetach::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "attach/detach: a driver",
        concerned: |change, world| attachdetach::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "selinux: a pod",
        concerned: |change, world| selinux_warning::concerned(change, world).len(),
    },
    Trigger {
        name: "selinux: a driver",
        concerned: |change, world| selinux_warning::concerned(change, world).len(),
    },
    Trigger {
        name: "snapshots: a claim of a group",
        concerned: |change, world| snapshot_controller_groups::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "snapshots: a volume of a group",
        concerned: |change, world| snapshot_controller_groups::triggers::concerned(change, world).len(),
    },
    Trigger {
        name: "ephemeral: a claim",
        concerned: |change, world| ephemeral::Ephemeral.map_to_keys(change, world).len(),
    },
    Trigger {
        name: "garbage: a pod",
        concerned: |change, world| garbage::Garbage.map_to_keys(change, world).len(),
    },
];

/// All planners.
pub const ALL: &[Decision] = &[
    Decision {
        name: "binder: claim",
        decide: |world, _, name| binder::plan::plan_claim(&key(name), world).len(),
    },
    Decision {
        name: "binder: volume",
        decide: |world, _, name| binder::plan_volume::plan_volume(&ObjectKey::cluster(name), world).len(),
    },
    Decision { name: "provisioner: create", decide: |world, _, name| create(world, name, &settings()) },
    Decision {
        name: "provisioner: create, topology",
        decide: |world, _, name| create(world, name, &with_topology()),
    },
    Decision {
        name: "provisioner: delete",
        decide: |world, _, name| {
            usize::from(provisioner::delete::plan::plan(name, world, &driver(), None, |_| false).is_some())
        },
    },
    Decision { name: "provisioner: capacity", decide: capacity },
    Decision { name: "provisioner: capacity, zone", decide: capacity_of_zone },
    Decision {
        name: "provisioner: source",
        decide: |world, _, name| {
            let source = DataSource::Claim(key(name));
            usize::from(
                provisioner::cloning::plan::plan(
                    &source,
                    world,
                    &settings().driver.name,
                    Provisioning::default(),
                    || false,
                )
                .is_some(),
            )
        },
    },
    Decision {
        name: "expander: claim",
        decide: |world, _, name| usize::from(expander::plan::plan(&key(name), world).is_some()),
    },
    Decision {
        name: "validator: claim",
        decide: |world, _, name| {
            usize::from(data_source_validator::plan::plan(&key(name), world, None).is_some())
        },
    },
    Decision {
        name: "resizer: claim",
        decide: |world, _, name| {
            let known = resizer::plan::Known::default();
            Plan::from(resizer::plan::plan(&key(name), world, &driver(), &known, true, NOW)).actions.len()
        },
    },
    Decision {
        name: "modifier: claim",
        decide: |world, _, name| {
            let known = resizer::modify::plan::Known::default();
            Plan::from(resizer::modify::plan::plan(&key(name), world, &driver(), &known, NOW)).actions.len()
        },
    },
    Decision {
        name: "snapshots: snapshot",
        decide: |world, _, name| {
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
        decide: |world, _, name| {
            let memory = csi_snapshotter::plan::Memory::default();
            let settings = snapshots(Naming::snapshots());
            let (action, _) = csi_snapshotter::plan::plan(name, world, &settings, &memory, NOW);
            usize::from(action.is_some())
        },
    },
    Decision {
        name: "snapshots: group",
        decide: |world, _, name| snapshot_controller_groups::plan::plan_group(&key(name), world).len(),
    },
    Decision {
        name: "snapshotter: group content",
        decide: |world, _, name| {
            let memory = csi_snapshotter_groups::plan::Memory::default();
            let settings = snapshots(Naming::group_snapshots());
            let (action, _) = csi_snapshotter_groups::plan::plan(name, world, &settings, &memory, NOW);
            usize::from(action.is_some())
        },
    },
    Decision {
        name: "snapshots: group by expression",
        decide: |world, _, name| {
            snapshot_controller_groups::plan::plan_group(&ObjectKey::new("apart", name), world).len()
        },
    },
    Decision { name: "scheduler: place, a node", decide: place },
    Decision { name: "scheduler: provision, a node", decide: place },
    Decision { name: "scheduler: local volume, a node", decide: place },
    Decision {
        name: "attach/detach: volume",
        decide: |world, _, name| {
            attachdetach::plan::plan(name, world, &attachdetach::plan::Memory::default(), NOW).actions.len()
        },
    },
    Decision {
        name: "attach/detach: iSCSI volume",
        decide: |world, _, unique| {
            let memory = attachdetach::plan::Memory::default();
            attachdetach::plan_in_tree::plan_in_tree(unique, world, &memory, NOW).actions.len()
        },
    },
    Decision {
        name: "attacher: volume",
        decide: |world, _, name| usize::from(attacher::plan::plan_volume(name, world, &driver()).is_some()),
    },
    Decision {
        name: "attacher: attachment",
        decide: |world, _, name| {
            usize::from(attacher::plan::plan_attachment(name, world, &driver(), None).is_some())
        },
    },
    Decision {
        name: "protection: claim",
        decide: |world, _, name| usize::from(protection::plan::plan_claim(&key(name), world).is_some()),
    },
    Decision {
        name: "protection: volume",
        decide: |world, _, name| {
            usize::from(protection::plan::plan_volume(&ObjectKey::cluster(name), world).is_some())
        },
    },
    Decision {
        name: "protection: attributes class",
        decide: |world, _, name| {
            usize::from(protection::plan::plan_class(&ObjectKey::cluster(name), world).is_some())
        },
    },
    Decision {
        name: "selinux: volume",
        decide: |world, _, handle| {
            let key = selinux_warning::Key::Volume { driver: DRIVER.to_owned(), handle: handle.to_owned() };
            selinux_warning::plan(&key, world).len()
        },
    },
    Decision {
        name: "selinux: pod",
        decide: |world, _, name| selinux_warning::plan(&selinux_warning::Key::Pod(key(name)), world).len(),
    },
    Decision {
        name: "garbage: claim",
        decide: |world, _, name| usize::from(garbage::plan::plan(&key(name), world).is_some()),
    },
    Decision {
        name: "ephemeral: pod",
        decide: |world, _, name| ephemeral::plan::plan(&key(name), world).len(),
    },
    Decision {
        name: "node life cycle: node",
        decide: |world, _, name| {
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

fn settings() -> Settings {
    Settings { driver: driver(), ..Settings::default() }
}

/// As [`settings`], with topology.
fn with_topology() -> Settings {
    let services = [Service::ControllerService, Service::VolumeAccessibilityConstraints];
    let driver = DriverInfo::new(DRIVER, &services, &[Rpc::CreateDeleteVolume, Rpc::GetCapacity]);
    Settings { driver, ..Settings::default() }
}

fn create(world: &World, name: &str, settings: &Settings) -> usize {
    let claim = world.claims.get(&key(name));
    usize::from(claim.and_then(|claim| provisioner::create::plan::plan(claim, world, settings)).is_some())
}

/// The capacity of a class, of a driver without topology.
fn capacity(world: &World, _: &Prepared, name: &str) -> usize {
    let place = Place { class: name.to_owned(), segment: BTreeMap::new() };
    let settings = settings();
    capacity_at(&place, world, &DriverSegments::of(world, &settings), &settings)
}

/// The capacity of a class in a zone.
fn capacity_of_zone(world: &World, prepared: &Prepared, name: &str) -> usize {
    let segment = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let place = Place { class: name.to_owned(), segment };
    capacity_at(&place, world, &prepared.segments, &with_topology())
}

fn capacity_at(place: &Place, world: &World, segments: &DriverSegments, settings: &Settings) -> usize {
    let questions = Questions::default();
    provisioner::capacity::plan::plan(place, world, settings, segments, &questions, NOW).0.len()
}

fn keys_of_source(change: &Change, world: &World) -> usize {
    provisioner::cloning::Sources::new(
        String::new(),
        Provisioning::default(),
        provisioner::create::Calls::default(),
    )
    .map_to_keys(change, world)
    .len()
}

fn keys_of_scheduler(change: &Change, world: &World) -> usize {
    scheduler::Scheduler::default().map_to_keys(change, world).len()
}

fn place(world: &World, _: &Prepared, name: &str) -> usize {
    let reserved = scheduler::reservations::Reservations::default();
    scheduler::plan::plan(&key(name), world, &reserved, scheduler::CapacityScoring::On, NOW).actions.len()
}

fn snapshots(names: Naming) -> snapshotter::Settings {
    snapshotter::Settings { driver: driver(), extra_create_metadata: false, names, node: None }
}
