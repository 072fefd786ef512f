//! Our components on somebody's cluster, for as long as a run takes: what `--cluster existing --install` runs on.
//!
//! Whatever ends the run takes them away again: its end, an error, or Ctrl-C, which drops the future that waits.

use std::path::{Path, PathBuf};

use claimcheck_model::Log;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client, api::ListParams};
use tracing::{error, info, warn};

use super::{
    Abilities,
    equip::{EquipError, equip},
    home::{self, Home},
    real::{Real, RealError, Target},
    said,
};
use claimcheck_deploy::install::{self, InstallError, Variant};
use claimcheck_kind::{StockController, Version};

/// What is to be installed.
#[derive(Clone, Debug)]
pub struct Install {
    /// The components.
    pub components: install::Options,
    /// They shall outlive the run.
    pub keep: bool,
    /// Disruptive cases may hit them.
    pub disrupt: bool,
}

impl Install {
    /// What a cluster with them offers beside its API.
    pub fn abilities(&self) -> Abilities {
        let upstream_sidecars = self.components.sidecars == install::Sidecars::Upstream;
        Abilities { disrupt: self.disrupt, upstream_sidecars, ..Real::ABILITIES }
    }
}

/// Why our components are not on a cluster.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// The cluster cannot be reached.
    #[error(transparent)]
    Reach(#[from] RealError),
    /// It does not answer what has to be known before.
    #[error("{what} cannot be looked at: `claimcheck rbac --install` prints the rights that are needed")]
    Look {
        /// What.
        what: &'static str,
        /// What the client says.
        #[source]
        source: kube::Error,
    },
    /// Two would do the same work.
    #[error(
        "--install=kind replaces storage controllers of Kubernetes, which must be off: {0}; use --install=stock"
    )]
    StockControllers(String),
    /// They do not work there.
    #[error(transparent)]
    Equip(#[from] EquipError),
}

/// Our components on a cluster. Dropping it removes them, unless they are to stay.
#[derive(Debug)]
pub(super) struct Installation {
    target: Target,
    components: install::Options,
    stays: bool,
    logs: PathBuf,
    /// Where all volumes are on one node.
    home: Option<Home>,
    pub(super) abilities: Abilities,
}

impl Real {
    /// Installs our components on a cluster. Dropping the future removes what there is by then. What they have said
    /// is written to `logs`, an existing folder, if something fails.
    ///
    /// # Errors
    /// [`InstallationError`] says what is missing or went wrong; nothing is left, unless it is to be kept.
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
                "claimcheck is installed already: it is made what this run wants, and stays; \
                 `kubectl delete -k manifests/{overlay}` removes it"
            );
        }
        let (target, components, logs) = (target.clone(), components.clone(), logs.to_owned());
        let stays = *keep || before.is_some();
        let abilities = install.abilities();
        let mut installation = Installation { target, components, stays, logs, home: None, abilities };
        match Box::pin(installation.equip(client)).await {
            Ok(real) => Ok(real.with(installation)),
            Err(error) => {
                installation.end(true).await;
                Err(error.into())
            }
        }
    }
}

impl Installation {
    async fn equip(&mut self, client: Client) -> Result<Real, EquipError> {
        let mut real = equip(client.clone(), &self.components, &self.target.class).await?;
        if self.components.variant == Variant::Existing {
            // Volumes are made by the driver beside the controllers, and belong to that node.
            let pods = Api::<Pod>::namespaced(client, &self.components.namespace);
            let node = home::node(&pods).await.map_err(|source| InstallError::Refused {
                what: "found",
                object: format!("pods of Deployment {}", install::CONTROLLERS),
                source: Box::new(source),
            })?;
            if let Some(node) = node {
                real.around(&node)?;
                self.home = Some(Home::watch(pods, node));
            }
        }
        Ok(real)
    }

    /// What became of volumes, if the controllers have left the node on which they are.
    pub(super) fn moved(&self) -> Option<Log> {
        let text = self.home.as_ref().and_then(Home::left)?;
        Some(Log { of: format!("Deployment {}", install::CONTROLLERS), text: text.to_owned() })
    }

    /// Takes the components away, if they are not to stay; where something `failed`, after what they have said is
    /// written.
    pub(super) async fn end(mut self, failed: bool) {
        if failed {
            match self.target.connect().await {
                Ok(client) => said::write(&client, &self.components.namespace, &self.logs).await,
                Err(error) => warn!(%error, "what our components have said is not known"),
            }
        }
        if std::mem::replace(&mut self.stays, true) {
            return;
        }
        remove(&self.target, &self.components).await;
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let (target, components) = (self.target.clone(), self.components.clone());
        // A runtime of its own: that of the run may be ending, and nobody can wait in a drop.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(remove(&target, &components)),
                Err(error) => error!(%error, "our components are not removed"),
            }
        });
        if removal.join().is_err() {
            error!("our components are not removed");
        }
    }
}

async fn remove(target: &Target, components: &install::Options) {
    info!("our components are removed");
    let removed = async {
        let client = target.connect().await?;
        Ok::<_, EquipError>(install::uninstall(&client, components).await?)
    };
    if let Err(error) = removed.await {
        let error: &(dyn std::error::Error + 'static) = &error;
        let overlay = components.overlay();
        error!(error, "our components are not removed: `kubectl delete -k manifests/{overlay}` does it");
    }
}

/// Whether the controllers that ours replace, as far as this Kubernetes has them, are off in every controller manager;
/// the reason why that is not known.
fn are_off(managers: &[Pod], kubernetes: Option<Version>) -> Result<(), String> {
    let replaced = StockController::replaced_in(kubernetes);
    if managers.is_empty() {
        return Err("no kube-controller-manager is to be seen in kube-system".to_owned());
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
    fn stock_controllers_are_off_only_where_their_manager_says_so() {
        let version = |minor| Some(Version { major: 1, minor, patch: 2 });
        let newest = version(36);
        let off: String = StockController::REPLACED.iter().map(|c| format!(",-{}", c.name())).collect();
        let (all, but_one) =
            (format!("--controllers=*{off}"), off.trim_start_matches(",").split_once(',').unwrap().1);
        let but_one = format!("--controllers=*,{but_one}");
        let both = [manager(&[&all]), manager(&["--controllers=namespace-controller"])];
        assert_eq!(are_off(&both, newest), Ok(()));
        // One that came later is asked for where it is there.
        let classes = format!(",-{}", StockController::ClassProtection.name());
        let but_classes = all.replace(&classes, "");
        assert_ne!(but_classes, all);
        assert_eq!(are_off(&[manager(&[&but_classes])], version(31)), Ok(()));
        let error = are_off(&[manager(&[&but_classes])], newest).unwrap_err();
        assert_eq!(error, "volumeattributesclass-protection-controller runs in pod m-0");
        let first = StockController::REPLACED[0].name();
        for (managers, why) in [
            (vec![], "no kube-controller-manager".to_owned()),
            (vec![manager(&["--leader-elect"])], format!("{first} runs in pod m-0")),
            (vec![manager(&[&but_one])], format!("{first} runs")),
            (vec![manager(&[&all]), manager(&[])], format!("{first} runs")),
        ] {
            let error = are_off(&managers, newest).unwrap_err();
            assert!(error.contains(&why), "{error}");
        }
    }
}
