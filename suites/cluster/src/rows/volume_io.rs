//! Files of several sizes: written, read back and compared.

use std::sync::Arc;

use anyhow::{Result, ensure};
use claimcheck_model::Capability;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Fixture, TestPod},
    need::Need,
};

const SUITE: &str = "volume_io";
const KEEPS: Need = Need::Capability(Capability::Persistence);
const SMALL: &[Need] = &[Need::FileMiB(1), KEEPS];
const LARGE: &[Need] = &[Need::FileMiB(100), KEEPS];
const EXECUTES: &[Need] = &[Need::Capability(Capability::Exec)];

const fn io(name: &'static str, pattern: Pattern, needs: &'static [Need], run: Run) -> Case {
    row(SUITE, name, "volumeIO", pattern, needs, run)
}

pub(super) const ROWS: &[Case] = &[
    io("a file of 1 MiB is read back unchanged", Pattern::IMMEDIATE, SMALL, case!(one_mebibyte)),
    io("a file of 1 MiB is read back unchanged", Pattern::EXT4, SMALL, case!(one_mebibyte)),
    io("a file of 100 MiB is read back unchanged", Pattern::IMMEDIATE, LARGE, case!(hundred_mebibytes)),
    io("a file of 100 MiB is read back unchanged", Pattern::EXT4, LARGE, case!(hundred_mebibytes)),
    row(
        SUITE,
        "a file on a volume can be executed",
        "volumes",
        Pattern::IMMEDIATE,
        EXECUTES,
        case!(executed),
    ),
    row(SUITE, "a file on a volume can be executed", "volumes", Pattern::EXT4, EXECUTES, case!(executed)),
];

async fn one_mebibyte(t: Arc<Fixture>) -> Result<()> {
    written_and_read(&t, 1, "16Mi").await
}

async fn hundred_mebibytes(t: Arc<Fixture>) -> Result<()> {
    written_and_read(&t, 100, "160Mi").await
}

/// The second pod reads from storage instead of the page cache, since the volume was unmounted in between. MD5 is
/// sufficient, since no attacker modifies the file, and three times as fast as stronger hashes.
async fn written_and_read(t: &Fixture, mebibytes: u32, size: &str) -> Result<()> {
    let claim = t.sized_claim("claim", size).await?;
    // One random mebibyte, repeated: the content differs from block to block and is cheap to generate.
    let write = format!(
        "head -c 1048573 /dev/urandom > /data/seed\n\
         n=0; while [ $n -lt {mebibytes} ]; do cat /data/seed; printf %03d $n; n=$((n+1)); done > /data/file\n\
         md5sum < /data/file"
    );
    let written = t.output(&TestPod::run_to_completion("writer", &claim, &write)).await?;
    t.remove_named_pod("writer").await?;
    t.withdrawn().await?;
    let read = "wc -c < /data/file; md5sum < /data/file";
    let read = t.output(&TestPod::run_to_completion("reader", &claim, read)).await?;
    let expected = format!("{}\n{written}", mebibytes * 1_048_576);
    ensure!(written.len() >= 32 && read == expected, "written {expected:?}, read {read:?}");
    Ok(())
}

async fn executed(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let script =
        "printf '#!/bin/sh\\necho ran from $0\\n' > /data/program && chmod +x /data/program && /data/program";
    let output = t.output(&TestPod::run_to_completion("pod", &claim, script)).await?;
    ensure!(output == "ran from /data/program", "unexpected pod output {output:?}");
    Ok(())
}
