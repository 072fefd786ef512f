//! An embedded API server with some of the controllers on it, for the tests of their shells.

use std::{fmt::Debug, time::Duration};

use claimcheck_apiserver as apiserver;
use claimcheck_controllers::{Accounts, Name, Options, run};
use k8s_openapi::api::{
    core::v1::{Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::wait::await_condition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use crate::accounts;

/// Longer than anything takes, also on a machine that has much else to do.
pub const LONG: Duration = Duration::from_secs(60);

/// The server, the controllers, and a client of the test's own.
pub struct Cluster {
    pub server: apiserver::Server,
    pub client: Client,
    accounts: (Accounts, Client),
    controllers: JoinSet<()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        accounts::expect_no_denials(&self.server);
    }
}

impl Cluster {
    /// Starts the server, without controllers. What is created now is known to those that come later from the
    /// first; of what is created afterwards they learn in any order, since each kind has a watch of its own.
    pub async fn prepare() -> Self {
        let server = apiserver::start(apiserver::Config::default()).await.expect("the API server starts");
        let client = connect(&server).await;
        let namespaces = Api::<Namespace>::all(client.clone());
        if namespaces.get_opt("default").await.unwrap().is_none() {
            let namespace = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        let accounts = accounts::create(&server, &client).await;
        Self { server, client, accounts, controllers: JoinSet::new() }
    }

    /// Starts the server, and these controllers on it.
    pub async fn start(names: &'static [Name]) -> Self {
        let mut cluster = Self::prepare().await;
        cluster.run(names).await;
        cluster
    }

    /// Starts these controllers.
    pub async fn run(&mut self, names: &'static [Name]) {
        self.run_with(names, Options::default()).await;
    }

    /// The same, with additional options of the controllers. Those without a role on virtual nodes run as the
    /// administrator.
    pub async fn run_with(&mut self, names: &'static [Name], options: Options) {
        let has_role = |name: &Name| Name::ALL.contains(name) || *name == Name::Garbage;
        let (client, accounts) = match names.iter().all(has_role) {
            true => (self.accounts.1.clone(), Some(self.accounts.0.clone())),
            false => (connect(&self.server).await, None),
        };
        let options = Options { accounts, ..options };
        self.controllers.spawn(async move {
            run(names, client, &options, std::future::pending()).await.expect("the controllers go on");
        });
    }

    /// Ends the controllers without warning, and starts others.
    pub async fn restart_controllers(&mut self, names: &'static [Name]) {
        self.controllers.shutdown().await;
        self.run(names).await;
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::default_namespaced(self.client.clone())
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub async fn class(&self, name: &str, mode: &str) {
        let class = json!({
            "metadata": {"name": name}, "provisioner": "csi.test", "reclaimPolicy": "Delete",
            "volumeBindingMode": mode,
        });
        create(&Api::<StorageClass>::all(self.client.clone()), class).await;
    }

    pub async fn node(&self, name: &str) {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        create(&Api::<Node>::all(self.client.clone()), node).await;
    }

    pub async fn claim(&self, name: &str, class: &str) -> PersistentVolumeClaim {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        create(&self.claims(), claim).await
    }

    pub async fn pod(&self, name: &str, claims: &[&str]) -> Pod {
        let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "volumes": claims.iter().map(volume).collect::<Vec<_>>(),
            },
        });
        create(&self.pods(), pod).await
    }

    /// A volume as a provisioner or an admin creates it.
    pub async fn volume(&self, name: &str, class: &str, change: Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": class,
                "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
                "csi": {"driver": "csi.test", "volumeHandle": format!("handle-{name}")},
            },
        });
        json_patch::merge(&mut volume, &change);
        create(&self.volumes(), volume).await
    }

    /// The volume that a provisioner creates for a claim.
    pub async fn provision(&self, claim: &PersistentVolumeClaim) -> String {
        let meta = &claim.metadata;
        let name = format!("pvc-{}", meta.uid.as_ref().unwrap());
        let change = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "csi.test"}},
            "spec": {"claimRef": {
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": meta.namespace,
                "name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version,
            }},
        });
        let class = claim.spec.as_ref().unwrap().storage_class_name.clone().unwrap();
        self.volume(&name, &class, change).await;
        name
    }

    /// The reasons of the events about an object, once all of these are there.
    pub async fn events(&self, name: &str, expected: &[&str]) {
        let events = Api::<Event>::default_namespaced(self.client.clone());
        for reason in expected {
            let fields = format!("involvedObject.name={name},reason={reason}");
            let found = async {
                let list = ListParams::default().fields(&fields);
                let config = kube::runtime::watcher::Config::default().fields(&fields);
                let mut stream = Box::pin(kube::runtime::watcher(events.clone(), config));
                while events.list(&list).await.unwrap().items.is_empty() {
                    futures::StreamExt::next(&mut stream).await.expect("a watch goes on").ok();
                }
            };
            timeout(LONG, found).await.unwrap_or_else(|_| panic!("no event {reason} about {name}"));
        }
    }

    /// How many requests of this verb and resource came to the server.
    pub fn requests(&self, verb: &str, resource: &str) -> u64 {
        let all = self.server.requests();
        let matching = all.iter().filter(|request| request.verb == verb && request.resource == resource);
        matching.map(|request| request.count).sum()
    }
}

/// Waits until the object (none if it is gone) is as wanted.
pub async fn until<K>(api: &Api<K>, name: &str, expected: impl Fn(&K) -> bool) -> K
where
    K: Clone + Debug + Send + DeserializeOwned + Resource + 'static,
{
    let is = |object: Option<&K>| object.is_some_and(&expected);
    match timeout(LONG, await_condition(api.clone(), name, is)).await {
        Ok(found) => found.expect("the watch works").expect("the object is there"),
        Err(_) => panic!("{name} did not come to be as wanted, but is {:#?}", api.get_opt(name).await),
    }
}

/// Waits until the object is gone.
pub async fn until_deleted<K>(api: &Api<K>, name: &str)
where
    K: Clone + Debug + Send + DeserializeOwned + Resource + 'static,
{
    if timeout(LONG, await_condition(api.clone(), name, |object: Option<&K>| object.is_none())).await.is_err()
    {
        panic!("{name} is still there: {:#?}", api.get_opt(name).await);
    }
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + Debug + Serialize + DeserializeOwned + Resource<DynamicType = ()>,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

pub async fn connect(server: &apiserver::Server) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}
