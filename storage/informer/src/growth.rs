//! The state of a claim's expansion in its status: the interface between the resizer and the node.
//!
//! ```text
//! (none) ──> ControllerResizeInProgress ──> NodeResizePending ──> NodeResizeInProgress ──> (none)
//!                 │                                                    │
//!                 └──> ControllerResizeInfeasible                      └──> NodeResizeInfeasible
//! ```
//!
//! Upstream: KEP-1790 (RecoverVolumeExpansionFailure); `pkg/volume/util/resize_util.go` of Kubernetes and
//! `pkg/util/util.go` of external-resizer.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};

use crate::quantity;

/// The value of `status.allocatedResourceStatuses` for a claim's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// None: no expansion.
    None,
    /// ControllerResizeInProgress.
    ControllerAtWork,
    /// ControllerResizeInfeasible: the driver's controller will never expand to this size.
    ControllerInfeasible,
    /// NodeResizePending.
    NodePending,
    /// NodeResizeInProgress.
    NodeAtWork,
    /// NodeResizeInfeasible: the driver will never expand to this size on the node; the resizer must handle it.
    NodeInfeasible,
}

impl Progress {
    const ALL: [Self; 6] = [
        Self::None,
        Self::ControllerAtWork,
        Self::ControllerInfeasible,
        Self::NodePending,
        Self::NodeAtWork,
        Self::NodeInfeasible,
    ];

    /// The claim's value. An unknown value counts as none.
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let statuses = claim.status.as_ref().and_then(|status| status.allocated_resource_statuses.as_ref());
        let word = statuses.and_then(|statuses| statuses.get("storage")).map_or("", String::as_str);
        Self::ALL.into_iter().find(|progress| progress.name() == word).unwrap_or(Self::None)
    }

    /// The API's value; empty for none.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::ControllerAtWork => "ControllerResizeInProgress",
            Self::ControllerInfeasible => "ControllerResizeInfeasible",
            Self::NodePending => "NodeResizePending",
            Self::NodeAtWork => "NodeResizeInProgress",
            Self::NodeInfeasible => "NodeResizeInfeasible",
        }
    }
}

/// Conditions of a claim's expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Expansion is in progress.
    Resizing,
    /// Expansion on the node is required.
    FileSystemResizePending,
    /// The driver's controller returned an error.
    ControllerResizeError,
    /// The driver returned an error on the node.
    NodeResizeError,
}

impl Condition {
    const ALL: [Self; 4] =
        [Self::Resizing, Self::FileSystemResizePending, Self::ControllerResizeError, Self::NodeResizeError];

    /// The API's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resizing => "Resizing",
            Self::FileSystemResizePending => "FileSystemResizePending",
            Self::ControllerResizeError => "ControllerResizeError",
            Self::NodeResizeError => "NodeResizeError",
        }
    }

    /// Whether the claim has it.
    pub fn holds(self, claim: &PersistentVolumeClaim) -> bool {
        conditions(claim).iter().any(|found| found.type_ == self.name() && found.status == "True")
    }

    fn with(self, message: &str, now: Timestamp) -> PersistentVolumeClaimCondition {
        PersistentVolumeClaimCondition {
            type_: self.name().to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(now)),
            message: (!message.is_empty()).then(|| message.to_owned()),
            ..PersistentVolumeClaimCondition::default()
        }
    }
}

/// Handling of existing expansion conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// Retained.
    Retained,
    /// Removed.
    Dropped,
}

/// The claim's conditions with `new`, which replaces the one of its type. Conditions of other types stay in any
/// case. Upstream: `MergeResizeConditionsOfPVC`.
pub fn with_condition(
    claim: &PersistentVolumeClaim,
    old: Old,
    new: Option<(Condition, &str)>,
    now: Timestamp,
) -> Vec<PersistentVolumeClaimCondition> {
    let mut new = new.map(|(condition, message)| condition.with(message, now));
    let mut result = Vec::new();
    for condition in conditions(claim) {
        let of_growth = Condition::ALL.iter().any(|known| known.name() == condition.type_);
        if new.as_ref().is_some_and(|new| new.type_ == condition.type_) {
            result.extend(new.take());
        } else if !of_growth || old == Old::Retained {
            result.push(condition.clone());
        }
    }
    result.extend(new);
    result
}

fn conditions(claim: &PersistentVolumeClaim) -> &[PersistentVolumeClaimCondition] {
    claim.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// The claim's requested size in bytes; 0 if absent.
pub fn requested(claim: &PersistentVolumeClaim) -> i64 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    storage(resources.and_then(|resources| resources.requests.as_ref())).unwrap_or(0)
}

/// The claim's capacity in bytes; 0 while it is not bound.
pub fn capacity(claim: &PersistentVolumeClaim) -> i64 {
    storage(claim.status.as_ref().and_then(|status| status.capacity.as_ref())).unwrap_or(0)
}

/// The target size of the present or last expansion in bytes; `None` if it was never expanded.
pub fn allocated(claim: &PersistentVolumeClaim) -> Option<i64> {
    storage(claim.status.as_ref().and_then(|status| status.allocated_resources.as_ref()))
}

/// The volume's capacity in bytes; 0 if absent.
pub fn volume_capacity(volume: &PersistentVolume) -> i64 {
    storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref())).unwrap_or(0)
}

fn storage(resources: Option<&std::collections::BTreeMap<String, Quantity>>) -> Option<i64> {
    resources?.get("storage").and_then(quantity::bytes)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;

    use super::*;

    fn claim(conditions: &[&str]) -> PersistentVolumeClaim {
        let conditions = conditions
            .iter()
            .map(|type_| PersistentVolumeClaimCondition {
                type_: (*type_).to_owned(),
                status: "True".to_owned(),
                ..PersistentVolumeClaimCondition::default()
            })
            .collect();
        PersistentVolumeClaim {
            status: Some(PersistentVolumeClaimStatus {
                conditions: Some(conditions),
                ..PersistentVolumeClaimStatus::default()
            }),
            ..PersistentVolumeClaim::default()
        }
    }

    #[test]
    fn conditions_are_replaced_by_type() {
        let resizing = Some((Condition::Resizing, ""));
        for (before, old, new, after) in [
            (&[][..], Old::Dropped, resizing, &["Resizing"][..]),
            (&["NodeResizeError", "Other"], Old::Dropped, resizing, &["Other", "Resizing"]),
            (&["Resizing", "Other"], Old::Retained, resizing, &["Resizing", "Other"]),
            (&["Resizing", "FileSystemResizePending", "Other"], Old::Dropped, None, &["Other"]),
            (
                &["Resizing"],
                Old::Retained,
                Some((Condition::FileSystemResizePending, "wait")),
                &["Resizing", "FileSystemResizePending"],
            ),
        ] {
            let merged = with_condition(&claim(before), old, new, Timestamp::UNIX_EPOCH);
            let types: Vec<_> = merged.iter().map(|condition| condition.type_.as_str()).collect();
            assert_eq!(types, after, "{before:?} {new:?}");
        }
    }

    #[test]
    fn progress_is_read_as_it_is_written() {
        for progress in Progress::ALL {
            let mut claim = claim(&[]);
            claim.status.as_mut().unwrap().allocated_resource_statuses =
                Some([("storage".to_owned(), progress.name().to_owned())].into());
            assert_eq!(Progress::of(&claim), progress);
        }
        assert_eq!(Progress::of(&claim(&[])), Progress::None);
    }
}
