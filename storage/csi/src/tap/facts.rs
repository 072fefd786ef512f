//! Extracts the fields of a record from the messages on the wire: volume, node, path.
//!
//! One table defines them for all of CSI. Working on the encoded messages keeps callers independent of it: they
//! use the plain generated clients, and the tap cannot be forgotten. The second decoding costs about a
//! microsecond per call.

use std::collections::BTreeMap;

use claimcheck_model::{CsiMethod, RpcMethod};
use prost::Message;
use serde_json::Value;

use super::service::ForClaim;
use crate::v1;

/// Fields of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The volume's id or, in calls about an existing snapshot or group of snapshots, that one's.
    pub(super) volume_id: Option<String>,
    pub(super) volume_name: Option<String>,
    pub(super) claim: Option<String>,
    pub(super) node: Option<String>,
    pub(super) target: Option<String>,
    /// The values of the request's secrets and tokens, only to remove them from messages.
    pub(super) secrets: Vec<String>,
}

/// Fields of a successful response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResponseField {
    /// The id from CreateVolume.
    VolumeId(String),
    /// The driver's name.
    DriverName(String),
}

/// One line per request: the RPC, its message, the fields, and the maps with secrets if it has any.
macro_rules! requests {
    ($($rpc:ident $message:ident { $($fact:ident: $field:ident),* } $([$($map:ident),+])?;)*) => {
        /// Whether a request of this RPC has fields to extract.
        fn is_listed(rpc: CsiMethod) -> bool {
            matches!(rpc, $(CsiMethod::$rpc)|*)
        }

        fn read(rpc: CsiMethod, message: &[u8]) -> Option<Facts> {
            match rpc {
                $(CsiMethod::$rpc => {
                    let message = v1::$message::decode(message).ok()?;
                    Some(Facts {
                        $($fact: present(message.$field),)*
                        $(secrets: [$(sensitive(stringify!($map), message.$map)),+].concat(),)?
                        ..Facts::default()
                    })
                })*
                _ => None,
            }
        }

        #[cfg(test)]
        const SECRET_MESSAGES: &[&str] = &[$($(requests!(@name $message $($map)+),)?)*];
    };
    (@name $message:ident secrets $($map:ident)?) => { stringify!($message) };
}

requests! {
    CreateVolume CreateVolumeRequest { volume_name: name } [secrets];
    DeleteVolume DeleteVolumeRequest { volume_id: volume_id } [secrets];
    ControllerPublishVolume
        ControllerPublishVolumeRequest { volume_id: volume_id, node: node_id } [secrets];
    ControllerUnpublishVolume
        ControllerUnpublishVolumeRequest { volume_id: volume_id, node: node_id } [secrets];
    ValidateVolumeCapabilities
        ValidateVolumeCapabilitiesRequest { volume_id: volume_id } [secrets];
    ControllerGetVolume ControllerGetVolumeRequest { volume_id: volume_id };
    ControllerModifyVolume ControllerModifyVolumeRequest { volume_id: volume_id } [secrets];
    ControllerExpandVolume ControllerExpandVolumeRequest { volume_id: volume_id } [secrets];
    CreateSnapshot CreateSnapshotRequest { volume_id: source_volume_id } [secrets];
    DeleteSnapshot DeleteSnapshotRequest { volume_id: snapshot_id } [secrets];
    ListSnapshots ListSnapshotsRequest { volume_id: source_volume_id } [secrets];
    GetSnapshot GetSnapshotRequest { volume_id: snapshot_id } [secrets];
    CreateVolumeGroupSnapshot CreateVolumeGroupSnapshotRequest {} [secrets];
    DeleteVolumeGroupSnapshot DeleteVolumeGroupSnapshotRequest { volume_id: group_snapshot_id } [secrets];
    GetVolumeGroupSnapshot GetVolumeGroupSnapshotRequest { volume_id: group_snapshot_id } [secrets];
    GetMetadataAllocated GetMetadataAllocatedRequest {} [secrets];
    GetMetadataDelta GetMetadataDeltaRequest {} [secrets];
    NodeStageVolume
        NodeStageVolumeRequest { volume_id: volume_id, target: staging_target_path } [secrets];
    NodeUnstageVolume NodeUnstageVolumeRequest { volume_id: volume_id, target: staging_target_path };
    NodePublishVolume
        NodePublishVolumeRequest { volume_id: volume_id, target: target_path } [secrets, volume_context];
    NodeUnpublishVolume NodeUnpublishVolumeRequest { volume_id: volume_id, target: target_path };
    NodeGetVolumeStats NodeGetVolumeStatsRequest { volume_id: volume_id, target: volume_path };
    NodeExpandVolume NodeExpandVolumeRequest { volume_id: volume_id, target: volume_path } [secrets];
}

