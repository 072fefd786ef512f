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

mod class_secrets;
mod command;
mod environment;
mod error;
mod files;
pub mod flags;
mod idle;
mod image;
mod kinds;
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

pub use class_secrets::MissingSecret;
pub use error::{DeploymentError, PlanError, Unsupported};
pub use files::ProcessCredentials;
pub use files::{DeploymentObjects, PrepareDeploymentError};
pub use image::{ImageError, ImageRootfs, ImageRootfsError};
pub use kinds::{DeploymentSidecar, DeploymentSidecarError};
pub use unpack::UnpackError;

/// `--deployment` and the options for it.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentOptions<'a> {
    /// The files.
    pub files: &'a [PathBuf],
    /// What stands for images.
    pub images: &'a [ImageRootfs],
    /// The containers that are declared to be sidecars.
    pub sidecars: &'a [DeploymentSidecar],
    /// The files of `--sidecar-rbac`.
    pub roles: &'a [PathBuf],
    /// The name of the storage class to use (`StorageClass.FromExistingClassName` of a test driver file).
    pub class: Option<&'a str>,
}

/// What a vendor's manifests start.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverDeployment {
    /// The driver's command on every node; none if the files have no workloads, but only objects for a driver of
    /// `--driver`.
    pub driver: Option<DriverCommand>,
    /// The command of its controller, if that is a separate process.
    pub controller: Option<DriverCommand>,
    /// The sidecars and additional programs, with their accounts and roles.
    pub sidecars: StockSidecars,
    /// The parameters of its storage class.
    pub class_parameters: BTreeMap<String, String>,
    /// The mount options of its storage class.
    pub class_mount_options: Vec<String>,
    /// What else the cluster gets.
    pub objects: DeploymentObjects,
    /// What has no effect, what runs in place of absent containers, and which sidecars are absent.
    pub notice: Option<String>,
}

impl DriverDeployment {
    /// Reads the files, and plans what they start. The ServiceAccounts and roles of `roles` are applied, too. Images of
    /// the container engine are unpacked into the state directory of the run, with which they end.
    ///
    /// # Errors
    /// [`DeploymentError`]: a file cannot be read, contains something that cannot run on virtual nodes, or an image
    /// cannot be unpacked.
    pub fn read(options: DeploymentOptions<'_>) -> Result<Self, DeploymentError> {
        let DeploymentOptions { files, images, sidecars, roles, class } = options;
        let manifests = Manifests::read(files)?;
        let mut objects = Vec::new();
        for file in roles {
            objects.extend(sidecars::read_roles(file)?);
        }
        let mut unpacked = BTreeMap::new();
        for (number, image) in plan::engine_images(&manifests, images)?.into_iter().enumerate() {
            let folder = Path::new(STATE_DIR).join("images").join(number.to_string());
            unpacked.insert(image.to_owned(), unpack::unpack(image, &folder)?);
        }
        let allocatable = claimcheck_node::allocatable(Path::new(STATE_DIR));
        let world = plan::World {
            manifests: &manifests,
            images,
            sidecars,
            class,
            unpacked: &unpacked,
            roles: &objects,
            allocatable: &allocatable,
            exists: &|path: &Path| path.exists(),
        };
        Ok(plan::plan(world)?)
    }
}
