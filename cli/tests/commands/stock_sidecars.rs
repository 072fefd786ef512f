//! `--sidecar`: programs that run in place of built-in sidecars, or next to them, on an embedded cluster. Upstream's own
//! programs are tried in `host`; here a shell script and the built-in provisioner stand for them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_claimcheck");

fn claimcheck(args: &[&str]) -> Output {
    Command::new(PROGRAM).env("CLAIMCHECK_NO_HISTORY", "1").args(args).output().expect("the binary runs")
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The log of a component in a run folder.
fn log(run: &Path, component: &str) -> String {
    let path = run.join("cluster").join(format!("{component}.log"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn events(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("events.ndjson")).expect("events");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn mistakes_are_usage_errors() {
    let table: &[(&[&str], &str)] = &[
        (&["run", "--sidecar", "provisioner"], "write NAME=exec:COMMAND"),
        (&["load", "--sidecar", "provisoner=exec:p {socket}"], "did you mean provisioner?"),
        (&["run", "--sidecar", "csi-attacher=exec:a"], "did you mean attacher?"),
        (&["run", "--sidecar", "binder=exec:b"], "the built-in controller binder cannot be replaced"),
        (&["run", "--sidecar", "attacher=exec:a {nodeid}"], "{nodeid} is not a placeholder"),
        (&["run", "--sidecar", "x=exec:a", "--sidecar", "x=exec:b"], "--sidecar x is given twice"),
        (&["run", "--sidecar-account", "x=n/a"], "there is no --sidecar x"),
        (
            &["run", "--sidecar", "x=exec:a", "--sidecar-account", "x=a"],
            "write NAME=NAMESPACE/SERVICEACCOUNT",
        ),
        (&["run", "--sidecar", "x=exec:a", "--sidecar-rbac", "/no/such.yaml"], "/no/such.yaml"),
        (
            &["run", "--cluster", "kind", "--sidecar", "attacher=exec:a"],
            "--sidecar is for --cluster embedded or envtest, not kind",
        ),
        (
            &["run", "--cluster", "existing", "--sidecar-rbac", "f"],
            "--sidecar-rbac is for --cluster embedded or envtest, not existing",
        ),
    ];
    for (args, remedy) in table {
        let output = claimcheck(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", error_of(&output));
        assert!(error_of(&output).contains(remedy), "{args:?} said {}", error_of(&output));
    }
}

/// Prints what it is given, once a socket of its own exists, and runs until it is stopped.
const SCRIPT: &str = r#"exec:sh -c 'test -S {socket} && echo socket; echo "$POD_NAME $NAMESPACE $NODE_NAME $CSI_ADDRESS";
test -r {kubeconfig} && stat -c "%a %n" {kubeconfig}; cmp -s {kubeconfig} /cc/kubeconfig || echo another;
cd /var/run/secrets/kubernetes.io/serviceaccount && test -s ca.crt && stat -c "%a %n" token;
echo "$KUBERNETES_SERVICE_HOST $(cat namespace)"; test -e /run/lock && echo "with the host";
exec sleep 600' sh --password hunter2"#;

/// What the script prints about its credentials, in this namespace.
fn credentials(namespace: &str) -> Vec<String> {
    let of_pod = format!("127.0.0.1 {namespace}");
    let lines = ["600 /cc/kubeconfig-sidecar-prober", "another", "600 token", of_pod.as_str()];
    let with_host = Path::new("/run/lock").exists().then_some("with the host");
    lines.into_iter().chain(with_host).map(str::to_owned).collect()
}

#[test]
fn an_additional_program_runs_on_the_first_node_with_the_usual_variables() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run");
    let sidecar = format!("prober={SCRIPT}");
    let folder = run.display().to_string();
    let output = claimcheck(&["run", "volume_io::a file", "--sidecar", &sidecar, "--out", &folder]);
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let log = log(&run, "sidecar-prober");
    let address = "/var/lib/kubelet/plugins/driver/sidecar-prober.sock";
    let mut expected = vec!["socket".to_owned(), format!("prober-0 kube-system node-1 {address}")];
    expected.extend(credentials("kube-system"));
    assert_eq!(log.lines().collect::<Vec<_>>(), expected);
    // The built-in sidecars still run, so their behaviour is expected.
    let started = &events(&run)[0];
    assert_eq!(started["environment"]["sidecars"], "prober: sh", "{started}");
}

#[test]
fn a_program_has_the_token_of_its_service_account() {
    let out = tempfile::tempdir().expect("a folder");
    let (run, roles) = (out.path().join("run"), out.path().join("roles.yaml"));
    fs::write(
        &roles,
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: prober, namespace: vendor}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: prober}\n\
         rules: [{apiGroups: [''], resources: [nodes], verbs: [get]}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: prober}\n\
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prober}\n\
         subjects: [{kind: ServiceAccount, name: prober, namespace: vendor}]\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: prober}\n",
    )
    .expect("a file");
    let (sidecar, folder) = (format!("prober={SCRIPT}"), run.display().to_string());
    let roles = roles.display().to_string();
    let args =
        ["run", "volume_io::a file", "--sidecar", &sidecar, "--sidecar-rbac", &roles, "--out", &folder];
    let output = claimcheck(&args);
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let log = log(&run, "sidecar-prober");
    let address = "/var/lib/kubelet/plugins/driver/sidecar-prober.sock";
    let mut expected = vec!["socket".to_owned(), format!("prober-0 vendor node-1 {address}")];
    expected.extend(credentials("vendor"));
    assert_eq!(log.lines().collect::<Vec<_>>(), expected);
}

