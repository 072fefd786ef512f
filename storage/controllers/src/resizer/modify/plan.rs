//! The next step of a claim with another VolumeAttributesClass than its volume.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::ControllerModifyVolumeRequest;
use claimcheck_informer::{
    World,
    modification::{Condition, Progress, current, expected, target},
};
use claimcheck_model::{Backoff, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, SecretReference},
    storage::v1::VolumeAttributesClass,
};

use crate::{
    provisioner::{MODIFY_SECRET_NAME, MODIFY_SECRET_NAMESPACE, noted_secret},
    resizer::{
        decision::Decision,
        plan::{Pair, SLOW, pair},
    },
    rpc::DriverInfo,
};

/// State of the modifier for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The driver has changed the volume to this class, which is not written yet.
    pub modified: Option<String>,
    /// The last call has failed with a final error, so none is in progress. Before the first call the result of
    /// an earlier process's call is unknown.
    pub refused: bool,
    /// An infeasible class, and the time until which it is not retried.
    pub slow: Option<(String, Timestamp)>,
}

/// Why the driver is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The class does not exist.
    #[error("VAC {0:?} does not exist.")]
    Missing(String),
    /// It belongs to another driver.
    #[error("VAC {class:?} is for driver {driver:?}; name one of this volume's driver.")]
    Foreign {
        /// The class.
        class: String,
        /// Its driver.
        driver: String,
    },
}

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write to the claim that its class does not exist.
    MarkPending(Arc<PersistentVolumeClaim>, Unusable),
    /// Write to the claim that the modification to this class is in progress.
    MarkInProgress(Arc<PersistentVolumeClaim>, String),
    /// Call ControllerModifyVolume.
    Modify {
        /// Claim and volume.
        pair: Pair,
        /// The class.
        class: String,
        /// The request, without secrets.
        request: Box<ControllerModifyVolumeRequest>,
        /// The secret that the request requires.
        secret: Option<SecretReference>,
    },
    /// Write the class to the volume.
    SetVolume(Arc<PersistentVolume>, String),
    /// Write to the claim that its volume has this class.
    MarkModified(Arc<PersistentVolumeClaim>, String),
    /// Clear the claim's modification status.
    Cancel(Arc<PersistentVolumeClaim>),
}

/// How long a class is not retried after its first infeasible call. Upstream requeues the claim with backoff during
/// `--retry-interval-max`, and so calls the driver with the first of these repetitions that comes later
/// (`delayModificationIfRecentlyInfeasible` in `modify_volume.go`, `sync` in `controller.go`). By the next infeasible
/// call the backoff has reached its maximum, which is the same flag.
pub fn first_retry(backoff: Backoff) -> Duration {
    let mut elapsed = Duration::ZERO;
    // More doublings than a delay has bits.
    for failures in 1..=64 {
        if elapsed >= backoff.max {
            break;
        }
        elapsed += backoff.delay(failures);
    }
    elapsed
}

/// Plans the claim with this key. Upstream: `modify` in `modify_volume.go`.
pub fn plan(
    key: &ObjectKey,
    world: &World,
    driver: &DriverInfo,
    known: &Known,
    now: Timestamp,
) -> Decision<Action> {
    let Some((pair, csi)) = pair(key, world, driver) else { return Decision::Rest };
    let Pair { claim, volume } = &pair;
    if let Some(class) = &known.modified {
        let has = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref());
        return Decision::Act(match has == Some(class) {
            false => Action::SetVolume(volume.clone(), class.clone()),
            true => Action::MarkModified(claim.clone(), class.clone()),
        });
    }
    let (expected, progress) = (expected(claim), Progress::of(claim));
    if progress == Progress::None && expected == current(claim) {
        return Decision::Rest;
    }
    let begun = progress == Progress::AtWork;
    if expected.is_empty() && !begun {
        return match Condition::Modifying.holds(claim) {
            true => Decision::Act(Action::Cancel(claim.clone())),
            false => Decision::Rest,
        };
    }
    // What may still go on is brought to an end first.
    let class = if begun && (expected.is_empty() || !known.refused) { target(claim) } else { expected };
    let parameters = match usable(class, world, driver) {
        Ok(found) => found.parameters.clone().unwrap_or_default(),
        Err(_) if progress == Progress::Pending => return Decision::Rest,
        Err(why) => return Decision::Act(Action::MarkPending(claim.clone(), why)),
    };
    if let Some((_, until)) = known.slow.as_ref().filter(|(refused, until)| refused == class && *until > now)
    {
        return Decision::Again(Duration::try_from(*until - now).unwrap_or(SLOW));
    }
    if !begun || target(claim) != class || !Condition::Modifying.holds(claim) {
        return Decision::Act(Action::MarkInProgress(claim.clone(), class.to_owned()));
    }
    let request = ControllerModifyVolumeRequest {
        volume_id: csi.volume_handle.clone(),
        mutable_parameters: parameters,
        ..ControllerModifyVolumeRequest::default()
    };
    let secret = noted_secret(volume, MODIFY_SECRET_NAME, MODIFY_SECRET_NAMESPACE);
    let (class, request) = (class.to_owned(), Box::new(request));
    Decision::Act(Action::Modify { class, request, secret, pair })
}

/// The class with this name, if the driver supports it.
fn usable<'w>(
    name: &str,
    world: &'w World,
    driver: &DriverInfo,
) -> Result<&'w VolumeAttributesClass, Unusable> {
    let class = world.attributes_classes.named(name).ok_or_else(|| Unusable::Missing(name.to_owned()))?;
    if class.driver_name != driver.name {
        let (class, driver) = (name.to_owned(), class.driver_name.clone());
        return Err(Unusable::Foreign { class, driver });
    }
    Ok(class)
}
