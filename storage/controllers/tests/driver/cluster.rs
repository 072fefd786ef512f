//! A cluster for one test: API server, controllers, a driver, and the kubelet's part by hand.

use std::{fmt::Debug, path::Path, time::Duration};

use claimcheck_apiserver as apiserver;
use claimcheck_controllers::{Accounts, Name, NodeDeployment, Options, Provisioning};
use claimcheck_csi::Server;
use claimcheck_informer::{
    Informer, KindSet, World,
    testing::{self, DRIVER, NAMESPACE, Notes},
};
use claimcheck_model::{CONTROLLER_MANAGED_ATTACH, Meter, unique_volume_name};
use k8s_openapi::{
    api::{
        core::v1::{Container, Event, Node, PersistentVolumeClaim, Pod},
        storage::v1::{CSINode, StorageClass, VolumeAttachment},
    },
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Client, Config, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ClusterResourceScope, NamespaceResourceScope},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    accounts,
    fake::{Fake, ZONE},
    process::services,
};

/// How long anything may take before the test fails; much longer than it takes.
const LIMIT: Duration = Duration::from_secs(90);
/// Where the driver listens.
const SOCKET: &str = "csi.sock";
/// The API server's log.
const LOG: &str = "api.ndjson";

pub struct Cluster {
    pub client: Client,
    pub driver: Fake,
    /// The metrics of the controllers.
    pub notes: Notes,
    informer: Informer,
    accounts: (Accounts, Client),
    running: JoinSet<()>,
    directory: tempfile::TempDir,
    server: apiserver::Server,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        accounts::expect_no_denials(&self.server);
    }
}

impl Cluster {
    /// All controllers but the scheduler, nodes `a` and `b` in zones of their own, and the class `fast`.
    pub async fn start() -> Self {
        let mut cluster = Self::prepare().await;
        cluster.run();
        cluster
    }

    /// The same without controllers. What is created now is known to them from the first; of what is created
    /// afterwards they learn in any order, since each kind has a watch of its own.
    pub async fn prepare() -> Self {
        // Not in TMPDIR, which may be long: the path of a unix socket ends at 108 bytes.
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let driver = Fake::default();
        let services = services(&driver, driver.clone());
        let listening = Server::bind(&directory.path().join(SOCKET)).unwrap();
        let audit_log = Some(directory.path().join(LOG));
        let server = apiserver::start(apiserver::Config { audit_log, ..Default::default() }).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let mut running = JoinSet::new();
        running.spawn(async move { listening.serve(services, std::future::pending()).await.unwrap() });
        let informer = Informer::start(client.clone(), KindSet::all(), &Default::default());
        informer.synced().await;
        let notes = Notes::default();
        let accounts = accounts::create(&server, &client).await;
        let cluster = Self { client, driver, notes, informer, accounts, running, directory, server };
        for name in ["a", "b"] {
            let mut node = testing::node(name);
            testing::annotate(&mut node.metadata, CONTROLLER_MANAGED_ATTACH, "true");
            node.metadata.labels.get_or_insert_default().insert(ZONE.into(), name.into());
            cluster.create(node).await;
            let mut csi_node = testing::csi_node(name, None);
            csi_node.spec.drivers[0].topology_keys = Some(vec![ZONE.into()]);
            cluster.create::<CSINode>(csi_node).await;
        }
        cluster.create::<StorageClass>(testing::class("fast", DRIVER)).await;
        cluster
    }

    /// Starts all controllers but the scheduler.
    pub fn run(&mut self) {
        self.start_controllers(&[
            Name::Binder,
            Name::Provisioner,
            Name::AttachDetach,
            Name::Attacher,
            Name::Protection,
            Name::SnapshotController,
            Name::Snapshotter,
        ]);
    }

    /// Starts binder and protection, and a provisioner of the node `a` alone, which attempts to own a claim within this time.
    pub fn run_on_node(&mut self, delay: Duration) {
        self.start_controllers(&[Name::Binder, Name::Protection]);
        let deployment = NodeDeployment {
            node: "a".into(),
            base_delay: delay,
            max_delay: delay,
            ..NodeDeployment::default()
        };
        self.start_with(&[Name::Provisioner], Some(deployment), false);
    }

