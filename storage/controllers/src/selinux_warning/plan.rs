//! Decides what there is to warn about, and which part of it has not been reported yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use claimcheck_informer::{EventType, PodBy, PodClaim, VolumeBy, World, is_terminal, key_of, pod_claims};
use claimcheck_model::{ObjectKey, meter::Reading, metric::SELINUX_VOLUME_CONFLICT};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::CSIDriver,
};

use super::{
    conflict::{Conflict, Property},
    mounted::{Mounted, Relabelling, mounted},
};
use crate::claims::{claim_phase, claim_ref, is_owned_by, name, ref_key, ref_uid, volume_name};

/// What is evaluated together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The containers of a pod.
    Pod(ObjectKey),
    /// The pods that use a volume, which may have several PersistentVolume objects.
    Volume {
        /// The name of the CSI driver.
        driver: String,
        /// The volume handle.
        handle: String,
    },
}

impl Key {
    /// The key of a volume; `None` if it is not a CSI volume.
    pub fn of_volume(volume: &PersistentVolume) -> Option<Self> {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        Some(Self::Volume { driver: csi.driver.clone(), handle: csi.volume_handle.clone() })
    }
}

/// A reason for an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// Two pods that use the same volume are in conflict.
    Conflict(Conflict),
    /// The containers of a pod mount a volume with different labels.
    SeveralLabels {
        /// The pod.
        pod: Arc<Pod>,
        /// The volume's name in the pod.
        volume: String,
    },
}

impl Warning {
    /// The pod that the event is about.
    pub fn pod(&self) -> &Arc<Pod> {
        match self {
            Self::Conflict(conflict) => &conflict.pod,
            Self::SeveralLabels { pod, .. } => pod,
        }
    }

    /// Type, reason and text of the event. Upstream: `syncPod` and `reportConflictEvents` in
    /// selinux_warning_controller.go; conflicts are Normal events.
    pub fn event(&self) -> (EventType, &'static str, String) {
        match self {
            Self::Conflict(conflict) => (EventType::Normal, conflict.property.reason(), conflict.message()),
            Self::SeveralLabels { volume, .. } => (
                EventType::Warning,
                "MultipleSELinuxLabels",
                format!("Volume {volume:?} is mounted twice with different SELinux labels inside this pod"),
            ),
        }
    }

    fn identity(&self) -> Identity {
        let (_, reason, text) = self.event();
        let other = match self {
            Self::Conflict(conflict) => uid(&conflict.other),
            Self::SeveralLabels { .. } => String::new(),
        };
        Identity { pod: uid(self.pod()), other, reason, text }
    }
}

/// A warning, independent of the versions of its objects. A pod that is created again is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    /// The pod's uid.
    pod: String,
    /// The uid of the other pod, if any: the text may not name it.
    other: String,
    reason: &'static str,
    text: String,
}

/// The warnings of a key that have been reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported(BTreeSet<Identity>);

impl Reported {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The warnings that have not been reported. Those that do not apply any more are forgotten, and so reported again
    /// if they return.
    pub fn unreported(&mut self, current: Vec<Warning>) -> Vec<Warning> {
        let identities: BTreeSet<Identity> = current.iter().map(Warning::identity).collect();
        self.0.retain(|reported| identities.contains(reported));
        current.into_iter().filter(|warning| !self.0.contains(&warning.identity())).collect()
    }

    /// A warning has been reported.
    pub fn insert(&mut self, warning: &Warning) {
        self.0.insert(warning.identity());
    }
}

/// All that there is to warn about a key.
pub fn plan(key: &Key, world: &World) -> Vec<Warning> {
    match key {
        Key::Pod(key) => several_labels(key, world),
        Key::Volume { driver, handle } => {
            conflicts(driver, handle, world).into_iter().map(Warning::Conflict).collect()
        }
    }
}

/// The conflicts of all volumes. Upstream: `CollectWithStability` in metrics.go.
pub fn readings(world: &World) -> Vec<Reading> {
    let drivers = world.csi_drivers.iter().filter(|driver| mounts_with_label(driver));
    let drivers: BTreeSet<&str> = drivers.map(|driver| name(&**driver)).collect();
    let handle = |volume: &Arc<PersistentVolume>| {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        Some((csi.driver.clone(), csi.volume_handle.clone()))
    };
    let volumes = drivers.into_iter().flat_map(|driver| world.volumes.by(VolumeBy::Driver, driver));
    let volumes: BTreeSet<(String, String)> = volumes.filter_map(handle).collect();
    let conflicts = volumes.iter().flat_map(|(driver, handle)| conflicts(driver, handle, world));
    conflicts.map(|conflict| reading(&conflict)).collect()
}

fn reading(conflict: &Conflict) -> Reading {
    let (pod, other) = (key_of(&*conflict.pod), key_of(&*conflict.other));
    let labels: [&str; 7] = [
        conflict.property.name(),
        &pod.namespace,
        &pod.name,
        &conflict.value,
        &other.namespace,
        &other.name,
        &conflict.other_value,
    ];
    Reading::new(&SELINUX_VOLUME_CONFLICT, &labels, 1.0)
}

