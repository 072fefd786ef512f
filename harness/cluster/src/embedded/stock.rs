//! An upstream kube-apiserver and etcd, within the run's own namespaces: see `testing/stock` for their arguments.
//!
//! It proves that the built-in controllers and nodes do not depend on the embedded API server. For upstream's
//! controllers see `controller_manager.rs`.

use std::{
    collections::BTreeMap,
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_apiserver::kubeconfig;
use claimcheck_controllers::Name;
use claimcheck_model::{Denial, Unserved};
use claimcheck_stock::{Options, PrepareError, Prepared, WITHOUT_SERVICE_ACCOUNTS};
use claimcheck_substrate::{Capabilities, Process, ProcessSpec, STATE_DIR, SpawnError};
use http::Request;
use kube::Client;
use serde_json::json;

use super::{
    denials,
    last_lines::last_lines,
    supervisor, unserved,
    users::{NODE_GROUP, NODE_USER},
};
use claimcheck_component::client::{ClientError, client};
use claimcheck_deploy::install::{self, accounts};
use claimcheck_kind::Controllers;

/// The environment variable with the directory of the programs, as for controller-runtime.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
pub(super) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// The startup timeout. An upstream API server takes seconds on a busy machine.
pub(super) const READY: Duration = Duration::from_secs(120);
/// The polling interval during startup, which affects no measured phase.
const PAUSE: Duration = Duration::from_millis(50);

/// The stock programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets {
    /// The program `etcd`.
    pub etcd: PathBuf,
    /// The program `kube-apiserver`.
    pub apiserver: PathBuf,
    /// The program `kube-controller-manager`, if upstream's controllers are requested.
    pub controller_manager: Option<PathBuf>,
}

/// A program that is missing.
#[derive(Debug, thiserror::Error)]
#[error("{program} is neither in the directory KUBEBUILDER_ASSETS ({}) nor on the PATH: {}", self.folder(), self.remedy())]
pub struct AssetsError {
    program: &'static str,
    /// The value of `KUBEBUILDER_ASSETS`.
    folder: Option<PathBuf>,
}

impl AssetsError {
    fn folder(&self) -> String {
        self.folder.as_ref().map_or_else(|| "not set".to_owned(), |folder| folder.display().to_string())
    }

    fn remedy(&self) -> &'static str {
        match self.program {
            CONTROLLER_MANAGER => {
                "put the one of your Kubernetes version (https://dl.k8s.io/VERSION/bin/linux/ARCH/) into that directory, \
                 or omit --controllers stock"
            }
            _ => {
                "fetch etcd and kube-apiserver, for example with `setup-envtest use`, and set KUBEBUILDER_ASSETS"
            }
        }
    }
}

impl Assets {
    /// Finds the required programs: in `KUBEBUILDER_ASSETS`, else on `PATH`.
    ///
    /// # Errors
    /// The missing program.
    pub fn find(controllers: Controllers) -> Result<Self, AssetsError> {
        let controller_manager = match controllers {
            Controllers::Builtin => None,
            Controllers::Stock => Some(find(CONTROLLER_MANAGER)?),
        };
        Ok(Self { etcd: find("etcd")?, apiserver: find("kube-apiserver")?, controller_manager })
    }
}

/// Finds a program: in `KUBEBUILDER_ASSETS`, else on `PATH`.
pub(super) fn find(program: &'static str) -> Result<PathBuf, AssetsError> {
    let folder = env::var_os(ASSETS).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = folder.iter().cloned().chain(env::split_paths(&path));
    let found = candidates.map(|directory| directory.join(program)).find(|candidate| candidate.is_file());
    found.ok_or(AssetsError { program, folder })
}

/// They cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StockError {
    /// A certificate, a file or a port.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A program cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The generated kubeconfig cannot be used.
    #[error("the kubeconfig of the API server cannot be used")]
    Client(#[from] ClientError),
    /// It exited, or does not become ready.
    #[error("{program} did not become ready; last lines of {}:\n{last_lines}", log.display())]
    NotReady {
        /// The program.
        program: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        last_lines: String,
    },
}

/// Both processes. Dropping it kills them.
pub(super) struct Stock {
    prepared: Prepared,
    client_ca: PathBuf,
    controller_manager: Option<PathBuf>,
    token: String,
    /// By user.
    tokens: BTreeMap<String, String>,
    /// The requests of stock programs.
    audit_log: PathBuf,
    apiserver: Process,
    etcd: Process,
}

