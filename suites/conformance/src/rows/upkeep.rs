//! Resource leaks: descriptors, loop devices and latency must not grow with the number of calls.

use std::{fs, io, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use claimcheck_csi::v1::NodeGetInfoRequest;
use claimcheck_engine::skip;
use tokio::time::Instant;

use super::{CREATE, LOOPS, MOUNTS, STAGE, case};
use crate::{
    alone::Alone,
    case::{Access, Row},
    effect::Effect,
    expect::Answer,
    fixture::{Fixture, VolumeOnNode},
    need::Need,
    spec,
    waits::{Limit, Waits},
};

/// Enough calls to detect a leak of one descriptor per call.
const LEAKING: usize = 64;
/// Number of calls after which latency is compared with the initial latency.
const MANY: usize = 1000;
/// Maximum total duration of these calls: fewer are made to a slow driver.
const ENOUGH: Duration = Duration::from_secs(5);
/// Number of calls of which the fastest counts: on a busy machine most of them wait for a processor.
const SAMPLE: usize = 21;
/// Minimum difference that counts as slower: above the noise of a busy machine.
const SLOWER: Duration = Duration::from_millis(50);
/// Minimum ratio that counts as slower.
const TIMES: u32 = 10;

/// How long the detachment of a loop device may take.
const DETACHED: Duration = Duration::from_secs(2);

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "NodeGetInfo called many times leaves no file descriptor open",
        spec::SERVICE,
        case!(descriptors),
    )
    .alone(Alone::CountsDescriptors),
    Row::new("NodeGetInfo called many times does not become slower", spec::SERVICE, case!(pace))
        .needs(&[Need::Restart])
        .alone(Alone::KillsDriver)
        .waits(Waits::up_to(
            Limit::Seconds(ENOUGH.as_secs()),
            "many calls, since latency is compared with that of the first ones",
        )),
    Row::new("NodeStageVolume called twice attaches one loop device", spec::STAGE_TWICE, case!(one_loop))
        .needs(&[CREATE, STAGE, Need::Files, LOOPS])
        .only(Access::Mount),
    Row::new("NodeUnstageVolume leaves no loop device attached", spec::UNSTAGE_UNDOES, case!(no_loop))
        .needs(&[CREATE, STAGE, Need::Files, MOUNTS])
        .establishes(&[Effect::LoopsDetached])
        .each(),
];

async fn call(f: &Fixture) -> Result<Duration> {
    let began = Instant::now();
    f.node_get_info(NodeGetInfoRequest {}).await.works("NodeGetInfo")?;
    Ok(began.elapsed())
}

async fn descriptors(f: &Fixture) -> Result<()> {
    let Some(process) = f.driver().process().await else {
        return Err(skip(
            "the driver's process was not started by claimcheck: let --driver start it".to_owned(),
        ));
    };
    let open = || -> Result<usize> {
        let folder = format!("/proc/{process}/fd");
        Ok(fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?.count())
    };
    call(f).await?;
    let before = open()?;
    for _ in 0..LEAKING {
        call(f).await?;
    }
    let after = open()?;
    ensure!(
        after < before + LEAKING / 2,
        "after {LEAKING} calls of NodeGetInfo the driver has {after} open file descriptors, {before} before: \
         calls leak file descriptors"
    );
    Ok(())
}

async fn pace(f: &Fixture) -> Result<()> {
    // With a new process, so that calls of other cases do not count.
    f.restart().await?;
    let first = fastest(f).await?;
    let limit = Instant::now() + ENOUGH;
    for _ in 0..MANY {
        if Instant::now() > limit {
            break;
        }
        call(f).await?;
    }
    let last = fastest(f).await?;
    ensure!(
        last < first + SLOWER || last < first * TIMES,
        "a call of NodeGetInfo took {first:?} after the start, and takes {last:?} after many calls: latency grows \
         with the number of calls"
    );
    Ok(())
}

