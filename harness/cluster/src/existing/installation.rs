//! The built-in components on an existing cluster for the duration of a run: `--cluster existing --install`.
//!
//! They are removed whenever the run ends: normally, with an error, or by Ctrl-C, which drops the waiting future.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use claimcheck_csi::tap::KnownSecrets;
use claimcheck_model::{ComponentFault, Log};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client, api::ListParams};
use tracing::{error, info, warn};

use super::{
    controller_node::{self, ControllerNodeWatch},
    disrupt::disrupt,
    target::Target,
};
use crate::{
    backend::Backend,
    cluster::Cluster,
    component_logs,
    disruption::{DisruptError, Disruption, Victim},
    log_search::LogSearch,
    properties::{ClusterCapabilities, Properties},
    real_nodes::{
        Real, RealError,
        components::{self, COMPONENTS, InstallComponentsError, install_components},
    },
};
use claimcheck_deploy::install::{self, InstallError, Variant};
use claimcheck_kind::{StockController, Version};

/// The requested installation.
#[derive(Clone, Debug)]
pub struct Install {
    /// The components.
    pub components: install::Options,
    /// Whether they outlive the run.
    pub keep: bool,
    /// Whether disruptive cases may disrupt them.
    pub disrupt: bool,
}

impl Install {
    /// The abilities of a cluster with them, in addition to its API.
    pub fn cluster_capabilities(&self) -> ClusterCapabilities {
        let upstream_sidecars = self.components.sidecars == install::Sidecars::Upstream;
        ClusterCapabilities { disrupt: self.disrupt, upstream_sidecars, ..ClusterCapabilities::EXISTING }
    }
}

/// The components could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// The cluster cannot be reached.
    #[error(transparent)]
    Reach(#[from] RealError),
    /// A required query failed.
    #[error("cannot read {what}: `claimcheck rbac --install` prints the required permissions")]
    Look {
        /// The object of the query.
        what: &'static str,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
    /// Both upstream's and the built-in controllers would run.
    #[error(
        "--install=kind replaces storage controllers of Kubernetes, which must be disabled: {0}; use --install=stock"
    )]
    StockControllers(String),
    /// They do not become ready.
    #[error(transparent)]
    Components(#[from] InstallComponentsError),
}

/// The components on a cluster. Dropping it removes them, unless they are kept.
#[derive(Debug)]
pub(crate) struct Installation {
    target: Target,
    components: install::Options,
    stays: bool,
    logs: PathBuf,
    /// Watches the node with all volumes, if they are on one node.
    controller_node: Option<ControllerNodeWatch>,
    cluster_capabilities: ClusterCapabilities,
}

impl Cluster {
    /// Connects to a cluster and installs the components. Dropping the future removes whatever is installed by then.
    /// Their logs are written to `logs`, an existing folder, if something fails.
    ///
    /// # Errors
    /// [`InstallationError`] describes what is missing or failed; nothing is leaked, unless it is kept.
    pub async fn with_components(
        target: &Target,
        install: &Install,
        logs: &Path,
    ) -> Result<Self, InstallationError> {
        let Install { components, keep, .. } = install;
        let client = target.connect().await?;
        if components.variant == Variant::Kind {
            let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
            let managers =
                pods.list(&ListParams::default().labels("component=kube-controller-manager")).await;
            let what = "the controller managers' pods in kube-system";
            let managers = managers.map_err(|source| InstallationError::Look { what, source })?;
            let version = client.apiserver_version().await.map_err(|source| InstallationError::Look {
                what: "the version of the API server",
                source,
            })?;
            are_off(&managers.items, version.git_version.parse().ok())
                .map_err(InstallationError::StockControllers)?;
        }
        let namespaces = Api::<Namespace>::all(client.clone());
        let before = namespaces.get_metadata_opt(&components.namespace).await;
        let before = before.map_err(|source| InstallationError::Look { what: "namespaces", source })?;
        if before.is_some() {
            let overlay = components.overlay();
            warn!(
                "claimcheck is already installed: it is reconfigured for this run, and kept; \
                 `kubectl delete -k manifests/{overlay}` removes it"
            );
        }
        let (target, components, logs) = (target.clone(), components.clone(), logs.to_owned());
        let stays = *keep || before.is_some();
        let cluster_capabilities = install.cluster_capabilities();
        let mut installation =
            Installation { target, components, stays, logs, controller_node: None, cluster_capabilities };
        match Box::pin(installation.install_components(client)).await {
            Ok(real) => Ok(real.with(installation)),
            Err(error) => {
                installation.end(true).await;
                Err(error.into())
            }
        }
    }
}

impl Installation {
    async fn install_components(&mut self, client: Client) -> Result<Real, InstallComponentsError> {
        let mut real = install_components(client.clone(), &self.components, &self.target.class).await?;
        if self.components.variant == Variant::Existing {
            // Volumes are created by the driver next to the controllers, and belong to that node.
            let pods = Api::<Pod>::namespaced(client, &self.components.namespace);
            let node = controller_node::node(&pods).await.map_err(|source| InstallError::Refused {
                what: "found",
                object: format!("pods of Deployment {}", install::CONTROLLERS),
                source: Box::new(source),
            })?;
            if let Some(node) = node {
                real.around(&node)?;
                self.controller_node = Some(ControllerNodeWatch::watch(pods, node));
            }
        }
        Ok(real)
    }

    /// A note on existing volumes, if the controllers have moved to another node.
    fn moved(&self) -> Option<Log> {
        let text = self.controller_node.as_ref().and_then(ControllerNodeWatch::moved)?;
        Some(Log { of: format!("Deployment {}", install::CONTROLLERS), text: text.to_owned() })
    }

