//! The two sides: each an upstream API server with etcd, a scripted driver, and the controllers.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use claimcheck_apiserver::{Certificates, kubeconfig};
use claimcheck_controllers::{Calls, Name, Options, Provisioning};
use claimcheck_csi::{
    Server, Services,
    v1::{controller_server::ControllerServer, identity_server::IdentityServer},
};
use claimcheck_informer::Backoff;
use kube::{
    Api, Client, Config,
    api::{DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{driver::Driver, record::Record};

/// The deadline of calls, short because scenarios wait for it.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The backoff of sidecars.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(300), max: Duration::from_secs(3) };
/// How long programs may take to start.
const READY: Duration = Duration::from_secs(180);
/// The controllers of kube-controller-manager that take part; sidecars are separate.
const STOCK: [&str; 7] = [
    "persistentvolume-binder-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "ephemeral-volume-controller",
    "volumeattributesclass-protection-controller",
];
/// The same among the built-in ones, with those of sidecars.
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
const CRDS: [&str; 3] = ["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"];

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
                "CLAIMCHECK_SIDECARS",
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
    _processes: Vec<Child>,
}

impl Side {
    /// Starts all; returns once the API server is ready. Called on the main thread, with which its processes die.
    pub async fn start(controllers: Controllers, programs: &Programs, folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let (store, address) = (free_port(), free_port());
        let certificates = Certificates::generate(address.ip()).unwrap();
        let token = uuid::Uuid::new_v4().simple().to_string();
        let file = |name: &str| folder.join(name).display().to_string();
        fs::write(file("tls.crt"), &certificates.certificate).unwrap();
        fs::write(file("tls.key"), &certificates.key).unwrap();
        fs::write(file("tokens.csv"), format!("{token},test,test,\"system:masters\"\n")).unwrap();
        let text = kubeconfig::render(&format!("https://{address}"), &certificates.ca, &token);
        fs::write(file("kubeconfig"), &text).unwrap();
        let mut processes = vec![
            spawn(folder, &programs.assets.join("etcd"), "etcd", &etcd_arguments(&file("etcd"), store)),
            spawn(
                folder,
                &programs.assets.join("kube-apiserver"),
                "kube-apiserver",
                &apiserver_arguments(&file, address, store),
            ),
        ];
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
        let record = Record::new();
        record.watch(&client);
        let driver = Driver::new(record.clone());
        let socket = serve(&driver, &folder.join("csi.sock"));
        let with_topology = driver.with_topology();
        let topology_socket = serve(&with_topology, &folder.join("topology.sock"));
        match controllers {
            Controllers::BuiltIn => {
                run_built_in(&client, socket, &BUILT_IN);
                run_built_in(&client, topology_socket, &[Name::Provisioner]);
            }
            Controllers::Stock => {
                processes.extend(stock(programs, folder, &socket, &topology_socket));
            }
        }
        Self { client, record, driver, _processes: processes }
    }
}

fn serve(driver: &Driver, socket: &Path) -> PathBuf {
    let services = Services::default()
        .with(IdentityServer::new(driver.clone()))
        .with(ControllerServer::new(driver.clone()));
    let listening = Server::bind(socket).unwrap();
    tokio::spawn(async move { listening.serve(services, std::future::pending()).await.unwrap() });
    socket.to_owned()
}

fn run_built_in(client: &Client, socket: PathBuf, names: &'static [Name]) {
    let client = client.clone();
    tokio::spawn(async move {
        let provisioning = Provisioning { extra_create_metadata: true, ..Provisioning::default() };
        let calls = Calls { timeout: Some(TIMEOUT), backoff: Some(BACKOFF), ..Calls::default() };
        let options = Options { csi_address: Some(socket), provisioning, calls, ..Options::default() };
        claimcheck_controllers::run(names, client, &options, std::future::pending()).await.unwrap();
    });
}

fn stock(programs: &Programs, folder: &Path, socket: &Path, topology_socket: &Path) -> Vec<Child> {
    let kubeconfig = format!("--kubeconfig={}", folder.join("kubeconfig").display());
    let mut manager = vec![
        kubeconfig.clone(),
        format!("--controllers={}", STOCK.join(",")),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "-v=2".to_owned(),
    ];
    let (pace, rate) = (
        [
            format!("--retry-interval-start={}ms", BACKOFF.base.as_millis()),
            format!("--retry-interval-max={}ms", BACKOFF.max.as_millis()),
        ],
        ["--kube-api-qps=1000".to_owned(), "--kube-api-burst=2000".to_owned()],
    );
    manager.extend(rate.clone());
    let mut processes = vec![spawn(
        folder,
        &programs.assets.join("kube-controller-manager"),
        "kube-controller-manager",
        &manager,
    )];
    for (program, log, socket, metadata) in [
        ("csi-provisioner", "csi-provisioner", Some(socket), true),
        ("csi-provisioner", "csi-provisioner-topology", Some(topology_socket), true),
        ("csi-attacher", "csi-attacher", Some(socket), false),
        ("csi-resizer", "csi-resizer", Some(socket), false),
        ("csi-snapshotter", "csi-snapshotter", Some(socket), true),
        ("snapshot-controller", "snapshot-controller", None, false),
    ] {
        let mut arguments = vec![kubeconfig.clone(), "-v=4".to_owned()];
        arguments.extend(pace.clone());
        arguments.extend(rate.clone());
        if let Some(socket) = socket {
            arguments.push(format!("--csi-address={}", socket.display()));
            arguments.push(format!("--timeout={}s", TIMEOUT.as_secs()));
        }
        if metadata {
            arguments.push("--extra-create-metadata".to_owned());
        }
        processes.push(spawn(folder, &programs.sidecars.join(program), log, &arguments));
    }
    processes
}

/// Starts a program that the kernel kills with this process, however that ends.
fn spawn(folder: &Path, program: &Path, name: &str, arguments: &[String]) -> Child {
    let log = fs::File::create(folder.join(format!("{name}.log"))).unwrap();
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

fn etcd_arguments(data: &str, store: SocketAddr) -> Vec<String> {
    vec![
        format!("--data-dir={data}"),
        format!("--listen-client-urls=http://{store}"),
        format!("--advertise-client-urls=http://{store}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ]
}

/// As in `harness/cluster/src/stock.rs`.
fn apiserver_arguments(
    file: &impl Fn(&str) -> String,
    address: SocketAddr,
    store: SocketAddr,
) -> Vec<String> {
    vec![
        format!("--etcd-servers=http://{store}"),
        format!("--bind-address={}", address.ip()),
        format!("--advertise-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--tls-cert-file={}", file("tls.crt")),
        format!("--tls-private-key-file={}", file("tls.key")),
        format!("--cert-dir={}", file("certificates")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        format!("--service-account-issuer=https://{address}"),
        format!("--service-account-key-file={}", file("tls.crt")),
        format!("--service-account-signing-key-file={}", file("tls.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--enable-priority-and-fairness=false".to_owned(),
    ]
}

async fn ready(client: &Client) {
    let waiting = async {
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            if client.request_text(request).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(READY, waiting).await.expect("the API server becomes ready");
}

async fn install_crds(client: &Client) {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    for name in CRDS {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../manifests/snapshots/crds/{name}.yaml"));
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let full = crd["metadata"]["name"].as_str().unwrap().to_owned();
        api.patch(&full, &PatchParams::apply("test").force(), &Patch::Apply(&crd)).await.unwrap();
        let established = async {
            loop {
                let crd = api.get(&full).await.unwrap();
                let condition = json!({ "type": "Established", "status": "True" });
                let conditions = crd.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
                if conditions.iter().any(|one| crate::run::matches(one, &condition)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(READY, established).await.expect("the CRD is established");
    }
}
