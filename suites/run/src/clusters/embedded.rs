//! Clusters with virtual nodes on this machine: `--cluster embedded`, and `envtest` with a stock API server.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use claimcheck_cluster::{
    Api, Assets, Cluster, ClusterCapabilities, ControllerPrograms, DriverPolicy, Instrumentation, Options,
};
use claimcheck_harness::Privilege;
use claimcheck_kind::Controllers;
use claimcheck_model::{Capability, ClusterKind};
use claimcheck_report::RunFolder;
use claimcheck_suites::{
    Environment, FileSystems, FsType,
    testdriver::{Class, TestDriver},
};
use claimcheck_vendor::{DriverCommand, Plan, driver_command::BUILTIN, sidecars::plan::Replaceable};

use super::{
    place::{Development, NO_INLINE, Place, UNKNOWN, loop_devices},
    row::{Placed, Row},
};
use crate::cluster_options::{ClusterArgsError, ClusterOptions, existing_class, file_systems};

/// Built-in components and API server.
pub(super) const EMBEDDED: Row = Row {
    kind: ClusterKind::Embedded,
    description: "Built-in components on this machine, without Docker",
    has_virtual_nodes: true,
    installs: |_| false,
    place: |options, config| {
        let api = Api::Builtin(match options.controllers() {
            Controllers::Builtin => None,
            Controllers::Stock => Some(ControllerPrograms::find()?),
        });
        place(api, options, config)
    },
};

/// The same with upstream's API server.
pub(super) const ENVTEST: Row = Row {
    kind: ClusterKind::Envtest,
    description: "Stock kube-apiserver and etcd from KUBEBUILDER_ASSETS or PATH, with built-in controllers and nodes",
    place: |options, config| place(Api::Stock(Assets::find(options.controllers())?), options, config),
    ..EMBEDDED
};

/// The default number of nodes: cases that move a volume require two.
const NODES: u16 = 2;

/// How long a driver on virtual nodes may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The driver on virtual nodes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Driver {
    /// What a cluster runs of its vendor.
    pub vendor: Box<Plan>,
    /// The file systems that it supports, if it is user-provided.
    pub file_systems: Vec<FsType>,
    /// The driver file (`--driver-config`).
    pub config: Option<Arc<TestDriver>>,
    /// What of `--deployment` has no effect, and which sidecars it lacks.
    pub deployment_notice: Option<String>,
    /// What stands for images in pods.
    pub pod_images: Vec<String>,
    /// How long it may take to start.
    pub start_timeout: Option<Duration>,
    /// The defect of a proxy before it, or at the API server.
    pub sabotage: Option<String>,
    /// How long a step of a case may take.
    pub step_timeout: Option<Duration>,
}

