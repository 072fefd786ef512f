//! The manifests, embedded at build time.

/// From one list of paths: each with its text.
macro_rules! files {
    ($($path:literal,)+) => {
        &[$(($path, include_str!(concat!("../../../../manifests/", $path)))),+]
    };
}

/// Path below `manifests/` and text of every manifest; a test compares this with the folder.
pub(super) const FILES: &[(&str, &str)] = files![
    "admission/kustomization.yaml",
    "admission/openshift.yaml",
    "admission/quota.yaml",
    "classes/directory.yaml",
    "classes/image.yaml",
    "classes/kustomization.yaml",
    "controllers/deployment.yaml",
    "controllers/kustomization.yaml",
    "controllers/leader-election.yaml",
    "controllers/serviceaccount.yaml",
    "csidriver/csidriver.yaml",
    "csidriver/kustomization.yaml",
    "monitor/clusterrole.yaml",
    "monitor/deployment.yaml",
    "monitor/kustomization.yaml",
    "monitor/lease.yaml",
    "monitor/namespace.yaml",
    "monitor/service.yaml",
    "monitor/serviceaccount.yaml",
    "monitoring/kustomization.yaml",
    "monitoring/podmonitor.yaml",
    "namespace/kustomization.yaml",
    "namespace/namespace.yaml",
    "node/daemonset.yaml",
    "node/kustomization.yaml",
    "node/serviceaccount.yaml",
    "observe/daemonset.yaml",
    "observe/kustomization.yaml",
    "observe/openshift.yaml",
    "observe/serviceaccount.yaml",
    "overlays/existing/kustomization.yaml",
    "overlays/existing-upstream/kustomization.yaml",
    "overlays/kind/kustomization.yaml",
    "overlays/kind-upstream/kustomization.yaml",
    "overlays/stock/kustomization.yaml",
    "overlays/stock-upstream/kustomization.yaml",
    "rbac/secrets/kustomization.yaml",
    "rbac/secrets/secrets.yaml",
    "rbac/secrets-everywhere/kustomization.yaml",
    "rbac/secrets-everywhere/secrets.yaml",
    "rbac/sidecars/attacher.yaml",
    "rbac/sidecars/kustomization.yaml",
    "rbac/sidecars/provisioner.yaml",
    "rbac/sidecars/resizer.yaml",
    "rbac/sidecars/snapshotter.yaml",
    "rbac/snapshots/kustomization.yaml",
    "rbac/snapshots/snapshot-controller.yaml",
    "rbac/storage/attach-detach.yaml",
    "rbac/storage/binder.yaml",
    "rbac/storage/ephemeral-volume.yaml",
    "rbac/storage/expander.yaml",
    "rbac/storage/kustomization.yaml",
    "rbac/storage/protection.yaml",
    "rbac/upstream/attacher.yaml",
    "rbac/upstream/kustomization.yaml",
    "rbac/upstream/provisioner.yaml",
    "rbac/upstream/resizer.yaml",
    "rbac/upstream/snapshotter.yaml",
    "rbac/upstream-snapshots/kustomization.yaml",
    "rbac/upstream-snapshots/snapshot-controller.yaml",
    "snapshots/classes.yaml",
    "snapshots/crds/kustomization.yaml",
    "snapshots/crds/volumegroupsnapshotclasses.yaml",
    "snapshots/crds/volumegroupsnapshotcontents.yaml",
    "snapshots/crds/volumegroupsnapshots.yaml",
    "snapshots/crds/volumesnapshotclasses.yaml",
    "snapshots/crds/volumesnapshotcontents.yaml",
    "snapshots/crds/volumesnapshots.yaml",
    "snapshots/kustomization.yaml",
    "upstream/controllers/kustomization.yaml",
    "upstream/node/kustomization.yaml",
];

/// The text of a file, if it exists.
pub(super) fn text(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}
