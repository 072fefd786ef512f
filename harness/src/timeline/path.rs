//! Whose a path below a kubelet's directory is. The kubelet composes them, so they are the one place
//! where a call or a mount names its pod (`pkg/volume/csi/csi_mounter.go`, `csi_block.go`).

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// The volume `volume` in the pod with the uid `pod`.
    Pod { pod: &'a str, volume: &'a str },
    /// The staging directory of the volume whose handle has this SHA-256, in hexadecimal.
    Global { driver: &'a str, handle_sha256: &'a str },
}

/// Reads the path of a mount, wherever the kubelet's directory is.
pub(super) fn place(path: &str) -> Option<Place<'_>> {
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    match parts.as_slice() {
        [.., "pods", pod, "volumes", "kubernetes.io~csi", volume, "mount"] => {
            Some(Place::Pod { pod, volume })
        }
        [.., "kubernetes.io", "csi", "volumeDevices", "publish", volume, pod] => {
            Some(Place::Pod { pod, volume })
        }
        [.., "plugins", "kubernetes.io", "csi", driver, handle_sha256, "globalmount"] => {
            Some(Place::Global { driver, handle_sha256 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_paths_are_read() {
        let kubelet = "/var/lib/kubelet";
        assert_eq!(
            place(&format!("{kubelet}/pods/u1/volumes/kubernetes.io~csi/pv1/mount")),
            Some(Place::Pod { pod: "u1", volume: "pv1" })
        );
        assert_eq!(
            place("/cc/n/n1/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv1/u1"),
            Some(Place::Pod { pod: "u1", volume: "pv1" })
        );
        assert_eq!(
            place(&format!("{kubelet}/plugins/kubernetes.io/csi/d.io/ab12/globalmount")),
            Some(Place::Global { driver: "d.io", handle_sha256: "ab12" })
        );
        assert_eq!(place(&format!("{kubelet}/pods/u1/volumes/kubernetes.io~projected/token")), None);
    }
}
