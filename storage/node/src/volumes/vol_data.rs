//! `vol_data.json`: written before a mount and removed after it, so that a restarted agent can identify the
//! volume of a mount. Same keys as upstream's (`volDataKey` in `pkg/volume/csi/csi_plugin.go`), so that an
//! agent can replace a stock kubelet and vice versa.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The record next to a volume's global mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceData {
    /// The driver's name.
    pub driver_name: String,
    /// The volume's id, assigned by the driver.
    pub volume_handle: String,
}

/// The record next to a volume's mount in a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishData {
    /// The driver's name.
    pub driver_name: String,
    /// The volume's id, assigned by the driver.
    pub volume_handle: String,
    /// The PV's name.
    #[serde(rename = "specVolID")]
    pub pv: String,
    /// The node's name.
    pub node_name: String,
    /// The attachment's name, whether or not it exists.
    #[serde(rename = "attachmentID")]
    pub attachment: String,
    /// The lifecycle mode.
    #[serde(default)]
    pub volume_lifecycle_mode: Lifecycle,
}

/// The lifecycle mode of a CSI volume. Upstream: `VolumeLifecycleMode` of CSIDriver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifecycle {
    /// Persistent: with its claim.
    #[default]
    Persistent,
    /// Ephemeral: with its pod.
    Ephemeral,
}

/// A file that is not a valid record.
#[derive(Debug, thiserror::Error)]
#[error("not a vol_data.json: remove the volume's directory by hand if nothing is mounted there")]
pub struct VolDataError(#[from] serde_json::Error);

/// The file's content.
pub(crate) fn encode<T: Serialize>(data: &T) -> Vec<u8> {
    serde_json::to_vec(data).expect("a struct of strings is JSON")
}

/// Reads the file's content.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, VolDataError> {
    Ok(serde_json::from_slice(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_spelt_as_the_stock_kubelet_spells_it() {
        let stock = r#"{"attachmentID":"csi-1","driverName":"d","nodeName":"n","specVolID":"pv-1",
            "volumeHandle":"h","volumeLifecycleMode":"Persistent","seLinuxMountContext":""}"#;
        let data: PublishData = decode(stock.as_bytes()).unwrap();
        assert_eq!((data.pv.as_str(), data.attachment.as_str()), ("pv-1", "csi-1"));
        assert_eq!(data.volume_lifecycle_mode, Lifecycle::Persistent);
        let device: DeviceData = decode(br#"{"driverName":"d","volumeHandle":"h"}"#).unwrap();
        assert_eq!(decode::<DeviceData>(&encode(&device)).unwrap(), device);
        assert!(decode::<DeviceData>(b"{}").is_err());
    }
}