/// The key of the service account tokens of a pod, which the kubelet passes in the volume context (KEP-1855) or in the
/// secrets (KEP-5538). Upstream: `podServiceAccountTokenAttrs` in `pkg/volume/csi/csi_mounter.go`.
pub(super) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Whether the request of this method has fields to extract. All of CSI's requests are single messages.
pub(super) fn reads_request(method: &RpcMethod) -> bool {
    method.csi().is_some_and(is_listed)
}

/// Whether the response of this method has fields to extract.
pub(super) fn reads_response(method: &RpcMethod) -> bool {
    matches!(method.csi(), Some(CsiMethod::CreateVolume | CsiMethod::GetPluginInfo))
}

/// The fields of the request body; none if it cannot be parsed.
pub(super) fn request_facts(method: &RpcMethod, body: &[u8]) -> Facts {
    let Some((rpc, message)) = method.csi().zip(unframed(body)) else { return Facts::default() };
    let facts = read(rpc, message).unwrap_or_default();
    let claim = match rpc {
        CsiMethod::CreateVolume => claim(message),
        CsiMethod::NodePublishVolume => pod(message),
        _ => None,
    };
    Facts { claim, ..facts }
}

/// The pod of a CSI inline volume, which has no claim, as the kubelet passes it if the CSIDriver has podInfoOnMount.
fn pod(message: &[u8]) -> Option<String> {
    let context = v1::NodePublishVolumeRequest::decode(message).ok()?.volume_context;
    let of = |key: &str| context.get(&format!("csi.storage.k8s.io/{key}"));
    let is_inline = of("ephemeral").is_some_and(|value| value == "true");
    is_inline.then(|| Some(format!("/{}/pod {}/", of("pod.namespace")?, of("pod.name")?))).flatten()
}

/// The claim in the parameters of CreateVolume.
fn claim(message: &[u8]) -> Option<String> {
    let parameters = v1::CreateVolumeRequest::decode(message).ok()?.parameters;
    let of = |key: &str| parameters.get(&format!("csi.storage.k8s.io/pvc/{key}")).cloned();
    Some(ForClaim { namespace: of("namespace")?, name: of("name")? }.text())
}

/// The fields of the response body.
pub(super) fn response_field(method: &RpcMethod, body: &[u8]) -> Option<ResponseField> {
    let message = unframed(body)?;
    match method.csi()? {
        CsiMethod::CreateVolume => {
            let volume = v1::CreateVolumeResponse::decode(message).ok()?.volume?;
            present(volume.volume_id).map(ResponseField::VolumeId)
        }
        CsiMethod::GetPluginInfo => {
            let info = v1::GetPluginInfoResponse::decode(message).ok()?;
            present(info.name).map(ResponseField::DriverName)
        }
        _ => None,
    }
}

/// The sensitive values of one of a request's maps: all secrets, and the tokens wherever they are.
fn sensitive(map: &str, values: BTreeMap<String, String>) -> Vec<String> {
    let values = values.into_iter().filter(|(key, _)| map == "secrets" || key == TOKENS);
    let all = values.flat_map(|(key, value)| {
        let mut all = if key == TOKENS { tokens(&value) } else { Vec::new() };
        all.push(value);
        all
    });
    all.filter(|value| !value.is_empty()).collect()
}

/// The tokens in the value of [`TOKENS`], a JSON object by audience: a driver may quote one of them alone.
fn tokens(value: &str) -> Vec<String> {
    let by_audience: BTreeMap<String, Value> = serde_json::from_str(value).unwrap_or_default();
    by_audience.values().filter_map(|token| token["token"].as_str()).map(str::to_owned).collect()
}

