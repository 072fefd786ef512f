//! The cluster of a run: which kind, how it is started, and its capabilities.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use claimcheck_cluster::{
    AbsentSidecars, Api, ClassChoice, Cluster, ClusterCapabilities, DeploymentObjects, DriverCommand,
    DriverPolicy, Instrumentation, Options, StockSidecars, SupportedCalls,
};
use claimcheck_harness::Privilege;
use claimcheck_kind::Controllers;
use claimcheck_model::{Capability, ClusterKind};
use claimcheck_report::RunFolder;
use claimcheck_suites::testdriver::{Class, TestDriver};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::existing_target::ExistingTarget;
use crate::kind_target::KindTarget;
use claimcheck_suites::FsType;
use claimcheck_suites::pod_security::PodSecurity;
use claimcheck_suites::{Environment, FileSystems};

/// How long a driver on virtual nodes may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The cluster of a run.
#[derive(Clone, Debug)]
pub enum ClusterTarget {
    /// Virtual nodes on this machine, with built-in components.
    Embedded {
        /// The embedded API server, or a stock one.
        api: Api,
        /// The number of nodes.
        nodes: usize,
        /// The driver.
        driver: Driver,
    },
    /// A kind cluster created for the run, with the built-in driver.
    Kind {
        /// The cluster.
        place: KindTarget,
        /// The driver file (`--driver-config`).
        config: Option<Arc<TestDriver>>,
    },
    /// An existing cluster, with the driver installed there.
    Existing {
        /// The cluster.
        place: ExistingTarget,
        /// The driver file (`--driver-config`).
        config: Option<Arc<TestDriver>>,
    },
}

/// The driver on virtual nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Driver {
    /// The command that starts it on a node.
    pub command: DriverCommand,
    /// The command that starts its controller, if that is a separate process.
    pub controller: Option<DriverCommand>,
    /// The parameters of its storage classes.
    pub class_parameters: BTreeMap<String, String>,
    /// Their mount options.
    pub class_mount_options: Vec<String>,
    /// The file systems that it supports, if it is user-provided.
    pub file_systems: Vec<FsType>,
    /// The stock programs in place of built-in sidecars, or in addition to them.
    pub sidecars: StockSidecars,
    /// The driver file (`--driver-config`).
    pub config: Option<Arc<TestDriver>>,
    /// What `--deployment` adds apart from programs.
    pub deployment: Box<DeploymentObjects>,
    /// What of `--deployment` has no effect, and which sidecars it lacks.
    pub deployment_notice: Option<String>,
    /// What stands for images in pods.
    pub pod_images: Vec<String>,
    /// How long it may take to start.
    pub start_timeout: Option<Duration>,
    /// The defect of a proxy before it.
    pub sabotage: Option<String>,
}

impl Driver {
    /// Whether it is the built-in driver, all properties of which are known.
    fn is_builtin(&self) -> bool {
        self.command == DriverCommand::Builtin
    }

    /// The fields of its CSIDriver object that do not follow from its declared capabilities.
    fn policy(&self) -> DriverPolicy {
        let Some(config) = &self.config else {
            return DriverPolicy { inline: self.is_builtin(), ..DriverPolicy::default() };
        };
        let can = config.capabilities();
        let can = |capability| can.get(&capability) == Some(&true);
        DriverPolicy {
            inline: !config.file().inline_volumes.is_empty(),
            fs_group: can(Capability::FsGroup),
            capacity: can(Capability::Capacity),
            se_linux: can(Capability::SeLinuxMount),
        }
    }

    /// The options of a cluster with this driver.
    ///
    /// # Errors
    /// The run folder cannot be written.
    pub fn on(&self, api: Api, nodes: usize, listen: SocketAddr, folder: &RunFolder) -> Result<Options> {
        Ok(Options {
            nodes,
            driver: self.command.clone().sabotaged(self.sabotage.as_deref()),
            controller: self.controller.clone().map(|it| it.sabotaged(self.sabotage.as_deref())),
            class_parameters: self.class_parameters.clone(),
            class_mount_options: self.class_mount_options.clone(),
            policy: self.policy(),
            sidecars: self.sidecars.clone(),
            deployment: (*self.deployment).clone(),
            pod_images: self.pod_images.clone(),
            start_timeout: self.start_timeout.unwrap_or(START_TIMEOUT),
            api,
            logs: folder.cluster_dir()?,
            listen,
            kubeconfig: folder.kubeconfig(),
            instrumentation: Instrumentation::default(),
        })
    }
}

