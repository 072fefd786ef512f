//! The terms of the kinds of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{ObjectKey, SELECTED_NODE};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment},
};

use super::{
    AttachmentBy, CapacityBy, ClaimBy, ClassBy, CsiNodeBy, DEFAULT_CLASSES, Indexed, NodeBy, PodBy, Term,
    UNSCHEDULED, VolumeBy, pod_claims,
};
use crate::{
    by_label::{affinity_labels, capacity_label, claim_label, node_label},
    class::{claim_class, is_default, volume_class},
    in_tree::{InTree, listed},
    quantity,
    source::data_source,
};

impl Indexed for Pod {
    type By = PodBy;

    fn terms(&self) -> Vec<Term<PodBy>> {
        let node = self.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or(UNSCHEDULED);
        let claims = pod_claims(self).map(|used| Term::new(PodBy::Claim, used.claim.to_string()));
        let mut terms: Vec<_> = claims.collect();
        if !(terms.is_empty() || node == UNSCHEDULED) {
            terms.push(Term::new(PodBy::ClaimsOn, node));
        }
        terms.push(Term::new(PodBy::Node, node));
        terms.extend(InTree::in_pod(self).map(|volume| Term::new(PodBy::InTree, volume.unique)));
        terms
    }
}

impl Indexed for PersistentVolumeClaim {
    type By = ClaimBy;

    fn terms(&self) -> Vec<Term<ClaimBy>> {
        let owners = self.metadata.owner_references.iter().flatten();
        let mut terms: Vec<_> = owners.map(|owner| Term::new(ClaimBy::Owner, &*owner.uid)).collect();
        terms.extend(
            attributes_classes(self).into_iter().map(|class| Term::new(ClaimBy::AttributesClass, class)),
        );
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        terms.push(Term::new(ClaimBy::Namespace, namespace));
        let labels = self.metadata.labels.iter().flatten();
        terms
            .extend(labels.map(|(key, value)| Term::new(ClaimBy::Label, claim_label(namespace, key, value))));
        let Some(spec) = &self.spec else { return terms };
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase.is_none_or(|phase| phase == "Pending" || phase.is_empty())
            && let Some(source) = data_source(self)
        {
            terms.push(Term::new(ClaimBy::Source, source.to_string()));
        }
        match spec.volume_name.as_deref() {
            Some(volume) if !volume.is_empty() => terms.push(Term::new(ClaimBy::Volume, volume)),
            _ => {
                terms.push(Term::new(ClaimBy::Unbound, claim_class(self)));
                let selected = self.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE));
                terms.extend(selected.map(|node| Term::new(ClaimBy::SelectedNode, node)));
            }
        }
        terms
    }
}

/// The VolumeAttributesClasses of a claim, each once: the current one, the desired one, and the target of a
/// modification in progress. Upstream: `getPVCReferencedVACNames` in `pkg/controller/storage/vacprotection`.
pub fn attributes_classes(claim: &PersistentVolumeClaim) -> BTreeSet<&str> {
    let expected = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let has = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let modified = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = modified.and_then(|status| status.target_volume_attributes_class_name.as_deref());
    [expected, has, target].into_iter().flatten().filter(|class| !class.is_empty()).collect()
}

impl Indexed for PersistentVolume {
    type By = VolumeBy;

    fn terms(&self) -> Vec<Term<VolumeBy>> {
        let Some(spec) = &self.spec else { return Vec::new() };
        let class = volume_class(self);
        let mut terms = vec![Term::new(VolumeBy::Class, class)];
        if let Some(class) = &spec.volume_attributes_class_name {
            terms.push(Term::new(VolumeBy::AttributesClass, class.as_str()));
        }
        if let Some(csi) = &spec.csi {
            terms.push(Term::new(VolumeBy::Driver, csi.driver.as_str()));
            terms.push(Term::new(VolumeBy::Handle, format!("{}^{}", csi.driver, csi.volume_handle)));
        }
        terms.extend(InTree::from_volume(spec).map(|volume| Term::new(VolumeBy::InTree, volume.unique)));
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        match &spec.claim_ref {
            Some(claim) => {
                let key = ObjectKey::new(
                    claim.namespace.clone().unwrap_or_default(),
                    claim.name.clone().unwrap_or_default(),
                );
                terms.push(Term::new(VolumeBy::Claim, key.to_string()));
            }
            None if phase == Some("Available") && self.metadata.deletion_timestamp.is_none() => {
                let capacity = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
                let rank = capacity.and_then(quantity::bytes).unwrap_or(0);
                let modes = mode_set(spec.access_modes.as_deref().unwrap_or_default());
                terms.push(Term { index: VolumeBy::Available, term: class.to_owned(), rank });
                terms.push(Term { index: VolumeBy::AvailableWith, term: with_modes(class, modes), rank });
                let labels = affinity_labels(class, spec.node_affinity.as_ref()).into_iter();
                terms.extend(labels.map(|term| Term { index: VolumeBy::AvailableOn, term, rank }));
            }
            None => {}
        }
        terms
    }
}

