//! Volumes of plugins that are part of Kubernetes, and that kubelets wait for.
//!
//! iSCSI and FC volumes need no attach call, since nodes log in to the target themselves: upstream's attachers
//! succeed at once (`pkg/volume/iscsi/attacher.go`, `pkg/volume/fc/attacher.go`). But a kubelet mounts them only when
//! they are reported as attached.
//!
//! Volumes of cloud providers are migrated: see `../migration.rs`.
//!
//! A FlexVolume is none of them. A kubelet waits for one only if its driver has attach calls, and those are calls of a
//! program on the controller's host (`NewFlexVolumePlugin` in `pkg/volume/flexvolume/plugin.go`). A stock controller
//! without that program does not attach the volume either.

use claimcheck_informer::{FC, ISCSI, InTree, PodBy, VolumeBy, World};

use super::{desired::Desired, volume::is_multi_attach_allowed};
use crate::{claims::name, migration::migrated_to};

/// The plugin of a name in `node.status` of an iSCSI or FC volume.
pub fn reported_plugin(unique: &str) -> Option<&'static str> {
    [ISCSI, FC]
        .into_iter()
        .find(|plugin| unique.strip_prefix(*plugin).is_some_and(|volume| volume.starts_with('/')))
}

/// The users of such a volume.
#[derive(Debug, Default)]
pub struct Users {
    /// The pods, by node.
    pub desired: Desired,
    /// The volume may be attached to several nodes at a time.
    pub shared: bool,
    /// The CSI driver that kubelets use instead of the plugin.
    pub migrated_to: Option<&'static str>,
}

/// The users of the volume with this [`unique`](InTree::unique) name.
pub fn users(unique: &str, world: &World) -> Users {
    let mut users = Users { shared: true, ..Users::default() };
    for volume in world.volumes.by(VolumeBy::InTree, unique) {
        let Some(spec) = &volume.spec else { continue };
        users.migrated_to = InTree::from_volume(spec).and_then(|found| migrated_to(found.plugin));
        users.shared &= is_multi_attach_allowed(spec.access_modes.as_deref().unwrap_or_default());
        users.desired.extend(Desired::of(name(&**volume), spec.claim_ref.as_ref(), world));
    }
    for pod in world.pods.by(PodBy::InTree, unique) {
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(found) = InTree::from_pod_volume(volume).filter(|found| found.unique == unique) else {
                continue;
            };
            users.migrated_to = migrated_to(found.plugin);
            if let Some(node) = users.desired.add(pod, world) {
                users.desired.sources.entry(node.to_owned()).or_insert_with(|| volume.name.clone());
            }
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_reported_volumes_have_a_plugin() {
        assert_eq!(reported_plugin("kubernetes.io/fc/[a]"), Some(FC));
        assert_eq!(reported_plugin("kubernetes.io/csi/d^h"), None);
    }

    #[test]
    fn volumes_of_cloud_providers_are_migrated() {
        let disk = json!({"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}});
        let found = InTree::from_pod_volume(&serde_json::from_value(disk).unwrap());
        assert_eq!(found.and_then(|volume| migrated_to(volume.plugin)), Some("ebs.csi.aws.com"));
    }
}
