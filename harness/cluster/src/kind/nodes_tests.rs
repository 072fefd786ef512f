//! The lifecycle of a kind cluster, with fake `kind` and `docker`.

use std::{fs, os::unix::fs::PermissionsExt};

use insta::assert_snapshot;

use super::{
    image::Image,
    nodes::{Collected, KindCluster, KindEnvironment, KindError},
};
use claimcheck_kind::{KindOptions, Standing, testing::Fake};

const NAME: &str = "claimcheck-a";

pub(super) fn options() -> KindOptions {
    KindOptions {
        name: Some("a".to_owned()),
        node_image: Some("kindest/node:v1.36.0".to_owned()),
        kubelet_args: vec![("v".to_owned(), "4".to_owned())],
        ..KindOptions::default()
    }
}

pub(super) fn environment(fake: &Fake) -> KindEnvironment {
    let logs = fake.path("logs");
    fs::create_dir_all(&logs).unwrap();
    fs::write(fake.path("image.tar"), "").unwrap();
    KindEnvironment {
        tools: fake.tools(),
        store: fake.store(),
        images: vec![Image::Archive(fake.path("image.tar")), Image::Named("vendor/driver:v1".to_owned())],
        logs,
        kubeconfig: fake.path("run-kubeconfig"),
    }
}

/// Leftovers of clusters: containers and records.
fn left(fake: &Fake) -> (String, Vec<Standing>) {
    let standings = fake.store().records().into_iter().map(|(_, standing)| standing).collect();
    (fake.containers(), standings)
}

const NOTHING: (String, Vec<Standing>) = (String::new(), Vec::new());

#[tokio::test]
async fn up_and_down() {
    let fake = Fake::new();
    let cluster = KindCluster::up(&options(), &environment(&fake)).await.unwrap();
    assert_eq!(cluster.name(), NAME);
    let kubeconfig = fake.path("run-kubeconfig");
    assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), "apiVersion: v1\n");
    assert_eq!(kubeconfig.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let config = fs::read_to_string(fake.path("logs/kind.yaml")).unwrap();
    assert!(config.contains("image: kindest/node:v1.36.0"), "{config}");
    cluster.collect().await.unwrap();
    cluster.down().await.unwrap();
    assert_eq!(left(&fake), NOTHING);
    assert_snapshot!(fake.calls());
}

#[tokio::test]
async fn a_cluster_that_is_not_created_leaves_its_logs_and_nothing_else() {
    let fake = Fake::new();
    let half = format!("echo '{NAME}-worker|{NAME}|Up 1 second|ours' >>\"$FAKE/containers\"");
    let stderr = "ERROR: failed to create cluster: failed to join node with kubeadm";
    fake.rule("kind create", &format!("{half}; echo '{stderr}' >&2; exit 1"));
    let error = KindCluster::up(&options(), &environment(&fake)).await.unwrap_err();
    let KindError::Create { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().contains("see the nodes' logs"), "{source}");
    let message = fake.plain(&error.to_string());
    assert_eq!(message, "cluster claimcheck-a was not created; its nodes' logs are in [dir]/logs/kind");
    assert_eq!(left(&fake), NOTHING);
    let calls = fake.calls();
    let exported =
        calls.find("kind export logs [dir]/logs/kind --name claimcheck-a").expect("logs are exported");
    assert!(exported < calls.find("kind delete").expect("it is deleted"), "{calls}");
}

/// kind continues if a log, such as the journal, cannot be read, and fails at the end.
#[tokio::test]
async fn collected_logs_remain_if_others_cannot_be_collected() {
    let fake = Fake::new();
    let cluster = KindCluster::up(&options(), &environment(&fake)).await.unwrap();
    let words = "ERROR: command \"journalctl -u kubelet.service\" failed with error: exit status 1";
    let some = "mkdir -p \"$3/a-worker\"; : >\"$3/a-worker/empty.log\"; [ -z \"$SOME\" ] || echo a >\"$3/a-worker/pods.log\"";
    fake.rule("kind export", &format!("{some}; echo '{words}' >&2; exit 1"));
    let error = cluster.collect().await.unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
    fake.rule("kind export", &format!("SOME=1; {some}; echo '{words}' >&2; exit 1"));
    let Collected { folder, missing } = cluster.collect().await.unwrap();
    assert_eq!(fs::read_to_string(folder.join("a-worker/pods.log")).unwrap(), "a\n");
    assert!(missing.unwrap().to_string().contains(words));
    fake.no_rule("kind export");
    assert!(cluster.collect().await.unwrap().missing.is_none());
    cluster.down().await.unwrap();
}

#[tokio::test]
async fn a_failed_cluster_stays_with_keep() {
    let fake = Fake::new();
    let half = format!("echo '{NAME}-worker|{NAME}|Up 1 second|ours' >>\"$FAKE/containers\"");
    fake.rule("kind create", &format!("{half}; exit 1"));
    let kept = KindOptions { keep: true, ..options() };
    KindCluster::up(&kept, &environment(&fake)).await.unwrap_err();
    assert_eq!(left(&fake), (format!("{NAME}-worker|{NAME}|Up 1 second|ours\n"), vec![Standing::Kept]));
}

#[tokio::test]
async fn an_image_that_does_not_come_ends_it() {
    let fake = Fake::new();
    fake.fails("kind load", "ERROR: image: \"vendor/driver:v1\" not present locally");
    let error = KindCluster::up(&options(), &environment(&fake)).await.unwrap_err();
    let KindError::Load { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.remedy(), Some("build or pull the image first"));
    assert_eq!(left(&fake), NOTHING);
}

