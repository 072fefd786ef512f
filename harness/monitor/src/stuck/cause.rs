//! Why a volume waits, and what usually helps: a table over the texts that Kubernetes' components emit, and facts that
//! objects show.
//!
//! Upstream: `FailedMount` and `FailedAttachVolume` of kubelet and attach/detach controller, the reasons of the
//! scheduler's plugins (`volumebinding`, `volumezone`, `nodevolumelimits`), `pv_controller.go`, and the errors of
//! external-provisioner (`pkg/controller/controller.go`) and external-attacher (`pkg/controller/csi_handler.go`).
//!
//! A remedy must do no harm if the cause is another one: none removes a finalizer, an attachment or a volume, or
//! deletes by force. The exception is [`Remedy::EndedPod`], which requires facts about each pod of the claim.

use std::collections::BTreeSet;

use claimcheck_model::Phase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $variant:ident: [$($pattern:literal),*], $remedy:literal;)+) => {
        /// The cause of a wait.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Cause { $($(#[doc = $doc])+ $variant,)+ }

        impl Cause {
            /// Every cause.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// What usually helps.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }

            /// Patterns of messages, in lower case, by which it is recognized; the first cause that matches is the one.
            /// `*` is a name, which has no quotes.
            const fn patterns(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($pattern),*],)+ }
            }
        }
    };
}

causes! {
    /// A claim of a class with WaitForFirstConsumer that no pod uses.
    FirstConsumer: [],
        "nothing is wrong: the volume is created when a pod that uses the claim is scheduled";
    /// An object that is being deleted is in use.
    InUse: [],
        "wait until the pods that use the claim have ended: the claim is deleted then, and its volume if the reclaim policy is Delete";
    /// A ResourceQuota is exhausted.
    Quota: ["exceeded quota"],
        "raise the ResourceQuota that the message names";
    /// An account lacks a right.
    Forbidden: ["user \"*\" cannot "],
        "grant the right that the message names to the account that it names";
    /// A secret that is required to create, attach or mount the volume is missing.
    MissingSecret: ["secret \"*\" not found", "secrets \"*\" not found"],
        "create the secret in the namespace that the message or the StorageClass names, or correct the reference to it";
    /// Another node has a ReadWriteOnce volume.
    MultiAttach: ["multi-attach error"],
        "wait until the pod on the other node has ended and the volume is detached there; if that node is not ready, repair it";
    /// The driver is not registered on the node.
    DriverNotOnNode: ["not found in the list of registered csi drivers", "does not contain driver"],
        "check that the driver's DaemonSet has a running pod with node-driver-registrar on this node (tolerations, node selector)";
    /// The node has as many volumes as it can have.
    TooManyVolumes: ["exceed max volume count"],
        "add nodes, or spread the pods: each candidate node has its maximum number of volumes";
    /// The storage has no room.
    NoCapacity: ["did not have enough free storage", "insufficient capacity"],
        "add capacity to the storage, request a smaller volume, or permit more nodes: none that fits has room";
    /// The volume cannot be reached from the permitted nodes.
    NodeAffinity: ["volume node affinity conflict", "match persistentvolume's node affinity", "had no available volume zone"],
        "let the pod run where its volume is: compare the volume's nodeAffinity with the pod's node selector and the nodes that are ready";
    /// No existing volume fits, and none is provisioned.
    NoVolume: ["find available persistent volumes to bind", "no persistent volumes available for this claim"],
        "create a matching PersistentVolume, or a default StorageClass with a provisioner if the claim names none";
    /// The storage class does not exist.
    NoClass: ["storageclass.storage.k8s.io \"*\" not found"],
        "create the StorageClass that the claim names";
    /// The class of a snapshot does not exist, or none is the default of its driver.
    NoSnapshotClass: ["volumesnapshotclass.snapshot.storage.k8s.io \"*\" not found", "cannot find default snapshot class"],
        "create the VolumeSnapshotClass that the snapshot names, or make one the default of its driver";
    /// The pod's claim does not exist.
    NoClaim: ["persistentvolumeclaim \"*\" not found"],
        "create the claim in the pod's namespace, or correct its name in the pod";
    /// The pod's claim is being deleted.
    ClaimDeleted: ["persistentvolumeclaim \"*\" is being deleted"],
        "wait until the claim is deleted, and create it again: no new pod can use it";
    /// Another claim of the pod is not bound.
    UnboundClaim: ["unbound immediate persistentvolumeclaims"],
        "look at the other claims of the pod: one of them is not bound yet";
    /// The volume of a claim no longer exists.
    LostVolume: ["lost its persistentvolume", "bound claim has lost", "bound to non-existent p"],
        "the claim's PersistentVolume was deleted: create it again with its name and volume handle while the storage has the volume, or restore a backup to a new claim";
    /// The node is not ready.
    NodeNotReady: [],
        "repair the node, or restart its kubelet; if it is confirmed to be powered off, follow Non-graceful node shutdown in the documentation of Kubernetes";
    /// The driver's operation does not finish.
    Timeout: ["deadline exceeded", "deadlineexceeded", "timed out"],
        "check that the driver's controller and node pods run, and their logs: an operation did not finish in time";
    /// No provisioner responds.
    NoProvisioner: ["waiting for a volume to be created either by the external provisioner"],
        "check that the driver's external-provisioner runs, and its log: it has not created the volume yet";
    /// No node fits the pod for another reason.
    Unschedulable: ["nodes are available"],
        "the message lists why each node was rejected: correct the pod's requests, affinity or tolerations, or add nodes";
    /// The driver reported another error.
    DriverError: ["rpc error"],
        "look at the log of the driver's pod: the message is the error of its CSI call";
    /// Finalizers hold an object that is being deleted.
    Finalizer: [],
        "check that the controllers that own the finalizers run, and their logs: each releases the object once it is unused and cleaned up; install one again that was uninstalled";
    /// The operation is in progress, and no message names a reason.
    InProgress: [],
        "describe the claim and the pod, and look at the logs of the driver's controller and node pods";
    /// The Events that would name the reason were not read.
    Unknown: [],
        "describe the claim and the pod: their Events, which would name the reason, have not been read";
}

