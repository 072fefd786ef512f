//! The storage controllers of a cluster with virtual nodes: one process with all built-in ones, except for those that
//! stock programs replace (`stock_controllers/`, `remaining_controllers.rs`), and those programs.
//!
//! Each built-in controller acts as its service account, with exactly the permissions of `manifests/rbac`
//! (`accounts.rs`); those that real clusters have themselves have roles there, too.

use std::{collections::BTreeSet, ffi::OsString};

use claimcheck_component::accounts::ACCOUNTS_ENV;
use claimcheck_controllers::Name;
use claimcheck_deploy::install::{self, DriverSecrets};
use claimcheck_substrate::Capabilities;
use futures::future::join_all;
use kube::Client;

use super::{
    common::Common,
    control_plane::ControlPlane,
    controller_manager,
    error::UpError,
    node::Node,
    remaining_controllers::{self, ControlPlaneKind},
    stock_controllers,
    supervisor::Supervised,
    users::BuiltinUsers,
};
use crate::disruption::Disruption;
use claimcheck_vendor::sidecars::plan::Replaceable;

/// The processes of the controllers.
pub(super) struct Controllers {
    processes: Vec<Supervised>,
    /// The users that the built-in components act as.
    builtin_users: BuiltinUsers,
}

/// Flags of the sidecars on virtual nodes. They have upstream's defaults, with which a failed call is retried after a
/// second at the earliest, and capacities are not published; those are in the namespace of the components.
pub(crate) const SIDECAR_FLAGS: [&str; 6] = [
    "--retry-interval-start=100ms",
    "--retry-interval-max=1m",
    "--worker-threads=32",
    PUBLISH_CAPACITY,
    CAPACITY_NAMESPACE,
    install::NAMESPACE,
];
const PUBLISH_CAPACITY: &str = "--enable-capacity";
const CAPACITY_NAMESPACE: &str = "--capacity-namespace";

/// Those of the flags that one of the controllers has: others are refused.
fn sidecar_flags(names: &[Name]) -> Vec<&'static str> {
    let has = |flag: &str| match flag {
        PUBLISH_CAPACITY | CAPACITY_NAMESPACE | install::NAMESPACE => names.contains(&Name::Provisioner),
        _ => names.iter().any(|name| name.is_sidecar()),
    };
    SIDECAR_FLAGS.into_iter().filter(|flag| has(flag)).collect()
}

/// The built-in controllers that run.
fn remaining(control_plane: &ControlPlane, replaced: &BTreeSet<Replaceable>) -> Vec<Name> {
    let kind = match control_plane {
        ControlPlane::Builtin { programs: None, .. } => ControlPlaneKind::Builtin,
        ControlPlane::Builtin { programs: Some(programs), .. } => {
            ControlPlaneKind::WithManager { scheduler: programs.scheduler.is_some() }
        }
        ControlPlane::Stock(stock) => match stock.controller_manager() {
            Some(_) => ControlPlaneKind::WithManager { scheduler: false },
            None => ControlPlaneKind::Stock,
        },
    };
    remaining_controllers::controllers(kind, replaced)
}

impl Controllers {
    /// Creates their accounts, those of stock sidecars without roles of their own, and the kinds that they work on which
    /// the API server does not have: before any watch, which would discover such a kind only with a delay.
    pub(super) async fn prepare(
        common: &Common,
        control_plane: &ControlPlane,
        client: &Client,
        (replaced, without_roles): (&BTreeSet<Replaceable>, &BTreeSet<Replaceable>),
        driver_secrets: DriverSecrets,
    ) -> Result<(), UpError> {
        if let ControlPlane::Stock(_) = control_plane {
            install::apply_definitions(client).await?;
        }
        let names = remaining(control_plane, replaced);
        Ok(common.accounts.prepare(control_plane, client, &names, without_roles, driver_secrets).await?)
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
        let names = remaining(control_plane, replaced);
        let mut processes = Vec::new();
        if !names.is_empty() {
            processes.push(start_builtin(common, first, &names)?);
        }
        match control_plane {
            ControlPlane::Builtin { programs: None, .. } => {}
            ControlPlane::Builtin { server, programs: Some(programs) } => {
                let node = &first.paths.name;
                processes.extend(stock_controllers::start(programs, server, common, client, node).await?);
            }
            ControlPlane::Stock(stock) => {
                if let Some(program) = stock.controller_manager() {
                    let spec = controller_manager::command(program, &common.kubeconfig, &common.logs);
                    let manager = common.start(spec)?;
                    let running = controller_manager::wait_until_running(&manager, &common.logs, client);
                    running.await.map_err(|error| UpError::ControlPlane(error.into()))?;
                    processes.push(manager);
                }
            }
        }
        Ok(Self { processes, builtin_users: BuiltinUsers::of(&names) })
    }

    /// All processes.
    pub(super) fn processes(&self) -> &[Supervised] {
        &self.processes
    }

    /// The users that the built-in components act as.
    pub(super) fn builtin_users(&self) -> &BuiltinUsers {
        &self.builtin_users
    }

    /// Disrupts all of them.
    pub(super) async fn disrupt(&self, disruption: Disruption) {
        join_all(self.processes.iter().map(|process| process.disrupt(disruption))).await;
    }
}

/// Starts the process with these controllers.
fn start_builtin(common: &Common, first: &Node, names: &[Name]) -> Result<Supervised, UpError> {
    const NAME: &str = "controllers";
    let mut args: Vec<OsString> = vec!["controller".into()];
    args.extend(names.iter().map(|name| OsString::from(name.as_str())));
    args.extend(["--kubeconfig".into(), common.accounts.kubeconfig.clone().into()]);
    if names.iter().any(|name| name.needs_driver()) {
        let socket = common.plugin.controller_socket(&first.paths);
        args.extend(["--csi-address".into(), socket.into()]);
    }
    args.extend(sidecar_flags(names).into_iter().map(Into::into));
    args.extend(names.contains(&Name::NodeLifecycle).then(|| controller_manager::NODE_MONITOR.into()));
    args.extend(common.metrics_args(NAME, None));
    let mut spec = common.component(NAME.to_owned(), args, None);
    spec.env.push((ACCOUNTS_ENV.to_owned(), common.accounts.tokens.clone().into()));
    spec.capabilities = Capabilities::Files;
    Ok(common.start(spec)?)
}
