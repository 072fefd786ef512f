//! Volumes of plugins that are part of Kubernetes, by the names that identify them. The sources of these volumes are in
//! PersistentVolumes and in pods, and nodes list those that are attached without an attachment object: all three kinds
//! are indexed by these names.

use k8s_openapi::api::core::v1::{FCVolumeSource, Node, PersistentVolumeSpec, Pod, Volume};

/// The prefix of CSI volumes in the lists of `node.status`.
const CSI: &str = "kubernetes.io/csi/";

/// The plugin of iSCSI volumes.
pub const ISCSI: &str = "kubernetes.io/iscsi";
/// The plugin of Fibre Channel volumes.
pub const FC: &str = "kubernetes.io/fc";

/// A volume of such a plugin that kubelets wait for, or that is migrated to a CSI driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InTree {
    /// The plugin.
    pub plugin: &'static str,
    /// The plugin, and what it identifies the volume by. For iSCSI and FC the volume's name in `node.status`.
    pub unique: String,
}

/// The volume of a source: a PersistentVolume's spec or a pod's volume, which have fields of the same names.
macro_rules! in_tree {
    ($source:expr) => {{
        let source = $source;
        if let Some(disk) = &source.iscsi {
            // `GetVolumeName` in `pkg/volume/iscsi/iscsi.go`.
            Some(InTree::new(ISCSI, &format!("{}:{}:{}", disk.target_portal, disk.iqn, disk.lun)))
        } else if let Some(disk) = &source.fc {
            fc_name(disk).map(|name| InTree::new(FC, &name))
        } else if let Some(disk) = &source.aws_elastic_block_store {
            Some(InTree::new("kubernetes.io/aws-ebs", &disk.volume_id))
        } else if let Some(disk) = &source.azure_disk {
            Some(InTree::new("kubernetes.io/azure-disk", &disk.disk_uri))
        } else if let Some(share) = &source.azure_file {
            Some(InTree::new("kubernetes.io/azure-file", &share.share_name))
        } else if let Some(disk) = &source.cinder {
            Some(InTree::new("kubernetes.io/cinder", &disk.volume_id))
        } else if let Some(disk) = &source.gce_persistent_disk {
            Some(InTree::new("kubernetes.io/gce-pd", &disk.pd_name))
        } else if let Some(disk) = &source.portworx_volume {
            Some(InTree::new("kubernetes.io/portworx-volume", &disk.volume_id))
        } else if let Some(disk) = &source.vsphere_volume {
            Some(InTree::new("kubernetes.io/vsphere-volume", &disk.volume_path))
        } else {
            None
        }
    }};
}

impl InTree {
    /// `None` if it is not such a volume.
    pub fn from_volume(spec: &PersistentVolumeSpec) -> Option<Self> {
        in_tree!(spec)
    }

    /// `None` if the pod's volume does not contain the source of such a volume.
    pub fn from_pod_volume(volume: &Volume) -> Option<Self> {
        in_tree!(volume)
    }

    /// The volumes that a pod contains the sources of.
    pub fn in_pod(pod: &Pod) -> impl Iterator<Item = Self> {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes.filter_map(Self::from_pod_volume)
    }

    /// Upstream: `GetUniqueVolumeName` in `pkg/volume/util/util.go`.
    fn new(plugin: &'static str, volume: &str) -> Self {
        Self { plugin, unique: format!("{plugin}/{volume}") }
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

/// The names in both lists of a node of volumes that are not CSI volumes: those have attachment objects.
pub(crate) fn listed(node: &Node) -> impl Iterator<Item = &str> {
    let attached = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
    let in_use = node.status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
    let names = attached.map(|volume| volume.name.as_str()).chain(in_use.map(String::as_str));
    names.filter(|name| !name.starts_with(CSI))
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
            let found = InTree::from_volume(&serde_json::from_value(source.clone()).unwrap());
            assert_eq!(found.map(|volume| volume.unique).as_deref(), expected, "{source}");
        }
    }
}
