//! Calls GetCapacity and publishes the responses.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_csi::{
    Driver,
    v1::{GetCapacityRequest, Topology},
};
use claimcheck_informer::{Backoff, Change, Kind, KindSet, World, quantity};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSINode, CSIStorageCapacity},
};
use serde_json::json;

use super::plan::{Action, Place, Questions, is_ours, place_of, places, plan, publishes};
use crate::{
    Failure,
    claims::{class_name, selected_node},
    context::Context,
    provisioner::{Settings, create::topology::keys_of},
    rpc::RpcFailure,
    shell::{Controller, Done, Plan},
};

/// The controller that publishes capacities.
pub struct Capacities {
    driver: Driver,
    settings: Settings,
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

    fn wakes(&self, change: &Change, world: &World) -> Vec<Place> {
        let all = || places(world, &self.settings).into_iter();
        match change.kind {
            Kind::Volume | Kind::Claim if !publishes(world, &self.settings) => Vec::new(),
            Kind::Volume if self.changes_room(change) => self.doubt(all().collect()),
            Kind::Claim => match given_up(change) {
                Some(class) => self.doubt(all().filter(|place| place.class == class).collect()),
                None => Vec::new(),
            },
            Kind::Class => all().filter(|place| place.class == change.key.name).collect(),
            Kind::Node if labels_differ(change) => all().collect(),
            Kind::CsiNode if self.keys_differ(change) => all().collect(),
            Kind::CsiDriver if change.key.name == self.settings.driver.name => all().collect(),
            Kind::Capacity => {
                let states = change.states::<CSIStorageCapacity>();
                states.filter(|capacity| is_ours(capacity, &self.settings)).map(|c| place_of(c)).collect()
            }
            Kind::Volume
            | Kind::Node
            | Kind::CsiNode
            | Kind::CsiDriver
            | Kind::Pod
            | Kind::Attachment
            | Kind::Lease
            | Kind::Snapshot
            | Kind::SnapshotContent
            | Kind::SnapshotClass
            | Kind::AttributesClass => Vec::new(),
        }
    }

    fn plan(&self, place: &Place, world: &World, now: Timestamp) -> Plan<Action> {
        let mut questions = self.questions();
        let (actions, again) = plan(place, world, &self.settings, &questions, now);
        if again.is_none() {
            questions.forget(place);
        }
        Plan { actions, again }
    }

    async fn act(&self, context: &Context, place: &Place, action: Action) -> Result<Done, Failure> {
        match action {
            Action::Withdraw(capacity) => {
                context.delete(&*capacity).await?;
                Ok(Done::Wrote)
            }
            Action::Measure { published, wanted, parameters } => {
                let mut measured = *wanted;
                self.measure(place, parameters, &mut measured).await?;
                publish(context, published.as_deref(), &measured).await
            }
        }
    }
}

impl Capacities {
    pub fn new(driver: Driver, settings: Settings) -> Self {
        Self { driver, settings, questions: Mutex::default() }
    }

    /// Calls GetCapacity for the segment.
    async fn measure(
        &self,
        place: &Place,
        parameters: BTreeMap<String, String>,
        capacity: &mut CSIStorageCapacity,
    ) -> Result<(), Failure> {
        // Before the call: changes during the call may not be in the response.
        self.questions().ask(place, Timestamp::now());
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

    /// Whether a volume of the driver was created or deleted.
    fn changes_room(&self, change: &Change) -> bool {
        let volume = change.object::<PersistentVolume>();
        let csi = volume.and_then(|volume| volume.spec.as_ref()?.csi.as_ref());
        csi.is_some_and(|csi| csi.driver == self.settings.driver.name)
            && change.old.is_some() != change.new.is_some()
    }

    fn keys_differ(&self, change: &Change) -> bool {
        let (old, new) = change.both::<CSINode>();
        let keys = |node: &std::sync::Arc<CSINode>| keys_of(node, &self.settings.driver.name).to_vec();
        old.map(keys) != new.map(keys)
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

fn labels_differ(change: &Change) -> bool {
    let (old, new) = change.both::<Node>();
    old.map(|node| &node.metadata.labels) != new.map(|node| &node.metadata.labels)
}

/// Writes the measured capacity, unless it is published already.
async fn publish(
    context: &Context,
    published: Option<&CSIStorageCapacity>,
    measured: &CSIStorageCapacity,
) -> Result<Done, Failure> {
    let Some(published) = published else {
        context.create(measured).await?;
        return Ok(Done::Wrote);
    };
    let numbers = |of: &CSIStorageCapacity| {
        let bytes = |quantity: &Option<_>| quantity.as_ref().and_then(quantity::bytes);
        (bytes(&of.capacity), bytes(&of.maximum_volume_size))
    };
    if numbers(published) == numbers(measured) {
        return Ok(Done::Nothing);
    }
    let patch = json!({
        "capacity": measured.capacity,
        "maximumVolumeSize": measured.maximum_volume_size,
    });
    context.patch(published, patch).await?;
    Ok(Done::Wrote)
}
