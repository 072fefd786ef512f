//! The next step of a claim that asks for more than it has.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, controller_service_capability::rpc::Type as Rpc,
};
use claimcheck_informer::{
    PodBy, World,
    growth::{self, Condition, Progress},
    is_terminal,
};
use claimcheck_model::{ObjectKey, PRE_RESIZE_CAPACITY};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, SecretReference,
};

use super::decision::Decision;
use crate::{
    claims::{annotation, claim_phase, claim_ref, name, ref_uid, volume_name},
    rpc::{AccessModeError, DriverInfo, access_mode, volume_capability},
};

/// How long a size that the driver will never give is not asked for again, unless the claim asks for another.
/// Upstream: `--retry-interval-max`.
pub const SLOW: Duration = Duration::from_secs(300);

/// What the resizer knows of a claim beyond its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The driver has grown the volume, and that is not written down yet.
    pub grown: Option<Grown>,
    /// What the last call that failed means; none after one that did not.
    pub failed: Option<Refusal>,
    /// The bytes that the driver will never give, and until when it is not asked for them again.
    pub slow: Option<(i64, Timestamp)>,
}

/// What the driver made of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The volume's bytes.
    pub bytes: i64,
    /// The node has to act.
    pub node: bool,
}

/// What a failed call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody knows whether it still goes on: the same must be asked again.
    Uncertain,
    /// Nothing goes on any more; it may do so later.
    Final,
    /// Not while somebody uses the volume.
    InUse,
    /// Never.
    Infeasible,
}

/// A claim and its volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The volume.
    pub volume: Arc<PersistentVolume>,
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write to the claim that the driver is being asked for these bytes.
    MarkInProgress {
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
        /// The bytes.
        bytes: i64,
        /// They are others than before: what was said of those is void.
        anew: bool,
    },
    /// Have the driver grow the volume.
    Expand {
        /// Claim and volume.
        pair: Pair,
        /// What to ask, without secrets; none if the driver's controller does not do that.
        request: Option<Box<ControllerExpandVolumeRequest>>,
        /// The bytes.
        bytes: i64,
        /// The secret that the request needs.
        secret: Option<SecretReference>,
    },
    /// Say that the driver wants the volume unused, and that it is used.
    RefuseInUse(Arc<PersistentVolumeClaim>),
    /// Write the volume's new size to the volume.
    RaiseVolume {
        /// Claim and volume.
        pair: Pair,
        /// What came of it.
        grown: Grown,
    },
    /// Write to the claim that the node has to act.
    MarkNodePending(Arc<PersistentVolumeClaim>),
    /// Write to the claim that it has these bytes.
    MarkFinished(Arc<PersistentVolumeClaim>, i64),
    /// Take from the volume what it was before: the node has done its part.
    ForgetOldSize(Arc<PersistentVolume>),
    /// Say why no call can be made, and look again later.
    Fail(Pair, AccessModeError),
}

/// Plans the claim of this key.
pub fn plan(
    key: &ObjectKey,
    world: &World,
    driver: &DriverInfo,
    known: &Known,
    now: Timestamp,
) -> Decision<Action> {
    let Some((pair, csi)) = pair(key, world, driver) else { return Decision::Rest };
    let Pair { claim, volume } = &pair;
    if let Some(grown) = known.grown {
        let claim = claim.clone();
        return Decision::Act(if growth::volume_capacity(volume) < grown.bytes {
            Action::RaiseVolume { pair, grown }
        } else if grown.node {
            Action::MarkNodePending(claim)
        } else {
            Action::MarkFinished(claim, grown.bytes)
        });
    }
    if growth::capacity(claim) >= growth::volume_capacity(volume)
        && annotation(&**volume, PRE_RESIZE_CAPACITY).is_some()
    {
        return Decision::Act(Action::ForgetOldSize(volume.clone()));
    }
    if growth::requested(claim) <= growth::capacity(claim) {
        return Decision::Rest;
    }
    let Some(bytes) = size(claim, volume, driver, known) else { return Decision::Rest };
    let anew = growth::allocated(claim) != Some(bytes);
    if let Some((_, until)) = known.slow.filter(|(refused, until)| *refused == bytes && *until > now) {
        return Decision::Again(Duration::try_from(until - now).unwrap_or(SLOW));
    }
    if anew || !Condition::Resizing.holds(claim) {
        return Decision::Act(Action::MarkInProgress { claim: claim.clone(), bytes, anew });
    }
    if known.failed == Some(Refusal::InUse) && is_used(key, world) {
        return Decision::Act(Action::RefuseInUse(claim.clone()));
    }
    let request = driver.can(Rpc::ExpandVolume).then(|| request(volume, csi, bytes, driver)).transpose();
    Decision::Act(match request {
        Err(error) => Action::Fail(pair, error),
        Ok(request) => {
            let secret = csi.controller_expand_secret_ref.clone();
            Action::Expand { request: request.map(Box::new), bytes, secret, pair: pair.clone() }
        }
    })
}

