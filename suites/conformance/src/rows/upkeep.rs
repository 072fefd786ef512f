//! What a driver uses up: descriptors, loop devices and time must not grow with the number of calls.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use claimcheck_csi::v1::NodeGetInfoRequest;
use tokio::time::Instant;

use super::{CREATE, STAGE, case};
use crate::{
    case::{Access, Need, Row, When},
    expect::{Answer, skip},
    fixture::{Fixture, Placed},
};

/// Calls after which a leak of one each cannot be missed.
const LEAKING: usize = 64;
/// Calls after which a driver must not be slower than at first.
const MANY: usize = 1000;
/// How long they may take together: of a driver that is slow anyway fewer must do.
const ENOUGH: Duration = Duration::from_secs(5);
/// Of how many calls a median is taken.
const SAMPLE: usize = 21;
/// How much slower a call is at the least that counts as slower: what a busy machine does is less.
const SLOWER: Duration = Duration::from_millis(50);
/// And how many times slower.
const TIMES: u32 = 10;

pub(super) const ROWS: &[Row] = &[
    Row::new("calls leave no file descriptor open", "Interface", case!(descriptors)).when(When::Alone),
    Row::new("many calls later a call takes no longer", "Timeouts", case!(pace))
        .needs(&[Need::Restart])
        .when(When::Alone),
    Row::new("staging twice attaches one loop device", "NodeStageVolume", case!(one_loop))
        .needs(&[CREATE, STAGE, Need::Files])
        .only(Access::Mount),
    Row::new("unstaging leaves no loop device attached", "NodeUnstageVolume", case!(no_loop))
        .needs(&[CREATE, STAGE, Need::Files])
        .only(Access::Mount),
];

async fn call(f: &Fixture) -> Result<Duration> {
    let began = Instant::now();
    f.node_get_info(NodeGetInfoRequest {}).await.works("NodeGetInfo")?;
    Ok(began.elapsed())
}

async fn descriptors(f: &Fixture) -> Result<()> {
    let Some(process) = f.suite().process().await else {
        return Err(skip("the driver's process is not ours: let --driver start it".to_owned()));
    };
    let open = || -> Result<usize> {
        let folder = format!("/proc/{process}/fd");
        Ok(fs::read_dir(&folder).with_context(|| format!("cannot look at {folder}"))?.count())
    };
    call(f).await?;
    let before = open()?;
    for _ in 0..LEAKING {
        call(f).await?;
    }
    let after = open()?;
    ensure!(
        after < before + LEAKING / 2,
        "after {LEAKING} calls of NodeGetInfo the driver has {after} file descriptors open, {before} before: \
         calls leave descriptors open"
    );
    Ok(())
}

async fn pace(f: &Fixture) -> Result<()> {
    // With a fresh process, so that what other cases have asked before does not count.
    f.restart().await?;
    let first = median(f).await?;
    let limit = Instant::now() + ENOUGH;
    for _ in 0..MANY {
        if Instant::now() > limit {
            break;
        }
        call(f).await?;
    }
    let last = median(f).await?;
    ensure!(
        last < first + SLOWER || last < first * TIMES,
        "a call of NodeGetInfo took {first:?} after the start, and takes {last:?} after many: calls become slower \
         with their number"
    );
    Ok(())
}

async fn median(f: &Fixture) -> Result<Duration> {
    let mut taken = Vec::new();
    for _ in 0..SAMPLE {
        taken.push(call(f).await?);
    }
    taken.sort_unstable();
    Ok(taken[SAMPLE / 2])
}

async fn one_loop(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let file = backing_file(f, &placed)?;
    let once = attached(&file)?;
    f.stage(&placed).await?;
    let twice = attached(&file)?;
    ensure!(
        twice <= once,
        "staged once, the volume had {once} loop device(s) attached, and staged again {twice}: repeating \
         NodeStageVolume attaches another loop device"
    );
    Ok(())
}

async fn no_loop(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let file = backing_file(f, &placed)?;
    let gone = f.node_unstage_volume(f.unstage_request(&placed)).await;
    gone.works("NodeUnstageVolume")?;
    let mut last = "NodeUnstageVolume";
    if attached(&file)? > 0 && f.attaches() {
        // The device is what attaching gave the volume to the node as.
        last = "ControllerUnpublishVolume";
        let request = f.detach_request(placed.id(), &f.node_info().node_id);
        f.controller_unpublish_volume(request).await.works(last)?;
    }
    let left = attached(&file)?;
    ensure!(left == 0, "{last} answered OK and leaves {left} loop device(s) of the volume attached");
    Ok(())
}

/// The file behind the loop device that a staged volume lies on.
fn backing_file(f: &Fixture, placed: &Placed) -> Result<String> {
    let staging = placed.staging.as_deref().context("the volume is staged nowhere")?;
    let number = f.device_at(staging)?;
    match read(&Path::new("/sys/dev/block").join(number).join("loop/backing_file"))? {
        Some(file) => Ok(file),
        None => Err(skip("the driver's volumes lie on no loop devices".to_owned())),
    }
}

/// How many loop devices have this file behind them. It may have been deleted meanwhile.
fn attached(file: &str) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/sys/block").context("cannot look at /sys/block")? {
        let found = read(&entry?.path().join("loop/backing_file"))?;
        count += usize::from(found.is_some_and(|found| found.trim_end_matches(" (deleted)") == file));
    }
    Ok(count)
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        // A device that is detached while one looks has no file any more.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
