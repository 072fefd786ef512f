//! DeleteVolume.

use claimcheck_csi::v1::{DeleteVolumeRequest, DeleteVolumeResponse};

use crate::{
    driver::Driver,
    error::{Error, Result},
    fields,
    secrets::Call,
};

impl Driver {
    /// Deletes a volume and its data. One that does not exist is deleted already, whatever its id looks like.
    pub fn delete(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse> {
        self.config.secrets.check(Call::DeleteVolume, &request.secrets)?;
        let id = match fields::volume_id(&request.volume_id) {
            Err(Error::NoVolume(_)) => return Ok(DeleteVolumeResponse {}),
            id => id?,
        };
        let Some(_lock) = self.store.lock(&id)? else { return Ok(DeleteVolumeResponse {}) };
        if let Some(why) = self.store.load(&id)?.and_then(|volume| volume.in_use()) {
            return Err(Error::Precondition(why));
        }
        // Nobody uses it, and still a driver that died in mid-copy may have it mounted.
        self.remove_marks(&id, |_| true)?;
        self.store.remove(&id)?;
        Ok(DeleteVolumeResponse {})
    }
}
