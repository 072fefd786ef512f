//! Rights against what is really asked of an API server: by a run of the whole catalogue on the embedded cluster,
//! with a log that shows each component by its user agent, and by a leader. Those of the components are the roles in
//! `manifests/rbac`, which the API server enforces, and those of a run are what `claimcheck rbac` prints ([`runs`]).
//!
//! A request without a rule fails, and so does a rule without a request, unless the role's annotation names
//! the error path that takes it.

mod requests;
mod roles;
mod runs;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Child, Command},
    sync::LazyLock,
};

use self::requests::{Request, Right};
use self::roles::{Roles, roles, watching};
use claimcheck_apiserver as apiserver;
use claimcheck_controllers::{CACHE_AGENT, Name};
use claimcheck_deploy::install::accounts;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use serde_json::Value;

/// The namespace of the components.
const HOME: &str = claimcheck_model::NAMESPACE;
/// The user agent of node agents.
const NODE_AGENT: &str = "claimcheck-node";

/// What a run of the whole catalogue leaves.
struct Catalogue {
    /// The API server's log.
    requests: String,
    /// The log of the controllers.
    controllers: String,
}

/// A run of everything on the embedded cluster, which takes a while, with frequent resyncs. Other tests check that all
/// cases pass.
static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let run = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .env("CLAIMCHECK_RESYNC", "5s")
        .args(["run", "--out"])
        .arg(&out)
        .output();
    let output = run.expect("the program starts");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    let log = |name: &str| fs::read_to_string(out.join("cluster").join(name)).expect("a log");
    Catalogue { requests: log("api.ndjson"), controllers: log("controllers.log") }
});

/// A process that ends with the test.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates the namespace of the components.
async fn create_namespace(kubeconfig: &Path) {
    let client = claimcheck_component::api_client(Some(kubeconfig)).await.expect("a client");
    let namespace: Namespace =
        serde_json::from_value(serde_json::json!({ "metadata": { "name": HOME } })).expect("a Namespace");
    let created = Api::all(client).create(&PostParams::default(), &namespace).await;
    created.expect("the namespace is created");
}

