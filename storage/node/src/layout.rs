//! Paths below the kubelet's root directory, as drivers, registrars and users know them from a stock node,
//! computed in one place.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use crate::volumes::{Form, Plugin, PodUid, VolumeKey};

/// The name of the file that identifies the volume of a mount after a restart of the agent. Upstream:
/// `volDataFileName` in `pkg/volume/csi/csi_plugin.go`.
pub const VOL_DATA: &str = "vol_data.json";

/// The directory of block volumes, of the plugin and of a pod.
pub const BLOCK_DEVICES: &str = "volumeDevices";

/// The path of a volume's mount on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPaths {
    /// The path that is passed to the driver.
    pub target: PathBuf,
    /// The directory of the record that identifies the volume.
    pub record: PathBuf,
}

/// The kubelet's directory tree.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The tree below `root`, on a real node `/var/lib/kubelet`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of plugin registration sockets.
    pub fn plugins_registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// The directory of all pods.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The directory of one pod; removed before the pod's object is deleted.
    pub fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods().join(uid.as_str())
    }

    /// The volumes of one pod: a directory per plugin, in it one per volume.
    pub fn pod_volumes(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// The file that shows that an emptyDir of a pod was completed. Upstream: `getMetaDir` in
    /// `pkg/volume/emptydir/empty_dir.go`, `SetReady` in `pkg/volume/util/util.go`.
    pub fn empty_dir_ready(&self, uid: &PodUid, name: &str) -> PathBuf {
        self.pod(uid).join("plugins").join(Plugin::EmptyDir.directory()).join(name).join("ready")
    }

    /// The directory of one container of a pod: termination messages and logs.
    pub fn container(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.pod(uid).join("containers").join(container)
    }

    /// The log file of a container.
    pub fn container_log(&self, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
        self.container(uid, container).join(format!("{attempt}.log"))
    }

    /// The file that is mounted at the container's `terminationMessagePath`.
    pub fn termination_message(&self, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
        self.container(uid, container).join(format!("{attempt}.message"))
    }

    /// The directory of the CSI plugin: one directory per driver, in it one per volume handle.
    pub fn csi(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi")
    }

    /// The directory of a CSI volume outside of pods: `vol_data.json` and the global mount. Upstream:
    /// `makeDeviceMountPath` in `pkg/volume/csi/csi_attacher.go`.
    pub fn device(&self, driver: &str, handle: &str) -> PathBuf {
        self.csi().join(driver).join(claimcheck_model::sha256(handle))
    }

    /// The staging path of a CSI volume with a file system.
    pub fn global_mount(&self, driver: &str, handle: &str) -> PathBuf {
        self.device(driver, handle).join("globalmount")
    }

    /// The directory of block volumes of CSI drivers: one directory per PV, and next to these `staging` and
    /// `publish`. Upstream: `pkg/volume/csi/csi_block.go`, for all of these paths.
    pub fn block_devices(&self) -> PathBuf {
        self.csi().join(BLOCK_DEVICES)
    }

    /// The staging path of a CSI volume, and the directory of the `vol_data.json` that identifies it.
    pub fn staged(&self, driver: &str, handle: &str, form: &Form) -> MountPaths {
        match form {
            Form::Filesystem => {
                MountPaths { target: self.global_mount(driver, handle), record: self.device(driver, handle) }
            }
            Form::Block { pv } => MountPaths {
                target: self.block_devices().join("staging").join(pv),
                record: self.block_devices().join(pv).join("data"),
            },
        }
    }

    /// The directory in which a block volume is published for all pods.
    pub fn block_publish(&self, pv: &str) -> PathBuf {
        self.block_devices().join("publish").join(pv)
    }

    /// The path at which the device of a block volume is published for a pod: a file that the driver creates.
    pub fn block_published(&self, uid: &PodUid, pv: &str) -> PathBuf {
        self.block_publish(pv).join(uid.as_str())
    }

    /// The block volumes of one pod: links, each named after its PV, to the published device.
    pub fn pod_devices(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join(BLOCK_DEVICES).join(Plugin::Csi.directory())
    }

    /// The path at which a CSI volume of that form is published for a pod.
    pub fn published(&self, uid: &PodUid, key: &VolumeKey, name: &str, form: &Form) -> PathBuf {
        match form {
            Form::Filesystem => self.pod_mount(uid, key, name),
            Form::Block { pv } => self.block_published(uid, pv),
        }
    }

    /// The directory of one volume in one pod. `name` is the PV's name for a CSI volume, and the name in the
    /// pod's spec for a pod-local volume.
    pub fn pod_volume(&self, uid: &PodUid, key: &VolumeKey, name: &str) -> PathBuf {
        self.pod_volumes(uid).join(key.plugin().directory()).join(name)
    }

    /// The directory of a volume that containers see: a CSI volume is published in a subdirectory, since
    /// `vol_data.json` is stored next to it.
    pub fn pod_mount(&self, uid: &PodUid, key: &VolumeKey, name: &str) -> PathBuf {
        let directory = self.pod_volume(uid, key, name);
        match key {
            VolumeKey::Csi { .. } | VolumeKey::Inline { .. } => directory.join("mount"),
            VolumeKey::Local { .. } => directory,
        }
    }
}

/// The last part of a path as text; directory names created by the agent are always text.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_a_stock_kubelet() {
        let layout = Layout::new("/var/lib/kubelet");
        let key = VolumeKey::csi("hostpath.csi.k8s.io", "4205bd0a");
        assert_eq!(
            layout.pod_mount(&PodUid::from("u1"), &key, "pvc-1"),
            Path::new("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/mount")
        );
        // `printf %s abc | sha256sum`
        assert_eq!(
            layout.global_mount("d", "abc"),
            Path::new(
                "/var/lib/kubelet/plugins/kubernetes.io/csi/d/\
                 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/globalmount"
            )
        );
    }
}
