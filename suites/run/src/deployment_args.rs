//! Arguments for a vendor's own manifests on clusters with virtual nodes.

use std::path::PathBuf;

use claimcheck_vendor::{
    DeploymentError, DeploymentOptions, DeploymentSidecar, DriverDeployment, ImageRootfs,
};
use clap::Args;

/// Arguments of `--cluster embedded` and `envtest`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "A vendor's manifests on virtual nodes")]
pub struct DeploymentArgs {
    /// YAML file with the driver's own manifests (Deployment, StatefulSet, DaemonSet, ServiceAccount, roles, CSIDriver,
    /// StorageClass, ConfigMap, Secret), from which --driver, --driver-controller, --sidecar and their rights follow;
    /// CustomResourceDefinitions and other objects are created, too. Files without workloads add Secrets, ConfigMaps and
    /// a StorageClass to a driver of --driver; can be repeated
    #[arg(long = "deployment", value_name = "FILE", value_delimiter = '\n', env = "CLAIMCHECK_DEPLOYMENT")]
    deployment_files: Vec<PathBuf>,
    /// What stands for an image of --deployment: the folder of its root file system, in which the container's command is
    /// looked up (without a command, a program with the image's name), `docker` for the image itself, which the container
    /// engine must have, a program of this machine, or `none` to leave its containers out; built-in sidecars run in place
    /// of those. IMAGE is the whole reference, or without tag and digest,
    /// or its last component; the closest form counts, and one that matches several images is an error; can be repeated
    #[arg(
        long = "image-rootfs",
        value_name = "IMAGE=DIR|docker|exec:PROGRAM|none",
        value_delimiter = '\n',
        env = "CLAIMCHECK_IMAGE_ROOTFS"
    )]
    image_rootfs: Vec<ImageRootfs>,
    /// Container of --deployment that does the work of a sidecar (provisioner, attacher, resizer, snapshotter,
    /// snapshot-controller, registrar or livenessprobe), if neither its image, nor its program, nor its name is that of
    /// upstream's; also the driver itself, if it does that work; can be repeated
    #[arg(
        long = "deployment-sidecar",
        value_name = "CONTAINER=NAME",
        value_delimiter = '\n',
        env = "CLAIMCHECK_DEPLOYMENT_SIDECAR"
    )]
    deployment_sidecars: Vec<DeploymentSidecar>,
}

impl DeploymentArgs {
    /// The first of these arguments that was given, for kinds of cluster that accept none of them.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--deployment", self.has_files()),
            ("--image-rootfs", !self.image_rootfs.is_empty()),
            ("--deployment-sidecar", !self.deployment_sidecars.is_empty()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(argument, _)| argument)
    }

    /// Whether manifests were given.
    pub fn has_files(&self) -> bool {
        !self.deployment_files.is_empty()
    }

    /// The argument that was given without the manifests which it is for.
    pub fn lacks_files(&self) -> Option<&'static str> {
        self.given().filter(|_| !self.has_files())
    }

    /// What the manifests start, if any were given; `roles` are the files of `--sidecar-rbac`, and `class` is the storage
    /// class to use.
    ///
    /// # Errors
    /// A file cannot be used, or contains something that cannot run on virtual nodes.
    pub fn read(
        &self,
        roles: &[PathBuf],
        class: Option<&str>,
    ) -> Result<Option<DriverDeployment>, DeploymentError> {
        let options = DeploymentOptions {
            files: &self.deployment_files,
            images: &self.image_rootfs,
            sidecars: &self.deployment_sidecars,
            roles,
            class,
        };
        self.has_files().then(|| DriverDeployment::read(options)).transpose()
    }
}
