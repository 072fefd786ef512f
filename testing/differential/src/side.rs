//! A side: an upstream API server with etcd, a scripted driver, and the controllers.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use claimcheck_controllers::{
    Attaching, Calls, CapacityOwner, Name, NodeDeployment, Options, Provisioning, Resizing,
};
use claimcheck_informer::Backoff;
use claimcheck_scenario::{KINDS, Kind, Record, Scope, matches};
use claimcheck_stock::{Programs as Processes, WITHOUT_FAIRNESS, WITHOUT_SERVICE_ACCOUNTS};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    driver::{Driver, Variant},
    error::{StartError, cannot},
    lock,
    objects::{CAPACITY_DRIVER, LOCAL_NODE},
    programs::Programs,
    stock,
    tasks::Tasks,
};

/// The deadline of calls, short because scenarios wait for it.
pub const TIMEOUT: Duration = Duration::from_secs(3);
/// The backoff of sidecars.
pub const BACKOFF: Backoff = Backoff { base: Duration::from_millis(300), max: Duration::from_secs(3) };
/// For sockets and data: not TMPDIR, which may be long, since the path of a unix socket ends at 108 bytes.
const TEMPORARY: &str = "/tmp";
/// The time between two looks while programs start.
const PAUSE: Duration = Duration::from_millis(100);
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
/// Those of snapshots and of their groups, without which the stock snapshot controller waits for half a minute, or exits;
/// and of ReferenceGrants.
const CRDS: [&str; 7] = [
    include_str!("../../../manifests/snapshots/crds/volumesnapshotclasses.yaml"),
    include_str!("../../../manifests/snapshots/crds/volumesnapshotcontents.yaml"),
    include_str!("../../../manifests/snapshots/crds/volumesnapshots.yaml"),
    include_str!("../../../manifests/snapshots/crds/volumegroupsnapshotclasses.yaml"),
    include_str!("../../../manifests/snapshots/crds/volumegroupsnapshotcontents.yaml"),
    include_str!("../../../manifests/snapshots/crds/volumegroupsnapshots.yaml"),
    include_str!("referencegrants.yaml"),
];

/// The controllers of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    BuiltIn,
    Stock,
}

/// A running side; its processes end with it, before their folder is removed.
pub struct Side {
    pub client: Client,
    pub record: Record,
    pub driver: Driver,
    /// The version of its API server.
    pub version: String,
    tasks: Tasks,
    processes: Mutex<Processes>,
    _folder: TempDir,
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
    /// Starts all, with the logs of programs in a folder; returns once the API server is ready. Called on the main thread,
    /// with which its processes die. With `unused` the condition of this name is written, and there are fewer programs.
    pub async fn start(
        controllers: Controllers,
        programs: &Programs,
        logs: &Path,
        unused: bool,
    ) -> Result<Self, StartError> {
        let unwritable = |folder: &Path| {
            let folder = folder.to_owned();
            move |source| StartError::Folder { folder, source }
        };
        fs::create_dir_all(logs).map_err(unwritable(logs))?;
        let of_all = Path::new(TEMPORARY);
        let folder = tempfile::tempdir_in(of_all).map_err(unwritable(of_all))?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        let gate = if unused { format!(",{}", stock::UNUSED) } else { String::new() };
        let of_server = claimcheck_stock::Options {
            tokens: format!("{token},claimcheck,claimcheck,\"system:masters\"\n"),
            more: vec![
                WITHOUT_SERVICE_ACCOUNTS.to_owned(),
                WITHOUT_FAIRNESS.to_owned(),
                format!("{}{gate}", stock::CROSS_NAMESPACE),
            ],
            logs: Some(logs.to_owned()),
            ..claimcheck_stock::Options::default()
        };
        let (mut processes, prepared) = Processes::start(&programs.assets, folder.path(), &of_server)?;
        let text = prepared.kubeconfig(&token);
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, &text).map_err(unwritable(folder.path()))?;
        let mut config =
            Config::from_custom_kubeconfig(Kubeconfig::from_yaml(&text)?, &KubeConfigOptions::default())
                .await?;
        config.read_timeout = None;
        let client = Client::try_from(config).map_err(cannot("create a client of the API server"))?;
        ready(&client, &processes).await?;
        install_crds(&client, &processes).await?;
        let version =
            client.apiserver_version().await.map_err(cannot("read the version of the API server"))?;
        let record = Record::new(Scope::All);
        let mut tasks = Tasks::default();
        for kind in KINDS.iter().filter(|kind| kind.compared) {
            tasks.spawn(record.watch(&client, kind, None));
        }
        create_capacity_driver(&client).await?;
        let driver = Driver::new(record.clone());
        let mut socket =
            |name: &str, variant| tasks.serve(&driver.as_variant(variant), &folder.path().join(name));
        let sockets = Sockets {
            main: socket("csi.sock", Variant::Main)?,
            topology: socket("topology.sock", Variant::Topology)?,
            capacity: socket("capacity.sock", Variant::Capacity)?,
            listing: socket("listing.sock", Variant::Listing)?,
            incapable: socket("incapable.sock", Variant::Incapable)?,
            local: socket("local.sock", Variant::Local)?,
            no_recovery: socket("no-recovery.sock", Variant::NoRecovery)?,
        };
        match controllers {
            Controllers::BuiltIn if unused => {
                let options = Options { unused_since_time: true, ..options(sockets.main) };
                tasks.run_built_in(&client, options, &BUILT_IN);
            }
            Controllers::BuiltIn => {
                tasks.run_built_in(&client, options(sockets.main), &BUILT_IN);
                for socket in [sockets.topology, sockets.capacity, sockets.incapable] {
                    tasks.run_built_in(&client, options(socket), &[Name::Provisioner]);
                }
                tasks.run_built_in(&client, options(sockets.listing), &[Name::Attacher]);
                let on_node = NodeDeployment {
                    node: LOCAL_NODE.to_owned(),
                    base_delay: OWNING,
                    max_delay: OWNING,
                    ..NodeDeployment::default()
                };
                let on_node = Options { node_deployment: Some(on_node), ..options(sockets.local) };
                tasks.run_built_in(&client, on_node, &[Name::Provisioner, Name::Snapshotter]);
                let resizing = Resizing { recover_expansion_failure: false, ..Resizing::default() };
                let no_recovery = Options { resizing, ..options(sockets.no_recovery) };
                tasks.run_built_in(&client, no_recovery, &[Name::Resizer]);
            }
            Controllers::Stock => stock::start(&mut processes, programs, &kubeconfig, &sockets, unused)?,
        }
        let (version, processes) = (version.git_version, Mutex::new(processes));
        Ok(Self { client, record, driver, version, tasks, processes, _folder: folder })
    }

    /// The programs and controllers that have ended, although they should run.
    pub fn ended(&self) -> Vec<String> {
        let programs = lock(&self.processes).ended();
        programs.into_iter().chain(self.tasks.ended()).collect()
    }

    /// Deletes the pods and claims of a namespace, at once.
    pub async fn clear(&self, namespace: &str) {
        let params = DeleteParams::default().grace_period(0);
        for kind in ["pod", "claim"].into_iter().filter_map(Kind::named) {
            let api = kind.api(&self.client, Some(namespace));
            let _: Result<_, kube::Error> = api.delete_collection(&params, &ListParams::default()).await;
        }
    }
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

