//! What a cluster runs of a vendor.

use std::collections::BTreeMap;

use crate::{deployment::DeploymentObjects, driver_command::DriverCommand, sidecars::StockSidecars};

/// What a cluster runs of a vendor: by default the built-in driver with the built-in sidecars. Clusters with virtual nodes
/// execute it in this order: the files of `objects`; the accounts and roles of `sidecars`, and what else the API server
/// gets; the tokens of the driver's pods; the driver on each node, and its controller; the sidecars, once the driver
/// responds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The driver.
    pub driver: DriverCommand,
    /// The driver's controller, if that is a separate process.
    pub controller: Option<DriverCommand>,
    /// The parameters of the driver's storage classes.
    pub class_parameters: BTreeMap<String, String>,
    /// Their mount options.
    pub class_mount_options: Vec<String>,
    /// Stock programs in place of built-in sidecars, or in addition to them.
    pub sidecars: StockSidecars,
    /// What `--deployment` adds apart from programs.
    pub objects: DeploymentObjects,
}

impl Plan {
    /// With a proxy before the driver that has this defect; unchanged without one.
    pub fn sabotaged(self, defect: Option<&str>) -> Self {
        Self {
            driver: self.driver.sabotaged(defect),
            controller: self.controller.map(|controller| controller.sabotaged(defect)),
            ..self
        }
    }
}
