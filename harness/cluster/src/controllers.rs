//! The storage controllers of a cluster with virtual nodes.
//!
//! With the embedded API server one process runs all of them, except for those that stock programs replace
//! (`stock_controllers/`). An upstream one enforces RBAC: there those that are
//! installed in real clusters act as their service account, with exactly the permissions of `manifests/rbac`. The
//! others, which are part of every real cluster, run in addition with all permissions: the built-in ones, or, except
//! for the scheduler, upstream's. Those that `--sidecar` replaces do not run (`sidecars/plan.rs`).

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::Path,
};

use claimcheck_controllers::Name;
use claimcheck_substrate::{Capabilities, STATE_DIR};
use futures::future::join_all;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};

use super::{
    control_plane::ControlPlane,
    controller_manager,
    embedded::{UpError, writing},
    node::{Common, Node},
    sidecars::plan::{self, ControlPlaneKind, Replaceable, Rights},
    stock::Stock,
    stock_controllers,
    supervisor::{Disruption, Supervised},
};
use claimcheck_deploy::install::{self, DriverSecrets, Variant};

/// The processes of the controllers.
pub(super) struct Controllers(Vec<Supervised>);

/// The components that a cluster with this API server would have installed.
fn components(stock: &Stock) -> install::Options {
    let variant = match stock.controller_manager() {
        Some(_) => Variant::Stock,
        None => Variant::Kind,
    };
    install::Options::new(variant)
}

/// Flags of the sidecars on the embedded cluster. They have upstream's defaults, with which a failed call is retried
/// after a second at the earliest, and capacities are not published.
pub(super) const SIDECAR_FLAGS: [&str; 4] =
    ["--retry-interval-start=100ms", "--retry-interval-max=1m", "--worker-threads=32", PUBLISH_CAPACITY];
const PUBLISH_CAPACITY: &str = "--enable-capacity";

/// Those of the flags that one of the controllers has: others are refused.
fn sidecar_flags(names: &[Name]) -> Vec<&'static str> {
    let has = |flag: &str| match flag {
        PUBLISH_CAPACITY => names.contains(&Name::Provisioner),
        _ => names.iter().any(|name| name.is_sidecar()),
    };
    SIDECAR_FLAGS.into_iter().filter(|flag| has(flag)).collect()
}

/// Creates a namespace, unless it exists.
async fn ensure_namespace(client: &Client, name: &str) -> Result<(), UpError> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    match Api::all(client.clone()).create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

impl Controllers {
    /// Installs their permissions, and the kinds that they work on which the API server does not have:
    /// before any watch, which would discover such a kind only with a delay. They may read the Secrets that the
    /// storage classes name.
    pub(super) async fn prepare(
        control_plane: &ControlPlane,
        client: &Client,
        class_parameters: &BTreeMap<String, String>,
    ) -> Result<(), UpError> {
        if let ControlPlane::Stock(stock) = control_plane {
            let driver_secrets = DriverSecrets::of_class(class_parameters);
            if let DriverSecrets::In(namespaces) = &driver_secrets {
                for namespace in namespaces {
                    ensure_namespace(client, namespace).await?;
                }
            }
            install::grant(client, &install::Options { driver_secrets, ..components(stock) }).await?;
        }
        Ok(())
    }

    /// Starts them after [`prepare`](Self::prepare), except for those that stock sidecars replace; those that require a
    /// driver call its controller service, on the first node.
    pub(super) async fn start(
        common: &Common,
        first: &Node,
        control_plane: &ControlPlane,
        client: &Client,
        replaced: &BTreeSet<Replaceable>,
    ) -> Result<Self, UpError> {
        let socket = common.plugin.controller_socket(&first.paths);
        let start =
            |name: &str, kubeconfig: &Path, names: &[Name], more: &[&str]| -> Result<Supervised, UpError> {
                let mut args: Vec<OsString> = vec!["controller".into()];
                args.extend(names.iter().map(|name| OsString::from(name.as_str())));
                args.extend(more.iter().map(OsString::from));
                args.extend(["--kubeconfig".into(), kubeconfig.into()]);
                if names.iter().any(|name| name.needs_driver()) {
                    args.extend(["--csi-address".into(), socket.clone().into()]);
                }
                args.extend(sidecar_flags(names).into_iter().map(Into::into));
                args.extend(common.metrics_args(&name.replace(' ', "-"), None));
                let mut spec = common.component(name.to_owned(), args, None);
                spec.capabilities = Capabilities::Files;
                Ok(common.start(spec)?)
            };
        let stock = match control_plane {
            ControlPlane::Stock(stock) => stock,
            ControlPlane::Builtin { server, programs } => {
                let kind = match programs {
                    None => ControlPlaneKind::Builtin,
                    Some(programs) => {
                        ControlPlaneKind::BuiltinWith { scheduler: programs.scheduler.is_some() }
                    }
                };
                let mut processes = Vec::new();
                for process in plan::controllers(kind, replaced) {
                    processes.push(start(process.name, &common.kubeconfig, &process.controllers, &[])?);
                }
                if let Some(programs) = programs {
                    let node = &first.paths.name;
                    processes.extend(stock_controllers::start(programs, server, common, client, node).await?);
                }
                return Ok(Self(processes));
            }
        };
        let components = components(stock);
        let account = Path::new(STATE_DIR).join("kubeconfig-controllers");
        let kubeconfig = stock.kubeconfig_of_controllers();
        claimcheck_apiserver::kubeconfig::write(&account, &kubeconfig).map_err(writing(&account))?;
        let installed = install::controllers(&components);
        let installed: Vec<Name> = installed
            .iter()
            .map(|name| name.parse().expect("the manifests name existing controllers"))
            .collect();
        let at_home = ["--capacity-namespace", components.namespace.as_str()];
        let manager = stock.controller_manager();
        let kind = ControlPlaneKind::Stock { installed: &installed, manager: manager.is_some() };
        let mut processes = Vec::new();
        for process in plan::controllers(kind, replaced) {
            let (kubeconfig, more): (&Path, &[&str]) = match process.rights {
                Rights::Manifests if process.controllers.contains(&Name::Provisioner) => (&account, &at_home),
                Rights::Manifests => (&account, &[]),
                Rights::All => (&common.kubeconfig, &[]),
            };
            processes.push(start(process.name, kubeconfig, &process.controllers, more)?);
        }
        if let Some(program) = manager {
            let spec = controller_manager::command(program, &common.kubeconfig, &common.logs);
            let manager = common.start(spec)?;
            let running = controller_manager::wait_until_running(&manager, &common.logs, client).await;
            running.map_err(|error| UpError::ControlPlane(error.into()))?;
            processes.push(manager);
        }
        Ok(Self(processes))
    }

    /// All processes.
    pub(super) fn processes(&self) -> &[Supervised] {
        &self.0
    }

    /// Disrupts all of them.
    pub(super) async fn disrupt(&self, disruption: Disruption) {
        join_all(self.0.iter().map(|process| process.disrupt(disruption))).await;
    }
}
