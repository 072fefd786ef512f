//! The rights that `claimcheck rbac` prints are those that a run needs: held against what the harness and all
//! cases really ask of the API server of an embedded cluster.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use claimcheck_apiserver as apiserver;
use claimcheck_deploy::install::{self, InstallError, Options, Sidecars, Variant};
use claimcheck_deploy::rbac::{Need, RULES, Rule, Scope};
use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

use super::CATALOGUE;

/// A resource with its group, as the API server's log has it, and a verb.
type Right = (String, String);

#[test]
fn a_run_requests_exactly_the_rights_of_the_table() {
    let asked: BTreeSet<Right> = CATALOGUE.requests.lines().filter_map(asked).collect();

    let allowed: BTreeSet<Right> = RULES
        .iter()
        .filter(|rule| rule.scope == Scope::Cluster && rule.need != Need::Scenarios)
        .flat_map(rights)
        .collect();
    let missing: Vec<_> = asked.difference(&allowed).collect();
    assert!(missing.is_empty(), "not in harness/deploy/src/rbac.rs: {missing:?}");

    // An ordinary user cannot run all cases here.
    if nix::unistd::geteuid().is_root() {
        let expected = RULES.iter().filter(|rule| match rule.need {
            Need::Run | Need::Disrupt | Need::OurCluster => true,
            // Only real nodes have what these are for.
            Need::Observers | Need::StockMetrics | Need::Scenarios => false,
            // The next test.
            Need::Install => false,
        });
        let mut expected: BTreeSet<Right> = expected.flat_map(rights).collect();
        // Only asked for when a snapshot went before the case began to wait for that, so not in every run.
        expected.remove(&("volumesnapshots.snapshot.storage.k8s.io".to_owned(), "get".to_owned()));
        expected.remove(&("volumegroupsnapshots.groupsnapshot.storage.k8s.io".to_owned(), "get".to_owned()));
        // The harness' cache lists through watches; the right to list is for API servers that do not support that.
        let watched = |resource: &String| expected.contains(&(resource.clone(), "watch".to_owned()));
        let unused: Vec<_> = expected.difference(&asked).collect();
        let unused: Vec<_> =
            unused.into_iter().filter(|(resource, verb)| verb != "list" || !watched(resource)).collect();
        assert!(unused.is_empty(), "in harness/deploy/src/rbac.rs, and nobody asks for it: {unused:?}");
    }
}

#[tokio::test]
async fn an_installation_requests_exactly_the_rights_of_the_table() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("api.ndjson");
    let config = apiserver::Config { audit_log: Some(log.clone()), ..apiserver::Config::default() };
    let server = apiserver::start(config).await.expect("the API server starts");
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a configuration");
    config.headers.push((USER_AGENT, HeaderValue::from_static("claimcheck-harness")));
    let client = Client::try_from(config).expect("a client");
    let allowed: BTreeSet<Right> =
        RULES.iter().filter(|rule| rule.need != Need::OurCluster).flat_map(rights).collect();
    // The API server asks for these itself, when an object is applied. The others are extensions' kinds, and what
    // disruptive cases do to the controllers.
    let unseen = |(resource, verb): &Right| {
        ["create", "bind", "escalate"].contains(&&**verb)
            || resource == "deployments.apps/scale"
            // No quotas here.
            || resource == "resourcequotas"
            // The kinds of snapshots exist here, and stay as they are.
            || (*resource == "customresourcedefinitions.apiextensions.k8s.io" && *verb != "get")
            || resource.ends_with(".snapshot.storage.k8s.io")
            || resource.ends_with(".groupsnapshot.storage.k8s.io")
            || resource.ends_with(".monitoring.coreos.com")
    };
    let mut timeout = Duration::from_millis(200);
    loop {
        for sidecars in Sidecars::ALL {
            let options = Options { sidecars, timeout, ..Options::new(Variant::Kind) };
            // Nobody runs pods here.
            let error = install::install(&client, &options).await.expect_err("there are no nodes");
            assert!(matches!(error, InstallError::NotReady { .. }), "{error}");
            let timeout = Duration::from_secs(60);
            install::uninstall(&client, &Options { timeout, ..options }).await.expect("it goes");
        }
        let log = fs::read_to_string(&log).expect("the API server's log");
        let asked: BTreeSet<Right> = log.lines().filter_map(asked).collect();
        let missing: Vec<_> = asked.difference(&allowed).collect();
        assert!(missing.is_empty(), "not in harness/deploy/src/rbac.rs: {missing:?}");
        let install = RULES.iter().filter(|rule| rule.need == Need::Install).flat_map(rights);
        let unused: Vec<_> = install.filter(|right| !asked.contains(right) && !unseen(right)).collect();
        if unused.is_empty() {
            break;
        }
        // A busy machine may need longer to look at the workloads even once.
        assert!(
            timeout < Duration::from_secs(10),
            "in harness/deploy/src/rbac.rs, and nobody asks for it: {unused:?}"
        );
        timeout *= 4;
    }
}

/// What a line of the log says that the harness or a case asked for.
fn asked(line: &str) -> Option<Right> {
    let line: Value = serde_json::from_str(line).expect("JSON");
    let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let (who, resource) = (text("who"), text("resource"));
    // What is no resource, as /version, is everybody's.
    (who == "claimcheck-harness" && !resource.starts_with('/')).then(|| (resource, text("verb")))
}

fn rights(rule: &Rule) -> impl Iterator<Item = Right> + use<> {
    let (resource, subresource) = rule.resource.split_once('/').unwrap_or((rule.resource, ""));
    let group = if rule.group.is_empty() { String::new() } else { format!(".{}", rule.group) };
    let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    let name = format!("{resource}{group}{subresource}");
    rule.verbs.iter().map(move |verb| (name.clone(), (*verb).to_owned()))
}

#[test]
fn the_roles_are_printed() {
    let printed = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
            .env("CLAIMCHECK_NO_HISTORY", "1")
            .arg("rbac")
            .args(args)
            .output();
        String::from_utf8(output.expect("the binary runs").stdout).expect("text")
    };
    assert!(printed(&[]).contains("kind: ClusterRole"));
    assert!(printed(&["--allow-disruptive"]).contains("nodes/status"));
    assert!(printed(&["--install"]).contains("daemonsets"));
}
