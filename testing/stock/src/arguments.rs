//! The arguments of etcd and kube-apiserver.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Pods get no service accounts, since no controller creates them.
pub const WITHOUT_SERVICE_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";
/// Many requests of one client at a time.
pub const WITHOUT_FAIRNESS: &str = "--enable-priority-and-fairness=false";

/// What differs between API servers.
pub struct Options {
    /// The port, or 0 for any.
    pub port: u16,
    /// The table of tokens (`--token-auth-file`).
    pub tokens: String,
    /// The issuer of tokens of service accounts; `None`: its URL.
    pub issuer: Option<&'static str>,
    /// The addresses of services.
    pub services: &'static str,
    /// Further arguments.
    pub more: Vec<String>,
    /// The folder of the logs of [`Programs`](crate::Programs), which exists; `None`: that of the rest.
    pub logs: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let (tokens, services, more) = (String::new(), "10.0.0.0/24", Vec::new());
        Self { port: 0, tokens, issuer: None, services, more, logs: None }
    }
}

/// One member without replication or durability.
pub(crate) fn etcd(folder: &Path, store: SocketAddr) -> Vec<String> {
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://{store}"),
        format!("--advertise-client-urls=http://{store}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ]
}

/// As close as possible to the arguments in a real cluster.
pub(crate) fn apiserver(
    folder: &Path,
    address: SocketAddr,
    store: SocketAddr,
    options: &Options,
) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let issuer = options.issuer.map_or_else(|| format!("https://{address}"), str::to_owned);
    let mut arguments = vec![
        format!("--etcd-servers=http://{store}"),
        format!("--bind-address={}", address.ip()),
        format!("--advertise-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--tls-cert-file={}", file("tls.crt")),
        format!("--tls-private-key-file={}", file("tls.key")),
        format!("--cert-dir={}", file("certificates")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        format!("--service-account-issuer={issuer}"),
        format!("--service-account-key-file={}", file("tls.crt")),
        format!("--service-account-signing-key-file={}", file("tls.key")),
        format!("--service-cluster-ip-range={}", options.services),
        "--allow-privileged=true".to_owned(),
        // An agent watches every object that its pods refer to over one connection.
        "--http2-max-streams-per-connection=10000".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    arguments.extend_from_slice(&options.more);
    arguments
}
