//! The stock programs and their arguments.

use std::path::Path;

use claimcheck_stock::{PrepareError, Programs as Processes};

use crate::{
    objects::LOCAL_NODE,
    programs::Programs,
    side::{BACKOFF, CAPACITY_NAMESPACE, CAPACITY_POLL, OWNING, RECONCILE, Sockets, TIMEOUT},
};

/// The controllers of kube-controller-manager that take part; sidecars are separate.
const CONTROLLERS: [&str; 7] = [
    "persistentvolume-binder-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "ephemeral-volume-controller",
    "volumeattributesclass-protection-controller",
];
/// Required up to external-snapshotter 8.6; later versions have it by default.
const GROUPS: &str = "--feature-gates=CSIVolumeGroupSnapshot=true";
/// The programs of scenarios about the condition `Unused`, by their logs.
const REQUIRED: [&str; 2] = ["csi-provisioner", "csi-attacher"];
/// Of a resizer: expansion as before the gate, which manifests of vendors still set.
const NO_RECOVERY: &str = "--feature-gates=RecoverVolumeExpansionFailure=false";
const METADATA: &str = "--extra-create-metadata";
/// Of provisioner and API server: claims may have a data source in another namespace.
pub const CROSS_NAMESPACE: &str = "--feature-gates=CrossNamespaceVolumeDataSource=true";
/// The feature gate of kube-controller-manager and API server for the condition `Unused` of claims.
pub const UNUSED: &str = "PersistentVolumeClaimUnusedSinceTime=true";

/// Starts kube-controller-manager and the sidecars; for the condition `Unused` only those that it requires.
pub fn start(
    processes: &mut Processes,
    programs: &Programs,
    kubeconfig: &Path,
    sockets: &Sockets,
    unused: bool,
) -> Result<(), PrepareError> {
    // The namespace in which the provisioner publishes capacities.
    let env = [("NAMESPACE", CAPACITY_NAMESPACE), ("NODE_NAME", LOCAL_NODE)];
    let mut spawn =
        |program: &Path, name: &str, arguments: &[String]| processes.spawn(program, name, arguments, &env);
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let rate = ["--kube-api-qps=1000".to_owned(), "--kube-api-burst=2000".to_owned()];
    let manager = [
        kubeconfig.clone(),
        format!("--controllers={}", CONTROLLERS.join(",")),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "-v=2".to_owned(),
    ];
    let gate = unused.then(|| format!("--feature-gates={UNUSED}"));
    let manager: Vec<String> = manager.into_iter().chain(gate).chain(rate.clone()).collect();
    let program = programs.assets.join("kube-controller-manager");
    spawn(&program, "kube-controller-manager", &manager)?;
    let common: Vec<String> = [
        kubeconfig,
        "-v=4".to_owned(),
        format!("--retry-interval-start={}ms", BACKOFF.base.as_millis()),
        format!("--retry-interval-max={}ms", BACKOFF.max.as_millis()),
    ]
    .into_iter()
    .chain(rate)
    .collect();
    let metadata = || vec![METADATA.to_owned()];
    let provisioner = || vec![METADATA.to_owned(), CROSS_NAMESPACE.to_owned()];
    let groups = || vec![GROUPS.to_owned()];
    let capacity = vec![
        METADATA.to_owned(),
        CROSS_NAMESPACE.to_owned(),
        "--enable-capacity".to_owned(),
        "--capacity-ownerref-level=-1".to_owned(),
        format!("--capacity-poll-interval={}s", CAPACITY_POLL.as_secs()),
        "--kube-api-capacity-qps=1000".to_owned(),
        "--kube-api-capacity-burst=2000".to_owned(),
    ];
    let on_node = vec![
        METADATA.to_owned(),
        CROSS_NAMESPACE.to_owned(),
        "--node-deployment".to_owned(),
        format!("--node-deployment-base-delay={}s", OWNING.as_secs()),
        format!("--node-deployment-max-delay={}s", OWNING.as_secs()),
    ];
    let snapshots_on_node = vec![METADATA.to_owned(), GROUPS.to_owned(), "--node-deployment".to_owned()];
    let distributed = vec![GROUPS.to_owned(), "--enable-distributed-snapshotting".to_owned()];
    let no_recovery = vec![NO_RECOVERY.to_owned()];
    let reconcile = vec![format!("--reconcile-sync={}s", RECONCILE.as_secs())];
    for (program, log, socket, more) in [
        ("csi-provisioner", "csi-provisioner", Some(&sockets.main), provisioner()),
        ("csi-provisioner", "csi-provisioner-topology", Some(&sockets.topology), provisioner()),
        ("csi-provisioner", "csi-provisioner-capacity", Some(&sockets.capacity), capacity),
        ("csi-provisioner", "csi-provisioner-incapable", Some(&sockets.incapable), provisioner()),
        ("csi-provisioner", "csi-provisioner-local", Some(&sockets.local), on_node),
        ("csi-attacher", "csi-attacher", Some(&sockets.main), Vec::new()),
        ("csi-attacher", "csi-attacher-listing", Some(&sockets.listing), reconcile),
        ("csi-resizer", "csi-resizer", Some(&sockets.main), Vec::new()),
        ("csi-resizer", "csi-resizer-no-recovery", Some(&sockets.no_recovery), no_recovery),
        ("csi-snapshotter", "csi-snapshotter", Some(&sockets.main), [metadata(), groups()].concat()),
        ("csi-snapshotter", "csi-snapshotter-local", Some(&sockets.local), snapshots_on_node),
        ("snapshot-controller", "snapshot-controller", None, distributed),
    ] {
        if unused && !REQUIRED.contains(&log) {
            continue;
        }
        let mut arguments = common.clone();
        if let Some(socket) = socket {
            arguments.push(format!("--csi-address={}", socket.display()));
            arguments.push(format!("--timeout={}s", TIMEOUT.as_secs()));
        }
        arguments.extend(more);
        spawn(&programs.sidecars.join(program), log, &arguments)?;
    }
    Ok(())
}
