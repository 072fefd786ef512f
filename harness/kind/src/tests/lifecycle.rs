//! Clusters from claim to deletion, with and without failures.

use insta::assert_snapshot;

use crate::testing::Fake;
use crate::{
    OwnedCluster, OwnedError, Preflight, PreflightRequest, Standing, TeardownError, down, list, preflight,
    prune,
};

const NAME: &str = "claimcheck-a";

fn needs(reuse: bool) -> PreflightRequest {
    PreflightRequest { name: NAME.to_owned(), reuse }
}

async fn against(fake: &Fake) -> String {
    let Preflight(found) = preflight(&fake.tools(), &fake.store(), &needs(false)).await.unwrap_err();
    fake.plain(&Preflight(found).to_string())
}

#[tokio::test]
async fn preflight_queries_and_changes_nothing() {
    let fake = Fake::new();
    let ready = preflight(&fake.tools(), &fake.store(), &needs(false)).await.unwrap();
    assert_eq!((ready.kind_version.to_string(), ready.engine.name()), ("0.33.0".to_owned(), "docker"));
    assert!(!ready.network_existed && !ready.exists);
    assert!(!fake.path("state").exists());
    assert_snapshot!(fake.calls());
}

#[tokio::test]
async fn preflight_reports_everything_missing() {
    assert_snapshot!(against(&Fake::with(&[])).await);
}

#[tokio::test]
async fn preflight_reports_everything_wrong() {
    let fake = Fake::new();
    fake.rule("kind version", "echo 0.20.0; exit 0");
    fake.put_containers("claimcheck-a-control-plane|claimcheck-a|Up 3 days|\n");
    let rootless = r#"{"CgroupVersion":"1","DockerRootDir":"","SecurityOptions":["name=rootless"]}"#;
    std::fs::write(fake.path("info"), rootless).unwrap();
    assert_snapshot!(against(&fake).await);
}

#[tokio::test]
async fn preflight_reports_an_unresponsive_engine() {
    let fake = Fake::new();
    fake.fails(
        "docker info",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    );
    fake.fails("kind version", "kind: cannot execute binary file: Exec format error");
    assert_snapshot!(against(&fake).await);
}

/// Creates a cluster as a run does, with its record.
async fn create(fake: &Fake) -> OwnedCluster {
    let claim = fake.store().claim(NAME, "docker", false).unwrap();
    let (owned, created) =
        OwnedCluster::create(&fake.kind(), fake.teardown(), claim, &fake.create(NAME)).await;
    created.unwrap();
    owned
}

#[tokio::test]
async fn a_cluster_is_created_and_deleted() {
    let fake = Fake::new();
    let owned = create(&fake).await;
    assert_eq!(fake.containers().lines().count(), 3);
    let known = list(&fake.engine(), &fake.store()).await.unwrap();
    assert_eq!((known.len(), known[0].standing, known[0].nodes.len()), (1, Standing::InUse, 3));
    owned.delete().await.unwrap();
    assert_eq!((fake.containers(), fake.networks()), (String::new(), String::new()));
    assert!(!fake.path("state").join(NAME).exists());
    assert_snapshot!(fake.calls());
}

/// The network is shared: claimcheck's clusters are neither the first nor the last ones to use it.
#[tokio::test]
async fn kind_s_network_stays_where_it_was_there_before_or_is_used() {
    let fake = Fake::new();
    let owned = create(&fake).await;
    let others = "other-control-plane|other|Exited (137) 2 hours ago|\n";
    fake.put_containers(&(fake.containers() + others));
    owned.delete().await.unwrap();
    assert_eq!((fake.containers().as_str(), fake.networks().as_str()), (others, "kind\n"));

    let fake = Fake::new();
    let claim = fake.store().claim(NAME, "docker", true).unwrap();
    let (owned, created) =
        OwnedCluster::create(&fake.kind(), fake.teardown(), claim, &fake.create(NAME)).await;
    created.unwrap();
    owned.delete().await.unwrap();
    assert_eq!((fake.containers().as_str(), fake.networks().as_str()), ("", "kind\n"));
}

/// Ctrl-C, or a time-out: the future of the creation is dropped.
#[tokio::test]
async fn an_interrupted_creation_leaves_nothing() {
    let fake = Fake::new();
    let half = format!("echo '{NAME}-control-plane|{NAME}|Created|ours' >>\"$FAKE/containers\"");
    fake.hangs("kind create", &half);
    let claim = fake.store().claim(NAME, "docker", false).unwrap();
    let (kind, expected) = (fake.kind(), fake.create(NAME));
    tokio::select! {
        _ = OwnedCluster::create(&kind, fake.teardown(), claim, &expected) => panic!("it hangs"),
        _ = fake.hung() => {}
    }
    assert_eq!(fake.containers(), "");
    assert!(!fake.path("state").join(NAME).exists());
    assert_snapshot!(fake.calls());
}

#[tokio::test]
async fn a_failed_creation_is_retained_for_its_logs_and_then_deleted() {
    let fake = Fake::new();
    let half = format!("echo '{NAME}-worker|{NAME}|Up 1 second|ours' >>\"$FAKE/containers\"");
    fake.rule("kind create", &format!("{half}; echo 'ERROR: no' >&2; exit 1"));
    let claim = fake.store().claim(NAME, "docker", false).unwrap();
    let (owned, created) =
        OwnedCluster::create(&fake.kind(), fake.teardown(), claim, &fake.create(NAME)).await;
    assert!(created.unwrap_err().to_string().contains("ERROR: no"));
    assert_eq!(fake.containers().lines().count(), 1);
    drop(owned);
    assert_eq!(fake.containers(), "");
}