/// Waits until something is there, which is asked for again and again.
async fn wait(
    what: &str,
    processes: &Processes,
    mut is_there: impl AsyncFnMut() -> bool,
) -> Result<(), StartError> {
    let waiting = async {
        while !is_there().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let late = |_| StartError::Late { what: what.to_owned(), last_lines: processes.last_lines() };
    tokio::time::timeout(READY, waiting).await.map_err(late)
}

/// The namespace exists soon after the API server is ready, but the stock provisioner looks for it only once.
async fn ready(client: &Client, processes: &Processes) -> Result<(), StartError> {
    for path in ["/readyz".to_owned(), format!("/api/v1/namespaces/{CAPACITY_NAMESPACE}")] {
        let get = async || {
            let Ok(request) = http::Request::get(&path).body(Vec::new()) else { return false };
            client.request_text(request).await.is_ok()
        };
        wait(&format!("{path} of the API server"), processes, get).await?;
    }
    Ok(())
}

/// The built-in provisioner publishes capacities of drivers that declare it; upstream's does so for all.
async fn create_capacity_driver(client: &Client) -> Result<(), StartError> {
    let gvk = GroupVersionKind::gvk("storage.k8s.io", "v1", "CSIDriver");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let driver = DynamicObject::new(CAPACITY_DRIVER, &ApiResource::from_gvk(&gvk))
        .data(json!({ "spec": { "attachRequired": false, "storageCapacity": true } }));
    let created = api.create(&PostParams::default(), &driver).await;
    created.map(drop).map_err(cannot(format!("create the CSIDriver {CAPACITY_DRIVER}")))
}

async fn install_crds(client: &Client, processes: &Processes) -> Result<(), StartError> {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let established = json!({ "type": "Established", "status": "True" });
    for text in CRDS {
        let crd: Value = serde_saphyr::from_str(text).expect("a test reads it");
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply("claimcheck").force();
        let applied = api.patch(name, &params, &Patch::Apply(&crd)).await;
        applied.map_err(cannot(format!("create the CustomResourceDefinition {name}")))?;
        let is_established = async || {
            let Ok(crd) = api.get(name).await else { return false };
            let conditions = crd.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| matches(condition, &established))
        };
        wait(&format!("the CustomResourceDefinition {name}"), processes, is_established).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_read() {
        for text in CRDS {
            let crd: Value = serde_saphyr::from_str(text).expect("it is read");
            assert_eq!(crd["kind"], "CustomResourceDefinition");
            assert!(crd["metadata"]["name"].is_string());
        }
    }
}