/// Whether volumes of the driver are mounted with their label: `SupportsSELinuxContextMount` in
/// `pkg/volume/csi/csi_plugin.go`. Those of a driver without a CSIDriver object are not. The volume's access modes and
/// the gate SELinuxMount, which decide that on a node, do not count: the warnings are for clusters without the gate.
pub fn mounts_with_label(driver: &CSIDriver) -> bool {
    driver.spec.se_linux_mount == Some(true)
}

/// The conflicts between the pods that use a volume, each in both directions. Upstream: `AddVolume` in
/// cache/volumecache.go. Pods are compared only if they differ, since hundreds of equal ones may share a volume.
fn conflicts(driver: &str, handle: &str, world: &World) -> Vec<Conflict> {
    let mut groups: BTreeMap<Relabelling, Vec<Arc<Pod>>> = BTreeMap::new();
    for (pod, relabelling) in users(driver, handle, world).into_values() {
        groups.entry(relabelling).or_default().push(pod.clone());
    }
    let groups: Vec<_> = groups.into_iter().collect();
    let mut conflicts = Vec::new();
    for (at, (own, pods)) in groups.iter().enumerate() {
        for (different, others) in &groups[at + 1..] {
            let properties = differing(own, different);
            for (pod, other) in pods.iter().flat_map(|pod| others.iter().map(move |other| (pod, other))) {
                for (property, value, other_value) in properties.clone() {
                    let (pod, other) = (pod.clone(), other.clone());
                    let conflict = Conflict { property, pod, value, other, other_value };
                    conflicts.extend([conflict.reverse(), conflict]);
                }
            }
        }
    }
    conflicts
}

/// The properties in which pods are in conflict, with the value of each.
fn differing(a: &Relabelling, b: &Relabelling) -> Vec<(Property, String, String)> {
    let policies = (a.policy(), b.policy());
    let labels = (a.label(), b.label());
    let policy = (policies.0 != policies.1)
        .then(|| (Property::ChangePolicy, policies.0.to_owned(), policies.1.to_owned()));
    let label = labels.0.conflicts(&labels.1);
    let label = label.then(|| (Property::Label, labels.0.to_string(), labels.1.to_string()));
    policy.into_iter().chain(label).collect()
}

/// The pods that mount a volume, and how: none if the driver does not support the mount option, since all of them are
/// relabelled recursively then. If a pod mounts the volume through two of its claims, the last one counts; upstream has
/// them in random order.
fn users<'w>(
    driver: &str,
    handle: &str,
    world: &'w World,
) -> BTreeMap<ObjectKey, (&'w Arc<Pod>, Relabelling)> {
    let mut users = BTreeMap::new();
    let is_supported = world.csi_drivers.named(driver).is_some_and(|driver| mounts_with_label(driver));
    if !is_supported {
        return users;
    }
    for volume in world.volumes.by(VolumeBy::Handle, &format!("{driver}^{handle}")) {
        let Some(key) = claim_ref(volume).map(ref_key) else { continue };
        for pod in world.pods.by(PodBy::Claim, &key.to_string()).filter(|pod| !is_terminal(pod)) {
            for used in pod_claims(pod).filter(|used| used.claim == key) {
                let found = volume_of(pod, &used, world);
                let is_volume = found.is_some_and(|found| name(&**found) == name(&**volume));
                if let (true, Mounted::With(label)) = (is_volume, mounted(pod, &used.volume)) {
                    users.insert(key_of(&**pod), (pod, Relabelling::of(pod, label)));
                }
            }
        }
    }
    users
}

/// The volumes of a pod that its containers mount with different labels, whatever their kind is.
fn several_labels(key: &ObjectKey, world: &World) -> Vec<Warning> {
    let Some(pod) = world.pods.get(key).filter(|pod| !is_terminal(pod)) else { return Vec::new() };
    let claims: BTreeMap<String, PodClaim> =
        pod_claims(pod).map(|used| (used.volume.clone(), used)).collect();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let found = volumes.filter(|volume| {
        let is_known = claims.get(&volume.name).is_none_or(|used| volume_of(pod, used, world).is_some());
        is_known && mounted(pod, &volume.name) == Mounted::WithSeveralLabels
    });
    found.map(|volume| Warning::SeveralLabels { pod: pod.clone(), volume: volume.name.clone() }).collect()
}

/// The volume of a claim that a pod uses, once both are bound to each other. Upstream: `createInTreeVolumeSpec` in
/// `pkg/controller/volume/attachdetach/util/util.go`.
fn volume_of<'w>(pod: &Pod, used: &PodClaim, world: &'w World) -> Option<&'w Arc<PersistentVolume>> {
    let claim: &PersistentVolumeClaim = world.claims.get(&used.claim)?;
    let is_of_pod = !used.ephemeral || is_owned_by(claim, pod);
    let volume = world.volumes.named(volume_name(claim)?)?;
    let is_bound =
        claim_phase(claim) == "Bound" && ref_uid(claim_ref(volume)?) == claim.metadata.uid.as_deref();
    (is_of_pod && is_bound).then_some(volume)
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}
