//! The options of the kinds of cluster: flags of `claimcheck run` and `load`, and environment variables of
//! `cargo test --test e2e`. Each kind accepts some of them.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use claimcheck_kind::{Controllers, KindOptions};
use claimcheck_model::ClusterKind;
use claimcheck_suites::testdriver::{Class, TestDriver};
use claimcheck_vendor::DriverCommand;
use clap::{Args, ValueEnum};

use crate::component_args::ComponentArgs;
use crate::deployment_args::DeploymentArgs;
use crate::duration::positive_duration;
use crate::existing_args::ExistingArgs;
use crate::sidecar_args::SidecarArgs;
use claimcheck_suites::FsType;
use claimcheck_suites::pod_security::PodSecurity;
use claimcheck_suites::{IMAGE, PullSecret, Workload};

/// The options of the kinds of cluster.
// What is used most has no heading, so that help lists it first.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = FREQUENT)]
pub struct ClusterOptions {
    /// Driver under test: `builtin`, or `exec:COMMAND` for your own driver, started once per node, with placeholders
    /// {endpoint} or {socket}, {node_id}, {state_dir} and {node_root}; embedded and envtest
    #[arg(long, default_value = "builtin", env = "CLAIMCHECK_DRIVER")]
    pub(crate) driver: DriverCommand,
    /// `exec:COMMAND` for the driver's controller, if it is a separate process; started once
    #[arg(long, env = "CLAIMCHECK_DRIVER_CONTROLLER", help_heading = DRIVER)]
    pub(crate) driver_controller: Option<DriverCommand>,
    /// Parameter of the driver's storage classes; can be repeated
    #[arg(long = "driver-param", value_name = "KEY=VALUE", value_parser = parameter, help_heading = DRIVER)]
    pub(crate) driver_params: Vec<(String, String)>,
    /// Test driver file as accepted by upstream's e2e suite (-storage.testdriver); misspelt and misplaced fields are
    /// errors, others that upstream does not know are listed
    #[arg(long, value_name = "FILE", conflicts_with = "fs_types", env = "CLAIMCHECK_DRIVER_CONFIG")]
    pub(crate) driver_config: Option<PathBuf>,
    /// Give the driver, a controller or the nodes a seeded defect, to see what the cases report: see docs/defects.md; embedded and envtest
    #[arg(
        long,
        value_name = "DEFECT",
        value_parser = claimcheck_saboteur::named,
        hide_short_help = true,
        env = "CLAIMCHECK_SABOTAGE",
        help_heading = DRIVER
    )]
    pub(crate) sabotage: Option<String>,
    /// How long the driver may take to start and to be registered, for example 90s; embedded and envtest [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, env = "CLAIMCHECK_START_TIMEOUT", help_heading = DRIVER)]
    pub(crate) start_timeout: Option<Duration>,
    /// How long a step of a case may take before the case fails, for example 20s; embedded and envtest [default: 60s, or
    /// 240s with stock controllers or sidecars]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, hide_short_help = true, env = "CLAIMCHECK_STEP_TIMEOUT", help_heading = DRIVER)]
    pub(crate) step_timeout: Option<Duration>,
    /// Number of nodes; on kind in addition to one control plane node [default: 2]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64), env = "CLAIMCHECK_NODES")]
    pub(crate) nodes: Option<u16>,
    /// Storage controllers to run; embedded, envtest and kind [default: ours]
    #[arg(long, value_enum, env = "CLAIMCHECK_CONTROLLERS")]
    pub(crate) controllers: Option<ControllerSource>,
    /// File system that a user-provided driver supports: ext3, ext4, xfs, or block for raw block volumes; can be
    /// repeated
    #[arg(long = "fs-type", value_name = "NAME", value_enum, help_heading = DRIVER)]
    pub(crate) fs_types: Vec<FsKind>,
    /// Image of pods on real nodes; requires sh and the busybox tools [default: busybox:stable, or the image of the
    /// built-in components if they are installed]
    #[arg(long, value_name = "IMAGE", env = "CLAIMCHECK_WORKLOAD_IMAGE", help_heading = PODS)]
    pub(crate) workload_image: Option<String>,
    /// Pull secret for the workload image; it is copied to the namespaces of the cases
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = PODS)]
    pub(crate) image_pull_secret: Option<PullSecret>,
    /// Pod Security level of the cases' namespaces and pods; cases that require more privileges are skipped
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "LEVEL",
        env = "CLAIMCHECK_POD_SECURITY",
        help_heading = PODS
    )]
    pub(crate) pod_security: PodSecurity,
    /// Program of this machine that stands for an image in pods on virtual nodes: containers see it at /NAME, and it gets
    /// the arguments of those without a command. IMAGE is the whole reference, or without tag and digest, or its last
    /// component; can be repeated
    #[arg(
        long = "pod-image",
        value_name = "IMAGE=PROGRAM",
        value_delimiter = '\n',
        value_parser = pod_image,
        env = "CLAIMCHECK_POD_IMAGE",
        help_heading = PODS
    )]
    pub(crate) pod_images: Vec<String>,
    #[command(flatten)]
    pub(crate) sidecars: SidecarArgs,
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    #[command(flatten)]
    pub(crate) existing: ExistingArgs,
    #[command(flatten)]
    pub(crate) components: ComponentArgs,
    #[command(flatten)]
    pub(crate) kind: KindOptions,
}

