//! The tap's records of an RPC: one when it starts, one when it ends.

use std::sync::atomic::{AtomicU64, Ordering};

use claimcheck_model::Stamp;
use serde::{Deserialize, Serialize};
use tonic::Code;

use super::code;

/// Identifies an RPC; equal in its start and end records.
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

/// The edge of the RPC: start or end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "edge", rename_all = "snake_case")]
pub enum CallEdge {
    /// The request is about to be sent.
    Start,
    /// The caller is about to receive the result.
    End {
        /// The status code that the caller receives, by its gRPC name in JSON (`OK`, `DeadlineExceeded`).
        #[serde(with = "code")]
        code: Code,
        /// The beginning of a failure's status message, with the secrets and tokens of the request removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// A fault was injected, so that the call failed independent of the driver.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        injected: bool,
    },
}

/// One line of the tap.
///
/// Facts that the RPC does not have, or that are not known yet, are `None` (and absent from the JSON).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapRecord {
    /// The time, by the clocks of the calling process.
    pub at: Stamp,
    /// The RPC.
    pub id: CallId,
    /// Start or end, and the result.
    #[serde(flatten)]
    pub edge: CallEdge,
    /// The caller, e.g. `provisioner` or `node/<name>`.
    pub component: String,
    /// The full method, e.g. `/csi.v1.Node/NodeStageVolume`.
    pub method: String,
    /// The driver's name, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The volume's id; for CreateVolume only at a successful end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// The name in the CreateVolume request, `pvc-<uid of the claim>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// The driver's node id in ControllerPublishVolume and ControllerUnpublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The path on the node: staging path of stage and unstage, target path of publish and unpublish,
    /// volume path of the other node calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl TapRecord {
    /// The method without its service, e.g. `NodeStageVolume`.
    pub fn rpc(&self) -> &str {
        self.method.rsplit('/').next().unwrap_or_default()
    }

    /// The status code of an end record.
    pub fn code(&self) -> Option<Code> {
        match self.edge {
            CallEdge::Start => None,
            CallEdge::End { code, .. } => Some(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_flat_line_of_json() {
        let record = TapRecord {
            at: Stamp { mono_ns: 1, wall_ns: 2 },
            id: CallId { pid: 7, seq: 3 },
            edge: CallEdge::End {
                code: Code::NotFound,
                message: Some("no such volume".into()),
                injected: false,
            },
            component: "attacher".into(),
            method: "/csi.v1.Controller/ControllerPublishVolume".into(),
            driver: None,
            volume_id: Some("v1".into()),
            volume_name: None,
            node: Some("n1".into()),
            target: None,
        };
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(
            line,
            r#"{"at":{"mono_ns":1,"wall_ns":2},"id":{"pid":7,"seq":3},"edge":"end","code":"NotFound","message":"no such volume","component":"attacher","method":"/csi.v1.Controller/ControllerPublishVolume","volume_id":"v1","node":"n1"}"#
        );
        assert_eq!(serde_json::from_str::<TapRecord>(&line).unwrap(), record);
        assert_eq!((record.rpc(), record.code()), ("ControllerPublishVolume", Some(Code::NotFound)));
    }
}
