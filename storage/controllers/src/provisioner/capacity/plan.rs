//! Which capacities are to be published, and when the driver is to be asked for one.

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

/// Which driver a capacity is of.
const DRIVER_LABEL: &str = "csi.storage.k8s.io/drivername";
/// Who keeps it up to date; any other is somebody else's.
const MANAGER_LABEL: &str = "csi.storage.k8s.io/managed-by";
const MANAGER: &str = "external-provisioner";

/// How often the driver is asked though nothing happened (upstream `--capacity-poll-interval`).
pub const PERIOD: Duration = Duration::from_secs(60);
/// The least time between two questions about one place: many volumes that come at a time are one change.
pub const PAUSE: Duration = Duration::from_millis(200);

/// A class and a segment of the driver's topology: what the driver is asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The class's name.
    pub class: String,
    /// The segment; empty for a driver without topology.
    pub segment: Segments,
}

/// What to do for a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask the driver, and publish the answer: in the object if there is one.
    Measure {
        /// The object there is.
        published: Option<Arc<CSIStorageCapacity>>,
        /// The object there is to be, but for the numbers.
        wanted: Box<CSIStorageCapacity>,
        /// The class's parameters, as far as the driver gets them.
        parameters: BTreeMap<String, String>,
    },
    /// Take an object away.
    Withdraw(Arc<CSIStorageCapacity>),
}

/// When the driver was asked, and what happened since. Lost with the process: then it is asked again.
#[derive(Debug, Default)]
pub struct Questions {
    asked: HashMap<Place, Timestamp>,
    stale: HashSet<Place>,
}

impl Questions {
    /// Notes that the answer may be another one by now.
    pub fn doubt(&mut self, place: &Place) {
        self.stale.insert(place.clone());
    }

    /// Notes that the driver is being asked.
    pub fn ask(&mut self, place: &Place, now: Timestamp) {
        self.stale.remove(place);
        self.asked.insert(place.clone(), now);
    }

    /// Forgets a place that is not asked about any more.
    pub fn forget(&mut self, place: &Place) {
        self.stale.remove(place);
        self.asked.remove(place);
    }

    /// How long to wait before the driver is to be asked.
    fn due_in(&self, place: &Place, now: Timestamp) -> Duration {
        let Some(asked) = self.asked.get(place) else { return Duration::ZERO };
        let interval = if self.stale.contains(place) { PAUSE } else { PERIOD };
        // A clock that was set back makes it due.
        let since = Duration::try_from(now.duration_since(*asked)).unwrap_or(interval);
        interval.saturating_sub(since)
    }
}

/// What to do for a place now, or when to look again.
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

/// All places that there are to be, and those that there are.
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

/// The place that an object is about.
pub fn place_of(capacity: &CSIStorageCapacity) -> Place {
    let segment = capacity.node_topology.as_ref().and_then(|topology| topology.match_labels.clone());
    Place { class: capacity.storage_class_name.clone(), segment: segment.unwrap_or_default() }
}

/// Whether the object is this provisioner's.
pub fn is_ours(capacity: &CSIStorageCapacity, settings: &Settings) -> bool {
    let label = |key: &str| capacity.metadata.labels.as_ref()?.get(key).map(String::as_str);
    label(DRIVER_LABEL) == Some(&*settings.driver.name) && label(MANAGER_LABEL) == Some(MANAGER)
}

/// Whether the driver takes part in scheduling by capacity.
pub fn publishes(world: &World, settings: &Settings) -> bool {
    let driver = world.csi_drivers.named(&settings.driver.name);
    driver.is_some_and(|driver| driver.spec.storage_capacity == Some(true))
}

/// The class and the driver, if something is to be published for the place.
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

/// The segments that the driver's nodes are in: one that is everywhere for a driver without topology.
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

/// What is published for the place, in the order of names, so that everybody keeps the same one.
fn published(place: &Place, world: &World, settings: &Settings) -> Vec<Arc<CSIStorageCapacity>> {
    let of_class = world.capacities.by(CapacityBy::Class, &place.class);
    let ours = of_class.filter(|capacity| is_ours(capacity, settings) && place_of(capacity) == *place);
    let mut ours: Vec<_> = ours.cloned().collect();
    ours.sort_by(|a, b| name(&**a).cmp(name(&**b)));
    ours
}

/// The object for a place. It belongs to the driver's CSIDriver object (upstream: to the pod's owner), and
/// goes with it. Its name follows from the place, so that it is never made twice.
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
