//! The two sides: each an upstream API server with etcd, a scripted driver, and the controllers.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use claimcheck_controllers::{
    Attaching, Calls, CapacityOwner, Name, NodeDeployment, Options, Provisioning, Resizing,
};
use claimcheck_csi::{
    Server, Services,
    v1::{
        controller_server::ControllerServer, group_controller_server::GroupControllerServer,
        identity_server::IdentityServer, node_server::NodeServer,
    },
};
use claimcheck_informer::Backoff;
use claimcheck_scenario::{KINDS, Record, Scope};
use claimcheck_stock::{Programs as Processes, WITHOUT_FAIRNESS, WITHOUT_SERVICE_ACCOUNTS};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    driver::{Driver, Variant},
    objects::{CAPACITY_DRIVER, LOCAL_NODE},
    stock,
};

/// The deadline of calls, short because scenarios wait for it.
pub const TIMEOUT: Duration = Duration::from_secs(3);
/// The backoff of sidecars.
pub const BACKOFF: Backoff = Backoff { base: Duration::from_millis(300), max: Duration::from_secs(3) };
/// How long programs may take to start.
const READY: Duration = Duration::from_secs(180);
/// The time between two reconciliations with the list of published volumes.
pub const RECONCILE: Duration = Duration::from_secs(2);
/// The time between two calls of GetCapacity without a reason. Longer than most scenarios are quiet at their end.
pub const CAPACITY_POLL: Duration = Duration::from_secs(4);
/// The longest delay before a provisioner on a node tries to own a claim that no node was selected for.
pub const OWNING: Duration = Duration::from_secs(1);
/// The namespace of published capacities.
pub const CAPACITY_NAMESPACE: &str = "kube-system";
/// The built-in controllers that correspond to the stock programs, with those of sidecars.
const BUILT_IN: [Name; 10] = [
    Name::Binder,
    Name::Provisioner,
    Name::AttachDetach,
    Name::Attacher,
    Name::Expander,
    Name::Resizer,
    Name::Protection,
    Name::Ephemeral,
    Name::SnapshotController,
    Name::Snapshotter,
];
/// Those of groups, too: without them the stock snapshot controller waits for half a minute, or exits.
const CRDS: [&str; 6] = [
    "volumesnapshotclasses",
    "volumesnapshotcontents",
    "volumesnapshots",
    "volumegroupsnapshotclasses",
    "volumegroupsnapshotcontents",
    "volumegroupsnapshots",
];

/// The definition of ReferenceGrants.
const GRANTS: &str = "tests/differential/referencegrants.yaml";

/// Where the programs are.
#[derive(Clone)]
pub struct Programs {
    pub assets: PathBuf,
    pub sidecars: PathBuf,
}

impl Programs {
    /// Finds them, or returns what is missing.
    pub fn find() -> Result<Self, String> {
        let folder = |variable: &str, programs: &[&str]| {
            let folder = std::env::var_os(variable).map(PathBuf::from);
            let folder = folder.ok_or_else(|| format!("{variable} is not set"))?;
            match programs.iter().find(|program| !folder.join(program).is_file()) {
                Some(missing) => Err(format!("{variable} has no {missing}")),
                None => Ok(folder),
            }
        };
        Ok(Self {
            assets: folder("KUBEBUILDER_ASSETS", &["etcd", "kube-apiserver", "kube-controller-manager"])?,
            sidecars: folder(
                "CLAIMCHECK_STOCK_SIDECARS",
                &["csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller"],
            )?,
        })
    }
}

/// The controllers of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    BuiltIn,
    Stock,
}

/// A running side; its processes end with it.
pub struct Side {
    pub client: Client,
    pub record: Record,
    pub driver: Driver,
    processes: Mutex<Processes>,
}

/// Where the variants of the driver listen.
pub struct Sockets {
    pub main: PathBuf,
    pub topology: PathBuf,
    pub capacity: PathBuf,
    pub listing: PathBuf,
    pub incapable: PathBuf,
    pub local: PathBuf,
    pub no_recovery: PathBuf,
}