/// A bound claim and its volume, if that is one of the driver's.
pub(super) fn pair<'w>(
    key: &ObjectKey,
    world: &'w World,
    driver: &DriverInfo,
) -> Option<(Pair, &'w CSIPersistentVolumeSource)> {
    let claim = world.claims.get(key).filter(|claim| claim_phase(claim) == "Bound")?;
    let volume = world.volumes.named(volume_name(claim)?)?;
    let csi = volume.spec.as_ref()?.csi.as_ref().filter(|csi| csi.driver == driver.name)?;
    let bound = claim_ref(volume).and_then(ref_uid) == claim.metadata.uid.as_deref();
    bound.then(|| (Pair { claim: claim.clone(), volume: volume.clone() }, csi))
}

/// The size to ask for; none while it is the node's turn.
///
/// What was begun is first brought to an end, whatever the claim asks for by now, unless the driver has said
/// that nothing goes on any more. Upstream: `expandAndRecover`.
fn size(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    driver: &DriverInfo,
    known: &Known,
) -> Option<i64> {
    let (requested, has) = (growth::requested(claim), growth::volume_capacity(volume));
    let begun = growth::allocated(claim).unwrap_or(requested);
    if has < requested {
        return match Progress::of(claim) {
            Progress::NodeInfeasible => Some(begun),
            Progress::NodePending | Progress::NodeAtWork => (has < begun).then_some(begun),
            Progress::ControllerAtWork if known.failed.is_some_and(Refusal::is_final) => Some(requested),
            Progress::ControllerAtWork => Some(begun),
            Progress::None | Progress::ControllerInfeasible => Some(requested),
        };
    }
    match Progress::of(claim) {
        Progress::NodePending | Progress::NodeAtWork => None,
        Progress::NodeInfeasible if !driver.can(Rpc::ExpandVolume) => Some(requested),
        Progress::NodeInfeasible
        | Progress::ControllerAtWork
        | Progress::ControllerInfeasible
        | Progress::None => Some(begun),
    }
}

impl Refusal {
    /// The driver has answered, and does nothing any more.
    pub fn is_final(self) -> bool {
        self != Self::Uncertain
    }
}

/// Whether a pod that has not ended mounts the claim. Upstream: `inuse_pvc_store.go`.
fn is_used(key: &ObjectKey, world: &World) -> bool {
    world.pods.by(PodBy::Claim, &key.to_string()).any(|pod| !is_terminal(pod))
}

fn request(
    volume: &PersistentVolume,
    csi: &CSIPersistentVolumeSource,
    bytes: i64,
    driver: &DriverInfo,
) -> Result<ControllerExpandVolumeRequest, AccessModeError> {
    let spec = volume.spec.clone().unwrap_or_default();
    let modes = spec.access_modes.unwrap_or_default();
    let mode = access_mode(&modes, driver.can(Rpc::SingleNodeMultiWriter))?;
    let block = spec.volume_mode.as_deref() == Some("Block");
    let fs_type = csi.fs_type.as_deref().unwrap_or_default();
    let mount_options = spec.mount_options.unwrap_or_default();
    Ok(ControllerExpandVolumeRequest {
        volume_id: csi.volume_handle.clone(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capability: Some(volume_capability(mode, block, fs_type, &mount_options)),
        ..ControllerExpandVolumeRequest::default()
    })
}

/// The claim in words, for events.
pub fn words(claim: &PersistentVolumeClaim) -> String {
    ObjectKey::new(claim.metadata.namespace.clone().unwrap_or_default(), name(claim)).to_string()
}
