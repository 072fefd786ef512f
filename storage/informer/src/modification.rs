//! How far a claim's volume is on its way to another VolumeAttributesClass, as the claim's status tells.
//!
//! Upstream: KEP-3751; `pkg/modifycontroller/modify_status.go` of external-resizer.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// What `status.modifyVolumeStatus` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing: its volume has the class that `status.currentVolumeAttributesClassName` names.
    None,
    /// The class that it names is not there.
    Pending,
    /// The driver is asked.
    AtWork,
    /// The driver will never give it that class.
    Infeasible,
}

impl Progress {
    const ALL: [Self; 4] = [Self::None, Self::Pending, Self::AtWork, Self::Infeasible];

    /// What the claim says. A word that nobody knows counts as none.
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let modified = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
        let word = modified.map_or("", |status| status.status.as_str());
        Self::ALL.into_iter().find(|progress| progress.name() == word).unwrap_or(Self::None)
    }

    /// The API's word for it; empty for none.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Pending => "Pending",
            Self::AtWork => "InProgress",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// The class that the claim names; empty for none.
pub fn wanted(claim: &PersistentVolumeClaim) -> &str {
    let class = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    class.unwrap_or_default()
}

/// The class that its volume has; empty for none.
pub fn current(claim: &PersistentVolumeClaim) -> &str {
    let class =
        claim.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.as_deref());
    class.unwrap_or_default()
}

/// The class that its volume is on the way to; empty for none.
pub fn target(claim: &PersistentVolumeClaim) -> &str {
    let modified = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
    modified.and_then(|status| status.target_volume_attributes_class_name.as_deref()).unwrap_or_default()
}

/// Conditions of claims that tell of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The driver is asked.
    Modifying,
    /// The driver refused, or did not answer.
    Error,
}

impl Condition {
    const ALL: [Self; 2] = [Self::Modifying, Self::Error];

    /// The API's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Modifying => "ModifyingVolume",
            Self::Error => "ModifyVolumeError",
        }
    }

    /// Whether it holds for the claim.
    pub fn holds(self, claim: &PersistentVolumeClaim) -> bool {
        conditions(claim).iter().any(|found| found.type_ == self.name() && found.status == "True")
    }

    /// The condition, holding.
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

/// The claim's conditions with `new` among them, each in place of the one of its type. Upstream:
/// `MergePVCConditions`.
pub fn with_conditions(
    claim: &PersistentVolumeClaim,
    new: Vec<PersistentVolumeClaimCondition>,
) -> Vec<PersistentVolumeClaimCondition> {
    let replaced = |old: &&PersistentVolumeClaimCondition| new.iter().any(|new| new.type_ == old.type_);
    let kept = conditions(claim).iter().filter(|old| !replaced(old)).cloned();
    kept.collect::<Vec<_>>().into_iter().chain(new).collect()
}

/// The claim's conditions without these.
pub fn without(claim: &PersistentVolumeClaim, gone: &[Condition]) -> Vec<PersistentVolumeClaimCondition> {
    let gone = |old: &&PersistentVolumeClaimCondition| gone.iter().any(|gone| gone.name() == old.type_);
    conditions(claim).iter().filter(|old| !gone(old)).cloned().collect()
}

/// The claim's conditions without any that tells of modification.
pub fn without_all(claim: &PersistentVolumeClaim) -> Vec<PersistentVolumeClaimCondition> {
    without(claim, &Condition::ALL)
}

fn conditions(claim: &PersistentVolumeClaim) -> &[PersistentVolumeClaimCondition] {
    claim.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}