/// Lets a controller lead, and then another in its place.
fn lead(folder: &Path) -> BTreeSet<Request> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (log, kubeconfig) = (folder.join("leaders.ndjson"), folder.join("kubeconfig"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = apiserver::Config { audit_log: Some(log.clone()), ..apiserver::Config::default() };
    let server = runtime.block_on(apiserver::start(config)).expect("the API server starts");
    server.write_kubeconfig(&kubeconfig).expect("a file");
    runtime.block_on(create_namespace(&kubeconfig));
    let start = |name: &str| {
        let controller = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
            .env("CLAIMCHECK_NO_HISTORY", "1")
            .args(["controller", "protection", "--leader-elect", "--leader-election-namespace", HOME])
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .stderr(fs::File::create(folder.join(name)).expect("a file"))
            .spawn();
        Controller(controller.expect("the program starts"))
    };
    let wait = |what: &str, count: usize, right: &Right| {
        let began = std::time::Instant::now();
        let seen = || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let of = |line: &&str| {
                line.contains("claimcheck-leader-election")
                    && line.contains(&format!("\"verb\":\"{}\"", right.verb))
                    && line.contains(&right.resource)
            };
            text.lines().filter(of).count() >= count
        };
        while !seen() {
            assert!(began.elapsed().as_secs() < 60, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let lease = |verb: &str| Right::new(verb, "coordination.k8s.io", "leases");
    let mut first = start("first.log");
    // It renews its lease after two seconds.
    wait("the first renews", 1, &lease("update"));
    let mut second = start("second.log");
    wait("the second watches", 1, &lease("watch"));
    for controller in [&mut first, &mut second] {
        let pid = nix::unistd::Pid::from_raw(controller.0.id().try_into().expect("a process id"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
        assert!(controller.0.wait().expect("it ends").success());
    }
    requests::read(&fs::read_to_string(&log).expect("the API server's log"))
}

/// Compares what a component may do with what it did.
fn compare(component: &str, roles: &Roles, did: &[&Request], watches: &BTreeSet<Right>) -> Vec<String> {
    let permitted = |request: &Request| roles.permits.iter().any(|permit| permit.covers(request, HOME));
    let missing = did.iter().filter(|request| !permitted(request)).map(|request| {
        format!("{component} may not {}, and did so in {:?}", request.right, request.namespace)
    });
    let all = |right: &&Right| {
        !roles.permits.iter().any(|permit| permit.right == **right && permit.names.is_empty())
    };
    let blind =
        watches.iter().filter(all).map(|right| format!("{component} may not {right}, and reads those"));
    let used: BTreeSet<&Right> = did.iter().map(|request| &request.right).chain(watches).collect();
    let idle = roles.permits.iter().map(|permit| &permit.right);
    let idle = idle.filter(|right| !used.contains(right) && !roles.unseen.contains(right));
    let idle = idle.map(|right| format!("{component} may {right}, and never did"));
    missing.chain(blind).chain(idle).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Compares the roles of these controllers with the requests of a run, and of leaders; returns the other roles, too.
fn controller_roles(
    asked: &BTreeSet<Request>,
    controllers: &[Name],
) -> (Vec<String>, BTreeMap<String, Roles>) {
    // What is declared to be read is what is read.
    let all = |names: &[Name]| -> BTreeSet<Right> {
        names.iter().flat_map(|name| name.reads().iter()).flat_map(|kind| watching(kind.name())).collect()
    };
    let watched: BTreeSet<Right> =
        of(asked, CACHE_AGENT).into_iter().map(|request| request.right.clone()).collect();
    // Lists come through watches; the right to list is for API servers that do not support that.
    let watches: BTreeSet<Right> =
        all(controllers).into_iter().filter(|right| right.verb == "watch").collect();
    assert_eq!(watched, watches);

    let mut faults = Vec::new();
    let mut roles = roles();
    for &name in controllers {
        let roles = roles.remove(name.as_str()).expect("every controller has a role");
        let did = of(asked, &format!("{CACHE_AGENT}-{name}"));
        assert!(!did.is_empty(), "{name} did nothing");
        faults.extend(compare(name.as_str(), &roles, &did, &all(&[name])));
    }
    let cache = roles.remove(accounts::CACHE).expect("a role");
    faults.extend(compare("cache", &cache, &of(asked, CACHE_AGENT), &all(&Name::ALL)));
    let election = roles.remove("leader-election").expect("a role");
    let did = of(asked, "claimcheck-leader-election");
    faults.extend(compare("leader-election", &election, &did, &BTreeSet::new()));
    (faults, roles)
}

/// The requests of a component, by its user agent.
fn of<'a>(asked: &'a BTreeSet<Request>, agent: &str) -> Vec<&'a Request> {
    asked.iter().filter(|request| request.agent == agent).collect()
}

#[test]
fn the_roles_permit_the_requests_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut asked = requests::read(&CATALOGUE.requests);
    asked.extend(lead(folder.path()));
    let (mut faults, mut roles) = controller_roles(&asked, &Name::ALL);
    let nodes = roles.remove("node").expect("a role");
    let listed = |right: &Right| Right::new("list", &right.group, &right.resource);
    let did = of(&asked, NODE_AGENT);
    let watched = did.iter().map(|request| &request.right).filter(|right| right.verb == "watch");
    faults.extend(compare("node", &nodes, &did, &watched.map(listed).collect()));
    // It runs with a stock API server alone.
    roles.remove(Name::Garbage.as_str()).expect("a role");
    assert!(roles.is_empty(), "roles of nobody: {roles:?}");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The same on real nodes, where the service account of all controllers has all of their roles: `ci/kind all` runs the
/// catalogue with kube-apiserver's audit log, and names it in `CLAIMCHECK_AUDIT_LOG`.
#[test]
#[ignore = "ci/kind all runs it, with the audit log of a run"]
fn the_roles_permit_the_requests_of_a_run_on_kind_and_no_more() {
    let log = std::env::var_os("CLAIMCHECK_AUDIT_LOG").expect("CLAIMCHECK_AUDIT_LOG names the audit log");
    let mut asked = requests::read(&fs::read_to_string(log).expect("the audit log"));
    // Those of additional drivers have leases and roles of their own.
    let is_other = |name: &str| name.starts_with("claimcheck-controllers-");
    asked.retain(|request| {
        !(request.right.resource == "leases" && request.name.as_deref().is_some_and(is_other))
    });
    // There is one replica, so that none waits for the lease of another.
    let folder = tempfile::tempdir().expect("a folder");
    asked.extend(lead(folder.path()));
    let virtual_nodes = [Name::NodeLifecycle, Name::Scheduler];
    let controllers: Vec<Name> = Name::ALL.into_iter().filter(|name| !virtual_nodes.contains(name)).collect();
    let (faults, _) = controller_roles(&asked, &controllers);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The embedded API server enforces the roles: with another user the comparison above would be all that limits a component.
#[test]
fn components_send_their_requests_as_themselves_and_none_is_forbidden() {
    let account = |component: &str| {
        format!("system:serviceaccount:{}:{}", claimcheck_model::NAMESPACE, accounts::account(component))
    };
    let mut seen = BTreeSet::new();
    let mut faults = BTreeSet::new();
    for line in CATALOGUE.requests.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let (agent, user) = (text("who"), text("user"));
        // Admission forbids, too: what the cases of the harness try, and events in a namespace that is being deleted.
        if agent.starts_with("claimcheck-") && line["denied"] == true {
            faults.insert(format!("{agent} may not {} {}", text("verb"), text("uri")));
            continue;
        }
        let is_own = match agent.strip_prefix(CACHE_AGENT) {
            // Versions are for everybody.
            _ if user == "system:anonymous" && text("resource") == "/version" => continue,
            Some("") => user == account(accounts::CACHE),
            Some(name) => user == account(name.trim_start_matches('-')),
            None if agent == NODE_AGENT => user.starts_with("system:node:"),
            None => continue,
        };
        seen.insert(agent.clone());
        if !is_own {
            faults.insert(format!("{agent} sends requests as {user:?}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!(seen.len(), Name::ALL.len() + 2, "all controllers, the cache and the nodes: {seen:?}");
}

#[test]
fn every_change_enqueues_what_depends_on_it() {
    let repairs =
        CATALOGUE.controllers.lines().filter(|line| line.contains("the resync found something to do"));
    assert_eq!(repairs.collect::<Vec<_>>(), [""; 0], "only a resync found these");
}

#[test]
fn a_missing_rule_and_an_idle_one_are_found() {
    let request = |verb: &str, namespace: Option<&str>| Request {
        agent: "x".into(),
        right: Right::new(verb, "", "pods"),
        namespace: namespace.map(str::to_owned),
        name: None,
    };
    let permit = |verb: &str, namespaced: bool| roles::Permit {
        right: Right::new(verb, "", "pods"),
        namespaced,
        names: Vec::new(),
    };
    let found = |permits: Vec<roles::Permit>, did: &[Request]| {
        let roles = Roles { permits, unseen: BTreeSet::from([Right::new("get", "", "pods")]) };
        compare("c", &roles, &did.iter().collect::<Vec<_>>(), &BTreeSet::new()).len()
    };
    assert_eq!(found(vec![permit("list", false)], &[request("list", None)]), 0);
    assert_eq!(
        found(vec![permit("list", false), permit("get", false)], &[request("list", None)]),
        0,
        "annotated"
    );
    assert_eq!(found(vec![], &[request("list", None)]), 1);
    assert_eq!(found(vec![permit("list", false), permit("watch", false)], &[request("list", None)]), 1);
    assert_eq!(found(vec![permit("list", true)], &[request("list", Some(HOME))]), 0);
    assert_eq!(found(vec![permit("list", true)], &[request("list", Some("other"))]), 1);
    let names: BTreeMap<_, _> = roles();
    assert!(names.contains_key("binder") && names.contains_key("leader-election"));
}
