//! The rows of the catalogue, one file per suite.

mod attach;
mod attach_required;
mod binding;
mod capacity;
mod cloning;
mod disruptive;
mod ephemeral;
mod fs_group;
mod group_snapshots;
mod inline;
mod multi_volume;
mod node_failures;
mod node_requests;
mod pod_volumes;
mod pods;
mod protection;
mod provisioning;
mod read_write_once_pod;
mod reclaim;
mod restore;
mod retries;
mod secrets;
mod service_account_tokens;
mod snapshottable;
mod stress;
mod sub_path;
mod topology;
mod volume_expand;
mod volume_io;
mod volume_limits;
mod volume_mode;
mod volume_modify;
mod volumes;

use std::borrow::Cow;

use claimcheck_model::CsiMethod;

use crate::{
    case::{Case, Pattern, Run, Test},
    need::Need,
};

/// All cases.
pub fn catalogue() -> Vec<Case> {
    [
        provisioning::ROWS,
        volumes::ROWS,
        volume_io::ROWS,
        multi_volume::ROWS,
        volume_mode::ROWS,
        volume_expand::ROWS,
        volume_modify::ROWS,
        read_write_once_pod::ROWS,
        ephemeral::ROWS,
        inline::ROWS,
        sub_path::ROWS,
        fs_group::ROWS,
        pod_volumes::ROWS,
        pods::ROWS,
        binding::ROWS,
        reclaim::ROWS,
        protection::ROWS,
        attach::ROWS,
        attach_required::ROWS,
        volume_limits::ROWS,
        topology::ROWS,
        capacity::ROWS,
        stress::ROWS,
        snapshottable::ROWS,
        restore::ROWS,
        group_snapshots::ROWS,
        cloning::ROWS,
        retries::ROWS,
        node_requests::ROWS,
        service_account_tokens::ROWS,
        disruptive::ROWS,
        node_failures::ROWS,
        secrets::ROWS,
    ]
    .concat()
}

/// Each CSI call of a volume's life cycle with one pod, once.
const EACH_ONCE: [(CsiMethod, u64); 8] = [
    (CsiMethod::CreateVolume, 1),
    (CsiMethod::ControllerPublishVolume, 1),
    (CsiMethod::NodeStageVolume, 1),
    (CsiMethod::NodePublishVolume, 1),
    (CsiMethod::NodeUnpublishVolume, 1),
    (CsiMethod::NodeUnstageVolume, 1),
    (CsiMethod::ControllerUnpublishVolume, 1),
    (CsiMethod::DeleteVolume, 1),
];

/// A row of `suite` that corresponds to the upstream suite `upstream`.
const fn row(
    suite: &'static str,
    name: &'static str,
    upstream: &'static str,
    pattern: Pattern,
    needs: &'static [Need],
    run: Run,
) -> Case {
    let (name, needs) = (Cow::Borrowed(name), Cow::Borrowed(needs));
    Case { suite, name, upstream, pattern, needs, test: Test::Function(run) }
}

/// Converts an async function of a fixture into the function type of a row.
macro_rules! case {
    ($function:path) => {
        |fixture| Box::pin($function(fixture))
    };
}
use case;