/// The storage class that a driver file names.
pub(crate) fn choice(config: &TestDriver) -> ClassChoice {
    match config.class() {
        Class::Existing(name) => ClassChoice::Named(name.clone()),
        Class::Object(class) => ClassChoice::Given(class.clone()),
        Class::Name | Class::None => ClassChoice::Given(Box::new(StorageClass {
            provisioner: config.name().to_owned(),
            ..StorageClass::default()
        })),
    }
}

impl ClusterTarget {
    /// The driver file (`--driver-config`).
    pub fn config(&self) -> Option<&Arc<TestDriver>> {
        match self {
            Self::Embedded { driver, .. } => driver.config.as_ref(),
            Self::Kind { config, .. } | Self::Existing { config, .. } => config.as_ref(),
        }
    }

    /// The storage class that the arguments name for an existing cluster.
    pub fn storage_class(&self) -> Option<&str> {
        match self {
            Self::Existing { place, .. } => place.storage_class(),
            Self::Embedded { .. } | Self::Kind { .. } => None,
        }
    }

    /// The kind of cluster, as reports name it.
    pub fn kind(&self) -> ClusterKind {
        match self {
            Self::Embedded { api: Api::Builtin(_), .. } => ClusterKind::Embedded,
            Self::Embedded { api: Api::Stock(_), .. } => ClusterKind::Envtest,
            Self::Kind { .. } => ClusterKind::Kind,
            Self::Existing { .. } => ClusterKind::Existing,
        }
    }

    /// The message to print before the cluster is started, if any.
    pub fn startup_notice(&self) -> Option<String> {
        let idle = self.config().map(|config| config.without_effect()).filter(|fields| !fields.is_empty());
        let idle =
            idle.map(|fields| format!("no case uses these fields of --driver-config: {}", fields.join(", ")));
        let wait = match self {
            Self::Kind { place, .. } => Some(place.startup_notice()),
            Self::Existing { place, .. } => place.startup_notice(),
            Self::Embedded { driver, .. } => driver.deployment_notice.clone(),
        };
        let ignored = self.config().map(|config| config.ignored()).filter(|fields| !fields.is_empty());
        let ignored = ignored.map(|fields| {
            format!("fields of --driver-config that are ignored, as upstream: {}", fields.join(", "))
        });
        let lines: Vec<String> = idle.into_iter().chain(ignored).chain(wait).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// The message to print at the end of a run if anything is kept.
    pub fn shutdown_notice(&self) -> Option<String> {
        match self {
            Self::Kind { place, .. } => place.shutdown_notice(),
            Self::Existing { place, .. } => place.shutdown_notice(),
            Self::Embedded { .. } => None,
        }
    }

    /// The storage controllers that run, if the run chooses them.
    pub fn controllers(&self) -> Option<Controllers> {
        match self {
            Self::Embedded { api: Api::Builtin(None), .. } => Some(Controllers::Builtin),
            Self::Embedded { api: Api::Builtin(Some(_)), .. } => Some(Controllers::Stock),
            Self::Embedded { api: Api::Stock(assets), .. } => {
                let stock = assets.controller_manager.is_some();
                Some(if stock { Controllers::Stock } else { Controllers::Builtin })
            }
            Self::Kind { place, .. } => Some(place.controllers()),
            Self::Existing { .. } => None,
        }
    }

    /// The stock programs of `--sidecar`, if any.
    pub fn sidecars(&self) -> Option<String> {
        match self {
            Self::Embedded { driver, .. } => driver.sidecars.description(),
            Self::Kind { .. } | Self::Existing { .. } => None,
        }
    }

    /// The period at which real kubelets report their node status, if the run configures them.
    pub fn node_status_period(&self) -> Option<String> {
        match self {
            Self::Kind { place, .. } => Some(place.node_status_period()),
            Self::Embedded { .. } | Self::Existing { .. } => None,
        }
    }

    /// Whether its nodes are virtual.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Self::Embedded { .. })
    }