#[tokio::test]
async fn a_permanent_cluster_stays_until_it_is_deleted() {
    let fake = Fake::new();
    create(&fake).await.keep().unwrap();
    // Dropped by now, but it still exists.
    assert_eq!(fake.containers().lines().count(), 3);
    assert_eq!(prune(&fake.teardown(), &fake.store(), false).await.unwrap().len(), 0);
    let ready = preflight(&fake.tools(), &fake.store(), &needs(true)).await.unwrap();
    assert!(ready.exists);
    let found = preflight(&fake.tools(), &fake.store(), &needs(false)).await.unwrap_err();
    assert!(found.to_string().contains("use it with --reuse"), "{found}");
    // In use again, and kept again.
    let claim = fake.store().take(NAME, "docker").unwrap();
    let owned = OwnedCluster::adopt(fake.teardown(), claim);
    let taken = down(&fake.teardown(), &fake.store(), NAME).await.unwrap_err();
    assert!(matches!(&taken, TeardownError::Owned(OwnedError::InUse { .. })), "{taken}");
    drop(owned);
    down(&fake.teardown(), &fake.store(), NAME).await.unwrap();
    assert_eq!(fake.containers(), "");
    assert!(list(&fake.engine(), &fake.store()).await.unwrap().is_empty());
}

/// SIGKILL in the middle of `kind create`: a record, perhaps containers, and no process.
#[tokio::test]
async fn prune_deletes_what_killed_runs_have_left_and_nothing_else() {
    let fake = Fake::new();
    let store = fake.store();
    let living = store.claim("claimcheck-living", "docker", true).unwrap();
    drop(store.claim("claimcheck-early", "docker", true).unwrap());
    drop(store.claim("claimcheck-half", "docker", true).unwrap());
    store.claim("claimcheck-kept", "docker", true).unwrap().keep().unwrap();
    drop(store.claim("claimcheck-podman", "podman", true).unwrap());
    let nodes = "claimcheck-living-control-plane|claimcheck-living|Up 1 minute|ours\n\
                 claimcheck-half-control-plane|claimcheck-half|Created|ours\n\
                 claimcheck-half-external-load-balancer|claimcheck-half|Created|\n\
                 claimcheck-kept-control-plane|claimcheck-kept|Up 3 days|ours\n\
                 claimcheck-colleague-control-plane|claimcheck-colleague|Up 2 hours|ours\n\
                 claimcheck-namesake-control-plane|claimcheck-namesake|Up 2 hours|\n";
    fake.put_containers(nodes);
    let known = list(&fake.engine(), &store).await.unwrap();
    let known: Vec<_> =
        known.iter().map(|known| (known.name.as_str(), known.standing, known.nodes.len())).collect();
    assert_eq!(
        known,
        [
            ("claimcheck-living", Standing::InUse, 1),
            ("claimcheck-early", Standing::Abandoned, 0),
            ("claimcheck-half", Standing::Abandoned, 2),
            ("claimcheck-kept", Standing::Kept, 1),
            ("claimcheck-colleague", Standing::Elsewhere, 1),
        ]
    );
    let pruned = |pruned: Vec<(crate::ListedCluster, Result<(), TeardownError>)>| -> Vec<String> {
        let deleted = |(known, result): (crate::ListedCluster, Result<(), TeardownError>)| {
            result.unwrap();
            known.name
        };
        pruned.into_iter().map(deleted).collect()
    };
    let missing = pruned(prune(&fake.teardown(), &store, false).await.unwrap());
    assert_eq!(missing, ["claimcheck-early", "claimcheck-half"]);
    let rest = pruned(prune(&fake.teardown(), &store, true).await.unwrap());
    assert_eq!(rest, ["claimcheck-kept", "claimcheck-colleague"]);
    let left = fake.containers();
    let left: Vec<_> = left.lines().map(|line| line.split('|').next().unwrap()).collect();
    assert_eq!(left, ["claimcheck-living-control-plane", "claimcheck-namesake-control-plane"]);
    drop(living);
}

#[tokio::test]
async fn what_kind_cannot_delete_the_engine_does() {
    let fake = Fake::new();
    let owned = create(&fake).await;
    fake.fails("kind delete", "ERROR: failed to delete cluster: failed to update kubeconfig: file is locked");
    owned.delete().await.unwrap();
    assert_eq!(fake.containers(), "");
    assert!(!fake.path("state").join(NAME).exists());
}

#[tokio::test]
async fn an_undeletable_cluster_stays_recorded() {
    let fake = Fake::new();
    let owned = create(&fake).await;
    fake.fails("kind delete", "ERROR: failed to delete cluster");
    fake.fails("docker rm", "Error response from daemon: container is in a dead state");
    let error = owned.delete().await.unwrap_err().to_string();
    assert!(error.starts_with("cluster claimcheck-a was not deleted, and remains known to"), "{error}");
    let known = list(&fake.engine(), &fake.store()).await.unwrap();
    assert_eq!((known.len(), known[0].standing), (1, Standing::Abandoned));
    fake.no_rule("docker rm");
    let pruned = prune(&fake.teardown(), &fake.store(), false).await.unwrap();
    assert!(pruned.len() == 1 && pruned[0].1.is_ok(), "{pruned:?}");
    assert_eq!(fake.containers(), "");
}