impl Driver {
    /// Whether it is the built-in driver, all properties of which are known.
    fn is_builtin(&self) -> bool {
        self.vendor.driver == DriverCommand::Builtin
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
    /// The run folder cannot be written, or the API server cannot have the defect.
    fn on(&self, api: Api, nodes: usize, listen: SocketAddr, folder: &RunFolder) -> Result<Options> {
        let row = self.sabotage.as_deref().map(claimcheck_saboteur::defect).transpose()?;
        let mut vendor = self.vendor.clone();
        if let Some(row) = row.as_ref().filter(|row| !row.driver_args.is_empty()) {
            ensure!(self.is_builtin(), "--sabotage {} is of the built-in driver: omit --driver", row.name);
            let words = BUILTIN.into_iter().map(str::to_owned).chain(row.driver_args.iter().cloned());
            vendor.driver = DriverCommand::OwnProgram(words.collect());
        }
        let interference = row.as_ref().and_then(claimcheck_saboteur::interference);
        if let (Some(_), Api::Stock(_), Some(row)) = (&interference, &api, &row) {
            bail!(
                "--sabotage {} is a defect of components at the embedded API server: use --cluster embedded",
                row.name
            );
        }
        let of_calls = row.as_ref().filter(|row| !row.rules.is_empty()).map(|row| row.name.as_str());
        Ok(Options {
            nodes,
            vendor: vendor.sabotaged(of_calls),
            policy: self.policy(),
            pod_images: self.pod_images.clone(),
            start_timeout: self.start_timeout.unwrap_or(START_TIMEOUT),
            api,
            logs: folder.cluster_dir()?,
            listen,
            kubeconfig: folder.kubeconfig(),
            instrumentation: Instrumentation::default(),
            step_timeout: self.step_timeout,
            interference,
        })
    }
}

/// Virtual nodes on this machine.
#[derive(Clone, Debug)]
struct EmbeddedPlace {
    /// The embedded API server, or a stock one.
    api: Api,
    /// The number of nodes.
    nodes: usize,
    /// The driver.
    driver: Driver,
}

fn place(api: Api, options: ClusterOptions, config: Option<Arc<TestDriver>>) -> Placed {
    let nodes = usize::from(options.nodes.unwrap_or(NODES));
    Ok(Arc::new(EmbeddedPlace { api, nodes, driver: driver(options, config)? }))
}

fn driver(options: ClusterOptions, config: Option<Arc<TestDriver>>) -> Result<Driver, ClusterArgsError> {
    let of_file = match config.as_deref().map(TestDriver::class) {
        Some(Class::Object(class)) => Some(&**class),
        Some(Class::None | Class::Name | Class::Existing(_)) | None => None,
    };
    let parameters = of_file.and_then(|class| class.parameters.clone()).unwrap_or_default();
    let mount_options = of_file.and_then(|class| class.mount_options.clone());
    let file_systems = file_systems(&options.fs_types);
    let class = existing_class(config.as_deref());
    let Some(deployment) = options.deployment.read(options.sidecars.roles(), class)? else {
        let vendor = Plan {
            driver: options.driver,
            controller: options.driver_controller,
            class_parameters: parameters.into_iter().chain(options.driver_params).collect(),
            class_mount_options: mount_options.unwrap_or_default(),
            sidecars: options.sidecars.read(None)?,
            ..Plan::default()
        };
        return Ok(Driver {
            vendor: Box::new(vendor),
            file_systems,
            config,
            pod_images: options.pod_images,
            start_timeout: options.start_timeout,
            sabotage: options.sabotage,
            step_timeout: options.step_timeout,
            ..Driver::default()
        });
    };
    let (command, controller) = match (deployment.driver, options.driver) {
        (
            Some(_),
            DriverCommand::Exec(_) | DriverCommand::OwnProgram(_) | DriverCommand::Sabotaged { .. },
        ) => {
            return Err(ClusterArgsError::TwoDrivers { argument: "--driver" });
        }
        (Some(_), DriverCommand::Builtin) if options.driver_controller.is_some() => {
            return Err(ClusterArgsError::TwoDrivers { argument: "--driver-controller" });
        }
        (Some(driver), DriverCommand::Builtin) => (driver, deployment.controller),
        (None, DriverCommand::Builtin) => return Err(ClusterArgsError::NoWorkload),
        (None, driver) => (driver, options.driver_controller),
    };
    let parameters = deployment.class_parameters.into_iter().chain(parameters).chain(options.driver_params);
    let vendor = Plan {
        driver: command,
        controller,
        class_parameters: parameters.collect(),
        class_mount_options: mount_options.unwrap_or(deployment.class_mount_options),
        sidecars: options.sidecars.read(Some(deployment.sidecars))?,
        objects: deployment.objects,
    };
    Ok(Driver {
        vendor: Box::new(vendor),
        file_systems,
        config,
        deployment_notice: deployment.notice,
        pod_images: options.pod_images,
        start_timeout: options.start_timeout,
        sabotage: options.sabotage,
        step_timeout: options.step_timeout,
    })
}

fn kind_of(api: &Api) -> ClusterKind {
    match api {
        Api::Builtin(_) => ClusterKind::Embedded,
        Api::Stock(_) => ClusterKind::Envtest,
    }
}

#[async_trait(?Send)]
impl Place for EmbeddedPlace {
    async fn start(&self, folder: &RunFolder, instrumentation: Instrumentation) -> Result<Cluster> {
        let Self { api, nodes, driver } = self;
        let kind = kind_of(api);
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        driver.vendor.objects.check_class(&driver.vendor.class_parameters)?;
        let options = Options { instrumentation, ..driver.on(api.clone(), *nodes, listen, folder)? };
        // Boxed: bringing up a cluster is a large future, and is awaited once.
        let cluster = Box::pin(Cluster::embedded(&options)).await;
        cluster.with_context(|| format!("the {} cluster cannot be started", kind.name()))
    }

    fn expected(&self, privilege: Option<Privilege>) -> Environment {
        let Self { nodes, driver, .. } = self;
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
        let is_builtin_api = matches!(self.api, Api::Builtin(_));
        let replaced = driver.vendor.sidecars.without_builtin();
        let cluster_capabilities = ClusterCapabilities {
            // What runs on the nodes is known, and pods may run on any of them.
            own_nodes: builtin
                && is_builtin_api
                && driver.config.is_none()
                && !replaced.contains(&Replaceable::Registrar),
            retracts: builtin_controllers,
            // On a stock API server without kubelets they are not run.
            api_faults: is_builtin_api,
            workloads: !builtin_controllers && is_builtin_api,
            upstream_sidecars: driver.vendor.sidecars.replace_controllers(),
            ..ClusterCapabilities::EMBEDDED
        };
        let inline = if builtin { Ok(()) } else { Err(NO_INLINE) };
        let absent_sidecars = driver.vendor.sidecars.absent();
        Environment {
            cluster: kind_of(&self.api),
            nodes: *nodes,
            builtin,
            inline,
            cluster_capabilities,
            absent_sidecars,
            file_systems,
            ..UNKNOWN
        }
    }

    fn development(&self) -> Development {
        let Self { api, nodes, driver } = self.clone();
        Development::Foreground(Box::new(move |listen, folder| driver.on(api, nodes, listen, folder)))
    }

    fn startup_notice(&self) -> Option<String> {
        self.driver.deployment_notice.clone()
    }

    fn controllers(&self) -> Option<Controllers> {
        Some(match &self.api {
            Api::Builtin(None) => Controllers::Builtin,
            Api::Builtin(Some(_)) => Controllers::Stock,
            Api::Stock(assets) if assets.controller_manager.is_some() => Controllers::Stock,
            Api::Stock(_) => Controllers::Builtin,
        })
    }

    fn sidecars(&self) -> Option<String> {
        self.driver.vendor.sidecars.description()
    }
}

const E2FSPROGS: &str = "needs mkfs: apt-get install e2fsprogs";
const XFSPROGS: &str = "needs mkfs.xfs: apt-get install xfsprogs";

fn program(name: &str, remedy: &'static str) -> Result<(), &'static str> {
    let directories = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let found = directories.iter().any(|directory| Path::new(directory).join(name).exists());
    if found { Ok(()) } else { Err(remedy) }
}