/// The access modes, in the order of upstream's `GetAccessModesAsString`.
const MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// The terms in [`VolumeBy::AvailableWith`] of the volumes of a class that have at least these access modes, those
/// with the fewest modes first. Sets of equal size are in a fixed order; upstream's order of those is the one of a
/// map (`allPossibleMatchingAccessModes` in `pkg/controller/volume/persistentvolume/index.go`).
pub fn available_with(class: &str, modes: &[String]) -> Vec<String> {
    let expected = mode_set(modes);
    let mut sets: Vec<u8> = (0..1 << MODES.len()).filter(|set| set & expected == expected).collect();
    sets.sort_by_key(|set| set.count_ones());
    sets.into_iter().map(|set| with_modes(class, set)).collect()
}

/// A set of access modes, one bit each.
fn mode_set(modes: &[String]) -> u8 {
    let known = MODES.iter().enumerate().filter(|(_, mode)| modes.iter().any(|listed| listed == **mode));
    known.fold(0, |set, (bit, _)| set | 1 << bit)
}

/// A class and a set of access modes as a term. No name contains a slash.
fn with_modes(class: &str, modes: u8) -> String {
    format!("{class}/{modes:x}")
}

impl Indexed for Node {
    type By = NodeBy;

    fn terms(&self) -> Vec<Term<NodeBy>> {
        let labels = self.metadata.labels.iter().flatten();
        let labels = labels.map(|(key, value)| Term::new(NodeBy::Label, node_label(key, value)));
        labels.chain(listed(self).map(|name| Term::new(NodeBy::Listed, name))).collect()
    }
}

impl Indexed for CSINode {
    type By = CsiNodeBy;

    fn terms(&self) -> Vec<Term<CsiNodeBy>> {
        let drivers = self.spec.drivers.iter();
        let with_keys =
            drivers.filter(|driver| driver.topology_keys.as_ref().is_some_and(|keys| !keys.is_empty()));
        with_keys.map(|driver| Term::new(CsiNodeBy::Topology, driver.name.as_str())).collect()
    }
}

impl Indexed for StorageClass {
    type By = ClassBy;

    fn terms(&self) -> Vec<Term<ClassBy>> {
        let provisioner = Term::new(ClassBy::Provisioner, self.provisioner.clone());
        let default = is_default(self).then(|| Term::new(ClassBy::Default, DEFAULT_CLASSES));
        [provisioner].into_iter().chain(default).collect()
    }
}

impl Indexed for VolumeAttachment {
    type By = AttachmentBy;

    fn terms(&self) -> Vec<Term<AttachmentBy>> {
        let node = Term::new(AttachmentBy::Node, self.spec.node_name.clone());
        let attacher = Term::new(AttachmentBy::Attacher, &*self.spec.attacher);
        let volume = self.spec.source.persistent_volume_name.clone();
        volume.map(|name| Term::new(AttachmentBy::Volume, name)).into_iter().chain([node, attacher]).collect()
    }
}

impl Indexed for CSIStorageCapacity {
    type By = CapacityBy;

    fn terms(&self) -> Vec<Term<CapacityBy>> {
        let labels = self.node_topology.as_ref().and_then(|topology| topology.match_labels.clone());
        let (class, labels) = (&*self.storage_class_name, labels.unwrap_or_default());
        let label = capacity_label(class, labels.first_key_value());
        vec![
            Term::new(CapacityBy::Class, class),
            Term::new(CapacityBy::Place, capacity_place(class, &labels)),
            Term::new(CapacityBy::Label, label),
        ]
    }
}

/// The term in [`CapacityBy::Place`] of the capacities of a class in a topology segment.
pub fn capacity_place(class: &str, segment: &BTreeMap<String, String>) -> String {
    format!("{class}/{segment:?}")
}
