//! A service account for each controller, with its role in `manifests/rbac` alone, as on virtual nodes.
//!
//! So these tests also find a request that a role does not grant, with the rare ones: `cli/tests/commands/permissions`
//! compares the roles with a run of the catalogue, which takes few error paths.

use std::collections::BTreeMap;

use claimcheck_apiserver::{Server, kubeconfig};
use claimcheck_controllers::{Accounts, Name};
use claimcheck_deploy::install::{
    DriverSecrets, NAMESPACE,
    accounts::{CACHE, Components, account, account_objects, create_accounts},
};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// The accounts, and the client with the connections that they share, which has no credentials.
pub async fn create(server: &Server, administrator: &Client) -> (Accounts, Client) {
    let names = || Name::ALL.into_iter().chain([Name::Garbage]);
    let components = Components {
        controllers: names().map(|name| name.to_string()).collect(),
        driver_secrets: DriverSecrets::Everywhere,
        ..Components::default()
    };
    create_accounts(administrator, &account_objects(&components)).await.expect("the roles are created");
    let token = |component| server.token_for(NAMESPACE, &account(component)).expect("a token");
    let controllers: BTreeMap<Name, String> = names().map(|name| (name, token(name.as_str()))).collect();
    let accounts = Accounts::new(&token(CACHE), &controllers).expect("tokens");
    let text = kubeconfig::render_anonymous(&server.url(), server.ca_pem());
    let config = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    (accounts, Client::try_from(config.expect("a configuration")).expect("a client"))
}

/// Fails the test if a role lacked a right, at its end; if it has failed already, prints why it may have.
#[expect(clippy::print_stderr, reason = "a second panic would hide the first one")]
pub fn expect_no_denials(server: &Server) {
    let denials: Vec<String> = server.denials().iter().map(ToString::to_string).collect();
    if std::thread::panicking() {
        eprintln!("denied by manifests/rbac: {denials:?}");
    } else {
        assert!(denials.is_empty(), "manifests/rbac lacks rights: {denials:#?}");
    }
}
