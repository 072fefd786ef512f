//! The state of a change of a claim's VolumeAttributesClass, in the claim's status.
//!
//! Upstream: KEP-3751; `pkg/modifycontroller/modify_status.go` of external-resizer.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// The value of `status.modifyVolumeStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// None: its volume has the class in `status.currentVolumeAttributesClassName`.
    None,
    /// Pending: its class does not exist.
    Pending,
    /// InProgress: the driver is being called.
    AtWork,
    /// Infeasible: the driver will never change the volume to that class.
    Infeasible,
}

impl Progress {
    const ALL: [Self; 4] = [Self::None, Self::Pending, Self::AtWork, Self::Infeasible];

    /// The claim's value. An unknown value counts as none.
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let modified = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
        let word = modified.map_or("", |status| status.status.as_str());
        Self::ALL.into_iter().find(|progress| progress.name() == word).unwrap_or(Self::None)
    }

    /// The API's value; empty for none.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Pending => "Pending",
            Self::AtWork => "InProgress",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// The claim's desired class; empty for none.
pub fn expected(claim: &PersistentVolumeClaim) -> &str {
    let class = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    class.unwrap_or_default()
}

/// The current class of its volume; empty for none.
pub fn current(claim: &PersistentVolumeClaim) -> &str {
    let class =
        claim.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.as_deref());
    class.unwrap_or_default()
}

/// The target class of a modification in progress; empty for none.
pub fn target(claim: &PersistentVolumeClaim) -> &str {
    let modified = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
    modified.and_then(|status| status.target_volume_attributes_class_name.as_deref()).unwrap_or_default()
}

/// Conditions of a claim's modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The driver is being called.
    Modifying,
    /// The driver returned an error, or no response.
    Error,
}

impl Condition {
    const ALL: [Self; 2] = [Self::Modifying, Self::Error];

    /// The API's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Modifying => "ModifyingVolume",
            Self::Error => "ModifyVolumeError",
        }
    }

    /// Whether the claim has it.
    pub fn holds(self, claim: &PersistentVolumeClaim) -> bool {
        conditions(claim).iter().any(|found| found.type_ == self.name() && found.status == "True")
    }

    /// The condition, with status True. [`with_conditions`] sets its lastTransitionTime.
    pub fn with(
        self,
        reason: Option<&str>,
        message: String,
        now: Timestamp,
    ) -> PersistentVolumeClaimCondition {
        PersistentVolumeClaimCondition {
            type_: self.name().to_owned(),
            status: "True".to_owned(),
            last_probe_time: Some(Time(now)),
            reason: reason.map(str::to_owned),
            message: Some(message),
            ..PersistentVolumeClaimCondition::default()
        }
    }
}

/// The claim's conditions with `new`, each in place of the one of its type. The lastTransitionTime of a condition that
/// had the same status and reason before is kept. Upstream: `MergePVCConditions` in `pkg/util/util.go`.
pub fn with_conditions(
    claim: &PersistentVolumeClaim,
    new: Vec<PersistentVolumeClaimCondition>,
) -> Vec<PersistentVolumeClaimCondition> {
    let mut merged = conditions(claim).to_vec();
    for mut condition in new {
        let old = merged.iter().position(|old| old.type_ == condition.type_);
        let same = old.map(|index| &merged[index]);
        let same = same.filter(|old| old.status == condition.status && old.reason == condition.reason);
        condition.last_transition_time =
            same.map_or_else(|| condition.last_probe_time.clone(), |old| old.last_transition_time.clone());
        match old {
            Some(index) => merged[index] = condition,
            None => merged.push(condition),
        }
    }
    merged
}

/// The claim's conditions without these.
pub fn without(claim: &PersistentVolumeClaim, deleted: &[Condition]) -> Vec<PersistentVolumeClaimCondition> {
    let deleted =
        |old: &&PersistentVolumeClaimCondition| deleted.iter().any(|deleted| deleted.name() == old.type_);
    conditions(claim).iter().filter(|old| !deleted(old)).cloned().collect()
}

/// The claim's conditions without those of a modification.
pub fn without_all(claim: &PersistentVolumeClaim) -> Vec<PersistentVolumeClaimCondition> {
    without(claim, &Condition::ALL)
}

fn conditions(claim: &PersistentVolumeClaim) -> &[PersistentVolumeClaimCondition] {
    claim.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}
