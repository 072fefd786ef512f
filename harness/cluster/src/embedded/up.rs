//! Startup of an embedded cluster: the API server, then nodes with their drivers, then controllers.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use claimcheck_apiserver::kubeconfig;
use claimcheck_csi::{
    Driver as DriverClient, Endpoint,
    tap::{self, KnownSecrets, Tap, Telemetry},
    v1::GetPluginInfoRequest,
};
use claimcheck_driver::host::LoopHolder;
use claimcheck_model::{Capability, ComponentEnd, Stamp};
use claimcheck_substrate::STATE_DIR;
use futures::future::{join_all, select_all, try_join_all};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        storage::v1::{CSIDriver, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Client, api::PostParams};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};

use super::{
    Embedded, Options,
    accounts::ControllerAccounts,
    common::Common,
    control_plane::{self, ControlPlane},
    controllers::Controllers,
    error::{UpError, writing},
    node::Node,
    node_driver::{Plugin, Registrar},
    own_nodes::OwnNodes,
    sidecars::{Sidecars, StartSidecarsError, Target},
    supervisor::{OURSELVES, Supervised},
};
use crate::{
    backend::Backend,
    capabilities,
    cluster::{ApiServer, Cluster, DriverUnderTest, Streams},
    component_faults,
    log_search::Disclosures,
    observer::Observer,
    reachable_nodes::ReachableNodes,
};
use claimcheck_component::client::client;
use claimcheck_deploy::install::DriverSecrets;
use claimcheck_telemetry::metrics::Components;
use claimcheck_vendor::{
    deployment::ProcessCredentials,
    driver_command::DriverCommand,
    sidecars::{Issuer, plan::Replaceable},
};

/// A driver that exits this often before its first response is considered broken.
const GIVE_UP: u32 = 3;

