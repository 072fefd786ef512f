//! `--deployment`: a vendor's own manifests, from which the commands of the driver and its sidecars follow.
//!
//! ```text
//! --deployment FILE ──manifests──> Manifests ┐
//! --image-rootfs IMAGE=.. ──image────────────┴─plan─> DriverDeployment ┬─ DriverCommand, as of --driver
//!                            environment, paths, flags, command        ├─ StockSidecars, as of --sidecar
//!                                                                      └─ DeploymentObjects: volumes, CSIDriver
//! ```
//!
//! No container is started: the programs run on a virtual node as those of `--driver` and `--sidecar` do, so that the
//! paths of a container become placeholders.

mod command;
mod environment;
mod error;
mod files;
pub(crate) mod flags;
mod idle;
mod image;
mod manifests;
mod paths;
mod plan;
#[cfg(test)]
mod plan_tests;
mod unpack;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use claimcheck_substrate::STATE_DIR;

use self::manifests::Manifests;
use crate::{
    driver_command::DriverCommand,
    sidecars::{self, StockSidecars},
};

pub use error::{DeploymentError, PlanError, Unsupported};
pub use files::{DeploymentObjects, PrepareDeploymentError};
pub use image::{ImageError, ImageRootfs, ImageRootfsError};
pub use unpack::UnpackError;

/// What a vendor's manifests start.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverDeployment {
    /// The driver's command on every node.
    pub driver: DriverCommand,
    /// The command of its controller, if that is a separate process.
    pub controller: Option<DriverCommand>,
    /// The sidecars and additional programs, with their accounts and roles.
    pub sidecars: StockSidecars,
    /// The parameters of its storage class.
    pub class_parameters: BTreeMap<String, String>,
    /// What else the cluster gets.
    pub objects: DeploymentObjects,
    /// What has no effect, if anything.
    pub warning: Option<String>,
}

impl DriverDeployment {
    /// Reads the files, and plans what they start. The ServiceAccounts and roles of `roles` are applied, too. Images of
    /// the container engine are unpacked into the state directory of the run, with which they end.
    ///
    /// # Errors
    /// [`DeploymentError`]: a file cannot be read, contains something that cannot run on virtual nodes, or an image
    /// cannot be unpacked.
    pub fn read(
        files: &[PathBuf],
        images: &[ImageRootfs],
        roles: &[PathBuf],
    ) -> Result<Self, DeploymentError> {
        let manifests = Manifests::read(files)?;
        let mut objects = Vec::new();
        for file in roles {
            objects.extend(sidecars::read_roles(file)?);
        }
        let mut unpacked = BTreeMap::new();
        for (number, image) in plan::of_engine(&manifests, images)?.into_iter().enumerate() {
            let folder = Path::new(STATE_DIR).join("images").join(number.to_string());
            unpacked.insert(image.to_owned(), unpack::unpack(image, &folder)?);
        }
        let allocatable = claimcheck_node::allocatable(Path::new(STATE_DIR));
        let world = plan::World {
            manifests: &manifests,
            images,
            unpacked: &unpacked,
            roles: &objects,
            allocatable: &allocatable,
            exists: &|path: &Path| path.exists(),
        };
        Ok(plan::plan(world)?)
    }
}