impl Stock {
    /// Starts both; returns once the API server is ready. It audits the requests of these users.
    pub(super) async fn start(
        assets: &Assets,
        listen: SocketAddr,
        logs: &Path,
        (nodes, audited): (&[String], &[String]),
    ) -> Result<Self, StockError> {
        let dir = Path::new(STATE_DIR).join("control-plane");
        let random = || uuid::Uuid::new_v4().simple().to_string();
        let token = random();
        let mut table = format!("{token},claimcheck,claimcheck,\"system:masters\"\n");
        let mut tokens = BTreeMap::new();
        for (user, groups) in users(nodes) {
            let token = random();
            table.push_str(&format!("{token},{user},{user},\"{groups}\"\n"));
            tokens.insert(user, token);
        }
        let (audit_log, policy) = (logs.join("kube-apiserver-audit.ndjson"), dir.join("audit.json"));
        let mut more = vec![
            WITHOUT_SERVICE_ACCOUNTS.to_owned(),
            // The names of virtual nodes cannot be resolved.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            // A node may write its own objects and those of its pods only.
            "--enable-admission-plugins=NodeRestriction".to_owned(),
        ];
        if !audited.is_empty() {
            more.push(format!("--audit-policy-file={}", policy.display()));
            more.push(format!("--audit-log-path={}", audit_log.display()));
        }
        let options = Options { port: listen.port(), tokens: table, more, ..Options::default() };
        let prepared = Prepared::new(&dir, &options)?;
        let written = kubeconfig::write(&policy, &audit_policy(audited));
        written.map_err(|source| PrepareError::File { what: policy.display().to_string(), source })?;
        let etcd = spec("etcd", &assets.etcd, logs, prepared.etcd.clone());
        let apiserver = spec("kube-apiserver", &assets.apiserver, logs, prepared.apiserver.clone());
        let mut stock = Self {
            prepared,
            client_ca: dir.join("ca.crt"),
            controller_manager: assets.controller_manager.clone(),
            token,
            tokens,
            audit_log,
            etcd: etcd.spawn()?,
            apiserver: apiserver.spawn()?,
        };
        let client = client(&stock.kubeconfig()).await?;
        let failed = tokio::select! {
            () = ready(&client) => return Ok(stock),
            _ = stock.etcd.wait() => etcd,
            _ = stock.apiserver.wait() => apiserver,
            () = tokio::time::sleep(READY) => apiserver,
        };
        let last_lines = last_lines(&failed.log);
        Err(StockError::NotReady { program: failed.name, log: failed.log, last_lines })
    }

    pub(super) fn url(&self) -> String {
        self.prepared.url()
    }

    pub(super) fn kubeconfig(&self) -> String {
        self.prepared.kubeconfig(&self.token)
    }

    /// The CA of the certificate that the API server shows to kubelets.
    pub(super) fn client_ca(&self) -> &Path {
        &self.client_ca
    }

    /// The CA of its certificate, PEM.
    pub(super) fn ca(&self) -> &str {
        &self.prepared.ca
    }

    /// The token of a component's service account.
    pub(super) fn token_of(&self, component: &str) -> String {
        self.token_of_user(&service_account(component))
    }

    /// The credentials of a node.
    pub(super) fn kubeconfig_of_node(&self, node: &str) -> String {
        self.prepared.kubeconfig(&self.token_of_user(&format!("{NODE_USER}{node}")))
    }

    fn token_of_user(&self, user: &str) -> String {
        self.tokens.get(user).cloned().expect("every component and every node has a token")
    }

    /// What RBAC did not permit the audited users so far.
    pub(super) fn denials(&self) -> Vec<Denial> {
        // Without audited users there is no log.
        denials::from_audit_log(&fs::read_to_string(&self.audit_log).unwrap_or_default())
    }

    /// What the audited users requested in versions that are not served.
    pub(super) fn unserved(&self) -> Vec<Unserved> {
        unserved::from_audit_log(&fs::read_to_string(&self.audit_log).unwrap_or_default())
    }

    /// The program with upstream's controllers, if requested.
    pub(super) fn controller_manager(&self) -> Option<&Path> {
        self.controller_manager.as_deref()
    }

    /// Stops the API server first, so that it does not log errors about a missing store.
    pub(super) async fn shutdown(mut self) {
        supervisor::stop(&mut self.apiserver).await;
        supervisor::stop(&mut self.etcd).await;
    }
}

/// The user name of a component's service account.
fn service_account(component: &str) -> String {
    format!("system:serviceaccount:{}:{}", install::NAMESPACE, accounts::account(component))
}

/// The users that components can be, with their groups.
fn users(nodes: &[String]) -> Vec<(String, String)> {
    let controllers = Name::ALL.into_iter().chain([Name::Garbage]).map(Name::as_str);
    let accounts = controllers.chain([accounts::CACHE]);
    let groups = install::ACCOUNT_GROUPS.join(",");
    let mut users: BTreeMap<String, String> =
        accounts.map(|component| (service_account(component), groups.clone())).collect();
    users.extend(nodes.iter().map(|node| (format!("{NODE_USER}{node}"), NODE_GROUP.to_owned())));
    users.into_iter().collect()
}

/// Returns once the API server reports that it is ready.
async fn ready(client: &Client) {
    loop {
        let request = Request::get("/readyz").body(Vec::new()).expect("a request without parts from outside");
        if client.request_text(request).await.is_ok() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One of the upstream programs as a process.
pub(super) fn spec(name: &'static str, program: &Path, logs: &Path, args: Vec<String>) -> ProcessSpec {
    ProcessSpec {
        name: name.to_owned(),
        program: program.to_owned(),
        args: args.into_iter().map(Into::into).collect(),
        env: Vec::new(),
        log: logs.join(format!("{name}.log")),
        filter: None,
        namespace: None,
        run_directory: None,
        capabilities: Capabilities::Files,
    }
}

/// The policy that logs the metadata of these users' requests once they are answered (audit.k8s.io/v1).
fn audit_policy(users: &[String]) -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "omitManagedFields": true,
        "rules": [{ "level": "Metadata", "users": users }, { "level": "None" }],
    })
    .to_string()
}
