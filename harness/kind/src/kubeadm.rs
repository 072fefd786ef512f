//! Additional kubeadm configuration: arguments of the controller manager and the kubelets.
//!
//! kubeadm's config has arguments as a map in `v1beta3` and as a list in `v1beta4`; kind writes the latter from
//! Kubernetes 1.36 on (`pkg/cluster/internal/kubeadm/config.go`). A patch names its version, and kind applies it
//! only to a document of that version, so both are written and the matching one takes effect.
//! They are JSON patches, since a merge patch would replace the whole list, including kind's own arguments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::version::{CLASS_PROTECTION, OLDEST_KUBERNETES, Version};

const GROUP: &str = "kubeadm.k8s.io";

/// A patch for the documents of one kind and version: RFC 6902, in YAML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonPatch {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    pub(super) patch: String,
}

/// The format of arguments in a version of kubeadm's config.
#[derive(Clone, Copy)]
enum Flavour {
    /// `v1beta3`: a map.
    Map,
    /// `v1beta4`: a list of names and values.
    List,
}

impl Flavour {
    const ALL: [Self; 2] = [Self::Map, Self::List];

    fn version(self) -> &'static str {
        match self {
            Self::Map => "v1beta3",
            Self::List => "v1beta4",
        }
    }

    /// Adds an argument to the arguments at `place`.
    fn add(self, place: &str, name: &str, value: &str) -> Value {
        match self {
            Self::Map => json!({ "op": "add", "path": format!("{place}/{name}"), "value": value }),
            Self::List => {
                json!({ "op": "add", "path": format!("{place}/-"), "value": { "name": name, "value": value } })
            }
        }
    }
}

/// Adds arguments at a path of all documents of this kind, in any version.
fn patches(kind: &str, place: &str, args: &BTreeMap<String, String>) -> Vec<JsonPatch> {
    if args.is_empty() {
        return Vec::new();
    }
    let patch = |flavour: Flavour| {
        let operations: Vec<_> = args.iter().map(|(name, value)| flavour.add(place, name, value)).collect();
        json_patch(flavour, kind, &operations)
    };
    Flavour::ALL.into_iter().map(patch).collect()
}

fn json_patch(flavour: Flavour, kind: &str, operations: &[Value]) -> JsonPatch {
    JsonPatch {
        group: GROUP.to_owned(),
        version: flavour.version().to_owned(),
        kind: kind.to_owned(),
        patch: serde_saphyr::to_string(&operations).expect("maps with names for keys"),
    }
}

/// Additional arguments of all kubelets: of the first control plane, and of the nodes that join it.
pub(super) fn kubelet_args(args: &BTreeMap<String, String>) -> Vec<JsonPatch> {
    let kinds = ["InitConfiguration", "JoinConfiguration"];
    kinds.iter().flat_map(|kind| patches(kind, "/nodeRegistration/kubeletExtraArgs", args)).collect()
}

/// The interval at which kubelets compute their node status, in seconds, and report it if it has changed.
///
/// By default it is 10 s, and a volume waits for it twice: until the kubelet reads that the volume is attached, and
/// until it has reported it in use (`pkg/kubelet/volumemanager/volume_manager.go`). That would dominate the time of a
/// lifecycle without measuring a driver or a controller.
pub const NODE_STATUS_PERIOD_S: u32 = 1;

/// When they report a status that has not changed, in seconds: the default for the default interval above. With another
/// interval, kubelets would report each status (`pkg/kubelet/apis/config/v1beta1/defaults.go`), which the API server sends
/// to all that watch nodes.
const NODE_STATUS_REPORT_S: u32 = 300;

/// The merge patch of the kubelets' configuration that shortens the period of node status.
pub(super) fn node_status_period() -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         nodeStatusUpdateFrequency: {NODE_STATUS_PERIOD_S}s\nnodeStatusReportFrequency: {NODE_STATUS_REPORT_S}s\n"
    )
}

/// The client-side rate limit and burst of the upstream controller manager. With its default of 20
/// it mostly waits for its own rate limiter when many volumes are created and deleted.
const CLIENT_LIMITS: [(&str, &str); 2] = [("kube-api-qps", "500"), ("kube-api-burst", "1000")];

/// Its limits, raised so that it can be compared with the built-in controllers, which have none.
pub(super) fn client_limits() -> [(String, String); 2] {
    CLIENT_LIMITS.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// A storage controller of `kube-controller-manager`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockController {
    /// Binds volumes and claims.
    Binder,
    /// Attaches and detaches volumes.
    AttachDetach,
    /// Expands in-tree volumes, and leaves CSI volumes to the driver's resizer.
    Expander,
    /// Protects claims while pods use them.
    ClaimProtection,
    /// Protects volumes while they are bound.
    VolumeProtection,
    /// Creates the claims of generic ephemeral volumes.
    EphemeralVolume,
    /// Protects VolumeAttributesClasses while claims or volumes use them.
    ClassProtection,
}

impl StockController {
    /// The controllers that the built-in ones replace, and which must therefore not run at the same time.
    pub const REPLACED: [Self; 7] = [
        Self::Binder,
        Self::AttachDetach,
        Self::Expander,
        Self::ClaimProtection,
        Self::VolumeProtection,
        Self::EphemeralVolume,
        Self::ClassProtection,
    ];

    /// Those of [`REPLACED`](Self::REPLACED) that a controller manager of this version has; of the oldest supported
    /// version if it is unknown. The controller manager exits on an unknown name.
    pub fn replaced_in(version: Option<Version>) -> Vec<Self> {
        let version = version.unwrap_or(OLDEST_KUBERNETES);
        Self::REPLACED.into_iter().filter(|controller| controller.since() <= version).collect()
    }

