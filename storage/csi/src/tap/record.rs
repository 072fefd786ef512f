//! The tap's record of an RPC: written when it starts, and again, with its result, when it ends.

use std::sync::atomic::{AtomicU64, Ordering};

use claimcheck_model::{CsiMethod, RpcMethod, Stamp};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use tonic::Code;

use super::code;

/// Identifies an RPC; equal whenever it is recorded.
///
/// Unique among the processes of one PID namespace; across namespaces only together with the component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The calling process.
    pub pid: u32,
    /// Number of the call in that process, from 1.
    pub seq: u64,
}

impl CallId {
    /// The next id of this process.
    pub(super) fn next() -> Self {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        Self { pid: std::process::id(), seq: CALLS.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// A CSI call, and one line of the tap.
///
/// It is recorded twice: first without an end, then with it. So a call has ended in every record with an end, and
/// other records only show which calls are in progress. Facts that the RPC does not have, or that are not known yet,
/// are `None` (and absent from the JSON).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapRecord {
    /// The RPC.
    pub id: CallId,
    /// The caller, e.g. `provisioner` or `node/<name>`.
    pub component: String,
    /// The method; in JSON its full path, e.g. `/csi.v1.Node/NodeStageVolume`.
    #[serde(serialize_with = "as_path")]
    pub method: RpcMethod,
    /// The driver's name, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The volume's id; for CreateVolume only at a successful end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// The name in the CreateVolume request, `pvc-<uid of the claim>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// The claim of CreateVolume as `/namespace/name/`, for faults alone: the built-in provisioner says it to the tap, others
    /// in the parameters with `--extra-create-metadata`. Of NodePublishVolume of an inline volume the pod, `/namespace/pod name/`.
    #[serde(skip)]
    pub claim: Option<String>,
    /// The driver's node id in ControllerPublishVolume and ControllerUnpublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The path on the node: staging path of stage and unstage, target path of publish and unpublish,
    /// volume path of the other node calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What the request carries, without secrets and tokens, in the record of the start if a rule asks for it ([`FaultAction::Record`](super::FaultAction::Record)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    /// When the request was about to be sent, by the clocks of the calling process.
    pub start: Stamp,
    /// The end and result; `None` while the call is in progress, and for good if its caller was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<CallEnd>,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnd {
    /// When the caller was about to receive the result.
    pub at: Stamp,
    /// The status code that the caller receives, by its gRPC name in JSON (`OK`, `DeadlineExceeded`).
    #[serde(with = "code")]
    pub code: Code,
    /// The beginning of a failure's status message, with the secrets and tokens of the request removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A fault was injected, so that the call failed independent of the driver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub injected: bool,
}

impl CallEnd {
    /// A call that returned `code` at a time, without an injected fault.
    pub fn new(at: Stamp, code: Code) -> Self {
        Self { at, code, message: None, injected: false }
    }
}

impl TapRecord {
    /// A call that starts, without further facts.
    pub fn started(
        id: CallId,
        component: impl Into<String>,
        method: impl Into<RpcMethod>,
        start: Stamp,
    ) -> Self {
        Self {
            id,
            component: component.into(),
            method: method.into(),
            driver: None,
            volume_id: None,
            volume_name: None,
            claim: None,
            node: None,
            target: None,
            request: None,
            start,
            end: None,
        }
    }

    /// The driver's name; empty if it is unknown.
    pub fn driver(&self) -> &str {
        self.driver.as_deref().unwrap_or_default()
    }

    /// The volume handle; for CreateVolume the requested name, for DeleteSnapshot and GetSnapshot the snapshot
    /// handle. Empty if the call has none.
    pub fn volume(&self) -> &str {
        let volume = if self.method == CsiMethod::CreateVolume { &self.volume_name } else { &self.volume_id };
        volume.as_deref().unwrap_or_default()
    }

    /// The name of the calling node; for ControllerPublishVolume and ControllerUnpublishVolume the node id of the
    /// request. Empty if the call has none.
    pub fn node(&self) -> &str {
        // A tap on a node records controller calls, too, if one process serves both.
        let here = self.component.strip_prefix("node/").filter(|_| self.method.is_node());
        self.node.as_deref().or(here).unwrap_or_default()
    }

    /// The path on the node; empty if the call has none.
    pub fn target(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }

    /// The status code, once it has ended.
    pub fn code(&self) -> Option<Code> {
        self.end.as_ref().map(|end| end.code)
    }

    /// When it succeeded; none if it did not.
    pub fn succeeded(&self) -> Option<Stamp> {
        self.end.as_ref().filter(|end| end.code == Code::Ok).map(|end| end.at)
    }

    /// Whether it failed because of an injected fault, which is not the driver's failure.
    pub fn is_injected(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.injected)
    }
}

fn as_path<S: Serializer>(method: &RpcMethod, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CallId = CallId { pid: 7, seq: 3 };

    #[test]
    fn a_record_is_one_flat_line_of_json() {
        let start = Stamp { mono_ns: 1, wall_ns: 2 };
        let record = TapRecord {
            volume_id: Some("v1".into()),
            node: Some("n1".into()),
            ..TapRecord::started(ID, "attacher", CsiMethod::ControllerPublishVolume, start)
        };
        let line = r#"{"id":{"pid":7,"seq":3},"component":"attacher","method":"/csi.v1.Controller/ControllerPublishVolume","volume_id":"v1","node":"n1","start":{"mono_ns":1,"wall_ns":2}}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), line);
        assert_eq!(serde_json::from_str::<TapRecord>(line).unwrap(), record);

        let at = Stamp { mono_ns: 3, wall_ns: 4 };
        let end = CallEnd { message: Some("no such volume".into()), ..CallEnd::new(at, Code::NotFound) };
        let ended = TapRecord { end: Some(end), ..record };
        let end = r#","end":{"at":{"mono_ns":3,"wall_ns":4},"code":"NotFound","message":"no such volume"}}"#;
        let line = format!("{}{end}", &line[..line.len() - 1]);
        assert_eq!(serde_json::to_string(&ended).unwrap(), line);
        assert_eq!(serde_json::from_str::<TapRecord>(&line).unwrap(), ended);
        assert_eq!((ended.code(), ended.succeeded()), (Some(Code::NotFound), None));
    }

    #[test]
    fn volume_and_node_are_those_of_the_request_or_of_the_caller() {
        let (id, name, node) = (Some("v1".to_owned()), Some("pvc-1".to_owned()), Some("id-1".to_owned()));
        let call = |component: &str, method: &str, node| TapRecord {
            volume_id: id.clone(),
            volume_name: name.clone(),
            node,
            ..TapRecord::started(ID, component, method, Stamp::default())
        };
        for (call, volume, node) in [
            // The id is that of the response: the claim's volume is identified by the requested name.
            (call("provisioner", "CreateVolume", None), "pvc-1", ""),
            (call("attacher", "ControllerPublishVolume", node.clone()), "v1", "id-1"),
            (call("node/n1", "ControllerPublishVolume", node), "v1", "id-1"),
            (call("node/n1", "NodeStageVolume", None), "v1", "n1"),
            (call("node/n1", "/csi.v1.Node/NodeFromTheFuture", None), "v1", "n1"),
            (call("node/n1", "DeleteVolume", None), "v1", ""),
            (call("provisioner", "DeleteVolume", None), "v1", ""),
        ] {
            assert_eq!((call.volume(), call.node()), (volume, node), "{call:?}");
        }
    }
}
