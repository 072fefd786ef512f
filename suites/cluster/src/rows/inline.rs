//! CSI ephemeral inline volumes: no claim, no provisioner, no attachment; NodePublishVolume creates them, and
//! NodeUnpublishVolume deletes them.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Fixture, Script},
};

const SUITE: &str = "inline";

const fn inline(name: &'static str, run: Run) -> Case {
    row(SUITE, name, "ephemeral", Pattern::INLINE, &[], run)
}

pub(super) const ROWS: &[Case] = &[
    inline("a CSI inline volume is created and deleted with its pod", case!(comes_and_goes)),
    inline("a CSI inline volume can be mounted read-only", case!(read_only)),
    inline(
        "two pods with the same CSI inline volume get separate volumes unless it is shared",
        case!(two_pods),
    ),
    inline("a pod can have several CSI inline volumes", case!(several)),
];

const WRITES: &str = "echo mine > /v/data/file && test \"$(cat /v/data/file)\" = mine";
const LOOKS: &str = "ls /v/data";
const FINDS_NOTHING: &str = "test ! -e /v/data/file && echo here > /v/data/file";

async fn comes_and_goes(t: Arc<Fixture>) -> Result<()> {
    let (source, volume) = t.inline_volume(0);
    let script = if volume.read_only { LOOKS } else { WRITES };
    let first = Script::long_running("pod", script).volume("data", source.clone());
    let pod = t.script(&first).await?;
    t.ready(&pod).await?;
    t.remove_pod(&pod).await?;
    t.inline_unpublished(&pod, "data").await?;
    // The next pod gets another volume, although it has the same name.
    let finds_nothing = if volume.read_only || volume.shared { LOOKS } else { FINDS_NOTHING };
    let next = Script::run_to_completion("pod", finds_nothing).volume("data", source);
    t.script_output(&next).await.context("the next pod does not find its inline volume empty").map(drop)
}

async fn read_only(t: Arc<Fixture>) -> Result<()> {
    let (mut source, _) = t.inline_volume(0);
    source["csi"]["readOnly"] = json!(true);
    let touch = "touch /v/data/file 2>&1 | grep -o 'Read-only file system'";
    let pod = Script::long_running("pod", "true").probing(touch).volume("data", source);
    let pod = t.script(&pod).await?;
    t.ready(&pod).await?;
    let output = t.probed(&pod).await?;
    ensure!(output == "Read-only file system", "unexpected pod output {output:?}");
    t.published_read_only(&pod, "data").await
}

async fn two_pods(t: Arc<Fixture>) -> Result<()> {
    let (source, volume) = t.inline_volume(0);
    let script = if volume.shared || volume.read_only { LOOKS } else { FINDS_NOTHING };
    for name in ["one", "two"] {
        let pod = t.script(&Script::long_running(name, script).volume("data", source.clone())).await?;
        t.ready(&pod).await?;
    }
    Ok(())
}

async fn several(t: Arc<Fixture>) -> Result<()> {
    let ((first, one), (second, two)) = (t.inline_volume(0), t.inline_volume(1));
    let writes = "echo 1 > /v/first/file && echo 2 > /v/second/file && cat /v/first/file /v/second/file";
    let writable = ![one, two].iter().any(|volume| volume.read_only || volume.shared);
    let script = if writable { writes } else { "ls /v/first /v/second > /dev/null; echo 1; echo 2" };
    let output = t
        .script_output(
            &Script::run_to_completion("pod", script).volume("first", first).volume("second", second),
        )
        .await?;
    ensure!(output == "1\n2", "unexpected pod output {output:?}");
    Ok(())
}
