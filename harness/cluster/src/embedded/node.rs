//! One virtual node: its runtime, its driver and its agent.

use std::{ffi::OsString, fs, io, path::PathBuf};

use claimcheck_apiserver::kubeconfig;
use claimcheck_substrate::{KUBELET_DIR, NodeNamespace, Process, SpawnError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::{
    common::{Common, Paths},
    init::{self, InitError},
    node_driver::{NodeDriver, NodeDriverError},
    supervisor::Supervised,
};

/// A running virtual node.
#[derive(Debug)]
pub(crate) struct Node {
    pub paths: Paths,
    pub agent: Supervised,
    pub driver: NodeDriver,
    pub namespace: NodeNamespace,
    // Not supervised: without its runtime a node loses its pods, which fails the run.
    pub runtime: Process,
    runtime_log: PathBuf,
}

/// A node cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Driver(#[from] NodeDriverError),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error("cannot prepare {path} for {node}")]
    Prepare {
        node: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the container runtime of {node} failed to start: {log}")]
    Runtime { node: String, log: String },
}

impl Node {
    /// Starts a node's processes, after its init containers, with this kubeconfig for its agent. It is ready once its agent reports so in the API.
    pub(crate) async fn start(
        common: &Common,
        (name, is_first): (&str, bool),
        kubeconfig: &str,
    ) -> Result<Self, NodeError> {
        let paths = Paths::of(name);
        let preparing = |path: &PathBuf| {
            let (node, path) = (name.to_owned(), path.clone());
            move |source| NodeError::Prepare { node, path, source }
        };
        fs::create_dir_all(&paths.kubelet).map_err(preparing(&paths.kubelet))?;
        kubeconfig::write(&paths.kubeconfig, kubeconfig).map_err(preparing(&paths.kubeconfig))?;
        let (runtime, runtime_log, namespace) = start_runtime(common, &paths).await?;
        for init in &common.init {
            init::run(init, common, &paths, &namespace, is_first).await?;
        }
        let driver = NodeDriver::start(common, &paths, namespace.clone(), &common.plugin)?;
        let mut args = vec![
            OsString::from("node"),
            "--name".into(),
            name.into(),
            "--kubeconfig".into(),
            paths.kubeconfig.clone().into(),
            "--root-dir".into(),
            KUBELET_DIR.into(),
            "--runtime-socket".into(),
            paths.runtime_socket.clone().into(),
        ];
        if let Some(client_ca) = &common.client_ca {
            args.extend(["--client-ca-file".into(), client_ca.clone().into()]);
        }
        if let Some(token) = &common.node_token {
            args.extend(["--client-token-file".into(), token.clone().into()]);
        }
        args.extend(common.pod_images.iter().flat_map(|image| [OsString::from("--pod-image"), image.into()]));
        args.extend(common.metrics_args("node", Some(name)));
        let spec = common.component(format!("agent {name}"), args, Some(namespace.clone()));
        let agent = common.start(spec)?;
        Ok(Self { paths, agent, driver, namespace, runtime, runtime_log })
    }

    /// The name of its runtime, and its log.
    pub(crate) fn runtime_log(&self) -> (String, String) {
        let log = fs::read(&self.runtime_log).unwrap_or_default();
        (runtime_name(&self.paths), String::from_utf8_lossy(&log).into_owned())
    }
}

fn runtime_name(paths: &Paths) -> String {
    format!("runtime {}", paths.name)
}

/// Starts the zygote, and opens the node's namespace before the zygote leaves it.
async fn start_runtime(
    common: &Common,
    paths: &Paths,
) -> Result<(Process, PathBuf, NodeNamespace), NodeError> {
    let args = [
        OsString::from("runtime"),
        "--socket".into(),
        paths.runtime_socket.clone().into(),
        "--kubelet-dir".into(),
        paths.kubelet.clone().into(),
    ];
    let spec = common.component(runtime_name(paths), args.into(), None);
    let mut process = spec.spawn_piped()?;
    match handshake(&mut process).await {
        Some(namespace) => Ok((process, spec.log, namespace)),
        None => {
            let _ = process.wait().await;
            let log = fs::read_to_string(&spec.log).unwrap_or_default();
            Err(NodeError::Runtime { node: paths.name.clone(), log: log.trim().to_owned() })
        }
    }
}

async fn handshake(process: &mut Process) -> Option<NodeNamespace> {
    let (mut go_on, output) = process.pipes()?;
    let mut output = BufReader::new(output).lines();
    output.next_line().await.ok()?.filter(|word| word == "node")?;
    let namespace = NodeNamespace::of(process.pid()?).ok()?;
    go_on.write_all(b"\n").await.ok()?;
    output.next_line().await.ok()?.filter(|word| word == "ready")?;
    Some(namespace)
}