    /// Starts binder and protection, and a provisioner with the feature CrossNamespaceVolumeDataSource.
    pub fn run_across_namespaces(&mut self) {
        self.start_controllers(&[Name::Binder, Name::Protection]);
        self.start_with(&[Name::Provisioner], None, true);
    }

    /// Starts the scheduler too.
    pub fn schedule(&mut self) {
        self.start_controllers(&[Name::Scheduler]);
    }

    /// Starts these controllers, with the driver at another socket.
    pub fn run_at<const N: usize>(&mut self, path: &Path, names: [Name; N], options: Options) {
        let (accounts, client) = self.accounts.clone();
        let (csi_address, accounts) = (Some(path.to_owned()), Some(accounts));
        let options = Options { csi_address, accounts, ..options };
        self.running.spawn(async move {
            claimcheck_controllers::run(&names, client, &options, std::future::pending()).await.unwrap();
        });
    }

    fn start_controllers(&mut self, names: &'static [Name]) {
        self.start_with(names, None, false);
    }

    fn start_with(
        &mut self,
        names: &'static [Name],
        node_deployment: Option<NodeDeployment>,
        cross_namespace_sources: bool,
    ) {
        let csi_address = Some(self.directory.path().join(SOCKET));
        let meter = Meter::new(self.notes.clone());
        // No role grants the read of ReferenceGrants on virtual nodes, which have no other namespaces as sources.
        let (client, accounts) = match (cross_namespace_sources, self.accounts.clone()) {
            (true, _) => (self.client.clone(), None),
            (false, (accounts, client)) => (client, Some(accounts)),
        };
        self.running.spawn(async move {
            let provisioning =
                Provisioning { enable_capacity: true, cross_namespace_sources, ..Provisioning::default() };
            let options = Options {
                csi_address,
                provisioning,
                node_deployment,
                meter,
                accounts,
                // Where its role permits it to publish capacities.
                capacity_namespace: Some(claimcheck_model::NAMESPACE.to_owned()),
                ..Options::default()
            };
            let forever = std::future::pending();
            claimcheck_controllers::run(names, client, &options, forever).await.unwrap();
        });
    }

    /// Waits until the pod has a node, which is returned.
    pub async fn scheduled(&self, pod: &str) -> String {
        let key = claimcheck_model::ObjectKey::new(NAMESPACE, pod);
        let node = |world: &World| world.pods.get(&key)?.spec.clone()?.node_name;
        self.until(&format!("the pod {pod} has a node"), |world| node(world).is_some()).await;
        node(&self.informer.read()).unwrap()
    }

    /// Creates a cluster-scoped object.
    pub async fn create<K>(&self, mut object: K) -> K
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + Serialize
            + DeserializeOwned
            + Debug,
    {
        object.meta_mut().uid = None;
        Api::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap()
    }

    /// Creates an object in the namespace.
    pub async fn create_in_namespace<K>(&self, mut object: K) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Serialize
            + DeserializeOwned
            + Debug,
    {
        object.meta_mut().uid = None;
        self.namespaced().create(&PostParams::default(), &object).await.unwrap()
    }

    pub fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates a claim of the class `fast`.
    pub async fn claim(&self, name: &str) -> PersistentVolumeClaim {
        self.create_in_namespace(testing::claim(name, "fast", "64Mi")).await
    }

    /// Creates a claim, waits for its volume and returns the volume's name.
    pub async fn bound_claim(&self, name: &str) -> String {
        let claim = self.claim(name).await;
        self.bound(name).await;
        format!("pvc-{}", claim.metadata.uid.unwrap())
    }

    pub async fn bound(&self, claim: &str) {
        let key = claimcheck_model::ObjectKey::new(NAMESPACE, claim);
        let phase = |world: &World| world.claims.get(&key)?.status.clone()?.phase;
        self.until("the claim is bound", |world| phase(world).as_deref() == Some("Bound")).await;
    }

    /// Creates a pod that is scheduled already.
    pub async fn pod(&self, name: &str, node: &str, claim: &str) -> Pod {
        let mut pod = testing::pod(name, node, &[claim]);
        let container = Container { name: "c".into(), image: Some("none".into()), ..Container::default() };
        pod.spec.get_or_insert_default().containers = vec![container];
        self.create_in_namespace(pod).await
    }