    /// The first Kubernetes that has it under its current name.
    fn since(self) -> Version {
        match self {
            Self::Binder
            | Self::AttachDetach
            | Self::Expander
            | Self::ClaimProtection
            | Self::VolumeProtection
            | Self::EphemeralVolume => OLDEST_KUBERNETES,
            // kubernetes#123549.
            Self::ClassProtection => CLASS_PROTECTION,
        }
    }

    /// Its name since Kubernetes 1.28 (`cmd/kube-controller-manager/names/controller_names.go`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Binder => "persistentvolume-binder-controller",
            Self::AttachDetach => "persistentvolume-attach-detach-controller",
            Self::Expander => "persistentvolume-expander-controller",
            Self::ClaimProtection => "persistentvolumeclaim-protection-controller",
            Self::VolumeProtection => "persistentvolume-protection-controller",
            Self::EphemeralVolume => "ephemeral-volume-controller",
            Self::ClassProtection => "volumeattributesclass-protection-controller",
        }
    }
}

/// The value of the controller manager's `--controllers` that disables these.
///
/// kubeadm enables two that are disabled by default, without which no node can join; setting the argument replaces
/// its value (`cmd/kubeadm/app/phases/controlplane/manifests.go`), so they are included again.
fn controllers_without(stock: &[StockController]) -> String {
    let on = ["*", "bootstrap-signer-controller", "token-cleaner-controller"].map(str::to_owned);
    let off = stock.iter().map(|controller| format!("-{}", controller.name()));
    on.into_iter().chain(off).collect::<Vec<_>>().join(",")
}

/// The argument that selects controllers.
pub(super) const CONTROLLERS: &str = "controllers";
/// The argument with the controller manager's bind address.
pub(super) const BIND_ADDRESS: &str = "bind-address";

/// Additional arguments of the controller manager, by name.
pub(super) fn manager_args(args: &BTreeMap<String, String>) -> Vec<JsonPatch> {
    patches("ClusterConfiguration", "/controllerManager/extraArgs", args)
}

/// The argument about leader election.
pub(super) const LEADER_ELECT: &str = "leader-elect";

/// A single controller manager has no other one to take over: without leader election it does not exit on a busy machine,
/// where it cannot renew its lease in time, and one that was killed does not wait for the lease of its predecessor.
pub(super) fn alone() -> [(String, String); 1] {
    [(LEADER_ELECT.to_owned(), "false".to_owned())]
}

/// The same for the scheduler, in place of all arguments that its section has.
pub(super) fn scheduler_alone() -> Vec<JsonPatch> {
    let args: BTreeMap<String, String> = alone().into();
    let patch = |flavour: Flavour| {
        let args = match flavour {
            Flavour::Map => json!(args),
            Flavour::List => {
                args.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
            }
        };
        let operation = json!({ "op": "add", "path": "/scheduler", "value": { "extraArgs": args } });
        json_patch(flavour, "ClusterConfiguration", &[operation])
    };
    Flavour::ALL.into_iter().map(patch).collect()
}

/// Disables these controllers.
pub(super) fn without(stock: &[StockController]) -> [(String, String); 1] {
    [(CONTROLLERS.to_owned(), controllers_without(stock))]
}

/// Its metrics can be read through the API server's proxy, which connects to the node's address and forwards no
/// token; kubeadm binds it to the loopback address only. So every pod, and anyone with access to the engine's network,
/// can read them without a token: not for a cluster that outlives its run.
pub(super) fn readable(any_address: &str) -> [(String, String); 2] {
    [
        (BIND_ADDRESS.to_owned(), any_address.to_owned()),
        ("authorization-always-allow-paths".to_owned(), "/healthz,/readyz,/livez,/metrics".to_owned()),
    ]
}

/// The first of these lists of patches, if any, that sets this argument of the controller manager.
///
/// Invalid YAML is left to kind to report.
pub(super) fn names_argument(name: &str, merged: &[String], json: &[JsonPatch]) -> Option<&'static str> {
    let of_manager = |document: &Value| {
        document["kind"] == "ClusterConfiguration" && mentions(&document["controllerManager"], name)
    };
    let merges = |text: &String| {
        let documents = serde_saphyr::from_multiple::<Value>(text).unwrap_or_default();
        documents.iter().any(of_manager)
    };
    if merged.iter().any(merges) {
        return Some("kubeadmConfigPatches");
    }
    let operates = |operation: &Value| {
        let path = operation["path"].as_str().unwrap_or_default();
        path.starts_with("/controllerManager")
            && (path.rsplit('/').next() == Some(name) || mentions(&operation["value"], name))
    };
    let patched = |patch: &JsonPatch| {
        let operations = serde_saphyr::from_str::<Vec<Value>>(&patch.patch).unwrap_or_default();
        patch.kind == "ClusterConfiguration" && operations.iter().any(operates)
    };
    json.iter().any(patched).then_some("kubeadmConfigPatchesJSON6902")
}

/// Whether it contains an argument of this name, as a key or as an entry of a list.
fn mentions(value: &Value, argument: &str) -> bool {
    match value {
        Value::Object(map) => {
            map.contains_key(argument)
                || map.get("name").is_some_and(|name| name == argument)
                || map.values().any(|value| mentions(value, argument))
        }
        Value::Array(list) => list.iter().any(|value| mentions(value, argument)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
