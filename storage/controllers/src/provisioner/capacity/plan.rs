//! Which capacities must be published, and when the driver must be called for one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{CapacityBy, ClassBy, World};
use jiff::Timestamp;
use k8s_openapi::{
    api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};

use crate::{
    claims::{binds_late, name},
    provisioner::{
        Settings,
        create::topology::{Segments, keys_of, segments},
    },
    rpc::RESERVED,
};

/// The label with the driver of a capacity.
const DRIVER_LABEL: &str = "csi.storage.k8s.io/drivername";
/// The label with its manager; objects of other managers are ignored.
const MANAGER_LABEL: &str = "csi.storage.k8s.io/managed-by";
const MANAGER: &str = "external-provisioner";

/// Polling interval (upstream `--capacity-poll-interval`).
pub const PERIOD: Duration = Duration::from_secs(60);
/// Minimum interval between two calls for one segment: many volumes created at once count as one change.
pub const PAUSE: Duration = Duration::from_millis(200);

/// A class and a segment of the driver's topology: the input of GetCapacity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The class's name.
    pub class: String,
    /// The segment; empty for a driver without topology.
    pub segment: Segments,
}

/// The action for a segment.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Call the driver, and publish the response: in the existing object, if any.
    Measure {
        /// The existing object.
        published: Option<Arc<CSIStorageCapacity>>,
        /// The desired object, without the numbers.
        wanted: Box<CSIStorageCapacity>,
        /// The class's parameters, without the reserved ones.
        parameters: BTreeMap<String, String>,
    },
    /// Delete an object.
    Withdraw(Arc<CSIStorageCapacity>),
}

/// Time of the last call, and changes since. Lost with the process: then the driver is called again.
#[derive(Debug, Default)]
pub struct Questions {
    asked: HashMap<Place, Timestamp>,
    stale: HashSet<Place>,
}

impl Questions {
    /// Records a change that may affect the response.
    pub fn doubt(&mut self, place: &Place) {
        self.stale.insert(place.clone());
    }

    /// Records the start of a call.
    pub fn ask(&mut self, place: &Place, now: Timestamp) {
        self.stale.remove(place);
        self.asked.insert(place.clone(), now);
    }

    /// Forgets a segment that is no longer published.
    pub fn forget(&mut self, place: &Place) {
        self.stale.remove(place);
        self.asked.remove(place);
    }

    /// The delay until the next call.
    fn due_in(&self, place: &Place, now: Timestamp) -> Duration {
        let Some(asked) = self.asked.get(place) else { return Duration::ZERO };
        let interval = if self.stale.contains(place) { PAUSE } else { PERIOD };
        // A clock that was set back makes it due.
        let since = Duration::try_from(now.duration_since(*asked)).unwrap_or(interval);
        interval.saturating_sub(since)
    }
}

/// The action for a segment now, or the time of the next one.
pub fn plan(
    place: &Place,
    world: &World,
    settings: &Settings,
    questions: &Questions,
    now: Timestamp,
) -> (Vec<Action>, Option<Duration>) {
    let mut there = published(place, world, settings);
    let Some((class, driver)) = wanted(place, world, settings) else {
        return (there.into_iter().map(Action::Withdraw).collect(), None);
    };
    let surplus = if there.len() > 1 { there.split_off(1) } else { Vec::new() };
    let mut actions: Vec<_> = surplus.into_iter().map(Action::Withdraw).collect();
    let due = questions.due_in(place, now);
    let is_due = due.is_zero() || there.is_empty();
    if is_due {
        let parameters = class.parameters.iter().flatten().filter(|(key, _)| !key.starts_with(RESERVED));
        actions.push(Action::Measure {
            published: there.pop(),
            wanted: Box::new(object(place, driver, settings)),
            parameters: parameters.map(|(key, value)| (key.clone(), value.clone())).collect(),
        });
    }
    (actions, Some(if is_due { PERIOD } else { due }))
}

