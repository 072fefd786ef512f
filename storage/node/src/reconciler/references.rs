//! The claims, PersistentVolumes and attachments that the node's pods refer to: each is watched by its name, as long as
//! a pod needs it. A node may not read others, so its cost does not depend on what runs on other nodes.
//!
//! The kubelet requests the same objects again and again while it waits for something.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use claimcheck_informer::{Followed, Informer, Kind, Watchable};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttachment,
};
use kube::{Api, Client};

use crate::volumes::{PodUid, VolumeKey};

/// A claim or PersistentVolume.
type Reference = (Kind, ObjectKey);

/// The objects that are watched.
pub(super) struct References {
    client: Client,
    informer: Informer,
    pods: BTreeMap<PodUid, BTreeMap<Reference, Arc<Followed>>>,
    /// The same: pods share what they refer to.
    shared: BTreeMap<Reference, Weak<Followed>>,
    attachments: BTreeMap<VolumeKey, Followed>,
}

impl References {
    pub fn new(client: Client, informer: Informer) -> Self {
        let (pods, shared, attachments) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { client, informer, pods, shared, attachments }
    }

    /// The pod refers to this claim.
    pub fn claim(&mut self, pod: &PodUid, claim: &ObjectKey) {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        self.refer(pod, api, claim.clone());
    }

    /// The pod refers to this PersistentVolume, by a claim.
    pub fn volume(&mut self, pod: &PodUid, name: &str) {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        self.refer(pod, api, ObjectKey::cluster(name));
    }

    fn refer<K: Watchable>(&mut self, pod: &PodUid, api: Api<K>, key: ObjectKey) {
        let of_pod = self.pods.entry(pod.clone()).or_default();
        of_pod.entry((K::CACHED_AS, key)).or_insert_with_key(|reference| {
            if let Some(followed) = self.shared.get(reference).and_then(Weak::upgrade) {
                return followed;
            }
            let followed = Arc::new(self.informer.follow(api, reference.1.clone()));
            self.shared.insert(reference.clone(), Arc::downgrade(&followed));
            followed
        });
    }

    /// The pod refers to nothing any more.
    pub fn release(&mut self, pod: &PodUid) {
        if self.pods.remove(pod).is_some() {
            self.shared.retain(|_, followed| followed.strong_count() > 0);
        }
    }

    /// Whether a pod needs the attachment of this volume to the node. It is watched before it exists, so that its end is
    /// no later than the controller's.
    pub fn attachment(&mut self, key: &VolumeKey, is_needed: bool, node: &str) {
        let VolumeKey::Csi { driver, handle } = key else { return };
        if !is_needed {
            self.attachments.remove(key);
        } else if !self.attachments.contains_key(key) {
            let api: Api<VolumeAttachment> = Api::all(self.client.clone());
            let name = ObjectKey::cluster(claimcheck_model::attachment_name(handle, driver, node));
            self.attachments.insert(key.clone(), self.informer.follow(api, name));
        }
    }
}
