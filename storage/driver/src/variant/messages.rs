//! The fields of messages that variants write differently from the driver: ids, tokens and contexts. A caller sees them
//! in all messages as the variant writes them, and the driver as it writes them itself.

use std::collections::BTreeMap;

use claimcheck_csi::v1::{self, volume_content_source::Type as Source};
use tonic::codegen::BoxStream;

use super::{Variant, Variants};
use crate::{
    fields::{MAX_MAP, MAX_STRING},
    id::{GroupId, SnapshotId, VolumeId},
};

/// Fills a text up to its maximum length; no id and no token contains it.
const FILLER: char = '=';
/// The beginning of ids with slashes.
const FOLDER: &str = "projects/claimcheck/";
/// The key that fills a volume_context up to its maximum size.
const CONTEXT_KEY: &str = "filler";

/// A field of a message.
#[derive(Debug)]
pub(super) enum Field<'a> {
    /// The id of a volume, a snapshot or a group.
    Id(&'a mut String),
    Node(&'a mut String),
    Token(&'a mut String),
    Context(&'a mut BTreeMap<String, String>),
}

/// A message with fields that variants write differently.
pub(super) trait Message {
    /// These fields.
    fn fields(&mut self) -> Vec<Field<'_>>;

    /// The id that the driver derives from the name in a request.
    fn named(&self) -> Option<String> {
        None
    }
}

/// Messages that consist of single fields.
macro_rules! messages {
    ($($message:ident { $($kind:ident($field:ident))* })*) => {
        $(impl Message for v1::$message {
            fn fields(&mut self) -> Vec<Field<'_>> {
                vec![$(Field::$kind(&mut self.$field)),*]
            }
        })*
    };
}

messages! {
    GetPluginInfoRequest {}
    GetPluginInfoResponse {}
    GetPluginCapabilitiesRequest {}
    GetPluginCapabilitiesResponse {}
    ProbeRequest {}
    ProbeResponse {}
    DeleteVolumeRequest { Id(volume_id) }
    DeleteVolumeResponse {}
    ControllerPublishVolumeRequest { Id(volume_id) Node(node_id) Context(volume_context) }
    ControllerPublishVolumeResponse {}
    ControllerUnpublishVolumeRequest { Id(volume_id) Node(node_id) }
    ControllerUnpublishVolumeResponse {}
    ValidateVolumeCapabilitiesRequest { Id(volume_id) Context(volume_context) }
    ListVolumesRequest { Token(starting_token) }
    GetCapacityRequest {}
    GetCapacityResponse {}
    ControllerGetCapabilitiesRequest {}
    ControllerGetCapabilitiesResponse {}
    DeleteSnapshotRequest { Id(snapshot_id) }
    DeleteSnapshotResponse {}
    ListSnapshotsRequest { Id(snapshot_id) Id(source_volume_id) Token(starting_token) }
    GetSnapshotRequest { Id(snapshot_id) }
    ControllerExpandVolumeRequest { Id(volume_id) }
    ControllerExpandVolumeResponse {}
    ControllerGetVolumeRequest { Id(volume_id) }
    ControllerModifyVolumeRequest { Id(volume_id) }
    ControllerModifyVolumeResponse {}
    GroupControllerGetCapabilitiesRequest {}
    GroupControllerGetCapabilitiesResponse {}
    DeleteVolumeGroupSnapshotResponse {}
    GetMetadataAllocatedRequest { Id(snapshot_id) }
    GetMetadataDeltaRequest { Id(base_snapshot_id) Id(target_snapshot_id) }
    NodeStageVolumeRequest { Id(volume_id) Context(volume_context) }
    NodeStageVolumeResponse {}
    NodeUnstageVolumeRequest { Id(volume_id) }
    NodeUnstageVolumeResponse {}
    NodePublishVolumeRequest { Id(volume_id) Context(volume_context) }
    NodePublishVolumeResponse {}
    NodeUnpublishVolumeRequest { Id(volume_id) }
    NodeUnpublishVolumeResponse {}
    NodeGetVolumeStatsRequest { Id(volume_id) }
    NodeGetVolumeStatsResponse {}
    NodeExpandVolumeRequest { Id(volume_id) }
    NodeExpandVolumeResponse {}
    NodeGetCapabilitiesRequest {}
    NodeGetCapabilitiesResponse {}
    NodeGetInfoRequest {}
    NodeGetInfoResponse { Node(node_id) }
}

impl<T> Message for BoxStream<T> {
    fn fields(&mut self) -> Vec<Field<'_>> {
        Vec::new()
    }
}

impl Message for v1::CreateVolumeRequest {
    fn fields(&mut self) -> Vec<Field<'_>> {
        source_field(self.volume_content_source.as_mut()).into_iter().collect()
    }

    fn named(&self) -> Option<String> {
        Some(VolumeId::from_name(&self.name).to_string())
    }
}