impl Cluster {
    /// Brings up a cluster with virtual nodes; returns when all nodes are ready and have the driver.
    ///
    /// # Errors
    /// [`UpError`] names the failed component and has the last lines of its log, if any.
    pub async fn embedded(options: &Options) -> Result<Self, UpError> {
        component_faults::record_panics();
        let names: Vec<String> = (1..=options.nodes.max(1)).map(|n| format!("node-{n}")).collect();
        let audited: Vec<String> = options
            .vendor
            .sidecars
            .accounts()
            .chain(options.vendor.objects.accounts())
            .map(|account| account.user())
            .collect();
        let control_plane = ControlPlane::start(control_plane::Options {
            api: &options.api,
            listen: options.listen,
            nodes: &names,
            audit_log: options.logs.join("api.ndjson"),
            logs: &options.logs,
            audited: &audited,
            interference: options.interference.clone(),
        })
        .await?;
        let api_server = ApiServer { url: control_plane.url(), ready: Stamp::now() };
        let (tell_ends, ends) = mpsc::unbounded_channel();
        let mut common = common(options, &control_plane, tell_ends);
        if let Some(metrics) = &common.metrics {
            metrics.prepare().map_err(writing(Path::new(STATE_DIR)))?;
        }
        for path in [&common.kubeconfig, &options.kubeconfig] {
            control_plane.write_kubeconfig(path).map_err(writing(path))?;
        }
        if let (Some(path), Some(token)) = (&common.node_token, control_plane.node_token()) {
            kubeconfig::write(path, token).map_err(writing(path))?;
        }
        let state_dir = common.plugin.state_dir.clone();
        fs::create_dir_all(&state_dir).map_err(writing(&state_dir))?;
        options.vendor.objects.prepare(&state_dir)?;
        let loop_holder = LoopHolder::start(&common.loop_holder).map_err(writing(&common.loop_holder))?;
        let Telemetry { records, writes, faults, barrier } = tap::listen(&common.tap)?;
        let writes = common.writes.is_some().then_some(writes);
        let client = client(&control_plane.kubeconfig()).await?;
        let replaced = options.vendor.sidecars.without_builtin();
        let programs = (&replaced, &options.vendor.sidecars.without_account());
        // The built-in driver requires no Secrets. Which ones the classes of users name for another driver is not known
        // yet.
        let driver_secrets = match options.vendor.driver.undisturbed() {
            DriverCommand::Builtin => DriverSecrets::from_class(&options.vendor.class_parameters),
            _ => DriverSecrets::Everywhere,
        };
        Controllers::prepare(&common, &control_plane, &client, programs, driver_secrets).await?;

        let (url, ca) = (control_plane.url(), control_plane.ca().to_owned());
        let issuer = Issuer { client: client.clone(), url, ca };
        Sidecars::apply(&client, &options.vendor.sidecars).await?;
        let issued = options.vendor.objects.issue(&issuer, &state_dir).await;
        let issued = issued.map_err(StartSidecarsError::from)?;
        (common.plugin.credentials, common.init) = (issued.driver, issued.init);

        let mut of_nodes = Vec::new();
        for name in &names {
            of_nodes.push((name, control_plane.kubeconfig_of_node(name)?));
        }
        let nodes = of_nodes
            .iter()
            .enumerate()
            .map(|(at, (name, kubeconfig))| Node::start(&common, (name.as_str(), at == 0), kubeconfig));
        let nodes = try_join_all(nodes);
        let (nodes, observer) = tokio::join!(nodes, Observer::start(client.clone()));
        let nodes = nodes.map_err(|error| UpError::Node(Box::new(error)))?;
        let nodes: Vec<Arc<Node>> = nodes.into_iter().map(Arc::new).collect();
        let first = &nodes[0];
        let driver_controller = common
            .plugin
            .start_controller(&common, &first.paths, first.namespace.clone())
            .map_err(|error| UpError::Node(Box::new(error)))?;
        let controllers = Controllers::start(&common, first, &control_plane, &client, &replaced).await?;
        let at = |socket| DriverClient::new(Endpoint::Unix(socket), Tap::none(), "harness");
        let on_node = at(common.plugin.socket(&first.paths));
        let driver = at(common.plugin.controller_socket(&first.paths));
        let driver_name = name_of(&on_node, &first.driver.process, options.start_timeout).await?;
        if let Some(process) = &driver_controller {
            let controller = name_of(&driver, process, options.start_timeout).await?;
            if controller != driver_name {
                return Err(UpError::Names { controller, node: driver_name });
            }
        }
        let mut declared = capabilities::declared(&driver, &on_node).await;
        let object = match options.vendor.objects.csi_driver(&driver_name)? {
            Some(given) => given.clone(),
            // Kubernetes attaches the volumes of a driver that is deployed without such an object.
            None => {
                let attach = declared.supported_calls.attach || options.vendor.objects.is_given();
                options.policy.object(&driver_name, attach)
            }
        };
        declared.supported_calls.attach &= object.spec.attach_required != Some(false);
        let class = (&options.vendor.class_parameters, options.vendor.class_mount_options.as_slice());
        install(&client, &object, class).await?;
        let target = Target { common: &common, nodes: &nodes, issuer: &issuer, driver: &driver_name };
        let sidecars = Sidecars::start(target, &options.vendor.sidecars).await?;
        let embedded = Embedded {
            control_plane,
            nodes,
            own_nodes: OwnNodes::default(),
            controllers,
            sidecars,
            driver,
            driver_controller,
            faults,
            call_faults: Mutex::default(),
            step_timeout: options.step_timeout,
            api_faults_active: AtomicBool::new(false),
            common,
            additional_drivers: Mutex::default(),
            _refreshed: issued.refreshed,
            _loop_holder: loop_holder,
        };
        let ready = async {
            let sidecars = join_all(embedded.sidecars.servers().map(Supervised::is_steady));
            tokio::join!(
                embedded.registered(&observer, &driver_name, &names, options.start_timeout),
                sidecars
            )
            .0
        };
        tokio::select! {
            ready = ready => ready.map_err(|error| match options.vendor.sidecars.lacks_registrar() {
                true => UpError::NoRegistrar(error),
                false => UpError::NotReady(error),
            })?,
            error = embedded.process_fails() => {
                let (denials, unserved) = (embedded.denials(&client).await, embedded.unserved(&client).await);
                return Err(error.with_rejections(&denials, &unserved));
            }
        }
        // Topology keys alone have no effect: the driver must declare VOLUME_ACCESSIBILITY_CONSTRAINTS.
        let reachable_nodes = match declared.capabilities.get(&Capability::Topology) {
            Some(true) => observer.look(|world| ReachableNodes::of(world, &driver_name, &names, None)),
            Some(false) | None => ReachableNodes { nodes: names, ..ReachableNodes::default() },
        };
        let driver = DriverUnderTest {
            name: driver_name,
            class_parameters: options.vendor.class_parameters.clone(),
            class_mount_options: options.vendor.class_mount_options.clone(),
            declared,
            reachable_nodes,
            nodes_without_driver: Vec::new(),
        };
        let streams = Streams { ends: Some(ends), records: Some((records, barrier)), writes };
        let known_secrets = embedded.known_secrets();
        let backend = Box::new(embedded);
        let (properties, api_server) = (backend.properties(), Some(api_server));
        let started = Instant::now();
        Ok(Self {
            client,
            observer,
            driver,
            properties,
            known_secrets,
            streams,
            started,
            api_server,
            backend,
        })
    }
}

impl Embedded {
    /// Resolves once one of the driver's processes, or a stock sidecar, keeps exiting.
    async fn process_fails(&self) -> UpError {
        let processes = self.nodes.iter().map(|node| &node.driver.process).chain(&self.driver_controller);
        let processes = processes.chain(self.sidecars.servers());
        let fails = processes.map(|process| {
            Box::pin(async {
                process.has_failed(GIVE_UP).await;
                failed(process, KEEPS_ENDING)
            })
        });
        select_all(fails).await.0
    }
}

