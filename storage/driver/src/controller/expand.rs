//! ControllerExpandVolume.

use claimcheck_csi::v1::{ControllerExpandVolumeRequest, ControllerExpandVolumeResponse};

use crate::{
    access::Access,
    capability::Capability,
    driver::Driver,
    error::{Doing, Error, Result},
    fields,
    parameters::Kind,
    secrets::Call,
    size::SizeRange,
    volume::Volume,
};

impl Driver {
    /// Expands a volume; one that is large enough stays as it is (volumes never shrink).
    ///
    /// The image grows first and the record is updated last. After a crash in between the image is longer than
    /// its record, which a repeated call or the next start fixes.
    pub fn expand(&self, request: ControllerExpandVolumeRequest) -> Result<ControllerExpandVolumeResponse> {
        self.config.secrets.check(Call::ControllerExpandVolume, &request.secrets)?;
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let range = request.capacity_range.ok_or(Error::Missing("capacity_range"))?;
        if range.required_bytes == 0 && range.limit_bytes == 0 {
            return Err(Error::Missing("capacity_range.required_bytes"));
        }
        let size = SizeRange::parse(Some(range))?;
        let access = request.volume_capability.as_ref().map(Access::parse).transpose()?;
        let id = fields::volume_id(&request.volume_id)?;
        // Held until the record counts, as in creating.
        let _room = self.config.capacity_bytes.map(|_| self.store.lock_room()).transpose()?;
        let (_lock, mut volume) = self.lock(&id)?;
        if let Some(access) = access {
            access.check(volume.kind, &self.config.capabilities)?;
        }
        let bytes = size.grow(volume.kind, volume.capacity_bytes, self.config.max_volume_bytes)?;
        if bytes > volume.capacity_bytes {
            self.grow(&mut volume, bytes)?;
        }
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: volume.capacity_bytes.try_into().unwrap_or(i64::MAX),
            // Also for a repeated call: the caller may not have received the first response.
            node_expansion_required: volume.kind == Kind::Image,
        })
    }

    fn grow(&self, volume: &mut Volume, bytes: u64) -> Result<()> {
        if !self.config.capabilities.has(Capability::OnlineExpansion)
            && let Some(why) = volume.in_use()
        {
            return Err(Error::Precondition(format!("{why}: the driver expands only volumes not in use")));
        }
        let more = bytes - volume.capacity_bytes;
        if let Some(room) = self.room_in(&volume.topology)?.filter(|room| *room < more) {
            return Err(Error::Exhausted(format!(
                "{more} more bytes were requested, and {room} are left in the volume's segment (--capacity)"
            )));
        }
        if volume.kind == Kind::Image {
            let image = self.store.content(&volume.id, Kind::Image);
            self.host.grow_file(&image, bytes).doing("grow", image)?;
        }
        volume.capacity_bytes = bytes;
        self.store.save(volume)
    }
}
