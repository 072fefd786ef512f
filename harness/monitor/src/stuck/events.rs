//! Which Events explain a wait: those of an object that its phase is about, with a reason that its phase can have, since
//! its start. An earlier one is about an earlier phase.
//!
//! Reasons: `pkg/kubelet/events/event.go`, `pkg/controller/volume/events/event.go`, the scheduler (`FailedScheduling`),
//! external-provisioner and sig-storage-lib-external-provisioner (`Provisioning`, `ProvisioningFailed`,
//! `VolumeFailedDelete`), external-resizer (`pkg/util/events.go`).

use claimcheck_model::Phase;
use jiff::{SignedDuration, Timestamp};

use super::{InvolvedKind, Message};

/// The reason of the Event by which external-provisioner reports that it has started.
pub(super) const PROVISIONING: &str = "Provisioning";

/// How much earlier than the start of a phase its Event may be: Events have whole seconds, and components their clocks.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// Whether Events of a kind of object can be about a phase.
pub(super) fn concerns(kind: InvolvedKind, phase: Phase) -> bool {
    match phase {
        Phase::Provision | Phase::Restore | Phase::Clone | Phase::Bind | Phase::ControllerExpand => {
            kind == InvolvedKind::Claim
        }
        Phase::Schedule
        | Phase::Attach
        | Phase::Stage
        | Phase::Publish
        | Phase::Start
        | Phase::Stop
        | Phase::Unpublish
        | Phase::Unstage => kind == InvolvedKind::Pod,
        Phase::NodeExpand => matches!(kind, InvolvedKind::Pod | InvolvedKind::Claim),
        // Its controllers emit none.
        Phase::Detach => false,
        Phase::Delete => kind == InvolvedKind::Volume,
        Phase::SnapshotCreate | Phase::SnapshotReady => kind == InvolvedKind::Snapshot,
    }
}

/// The phases that Events of a reason are about; none if it is not known, as of a vendor's controller.
fn phases(reason: &str) -> Option<&'static [Phase]> {
    Some(match reason {
        PROVISIONING
        | "ProvisioningFailed"
        | "ProvisioningSucceeded"
        | "ProvisioningCleanupFailed"
        | "ExternalProvisioning"
        | "WaitForFirstConsumer"
        | "WaitForPodScheduled" => &[Phase::Provision, Phase::Restore, Phase::Clone],
        "FailedBinding" | "VolumeMismatch" | "ClaimMisbound" | "ClaimLost" => &[Phase::Bind],
        "FailedScheduling" => &[Phase::Schedule],
        "FailedAttachVolume" => &[Phase::Attach],
        // Of kubelet, also while it waits for the attachment.
        "FailedMount" | "FailedMapVolume" => {
            &[Phase::Attach, Phase::Stage, Phase::Publish, Phase::Start, Phase::NodeExpand]
        }
        "Killing" | "FailedKillPod" | "FailedPreStopHook" => &[Phase::Stop, Phase::Unpublish, Phase::Unstage],
        "Resizing" | "ExternalExpanding" | "FileSystemResizeRequired" => &[Phase::ControllerExpand],
        "VolumeResizeFailed" => &[Phase::ControllerExpand, Phase::NodeExpand],
        "FileSystemResizeFailed" => &[Phase::NodeExpand],
        "VolumeFailedDelete" | "VolumeDelete" => &[Phase::Delete],
        _ => return None,
    })
}

/// Whether an Event explains why a volume waits in a phase since then.
pub(super) fn explains(message: &Message, phase: Phase, since: Option<Timestamp>, volume: &str) -> bool {
    let is_of_phase = match phases(&message.reason) {
        Some(phases) => phases.contains(&phase),
        // Only its time shows what it is about.
        None => since.is_some(),
    };
    let is_since = since.is_none_or(|since| message.at.saturating_add(TOLERANCE).is_ok_and(|at| at >= since));
    is_of_phase && is_since && !(phase == Phase::Attach && names_another(&message.text, volume))
}

/// Whether a message of the attach/detach controller or kubelet is about another volume of the pod: `AttachVolume.Attach
/// failed for volume "NAME"`.
fn names_another(text: &str, volume: &str) -> bool {
    let named = text.split_once(" for volume \"").and_then(|(_, rest)| rest.split_once('"'));
    named.is_some_and(|(name, _)| name != volume)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_explains_its_own_phase_since_its_start() {
        let at = |second| Timestamp::from_second(second).expect("it is in range");
        let message = |reason: &str, second, text: &str| Message {
            at: at(second),
            is_warning: true,
            reason: reason.into(),
            text: text.into(),
        };
        let other = "AttachVolume.Attach failed for volume \"other\" : rpc error";
        let own = "AttachVolume.Attach failed for volume \"v\" : rpc error";
        for (message, phase, expected) in [
            (message("ProvisioningFailed", 100, ""), Phase::Provision, true),
            (message("ProvisioningFailed", 99, ""), Phase::Provision, true),
            (message("ProvisioningFailed", 97, ""), Phase::Provision, false),
            (message("ProvisioningFailed", 200, ""), Phase::Delete, false),
            (message("FailedMount", 200, ""), Phase::Unpublish, false),
            (message("FailedAttachVolume", 200, own), Phase::Attach, true),
            (message("FailedAttachVolume", 200, other), Phase::Attach, false),
            (message("FailedAttachVolume", 200, own), Phase::Publish, false),
            (message("VendorSays", 200, ""), Phase::Publish, true),
            (message("VendorSays", 20, ""), Phase::Publish, false),
        ] {
            let reason = (&message.reason, phase, message.at);
            assert_eq!(explains(&message, phase, Some(at(100)), "v"), expected, "{reason:?}");
        }
        assert!(explains(&message("Resizing", 1, ""), Phase::ControllerExpand, None, "v"));
        assert!(!explains(&message("VendorSays", 1, ""), Phase::ControllerExpand, None, "v"));
    }
}
