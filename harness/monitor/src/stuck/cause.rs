//! Why a volume waits, and what usually helps: a table over the texts that Kubernetes' components emit, and facts that
//! objects show.
//!
//! Upstream: `FailedMount` and `FailedAttachVolume` of kubelet and attach/detach controller, the reasons of the
//! scheduler's plugins (`volumebinding`, `volumezone`, `nodevolumelimits`), `pv_controller.go`, and the errors of
//! external-provisioner (`pkg/controller/controller.go`) and external-attacher (`pkg/controller/csi_handler.go`).

use serde::{Deserialize, Serialize};

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $variant:ident: [$($needle:literal),*], $remedy:literal;)+) => {
        /// The cause of a wait.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Cause { $($(#[doc = $doc])+ $variant,)+ }

        impl Cause {
            /// Every cause.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// What usually helps.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }

            /// Parts of messages, in lower case, by which it is recognized; the first cause that matches is the one.
            const fn texts(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($needle),*],)+ }
            }
        }
    };
}

causes! {
    /// A claim of a class with WaitForFirstConsumer that no pod uses.
    FirstConsumer: [],
        "nothing is wrong: the volume is created when a pod that uses the claim is scheduled";
    /// An object that is being deleted is in use by a pod.
    InUse: [],
        "delete the pods that use the claim, or wait until they end";
    /// A secret that is required to create, attach or mount the volume is missing.
    MissingSecret: ["error getting secret", "failed to get secret", "failed to load secret", "failed to find the secret", "secret \"", "secrets \""],
        "create the secret in the namespace that the message or the StorageClass names, or correct the reference to it";
    /// Another node has a ReadWriteOnce volume.
    MultiAttach: ["multi-attach error"],
        "wait until the pod on the other node has ended; if that node is down for good, taint it with node.kubernetes.io/out-of-service";
    /// The driver is not registered on the node.
    DriverNotOnNode: ["not found in the list of registered csi drivers", "does not contain driver"],
        "check that the driver's DaemonSet has a running pod with node-driver-registrar on this node (tolerations, node selector)";
    /// A ResourceQuota is exhausted.
    Quota: ["exceeded quota"],
        "raise the ResourceQuota of the namespace, or delete claims there";
    /// The node has as many volumes as it can have.
    TooManyVolumes: ["exceed max volume count"],
        "add nodes, or spread the pods: each candidate node has its maximum number of volumes";
    /// The storage has no room.
    NoCapacity: ["did not have enough free storage", "resourceexhausted", "no space left", "insufficient capacity"],
        "add capacity to the storage, request a smaller volume, or permit more nodes: none that fits has room";
    /// The volume cannot be reached from the permitted nodes.
    NodeAffinity: ["volume node affinity conflict", "match persistentvolume's node affinity", "had no available volume zone"],
        "let the pod run where its volume is: compare the volume's nodeAffinity with the pod's node selector and the nodes that are ready";
    /// No existing volume fits, and none is provisioned.
    NoVolume: ["find available persistent volumes to bind", "no persistent volumes available for this claim"],
        "create a matching PersistentVolume, or set a storageClassName with a provisioner";
    /// The storage class does not exist.
    NoClass: ["storageclass.storage.k8s.io \""],
        "create the StorageClass, or create the claim again with an existing one";
    /// The class of a snapshot does not exist, or none is the default of its driver.
    NoSnapshotClass: ["volumesnapshotclass.snapshot.storage.k8s.io \"", "cannot find default snapshot class"],
        "create the VolumeSnapshotClass, or create the snapshot again with an existing one";
    /// The pod's claim does not exist.
    NoClaim: ["persistentvolumeclaim \""],
        "create the claim in the pod's namespace, or correct its name in the pod";
    /// The volume of a claim no longer exists.
    LostVolume: ["lost its persistentvolume", "bound claim has lost"],
        "restore the data to a new claim: the PersistentVolume of this one was deleted";
    /// The node is not ready.
    NodeNotReady: [],
        "repair the node; if it is down for good, taint it with node.kubernetes.io/out-of-service, so that its volumes are detached";
    /// The driver's operation does not finish.
    Timeout: ["deadline exceeded", "deadlineexceeded", "timed out"],
        "look at the log of the driver's pod: its operation did not finish in time";
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
        "check that the controller that owns the finalizer runs; remove the finalizer by hand only if it was uninstalled";
    /// The operation is in progress, and no message names a reason.
    InProgress: [],
        "describe the claim and the pod, and look at the logs of the driver's controller and node pods";
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

    /// The cause that a message names.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        Self::ALL.iter().copied().find(|cause| cause.texts().iter().any(|part| text.contains(part)))
    }

    /// The cause by fact and message.
    pub(super) fn of(hint: Hint, message: Option<&str>) -> Self {
        match hint {
            Hint::Certain(cause) => cause,
            Hint::Fallback(cause) => message.and_then(Self::of_text).unwrap_or(cause),
        }
    }
}
