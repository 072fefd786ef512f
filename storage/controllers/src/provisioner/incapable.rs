//! A driver that neither creates nor deletes volumes: it is not called, and an event gives the reason.
//!
//! Upstream: `checkDriverCapabilities` in external-provisioner `pkg/controller/controller.go`.

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as Rpc, plugin_capability::service::Type as Service,
};

use crate::rpc::DriverInfo;

/// The capability that the driver lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incapable {
    /// It has no controller service.
    #[error(
        "CSI driver does not support dynamic provisioning: plugin CONTROLLER_SERVICE capability is not reported"
    )]
    NoController,
    /// Its controller service lacks CreateVolume and DeleteVolume.
    #[error(
        "CSI driver does not support dynamic provisioning: controller CREATE_DELETE_VOLUME capability is not \
         reported"
    )]
    NoVolumes,
}

impl Incapable {
    /// Checks that the driver creates and deletes volumes.
    pub fn check(driver: &DriverInfo) -> Result<(), Self> {
        if !driver.serves(Service::ControllerService) {
            Err(Self::NoController)
        } else if !driver.can(Rpc::CreateDeleteVolume) {
            Err(Self::NoVolumes)
        } else {
            Ok(())
        }
    }
}
