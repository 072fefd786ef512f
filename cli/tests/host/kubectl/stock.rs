//! The real server: etcd, kube-apiserver, and the controllers that the embedded API server includes.

use std::{
    env, fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use claimcheck_stock::{Options, Programs, WITHOUT_FAIRNESS};

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
    programs: Programs,
}

impl Stock {
    /// Starts all programs; returns once the API server is ready and the controllers run.
    pub fn start(kubectl: &Kubectl, assets: &Path, folder: &Path) -> Self {
        let options = Options {
            tokens: format!("{TOKEN},kubernetes-admin,,\"system:masters\"\n"),
            issuer: Some("https://kubernetes.default.svc"),
            services: "10.96.0.0/16",
            more: vec![WITHOUT_FAIRNESS.to_owned()],
            ..Options::default()
        };
        let (programs, prepared) = Programs::start(assets, folder, &options).expect("programs");
        let file = |name: &str| folder.join(name).display().to_string();
        let text = prepared.kubeconfig(TOKEN);
        fs::write(file("kubeconfig"), &text).expect("a file");
        let mut stock = Self { side: Side::new(kubectl, &folder.join("side"), &text), programs };
        stock.wait("kubectl get --raw /readyz");
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
        let manager = "kube-controller-manager";
        stock.programs.spawn(&assets.join(manager), manager, &controllers, &[]).expect("a program");
        stock.wait("kubectl get serviceaccount/default configmap/kube-root-ca.crt -n default");
        stock
    }

    /// Waits until a command succeeds.
    fn wait(&mut self, command: &str) {
        let deadline = Instant::now() + READY;
        while !self.side.succeeds("start", command) {
            let (ended, programs) = (self.programs.ended(), &self.programs);
            assert!(ended.is_empty(), "a program has exited: {ended:?}: {}", programs.last_lines());
            let is_early = Instant::now() < deadline;
            assert!(is_early, "after {READY:?}, {command} fails: {}", programs.last_lines());
            sleep(Duration::from_millis(200));
        }
    }
}

/// The embedded API server serves snapshots as if these were installed.
fn install_crds(side: &Side) {
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/snapshots/crds");
    let crds = fs::canonicalize(crds).expect("a folder of the workspace");
    let crds = crds.display();
    side.accept("start", &format!("kubectl apply --server-side -k {crds}"));
    side.accept("start", "kubectl wait --for=condition=Established crd --all --timeout=60s");
}