/// Without a kubeconfig it finds the service account that a pod would have.
#[test]
fn a_provisioner_in_place_of_the_built_in_one_is_recorded_by_the_tap_once() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run");
    let roles = out.path().join("roles.yaml");
    let role = include_str!("../../../manifests/rbac/sidecars/provisioner.yaml");
    let account = "apiVersion: v1\nkind: ServiceAccount\n\
         metadata: {name: claimcheck-controllers, namespace: claimcheck-system}\n---\n";
    fs::write(&roles, format!("{account}{role}")).expect("a file");
    let sidecar = format!(
        "provisioner=exec:env -u KUBECONFIG HOME=/no/such {PROGRAM} controller provisioner --csi-address {{socket}}"
    );
    let roles = roles.display().to_string();
    let folder = run.display().to_string();
    let args =
        ["run", "volume_io::a file", "--sidecar", &sidecar, "--sidecar-rbac", &roles, "--out", &folder];
    let output = claimcheck(&args);
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let mut created: BTreeMap<String, u32> = BTreeMap::new();
    for event in events(&run).iter().filter(|event| event["event"] == "rpc" && event["code"] == "OK") {
        if event["method"] == "CreateVolume" {
            *created.entry(event["volume"].as_str().expect("a name").to_owned()).or_default() += 1;
        }
    }
    assert!(!created.is_empty() && created.values().all(|times| *times == 1), "{created:?}");
    assert!(!events(&run).iter().any(|event| event["event"] == "component_exited"), "a program has exited");
}

/// The roles of a vendor may lack a rule.
#[test]
fn missing_rights_are_reported_with_their_remedy() {
    let out = tempfile::tempdir().expect("a folder");
    let (run, roles) = (out.path().join("run"), out.path().join("roles.yaml"));
    let role = include_str!("../../../manifests/rbac/sidecars/provisioner.yaml")
        .replace("claimcheck-system", "vendor")
        .replace("resources: [events]", "resources: [configmaps]");
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: claimcheck-controllers, namespace: vendor}\n---\n";
    fs::write(&roles, format!("{account}{role}")).expect("a file");
    let sidecar = format!(
        "provisioner=exec:{PROGRAM} controller provisioner --csi-address {{socket}} --kubeconfig {{kubeconfig}}"
    );
    let (roles, folder) = (roles.display().to_string(), run.display().to_string());
    let args =
        ["run", "volume_io::a file", "--sidecar", &sidecar, "--sidecar-rbac", &roles, "--out", &folder];
    let output = claimcheck(&args);
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let text = fs::read_to_string(run.join("summary.json")).expect("a summary");
    let mut summary: Value = serde_json::from_str(&text).expect("JSON");
    // That of the case.
    let namespace = summary["denials"][0]["namespace"].take();
    assert!(namespace.as_str().is_some_and(|name| !name.is_empty()), "{text}");
    let denial = json!({
        "user": "system:serviceaccount:vendor:claimcheck-controllers",
        "resource": "events",
        "verb": "create",
        "namespace": null,
        "roles": ["ClusterRole claimcheck-provisioner"],
    });
    assert_eq!(summary["denials"], json!([denial]));
    let printed = String::from_utf8_lossy(&output.stdout);
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "ServiceAccount vendor/claimcheck-controllers may not create events in namespace",
        "add the rule {apiGroups: [\"\"], resources: [events], verbs: [create]} to ClusterRole claimcheck-provisioner",
        "1 missing rights",
    ] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
}

