//! Which volumes are planned after which changes of objects.

use std::collections::BTreeSet;

use claimcheck_informer::{Change, PodBy};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, VolumeAttachment},
};

use super::VolumeManager;
use crate::{
    effects::Host,
    populator::uid_of,
    volumes::{PodUid, VolumeKey, VolumeSpec},
};

impl<H: Host> VolumeManager<H> {
    /// An object has changed: wakes the volumes that it concerns.
    pub fn changed(&mut self, change: &Change) {
        if change.object::<VolumeAttachment>().is_some() {
            let keys: Vec<VolumeKey> = change
                .states::<VolumeAttachment>()
                .filter_map(|attachment| self.key_of_attachment(attachment))
                .collect();
            self.due.extend(keys);
        } else if change.object::<Node>().is_some() {
            let (old, new) = change.both::<Node>();
            let (old, new) = (old.map(|node| attached(node)), new.map(|node| attached(node)));
            let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
            self.due.extend(old.symmetric_difference(&new).filter_map(|name| VolumeKey::parse(name)));
        } else if let Some(key) = self.key_of_claimed(change) {
            self.due.insert(key);
        } else if let Some(driver) = change.object::<CSIDriver>() {
            let name = driver.metadata.name.clone().unwrap_or_default();
            self.retry_driver(&name);
        } else if let (Some(old), Some(new)) = change.both::<Pod>() {
            let (old, new) = (&old.metadata, &new.metadata);
            if old.labels != new.labels || old.annotations != new.annotations {
                let uid = PodUid::from(new.uid.clone().unwrap_or_default());
                let expected =
                    self.populations.get(&uid).into_iter().flat_map(|population| &population.expected);
                let concerned = expected.filter(|expected| match &expected.spec {
                    VolumeSpec::Content(content) => content.shows_pod(),
                    // Upstream publishes again with every sync of a pod, which a change of its object causes, too.
                    VolumeSpec::Csi(_) => self.policy(&expected.key).is_some_and(|policy| policy.republish),
                    VolumeSpec::EmptyDir(_) | VolumeSpec::HostPath(_) => false,
                });
                let keys = concerned.map(|expected| expected.key.clone()).collect();
                self.outdate(keys);
            }
        }
    }

    /// The objects of these volumes have changed: their content is written again, at once.
    pub(super) fn outdate(&mut self, keys: BTreeSet<VolumeKey>) {
        for key in &keys {
            self.actual.retry_now(key);
        }
        self.outdated.extend(keys.iter().cloned());
        self.due.extend(keys);
    }

    /// Other pods affected by a change: those that may wait for a claim or volume.
    pub fn pods_of(&self, change: &Change) -> Vec<PodUid> {
        let world = self.informer.read();
        let claims: Vec<String> =
            match (change.object::<PersistentVolumeClaim>(), change.object::<PersistentVolume>()) {
                (Some(_), _) => vec![change.key.to_string()],
                (_, Some(pv)) => {
                    let claim = pv.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                    let key = claim.and_then(|claim| {
                        Some(format!("{}/{}", claim.namespace.as_ref()?, claim.name.as_ref()?))
                    });
                    key.into_iter().collect()
                }
                (None, None) => Vec::new(),
            };
        claims.iter().flat_map(|claim| world.pods.by(PodBy::Claim, claim)).map(|pod| uid_of(pod)).collect()
    }

    /// The volume of an attachment to this node.
    pub(super) fn key_of_attachment(&self, attachment: &VolumeAttachment) -> Option<VolumeKey> {
        let here = attachment.spec.node_name == self.executor.node;
        let pv = attachment.spec.source.persistent_volume_name.as_deref().filter(|_| here)?;
        let world = self.informer.read();
        let csi = world.volumes.named(pv)?.spec.as_ref()?.csi.as_ref()?;
        Some(VolumeKey::csi(&csi.driver, &csi.volume_handle))
    }

    pub(super) fn retry_driver(&mut self, name: &str) {
        // Rare, so that going over all volumes of the node is fine.
        let desired = self.desired.iter().map(|(key, _)| key);
        let actual = self.actual.iter().map(|(key, _)| key);
        let of_driver = |key: &&VolumeKey| key.driver() == Some(name);
        let keys: BTreeSet<VolumeKey> = desired.chain(actual).filter(of_driver).cloned().collect();
        for key in &keys {
            self.actual.retry_now(key);
        }
        self.due.extend(keys);
    }
}

fn attached(node: &Node) -> BTreeSet<String> {
    let volumes = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    volumes.into_iter().flatten().map(|volume| volume.name.clone()).collect()
}
