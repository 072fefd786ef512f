//! The real server: etcd, kube-apiserver, and the controllers that the embedded API server includes.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use claimcheck_apiserver::{Certificates, kubeconfig};

use super::side::{Kubectl, Side};

const PROGRAMS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];
/// Those of kube-controller-manager of which the embedded API server does the work: see `gc/` and `bootstrap.rs` there.
const CONTROLLERS: [&str; 5] = [
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
];
/// How long the programs may take to start on a busy machine.
const READY: Duration = Duration::from_secs(180);
/// The token of the same user as that of the embedded API server.
const TOKEN: &str = "kubectl-scripts";

/// The folder with the programs, or the reason why there is none.
pub fn find() -> Result<PathBuf, String> {
    let folder =
        env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from).ok_or("KUBEBUILDER_ASSETS is not set")?;
    match PROGRAMS.iter().find(|program| !folder.join(program).is_file()) {
        Some(missing) => Err(format!("KUBEBUILDER_ASSETS has no {missing}")),
        None => Ok(folder),
    }
}

/// A running server; its processes end with it, and when the thread that started it ends.
pub struct Stock {
    pub side: Side,
    processes: Vec<Child>,
}

impl Drop for Stock {
    fn drop(&mut self) {
        // The clients of etcd first.
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Stock {
    /// Starts all programs; returns once the API server is ready and the controllers run.
    pub fn start(kubectl: &Kubectl, assets: &Path, folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder");
        let (store, address) = (free_port(), free_port());
        let certificates = Certificates::generate(address.ip()).expect("certificates");
        let file = |name: &str| folder.join(name).display().to_string();
        fs::write(file("tls.crt"), &certificates.certificate).expect("a file");
        fs::write(file("tls.key"), &certificates.key).expect("a file");
        fs::write(file("ca.crt"), &certificates.ca).expect("a file");
        let tokens = format!("{TOKEN},kubernetes-admin,,\"system:masters\"\n");
        fs::write(file("tokens.csv"), tokens).expect("a file");
        let text = kubeconfig::render(&format!("https://{address}"), &certificates.ca, TOKEN);
        fs::write(file("kubeconfig"), &text).expect("a file");
        let start = |name: &str, arguments: &[String]| start(folder, &assets.join(name), name, arguments);
        let processes = vec![
            start("etcd", &etcd_arguments(&file("etcd"), store)),
            start("kube-apiserver", &apiserver_arguments(&file, address, store)),
        ];
        let mut stock = Self { side: Side::new(kubectl, &folder.join("side"), &text), processes };
        stock.wait("kubectl get --raw /readyz", folder);
        install_crds(&stock.side);
        let controllers = [
            format!("--kubeconfig={}", file("kubeconfig")),
            format!("--controllers={}", CONTROLLERS.join(",")),
            format!("--root-ca-file={}", file("ca.crt")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=2000".to_owned(),
        ];
        stock.processes.push(start("kube-controller-manager", &controllers));
        stock.wait("kubectl get serviceaccount/default configmap/kube-root-ca.crt -n default", folder);
        stock
    }

    /// Waits until a command succeeds.
    fn wait(&mut self, command: &str, folder: &Path) {
        let deadline = Instant::now() + READY;
        while !self.side.succeeds("start", command) {
            for process in &mut self.processes {
                let status = process.try_wait().expect("it was started here");
                assert!(status.is_none(), "a program has exited ({status:?}): {}", last_lines(folder));
            }
            assert!(Instant::now() < deadline, "after {READY:?}, {command} fails: {}", last_lines(folder));
            sleep(Duration::from_millis(200));
        }
    }
}

/// Of the logs of all programs.
fn last_lines(folder: &Path) -> String {
    let logs = PROGRAMS.map(|name| {
        let log = fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("\n{name}:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
    });
    logs.concat()
}

/// Starts a program that the kernel kills with this thread, however that ends.
fn start(folder: &Path, program: &Path, name: &str, arguments: &[String]) -> Child {
    let log = fs::File::create(folder.join(format!("{name}.log"))).expect("a log");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments).stdin(Stdio::null());
    command.stdout(log.try_clone().expect("a log")).stderr(log);
    command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("a port")
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

/// As in `harness/cluster/src/embedded/stock.rs`, with the default admission plugins.
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
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("tls.crt")),
        format!("--service-account-signing-key-file={}", file("tls.key")),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--enable-priority-and-fairness=false".to_owned(),
    ]
}

/// The embedded API server serves snapshots as if these were installed.
fn install_crds(side: &Side) {
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/snapshots/crds");
    let crds = fs::canonicalize(crds).expect("a folder of the workspace");
    let crds = crds.display();
    side.accept("start", &format!("kubectl apply --server-side -k {crds}"));
    side.accept("start", "kubectl wait --for=condition=Established crd --all --timeout=60s");
}
