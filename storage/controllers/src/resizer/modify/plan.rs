//! The next step of a claim that names another attributes class than its volume has.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::ControllerModifyVolumeRequest;
use claimcheck_informer::{
    World,
    modification::{Condition, Progress, current, target, wanted},
};
use claimcheck_model::ObjectKey;
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

/// What the modifier knows of a claim beyond its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The driver has given the volume this class, and that is not written down yet.
    pub modified: Option<String>,
    /// The driver has answered the last call, with an error, and does nothing any more. Before the first call it is
    /// unknown what one of an earlier process came to.
    pub refused: bool,
    /// The class that the driver will never give, and until when it is not asked for it again.
    pub slow: Option<(String, Timestamp)>,
}

/// Why there is nothing to ask the driver for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no such class.
    #[error("VAC {0:?} does not exist.")]
    Missing(String),
    /// It is meant for other volumes.
    #[error("VAC {class:?} is for driver {driver:?}; name one of this volume's driver.")]
    Foreign {
        /// The class.
        class: String,
        /// Whose it is.
        driver: String,
    },
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write to the claim that the class that it names is not there.
    MarkPending(Arc<PersistentVolumeClaim>, Unusable),
    /// Write to the claim that the driver is being asked for this class.
    MarkInProgress(Arc<PersistentVolumeClaim>, String),
    /// Have the driver modify the volume.
    Modify {
        /// Claim and volume.
        pair: Pair,
        /// The class.
        class: String,
        /// What to ask, without secrets.
        request: Box<ControllerModifyVolumeRequest>,
        /// The secret that the request needs.
        secret: Option<SecretReference>,
    },
    /// Write the class to the volume.
    SetVolume(Arc<PersistentVolume>, String),
    /// Write to the claim that its volume has this class.
    MarkModified(Arc<PersistentVolumeClaim>, String),
    /// Write to the claim that nothing is asked for any more.
    Cancel(Arc<PersistentVolumeClaim>),
}

/// Plans the claim of this key. Upstream: `modify` in `modify_volume.go`.
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
    let (wanted, progress) = (wanted(claim), Progress::of(claim));
    if progress == Progress::None && wanted == current(claim) {
        return Decision::Rest;
    }
    let begun = progress == Progress::AtWork;
    if wanted.is_empty() && !begun {
        return match Condition::Modifying.holds(claim) {
            true => Decision::Act(Action::Cancel(claim.clone())),
            false => Decision::Rest,
        };
    }
    // What may still go on is brought to an end first.
    let class = if begun && (wanted.is_empty() || !known.refused) { target(claim) } else { wanted };
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

/// The class of this name, if the driver can be asked for it.
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
