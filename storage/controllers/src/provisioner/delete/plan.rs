//! The next step of a released volume, and its finalizer.
//!
//! Upstream: `syncVolume`, `handleProtectionFinalizer`, `shouldDelete` and `deleteVolumeOperation` in
//! sig-storage-lib-external-provisioner `controller/controller.go`; `Delete`, `handleSecretsForDeletion` and
//! `canDeleteVolume` in external-provisioner `pkg/controller/controller.go`.

use std::sync::Arc;

use claimcheck_informer::{AttachmentBy, World};
use claimcheck_model::{PROVISIONED_BY, PROVISIONER_FINALIZER};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, SecretReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    claims::{annotation, claim_ref, has_finalizer, name, volume_class},
    provisioner::{
        DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE, Incapable, LocalNode,
        create::secrets::{self, Purpose},
        noted_secret,
    },
    rpc::{DriverInfo, SecretNameError},
};

/// Why a volume cannot be deleted at present.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// See the error.
    #[error(transparent)]
    Incapable(#[from] Incapable),
    /// Its StorageClass names no valid secret.
    #[error("failed to get secretreference for volume {volume}: {error}")]
    Secret {
        /// The volume.
        volume: String,
        /// The reason.
        error: SecretNameError,
    },
}

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
    /// Emit an event that it cannot be deleted, and retry later.
    Refuse {
        /// The object.
        volume: Arc<PersistentVolume>,
        /// The reason.
        refusal: Refusal,
    },
}

/// Plans the volume with this name. `local`: the node, with `--node-deployment`; volumes that are not accessible from it
/// are deleted by others. `is_deleted`: the driver has deleted it already.
///
/// The finalizer is removed before the object is deleted, not after as upstream: so the write cannot conflict
/// with that of the protection controller, which follows the deletion. A crash in between is harmless: the
/// volume is still Released, and DeleteVolume of a deleted volume succeeds.
pub fn plan(
    name: &str,
    world: &World,
    driver: &DriverInfo,
    local: Option<&LocalNode>,
    is_deleted: impl Fn(&PersistentVolume) -> bool,
) -> Option<Action> {
    let volume = world.volumes.named(name)?;
    let spec = volume.spec.as_ref()?;
    let csi = spec.csi.as_ref()?;
    if !is_of_driver(volume, &driver.name, &csi.driver) {
        return None;
    }
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let held = has_finalizer(&volume.metadata, PROVISIONER_FINALIZER);
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
            if local.is_some_and(|local| !local.reaches(volume)) {
                return None;
            }
            let attached = world.attachments.count(AttachmentBy::Volume, name) > 0;
            let volume = volume.clone();
            (!attached).then(|| match secret(&volume, world, driver) {
                Ok(secret) => Action::DeleteVolume { volume, handle: csi.volume_handle.clone(), secret },
                Err(refusal) => Action::Refuse { volume, refusal },
            })
        }
        _ => None,
    }
}

/// A volume with a provisioner annotation belongs to that provisioner; one without belongs to its driver.
/// Upstream: `isProvisionerForVolume`.
fn is_of_driver(volume: &PersistentVolume, driver: &str, source: &str) -> bool {
    let annotations = volume.metadata.annotations.as_ref();
    let maker = annotations.and_then(|all| all.get(PROVISIONED_BY)).map_or(source, String::as_str);
    maker == driver && source == driver
}

