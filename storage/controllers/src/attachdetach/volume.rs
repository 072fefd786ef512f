//! A PersistentVolume as attach/detach sees it.

use claimcheck_informer::{VolumeBy, World};
use claimcheck_model::unique_volume_name;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};

/// The relevant parts of a CSI volume.
#[derive(Debug)]
pub struct CsiVolume<'w> {
    pub name: &'w str,
    pub driver: &'w str,
    pub handle: &'w str,
    /// The volume may be attached to several nodes at a time.
    pub shared: bool,
    pub claim: Option<&'w ObjectReference>,
    /// Its name in `node.status`.
    pub unique: String,
}

impl<'w> CsiVolume<'w> {
    /// `None` if it is not a CSI volume.
    pub fn of(volume: &'w PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        let csi = spec.csi.as_ref()?;
        Some(Self {
            name: volume.metadata.name.as_deref()?,
            driver: &csi.driver,
            handle: &csi.volume_handle,
            shared: is_multi_attach_allowed(spec.access_modes.as_deref().unwrap_or_default()),
            claim: spec.claim_ref.as_ref(),
            unique: unique_volume_name(&csi.driver, &csi.volume_handle),
        })
    }

    /// All objects of the same volume of the driver, by name. Attachments and nodes' lists refer to the volume,
    /// so these are planned together (upstream keys its state by `GetUniqueVolumeNameFromSpec`).
    pub fn sharing(&self, world: &'w World) -> Vec<Self> {
        Self::with_handle(self.driver, self.handle, world).collect()
    }

    /// All objects of this volume of the driver, by name.
    pub fn with_handle(driver: &str, handle: &str, world: &'w World) -> impl Iterator<Item = Self> + use<'w> {
        let handle = format!("{driver}^{handle}");
        world.volumes.by(VolumeBy::Handle, &handle).filter_map(|volume| Self::of(volume))
    }

    /// The name under which all objects of the same volume are planned: the first.
    pub fn planned_as(&self, world: &'w World) -> &'w str {
        Self::with_handle(self.driver, self.handle, world).next().map_or(self.name, |first| first.name)
    }
}

/// Driver and handle of a CSI volume's name in `node.status`: the inverse of [`unique_volume_name`].
pub fn csi_parts(unique: &str) -> Option<(&str, &str)> {
    unique.strip_prefix("kubernetes.io/csi/")?.split_once('^')
}

/// Whether the driver requires attachment. One without a CSIDriver object does. Upstream: `CanAttach` in
/// `pkg/volume/csi/csi_plugin.go`.
pub fn attach_required(driver: &str, world: &World) -> bool {
    let driver = world.csi_drivers.named(driver);
    driver.and_then(|driver| driver.spec.attach_required).unwrap_or(true)
}

/// Whether a volume with these access modes may be attached to several nodes at a time; without modes the driver
/// decides. Upstream: `IsMultiAttachAllowed` in `pkg/volume/util/util.go`.
pub fn is_multi_attach_allowed(modes: &[String]) -> bool {
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_at_a_time_unless_a_mode_permits_many() {
        for (modes, shared) in [
            (&[][..], true),
            (&["ReadWriteOnce"], false),
            (&["ReadWriteOncePod"], false),
            (&["ReadOnlyMany"], true),
            (&["ReadWriteOnce", "ReadWriteMany"], true),
        ] {
            let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
            assert_eq!(is_multi_attach_allowed(&modes), shared, "{modes:?}");
        }
    }
}
