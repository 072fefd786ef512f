//! Command lines, and errors for failures.

use std::{path::Path, time::Duration};

use insta::assert_snapshot;
use nix::{errno::Errno, sys::signal::kill, unistd::Pid};

use crate::testing::Fake;
use crate::{Container, Engine, Kind, ProgramError};

#[tokio::test]
async fn command_lines_of_kind() {
    let fake = Fake::new();
    let kind = fake.kind();
    assert_eq!(kind.version().await.unwrap().to_string(), "0.33.0");
    let mut create = fake.create("claimcheck-a");
    kind.create(&create).await.unwrap();
    assert_eq!(kind.clusters().await.unwrap(), ["claimcheck-a"]);
    let nodes = kind.nodes("claimcheck-a").await.unwrap();
    assert_eq!(nodes, ["claimcheck-a-control-plane", "claimcheck-a-worker", "claimcheck-a-worker2"]);
    assert_eq!(kind.kubeconfig("claimcheck-a").await.unwrap(), "apiVersion: v1\n");
    kind.load_archive("claimcheck-a", Path::new("/images/our image.tar")).await.unwrap();
    kind.load_image("claimcheck-a", "claimcheck:dev", &fake.path("")).await.unwrap();
    kind.export_logs("claimcheck-a", Path::new("/runs/1/cluster/kind")).await.unwrap();
    kind.delete("claimcheck-a", &fake.path("kubeconfig")).await.unwrap();
    create.image = Some("kindest/node:v1.36.0".to_owned());
    (create.config, create.retain) = (None, false);
    kind.create(&create).await.unwrap();
    assert_snapshot!(fake.calls());
}

#[tokio::test]
async fn command_lines_of_engines() {
    let fake = Fake::with(&["kind", "docker"]);
    let engine = fake.engine();
    engine.info().await.unwrap();
    engine.exec("claimcheck-a-worker", &["systemctl", "stop", "kubelet"]).await.unwrap();
    assert_eq!(engine.containers(Some("claimcheck-a")).await.unwrap(), []);
    engine.containers(None).await.unwrap();
    engine.marked().await.unwrap();
    engine.remove(&[]).await.unwrap();
    engine.remove(&["claimcheck-a-worker".to_owned()]).await.unwrap();
    assert!(!engine.has_network().await.unwrap());
    let args = [("BASE_IMAGE", "debian:trixie-slim")];
    engine.build(Path::new("/src"), Path::new("/src/ci/Dockerfile"), "claimcheck:dev", &args).await.unwrap();
    engine.save(&["claimcheck:dev"], &fake.path("image.tar")).await.unwrap();
    std::fs::write(fake.path("images"), "kindest/node:v1.34.1\nkindest/node:v1.34.9\n").unwrap();
    let images = engine.node_images(&["1.34".parse().unwrap()]).await.unwrap();
    assert_eq!(images[0].1, "kindest/node:v1.34.9");
    assert_eq!(engine.image_id("claimcheck:dev").await.unwrap(), "sha256:0123");
    assert_snapshot!(fake.calls());
}

/// Templates differ between versions of podman, so JSON is requested.
#[tokio::test]
async fn containers_of_podman_are_listed() {
    let fake = Fake::with(&["podman"]);
    let rule = r#"cat <<'JSON'
[{"Names":["claimcheck-a-worker"],"Labels":{"io.x-k8s.kind.cluster":"claimcheck-a","io.x-k8s.kind.role":"worker"},
  "State":"running","Status":"Up 3 hours","Mounts":["/lib/modules","/var","/var/lib/claimcheck"],"Pid":4711},
 {"Names":["other-control-plane"],"Labels":{"io.x-k8s.kind.cluster":"other"},
  "State":"created","Status":"Created","Mounts":["/var"]}]
JSON
exit 0"#;
    fake.rule("podman ps", rule);
    let container = |name: &str, cluster: &str, running| Container {
        name: name.to_owned(),
        cluster: cluster.to_owned(),
        running,
    };
    let own = container("claimcheck-a-worker", "claimcheck-a", true);
    assert_eq!(fake.engine().marked().await.unwrap(), std::slice::from_ref(&own));
    let all = fake.engine().containers(None).await.unwrap();
    assert_eq!(all, [own, container("other-control-plane", "other", false)]);
    let asked = "podman ps -a --filter label=io.x-k8s.kind.cluster --format json\n";
    assert_eq!(fake.calls(), asked.repeat(2));
}

/// `kind load docker-image` supports `docker` only.
#[tokio::test]
async fn images_of_other_engines_go_through_a_file() {
    let fake = Fake::with(&["kind", "podman"]).provider("podman");
    fake.kind().load_image("claimcheck-a", "claimcheck:dev", &fake.path("")).await.unwrap();
    assert_eq!(
        fake.calls(),
        "podman tag claimcheck:dev docker.io/library/claimcheck:dev\n\
         podman save -o [dir]/image.tar docker.io/library/claimcheck:dev\n\
         podman untag claimcheck:dev docker.io/library/claimcheck:dev\n\
         kind load image-archive [dir]/image.tar --name claimcheck-a\n"
    );
    assert!(!fake.path("image.tar").exists());
}

