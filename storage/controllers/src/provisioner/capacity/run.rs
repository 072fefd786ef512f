//! Calls GetCapacity and publishes the responses.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use claimcheck_csi::{
    Driver,
    v1::{GetCapacityRequest, Topology},
};
use claimcheck_informer::{Backoff, Change, Kind, KindSet, World, quantity};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::CSIStorageCapacity,
};
use serde_json::json;

use super::{
    plan::{
        Action, Place, Questions, affected, in_segment, is_owned, place_of, places, places_of_class, plan,
        publishes,
    },
    segments::DriverSegments,
};
use crate::{
    Failure,
    claims::{class_name, selected_node},
    context::Context,
    provisioner::Settings,
    rpc::RpcFailure,
    shell::{ActionOutcome, Controller, Plan},
};

/// The controller that publishes capacities.
pub struct Capacities {
    driver: Driver,
    settings: Settings,
    /// From the first change on, when the world is complete.
    segments: OnceLock<Mutex<DriverSegments>>,
    /// Uids of the driver's volumes: a resync repeats their additions.
    volumes: Mutex<HashSet<String>>,
    questions: Mutex<Questions>,
}

impl Controller for Capacities {
    type Key = Place;
    type Action = Action;

    const NAME: &'static str = "provisioner-capacity";
    const WORKERS: usize = 4;
    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };

    fn kinds() -> KindSet {
        KindSet::of(&[
            Kind::Claim,
            Kind::Volume,
            Kind::Class,
            Kind::Node,
            Kind::CsiNode,
            Kind::CsiDriver,
            Kind::Capacity,
        ])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<Place> {
        let settings = &self.settings;
        let mut segments = self.segments(world);
        match change.kind {
            Kind::Volume => match self.changes_room(change) {
                Some(volume) if publishes(world, settings) => {
                    self.doubt(affected(volume, world, settings, &segments))
                }
                Some(_) | None => Vec::new(),
            },
            Kind::Claim => match given_up(change) {
                Some(class) if publishes(world, settings) => {
                    self.doubt(places_of_class(&class, world, settings, &segments).into_iter().collect())
                }
                Some(_) | None => Vec::new(),
            },
            Kind::Class => {
                places_of_class(&change.key.name, world, settings, &segments).into_iter().collect()
            }
            Kind::Node | Kind::CsiNode => {
                let changed = segments.update(&change.key.name, world, settings);
                changed.iter().flat_map(|segment| in_segment(segment, world, settings)).collect()
            }
            Kind::CsiDriver if change.key.name == settings.driver.name => {
                places(world, settings, &segments).into_iter().collect()
            }
            Kind::Capacity => {
                let states = change.states::<CSIStorageCapacity>();
                states.filter(|capacity| is_owned(capacity, settings)).map(|c| place_of(c)).collect()
            }
            Kind::CsiDriver
            | Kind::Pod
            | Kind::Attachment
            | Kind::Lease
            | Kind::ReferenceGrant
            | Kind::Populator
            | Kind::Snapshot
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::GroupSnapshot
            | Kind::GroupSnapshotContent
            | Kind::GroupSnapshotClass
            | Kind::AttributesClass => Vec::new(),
        }
    }

    fn plan(&self, place: &Place, world: &World, now: Timestamp) -> Plan<Action> {
        let segments = self.segments(world);
        let mut questions = self.questions();
        let (actions, requeue_after) = plan(place, world, &self.settings, &segments, &questions, now);
        if requeue_after.is_none() {
            questions.forget(place);
        }
        Plan { actions, requeue_after }
    }

    async fn act(&self, context: &Context, place: &Place, action: Action) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Withdraw(capacity) => {
                context.delete(&*capacity).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::Measure { published, expected, parameters } => {
                let mut measured = *expected;
                self.measure(place, parameters, &mut measured).await?;
                publish(context, published.as_deref(), &measured).await
            }
        }
    }
}

impl Capacities {
    pub fn new(driver: Driver, settings: Settings) -> Self {
        Self {
            driver,
            settings,
            segments: OnceLock::new(),
            volumes: Mutex::default(),
            questions: Mutex::default(),
        }
    }

    /// Calls GetCapacity for the segment.
    async fn measure(
        &self,
        place: &Place,
        parameters: BTreeMap<String, String>,
        capacity: &mut CSIStorageCapacity,
    ) -> Result<(), Failure> {
        // Before the call: changes during the call may not be in the response.
        self.questions().mark_stale(place, Timestamp::now());
        let segments = &place.segment;
        let request = GetCapacityRequest {
            parameters,
            accessible_topology: (!segments.is_empty()).then(|| Topology { segments: segments.clone() }),
            ..GetCapacityRequest::default()
        };
        let answer = match self.driver.controller().get_capacity(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => {
                // The retry after the backoff is to ask, too.
                self.questions().forget(place);
                return Err(RpcFailure::from(status).into());
            }
        };
        capacity.capacity = Some(quantity::from_bytes(answer.available_capacity));
        capacity.maximum_volume_size = answer.maximum_volume_size.map(quantity::from_bytes);
        Ok(())
    }

    /// Records that the capacity of these segments may have changed.
    fn doubt(&self, places: Vec<Place>) -> Vec<Place> {
        let mut questions = self.questions();
        places.iter().for_each(|place| questions.doubt(place));
        places
    }

    /// The volume of the driver that was created or deleted.
    fn changes_room<'c>(&self, change: &'c Change) -> Option<&'c Arc<PersistentVolume>> {
        let volume = change.object::<PersistentVolume>()?;
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        let uid = volume.metadata.uid.as_deref()?;
        // Nothing panics while it is locked, so a poisoned one is whole.
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = csi.driver == self.settings.driver.name
            && match &change.new {
                Some(_) => volumes.insert(uid.to_owned()),
                None => volumes.remove(uid),
            };
        changes.then_some(volume)
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn segments(&self, world: &World) -> MutexGuard<'_, DriverSegments> {
        let segments = self.segments.get_or_init(|| Mutex::new(DriverSegments::of(world, &self.settings)));
        segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Its methods cannot leave it half changed.
    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The class of a claim, if its selected node was cleared: there was less capacity than published.
fn given_up(change: &Change) -> Option<String> {
    let (old, new) = change.both::<PersistentVolumeClaim>();
    let (old, new) = (old?, new?);
    (selected_node(old).is_some() && selected_node(new).is_none()).then(|| class_name(new).to_owned())
}

/// Writes the measured capacity, unless it is published already.
async fn publish(
    context: &Context,
    published: Option<&CSIStorageCapacity>,
    measured: &CSIStorageCapacity,
) -> Result<ActionOutcome, Failure> {
    let Some(published) = published else {
        context.create(measured).await?;
        return Ok(ActionOutcome::Changed);
    };
    let numbers = |of: &CSIStorageCapacity| {
        let bytes = |quantity: &Option<_>| quantity.as_ref().and_then(quantity::bytes);
        (bytes(&of.capacity), bytes(&of.maximum_volume_size))
    };
    if numbers(published) == numbers(measured) {
        return Ok(ActionOutcome::Unchanged);
    }
    let patch = json!({
        "capacity": measured.capacity,
        "maximumVolumeSize": measured.maximum_volume_size,
    });
    context.patch(published, patch).await?;
    Ok(ActionOutcome::Changed)
}
