//! CSI ephemeral inline volumes: no claim, no provisioner, no attachment; NodePublishVolume creates them, and
//! NodeUnpublishVolume deletes them.

use std::sync::Arc;

use anyhow::{Result, ensure};
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

async fn comes_and_goes(t: Arc<Fixture>) -> Result<()> {
    let (source, volume) = t.inline_volume(0);
    let script = if volume.read_only { LOOKS } else { WRITES };
    let pod = t.script(&Script::long_running("pod", script).volume("data", source)).await?;
    t.ready(&pod).await?;
    t.remove_pod(&pod).await
}

async fn read_only(t: Arc<Fixture>) -> Result<()> {
    let (source, _) = t.inline_volume(0);
    let script = "touch /v/data/file 2>&1 | grep -o 'Read-only file system'";
    let wanted =
        Script::run_to_completion("pod", script).mounted("data", source, json!({ "readOnly": true }));
    let output = t.script_output(&wanted).await?;
    ensure!(output == "Read-only file system", "unexpected pod output {output:?}");
    Ok(())
}

async fn two_pods(t: Arc<Fixture>) -> Result<()> {
    let (source, volume) = t.inline_volume(0);
    let finds_nothing = "test ! -e /v/data/file && echo here > /v/data/file";
    let script = if volume.shared || volume.read_only { LOOKS } else { finds_nothing };
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