fn common(
    options: &Options,
    control_plane: &ControlPlane,
    ends: mpsc::UnboundedSender<ComponentEnd>,
) -> Common {
    let state = Path::new(STATE_DIR);
    let known_secrets = KnownSecrets::default();
    known_secrets.add(&options.vendor.objects.secrets());
    known_secrets.search_for(options.vendor.objects.confidential().iter());
    Common {
        ourselves: OURSELVES.into(),
        logs: options.logs.clone(),
        plugin: Plugin {
            directory: "driver".to_owned(),
            command: options.vendor.driver.clone(),
            controller: options.vendor.controller.clone(),
            // Unique to this run: every run sees the loop devices of all runs on the host.
            state_dir: state.join(format!("d-{:.8}", uuid::Uuid::new_v4().simple().to_string())),
            registrar: match options.vendor.sidecars.without_builtin().contains(&Replaceable::Registrar) {
                true => Registrar::Stock,
                false => Registrar::Builtin,
            },
            credentials: ProcessCredentials::default(),
        },
        kubeconfig: state.join("kubeconfig"),
        pod_images: options.pod_images.clone(),
        known_secrets,
        disclosures: Disclosures::default(),
        init: Vec::new(),
        accounts: ControllerAccounts::new(),
        client_ca: control_plane.client_ca().map(Path::to_owned),
        node_token: control_plane.node_token().map(|_| state.join("node-token")),
        tap: state.join("tap.sock"),
        loop_holder: state.join("loops.sock"),
        writes: options.instrumentation.writes.then(|| state.join("tap.sock")),
        metrics: options.instrumentation.metrics.then(Components::default),
        ends,
    }
}

/// The description of a crash loop.
const KEEPS_ENDING: &str = "exits immediately after it is started";

fn failed(process: &Supervised, what: &'static str) -> UpError {
    let (component, command) = (process.name().to_owned(), process.command_line());
    UpError::Driver { component, what, command, path: process.log().to_owned(), log: process.last_lines() }
}

/// The driver's name, once it responds.
async fn name_of(driver: &DriverClient, process: &Supervised, timeout: Duration) -> Result<String, UpError> {
    let answered = async {
        driver.wait_ready(timeout).await.map_err(|_| {
            let what = "does not respond at its socket; if it only starts slowly, use --start-timeout";
            failed(process, what)
        })?;
        let info = driver.identity().get_plugin_info(GetPluginInfoRequest {}).await;
        info.map(|info| info.into_inner().name).map_err(|_| failed(process, "fails GetPluginInfo"))
    };
    tokio::select! {
        name = answered => name,
        () = process.has_failed(GIVE_UP) => Err(failed(process, KEEPS_ENDING)),
    }
}

/// Installs the driver's CSIDriver object and storage classes, as an administrator would.
async fn install(
    client: &Client,
    csi_driver: &CSIDriver,
    (parameters, mount_options): (&BTreeMap<String, String>, &[String]),
) -> Result<(), UpError> {
    let name = csi_driver.metadata.name.as_deref().unwrap_or_default();
    let create = PostParams::default();
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some("default".into()), ..Default::default() },
        ..Default::default()
    };
    match kube::Api::all(client.clone()).create(&create, &namespace).await {
        // The server may have created it itself.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    kube::Api::all(client.clone()).create(&create, csi_driver).await?;
    let is_builtin = name == claimcheck_driver::DRIVER_NAME;
    let kinds: &[&str] = if is_builtin { &["directory", "image"] } else { &["default"] };
    for (class, binding) in
        kinds.iter().flat_map(|kind| [(kind, "Immediate"), (kind, "WaitForFirstConsumer")])
    {
        let late = if binding == "Immediate" { "" } else { "-late" };
        let default = class == &kinds[0] && binding == "Immediate";
        let mut parameters = parameters.clone();
        if is_builtin {
            parameters.insert("kind".to_owned(), (*class).to_owned());
        }
        let class: StorageClass = serde_json::from_value(json!({
            "metadata": {
                "name": format!("claimcheck-{class}{late}"),
                "annotations": { claimcheck_model::DEFAULT_CLASS: default.to_string() },
            },
            "provisioner": name,
            "parameters": parameters,
            "mountOptions": mount_options,
            "volumeBindingMode": binding,
        }))
        .expect("a StorageClass");
        kube::Api::all(client.clone()).create(&create, &class).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use claimcheck_model::METRICS_SOCKETS;

    use super::*;

    /// The report crate knows the folder by its name alone, since it depends on no component.
    #[test]
    fn sockets_of_metrics_are_in_the_state_directory() {
        assert_eq!(Path::new(METRICS_SOCKETS).parent(), Some(Path::new(STATE_DIR)));
    }
}
