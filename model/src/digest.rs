//! SHA-256 in hexadecimal digits, which Kubernetes uses in names.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The SHA-256 of a text or of bytes, in lower-case hexadecimal digits.
pub fn sha256(of: impl AsRef<[u8]>) -> String {
    Sha256::digest(of).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The name of the attachment of a volume to a node: `csi-` and the SHA-256 of handle, driver and node.
/// Upstream: `getAttachmentName` in `pkg/volume/csi/csi_attacher.go`.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(format!("{handle}{driver}{node}")))
}

/// The handle of the CSI inline volume of a pod, by the pod's uid and the volume's name there.
/// Upstream: `makeVolumeHandle` in `pkg/volume/csi/csi_mounter.go`.
pub fn inline_volume_handle(pod: &str, volume: &str) -> String {
    format!("csi-{}", sha256(format!("{pod}{volume}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that a stock controller-manager gave (recordings/writes).
    #[test]
    fn the_name_of_an_attachment_is_upstreams() {
        assert_eq!(
            attachment_name("4205bd0a-e526-11f1-a62c-56592867d590", "hostpath.csi.k8s.io", "node-1"),
            "csi-f3d39b439d188af3a5986f6532d74a9171a8488d0836245a7699a0a07f65850b"
        );
    }
}
