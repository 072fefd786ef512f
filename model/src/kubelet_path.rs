//! Parses paths below a kubelet's root directory. The kubelet composes them, so they are the only place where a
//! CSI call's target path or a mount names its pod or volume (`pkg/volume/csi/csi_mounter.go`, `csi_block.go`,
//! `csi_attacher.go`).

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

/// The meaning of a path. In the order in which a volume reaches its pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KubeletPath {
    /// A staging path, named after the volume handle (Kubernetes 1.24 and later).
    Stage {
        /// The driver's name.
        driver: String,
        /// The SHA-256 of the volume's handle, hexadecimal.
        handle_sha256: String,
    },
    /// A staging path, named after the PersistentVolume: all block volumes, and those of kubelets
    /// before 1.24.
    StageOf {
        /// The PersistentVolume's name.
        volume: String,
    },
    /// A target path for a pod: a directory, or for block volumes a device file.
    Publish {
        /// The pod's uid.
        pod: String,
        /// The PersistentVolume's name.
        volume: String,
    },
}

impl KubeletPath {
    /// Parses a path, independent of the kubelet's root directory; none if it does not belong to a CSI volume.
    ///
    /// `volumeDevices/<volume>/dev/<pod>` yields none: the kubelet binds the device there after publishing.
    pub fn of(path: &Path) -> Option<Self> {
        let parts: Option<Vec<&str>> = path
            .components()
            .filter(|part| !matches!(part, Component::RootDir))
            .map(|part| part.as_os_str().to_str())
            .collect();
        let owned = |text: &&str| (*text).to_owned();
        match parts?.as_slice() {
            [.., "pods", pod, "volumes", "kubernetes.io~csi", volume, "mount"]
            | [.., "plugins", "kubernetes.io", "csi", "volumeDevices", "publish", volume, pod] => {
                Some(Self::Publish { pod: owned(pod), volume: owned(volume) })
            }
            [.., "plugins", "kubernetes.io", "csi", "pv", volume, "globalmount"]
            | [.., "plugins", "kubernetes.io", "csi", "volumeDevices", "staging", volume] => {
                Some(Self::StageOf { volume: owned(volume) })
            }
            [.., "plugins", "kubernetes.io", "csi", driver, handle_sha256, "globalmount"] => {
                Some(Self::Stage { driver: owned(driver), handle_sha256: owned(handle_sha256) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_paths_are_read() {
        let publish = || Some(KubeletPath::Publish { pod: "u1".into(), volume: "pv1".into() });
        let stage_of = || Some(KubeletPath::StageOf { volume: "pv1".into() });
        let csi = "plugins/kubernetes.io/csi";
        let cases = [
            ("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv1/mount".to_owned(), publish()),
            ("pods/u1/volumes/kubernetes.io~csi/pv1/mount/".to_owned(), publish()),
            (format!("/cc/n/n1/kubelet/{csi}/volumeDevices/publish/pv1/u1"), publish()),
            (
                format!("/var/lib/kubelet/{csi}/d.io/ab12/globalmount"),
                Some(KubeletPath::Stage { driver: "d.io".into(), handle_sha256: "ab12".into() }),
            ),
            (format!("/var/lib/kubelet/{csi}/pv/pv1/globalmount"), stage_of()),
            (format!("/var/lib/kubelet/{csi}/volumeDevices/staging/pv1"), stage_of()),
            (format!("/var/lib/kubelet/{csi}/volumeDevices/pv1/dev/u1"), None),
            ("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~projected/token".to_owned(), None),
            ("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv1/mount/inside".to_owned(), None),
            ("/".to_owned(), None),
        ];
        for (path, expected) in cases {
            assert_eq!(KubeletPath::of(Path::new(&path)), expected, "{path}");
        }
    }
}