/// A remedy that depends on facts, and not on the cause alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Of a claim that is being deleted: each pod that holds it has ended, on a node that is ready.
    EndedPod,
    /// The same, and each of these pods is being deleted.
    EndingPod,
    /// Of a released volume: it has attachments.
    Attached,
}

impl Remedy {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Self; 3] = [Self::EndedPod, Self::EndingPod, Self::Attached];

    /// The text.
    pub const fn text(self) -> &'static str {
        match self {
            Self::EndedPod => {
                "delete the completed pod or its Job: it has ended, and holds the claim until it no longer exists"
            }
            Self::EndingPod => {
                "check that the controllers that own the finalizers of the completed pod run, and their logs: it holds the claim until it no longer exists"
            }
            Self::Attached => {
                "wait until the volume is detached from the node: it is deleted after that; if nothing detaches it, look at the logs of kube-controller-manager and external-attacher"
            }
        }
    }
}

/// A fact that objects show; decisive ones come before messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// It is the cause, independent of messages.
    Certain(Cause),
    /// It is the cause unless a message names another.
    Fallback(Cause),
}

impl Cause {
    /// Whether it does not end by itself when everything works.
    pub const fn is_abnormal(self) -> bool {
        !matches!(self, Self::FirstConsumer | Self::InUse)
    }

    /// Whether it rests on messages alone: it is not known without them.
    pub(super) const fn requires_messages(self) -> bool {
        matches!(self, Self::NoProvisioner | Self::InProgress)
    }

    /// The cause that a message about a phase names.
    pub(super) fn from_text(phase: Phase, text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        from_scheduler(&text).or_else(|| from_code(phase, &text)).or_else(|| from_pattern(&text))
    }
}

fn from_pattern(text: &str) -> Option<Cause> {
    Cause::ALL.iter().copied().find(|cause| cause.patterns().iter().any(|pattern| matches(text, pattern)))
}

/// The cause of a message of the scheduler, which lists why each node was rejected: if they differ, none of them is the
/// only one. Taints keep pods off some nodes of most clusters, whatever else the reason is.
fn from_scheduler(text: &str) -> Option<Cause> {
    let (_, reasons) = text.split_once("nodes are available: ")?;
    let (reasons, _) = reasons.split_once(". ").unwrap_or((reasons, ""));
    let reasons =
        reasons.trim_end_matches('.').split(", ").filter(|reason| !reason.contains("untolerated taint"));
    let causes: BTreeSet<Option<Cause>> = reasons.map(from_pattern).collect();
    let mut causes = causes.into_iter();
    let only = causes.next().flatten().filter(|_| causes.next().is_none());
    Some(only.unwrap_or(Cause::Unschedulable))
}

/// What a code of the CSI specification means depends on the call: RESOURCE_EXHAUSTED of CreateVolume, an expansion or
/// CreateSnapshot is about capacity, that of ControllerPublishVolume about the number of volumes ("Max volumes
/// attached"). Other calls have no such code.
fn from_code(phase: Phase, text: &str) -> Option<Cause> {
    if !["resourceexhausted", "resource_exhausted"].iter().any(|code| text.contains(code)) {
        return None;
    }
    Some(match phase {
        Phase::Provision
        | Phase::Restore
        | Phase::Clone
        | Phase::ControllerExpand
        | Phase::SnapshotCreate
        | Phase::SnapshotReady => Cause::NoCapacity,
        Phase::Attach => Cause::TooManyVolumes,
        _ => Cause::DriverError,
    })
}

/// Whether a text contains a pattern, in which `*` is a name without quotes.
fn matches(text: &str, pattern: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return text.contains(pattern) };
    text.match_indices(head).any(|(at, _)| {
        let rest = &text[at + head.len()..];
        rest.find('"').is_some_and(|end| rest[end..].starts_with(tail))
    })
}