/// Options that help lists first, without a heading.
pub const FREQUENT: Option<&str> = None;
/// The heading of options of a user-provided driver.
const DRIVER: &str = "Driver under test";
/// The heading of options of the cases' pods.
const PODS: &str = "Pods of the cases";

fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// The option with the absolute path of its program: nodes have another working directory.
fn pod_image(text: &str) -> Result<String, String> {
    let (image, program) =
        text.split_once('=').ok_or("write IMAGE=PROGRAM, for example agnhost=ci/agnhost")?;
    let path = std::path::absolute(program).map_err(|error| format!("{program}: {error}"))?;
    match (image.is_empty(), path.is_file()) {
        (true, _) => Err("write IMAGE=PROGRAM, for example agnhost=ci/agnhost".to_owned()),
        (false, false) => Err(format!("there is no program {}", path.display())),
        (false, true) => Ok(format!("{image}={}", path.display())),
    }
}

/// File systems that a user-provided driver can support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsKind {
    /// ext3
    Ext3,
    /// ext4
    Ext4,
    /// xfs
    Xfs,
    /// none: raw block volumes
    Block,
}

impl From<FsKind> for FsType {
    fn from(kind: FsKind) -> Self {
        match kind {
            FsKind::Ext3 => Self::Ext3,
            FsKind::Ext4 => Self::Ext4,
            FsKind::Xfs => Self::Xfs,
            FsKind::Block => Self::Block,
        }
    }
}

/// The storage controllers to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ControllerSource {
    /// The built-in controllers, in place of those of Kubernetes that they can replace
    #[default]
    Ours,
    /// The stock controllers of Kubernetes; embedded and envtest use the kube-controller-manager in KUBEBUILDER_ASSETS
    /// or PATH, and embedded also a kube-scheduler next to it
    Stock,
}

impl From<ControllerSource> for Controllers {
    fn from(source: ControllerSource) -> Self {
        match source {
            ControllerSource::Ours => Self::Builtin,
            ControllerSource::Stock => Self::Stock,
        }
    }
}

/// Invalid or conflicting arguments.
#[derive(Debug, thiserror::Error)]
pub enum ClusterArgsError {
    /// An argument for another kind of cluster.
    #[error("{argument} is for --cluster {expected}, not {given}")]
    WrongCluster {
        /// The argument.
        argument: &'static str,
        /// The kind of cluster that accepts it.
        expected: &'static str,
        /// The kind of cluster that was given.
        given: &'static str,
    },
    /// An argument that requires a user-provided driver.
    #[error("{argument} is for a user-provided driver: add --driver exec:COMMAND")]
    NeedsExternalDriver {
        /// The argument.
        argument: &'static str,
    },
    /// Disruptions of components that claimcheck has not installed, which it cannot identify.
    #[error(
        "--allow-disruptive requires --install: it disrupts only the components installed by it, never others"
    )]
    DisruptsOthers,
    /// On an existing cluster, images cannot be loaded onto the nodes.
    #[error("--install needs --image NAME: a claimcheck image (ci/Dockerfile) that the nodes can pull")]
    NoImage,
    /// kind does not accept the name.
    #[error(transparent)]
    Name(#[from] claimcheck_kind::OwnedError),
    /// The driver file cannot be used.
    #[error(transparent)]
    Config(#[from] claimcheck_suites::testdriver::TestDriverError),
    /// The driver file names an existing class on a cluster that is yet to be created.
    #[error(
        "StorageClass.FromExistingClassName {0}: clusters with virtual nodes start without classes: add the file that \
         creates it with --deployment FILE, or use FromFile or FromName"
    )]
    NoClassYet(String),
    /// The driver is given twice.
    #[error("{argument} and --deployment both give the driver: use one of them")]
    TwoDrivers {
        /// The other argument.
        argument: &'static str,
    },
    /// An argument about manifests without these.
    #[error("{argument} is for the manifests of --deployment FILE: add one")]
    NoManifests {
        /// The argument.
        argument: &'static str,
    },
    /// The manifests have no driver, and none is given.
    #[error(
        "the --deployment files have no workload: add the file with the driver's DaemonSet, or the driver with --driver \
         exec:COMMAND"
    )]
    NoWorkload,
    /// The manifests cannot be used.
    #[error(transparent)]
    Deployment(#[from] claimcheck_vendor::DeploymentError),
    /// The options of stock sidecars cannot be used.
    #[error(transparent)]
    Sidecars(#[from] claimcheck_vendor::StockSidecarsError),
    /// The stock programs are missing.
    #[error(transparent)]
    Assets(#[from] claimcheck_cluster::AssetsError),
}

/// The existing class that a driver file names.
pub(crate) fn existing_class(config: Option<&TestDriver>) -> Option<&str> {
    match config?.class() {
        Class::Existing(name) => Some(name),
        Class::None | Class::Name | Class::Object(_) => None,
    }
}

pub(crate) fn file_systems(kinds: &[FsKind]) -> Vec<FsType> {
    kinds.iter().copied().map(FsType::from).collect()
}

impl ClusterArgsError {
    /// The exit code for this error: 2 for an invalid command line, 3 for a cluster that cannot be started.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::WrongCluster { .. }
            | Self::NeedsExternalDriver { .. }
            | Self::DisruptsOthers
            | Self::NoImage
            | Self::Name(_)
            | Self::Config(_)
            | Self::NoClassYet(_)
            | Self::TwoDrivers { .. }
            | Self::NoManifests { .. }
            | Self::NoWorkload
            | Self::Deployment(_)
            | Self::Sidecars(_) => ExitCode::from(2),
            Self::Assets(_) => ExitCode::from(3),
        }
    }
}

