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

use std::collections::BTreeMap;

use claimcheck_informer::World;
use k8s_openapi::api::core::v1::{FCVolumeSource, PersistentVolumeSpec, Volume};

use super::{desired::Desired, volume::is_multi_attach_allowed};
use crate::{claims::name, migration::migrated_to};

const ISCSI: &str = "kubernetes.io/iscsi";
const FC: &str = "kubernetes.io/fc";

/// A volume of such a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InTree {
    /// The plugin, and what it identifies the volume by. For iSCSI and FC the volume's name in `node.status`.
    pub unique: String,
    /// The CSI driver that kubelets use instead of the plugin.
    pub migrated_to: Option<&'static str>,
}

/// The volume of a source: a PersistentVolume's spec or a pod's volume, which have fields of the same names.
macro_rules! in_tree {
    ($source:expr) => {{
        let source = $source;
        if let Some(disk) = &source.iscsi {
            // `GetVolumeName` in `pkg/volume/iscsi/iscsi.go`.
            Some(InTree::reported(ISCSI, &format!("{}:{}:{}", disk.target_portal, disk.iqn, disk.lun)))
        } else if let Some(disk) = &source.fc {
            fc_name(disk).map(|name| InTree::reported(FC, &name))
        } else if let Some(disk) = &source.aws_elastic_block_store {
            Some(InTree::migrated("kubernetes.io/aws-ebs", &disk.volume_id))
        } else if let Some(disk) = &source.azure_disk {
            Some(InTree::migrated("kubernetes.io/azure-disk", &disk.disk_uri))
        } else if let Some(share) = &source.azure_file {
            Some(InTree::migrated("kubernetes.io/azure-file", &share.share_name))
        } else if let Some(disk) = &source.cinder {
            Some(InTree::migrated("kubernetes.io/cinder", &disk.volume_id))
        } else if let Some(disk) = &source.gce_persistent_disk {
            Some(InTree::migrated("kubernetes.io/gce-pd", &disk.pd_name))
        } else if let Some(disk) = &source.portworx_volume {
            Some(InTree::migrated("kubernetes.io/portworx-volume", &disk.volume_id))
        } else if let Some(disk) = &source.vsphere_volume {
            Some(InTree::migrated("kubernetes.io/vsphere-volume", &disk.volume_path))
        } else {
            None
        }
    }};
}

impl InTree {
    /// `None` if it is not such a volume.
    pub fn of_volume(spec: &PersistentVolumeSpec) -> Option<Self> {
        in_tree!(spec)
    }

    /// `None` if the pod's volume does not contain the source of such a volume.
    pub fn of_pod_volume(volume: &Volume) -> Option<Self> {
        in_tree!(volume)
    }

    /// Upstream: `GetUniqueVolumeName` in `pkg/volume/util/util.go`.
    fn reported(plugin: &str, volume: &str) -> Self {
        Self { unique: format!("{plugin}/{volume}"), migrated_to: None }
    }

    fn migrated(plugin: &str, volume: &str) -> Self {
        Self { unique: format!("{plugin}/{volume}"), migrated_to: migrated_to(plugin) }
    }
}

/// `GetVolumeName` in `pkg/volume/fc/fc.go`, with lists as Go prints them.
fn fc_name(disk: &FCVolumeSource) -> Option<String> {
    let joined = |list: &Option<Vec<String>>| {
        let list = list.as_ref().filter(|list| !list.is_empty())?;
        Some(list.join(" "))
    };
    match (joined(&disk.target_wwns), disk.lun, joined(&disk.wwids)) {
        (Some(targets), Some(lun), _) => Some(format!("[{targets}]:{lun}")),
        (_, _, Some(ids)) => Some(format!("[{ids}]")),
        (_, _, None) => None,
    }
}

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
    /// See [`InTree::migrated_to`].
    pub migrated_to: Option<&'static str>,
}

/// The users of the volumes that are `wanted`, by [`InTree::unique`]. The cost is proportional to all volumes and
/// pods: these kinds of volumes are rare, and have no index.
pub fn users(world: &World, wanted: impl Fn(&InTree) -> bool) -> BTreeMap<String, Users> {
    let mut all = BTreeMap::new();
    for volume in world.volumes.iter() {
        let Some(spec) = &volume.spec else { continue };
        let Some(found) = InTree::of_volume(spec).filter(&wanted) else { continue };
        let users = entry(&mut all, found);
        users.shared &= is_multi_attach_allowed(spec.access_modes.as_deref().unwrap_or_default());
        users.desired.extend(Desired::of(name(&**volume), spec.claim_ref.as_ref(), world));
    }
    for pod in world.pods.iter() {
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(found) = InTree::of_pod_volume(volume).filter(&wanted) else { continue };
            let users = entry(&mut all, found);
            if let Some(node) = users.desired.add(pod, world) {
                users.desired.sources.entry(node.to_owned()).or_insert_with(|| volume.name.clone());
            }
        }
    }
    all
}

fn entry(all: &mut BTreeMap<String, Users>, found: InTree) -> &mut Users {
    let InTree { unique, migrated_to } = found;
    all.entry(unique).or_insert_with(|| Users { desired: Desired::default(), shared: true, migrated_to })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_have_the_names_that_kubelets_look_for() {
        let iscsi = json!({"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:disk", "lun": 0});
        for (source, expected) in [
            (
                json!({"iscsi": iscsi}),
                Some("kubernetes.io/iscsi/10.0.0.1:3260:iqn.2001-04.com.example:disk:0"),
            ),
            (
                json!({"fc": {"targetWWNs": ["500a0982991b8dc5", "500a0982891b8dc5"], "lun": 2}}),
                Some("kubernetes.io/fc/[500a0982991b8dc5 500a0982891b8dc5]:2"),
            ),
            (json!({"fc": {"wwids": ["3600508b400105e21"]}}), Some("kubernetes.io/fc/[3600508b400105e21]")),
            (json!({"fc": {}}), None),
            (json!({"nfs": {"server": "s", "path": "/"}}), None),
            (json!({"csi": {"driver": "d", "volumeHandle": "h"}}), None),
        ] {
            let found = InTree::of_volume(&serde_json::from_value(source.clone()).unwrap());
            assert_eq!(found.map(|volume| volume.unique).as_deref(), expected, "{source}");
        }
        assert_eq!(reported_plugin("kubernetes.io/fc/[a]"), Some(FC));
        assert_eq!(reported_plugin("kubernetes.io/csi/d^h"), None);
    }

    #[test]
    fn volumes_of_cloud_providers_are_migrated() {
        let disk = json!({"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}});
        let found = InTree::of_pod_volume(&serde_json::from_value(disk).unwrap());
        assert_eq!(found.and_then(|volume| volume.migrated_to), Some("ebs.csi.aws.com"));
    }
}