/// The remedy for a right that an account lacks, as the API server names them: `User "U" cannot V resource "R" in API
/// group "G" in the namespace "N"` (`forbiddenMessage` in apiserver's `responsewriters/errors.go`).
pub(super) fn forbidden(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("User \"")?;
    let (user, rest) = rest.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once("\" in API group \"")?;
    let (group, rest) = rest.split_once('"')?;
    if user.starts_with("system:node:") {
        return Some(format!(
            "correct the reference to {resource} in the pod or the StorageClass: a node may {verb} only what its pods \
             refer to"
        ));
    }
    let scope = rest.strip_prefix(" in the namespace \"").and_then(|rest| rest.split_once('"'));
    let (role, place) = match scope {
        Some((namespace, _)) => ("Role", format!(" in namespace {namespace}")),
        None => ("ClusterRole", String::new()),
    };
    let account = match user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        Some((namespace, name)) => format!("ServiceAccount {namespace}/{name}"),
        None => format!("user {user}"),
    };
    Some(format!(
        "permit {account} to {verb} {resource}{place}: bind a {role} with the rule {{apiGroups: [\"{group}\"], \
         resources: [{resource}], verbs: [{verb}]}} to it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_cause_only_if_it_states_it() {
        for (phase, text, cause) in [
            (Phase::Publish, "secrets \"s\" not found", Some(Cause::MissingSecret)),
            (
                Phase::Publish,
                "failed to find the secret s in the namespace n with error: secrets \"s\" is forbidden: User \"u\" \
                 cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"",
                Some(Cause::Forbidden),
            ),
            (Phase::Provision, "failed to get secret \"s\": connection refused", None),
            (Phase::Publish, "references non-existent secret key: k of secret \"s\"", None),
            (Phase::Schedule, "persistentvolumeclaim \"c\" is being deleted", Some(Cause::ClaimDeleted)),
            (Phase::Schedule, "persistentvolumeclaim \"c\" not found", Some(Cause::NoClaim)),
            (
                Phase::Schedule,
                "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"",
                Some(Cause::LostVolume),
            ),
            (
                Phase::Schedule,
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"c\"",
                None,
            ),
            (Phase::Provision, "storageclasses.storage.k8s.io \"f\" is forbidden: no", None),
            (Phase::Provision, "storageclass.storage.k8s.io \"f\" not found", Some(Cause::NoClass)),
            (Phase::Provision, "rpc error: code = ResourceExhausted desc = x", Some(Cause::NoCapacity)),
            (Phase::Attach, "rpc error: code = ResourceExhausted desc = x", Some(Cause::TooManyVolumes)),
            (Phase::Publish, "rpc error: code = ResourceExhausted desc = x", Some(Cause::DriverError)),
            // The disk of the node.
            (Phase::Publish, "mkdir /var/lib/kubelet/x: no space left on device", None),
        ] {
            assert_eq!(Cause::from_text(phase, text), cause, "{text}");
        }
    }

    #[test]
    fn a_volume_is_the_reason_of_the_scheduler_only_if_it_is_that_of_each_node() {
        for (reasons, cause) in [
            ("3 node(s) had volume node affinity conflict", Cause::NodeAffinity),
            (
                "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 node(s) had volume node \
                 affinity conflict",
                Cause::NodeAffinity,
            ),
            ("1 node(s) had volume node affinity conflict, 2 Insufficient cpu", Cause::Unschedulable),
            ("3 node(s) had untolerated taint {a: b}", Cause::Unschedulable),
            ("3 node(s) did not have enough free storage", Cause::NoCapacity),
            ("pod has unbound immediate PersistentVolumeClaims", Cause::UnboundClaim),
            ("persistentvolumeclaim \"c.d\" not found", Cause::NoClaim),
            ("3 node(s) exceed max volume count", Cause::TooManyVolumes),
            (
                "1 node(s) exceed max volume count, 2 node(s) didn't match Pod's node affinity/selector",
                Cause::Unschedulable,
            ),
        ] {
            let text = format!(
                "0/3 nodes are available: {reasons}. preemption: 0/3 nodes are available: 3 Preemption is not helpful \
                 for scheduling."
            );
            assert_eq!(Cause::from_text(Phase::Schedule, &text), Some(cause), "{text}");
        }
    }

    #[test]
    fn a_missing_right_is_named_with_account_verb_and_resource() {
        let text = |who: &str, scope: &str| {
            format!(
                "secrets \"nope\" is forbidden: User \"{who}\" cannot get resource \"secrets\" in API group \"\" {scope}"
            )
        };
        assert_eq!(
            forbidden(&text("system:serviceaccount:kube-system:csi", "in the namespace \"default\""))
                .as_deref(),
            Some(
                "permit ServiceAccount kube-system/csi to get secrets in namespace default: bind a Role with the rule \
                 {apiGroups: [\"\"], resources: [secrets], verbs: [get]} to it"
            )
        );
        let of_cluster = forbidden(&text("jane", "at the cluster scope")).expect("it is named");
        assert!(
            of_cluster.starts_with("permit user jane to get secrets: bind a ClusterRole"),
            "{of_cluster}"
        );
        let of_node = forbidden(&text("system:node:n", "in the namespace \"d\": no relationship found"));
        assert!(of_node.expect("it is named").starts_with("correct the reference to secrets"));
        assert_eq!(forbidden("pods \"p\" is forbidden: violates PodSecurity"), None);
    }
}