/// The message behind gRPC's prefix: a compression flag and four bytes of length.
fn unframed(body: &[u8]) -> Option<&[u8]> {
    let (&[compressed, a, b, c, d], rest) = body.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    if compressed == 0 { rest.get(..length) } else { None }
}

fn present(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &impl Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[0][..], &length, &bytes].concat()
    }

    #[test]
    fn every_request_with_secrets_in_the_proto_is_in_the_table() {
        let proto = include_str!("../../proto/csi.proto");
        let in_proto: Vec<&str> = proto
            .split("\nmessage ")
            .skip(1)
            .filter(|text| text.split("\n}").next().unwrap().contains(" secrets ="))
            .map(|text| text.split_whitespace().next().unwrap())
            .collect();
        assert_eq!(in_proto.len(), proto.matches(" secrets =").count());
        for message in in_proto {
            assert!(SECRET_MESSAGES.contains(&message), "{message}");
        }
    }

    #[test]
    fn volume_node_and_path_are_read_from_requests() {
        let publish = v1::ControllerPublishVolumeRequest {
            volume_id: "v".into(),
            node_id: "n".into(),
            ..Default::default()
        };
        let facts = request_facts(&CsiMethod::ControllerPublishVolume.into(), &framed(&publish));
        let expected = Facts { volume_id: Some("v".into()), node: Some("n".into()), ..Facts::default() };
        assert_eq!(facts, expected);

        let publish = v1::NodePublishVolumeRequest {
            volume_id: "v".into(),
            staging_target_path: "/staging".into(),
            target_path: "/target".into(),
            ..Default::default()
        };
        let facts = request_facts(&CsiMethod::NodePublishVolume.into(), &framed(&publish));
        let expected =
            Facts { volume_id: Some("v".into()), target: Some("/target".into()), ..Facts::default() };
        assert_eq!(facts, expected);
    }

    #[test]
    fn new_volume_and_driver_are_read_from_responses() {
        let volume = v1::Volume { volume_id: "v".into(), ..Default::default() };
        let created = framed(&v1::CreateVolumeResponse { volume: Some(volume) });
        let learned = response_field(&CsiMethod::CreateVolume.into(), &created);
        assert_eq!(learned, Some(ResponseField::VolumeId("v".into())));
        assert_eq!(response_field(&CsiMethod::DeleteVolume.into(), &created), None);
    }

    #[test]
    fn an_unreadable_message_yields_nothing() {
        let whole = framed(&v1::DeleteVolumeRequest { volume_id: "volume".into(), ..Default::default() });
        let method = RpcMethod::Csi(CsiMethod::DeleteVolume);
        assert!(request_facts(&method, &whole).volume_id.is_some());
        let mut compressed = whole.clone();
        compressed[0] = 1;
        for body in [&[][..], &whole[..3], &whole[..8], &compressed] {
            assert_eq!(request_facts(&method, body), Facts::default());
        }
        assert_eq!(request_facts(&"/other.v1.Service/DeleteVolume".into(), &whole), Facts::default());
    }

    #[test]
    fn the_tokens_of_a_pod_are_secrets_wherever_they_are() {
        let json = r#"{"vault":{"token":"t0ken","expirationTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let map = |entries: &[(&str, &str)]| {
            entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
        };
        let publish = |secrets, volume_context| {
            let request = v1::NodePublishVolumeRequest { secrets, volume_context, ..Default::default() };
            request_facts(&CsiMethod::NodePublishVolume.into(), &framed(&request)).secrets
        };
        let all = ["t0ken", json];
        assert_eq!(publish(map(&[]), map(&[(TOKENS, json), ("storage", "fast")])), all);
        assert_eq!(publish(map(&[(TOKENS, json), ("key", "s")]), map(&[])), [&all[..], &["s"]].concat());
        // Whatever the caller has put there is not repeated.
        assert_eq!(publish(map(&[]), map(&[(TOKENS, "t0ken"), ("a", "")])), ["t0ken"]);
    }
}