#[test]
fn the_engine_is_kind_s_own_choice_unless_it_is_named() {
    let name = |fake: Fake| Engine::find(&fake.tools()).map(|engine| engine.name().to_owned());
    assert_eq!(name(Fake::with(&["podman", "nerdctl", "docker"])).unwrap(), "docker");
    assert_eq!(name(Fake::with(&["podman", "nerdctl"])).unwrap(), "nerdctl");
    assert_eq!(name(Fake::with(&["podman", "docker"]).provider("podman")).unwrap(), "podman");
    assert_eq!(name(Fake::with(&["finch"]).provider("finch")).unwrap(), "finch");
    let unknown = name(Fake::new().provider("lxc")).unwrap_err().to_string();
    assert_eq!(
        unknown,
        "KIND_EXPERIMENTAL_PROVIDER=\"lxc\" is not supported: use docker, podman, nerdctl or finch"
    );
    let missing = name(Fake::with(&["kind"])).unwrap_err().to_string();
    assert!(missing.starts_with("a container engine is not on the PATH: install Docker"), "{missing}");
    let named = name(Fake::new().provider("podman")).unwrap_err().to_string();
    assert!(named.starts_with("podman is not on the PATH: install it, or set another"), "{named}");
}

/// Real output of kind and docker.
#[tokio::test]
async fn failures_report_command_stderr_and_remedy() {
    let stderr = [
        "ERROR: failed to create cluster: failed to get docker info: command \"docker info --format '{{json .}}'\" \
         failed with error: exit status 1\n\nCommand Output: {}\nCannot connect to the Docker daemon at \
         unix:///var/run/docker.sock. Is the docker daemon running?",
        "ERROR: failed to create cluster: failed to list nodes: permission denied while trying to connect to the \
         Docker daemon socket at unix:///var/run/docker.sock",
        "ERROR: failed to create cluster: node(s) already exist for a cluster with the name \"claimcheck-a\"",
        " ✗ Preparing nodes 📦 📦 📦\nERROR: failed to create cluster: could not find a log line that matches \
         \"Reached target .*Multi-User System.*|detected cgroup v1\"",
        "ERROR: failed to create cluster: failed to pull image \"kindest/node:v9.9.9\": command \"docker pull \
         kindest/node:v9.9.9\" failed with error: exit status 1",
        "ERROR: failed to create cluster: unable to decode config: yaml: unmarshal errors:\n  line 3: field nodez \
         not found in type v1alpha4.Cluster",
        "ERROR: failed to create cluster: failed to init node with kubeadm: command \"docker exec --privileged \
         claimcheck-a-control-plane kubeadm init\" failed with error: exit status 1",
        "an unknown failure",
    ];
    let fake = Fake::new();
    let mut messages = Vec::new();
    for words in stderr {
        fake.fails("kind create", words);
        messages.push(fake.kind().create(&fake.create("claimcheck-a")).await.unwrap_err().to_string());
    }
    assert_snapshot!(fake.plain(&messages.join("\n\n")));
}

#[tokio::test]
async fn only_the_last_lines_are_quoted() {
    let fake = Fake::new();
    fake.rule("kind delete", "for line in $(seq 100); do echo \"line $line\" >&2; echo >&2; done; exit 3\n");
    let error = fake.kind().delete("claimcheck-a", &fake.path("kubeconfig")).await.unwrap_err();
    let ProgramError::Failed { stderr, status, .. } = &error else { panic!("{error}") };
    assert_eq!((stderr.len(), stderr[0].as_str(), status.code()), (12, "line 89", Some(3)));
    assert_eq!(error.gist(), "line 100");
}

#[tokio::test]
async fn missing_programs_and_unexpected_output_are_reported() {
    let fake = Fake::with(&["docker"]);
    let missing = Kind::find(&fake.tools(), &fake.engine()).unwrap_err();
    assert!(
        missing.to_string().starts_with("kind is not on the PATH: install it from https://"),
        "{missing}"
    );
    let fake = Fake::new();
    fake.rule("kind version", "echo kind of; exit 0");
    let strange = fake.kind().version().await.unwrap_err().to_string();
    let expected = "`kind version --quiet` returned \"kind of\": expected a version such as 0.33.0";
    assert_eq!(strange, expected);
    fake.rule("docker info", "echo '<html>'; exit 0");
    let strange = fake.engine().info().await.unwrap_err().to_string();
    assert_eq!(
        strange,
        "`docker info --format '{{json .}}'` returned \"<html>\": expected its state as JSON"
    );
}

/// The paused clock advances to the limit when the runtime is idle.
#[tokio::test(start_paused = true)]
async fn a_program_that_hangs_is_killed() {
    let fake = Fake::new();
    fake.rule("docker info", "echo waiting for the daemon >&2; sleep 1000; exit 0");
    let error = fake.engine().info().await.unwrap_err();
    assert!(
        matches!(&error, ProgramError::TimedOut { limit, .. } if *limit == Duration::from_secs(60)),
        "{error}"
    );
    assert!(error.to_string().contains("did not exit within 60 s, and was killed"), "{error}");
}

/// kind runs child processes: they must not continue after it was killed.
#[tokio::test]
async fn a_dropped_call_kills_its_children() {
    let fake = Fake::new();
    fake.hangs("kind create", "");
    let (kind, create) = (fake.kind(), fake.create("claimcheck-a"));
    let child = tokio::select! {
        created = kind.create(&create) => panic!("it hangs: {created:?}"),
        child = fake.hung() => child,
    };
    // Signalled already; the process that inherited it has to reap it.
    tokio::time::timeout(Duration::from_secs(30), async {
        while alive(child) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

/// Whether a process exists and is not a zombie.
fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH) && !stat.contains(") Z ")
}