async fn fastest(f: &Fixture) -> Result<Duration> {
    let mut fastest = call(f).await?;
    for _ in 1..SAMPLE {
        fastest = fastest.min(call(f).await?);
    }
    Ok(fastest)
}

async fn one_loop(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let file = backing_file(f, &placed).await?;
    let once = attached(&file)?;
    f.stage(&placed).await?;
    let twice = attached(&file)?;
    ensure!(
        twice <= once,
        "the volume had {once} loop device(s) after NodeStageVolume, and {twice} after it was called again: a \
         repeated NodeStageVolume attaches another loop device"
    );
    Ok(())
}

async fn no_loop(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    // CreateVolume may attach the device, and DeleteVolume detach it.
    let made = backing_files()?;
    let mut placed = f.place(volume).await?;
    f.attach(&mut placed).await?;
    f.stage(&placed).await?;
    let file = backing_file(f, &placed).await?;
    let expected = made.iter().filter(|found| **found == file).count();
    let deleted = f.node_unstage_volume(f.unstage_request(&placed)).await;
    deleted.works("NodeUnstageVolume")?;
    let mut last = "NodeUnstageVolume";
    if attached(&file)? > expected && f.attaches() {
        // ControllerPublishVolume attached the device to the node.
        last = "ControllerUnpublishVolume";
        let request = f.detach_request(placed.id(), &f.node_info().node_id);
        f.controller_unpublish_volume(request).await.works(last)?;
    }
    let left = remaining(&file, expected).await?;
    ensure!(
        left <= expected,
        "{last} returned OK, but {left} loop device(s) of the volume remain attached, {expected} of them since \
         CreateVolume"
    );
    Ok(())
}

/// The backing file of the loop device of a staged volume. What a driver stages is its decision, so the device is that of
/// the published volume.
async fn backing_file(f: &Fixture, placed: &VolumeOnNode) -> Result<String> {
    f.publish(placed).await?;
    let number = match placed.access {
        Access::Block => published_device(&placed.target)?,
        Access::Mount => f.device_at(&placed.target)?,
    };
    let file = backing_file_of(&number)?;
    f.unpublish(placed).await?;
    Ok(file)
}

/// The device at a path, as `major:minor`.
fn published_device(path: &Path) -> Result<String> {
    let stat = rustix::fs::stat(path).with_context(|| format!("cannot stat {}", path.display()))?;
    Ok(format!("{}:{}", rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)))
}

/// The backing file of the loop device with this number.
fn backing_file_of(number: &str) -> Result<String> {
    match read(&Path::new("/sys/dev/block").join(number).join("loop/backing_file"))? {
        Some(file) => Ok(file),
        None => Err(skip("the driver's volumes are not on loop devices".to_owned())),
    }
}

/// Counts the loop devices that remain: one is detached once its last user has closed it, and any process of the machine
/// may have opened it for a moment (`LOOP_CLR_FD` in loop(4)).
async fn remaining(file: &str, expected: usize) -> Result<usize> {
    let limit = Instant::now() + DETACHED;
    loop {
        let count = attached(file)?;
        if count <= expected || Instant::now() > limit {
            return Ok(count);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Counts the loop devices with this backing file, which may have been deleted meanwhile.
fn attached(file: &str) -> Result<usize> {
    Ok(backing_files()?.iter().filter(|found| *found == file).count())
}

/// The backing files of all loop devices of the machine.
fn backing_files() -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir("/sys/block").context("cannot read /sys/block")? {
        let found = read(&entry?.path().join("loop/backing_file"))?;
        files.extend(found.map(|found| found.trim_end_matches(" (deleted)").to_owned()));
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if is_detached(&error) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A device that is detached concurrently no longer has a backing file, or does not exist any more.
fn is_detached(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::NOENT, Errno::NXIO, Errno::NODEV].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|error| gone.contains(&error))
}