    /// Starts the cluster, or connects to an existing one. Components that the run starts emit the requested telemetry.
    ///
    /// # Errors
    /// It cannot be started or used.
    pub async fn bring_up(&self, folder: &RunFolder, instrumentation: Instrumentation) -> Result<Cluster> {
        let cluster = self.start(folder, instrumentation).await?;
        match self.config() {
            Some(config) if config.name() != cluster.driver_name() => {
                let (wanted, is) = (config.name().to_owned(), cluster.driver_name().to_owned());
                cluster.down(true).await;
                bail!("DriverInfo.Name of --driver-config is {wanted}, but GetPluginInfo returns {is}")
            }
            Some(_) | None => Ok(cluster),
        }
    }

    async fn start(&self, folder: &RunFolder, instrumentation: Instrumentation) -> Result<Cluster> {
        let failed = || format!("the {} cluster cannot be started", self.kind().name());
        match self {
            Self::Embedded { api, nodes, driver } => {
                let listen = SocketAddr::from(([127, 0, 0, 1], 0));
                driver.deployment.check_class(&driver.class_parameters)?;
                let options = Options { instrumentation, ..driver.on(api.clone(), *nodes, listen, folder)? };
                // Boxed: bringing up a cluster is a large future, and is awaited once.
                Box::pin(Cluster::embedded(&options)).await.with_context(failed)
            }
            Self::Kind { place, config } => {
                let cluster = place.bring_up(folder).await.with_context(failed)?;
                match config {
                    Some(config) => Ok(cluster.choosing(&choice(config))?),
                    None => Ok(cluster),
                }
            }
            Self::Existing { place, .. } => place.bring_up(folder).await,
        }
    }

    /// What is known of the cluster before it is started: enough to list the cases and, for virtual nodes, to predict
    /// which of them will run.
    pub fn expected(&self, privilege: Option<Privilege>) -> Environment {
        self.described(self.by_kind(privilege))
    }

    /// The same, with the properties from the driver file.
    fn described(&self, environment: Environment) -> Environment {
        match self.config() {
            Some(config) => described(environment, config),
            None => environment,
        }
    }

    fn by_kind(&self, privilege: Option<Privilege>) -> Environment {
        match self {
            Self::Embedded { nodes, driver, .. } => {
                let builtin = driver.is_builtin();
                let file_systems = if builtin {
                    FileSystems {
                        ext3: loop_devices(privilege).and(program("mkfs.ext3", E2FSPROGS)),
                        ext4: loop_devices(privilege).and(program("mkfs.ext4", E2FSPROGS)),
                        xfs: loop_devices(privilege).and(program("mkfs.xfs", XFSPROGS)),
                        block: loop_devices(privilege),
                    }
                } else {
                    FileSystems::given(&driver.file_systems)
                };
                let builtin_controllers = self.controllers() == Some(Controllers::Builtin);
                let cluster_capabilities = ClusterCapabilities {
                    retracts: builtin_controllers,
                    upstream_sidecars: driver.sidecars.replace_controllers(),
                    ..ClusterCapabilities::EMBEDDED
                };
                let inline = if builtin { Ok(()) } else { Err(NO_INLINE) };
                let absent_sidecars = driver.sidecars.absent();
                Environment {
                    nodes: *nodes,
                    builtin,
                    inline,
                    cluster_capabilities,
                    absent_sidecars,
                    file_systems,
                    ..UNKNOWN
                }
            }
            Self::Kind { place, .. } => Environment {
                nodes: place.workers(),
                builtin: true,
                inline: Ok(()),
                cluster_capabilities: ClusterCapabilities {
                    retracts: place.controllers() == Controllers::Builtin,
                    upstream_sidecars: place.has_upstream_sidecars(),
                    ..ClusterCapabilities::KIND
                },
                // The image of the built-in driver contains the programs.
                file_systems: FileSystems {
                    ext3: loop_devices(None),
                    ext4: loop_devices(None),
                    xfs: loop_devices(None),
                    block: loop_devices(None),
                },
                ..UNKNOWN
            },
            Self::Existing { place, .. } => place.expected(UNKNOWN),
        }
    }

