//! The built-in controllers that run in a cluster with virtual nodes: those that no stock program replaces.

use std::collections::BTreeSet;

use claimcheck_controllers::Name;

use super::stock_controllers::plan::is_replaced;
use claimcheck_vendor::sidecars::plan::Replaceable;

/// The controllers of a cluster without stock sidecars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlPlaneKind {
    /// The embedded API server, which collects garbage: all controllers.
    Builtin,
    /// A stock API server: all controllers, and the garbage collector.
    Stock,
    /// An API server with a kube-controller-manager: the remaining controllers.
    WithManager {
        /// Whether a kube-scheduler runs, too.
        scheduler: bool,
    },
}

/// The built-in controllers that remain, which run in one process.
pub(super) fn controllers(control_plane: ControlPlaneKind, replaced: &BTreeSet<Replaceable>) -> Vec<Name> {
    let stock: Vec<Name> = replaced.iter().filter_map(|replaced| replaced.controller()).collect();
    let names: Vec<Name> = match control_plane {
        ControlPlaneKind::Builtin => Name::ALL.to_vec(),
        ControlPlaneKind::Stock => Name::ALL.into_iter().chain([Name::Garbage]).collect(),
        ControlPlaneKind::WithManager { scheduler } => {
            Name::ALL.into_iter().filter(|name| !is_replaced(*name, scheduler)).collect()
        }
    };
    names.into_iter().filter(|name| !stock.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_that_are_not_replaced_remain() {
        use Replaceable::{Attacher, Provisioner, Registrar, Resizer, SnapshotController, Snapshotter};
        let without = |names: &[Name]| -> Vec<Name> {
            Name::ALL.into_iter().filter(|name| !names.contains(name)).collect()
        };
        let all_sidecars = [Provisioner, Attacher, Resizer, Snapshotter, SnapshotController];
        let with_garbage = |mut names: Vec<Name>| {
            names.push(Name::Garbage);
            names
        };
        let with_manager = |scheduler| ControlPlaneKind::WithManager { scheduler };
        let table = [
            (ControlPlaneKind::Builtin, vec![], Name::ALL.to_vec()),
            (ControlPlaneKind::Builtin, vec![Registrar], Name::ALL.to_vec()),
            (
                ControlPlaneKind::Builtin,
                vec![Provisioner, Resizer],
                without(&[Name::Provisioner, Name::Resizer]),
            ),
            (
                with_manager(true),
                vec![Attacher],
                vec![Name::Provisioner, Name::Resizer, Name::SnapshotController, Name::Snapshotter],
            ),
            (
                with_manager(false),
                vec![Provisioner, Attacher],
                vec![Name::Resizer, Name::Scheduler, Name::SnapshotController, Name::Snapshotter],
            ),
            (with_manager(true), all_sidecars.to_vec(), vec![]),
            (ControlPlaneKind::Stock, vec![], with_garbage(Name::ALL.to_vec())),
            (ControlPlaneKind::Stock, vec![Attacher], with_garbage(without(&[Name::Attacher]))),
        ];
        for (control_plane, replaced, expected) in table {
            let remaining = controllers(control_plane, &replaced.iter().copied().collect());
            assert_eq!(remaining, expected, "{control_plane:?} without {replaced:?}");
        }
    }
}