    /// Deletes a pod as the kubelet does when all is cleaned up.
    pub async fn end_pod(&self, name: &str) {
        let params = DeleteParams::default().grace_period(0);
        self.namespaced::<Pod>().delete(name, &params).await.unwrap();
    }

    pub async fn delete_claim(&self, name: &str) {
        self.namespaced::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Reports what the node's kubelet uses.
    pub async fn report_in_use(&self, node: &str, volumes: &[&str]) {
        let names: Vec<String> = volumes.iter().map(|volume| unique_volume_name(DRIVER, volume)).collect();
        let patch = Patch::Merge(json!({"status": {"volumesInUse": names}}));
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Whether the node's list has the volume.
    pub async fn listed(&self, node: &str, volume: &str, expected: bool) {
        let unique = unique_volume_name(DRIVER, volume);
        self.until(&format!("volumesAttached of {node} has {volume}: {expected}"), |world| {
            let node = world.nodes.named(node).and_then(|node| node.status.clone()).unwrap_or_default();
            node.volumes_attached.iter().flatten().any(|listed| listed.name == unique) == expected
        })
        .await;
    }

    /// Waits until the world is as described. Looks at every change, and only then.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let mut changes = self.informer.subscribe(KindSet::all());
        let waiting = async {
            while !holds(&self.informer.read()) {
                changes.recv().await.expect("the informer lives as long as the cluster");
            }
        };
        if tokio::time::timeout(LIMIT, waiting).await.is_err() {
            let calls = self.driver.state().calls.clone();
            panic!("not within {LIMIT:?}: {what}\n{:#?}\ncalls: {calls:?}", &*self.informer.read());
        }
    }

    /// The messages of the events of this reason, once there are as many.
    pub async fn events(&self, reason: &str, count: usize) -> Vec<String> {
        self.events_until(reason, |messages| messages.len() >= count).await
    }

    /// Waits for an event of this reason that says so.
    pub async fn wait_for_event(&self, reason: &str, message: &str) {
        self.events_until(reason, |messages| messages.iter().any(|found| found == message)).await;
    }

    async fn events_until(&self, reason: &str, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
        let api = self.namespaced::<Event>();
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            let events = api.list(&ListParams::default()).await.unwrap().items;
            let of_reason = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
            let messages: Vec<String> = of_reason.filter_map(|event| event.message.clone()).collect();
            if enough(&messages) {
                return messages;
            }
            assert!(tokio::time::Instant::now() < deadline, "no such event of {reason}, but: {events:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until no volume and no attachment is left, and checks the driver's side of it.
    pub async fn nothing_left(&self) {
        self.until("no volume and no attachment is left", |world| {
            world.volumes.is_empty() && world.attachments.is_empty()
        })
        .await;
        let state = self.driver.state();
        assert!(state.volumes.is_empty(), "volumes left: {:?}", state.volumes);
        assert!(state.published.is_empty(), "published: {:?}", state.published);
        assert!(state.snapshots.is_empty(), "snapshots left: {:?}", state.snapshots);
    }

    /// The one attachment, once it is attached.
    pub async fn attached(&self) -> VolumeAttachment {
        let attached = |world: &World| {
            let mut attached =
                world.attachments.iter().filter(|a| a.status.as_ref().is_some_and(|s| s.attached));
            attached.next().map(|attachment| (**attachment).clone())
        };
        self.until("a volume is attached", |world| attached(world).is_some()).await;
        attached(&self.informer.read()).unwrap()
    }

    /// What has been written so far to objects other than events, as verb and resource. Writes that were
    /// refused do not count: how often two controllers meet at one object is a matter of time.
    pub fn writes(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.directory.path().join(LOG)).unwrap();
        let write = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let (verb, resource) = (line["verb"].as_str()?, line["resource"].as_str()?);
            let writes = matches!(verb, "create" | "update" | "patch" | "delete") && resource != "events";
            (writes && line["code"].as_u64()? < 300).then(|| format!("{verb} {resource}"))
        };
        log.lines().filter_map(write).collect()
    }
}