/// The secret for DeleteVolume: that in the volume's annotations or, for a volume without them, that in its
/// StorageClass (`getSecretsFromSC`). A volume that was not created by a provisioner, or by an old one, has no
/// annotations.
fn secret(
    volume: &PersistentVolume,
    world: &World,
    driver: &DriverInfo,
) -> Result<Option<SecretReference>, Refusal> {
    Incapable::check(driver)?;
    let is_noted = |key| annotation(volume, key).is_some();
    if is_noted(DELETION_SECRET_NAME) && is_noted(DELETION_SECRET_NAMESPACE) {
        return Ok(noted_secret(volume, DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE));
    }
    let class = world.classes.named(volume_class(volume));
    let parameters = class.and_then(|class| class.parameters.as_ref());
    let (Some(parameters), Some(claim)) = (parameters, claim_ref(volume)) else { return Ok(None) };
    let metadata =
        ObjectMeta { name: claim.name.clone(), namespace: claim.namespace.clone(), ..ObjectMeta::default() };
    let claim = PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() };
    let volume = name(volume);
    secrets::reference(Purpose::Provision, parameters, volume, &claim)
        .map_err(|error| Refusal::Secret { volume: volume.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::v1::{
        NodeGetInfoResponse, Topology, controller_service_capability::rpc::Type as Rpc,
        plugin_capability::service::Type as Service,
    };
    use claimcheck_informer::testing::{self, DRIVER, deleting, world};
    use k8s_openapi::api::storage::v1::StorageClass;

    use super::*;
    use crate::NodeDeployment;

    const PROTECTION: &str = "kubernetes.io/pv-protection";

    fn volume(phase: &str, policy: &str, finalizers: &[&str]) -> PersistentVolume {
        let mut volume = testing::volume("pv", "fast", "1Gi");
        volume.status.get_or_insert_default().phase = Some(phase.into());
        volume.spec.get_or_insert_default().persistent_volume_reclaim_policy = Some(policy.into());
        volume.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        testing::annotate(&mut volume.metadata, PROVISIONED_BY, DRIVER);
        volume
    }

    fn driver() -> DriverInfo {
        DriverInfo::new(DRIVER, &[Service::ControllerService], &[Rpc::CreateDeleteVolume])
    }

    fn planned(volume: PersistentVolume, attached: bool, deleted: bool) -> &'static str {
        let mut world = world([volume.into()]);
        if attached {
            world.apply(testing::attachment("va", "pv", "node", true));
        }
        match plan("pv", &world, &driver(), None, |_| deleted) {
            None => "nothing",
            Some(Action::AddFinalizer(_)) => "add finalizer",
            Some(Action::RemoveFinalizer(_)) => "remove finalizer",
            Some(Action::DeleteVolume { handle, .. }) => {
                assert_eq!(handle, "handle-pv");
                "DeleteVolume"
            }
            Some(Action::DeleteObject(_)) => "delete object",
            Some(Action::Refuse { .. }) => "refuse",
        }
    }

    #[test]
    fn one_step_at_a_time() {
        let finalizers = [PROTECTION, PROVISIONER_FINALIZER];
        for (volume, attached, deleted, expected) in [
            (volume("Bound", "Delete", &finalizers), true, false, "nothing"),
            (volume("Bound", "Delete", &[PROTECTION]), true, false, "add finalizer"),
            (volume("Bound", "Retain", &finalizers), true, false, "remove finalizer"),
            (volume("Released", "Retain", &[PROTECTION]), false, false, "nothing"),
            (volume("Released", "Delete", &finalizers), true, false, "nothing"),
            (volume("Released", "Delete", &finalizers), false, false, "DeleteVolume"),
            (volume("Released", "Delete", &[PROTECTION]), false, false, "DeleteVolume"),
            (volume("Released", "Delete", &finalizers), false, true, "remove finalizer"),
            (volume("Released", "Delete", &[PROTECTION]), false, true, "delete object"),
            (deleting(volume("Released", "Delete", &[]), &finalizers), false, false, "DeleteVolume"),
            (deleting(volume("Released", "Delete", &[]), &finalizers), false, true, "remove finalizer"),
            (deleting(volume("Released", "Delete", &[]), &[PROTECTION]), false, false, "nothing"),
            (deleting(volume("Bound", "Delete", &[]), &[PROTECTION]), false, false, "nothing"),
            (volume("Available", "Delete", &finalizers), false, false, "nothing"),
            (volume("Failed", "Delete", &finalizers), false, false, "nothing"),
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
    fn the_provisioner_of_a_node_deletes_its_volumes() {
        let segments = [("kubernetes.io/hostname".to_owned(), "a".to_owned())].into();
        let info = NodeGetInfoResponse {
            accessible_topology: Some(Topology { segments }),
            ..NodeGetInfoResponse::default()
        };
        let deployment = NodeDeployment { node: "a".into(), ..NodeDeployment::default() };
        let local = LocalNode::new(DRIVER, deployment, info);
        for (node, phase, finalizers, expected) in [
            (None, "Released", &[PROVISIONER_FINALIZER][..], true),
            (Some("a"), "Released", &[PROVISIONER_FINALIZER], true),
            (Some("b"), "Released", &[PROVISIONER_FINALIZER], false),
            // As upstream, the finalizer is not that of a node.
            (Some("b"), "Bound", &[PROTECTION], true),
        ] {
            let mut volume = volume(phase, "Delete", finalizers);
            volume.spec.get_or_insert_default().node_affinity = node.map(testing::only_on);
            let world = world([volume.into()]);
            let action = plan("pv", &world, &driver(), Some(&local), |_| false);
            assert_eq!(action.is_some(), expected, "{node:?} {phase}: {action:?}");
        }
    }

    fn named(namespace: &str, name: &str) -> Result<Option<SecretReference>, Refusal> {
        Ok(Some(SecretReference { name: Some(name.into()), namespace: Some(namespace.into()) }))
    }

    #[test]
    fn the_secret_of_deletion_is_on_the_volume_or_in_its_class() {
        let class = |secret: &str| StorageClass {
            parameters: Some(
                [
                    ("csi.storage.k8s.io/provisioner-secret-name".to_owned(), secret.to_owned()),
                    (
                        "csi.storage.k8s.io/provisioner-secret-namespace".to_owned(),
                        "${pvc.namespace}".to_owned(),
                    ),
                ]
                .into(),
            ),
            ..testing::class("fast", DRIVER)
        };
        let templates = world([class("${pv.name}-${pvc.name}").into()]);
        let claimed = || {
            let mut volume = volume("Released", "Delete", &[]);
            let claim = testing::claim("data", "fast", "1Gi");
            volume.spec.get_or_insert_default().claim_ref = Some(testing::claim_ref(&claim));
            volume
        };
        let noted = |name: &str, namespace: &str| {
            let mut volume = claimed();
            testing::annotate(&mut volume.metadata, DELETION_SECRET_NAME, name);
            testing::annotate(&mut volume.metadata, DELETION_SECRET_NAMESPACE, namespace);
            volume
        };
        let mut half = claimed();
        testing::annotate(&mut half.metadata, DELETION_SECRET_NAME, "s");
        for (what, volume, world, expected) in [
            ("annotated", noted("s", "n"), &templates, named("n", "s")),
            ("needs none", noted("", ""), &templates, Ok(None)),
            ("not annotated", claimed(), &templates, named("default", "pv-data")),
            ("half annotated", half, &templates, named("default", "pv-data")),
            ("no claim", volume("Released", "Delete", &[]), &templates, Ok(None)),
            ("no class", claimed(), &World::default(), Ok(None)),
            ("a class without", claimed(), &world([testing::class("fast", DRIVER).into()]), Ok(None)),
        ] {
            assert_eq!(secret(&volume, world, &driver()), expected, "{what}");
        }
        // The annotations of the claim are not known any more.
        let lost = world([class("${pvc.annotations['team']}").into(), claimed().into()]);
        let Some(Action::Refuse { refusal, .. }) = plan("pv", &lost, &driver(), None, |_| false) else {
            panic!("expected a refusal")
        };
        assert_eq!(
            refusal.to_string(),
            "failed to get secretreference for volume pv: error resolving value \
             \"${pvc.annotations['team']}\": invalid tokens: [\"pvc.annotations['team']\"]"
        );
    }

    #[test]
    fn a_driver_that_deletes_no_volumes_is_not_called() {
        let world = world([volume("Released", "Delete", &[]).into()]);
        for (driver, reason) in [
            (DriverInfo::new(DRIVER, &[], &[]), Incapable::NoController),
            (DriverInfo::new(DRIVER, &[Service::ControllerService], &[]), Incapable::NoVolumes),
        ] {
            let Some(Action::Refuse { refusal, .. }) = plan("pv", &world, &driver, None, |_| false) else {
                panic!("expected a refusal")
            };
            assert_eq!(refusal, Refusal::Incapable(reason));
        }
    }
}
