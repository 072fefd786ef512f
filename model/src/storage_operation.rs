//! The operations of `storage_operation_duration_seconds`.

use std::time::Duration;

use crate::{Meter, metric::STORAGE_OPERATION_DURATION};

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// An operation on a volume, named as in upstream's controllers and kubelet (the
        /// `GeneratedOperations` of `pkg/volume/util/operationexecutor/operation_generator.go`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum StorageOperation { $($(#[doc = $doc])+ $variant,)+ }

        impl StorageOperation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value of the label `operation_name`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

operations! {
    /// From the creation of the VolumeAttachment until it is attached.
    Attach = "volume_attach";
    /// From the deletion of the VolumeAttachment until it no longer exists.
    Detach = "volume_detach";
    /// Staging and publishing a file system.
    Mount = "volume_mount";
    /// Unpublishing a file system.
    Unmount = "volume_unmount";
    /// Unstaging a file system.
    UnmountDevice = "unmount_device";
    /// Staging and publishing a block volume.
    Map = "map_volume";
    /// Unpublishing a block volume.
    Unmap = "unmap_volume";
    /// Unstaging a block volume.
    UnmapDevice = "unmap_device";
    /// Waiting for a controller to attach.
    VerifyAttached = "verify_controller_attached_volume";
    /// Expanding a volume in the controller. Upstream's expand controller records it for in-tree plugins
    /// only (`GenerateExpandVolumeFunc`), and leaves CSI volumes to external-resizer, which has no such
    /// metric; here the built-in resizer records it with the same labels: from the call to the update of the claim.
    Expand = "expand_volume";
    /// Expanding a volume on its node.
    Resize = "volume_fs_resize";
    /// Applying `fsGroup` to a volume.
    ApplyAccess = "volume_apply_access_control";
}

impl StorageOperation {
    /// Records the end of an operation on a driver's volume; `plugin` as [`csi_plugin`](crate::csi_plugin) names
    /// it. Upstream: `OperationCompleteHook` in `pkg/volume/util/metrics.go`, which has two statuses.
    pub fn ended(self, meter: &Meter, plugin: &str, success: bool, took: Duration) {
        let status = if success { "success" } else { "fail-unknown" };
        let labels = [plugin, self.name(), status, "false"];
        meter.record(&STORAGE_OPERATION_DURATION, &labels, took.as_secs_f64());
    }
}