    /// Removes the components, unless they are kept; if something `failed`, after their logs are
    /// written.
    async fn end(mut self, failed: bool) {
        if failed {
            match self.target.connect().await {
                Ok(client) => component_logs::write(&client, &self.components.namespace, &self.logs).await,
                Err(error) => warn!(%error, "cannot collect the components' logs"),
            }
        }
        if std::mem::replace(&mut self.stays, true) {
            return;
        }
        remove(&self.target, &self.components).await;
    }
}

#[async_trait]
impl Backend for Installation {
    fn properties(&self) -> Properties {
        Properties::real(self.cluster_capabilities)
    }

    fn outlives_run(&self) -> bool {
        true
    }

    async fn search_logs(&self, client: &Client, _driver: &str, known: &KnownSecrets) -> LogSearch {
        components::search_logs(client, known).await
    }

    async fn component_faults(&self, client: &Client, since: Duration) -> Vec<ComponentFault> {
        component_logs::faults(client, &self.components, since).await
    }

    async fn disrupt(
        &self,
        client: &Client,
        victim: &Victim,
        disruption: Disruption,
    ) -> Result<(), DisruptError> {
        match self.cluster_capabilities.disrupt {
            true => disrupt(client, &COMPONENTS, victim, disruption).await,
            false => Err(DisruptError::Absent(victim.clone())),
        }
    }

    async fn logs_mentioning(&self, client: &Client, names: &[String]) -> Vec<Log> {
        let mut logs = component_logs::by_pods(client, COMPONENTS.namespace, names).await;
        logs.extend(self.moved());
        logs
    }

    async fn down(self: Box<Self>, _client: &Client, failed: bool) {
        self.end(failed).await;
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let (target, components) = (self.target.clone(), self.components.clone());
        // A separate runtime: that of the run may be shutting down, and a drop cannot await.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(remove(&target, &components)),
                Err(error) => error!(%error, "the components were not removed"),
            }
        });
        if removal.join().is_err() {
            error!("the components were not removed");
        }
    }
}

async fn remove(target: &Target, components: &install::Options) {
    info!("removed the components");
    let removed = async {
        let client = target.connect().await?;
        Ok::<_, InstallComponentsError>(install::uninstall(&client, components).await?)
    };
    if let Err(error) = removed.await {
        let error: &(dyn std::error::Error + 'static) = &error;
        let overlay = components.overlay();
        error!(error, "the components were not removed: run `kubectl delete -k manifests/{overlay}`");
    }
}

/// Whether the controllers that are replaced, as far as this Kubernetes has them, are disabled in every controller
/// manager; otherwise the reason.
fn are_off(managers: &[Pod], kubernetes: Option<Version>) -> Result<(), String> {
    let replaced = StockController::replaced_in(kubernetes);
    if managers.is_empty() {
        return Err("no kube-controller-manager pod found in kube-system".to_owned());
    }
    for manager in managers {
        let name = manager.metadata.name.as_deref().unwrap_or_default();
        let containers = manager.spec.iter().flat_map(|spec| &spec.containers);
        let words = containers.flat_map(|c| c.command.iter().flatten().chain(c.args.iter().flatten()));
        let given = words.filter_map(|word| word.strip_prefix("--controllers=")).next_back().unwrap_or("*");
        let given: Vec<&str> = given.split(',').collect();
        let is = |word: &str| given.contains(&word);
        let on = |controller: &&StockController| {
            let name = controller.name();
            (is("*") || is(name)) && !is(&format!("-{name}"))
        };
        if let Some(on) = replaced.iter().find(on) {
            return Err(format!("{} runs in pod {name}", on.name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manager(args: &[&str]) -> Pod {
        let command = [["kube-controller-manager"].as_slice(), args].concat();
        let container = json!({ "name": "m", "command": command });
        serde_json::from_value(
            json!({ "metadata": { "name": "m-0" }, "spec": { "containers": [container] } }),
        )
        .unwrap()
    }

    #[test]
    fn stock_controllers_are_off_only_where_their_manager_disables_them() {
        let version = |minor| Some(Version { major: 1, minor, patch: 2 });
        let newest = version(36);
        let off: String = StockController::REPLACED.iter().map(|c| format!(",-{}", c.name())).collect();
        let (all, but_one) =
            (format!("--controllers=*{off}"), off.trim_start_matches(",").split_once(',').unwrap().1);
        let but_one = format!("--controllers=*,{but_one}");
        let both = [manager(&[&all]), manager(&["--controllers=namespace-controller"])];
        assert_eq!(are_off(&both, newest), Ok(()));
        // A controller of newer versions is checked if it exists.
        let classes = format!(",-{}", StockController::ClassProtection.name());
        let but_classes = all.replace(&classes, "");
        assert_ne!(but_classes, all);
        assert_eq!(are_off(&[manager(&[&but_classes])], version(31)), Ok(()));
        let error = are_off(&[manager(&[&but_classes])], newest).unwrap_err();
        assert_eq!(error, "volumeattributesclass-protection-controller runs in pod m-0");
        let first = StockController::REPLACED[0].name();
        for (managers, why) in [
            (vec![], "no kube-controller-manager pod".to_owned()),
            (vec![manager(&["--leader-elect"])], format!("{first} runs in pod m-0")),
            (vec![manager(&[&but_one])], format!("{first} runs")),
            (vec![manager(&[&all]), manager(&[])], format!("{first} runs")),
        ] {
            let error = are_off(&managers, newest).unwrap_err();
            assert!(error.contains(&why), "{error}");
        }
    }
}
