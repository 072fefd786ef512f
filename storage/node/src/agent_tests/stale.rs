//! Stale directories and mounts on a node when an agent starts.

use super::*;

fn write(path: PathBuf, content: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_no_pod_is_removed() {
    let mut cluster = Cluster::start().await;
    cluster.stop_agent().await;
    let kubelet = cluster.root.path().canonicalize().unwrap().join("kubelet");
    let csi = kubelet.join("plugins/kubernetes.io/csi").join(DRIVER);
    let volumes = |pod: &str| kubelet.join("pods").join(pod).join("volumes");
    // A pod's directory with nothing in it, and one with an emptyDir and files of a Secret.
    std::fs::create_dir_all(kubelet.join("pods/bare")).unwrap();
    write(volumes("local").join("kubernetes.io~empty-dir/v/file"), b"data");
    write(volumes("local").join("kubernetes.io~secret/s/..2026.0/key"), b"secret");
    // A mount of a driver, and its record is broken; another without a record.
    for (pod, record) in [("broken", Some("{")), ("missing", None)] {
        let directory = volumes(pod).join("kubernetes.io~csi/pv-gone");
        std::fs::create_dir_all(directory.join("mount")).unwrap();
        cluster.host.mount(directory.join("mount"));
        if let Some(record) = record {
            write(directory.join("vol_data.json"), record.as_bytes());
        }
    }
    // A partially created device directory, and a mounted one without a record.
    std::fs::create_dir_all(csi.join("begun")).unwrap();
    std::fs::create_dir_all(csi.join("unknown/globalmount")).unwrap();
    cluster.host.mount(csi.join("unknown/globalmount"));

    cluster.start_agent();
    cluster.becomes_empty().await;
    assert_eq!(cluster.driver.calls(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_record_of_an_existing_volume_is_replaced() {
    let mut cluster = Cluster::start().await;
    cluster.bound_claim("a").await;
    cluster.attach("a").await;
    let uid = cluster.pod("p", "a", "Always").await;
    cluster.ready("p").await;
    cluster.stop_agent().await;
    let source = cluster.source(&uid);
    std::fs::write(source.with_file_name("vol_data.json"), b"{").unwrap();
    let csi = cluster.root.path().join("kubelet/plugins/kubernetes.io/csi").join(DRIVER);
    let device = std::fs::read_dir(csi).unwrap().next().unwrap().unwrap().path();
    std::fs::write(device.join("vol_data.json"), b"").unwrap();
    let force = DeleteParams::default().grace_period(0);
    cluster.namespaced::<Pod>().delete("p", &force).await.unwrap();

    cluster.start_agent();
    let calls = cluster.driver.wait(4).await;
    assert_eq!(calls[2..], [format!("Unpublish a {uid}"), "Unstage a".into()]);
    cluster.in_use(&[]).await;
    cluster.becomes_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_was_only_started_is_completed_or_undone() {
    for desired in [true, false] {
        let mut cluster = Cluster::start().await;
        cluster.bound_claim("a").await;
        cluster.attach("a").await;
        let uid = cluster.pod("p", "a", "Always").await;
        cluster.ready("p").await;
        cluster.stop_agent().await;
        // As if the agent had been killed between the record and the driver's answer.
        cluster.host.unmount(&cluster.source(&uid).canonicalize().unwrap());
        if !desired {
            let force = DeleteParams::default().grace_period(0);
            cluster.namespaced::<Pod>().delete("p", &force).await.unwrap();
        }
        cluster.start_agent();
        let expected = match desired {
            true => ["Stage a".to_owned(), format!("Publish a {uid}")],
            false => [format!("Unpublish a {uid}"), "Unstage a".to_owned()],
        };
        assert_eq!(cluster.driver.wait(4).await[2..], expected);
    }
}

/// As if the agent had been killed while it applied the group: the mount is there, and a file has not been changed yet.
/// The root is changed last, so that OnRootMismatch does not end the work early.
#[tokio::test(flavor = "multi_thread")]
async fn the_ownership_of_files_is_completed_before_containers_start() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for policy in ["Always", "OnRootMismatch"] {
        let mut cluster = Cluster::start().await;
        let driver = json!({"metadata": {"name": DRIVER}, "spec": {"fsGroupPolicy": "File"}});
        let driver: k8s_openapi::api::storage::v1::CSIDriver = serde_json::from_value(driver).unwrap();
        cluster.all().create(&PostParams::default(), &driver).await.unwrap();
        cluster.bound_claim("a").await;
        cluster.attach("a").await;
        // One's own group needs no privilege.
        let gid = std::fs::metadata(cluster.root.path()).unwrap().gid();
        let context = json!({"fsGroup": gid, "fsGroupChangePolicy": policy});
        let volume = json!({"persistentVolumeClaim": {"claimName": "a"}});
        let uid = cluster.pod_of("p", volume, json!({"securityContext": context})).await;
        cluster.ready("p").await;
        cluster.stop_agent().await;
        let root = cluster.source(&uid);
        write(root.join("file"), b"data");
        set(&root.join("file"), 0o600);
        set(&root, 0o750);
        // The container of a pod that was being started does not run.
        cluster.runtime.end(&format!("{uid}/c/0"), Exit::Code(1));
        cluster.start_agent();
        let restarted = async {
            while cluster.runtime.spec(&format!("{uid}/c/1")).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(LONG, restarted).await.is_ok(), "the container was not restarted");
        assert_eq!((mode(&root.join("file")), mode(&root)), (0o660, 0o2770), "{policy}");
    }
}
