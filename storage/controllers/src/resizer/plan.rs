//! The next step of a claim that requests more than its capacity.

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

/// How long an infeasible size or class is not retried, unless the claim requests another. Upstream:
/// `--retry-interval-max`, and its default.
pub const SLOW: Duration = Duration::from_secs(300);

/// State of the resizer for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The driver has expanded the volume, which is not written yet.
    pub grown: Option<Grown>,
    /// The consequence of the last failed call; `None` after success.
    pub failed: Option<Refusal>,
    /// An infeasible size in bytes, and the time until which it is not retried.
    pub slow: Option<(i64, Timestamp)>,
}

/// The driver's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The volume's size in bytes.
    pub bytes: i64,
    /// Expansion on the node is required.
    pub node: bool,
}

/// The consequence of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It may still be in progress: the same call must be repeated.
    Uncertain,
    /// No call is in progress; it may be retried later.
    Final,
    /// The volume is in use, and the driver supports offline expansion only.
    InUse,
    /// Infeasible.
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

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write to the claim that an expansion to this size is in progress. Without recovery: the condition alone.
    MarkInProgress {
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
        /// The size in bytes.
        bytes: i64,
        /// It differs from the previous size, or follows its end: conditions of that are cleared.
        restart: bool,
    },
    /// Call ControllerExpandVolume.
    Expand {
        /// Claim and volume.
        pair: Pair,
        /// The request, without secrets; `None` if the driver's controller does not expand.
        request: Option<Box<ControllerExpandVolumeRequest>>,
        /// The size in bytes.
        bytes: i64,
        /// The secret that the request requires.
        secret: Option<SecretReference>,
    },
    /// Emit an event that the driver supports offline expansion only and the volume is in use.
    RefuseInUse(Arc<PersistentVolumeClaim>),
    /// Write the volume's new size to the volume.
    RaiseVolume {
        /// Claim and volume.
        pair: Pair,
        /// The response.
        grown: Grown,
    },
    /// Write to the claim that expansion on the node is pending.
    MarkNodePending(Arc<PersistentVolumeClaim>),
    /// Write this capacity to the claim.
    MarkFinished(Arc<PersistentVolumeClaim>, i64),
    /// Remove the volume's pre-resize annotation: the node has expanded it.
    ForgetOldSize(Arc<PersistentVolume>),
    /// Emit an event why no call can be made, and retry later.
    Fail(Pair, AccessModeError),
}

/// Plans the claim with this key; `recovers` is the feature gate RecoverVolumeExpansionFailure.
pub fn plan(
    key: &ObjectKey,
    world: &World,
    driver: &DriverInfo,
    known: &Known,
    recovers: bool,
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
    let (bytes, restart) = if recovers {
        let Some(bytes) = size(claim, volume, driver, known) else { return Decision::Rest };
        (bytes, growth::allocated(claim) != Some(bytes))
    } else {
        let Some(bytes) = size_without_recovery(claim, volume) else { return Decision::Rest };
        (bytes, AFTER_RESIZING.iter().any(|condition| condition.holds(claim)))
    };
    if let Some((_, until)) = known.slow.filter(|(refused, until)| *refused == bytes && *until > now) {
        return Decision::Again(Duration::try_from(until - now).unwrap_or(SLOW));
    }
    if restart || !Condition::Resizing.holds(claim) {
        return Decision::Act(Action::MarkInProgress { claim: claim.clone(), bytes, restart });
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

/// A bound claim and its volume, if that belongs to the driver.
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

/// The size to request; `None` while the node must act.
///
/// An expansion in progress is completed first, whatever size the claim requests by now, unless the driver has
/// returned a final error. Upstream: `expandAndRecover`.
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

/// The conditions of a claim that another attempt without recovery replaces by that of its own.
const AFTER_RESIZING: [Condition; 3] =
    [Condition::FileSystemResizePending, Condition::ControllerResizeError, Condition::NodeResizeError];

/// The size to request with RecoverVolumeExpansionFailure=false: always what the claim requests by now; `None` while the
/// node must act. Upstream: `pvNeedResize` in `pkg/controller/controller.go`.
fn size_without_recovery(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<i64> {
    let requested = growth::requested(claim);
    let is_expanded = growth::volume_capacity(volume) >= requested;
    (!is_expanded || !Condition::FileSystemResizePending.holds(claim)).then_some(requested)
}

impl Refusal {
    /// Whether the driver's error is final, so that no call is in progress.
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

/// The claim's name in events.
pub fn words(claim: &PersistentVolumeClaim) -> String {
    ObjectKey::new(claim.metadata.namespace.clone().unwrap_or_default(), name(claim)).to_string()
}