impl ClusterOptions {
    /// The storage controllers to run.
    pub(crate) fn controllers(&self) -> Controllers {
        self.controllers.unwrap_or_default().into()
    }

    /// The workload of the pods, on a cluster where the built-in components are installed, or not.
    pub(crate) fn workload(&self, installs: bool) -> Workload {
        let default_image = if installs { self.components.image_name() } else { IMAGE };
        let image = self.workload_image.clone().unwrap_or_else(|| default_image.to_owned());
        let pull_secret = self.image_pull_secret.clone();
        Workload { image, pull_secret, security: self.pod_security, ..Workload::default() }
    }

    /// Checks that the kind of cluster accepts every argument.
    pub(crate) fn fit(&self, cluster: ClusterKind, is_virtual: bool) -> Result<(), ClusterArgsError> {
        let of_command = self.driver != DriverCommand::Builtin;
        let is_external = of_command || self.deployment.has_files();
        if self.driver_controller.is_some() && is_virtual && !is_external {
            return Err(ClusterArgsError::NeedsExternalDriver { argument: "--driver-controller" });
        }
        if !self.fs_types.is_empty() && cluster != ClusterKind::Existing && !is_external {
            return Err(ClusterArgsError::NeedsExternalDriver { argument: "--fs-type" });
        }
        let (on_kind, existing) = (cluster == ClusterKind::Kind, cluster == ClusterKind::Existing);
        let restricted = [
            ("--driver", of_command, is_virtual, "embedded"),
            ("--driver-controller", self.driver_controller.is_some(), is_virtual, "embedded"),
            ("--driver-param", !self.driver_params.is_empty(), is_virtual, "embedded"),
            ("--sabotage", self.sabotage.is_some(), is_virtual, "embedded or envtest"),
            ("--start-timeout", self.start_timeout.is_some(), is_virtual, "embedded or envtest"),
            ("--step-timeout", self.step_timeout.is_some(), is_virtual, "embedded or envtest"),
            ("--pod-image", !self.pod_images.is_empty(), is_virtual, "embedded or envtest"),
            ("--controllers", self.controllers.is_some(), !existing, "embedded, envtest or kind"),
        ];
        let wrong_cluster = restricted.into_iter().find(|(_, is_given, fits, _)| *is_given && !fits);
        let wrong_cluster = wrong_cluster.map(|(argument, _, _, expected)| (argument, expected));
        let of_virtual = self.sidecars.given().or(self.deployment.given()).filter(|_| !is_virtual);
        let of_virtual = of_virtual.map(|argument| (argument, "embedded or envtest"));
        let of_existing = self.existing.given().filter(|_| !existing).map(|argument| (argument, "existing"));
        let of_kind = self.kind.given().filter(|_| !on_kind).map(|argument| (argument, "kind"));
        let of_either = self.components.given().filter(|_| !on_kind && !self.existing.installs());
        let of_either = of_either.map(|argument| (argument, "kind, or existing with --install"));
        let given = cluster.name();
        match wrong_cluster.or(of_virtual).or(of_existing).or(of_kind).or(of_either) {
            Some((argument, expected)) => Err(ClusterArgsError::WrongCluster { argument, expected, given }),
            None if let Some(argument) = self.deployment.lacks_files() => {
                Err(ClusterArgsError::NoManifests { argument })
            }
            None if self.existing.disrupts_others() => Err(ClusterArgsError::DisruptsOthers),
            None if self.existing.installs() && !self.components.names_image() => {
                Err(ClusterArgsError::NoImage)
            }
            None => Ok(()),
        }
    }
}