    /// The capabilities of the running cluster.
    pub fn environment(&self, privilege: Privilege, cluster: &Cluster) -> Environment {
        let declared = cluster.declared();
        self.described(Environment {
            nodes: cluster.nodes().len(),
            topology_keys: cluster.reachable_nodes().topology_keys(),
            supported_calls: declared.supported_calls,
            declared: declared.capabilities.clone(),
            ..self.by_kind(Some(privilege))
        })
    }
}

/// Applies the driver file, which takes precedence over the driver's declared capabilities.
fn described(environment: Environment, config: &TestDriver) -> Environment {
    let file = config.file();
    let known =
        |name: &str, why| if config.file_systems().any(|known| known == name) { Ok(()) } else { Err(why) };
    let classes = match config.class() {
        Class::None => Err("--driver-config has no StorageClass, so claims cannot be provisioned"),
        Class::Name | Class::Object(_) | Class::Existing(_) => Ok(()),
    };
    let inline = match file.inline_volumes.is_empty() {
        true => Err("--driver-config has no InlineVolumes"),
        false => Ok(()),
    };
    Environment {
        nodes: if file.client_node_name.is_empty() { environment.nodes } else { 1 },
        declared: config.capabilities(),
        classes,
        inline,
        largest_file: (file.driver_info.max_file_size > 0).then_some(file.driver_info.max_file_size),
        file_systems: FileSystems {
            ext3: known("ext3", "SupportedFsType of --driver-config has no ext3"),
            ext4: known("ext4", "SupportedFsType of --driver-config has no ext4"),
            xfs: known("xfs", "SupportedFsType of --driver-config has no xfs"),
            block: match config.capabilities().get(&Capability::Block) {
                Some(true) => Ok(()),
                Some(false) | None => Err("--driver-config does not declare block"),
            },
        },
        ..environment
    }
}

const NO_INLINE: &str = "support for CSI inline volumes is unknown: use --driver-config with InlineVolumes";

/// A cluster and a driver of which nothing is known yet: every case that can run on some cluster is attempted.
const UNKNOWN: Environment = Environment {
    nodes: usize::MAX,
    builtin: false,
    topology_keys: None,
    supported_calls: SupportedCalls::ALL,
    declared: BTreeMap::new(),
    pod_security: PodSecurity::Privileged,
    classes: Ok(()),
    inline: Err(NO_INLINE),
    largest_file: None,
    cluster_capabilities: ClusterCapabilities::EXISTING,
    absent_sidecars: AbsentSidecars::NONE,
    file_systems: FileSystems { ext3: Ok(()), ext4: Ok(()), xfs: Ok(()), block: Ok(()) },
};

const E2FSPROGS: &str = "needs mkfs: apt-get install e2fsprogs";
const XFSPROGS: &str = "needs mkfs.xfs: apt-get install xfsprogs";

/// Whether image-backed volumes can be created on this machine.
fn loop_devices(privilege: Option<Privilege>) -> Result<(), &'static str> {
    match privilege {
        Some(Privilege::User) => Err("needs root: unprivileged users have no loop devices"),
        _ if !Path::new("/dev/loop-control").exists() => Err("needs loop devices: modprobe loop"),
        Some(Privilege::Root) | None => Ok(()),
    }
}

fn program(name: &str, remedy: &'static str) -> Result<(), &'static str> {
    let directories = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let found = directories.iter().any(|directory| Path::new(directory).join(name).exists());
    if found { Ok(()) } else { Err(remedy) }
}
