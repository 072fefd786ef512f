//! One decision of every planner, as a function of a world: measured by `benches/planners.rs`.
//!
//! Planners are private; this module exposes them to the benchmark.

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as Rpc, plugin_capability::service::Type as Service,
};
use claimcheck_informer::World;
use claimcheck_model::ObjectKey;
use jiff::{SignedDuration, Timestamp};

use crate::{
    attachdetach, attacher, binder, ephemeral, node_lifecycle, protection,
    provisioner::{self, Settings},
    rpc::DriverInfo,
    scheduler,
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
            usize::from(provisioner::delete::plan::plan(name, world, &driver(), |_| false).is_some())
        },
    },
    Decision {
        name: "scheduler: place, a node",
        decide: |world, name| {
            let decision = scheduler::plan::plan(
                &key(name),
                world,
                &scheduler::reservations::Reservations::default(),
                NOW,
            );
            decision.actions.len()
        },
    },
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
    let rpcs = [Rpc::CreateDeleteVolume, Rpc::PublishUnpublishVolume];
    DriverInfo::new(DRIVER, &[Service::ControllerService], &rpcs)
}

fn create(world: &World, name: &str) -> usize {
    let settings = Settings { driver: driver(), ..Settings::default() };
    let claim = world.claims.get(&key(name));
    usize::from(claim.and_then(|claim| provisioner::create::plan::plan(claim, world, &settings)).is_some())
}
