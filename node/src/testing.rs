//! Values for tests, as short as they can be written.

use std::collections::BTreeMap;

use claimcheck_model::ObjectKey;

use crate::{
    desired::Wanted,
    volumes::{CsiVolume, PodMount, PodRef, VolumeKey, VolumeSpec},
};

/// The driver of all test volumes.
pub const DRIVER: &str = "test.csi.example";

/// A CSI volume as `pod` wants it.
pub fn wanted(handle: &str, pod: &str) -> Wanted {
    Wanted {
        key: VolumeKey::csi(DRIVER, handle),
        spec: VolumeSpec::Csi(Box::new(CsiVolume {
            pv: format!("pv-{handle}"),
            driver: DRIVER.into(),
            handle: handle.into(),
            fs_type: "ext4".into(),
            mount_options: Vec::new(),
            access_modes: vec!["ReadWriteOnce".into()],
            attributes: BTreeMap::new(),
            stage_secret: None,
            publish_secret: None,
        })),
        mount: PodMount {
            pod: PodRef {
                key: ObjectKey::new("ns", pod),
                uid: pod.into(),
                service_account: "default".into(),
            },
            names: vec!["v".into()],
            directory: format!("pv-{handle}"),
            read_only: false,
            fs_group: None,
        },
    }
}
