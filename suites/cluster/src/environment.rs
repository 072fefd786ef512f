//! What a run has to offer its cases: the capabilities of the cluster, the host and the driver.

use std::collections::BTreeMap;

use claimcheck_cluster::{ClusterCapabilities, SupportedCalls};
use claimcheck_model::{Capability, ClusterKind};
use claimcheck_vendor::AbsentSidecars;

use crate::{case::FsType, kubernetes::Kubernetes, pod_security::PodSecurity};

/// Capabilities of the cluster, the host and the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Where the cluster comes from.
    pub cluster: ClusterKind,
    /// Number of nodes.
    pub nodes: usize,
    /// The driver is the built-in one, so that variants of it can be deployed too.
    pub builtin: bool,
    /// The topology keys by which the driver restricts its volumes to fewer nodes, if it does.
    pub topology_keys: Option<String>,
    /// The optional CSI calls that the driver implements.
    pub supported_calls: SupportedCalls,
    /// Whether volumes are provisioned dynamically, or the reason why not.
    pub classes: Result<(), &'static str>,
    /// Whether CSI inline volumes of the driver are known, or the reason why not.
    pub inline: Result<(), &'static str>,
    /// The maximum file size on a volume, in bytes; `None` means unlimited.
    pub largest_file: Option<i64>,
    /// Capabilities that the driver declares, as far as known. Cases for unknown ones run.
    pub declared: BTreeMap<Capability, bool>,
    /// The Pod Security level of the pods.
    pub pod_security: PodSecurity,
    /// What the cluster supports in addition to its API.
    pub cluster_capabilities: ClusterCapabilities,
    /// The version of Kubernetes.
    pub kubernetes: Kubernetes,
    /// The sidecars that the driver's deployment lacks.
    pub absent_sidecars: AbsentSidecars,
    /// The file systems that volumes can have.
    pub file_systems: FileSystems,
}

/// A skip reason that is a defect of the driver's deployment: one case fails with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentDefect {
    /// The skip reason of the other cases.
    pub skip: &'static str,
    /// What the one case reports.
    pub text: &'static str,
}

pub(crate) const NO_PROVISIONER: &str = "the deployment runs no csi-provisioner";
pub(crate) const NO_ATTACHER: &str = "the deployment runs no csi-attacher";
pub(crate) const NO_RESIZER: &str = "the deployment runs no csi-resizer";
pub(crate) const NO_SNAPSHOTTER: &str = "the deployment runs no csi-snapshotter";

impl Environment {
    /// Whether cases can have nodes of their own. A further node may be in a topology of its own, from which the volumes of
    /// the others are not accessible, unless several nodes show that the driver does not separate them.
    pub(crate) fn has_own_nodes(&self) -> bool {
        self.cluster_capabilities.own_nodes && self.topology_keys.is_none() && self.nodes > 1
    }

    /// What the driver's deployment lacks although the driver requires it. A resizer or snapshotter may be left out
    /// deliberately.
    pub fn deployment_defects(&self) -> impl Iterator<Item = DeploymentDefect> {
        let AbsentSidecars { provisioner, attacher, .. } = self.absent_sidecars;
        let no_provisioner = DeploymentDefect {
            skip: NO_PROVISIONER,
            text: "the deployment runs no csi-provisioner, although the driver declares CREATE_DELETE_VOLUME: no claim gets \
                   a volume. Add the file with the container that runs it to --deployment; if a container with another \
                   image, program and name does its work, pass --deployment-sidecar CONTAINER=provisioner",
        };
        let no_attacher = DeploymentDefect {
            skip: NO_ATTACHER,
            text: "the deployment runs no csi-attacher, and no CSIDriver object with attachRequired: false: pods wait \
                   for their VolumeAttachments without end. Add the file with the attacher or with the object to \
                   --deployment; if a container with another image, program and name attaches volumes, pass \
                   --deployment-sidecar CONTAINER=attacher",
        };
        let provisioner = provisioner && self.supported_calls.create;
        [(provisioner, no_provisioner), (attacher, no_attacher)]
            .into_iter()
            .filter_map(|(is_absent, defect)| is_absent.then_some(defect))
    }
}

/// Support for each file system and for raw block volumes, or the reason why it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystems {
    /// ext3.
    pub ext3: Result<(), &'static str>,
    /// ext4.
    pub ext4: Result<(), &'static str>,
    /// xfs.
    pub xfs: Result<(), &'static str>,
    /// No file system: raw block volumes.
    pub block: Result<(), &'static str>,
}

impl FileSystems {
    /// File systems of a user-provided driver: those that the user named.
    pub fn given(file_systems: &[FsType]) -> Self {
        let known = |expected, why| if file_systems.contains(&expected) { Ok(()) } else { Err(why) };
        Self {
            ext3: known(FsType::Ext3, "--fs-type ext3 was not given"),
            ext4: known(FsType::Ext4, "--fs-type ext4 was not given"),
            xfs: known(FsType::Xfs, "--fs-type xfs was not given"),
            block: known(FsType::Block, "--fs-type block was not given"),
        }
    }

    /// Support for this one, or the reason why it is missing.
    pub(crate) fn of(&self, fs: FsType) -> Result<(), &'static str> {
        match fs {
            FsType::Default => Ok(()),
            FsType::Ext3 => self.ext3,
            FsType::Ext4 => self.ext4,
            FsType::Xfs => self.xfs,
            FsType::Block => self.block,
        }
    }
}