/// As csi-provisioner before v3.2 does with `--enable-capacity`, of which the pods of the run would only show that no node
/// has enough capacity.
#[test]
fn versions_of_apis_that_kubernetes_has_removed_are_reported_with_those_that_are_served() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run");
    let path = "/apis/storage.k8s.io/v1beta1/namespaces/default/csistoragecapacities";
    let sidecar =
        format!("old=exec:sh -c 'kubectl --kubeconfig {{kubeconfig}} get --raw {path}; exec sleep 600'");
    let folder = run.display().to_string();
    let output = claimcheck(&["run", "volume_io::a file", "--sidecar", &sidecar, "--out", &folder]);
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let text = fs::read_to_string(run.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    let request = json!({
        "user": "system:serviceaccount:kube-system:claimcheck-sidecar-old",
        "version": "storage.k8s.io/v1beta1",
        "resource": "csistoragecapacities",
        "served": ["storage.k8s.io/v1"],
    });
    assert_eq!(summary["unserved"], json!([request]));
    let printed = String::from_utf8_lossy(&output.stdout);
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "requested csistoragecapacities of storage.k8s.io/v1beta1, which the API server does not serve",
        "use a version of the program that requests storage.k8s.io/v1",
        "1 unserved APIs",
    ] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
}

/// Nothing removes secrets from its log afterwards.
#[test]
fn a_killed_run_leaves_no_token_in_the_log_of_a_program() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run");
    let sidecar = "prober=exec:sh -c 'cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo; echo $2; \
                   exec sleep 600' sh --password hunter2";
    let mut started = Command::new(PROGRAM)
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["run", "volume_io::", "--sidecar", sidecar, "--out"])
        .arg(&run)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let path = run.join("cluster/sidecar-prober.log");
    let began = Instant::now();
    let log = || fs::read_to_string(&path).unwrap_or_default();
    while log().lines().count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(120), "the program has logged nothing: {:?}", log());
        thread::sleep(Duration::from_millis(20));
    }
    started.kill().expect("it runs");
    started.wait().expect("it was started here");
    assert_eq!(log(), "[hidden by claimcheck]\n[hidden by claimcheck]\n");
}

#[test]
fn a_program_that_exits_at_once_fails_the_start_with_its_log() {
    let out = tempfile::tempdir().expect("a folder");
    let flag = "flag provided but not defined: -feature-gates";
    let script = format!("echo {flag} >&2; printf \"Usage of csi-snapshotter:\\n  -v value\\n\" >&2; exit 2");
    let table = [
        // Without a registrar the driver is not registered, so the start waits for the program.
        (
            "registrar=exec:sh -c 'echo no licence, $2 >&2; exit 1'".to_owned(),
            "no licence, [hidden by claimcheck]",
        ),
        // Without this one it is registered.
        (format!("snapshotter=exec:sh -c '{script}'"), flag),
    ];
    for (at, (sidecar, expected)) in table.into_iter().enumerate() {
        let run = out.path().join(at.to_string()).display().to_string();
        let sidecar = format!("{sidecar} sh --password hunter2");
        let output = claimcheck(&["run", "volume_io::a file", "--sidecar", &sidecar, "--out", &run]);
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(3), "{error}");
        let words = ["exits immediately after it is started", &format!(".log:\n{expected}")];
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn the_built_in_registrar_registers_the_driver_as_a_program_on_every_node() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run");
    let sidecar = format!(
        "registrar=exec:{PROGRAM} registrar --csi-address {{socket}} --kubelet-registration-path {{socket}} \
         --plugin-registration-path {{registration_dir}}"
    );
    let folder = run.display().to_string();
    let output = claimcheck(&["run", "volume_io::a file", "--sidecar", &sidecar, "--out", &folder]);
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    for node in ["node-1", "node-2"] {
        assert!(run.join(format!("cluster/sidecar-registrar-{node}.log")).exists(), "none on {node}");
    }
}
