//! What all processes of a cluster with virtual nodes have in common: paths, variables, logs and supervision.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use claimcheck_csi::tap::KnownSecrets;
use claimcheck_driver::host::LOOP_HOLDER_ENV;
use claimcheck_model::ComponentEnd;
use claimcheck_substrate::{Capabilities, NodeNamespace, ProcessSpec, STATE_DIR, SpawnError};
use tokio::sync::mpsc;

use super::{accounts::ControllerAccounts, node_driver::Plugin, supervisor::Supervised};
use crate::{log_search::Disclosures, secrets::Secrets};
use claimcheck_component::writes::WRITES_ENV;
use claimcheck_component::{MARKER, logging};
use claimcheck_telemetry::metrics::Components;
use claimcheck_vendor::sidecars::Init;

/// The paths of a node.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub name: String,
    /// In the run's namespace.
    pub kubelet: PathBuf,
    pub runtime_socket: PathBuf,
    /// The credentials of its agent.
    pub kubeconfig: PathBuf,
}

impl Paths {
    pub(crate) fn of(name: &str) -> Self {
        let dir = Path::new(STATE_DIR).join("n").join(name);
        Self {
            name: name.to_owned(),
            kubelet: dir.join("kubelet"),
            runtime_socket: dir.join("runtime.sock"),
            kubeconfig: dir.join("kubeconfig"),
        }
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.kubelet.join("plugins_registry")
    }
}

/// The common data of all nodes of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub ourselves: PathBuf,
    pub logs: PathBuf,
    pub plugin: Plugin,
    /// The administrator's.
    pub kubeconfig: PathBuf,
    /// The secrets in calls of stock programs.
    pub known_secrets: KnownSecrets,
    /// The lines in which programs logged them.
    pub disclosures: Disclosures,
    /// The init containers of `--deployment`.
    pub init: Vec<Init>,
    /// Where controllers find their accounts.
    pub accounts: ControllerAccounts,
    /// `IMAGE=PROGRAM`: what stands for images in pods.
    pub pod_images: Vec<String>,
    /// The CA of clients that may read logs from nodes.
    pub client_ca: Option<PathBuf>,
    /// The file with the token of clients that may do so.
    pub node_token: Option<PathBuf>,
    pub tap: PathBuf,
    /// The socket at which this process holds loop devices open for drivers.
    pub loop_holder: PathBuf,
    /// The same socket as `tap`, if components report their API writes there.
    pub writes: Option<PathBuf>,
    /// The directory in which components serve their metrics, if enabled.
    pub metrics: Option<Components>,
    /// The channel for unexpected exits of components.
    pub ends: mpsc::UnboundedSender<ComponentEnd>,
}

impl Common {
    /// One of the built-in components as a process.
    pub(crate) fn component(
        &self,
        name: String,
        args: Vec<OsString>,
        namespace: Option<NodeNamespace>,
    ) -> ProcessSpec {
        ProcessSpec {
            log: self.logs.join(format!("{}.log", name.replace(' ', "-"))),
            filter: None,
            name,
            program: self.ourselves.clone(),
            args,
            env: [(MARKER.into(), "1".into()), ("CLAIMCHECK_TAP".into(), self.tap.clone().into())]
                .into_iter()
                .chain([(LOOP_HOLDER_ENV.into(), self.loop_holder.clone().into())])
                .chain(self.writes.as_ref().map(|socket| (WRITES_ENV.into(), socket.clone().into())))
                .chain(logging::for_components())
                .collect(),
            namespace,
            run_directory: None,
            capabilities: Capabilities::All,
        }
    }

    /// Removes the secrets of the run, those of the program's own command line, and tokens from what it logs, as it logs
    /// them.
    pub(crate) fn without_secrets(&self, mut spec: ProcessSpec) -> ProcessSpec {
        let (known, own) = (self.known_secrets.clone(), KnownSecrets::default());
        own.add(Secrets::of(spec.args.iter().filter_map(|word| word.to_str())).iter());
        spec.filter = Some(self.disclosures.filter(&spec.log, known, own));
        spec
    }

    /// Arguments with which one of the built-in components serves its metrics.
    pub(crate) fn metrics_args(&self, component: &str, node: Option<&str>) -> Vec<OsString> {
        let args = self.metrics.as_ref().map(|metrics| metrics.args(component, node));
        args.into_iter().flatten().map(OsString::from).collect()
    }

    /// Starts a component, and keeps it running.
    pub(crate) fn start(&self, spec: ProcessSpec) -> Result<Supervised, SpawnError> {
        Supervised::start(spec, self.ends.clone())
    }
}
