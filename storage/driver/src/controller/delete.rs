//! DeleteVolume.

use claimcheck_csi::v1::{DeleteVolumeRequest, DeleteVolumeResponse};

use crate::{
    driver::Driver,
    error::{Error, Result},
    fields,
    secrets::Call,
};

impl Driver {
    /// Deletes a volume and its data. Succeeds if it does not exist, whatever the form of its id.
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
        // It is unused, but a driver that crashed during a copy may have left it mounted.
        self.remove_marks(&id, |_| true)?;
        self.store.remove(&id)?;
        Ok(DeleteVolumeResponse {})
    }
}
