//! ListVolumes, ControllerGetVolume, GetCapacity and ValidateVolumeCapabilities: the read-only calls.

use claimcheck_csi::v1::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, GetCapacityRequest, GetCapacityResponse,
    ListVolumesRequest, ListVolumesResponse, Topology, TopologyRequirement,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, controller_get_volume_response,
    list_volumes_response::{Entry, VolumeStatus},
    validate_volume_capabilities_response::Confirmed,
};

use super::{
    create::{context, describe},
    page::page,
};
use crate::{
    access::Access,
    capability::{Capabilities, Capability},
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    filesystem::FsType,
    parameters::{Kind, Parameters},
    secrets::Call,
    topology::{Segment, admitted},
    volume::{Volume, VolumeId},
};

impl Driver {
    /// Lists volumes.
    pub fn list(&self, request: ListVolumesRequest) -> Result<ListVolumesResponse> {
        // Ephemeral volumes are their pods' business.
        let is_listed = |volume: &Volume| Ok(!volume.ephemeral);
        let page = page::<VolumeId>(&self.store, request.max_entries, &request.starting_token, is_listed)?;
        let entries = page.records.iter().map(|volume| self.entry(volume));
        Ok(ListVolumesResponse { entries: entries.collect::<Result<_>>()?, next_token: page.next_token })
    }

    /// One volume, the nodes to which it is attached, and its condition.
    pub fn get(&self, request: ControllerGetVolumeRequest) -> Result<ControllerGetVolumeResponse> {
        let volume = self.volume(&fields::volume_id(&request.volume_id)?)?;
        let Entry { volume: described, status } = self.entry(&volume)?;
        let status = status.map(|VolumeStatus { published_node_ids, volume_condition }| {
            controller_get_volume_response::VolumeStatus { published_node_ids, volume_condition }
        });
        Ok(ControllerGetVolumeResponse { volume: described, status })
    }

    fn entry(&self, volume: &Volume) -> Result<Entry> {
        let tells = self.config.capabilities.has(Capability::ListVolumesPublishedNodes);
        let nodes = volume.attached_nodes().filter(|_| tells);
        Ok(Entry {
            volume: Some(describe(volume)),
            status: Some(VolumeStatus {
                published_node_ids: nodes.map(|(node, _)| node.to_string()).collect(),
                volume_condition: self.reported_condition(volume)?,
            }),
        })
    }

    /// The capacity left by `--capacity` in the requested segments. Without `--capacity`, the free space below
    /// the state directory: volumes are thinly provisioned, so this is what can be written, not what can be
    /// promised.
    pub fn capacity(&self, request: GetCapacityRequest) -> Result<GetCapacityResponse> {
        let accesses = request.volume_capabilities.iter().map(Access::parse).collect::<Result<Vec<_>>>()?;
        let kind = Parameters::parse(&request.parameters)?.kind_for(&accesses);
        for access in &accesses {
            access.check(kind, &self.config.capabilities)?;
        }
        let (available, largest) = self.room(request.accessible_topology)?;
        let fs = accesses.iter().find_map(|access| access.fs_type).unwrap_or(FsType::Ext4);
        let minimum = match kind {
            Kind::Directory => 1,
            Kind::Image => fs.min_bytes(),
        };
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(GetCapacityResponse {
            available_capacity: signed(available),
            maximum_volume_size: Some(signed(largest)),
            minimum_volume_size: Some(signed(minimum)),
        })
    }

    /// Available capacity in the segments of a term, and the maximum volume size there, both in bytes.
    fn room(&self, term: Option<Topology>) -> Result<(u64, u64)> {
        let segments = match term {
            _ if self.config.topology.is_empty() => vec![Segment::default()],
            None => self.segments()?,
            Some(term) => {
                let requirement = TopologyRequirement { requisite: vec![term], preferred: Vec::new() };
                admitted(Some(&requirement), &self.segments()?, &self.config.topology)
            }
        };
        let max = self.config.max_volume_bytes;
        if segments.is_empty() {
            return Ok((0, 0));
        }
        if self.config.capacity_bytes.is_none() {
            let root = self.store.root();
            let usage = self.host.usage(root).doing("determine the free space of", root)?;
            return Ok((usage.available_bytes, max));
        }
        let (mut sum, mut largest) = (0u64, 0);
        for segment in &segments {
            let room = self.room_in(segment)?.unwrap_or_default();
            (sum, largest) = (sum.saturating_add(room), room.max(largest));
        }
        Ok((sum, largest.min(max)))
    }

    /// Whether an existing volume supports all of the given capabilities.
    pub fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse> {
        self.config.secrets.check(Call::ValidateVolumeCapabilities, &request.secrets)?;
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        if request.volume_capabilities.is_empty() {
            return Err(Error::Missing("volume_capabilities"));
        }
        let volume = self.volume(&fields::volume_id(&request.volume_id)?)?;
        Ok(match unconfirmed(&volume, &request, &self.config.capabilities) {
            Ok(()) => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
            Err(why) => ValidateVolumeCapabilitiesResponse { confirmed: None, message: why.to_string() },
        })
    }
}

/// `Err` names the part of the request that the volume does not satisfy.
fn unconfirmed(
    volume: &Volume,
    request: &ValidateVolumeCapabilitiesRequest,
    capabilities: &Capabilities,
) -> Result<()> {
    for access in Access::parse_all(&request.volume_capabilities)? {
        access.check(volume.kind, capabilities)?;
    }
    if !request.volume_context.is_empty() && request.volume_context != context(volume) {
        return Err(Error::invalid("volume_context", "is not the one that CreateVolume returned"));
    }
    if Parameters::parse(&request.parameters)?.kind.is_some_and(|kind| kind != volume.kind) {
        return Err(Error::invalid("parameters", format!("the volume is of kind \"{}\"", volume.kind)));
    }
    if volume.mutable.clone().with(&request.mutable_parameters)? != volume.mutable {
        return Err(Error::invalid("mutable_parameters", "differ from the volume's"));
    }
    Ok(())
}
