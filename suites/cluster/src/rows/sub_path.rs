//! Parts of volumes: a directory or a file of a volume in a container's place for it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern, Run},
    fixture::{Claim, Fixture, Script},
};

const SUITE: &str = "sub_path";

const fn part(name: &'static str, run: Run) -> Case {
    row(SUITE, name, "subPath", Pattern::IMMEDIATE, Needs::NOTHING, run)
}

pub(super) const ROWS: &[Case] = &[
    part("a directory that is not there is made", case!(made)),
    part("an existing directory is found", case!(existing_directory)),
    part("an existing file is found", case!(existing_file)),
    part("two parts of a volume are two directories", case!(two_parts)),
    part("a part mounted read-only cannot be written", case!(read_only)),
    part("a link that leads out of the volume is refused", case!(link_outside)),
    part("a path with .. is refused by the API", case!(dots)),
    part("a part whose directory is gone is unmounted", case!(directory_gone)),
];

/// The claim as a volume.
fn source(claim: &Claim) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": claim.name } })
}

/// A claim whose volume this script has prepared; the volume is at `/v/data`.
async fn prepared(t: &Fixture, script: &str) -> Result<Claim> {
    let claim = t.claim("claim").await?;
    t.said(&Script::ending("prepare", script).volume("data", source(&claim))).await?;
    t.remove_named_pod("prepare").await?;
    Ok(claim)
}

fn with_part<'a>(name: &'a str, script: &'a str, claim: &Claim, part: &str) -> Script<'a> {
    Script::ending(name, script).mounted("data", source(claim), json!({ "subPath": part }))
}

async fn made(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.said(&with_part("pod", "echo deep > /v/data/file", &claim, "a/b")).await?;
    let said =
        t.said(&Script::ending("reader", "cat /v/data/a/b/file").volume("data", source(&claim))).await?;
    ensure!(said == "deep", "the whole volume shows {said:?}");
    Ok(())
}

async fn existing_directory(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "mkdir /v/data/dir && echo there > /v/data/dir/file").await?;
    let said = t.said(&with_part("pod", "cd /v/data; ls; cat file", &claim, "dir")).await?;
    ensure!(said == "file\nthere", "the pod said {said:?}");
    Ok(())
}

async fn existing_file(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "echo there > /v/data/file").await?;
    let said = t.said(&with_part("pod", "test -f /v/data && cat /v/data", &claim, "file")).await?;
    ensure!(said == "there", "the pod said {said:?}");
    Ok(())
}

async fn two_parts(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.said(&with_part("one", "echo 1 > /v/data/file", &claim, "one")).await?;
    t.said(&with_part("two", "test ! -e /v/data/file; echo 2 > /v/data/file", &claim, "two")).await?;
    let said = t.said(&with_part("reader", "cat /v/data/file", &claim, "one")).await?;
    ensure!(said == "1", "the first part has {said:?}");
    Ok(())
}

async fn read_only(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "mkdir /v/data/dir").await?;
    let mount = json!({ "subPath": "dir", "readOnly": true });
    let script = "touch /v/data/file 2> /dev/null && echo written || echo refused";
    let said = t.said(&Script::ending("pod", script).mounted("data", source(&claim), mount)).await?;
    ensure!(said == "refused", "the pod said {said:?}");
    Ok(())
}

async fn link_outside(t: Arc<Fixture>) -> Result<()> {
    let claim = prepared(&t, "ln -s /etc /v/data/out").await?;
    t.script(&with_part("pod", "true", &claim, "out")).await?;
    t.event_among("pod", &["Failed", "FailedMount"]).await.map(drop)
}

async fn dots(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let refused = t.script(&with_part("pod", "true", &claim, "../out")).await;
    let said = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(said.contains("must not contain '..'"), "the API server said {said:?}");
    Ok(())
}

async fn directory_gone(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let staying = Script::staying("pod", "echo here > /v/data/file").mounted(
        "data",
        source(&claim),
        json!({ "subPath": "dir" }),
    );
    let pod = t.script(&staying).await?;
    let node = t.ready(&pod).await?.spec.and_then(|spec| spec.node_name).unwrap_or_default();
    let removing = Script::ending("remover", "rm -r /v/data/dir")
        .volume("data", source(&claim))
        .spec(json!({ "nodeSelector": { "kubernetes.io/hostname": node } }));
    t.said(&removing).await?;
    t.remove_pod(&pod).await
}