impl Message for v1::CreateVolumeResponse {
    fn fields(&mut self) -> Vec<Field<'_>> {
        volume_fields(self.volume.as_mut())
    }
}

impl Message for v1::ControllerGetVolumeResponse {
    fn fields(&mut self) -> Vec<Field<'_>> {
        let nodes = self.status.iter_mut().flat_map(|status| &mut status.published_node_ids);
        volume_fields(self.volume.as_mut()).into_iter().chain(nodes.map(Field::Node)).collect()
    }
}

impl Message for v1::ListVolumesResponse {
    fn fields(&mut self) -> Vec<Field<'_>> {
        let mut fields = vec![Field::Token(&mut self.next_token)];
        for entry in &mut self.entries {
            let nodes = entry.status.iter_mut().flat_map(|status| &mut status.published_node_ids);
            fields.extend(nodes.map(Field::Node));
            fields.extend(volume_fields(entry.volume.as_mut()));
        }
        fields
    }
}

impl Message for v1::ValidateVolumeCapabilitiesResponse {
    fn fields(&mut self) -> Vec<Field<'_>> {
        self.confirmed.iter_mut().map(|confirmed| Field::Context(&mut confirmed.volume_context)).collect()
    }
}

impl Message for v1::CreateSnapshotRequest {
    fn fields(&mut self) -> Vec<Field<'_>> {
        vec![Field::Id(&mut self.source_volume_id)]
    }

    fn named(&self) -> Option<String> {
        Some(SnapshotId::from_name(&self.name).to_string())
    }
}

impl Message for v1::CreateSnapshotResponse {
    fn fields(&mut self) -> Vec<Field<'_>> {
        snapshot_fields(self.snapshot.as_mut())
    }
}

impl Message for v1::GetSnapshotResponse {
    fn fields(&mut self) -> Vec<Field<'_>> {
        snapshot_fields(self.snapshot.as_mut())
    }
}

impl Message for v1::ListSnapshotsResponse {
    fn fields(&mut self) -> Vec<Field<'_>> {
        let mut fields = vec![Field::Token(&mut self.next_token)];
        fields.extend(self.entries.iter_mut().flat_map(|entry| snapshot_fields(entry.snapshot.as_mut())));
        fields
    }
}

impl Message for v1::CreateVolumeGroupSnapshotRequest {
    fn fields(&mut self) -> Vec<Field<'_>> {
        self.source_volume_ids.iter_mut().map(Field::Id).collect()
    }

    fn named(&self) -> Option<String> {
        Some(GroupId::from_name(&self.name).to_string())
    }
}

/// Messages about a group.
macro_rules! groups {
    (requests: $($request:ident)*; responses: $($response:ident)*) => {
        $(impl Message for v1::$request {
            fn fields(&mut self) -> Vec<Field<'_>> {
                let group = Field::Id(&mut self.group_snapshot_id);
                std::iter::once(group).chain(self.snapshot_ids.iter_mut().map(Field::Id)).collect()
            }
        })*
        $(impl Message for v1::$response {
            fn fields(&mut self) -> Vec<Field<'_>> {
                let Some(group) = &mut self.group_snapshot else { return Vec::new() };
                let mut fields = vec![Field::Id(&mut group.group_snapshot_id)];
                fields.extend(group.snapshots.iter_mut().flat_map(|snapshot| snapshot_fields(Some(snapshot))));
                fields
            }
        })*
    };
}

groups! {
    requests: DeleteVolumeGroupSnapshotRequest GetVolumeGroupSnapshotRequest;
    responses: CreateVolumeGroupSnapshotResponse GetVolumeGroupSnapshotResponse
}

fn source_field(source: Option<&mut v1::VolumeContentSource>) -> Option<Field<'_>> {
    Some(match source?.r#type.as_mut()? {
        Source::Snapshot(of) => Field::Id(&mut of.snapshot_id),
        Source::Volume(of) => Field::Id(&mut of.volume_id),
    })
}

fn volume_fields(volume: Option<&mut v1::Volume>) -> Vec<Field<'_>> {
    let Some(v1::Volume { volume_id, volume_context, content_source, .. }) = volume else {
        return Vec::new();
    };
    let fields = [Field::Id(volume_id), Field::Context(volume_context)];
    fields.into_iter().chain(source_field(content_source.as_mut())).collect()
}