/// All segments to publish, and those of existing objects.
pub fn places(world: &World, settings: &Settings) -> BTreeSet<Place> {
    let segments = driver_segments(world, settings);
    let classes = world.classes.by(ClassBy::Provisioner, &settings.driver.name);
    let mut places: BTreeSet<Place> = classes
        .flat_map(|class| {
            segments
                .iter()
                .map(|segment| Place { class: name(&**class).to_owned(), segment: segment.clone() })
        })
        .collect();
    let there = world.capacities.iter().filter(|capacity| is_ours(capacity, settings));
    places.extend(there.map(|capacity| place_of(capacity)));
    places
}

/// The segment of an object.
pub fn place_of(capacity: &CSIStorageCapacity) -> Place {
    let segment = capacity.node_topology.as_ref().and_then(|topology| topology.match_labels.clone());
    Place { class: capacity.storage_class_name.clone(), segment: segment.unwrap_or_default() }
}

/// Whether the object is managed by this provisioner.
pub fn is_ours(capacity: &CSIStorageCapacity, settings: &Settings) -> bool {
    let label = |key: &str| capacity.metadata.labels.as_ref()?.get(key).map(String::as_str);
    label(DRIVER_LABEL) == Some(&*settings.driver.name) && label(MANAGER_LABEL) == Some(MANAGER)
}

/// Whether the CSIDriver has storageCapacity set.
pub fn publishes(world: &World, settings: &Settings) -> bool {
    let driver = world.csi_drivers.named(&settings.driver.name);
    driver.is_some_and(|driver| driver.spec.storage_capacity == Some(true))
}

/// The class and the driver, if the segment must be published.
fn wanted<'w>(
    place: &Place,
    world: &'w World,
    settings: &Settings,
) -> Option<(&'w StorageClass, &'w CSIDriver)> {
    let driver = world.csi_drivers.named(&settings.driver.name)?;
    let class = world.classes.named(&place.class)?;
    let published = publishes(world, settings)
        && class.provisioner == settings.driver.name
        && (settings.wishes.capacity_for_immediate_binding || binds_late(class))
        && driver_segments(world, settings).contains(&place.segment);
    published.then_some((&**class, &**driver))
}

/// The segments of the driver's nodes: a single empty one for a driver without topology.
fn driver_segments(world: &World, settings: &Settings) -> BTreeSet<Segments> {
    if !settings.driver.has_topology() {
        return [Segments::new()].into();
    }
    let of_node = |csi_node: &Arc<_>| {
        let keys = keys_of(csi_node, &settings.driver.name);
        let node = world.nodes.named(name(&**csi_node))?;
        if keys.is_empty() { None } else { segments(node, keys).ok() }
    };
    world.csi_nodes.iter().filter_map(of_node).collect()
}

/// The published objects of the segment, ordered by name, so that all processes keep the same one.
fn published(place: &Place, world: &World, settings: &Settings) -> Vec<Arc<CSIStorageCapacity>> {
    let of_class = world.capacities.by(CapacityBy::Class, &place.class);
    let ours = of_class.filter(|capacity| is_ours(capacity, settings) && place_of(capacity) == *place);
    let mut ours: Vec<_> = ours.cloned().collect();
    ours.sort_by(|a, b| name(&**a).cmp(name(&**b)));
    ours
}

/// The object for a segment. It is owned by the driver's CSIDriver object (upstream: by the pod's owner), and
/// deleted with it. Its name is derived from the segment, so that it is never created twice.
fn object(place: &Place, driver: &CSIDriver, settings: &Settings) -> CSIStorageCapacity {
    let mut hasher = DefaultHasher::new();
    (&settings.driver.name, place).hash(&mut hasher);
    let labels = [(DRIVER_LABEL, settings.driver.name.as_str()), (MANAGER_LABEL, MANAGER)];
    let owner = OwnerReference {
        api_version: "storage.k8s.io/v1".to_owned(),
        kind: "CSIDriver".to_owned(),
        name: name(driver).to_owned(),
        uid: driver.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    CSIStorageCapacity {
        metadata: ObjectMeta {
            name: Some(format!("csisc-{:016x}", hasher.finish())),
            namespace: Some(settings.namespace.clone()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        storage_class_name: place.class.clone(),
        node_topology: Some(LabelSelector {
            match_labels: (!place.segment.is_empty()).then(|| place.segment.clone()),
            ..LabelSelector::default()
        }),
        capacity: None,
        maximum_volume_size: None,
    }
}
