//! ControllerModifyVolume.

use claimcheck_csi::v1::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};

use crate::{
    driver::Driver,
    error::{Error, Result},
    fields,
    secrets::Call,
};

impl Driver {
    /// Changes mutable parameters, whether or not the volume is in use.
    pub fn modify(&self, request: ControllerModifyVolumeRequest) -> Result<ControllerModifyVolumeResponse> {
        self.config.secrets.check(Call::ControllerModifyVolume, &request.secrets)?;
        if request.volume_id.is_empty() {
            return Err(Error::Missing("volume_id"));
        }
        let (_lock, mut volume) = self.lock(&fields::volume_id(&request.volume_id)?)?;
        let expected = volume.mutable.clone().with(&request.mutable_parameters)?;
        if expected != volume.mutable {
            volume.mutable = expected;
            self.store.save(&volume)?;
        }
        Ok(ControllerModifyVolumeResponse {})
    }
}
