//! The names of the leases of upstream's sidecars.

use crate::Name;

/// The lease of upstream's sidecar for this driver, so that it and the built-in one exclude each other; `None` if
/// upstream has no sidecar for it.
///
/// Upstream: `cmd/*/main.go` of the sidecars, and `sanitizeName` in csi-lib-utils
/// `leaderelection/leader_election.go`.
pub fn lease_name(name: Name, driver: &str) -> Option<String> {
    let lock = match name {
        Name::Provisioner => driver.to_owned(),
        Name::Attacher => format!("external-attacher-leader-{driver}"),
        Name::Resizer => format!("external-resizer-{driver}"),
        Name::Snapshotter => format!("external-snapshotter-leader-{driver}"),
        Name::SnapshotController => "snapshot-controller-leader".to_owned(),
        Name::DataSourceValidator => "data-source-validator-leader".to_owned(),
        Name::Binder
        | Name::AttachDetach
        | Name::Expander
        | Name::Scheduler
        | Name::Protection
        | Name::Ephemeral
        | Name::Garbage
        | Name::NodeLifecycle => return None,
    };
    let mut lock = lock.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "-");
    if lock.ends_with('-') {
        lock.push('X');
    }
    Some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_have_the_names_of_upstream() {
        for (name, expected) in [
            (Name::Provisioner, Some("hostpath-csi-k8s-io")),
            (Name::Attacher, Some("external-attacher-leader-hostpath-csi-k8s-io")),
            (Name::Resizer, Some("external-resizer-hostpath-csi-k8s-io")),
            (Name::Snapshotter, Some("external-snapshotter-leader-hostpath-csi-k8s-io")),
            (Name::SnapshotController, Some("snapshot-controller-leader")),
            (Name::DataSourceValidator, Some("data-source-validator-leader")),
            (Name::Binder, None),
        ] {
            assert_eq!(lease_name(name, "hostpath.csi.k8s.io").as_deref(), expected, "{name}");
        }
        assert_eq!(lease_name(Name::Provisioner, "a/b_").as_deref(), Some("a-b-X"));
    }
}
