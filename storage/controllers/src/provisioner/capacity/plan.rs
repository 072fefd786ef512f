//! Which capacities must be published, and when the driver must be called for one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{CapacityBy, ClassBy, World, capacity_place};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{NodeSelectorTerm, PersistentVolume},
        storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};

use super::segments::DriverSegments;
use crate::{
    claims::{name, volume_class, waits_for_first_consumer},
    provisioner::{Settings, create::topology::Segments},
};

/// The label with the driver of a capacity.
const DRIVER_LABEL: &str = "csi.storage.k8s.io/drivername";
/// The label with its manager; objects of other managers are ignored.
const MANAGER_LABEL: &str = "csi.storage.k8s.io/managed-by";

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
        expected: Box<CSIStorageCapacity>,
        /// The class's parameters: as upstream, including the reserved ones.
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
    pub fn mark_stale(&mut self, place: &Place, now: Timestamp) {
        self.stale.remove(place);
        self.asked.insert(place.clone(), now);
    }

    /// Forgets a segment that is no longer published.
    pub fn forget(&mut self, place: &Place) {
        self.stale.remove(place);
        self.asked.remove(place);
    }

    /// The delay until the next call.
    fn due_in(&self, place: &Place, period: Duration, now: Timestamp) -> Duration {
        let Some(asked) = self.asked.get(place) else { return Duration::ZERO };
        let interval = if self.stale.contains(place) { PAUSE } else { period };
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
    segments: &DriverSegments,
    questions: &Questions,
    now: Timestamp,
) -> (Vec<Action>, Option<Duration>) {
    let mut present = published(place, world, settings);
    let Some((class, driver)) = expected(place, world, settings, segments) else {
        return (present.into_iter().map(Action::Withdraw).collect(), None);
    };
    let surplus = if present.len() > 1 { present.split_off(1) } else { Vec::new() };
    let mut actions: Vec<_> = surplus.into_iter().map(Action::Withdraw).collect();
    let period = settings.options.capacity_poll_interval;
    let due = questions.due_in(place, period, now);
    let is_due = due.is_zero() || present.is_empty();
    if is_due {
        actions.push(Action::Measure {
            published: present.pop(),
            expected: Box::new(object(place, driver, settings)),
            parameters: class.parameters.clone().unwrap_or_default(),
        });
    }
    (actions, Some(if is_due { period } else { due }))
}

/// All segments of all classes of the driver, and those of existing objects.
pub fn places(world: &World, settings: &Settings, segments: &DriverSegments) -> BTreeSet<Place> {
    let expected = segments.iter().flat_map(|segment| in_segment(segment, world, settings));
    let present = world.capacities.iter().filter(|capacity| is_owned(capacity, settings));
    expected.chain(present.map(|capacity| place_of(capacity))).collect()
}

/// A segment, for each class of the driver.
pub fn in_segment(segment: &Segments, world: &World, settings: &Settings) -> Vec<Place> {
    let classes = world.classes.by(ClassBy::Provisioner, &settings.driver.name);
    classes.map(|class| Place { class: name(&**class).to_owned(), segment: segment.clone() }).collect()
}

/// All segments of a class, if it is one of the driver, and those of its existing objects.
pub fn places_of_class(
    class: &str,
    world: &World,
    settings: &Settings,
    segments: &DriverSegments,
) -> BTreeSet<Place> {
    let found = world.classes.named(class);
    let has_driver = found.is_some_and(|found| found.provisioner == settings.driver.name);
    let expected = segments.iter().filter(|_| has_driver);
    let expected = expected.map(|segment| Place { class: class.to_owned(), segment: segment.clone() });
    let present = world.capacities.by(CapacityBy::Class, class);
    let present = present.filter(|capacity| is_owned(capacity, settings));
    expected.chain(present.map(|capacity| place_of(capacity))).collect()
}

