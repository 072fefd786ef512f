//! The volume of a claim of which a snapshot is taken, alone or in a group.

use std::sync::Arc;

use claimcheck_informer::World;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim};

use crate::claims::{claim_phase, is_meant_for, name, volume_name};

/// Why a claim has no volume to take a snapshot of, in upstream's words (`getVolumeFromVolumeSnapshot` in
/// `pkg/common-controller/snapshot_controller.go`, `getVolumesFromVolumeGroupSnapshot` in
/// `groupsnapshot_controller_helper.go` there).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimTrouble {
    /// It has no volume yet.
    #[error("the PVC {claim} is not yet bound to a PV, will not attempt to take a {what}")]
    Pending {
        /// The claim.
        claim: String,
        /// What is to be taken.
        what: &'static str,
    },
    /// Its volume does not exist.
    #[error("failed to retrieve PV {0} from the API server: \"persistentvolumes \\\"{0}\\\" not found\"")]
    NoVolume(String),
    /// Its volume belongs to another claim.
    #[error("claim in dataSource not bound or invalid")]
    InvalidBinding,
}

/// The volume of a claim; `what` is to be taken of it.
pub fn volume<'w>(
    claim: &PersistentVolumeClaim,
    what: &'static str,
    world: &'w World,
) -> Result<&'w Arc<PersistentVolume>, ClaimTrouble> {
    if claim_phase(claim) != "Bound" {
        return Err(ClaimTrouble::Pending { claim: name(claim).to_owned(), what });
    }
    let expected = volume_name(claim).unwrap_or_default();
    let volume = world.volumes.named(expected).ok_or_else(|| ClaimTrouble::NoVolume(expected.to_owned()))?;
    match is_meant_for(volume, claim) {
        true => Ok(volume),
        false => Err(ClaimTrouble::InvalidBinding),
    }
}

/// A volume's CSI source.
pub fn csi(volume: &PersistentVolume) -> Option<&CSIPersistentVolumeSource> {
    volume.spec.as_ref()?.csi.as_ref()
}