fn snapshot_fields(snapshot: Option<&mut v1::Snapshot>) -> Vec<Field<'_>> {
    let Some(v1::Snapshot { snapshot_id, source_volume_id, group_snapshot_id, .. }) = snapshot else {
        return Vec::new();
    };
    vec![Field::Id(snapshot_id), Field::Id(source_volume_id), Field::Id(group_snapshot_id)]
}

impl Variants {
    /// Writes a field of a response as callers see it.
    pub(super) fn outward(&self, field: Field<'_>) {
        match field {
            // An empty field is not set.
            Field::Id(text) | Field::Node(text) | Field::Token(text) if text.is_empty() => {}
            Field::Id(id) => {
                if self.has(Variant::IdsWithSlashes) {
                    id.insert_str(0, FOLDER);
                }
                if self.has(Variant::LongestIds) {
                    fill(id);
                }
            }
            Field::Node(node) => *node = self.node_id(node),
            Field::Token(token) => {
                if self.has(Variant::LongestTokens) {
                    fill(token);
                }
            }
            Field::Context(context) if context.is_empty() => {}
            Field::Context(context) => {
                if self.has(Variant::VolumeContextUnset) {
                    context.clear();
                }
                if self.has(Variant::LongestVolumeContext) {
                    let used: usize = context.iter().map(|(key, value)| key.len() + value.len()).sum();
                    let rest = MAX_MAP.saturating_sub(used + CONTEXT_KEY.len());
                    context.insert(CONTEXT_KEY.to_owned(), "x".repeat(rest));
                }
            }
        }
    }

    /// Writes a field of a request as the driver sees it. What no caller can have from this driver stays as it is.
    pub(super) fn inward(&self, field: Field<'_>) {
        match field {
            Field::Id(id) => {
                if self.has(Variant::LongestIds) {
                    empty(id);
                }
                if self.has(Variant::IdsWithSlashes)
                    && let Some(rest) = id.strip_prefix(FOLDER)
                {
                    *id = rest.to_owned();
                }
            }
            Field::Node(node) => {
                if self.has(Variant::LongestNodeId) {
                    empty(node);
                }
            }
            Field::Token(token) => {
                if self.has(Variant::LongestTokens) {
                    empty(token);
                }
            }
            Field::Context(context) => {
                if self.has(Variant::LongestVolumeContext) {
                    context.remove(CONTEXT_KEY);
                }
            }
        }
    }

    /// The id of a node as callers see it.
    pub(super) fn node_id(&self, id: &str) -> String {
        let mut id = id.to_owned();
        if self.has(Variant::LongestNodeId) {
            fill(&mut id);
        }
        id
    }
}

fn fill(text: &mut String) {
    text.extend(std::iter::repeat_n(FILLER, MAX_STRING.saturating_sub(text.len())));
}

fn empty(text: &mut String) {
    if text.len() == MAX_STRING {
        text.truncate(text.trim_end_matches(FILLER).len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "vol-0123456789abcdef0123456789abcdef";

    fn written(variants: &Variants, text: &str) -> String {
        let mut text = text.to_owned();
        variants.outward(Field::Id(&mut text));
        text
    }

    #[test]
    fn ids_come_back_as_the_driver_wrote_them() {
        let both = [Variant::LongestIds, Variant::IdsWithSlashes];
        for variants in [&both[..1], &both[1..], &both] {
            let variants = Variants::new(variants.iter().copied());
            let mut id = written(&variants, ID);
            assert_ne!(id, ID);
            variants.inward(Field::Id(&mut id));
            assert_eq!(id, ID);
            assert_eq!(written(&variants, ""), "");
            let mut unknown = "x".repeat(MAX_STRING);
            variants.inward(Field::Id(&mut unknown));
            assert_eq!(unknown, "x".repeat(MAX_STRING));
        }
        assert_eq!(written(&Variants::new(both), ID).len(), MAX_STRING);
    }

    #[test]
    fn a_context_is_as_large_as_permitted() {
        let variants = Variants::new([Variant::LongestVolumeContext]);
        let context = BTreeMap::from([("kind".to_owned(), "image".to_owned())]);
        let mut long = context.clone();
        variants.outward(Field::Context(&mut long));
        assert_eq!(long.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>(), MAX_MAP);
        variants.inward(Field::Context(&mut long));
        assert_eq!(long, context);
    }
}
