//! An upstream kube-apiserver with etcd, which end with the test.
//!
//! The arguments are those of `harness/cluster/src/embedded/stock.rs`, except that the admission plug-in
//! ServiceAccount stays enabled, as it is in a cluster: `play.rs` creates what it requires.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use claimcheck_apiserver::{Certificates, kubeconfig};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::side::{Request, Side};

/// How long the programs may take to start.
const READY: Duration = Duration::from_secs(120);
/// The interval between two requests during the start.
const PAUSE: Duration = Duration::from_millis(50);
/// The lines of a log that are printed if its program does not start.
const LAST_LINES: usize = 30;

/// What exists once kube-apiserver has completed its start.
const BOOTSTRAPPED: [&str; 8] = [
    "/readyz",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/kube-system",
    "/api/v1/namespaces/kube-public",
    "/api/v1/namespaces/kube-node-lease",
    "/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical",
    "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
];

/// The running programs; dropping it kills them.
pub struct Upstream {
    /// Requests to its API server.
    pub side: Arc<Side>,
    _programs: Vec<Child>,
    _folder: TempDir,
}

impl Upstream {
    /// Starts both programs, which the kernel kills with the calling thread; returns once the API server is
    /// ready.
    pub async fn start(assets: &Path) -> Result<Self, String> {
        let folder = tempfile::tempdir_in("/tmp").map_err(|error| format!("no temporary folder: {error}"))?;
        let path = folder.path();
        let (store, address) = (free_port()?, free_port()?);
        let certificates = Certificates::generate(address.ip()).map_err(|error| error.to_string())?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        // The name of the embedded server's admin.
        let tokens = format!("{token},kubernetes-admin,,\"system:masters\"\n");
        for (name, text) in
            [("tls.crt", &certificates.certificate), ("tls.key", &certificates.key), ("tokens.csv", &tokens)]
        {
            let file = path.join(name);
            kubeconfig::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        let mut programs = vec![
            spawn(path, &assets.join("etcd"), "etcd", &etcd_arguments(path, store))?,
            spawn(
                path,
                &assets.join("kube-apiserver"),
                "kube-apiserver",
                &apiserver_arguments(path, address, store),
            )?,
        ];
        let side =
            Side::new(&kubeconfig::render(&format!("https://{address}"), &certificates.ca, &token)).await?;
        ready(&side, path, &mut programs).await?;
        Ok(Self { side: Arc::new(side), _programs: programs, _folder: folder })
    }
}

async fn ready(side: &Side, folder: &Path, programs: &mut [Child]) -> Result<(), String> {
    let started = Instant::now();
    for path in BOOTSTRAPPED {
        while side.send(&Request::get(path)).await.status != 200 {
            let exited = programs.iter_mut().any(|program| !matches!(program.try_wait(), Ok(None)));
            if exited || started.elapsed() > READY {
                let logs: Vec<String> =
                    ["etcd", "kube-apiserver"].iter().map(|name| last_lines(folder, name)).collect();
                let what = if exited { "a program has exited" } else { "the deadline has passed" };
                return Err(format!("{path} is not ready: {what}\n{}", logs.join("\n")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

fn last_lines(folder: &Path, name: &str) -> String {
    let text = fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    format!("last lines of {name}:\n{}", last.join("\n"))
}

fn free_port() -> Result<SocketAddr, String> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no port: {error}"))?;
    listener.local_addr().map_err(|error| format!("no port: {error}"))
}

/// Starts a program that the kernel kills with this thread, however that ends.
fn spawn(folder: &Path, program: &Path, name: &str, arguments: &[String]) -> Result<Child, String> {
    let cannot = |error: std::io::Error| format!("cannot start {}: {error}", program.display());
    let log = fs::File::create(folder.join(format!("{name}.log"))).map_err(cannot)?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(cannot)?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .map_err(cannot)
}

fn etcd_arguments(folder: &Path, store: SocketAddr) -> Vec<String> {
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://{store}"),
        format!("--advertise-client-urls=http://{store}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn apiserver_arguments(folder: &Path, address: SocketAddr, store: SocketAddr) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
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
        "--allow-privileged=true".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--enable-priority-and-fairness=false".to_owned(),
    ]
}
