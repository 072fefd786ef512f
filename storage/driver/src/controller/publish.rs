//! ControllerPublishVolume and ControllerUnpublishVolume: attachment of volumes to nodes.
//!
//! All nodes see the same state directory, so the host is not changed; the attachment is recorded, and two
//! nodes never hold a volume that only one may use.

use claimcheck_csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
};

use crate::{
    access::Access,
    capability::Capability,
    driver::Driver,
    error::{Error, Result},
    fields,
    secrets::Call,
    volume::{Grant, NodeId, VolumeId},
};

impl Driver {
    /// Attaches a volume to a node.
    pub fn attach(&self, request: ControllerPublishVolumeRequest) -> Result<ControllerPublishVolumeResponse> {
        self.config.secrets.check(Call::ControllerPublishVolume, &request.secrets)?;
        // All fields first: a request without a node is malformed even if its volume is unknown too.
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        if request.node_id.is_empty() {
            return Err(Error::Missing("node_id"));
        }
        if request.readonly && !self.config.capabilities.has(Capability::PublishReadonly) {
            let reason = "is set, and the driver does not declare PUBLISH_READONLY";
            return Err(Error::invalid("readonly", reason));
        }
        fields::large_map("volume_context", &request.volume_context)?;
        let access = Access::required(request.volume_capability)?;
        let id = fields::volume_id(&request.volume_id)?;
        let (_lock, mut volume) = self.lock(&id)?;
        let node_id = fields::node_id(&request.node_id)?;
        let node = self.store.node(&node_id)?.ok_or_else(|| Error::NoNode(node_id.to_string()))?;
        access.check(volume.kind, &self.config.capabilities)?;
        volume.check_reach(&node_id, &node.topology)?;

        let grant = Grant { access, read_only: request.readonly };
        match volume.usage(&node_id).and_then(|usage| usage.attached.as_ref()) {
            Some(present) if *present == grant => return Ok(ControllerPublishVolumeResponse::default()),
            Some(present) => {
                return Err(Error::AlreadyExists(format!(
                    "volume {id} is attached to node {node_id} as {:?} (read-only: {}) already; \
                     detach it first",
                    present.access.mode, present.read_only
                )));
            }
            None => {}
        }
        grant.access.join(grant.read_only, volume.attached_elsewhere(&node_id))?;
        if node.max_volumes > 0 {
            self.check_room(&node_id, node.max_volumes, &id)?;
        }
        volume.usage_mut(&node_id).attached = Some(grant);
        self.store.save(&volume)?;
        Ok(ControllerPublishVolumeResponse::default())
    }

    /// Detaches a volume from a node, or from all nodes if the request names none.
    ///
    /// Succeeds even while the volume is still staged on the node: a caller that requests this knows that the
    /// node is dead (forced detach). A remaining mount on the node prevents deletion of the volume.
    pub fn detach(
        &self,
        request: ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse> {
        self.config.secrets.check(Call::ControllerUnpublishVolume, &request.secrets)?;
        // A volume or node that does not exist is attached to nothing (CSI specification, ControllerUnpublishVolume: OK
        // SHOULD be returned). Callers repeat the call otherwise.
        let locked = fields::volume_id(&request.volume_id).and_then(|id| self.lock(&id));
        let (_lock, mut volume) = match locked {
            Err(Error::NoVolume(_)) => return Ok(ControllerUnpublishVolumeResponse {}),
            locked => locked?,
        };
        let before = volume.clone();
        if request.node_id.is_empty() {
            volume.nodes.values_mut().for_each(|usage| usage.attached = None);
        } else {
            match fields::node_id(&request.node_id) {
                // Nor is it on a node that does not exist: csi-attacher would repeat the call after an error without end.
                Err(Error::NoNode(_)) => {}
                node_id => {
                    if let Some(usage) = volume.nodes.get_mut(&node_id?) {
                        usage.attached = None;
                    }
                }
            }
        }
        volume.prune();
        if volume != before {
            self.store.save(&volume)?;
        }
        Ok(ControllerUnpublishVolumeResponse {})
    }

    /// Whether one more volume may be attached to a node. Reads every record, so only drivers with a limit pay
    /// the cost. The scheduler enforces the limit too and is responsible for two attachments racing past this
    /// check.
    fn check_room(&self, node: &NodeId, max: u64, joining: &VolumeId) -> Result<()> {
        let mut attached = 0;
        for id in self.store.ids::<VolumeId>()?.iter().filter(|id| *id != joining) {
            let volume = self.store.load(id)?;
            let here = volume.as_ref().and_then(|volume| volume.usage(node));
            attached += u64::from(here.is_some_and(|usage| usage.attached.is_some()));
        }
        if attached >= max {
            return Err(Error::Exhausted(format!(
                "node {node} has {attached} volumes attached and its maximum is {max} (--max-volumes-per-node)"
            )));
        }
        Ok(())
    }
}
