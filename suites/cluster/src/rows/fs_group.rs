//! Group ownership of files: fsGroup and fsGroupChangePolicy.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_model::Capability;
use serde_json::{Value, json};

use super::{case, row};
use crate::{
    case::{Case, FsType, Pattern, Run},
    fixture::{Claim, Fixture, Script, Variant},
    need::Need,
};

const SUITE: &str = "fs_group";
const GROUPED: &[Need] = &[Need::Capability(Capability::FsGroup)];
const REGROUPED: &[Need] = &[Need::Root, Need::Capability(Capability::FsGroup)];

const fn group(name: &'static str, pattern: Pattern, run: Run) -> Case {
    row(SUITE, name, "fsgroupchangepolicy", pattern, GROUPED, run)
}

/// A row with files of a group that their pod does not have.
const fn regroup(name: &'static str, run: Run) -> Case {
    row(SUITE, name, "fsgroupchangepolicy", Pattern::EXT4, REGROUPED, run)
}

pub(super) const ROWS: &[Case] = &[
    group("a volume and its new files get the fsGroup of the pod", Pattern::EXT4, case!(first_pod)),
    regroup("with the default policy Always, all files get the fsGroup of the next pod", case!(always)),
    regroup(
        "with OnRootMismatch, files keep their group if the volume root has the pod's fsGroup",
        case!(on_root_mismatch),
    ),
    regroup(
        "with OnRootMismatch, all files get the pod's fsGroup if the volume root has another group",
        case!(root_mismatches),
    ),
    row(
        SUITE,
        "a pod with fsGroup starts although the group of the volume's files cannot be changed",
        "fsgroupchangepolicy",
        Pattern::IMMEDIATE,
        // Ext4 is available only to root, and so are the groups of the pod's processes.
        &[
            Need::Variant(Variant::Grouped),
            Need::Capability(Capability::FsGroup),
            Need::FileSystem(FsType::Ext4),
        ],
        case!(unchangeable),
    ),
];

fn pod<'a>(name: &'a str, script: &'a str, claim: &Claim, context: Value) -> Script<'a> {
    let source = json!({ "persistentVolumeClaim": { "claimName": claim.name } });
    Script::run_to_completion(name, script).volume("data", source).spec(json!({ "securityContext": context }))
}

/// Creates files and directories at several levels, changes their group, and returns the groups of the volume root and of
/// each as seen by a second pod.
async fn seen_by_second(t: &Fixture, first: Value, second: Value) -> Result<String> {
    let claim = t.claim("claim").await?;
    let script = "cd /v/data && mkdir -p a/b && echo x > file && echo x > a/file && echo x > a/b/file\n\
                  chgrp 77 file a a/file a/b a/b/file";
    t.script_output(&pod("first", script, &claim, first)).await?;
    t.remove_named_pod("first").await?;
    let script = "cd /v/data && stat -c %g . file a a/file a/b a/b/file | xargs";
    t.script_output(&pod("second", script, &claim, second)).await
}

async fn first_pod(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    // New files inherit the group of the directory (setgid).
    let script =
        "stat -c %g /v/data; touch /v/data/new; stat -c %g /v/data/new; test -g /v/data && echo setgid";
    let output = t.script_output(&pod("pod", script, &claim, json!({ "fsGroup": 1234 }))).await?;
    ensure!(output == "1234\n1234\nsetgid", "unexpected pod output {output:?}");
    Ok(())
}

const ALL_2000: &str = "2000 2000 2000 2000 2000 2000";

async fn always(t: Arc<Fixture>) -> Result<()> {
    // The volume's root has this group already, so OnRootMismatch would leave the files as they are.
    let context = json!({ "fsGroup": 2000 });
    let output = seen_by_second(&t, context.clone(), context).await?;
    ensure!(output == ALL_2000, "volume root and files have the groups {output:?} instead of {ALL_2000}");
    Ok(())
}

fn on_mismatch(group: u32) -> Value {
    json!({ "fsGroup": group, "fsGroupChangePolicy": "OnRootMismatch" })
}

async fn on_root_mismatch(t: Arc<Fixture>) -> Result<()> {
    let output = seen_by_second(&t, on_mismatch(1000), on_mismatch(1000)).await?;
    let expected = "1000 77 77 77 77 77";
    ensure!(output == expected, "volume root and files have the groups {output:?} instead of {expected}");
    Ok(())
}

async fn root_mismatches(t: Arc<Fixture>) -> Result<()> {
    let output = seen_by_second(&t, on_mismatch(1000), on_mismatch(2000)).await?;
    ensure!(output == ALL_2000, "volume root and files have the groups {output:?} instead of {ALL_2000}");
    Ok(())
}

/// As on NFS with `root_squash`. The kubelet logs such errors: `changeFilePermission` in pkg/volume/volume_linux.go. Here the
/// driver mounts the volume read-only, which the kubelet does not know.
async fn unchangeable(t: Arc<Fixture>) -> Result<()> {
    let driver = t.install_driver(Variant::Grouped, json!({ "mountOptions": ["ro"] })).await?;
    let claim = t.claim_of_driver(&driver, "claim", "1Mi").await?;
    let script =
        "test \"$(stat -c %g /v/data)\" != 1234; touch /v/data/file 2>&1 | grep -o 'Read-only file system'";
    let output = t.script_output(&pod("pod", script, &claim, json!({ "fsGroup": 1234 }))).await?;
    ensure!(output == "Read-only file system", "unexpected pod output {output:?}");
    t.remove_named_pod("pod").await?;
    t.remove_claim(&claim).await
}
