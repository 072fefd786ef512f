//! The components as they run in a real cluster: separate processes with probes, metrics and a lease.

use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::Path,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use claimcheck_apiserver as apiserver;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::NamedTempFile;

use crate::http::{free_address, get};

const LONG: Duration = Duration::from_secs(90);

/// A component that ends with the test.
struct Component {
    process: Child,
    log: NamedTempFile,
}

impl Component {
    fn start(args: &[&str]) -> Self {
        // A file, since a pipe that nobody reads holds up whoever has much to say.
        let log = NamedTempFile::new().expect("a file");
        let stderr = log.reopen().expect("a file");
        let process = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
            .env("CLAIMCHECK_NO_HISTORY", "1")
            .args(args)
            .stderr(stderr)
            .spawn();
        Self { process: process.expect("the program starts"), log }
    }

    /// Asks it to end, and says how it did.
    fn end(mut self) -> (ExitStatus, String) {
        let pid = Pid::from_raw(self.process.id().try_into().expect("a process id"));
        kill(pid, Signal::SIGTERM).expect("it runs");
        self.ended()
    }

    /// Waits for its end, and says how it was.
    fn ended(&mut self) -> (ExitStatus, String) {
        let status = self.process.wait().expect("it ends");
        (status, fs::read_to_string(self.log.path()).expect("a log"))
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// No event shows this test how far another process is.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn status(address: &str, path: &str) -> Option<u16> {
    get(address, path).map(|(status, _)| status)
}

fn driver(socket: &Path, state: &Path) -> Component {
    Component::start(&[
        "driver",
        "--endpoint",
        &format!("unix://{}", socket.display()),
        "--node-id",
        "n",
        "--state-dir",
        &state.display().to_string(),
    ])
}

/// Not in TMPDIR, which may be long: the path of a unix socket ends at 108 bytes.
fn folder_of_sockets() -> tempfile::TempDir {
    tempfile::tempdir_in("/tmp").expect("a folder")
}

#[test]
fn the_liveness_probe_returns_the_result_of_probe() {
    let folder = folder_of_sockets();
    let socket = folder.path().join("csi.sock");
    let address = free_address().to_string();
    let probe = Component::start(&[
        "livenessprobe",
        "--csi-address",
        &socket.display().to_string(),
        "--http-endpoint",
        &address,
    ]);
    let (code, why) = until("the probe answers", || get(&address, "/healthz"));
    assert_eq!(code, 503, "there is no driver yet");
    assert!(why.contains("Unavailable"), "{why}");
    let driver = driver(&socket, &folder.path().join("state"));
    until("the driver is alive", || (status(&address, "/healthz") == Some(200)).then_some(()));
    assert_eq!(status(&address, "/"), Some(404));
    assert!(driver.end().0.success());
    until("the driver is dead", || (status(&address, "/healthz") == Some(503)).then_some(()));
    assert!(probe.end().0.success(), "SIGTERM is an end in order");
}

#[test]
fn the_registrar_waits_for_the_driver_and_removes_its_socket() {
    let folder = folder_of_sockets();
    let socket = folder.path().join("csi.sock");
    let registry = folder.path().join("registry");
    fs::create_dir(&registry).expect("a folder");
    let registrar = Component::start(&[
        "registrar",
        "--csi-address",
        &socket.display().to_string(),
        "--kubelet-registration-path",
        "/var/lib/kubelet/plugins/claimcheck.csi.dev/csi.sock",
        "--plugin-registration-path",
        &registry.display().to_string(),
    ]);
    let _driver = driver(&socket, &folder.path().join("state"));
    let registration = registry.join("claimcheck.csi.dev-reg.sock");
    until("the driver is registered", || {
        registration.metadata().ok().filter(|meta| meta.file_type().is_socket())
    });
    assert!(registrar.end().0.success());
    assert!(!registration.exists(), "the kubelet would go on calling");
}

/// A cluster of nothing but an API server; the kubeconfig lies in the folder.
fn cluster(folder: &Path) -> (tokio::runtime::Runtime, apiserver::Server, String) {
    // The program under test does so in its first line.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server =
        runtime.block_on(apiserver::start(apiserver::Config::default())).expect("the API server starts");
    let kubeconfig = folder.join("kubeconfig");
    server.write_kubeconfig(&kubeconfig).expect("a file");
    (runtime, server, kubeconfig.display().to_string())
}

fn controller(kubeconfig: &str, address: &str) -> Component {
    Component::start(&[
        "controller",
        "binder",
        "protection",
        "--leader-elect",
        "--kubeconfig",
        kubeconfig,
        "--http-endpoint",
        address,
    ])
}

fn leads(address: &str, leads: bool) -> Option<()> {
    let line =
        format!("leader_election_master_status{{name=\"claimcheck-controllers\"}} {}", u8::from(leads));
    get(address, "/metrics").filter(|(_, text)| text.contains(&line)).map(drop)
}

#[test]
fn one_controller_works_and_the_next_takes_over_when_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_runtime, server, kubeconfig) = cluster(folder.path());
    let (first_at, second_at) = (free_address().to_string(), free_address().to_string());
    let first = controller(&kubeconfig, &first_at);
    until("the first leads", || leads(&first_at, true));
    until("the first works", || (status(&first_at, "/readyz") == Some(200)).then_some(()));
    let second = controller(&kubeconfig, &second_at);
    until("the second waits", || leads(&second_at, false));
    until("it is ready to take over", || (status(&second_at, "/readyz") == Some(200)).then_some(()));
    assert_eq!(status(&second_at, "/livez"), Some(200));

    let (ended, log) = first.end();
    assert!(ended.success(), "{log}");
    until("the second leads", || leads(&second_at, true));
    let asked = server.requests();
    let by = |agent: &str| asked.iter().any(|request| request.agent.starts_with(agent));
    assert!(by("claimcheck-leader-election") && by("claimcheck-controller"), "{asked:?}");
    let secret =
        |request: &apiserver::RequestCount| request.resource == "nodes" || request.resource == "secrets";
    assert!(!asked.iter().any(secret), "binder and protection have no business with those: {asked:?}");
    assert!(second.end().0.success());
}

#[test]
fn a_controller_that_lost_its_lease_ends_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, server, kubeconfig) = cluster(folder.path());
    let address = free_address().to_string();
    let mut controller = controller(&kubeconfig, &address);
    until("it leads", || leads(&address, true));
    runtime.block_on(server.shutdown());
    // Ten seconds, the deadline of renewals.
    let (status, log) = controller.ended();
    assert_eq!(status.code(), Some(3), "{log}");
    assert!(log.contains("kube-system/claimcheck-controllers could not be renewed"), "{log}");
}
