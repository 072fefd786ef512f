//! `scenario compare` of scenarios of `world: controllers`, which play scheduler and kubelets themselves: on two API servers
//! without nodes, one with the built-in controllers, one with upstream's.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result, bail};
use claimcheck_differential::{CONCURRENT, Pair, Programs, SIDES, Verdict};
use claimcheck_files::make_folder_private;
use claimcheck_run::{Interrupted, interrupt};
use claimcheck_scenario::{Read, Table};
use futures::{StreamExt, stream};

/// Plays them, and prints what differs; the logs of all programs are written into the folder.
pub fn compare(scenarios: &[Read], table: Table, folder: &Path) -> Result<ExitCode> {
    let programs = Programs::find()?;
    fs::create_dir_all(folder)
        .and_then(|()| make_folder_private(folder))
        .with_context(|| format!("cannot create {}", folder.display()))?;
    // On this thread, with which all programs end.
    crate::runtime()?.block_on(async {
        let interrupted = interrupt::token()?;
        tokio::select! {
            code = play(scenarios, table, folder, &programs) => code,
            () = interrupted.cancelled() => Err(Interrupted.into()),
        }
    })
}

async fn play(scenarios: &[Read], table: Table, folder: &Path, programs: &Programs) -> Result<ExitCode> {
    eprintln!("claimcheck: starting two API servers with their controllers");
    let unused = scenarios.iter().any(|read| read.scenario.unused);
    let pair = Pair::start(programs, folder, unused).await?;
    let [built_in, stock] = pair.runs();
    println!("\n {}: {built_in}\n {}:    {stock}\n", SIDES[0], SIDES[1]);
    let verdicts = scenarios.iter().map(|Read { scenario, .. }| {
        let compared = pair.compare(scenario, &table);
        async { (&scenario.name, compared.await) }
    });
    let mut verdicts = stream::iter(verdicts).buffered(CONCURRENT);
    let mut differ = 0;
    while let Some((name, verdict)) = verdicts.next().await {
        let (result, report) = match verdict {
            Verdict::Equal => ("equal", String::new()),
            Verdict::DifferedOnce(first) => ("equal, and differed in its first run only", first),
            Verdict::Differs { first, .. } => {
                differ += 1;
                ("differs", first)
            }
        };
        println!(" {name}: {result}");
        for line in report.lines() {
            println!("  {line}");
        }
    }
    let ended = pair.ended();
    if !ended.is_empty() {
        bail!(
            "programs ended while scenarios were played: {}; logs are in {}",
            ended.join(", "),
            folder.display()
        );
    }
    println!("\n {} compared, {differ} differ; logs are in {}", scenarios.len(), folder.display());
    Ok(ExitCode::from(u8::from(differ > 0)))
}
