//! The next step of a released volume, and its finalizer.
//!
//! Upstream: `syncVolume`, `handleProtectionFinalizer`, `shouldDelete` and `deleteVolumeOperation` in
//! sig-storage-lib-external-provisioner `controller/controller.go`; `canDeleteVolume` in
//! external-provisioner.

use std::sync::Arc;

use claimcheck_informer::{AttachmentBy, World};
use claimcheck_model::{PROVISIONED_BY, PROVISIONER_FINALIZER};
use k8s_openapi::api::core::v1::{PersistentVolume, SecretReference};

use crate::provisioner::{DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE, noted_secret};

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Add the finalizer, until the driver has deleted the volume.
    AddFinalizer(Arc<PersistentVolume>),
    /// Remove the finalizer.
    RemoveFinalizer(Arc<PersistentVolume>),
    /// Call DeleteVolume.
    DeleteVolume {
        /// The object.
        volume: Arc<PersistentVolume>,
        /// The driver's volume id.
        handle: String,
        /// The secret that the call requires.
        secret: Option<SecretReference>,
    },
    /// Delete the object.
    DeleteObject(Arc<PersistentVolume>),
}

/// Plans the volume with this name. `is_deleted`: the driver has deleted it already.
///
/// The finalizer is removed before the object is deleted, not after as upstream: so the write cannot conflict
/// with that of the protection controller, which follows the deletion. A crash in between is harmless: the
/// volume is still Released, and DeleteVolume of a deleted volume succeeds.
pub fn plan(
    name: &str,
    world: &World,
    driver: &str,
    is_deleted: impl Fn(&PersistentVolume) -> bool,
) -> Option<Action> {
    let volume = world.volumes.named(name)?;
    let spec = volume.spec.as_ref()?;
    let csi = spec.csi.as_ref()?;
    if !is_ours(volume, driver, &csi.driver) {
        return None;
    }
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let held =
        volume.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == PROVISIONER_FINALIZER);
    if spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete") {
        return held.then(|| Action::RemoveFinalizer(volume.clone()));
    }
    match phase {
        Some("Bound") if !held && !deleting => Some(Action::AddFinalizer(volume.clone())),
        Some("Released") if is_deleted(volume) => match (held, deleting) {
            (true, _) => Some(Action::RemoveFinalizer(volume.clone())),
            (false, false) => Some(Action::DeleteObject(volume.clone())),
            (false, true) => None,
        },
        // Without the finalizer and being deleted: the volume was deleted before.
        Some("Released") if held || !deleting => {
            let attached = world.attachments.count(AttachmentBy::Volume, name) > 0;
            let handle = csi.volume_handle.clone();
            (!attached).then(|| Action::DeleteVolume {
                volume: volume.clone(),
                handle,
                secret: secret(volume),
            })
        }
        _ => None,
    }
}

/// A volume with a provisioner annotation belongs to that provisioner; one without belongs to its driver.
/// Upstream: `isProvisionerForVolume`.
fn is_ours(volume: &PersistentVolume, driver: &str, source: &str) -> bool {
    let annotations = volume.metadata.annotations.as_ref();
    let maker = annotations.and_then(|all| all.get(PROVISIONED_BY)).map_or(source, String::as_str);
    maker == driver && source == driver
}

fn secret(volume: &PersistentVolume) -> Option<SecretReference> {
    noted_secret(volume, DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, DRIVER, deleting};

    use super::*;

    const PROTECTION: &str = "kubernetes.io/pv-protection";

    fn volume(phase: &str, policy: &str, finalizers: &[&str]) -> PersistentVolume {
        let mut volume = testing::volume("pv", "fast", "1Gi");
        volume.status.get_or_insert_default().phase = Some(phase.into());
        volume.spec.get_or_insert_default().persistent_volume_reclaim_policy = Some(policy.into());
        volume.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        testing::annotate(&mut volume.metadata, PROVISIONED_BY, DRIVER);
        volume
    }

    fn planned(volume: PersistentVolume, attached: bool, deleted: bool) -> &'static str {
        let mut world = World::default();
        world.apply(volume);
        if attached {
            world.apply(testing::attachment("va", "pv", "node", true));
        }
        match plan("pv", &world, DRIVER, |_| deleted) {
            None => "nothing",
            Some(Action::AddFinalizer(_)) => "add finalizer",
            Some(Action::RemoveFinalizer(_)) => "remove finalizer",
            Some(Action::DeleteVolume { handle, .. }) => {
                assert_eq!(handle, "handle-pv");
                "DeleteVolume"
            }
            Some(Action::DeleteObject(_)) => "delete object",
        }
    }

    #[test]
    fn one_step_at_a_time() {
        let ours = [PROTECTION, PROVISIONER_FINALIZER];
        for (volume, attached, deleted, expected) in [
            (volume("Bound", "Delete", &ours), true, false, "nothing"),
            (volume("Bound", "Delete", &[PROTECTION]), true, false, "add finalizer"),
            (volume("Bound", "Retain", &ours), true, false, "remove finalizer"),
            (volume("Released", "Retain", &[PROTECTION]), false, false, "nothing"),
            (volume("Released", "Delete", &ours), true, false, "nothing"),
            (volume("Released", "Delete", &ours), false, false, "DeleteVolume"),
            (volume("Released", "Delete", &[PROTECTION]), false, false, "DeleteVolume"),
            (volume("Released", "Delete", &ours), false, true, "remove finalizer"),
            (volume("Released", "Delete", &[PROTECTION]), false, true, "delete object"),
            (deleting(volume("Released", "Delete", &[]), &ours), false, false, "DeleteVolume"),
            (deleting(volume("Released", "Delete", &[]), &ours), false, true, "remove finalizer"),
            (deleting(volume("Released", "Delete", &[]), &[PROTECTION]), false, false, "nothing"),
            (deleting(volume("Bound", "Delete", &[]), &[PROTECTION]), false, false, "nothing"),
            (volume("Available", "Delete", &ours), false, false, "nothing"),
            (volume("Failed", "Delete", &ours), false, false, "nothing"),
        ] {
            let what = format!("{:?} attached {attached} deleted {deleted}", volume.metadata);
            assert_eq!(planned(volume, attached, deleted), expected, "{what}");
        }
    }

    #[test]
    fn foreign_volumes_are_left_alone() {
        let mut foreign = volume("Released", "Delete", &[]);
        testing::annotate(&mut foreign.metadata, PROVISIONED_BY, "other.driver");
        assert_eq!(planned(foreign, false, false), "nothing");
    }

    #[test]
    fn the_secret_of_deletion_is_on_the_volume() {
        let mut with = volume("Released", "Delete", &[]);
        assert_eq!(secret(&with), None);
        testing::annotate(&mut with.metadata, DELETION_SECRET_NAME, "s");
        testing::annotate(&mut with.metadata, DELETION_SECRET_NAMESPACE, "n");
        let expected = SecretReference { name: Some("s".into()), namespace: Some("n".into()) };
        assert_eq!(secret(&with), Some(expected));
    }
}