/// The capacities that the creation or deletion of a volume may change: those of its segments for all classes or,
/// if it is accessible from everywhere, those of its class. Upstream: `refreshTopology` and `refreshSC` in
/// `pkg/capacity/provision.go`. The capacity of other segments is polled only.
pub fn affected(
    volume: &PersistentVolume,
    world: &World,
    settings: &Settings,
    segments: &DriverSegments,
) -> Vec<Place> {
    let Some(spec) = &volume.spec else { return Vec::new() };
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let Some(required) = required else {
        return places_of_class(volume_class(volume), world, settings, segments).into_iter().collect();
    };
    let accessible = required.node_selector_terms.iter().filter_map(segment_of);
    let accessible = accessible.filter(|segment| segments.contains(segment));
    accessible.flat_map(|segment| in_segment(&segment, world, settings)).collect()
}

/// The segment that a term of a volume's node affinity selects. Upstream: `termToSegment`.
fn segment_of(term: &NodeSelectorTerm) -> Option<Segments> {
    if term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
        return None;
    }
    let requirements = term.match_expressions.iter().flatten();
    requirements
        .map(|one| match (one.operator.as_str(), one.values.as_deref()) {
            ("In", Some([value])) => Some((one.key.clone(), value.clone())),
            (_, _) => None,
        })
        .collect()
}

/// The segment of an object.
pub fn place_of(capacity: &CSIStorageCapacity) -> Place {
    let segment = capacity.node_topology.as_ref().and_then(|topology| topology.match_labels.clone());
    Place { class: capacity.storage_class_name.clone(), segment: segment.unwrap_or_default() }
}

/// Whether the object is managed by this provisioner.
pub fn is_owned(capacity: &CSIStorageCapacity, settings: &Settings) -> bool {
    let label = |key: &str| capacity.metadata.labels.as_ref()?.get(key).map(String::as_str);
    label(DRIVER_LABEL) == Some(&*settings.driver.name) && label(MANAGER_LABEL) == Some(settings.manager())
}

/// Whether the CSIDriver has storageCapacity set.
pub fn publishes(world: &World, settings: &Settings) -> bool {
    let driver = world.csi_drivers.named(&settings.driver.name);
    driver.is_some_and(|driver| driver.spec.storage_capacity == Some(true))
}

/// The class and the driver, if the segment must be published.
fn expected<'w>(
    place: &Place,
    world: &'w World,
    settings: &Settings,
    segments: &DriverSegments,
) -> Option<(&'w StorageClass, &'w CSIDriver)> {
    let driver = world.csi_drivers.named(&settings.driver.name)?;
    let class = world.classes.named(&place.class)?;
    let published = publishes(world, settings)
        && class.provisioner == settings.driver.name
        && (settings.options.capacity_for_immediate_binding || waits_for_first_consumer(class))
        && segments.contains(&place.segment);
    published.then_some((&**class, &**driver))
}

/// The published objects of the segment, ordered by name, so that all processes keep the same one.
fn published(place: &Place, world: &World, settings: &Settings) -> Vec<Arc<CSIStorageCapacity>> {
    let present = world.capacities.by(CapacityBy::Place, &capacity_place(&place.class, &place.segment));
    present.filter(|capacity| is_owned(capacity, settings)).cloned().collect()
}

/// The object for a segment. It is owned by the driver's CSIDriver object, and deleted with it, unless
/// `--capacity-ownerref-level` names another owner. Its name is derived from the segment, so that it is never created twice.
fn object(place: &Place, driver: &CSIDriver, settings: &Settings) -> CSIStorageCapacity {
    let mut hasher = DefaultHasher::new();
    (&settings.driver.name, place).hash(&mut hasher);
    if let Some(local) = &settings.local {
        local.name().hash(&mut hasher);
    }
    let labels = [(DRIVER_LABEL, settings.driver.name.as_str()), (MANAGER_LABEL, settings.manager())];
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
            owner_references: Some(settings.owners.clone().unwrap_or_else(|| vec![owner])),
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