/// The kubelet's `losetup` finds no device otherwise, also in restarted nodes.
#[tokio::test]
async fn nodes_have_loop_devices_whether_they_are_new_or_used_again() {
    let fake = Fake::new();
    let scripts = || fake.calls().matches("sh -euc parts=").count();
    let environment = environment(&fake);
    let kept = KindOptions { keep: true, ..options() };
    KindCluster::up(&kept, &environment).await.unwrap().down().await.unwrap();
    assert_eq!(scripts(), 3, "{}", fake.calls());
    for node in ["control-plane", "worker", "worker2"] {
        assert!(fake.calls().contains(&format!("docker exec --privileged {NAME}-{node} sh -euc parts=")));
    }
    let again = KindOptions { reuse: true, ..options() };
    KindCluster::up(&again, &environment).await.unwrap().down().await.unwrap();
    assert_eq!(scripts(), 6, "{}", fake.calls());
    // A rootless engine cannot create them.
    fake.fails("docker exec", "mknod: /dev/loop0: Operation not permitted");
    KindCluster::up(&again, &environment).await.unwrap().down().await.unwrap();
}

/// Otherwise it would be missed only minutes later.
#[tokio::test]
async fn a_missing_image_is_reported_before_the_cluster_is_created() {
    let fake = Fake::new();
    fake.fails("docker image", "Error response from daemon: No such image: vendor/driver:v1");
    let environment = environment(&fake);
    let missing = KindCluster::up(&options(), &environment).await.unwrap_err().to_string();
    assert!(missing.starts_with("docker has no image vendor/driver:v1: build or pull it"), "{missing}");
    fs::remove_file(fake.path("image.tar")).unwrap();
    let missing = fake.plain(&KindCluster::up(&options(), &environment).await.unwrap_err().to_string());
    assert_eq!(missing, "image archive [dir]/image.tar does not exist: `docker save` writes one");
    assert!(!fake.calls().contains("kind create"), "{}", fake.calls());
}

#[tokio::test]
async fn the_builtin_image_is_built_from_this_program_or_used_as_given() {
    let fake = Fake::new();
    let built = || Image::Built { name: "claimcheck:dev".to_owned(), base: Some("debian:mine".to_owned()) };
    let environment = KindEnvironment { images: vec![built()], ..environment(&fake) };
    // The engine's input can be inspected only during the build.
    let look = "folder=; for word; do folder=$word; done\n\
                cmp -s \"$folder/target/release/claimcheck\" /proc/$PPID/exe && grep -q '^FROM' \"$folder/Dockerfile\"";
    fake.rule("docker build", look);
    // So that no existing image is used.
    fake.fails("docker image", "Error response from daemon: No such image: claimcheck:dev");
    KindCluster::up(&options(), &environment).await.unwrap().down().await.unwrap();
    let calls = fake.calls();
    let build = calls.lines().find(|line| line.starts_with("docker build")).expect("it is built");
    assert!(
        build.contains("--tag claimcheck:dev") && build.contains("--build-arg BASE_IMAGE=debian:mine"),
        "{build}"
    );
    assert!(calls.find("docker build") < calls.find("kind create"), "{calls}");

    fake.fails("docker build", "ERROR: failed to resolve source metadata for docker.io/library/debian");
    let error = KindCluster::up(&options(), &environment).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot build image claimcheck:dev: set another base"), "{error}");
    fake.rule("docker image", "echo sha256:0");
    KindCluster::up(&options(), &environment).await.unwrap().down().await.unwrap();
    assert_eq!(left(&fake), NOTHING);
}

/// Ctrl-C between any two steps is a dropped future, too.
#[tokio::test]
async fn an_interrupt_after_the_creation_leaves_nothing() {
    let fake = Fake::new();
    fake.hangs("kind load", "");
    let (options, environment) = (options(), environment(&fake));
    tokio::select! {
        _ = KindCluster::up(&options, &environment) => panic!("it hangs"),
        _ = fake.hung() => {}
    }
    assert_eq!(left(&fake), NOTHING);
}

#[tokio::test]
async fn a_refused_config_creates_nothing() {
    let fake = Fake::new();
    let file = fake.path("kind.yaml");
    fs::write(&file, "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nname: mine\n").unwrap();
    let expected = KindOptions { kind_config: Some(file), ..options() };
    let error = KindCluster::up(&expected, &environment(&fake)).await.unwrap_err();
    assert_eq!(error.to_string(), "--kind-config: name cannot be set: use --name");
    assert_eq!(left(&fake), NOTHING);
    assert!(!fake.calls().contains("kind create"), "{}", fake.calls());
}

#[tokio::test]
async fn a_cluster_with_keep_is_reused_and_stays() {
    let fake = Fake::new();
    let environment = environment(&fake);
    let kept = KindOptions { keep: true, ..options() };
    let first = KindCluster::up(&kept, &environment).await.unwrap();
    assert!(first.outlives_run());
    first.down().await.unwrap();
    assert_eq!(left(&fake).1, [Standing::Kept]);
    let again = KindOptions { reuse: true, ..options() };
    let second = KindCluster::up(&again, &environment).await.unwrap();
    assert_eq!(left(&fake).1, [Standing::InUse]);
    second.down().await.unwrap();
    assert_eq!((left(&fake).0.lines().count(), left(&fake).1), (3, vec![Standing::Kept]));
    assert_eq!(fake.calls().matches("kind create").count(), 1);
    // An interrupt does not delete a cluster that an earlier run kept either.
    drop(KindCluster::up(&again, &environment).await.unwrap());
    assert_eq!((left(&fake).0.lines().count(), left(&fake).1), (3, vec![Standing::Kept]));
}
