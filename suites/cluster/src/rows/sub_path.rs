//! subPath: mounts of a directory or file of a volume.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_model::Capability;
use serde_json::{Value, json};

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, Script},
    need::Need,
};

const SUITE: &str = "sub_path";

const fn part(name: &'static str, run: Run) -> Case {
    row(SUITE, name, "subPath", Pattern::IMMEDIATE, &[], run)
}

pub(super) const ROWS: &[Case] = &[
    part("a missing subPath directory is created", case!(made)),
    part("an existing directory can be mounted as subPath", case!(existing_directory)),
    part("an existing file can be mounted as subPath", case!(existing_file)),
    part("two subPaths of a volume are separate directories", case!(two_parts)),
    part("a subPath mounted read-only rejects writes", case!(read_only)),
    part("a subPath symlink that points outside the volume is rejected", case!(link_outside)),
    part("a subPath that contains .. is rejected by the API server", case!(dots)),
    row(
        SUITE,
        "a subPath is unmounted even if its directory was deleted",
        "subPath",
        Pattern::IMMEDIATE,
        &[Need::Capability(Capability::Multipods)],
        case!(directory_deleted),
    ),
];

/// The claim as a volume source.
fn source(claim: &Claim) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": claim.name } })
}

/// A claim with a volume prepared by this script; the volume is at `/v/data`.
async fn prepared(t: &Fixture, script: &str) -> Result<Claim> {
    let claim = t.claim("claim").await?;
    t.script_output(&Script::run_to_completion("prepare", script).volume("data", source(&claim))).await?;
    t.remove_named_pod("prepare").await?;
    Ok(claim)
}

fn with_part<'a>(name: &'a str, script: &'a str, claim: &Claim, part: &str) -> Script<'a> {
    Script::run_to_completion(name, script).mounted("data", source(claim), json!({ "subPath": part }))
}

async fn made(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.script_output(&with_part("pod", "echo deep > /v/data/file", &claim, "a/b")).await?;
    let output = t
        .script_output(
            &Script::run_to_completion("reader", "cat /v/data/a/b/file").volume("data", source(&claim)),
        )
        .await?;
    ensure!(output == "deep", "the whole volume contains {output:?}");
    Ok(())
}

async fn existing_directory(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "mkdir /v/data/dir && echo there > /v/data/dir/file").await?;
    let output = t.script_output(&with_part("pod", "cd /v/data; ls; cat file", &claim, "dir")).await?;
    ensure!(output == "file\nthere", "unexpected pod output {output:?}");
    Ok(())
}

async fn existing_file(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "echo there > /v/data/file").await?;
    let output = t.script_output(&with_part("pod", "test -f /v/data && cat /v/data", &claim, "file")).await?;
    ensure!(output == "there", "unexpected pod output {output:?}");
    Ok(())
}

async fn two_parts(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.script_output(&with_part("one", "echo 1 > /v/data/file", &claim, "one")).await?;
    t.script_output(&with_part("two", "test ! -e /v/data/file; echo 2 > /v/data/file", &claim, "two"))
        .await?;
    let output = t.script_output(&with_part("reader", "cat /v/data/file", &claim, "one")).await?;
    ensure!(output == "1", "the first subPath contains {output:?}");
    Ok(())
}

async fn read_only(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "mkdir /v/data/dir").await?;
    let mount = json!({ "subPath": "dir", "readOnly": true });
    let script = "touch /v/data/file 2> /dev/null && echo written || echo refused";
    let output = t
        .script_output(&Script::run_to_completion("pod", script).mounted("data", source(&claim), mount))
        .await?;
    ensure!(output == "refused", "unexpected pod output {output:?}");
    Ok(())
}

async fn link_outside(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "ln -s /etc /v/data/out").await?;
    t.script(&with_part("pod", "true", &claim, "out")).await?;
    t.event_containing("pod", &["Failed", "FailedMount"], "subPath").await
}

async fn dots(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let refused = t.script(&with_part("pod", "true", &claim, "../out")).await;
    let output = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(output.contains("must not contain '..'"), "unexpected answer of the API server {output:?}");
    Ok(())
}

async fn directory_deleted(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let running = Script::long_running("pod", "echo here > /v/data/file").mounted(
        "data",
        source(&claim),
        json!({ "subPath": "dir" }),
    );
    let pod = t.script(&running).await?;
    let node = t.ready(&pod).await?.spec.and_then(|spec| spec.node_name).unwrap_or_default();
    let removing = Script::run_to_completion("remover", "rm -r /v/data/dir")
        .volume("data", source(&claim))
        .spec(json!({ "nodeSelector": { "kubernetes.io/hostname": node } }));
    t.script_output(&removing).await?;
    t.remove_pod(&pod).await
}