impl Side {
    /// Starts all; returns once the API server is ready. Called on the main thread, with which its processes die.
    /// With `unused` the condition of this name is written, and there are fewer programs.
    pub async fn start(controllers: Controllers, programs: &Programs, folder: &Path, unused: bool) -> Self {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let gate = if unused { format!(",{}", stock::UNUSED) } else { String::new() };
        let of_server = claimcheck_stock::Options {
            tokens: format!("{token},test,test,\"system:masters\"\n"),
            more: vec![
                WITHOUT_SERVICE_ACCOUNTS.to_owned(),
                WITHOUT_FAIRNESS.to_owned(),
                format!("{}{gate}", stock::CROSS_NAMESPACE),
            ],
            ..claimcheck_stock::Options::default()
        };
        let (mut processes, prepared) = Processes::start(&programs.assets, folder, &of_server).unwrap();
        let text = prepared.kubeconfig(&token);
        fs::write(folder.join("kubeconfig"), &text).unwrap();
        let mut config = Config::from_custom_kubeconfig(
            Kubeconfig::from_yaml(&text).unwrap(),
            &KubeConfigOptions::default(),
        )
        .await
        .unwrap();
        config.read_timeout = None;
        let client = Client::try_from(config).unwrap();
        ready(&client).await;
        install_crds(&client).await;
        let record = Record::new(Scope::All);
        for kind in KINDS.iter().filter(|kind| kind.compared) {
            tokio::spawn(record.watch(&client, kind, None));
        }
        create_capacity_driver(&client).await;
        let driver = Driver::new(record.clone());
        let socket = |name: &str, variant| serve(&driver.as_variant(variant), &folder.join(name));
        let sockets = Sockets {
            main: socket("csi.sock", Variant::Main),
            topology: socket("topology.sock", Variant::Topology),
            capacity: socket("capacity.sock", Variant::Capacity),
            listing: socket("listing.sock", Variant::Listing),
            incapable: socket("incapable.sock", Variant::Incapable),
            local: socket("local.sock", Variant::Local),
            no_recovery: socket("no-recovery.sock", Variant::NoRecovery),
        };
        match controllers {
            Controllers::BuiltIn if unused => {
                let options = Options { unused_since_time: true, ..options(sockets.main) };
                run_built_in(&client, options, &BUILT_IN);
            }
            Controllers::BuiltIn => {
                run_built_in(&client, options(sockets.main), &BUILT_IN);
                for socket in [sockets.topology, sockets.capacity, sockets.incapable] {
                    run_built_in(&client, options(socket), &[Name::Provisioner]);
                }
                run_built_in(&client, options(sockets.listing), &[Name::Attacher]);
                let on_node = NodeDeployment {
                    node: LOCAL_NODE.to_owned(),
                    base_delay: OWNING,
                    max_delay: OWNING,
                    ..NodeDeployment::default()
                };
                let on_node = Options { node_deployment: Some(on_node), ..options(sockets.local) };
                run_built_in(&client, on_node, &[Name::Provisioner, Name::Snapshotter]);
                let resizing = Resizing { recover_expansion_failure: false, ..Resizing::default() };
                let no_recovery = Options { resizing, ..options(sockets.no_recovery) };
                run_built_in(&client, no_recovery, &[Name::Resizer]);
            }
            Controllers::Stock => stock::start(&mut processes, programs, folder, &sockets, unused),
        }
        Self { client, record, driver, processes: Mutex::new(processes) }
    }

    /// The programs that have exited, although they should run.
    pub fn ended(&self) -> Vec<String> {
        self.processes.lock().unwrap().ended()
    }
}

fn serve(driver: &Driver, socket: &Path) -> PathBuf {
    let mut services = Services::default()
        .with(IdentityServer::new(driver.clone()))
        .with(ControllerServer::new(driver.clone()))
        .with(GroupControllerServer::new(driver.clone()));
    if driver.is_local() {
        services = services.with(NodeServer::new(driver.clone()));
    }
    let listening = Server::bind(socket).unwrap();
    tokio::spawn(async move { listening.serve(services, std::future::pending()).await.unwrap() });
    socket.to_owned()
}

fn run_built_in(client: &Client, options: Options, names: &'static [Name]) {
    let client = client.clone();
    tokio::spawn(async move {
        claimcheck_controllers::run(names, client, &options, std::future::pending()).await.unwrap();
    });
}

fn options(socket: PathBuf) -> Options {
    Options {
        csi_address: Some(socket),
        provisioning: Provisioning {
            extra_create_metadata: true,
            // Without effect for drivers that do not declare the capability.
            enable_capacity: true,
            capacity_poll_interval: CAPACITY_POLL,
            cross_namespace_sources: true,
            ..Provisioning::default()
        },
        calls: Calls { timeout: Some(TIMEOUT), backoff: Some(BACKOFF), ..Calls::default() },
        attaching: Attaching { reconcile_sync: RECONCILE, ..Attaching::default() },
        capacity_namespace: Some(CAPACITY_NAMESPACE.to_owned()),
        capacity_owner: CapacityOwner::Nothing,
        // Without effect on volumes without node affinity.
        distributed_snapshotting: true,
        ..Options::default()
    }
}

/// The namespace exists soon after the API server is ready, but the stock provisioner looks for it only once.
async fn ready(client: &Client) {
    let waiting = async {
        for path in ["/readyz".to_owned(), format!("/api/v1/namespaces/{CAPACITY_NAMESPACE}")] {
            loop {
                let request = http::Request::get(&path).body(Vec::new()).unwrap();
                if client.request_text(request).await.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    tokio::time::timeout(READY, waiting).await.expect("the API server becomes ready");
}

/// The built-in provisioner publishes capacities of drivers that declare it; upstream's does so for all.
async fn create_capacity_driver(client: &Client) {
    let gvk = GroupVersionKind::gvk("storage.k8s.io", "v1", "CSIDriver");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": CAPACITY_DRIVER },
        "spec": { "attachRequired": false, "storageCapacity": true },
    });
    api.create(&PostParams::default(), &serde_json::from_value(driver).unwrap()).await.unwrap();
}

async fn install_crds(client: &Client) {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let snapshots = CRDS.map(|name| here.join(format!("../../manifests/snapshots/crds/{name}.yaml")));
    for file in snapshots.into_iter().chain([here.join(GRANTS)]) {
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let full = crd["metadata"]["name"].as_str().unwrap().to_owned();
        api.patch(&full, &PatchParams::apply("test").force(), &Patch::Apply(&crd)).await.unwrap();
        let established = async {
            loop {
                let crd = api.get(&full).await.unwrap();
                let condition = json!({ "type": "Established", "status": "True" });
                let conditions = crd.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
                if conditions.iter().any(|one| claimcheck_scenario::matches(one, &condition)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(READY, established).await.expect("the CRD is established");
    }
}
