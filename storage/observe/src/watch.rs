//! The watch: sleeps until the kernel signals a change of the mount table, and reports the difference.

use std::{
    fs::File,
    io::{self, PipeReader, Read, Seek},
    os::fd::AsFd,
    path::PathBuf,
    time::{Duration, Instant},
};

use claimcheck_model::{KubeletPath, Stamp};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    Args, Change, Move, Record, Table,
    pace::{LONGEST, Pace},
};

/// Number of attempts to read a table that changes during the read, before Linux 5.8 (`proc/mounts: add cursor`): there
/// such a reading may lack lines that existed all the time.
const READINGS: usize = 4;
/// Text of the warning that no mount will be observed, since the kubelet has another directory.
pub const ELSEWHERE: &str = "no mount of a volume is seen; give --kubelet-dir=";

/// The mount table cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: set --mountinfo to that of a host process; in a pod, set hostPID", path.display())]
pub struct WatchError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Sends the current mounts, and from then on each observed change, until the other end of `stop` is closed or
/// the receiver is dropped. It blocks, so it needs a thread.
///
/// The kernel wakes it at each change (`mounts_poll`, `fs/proc_namespace.c`). Since Linux 6.8 a reading that continues at
/// the end of the former one has the new mounts (`m_start`), so these are known at once, whatever the number of mounts.
/// All other changes are found in a reading of the whole table: at once if the pace of readings permits (`pace.rs`),
/// otherwise the reading waits, and has the changes of several wake-ups, with the time of the last one.
///
/// # Errors
/// The table cannot be opened, read or waited for.
pub fn watch(args: &Args, stop: &PipeReader, records: UnboundedSender<Record>) -> Result<(), WatchError> {
    let failed = |what| move |source| WatchError { what, path: args.mountinfo.clone(), source };
    let mut mountinfo = Mountinfo::open(&args.mountinfo).map_err(failed("open"))?;
    let mut sender = RecordSender { node: &args.node_name, seq: 0, records };
    let mut table = Table::new(&args.kubelet_dir);
    let settled = mountinfo.read().map_err(failed("read"))?;
    let mut at = Stamp::now();
    table.read(&mut mountinfo.text);
    warn_of_another(&mut table, args);
    let mut has_receiver = table.places().all(|place| sender.send(at, Change::Found, place));
    let mut pace = Pace::new(Instant::now());
    // When the whole table is to be read.
    let mut due = (!settled).then(Instant::now);
    while has_receiver {
        let moves = match mountinfo.wait(due, stop).map_err(failed("wait for changes of"))? {
            Ready::Stopped => return Ok(()),
            Ready::Changed => {
                let observed_at = Instant::now();
                at = Stamp::now();
                mountinfo.read_on().map_err(failed("read"))?;
                let moves = table.append(&mountinfo.text);
                let delay = match (table.is_incomplete(), mountinfo.text.is_empty()) {
                    (true, _) => Duration::ZERO,
                    (false, true) => pace.delay(observed_at),
                    // Most probably that was all.
                    (false, false) => LONGEST,
                };
                due = Some(due.map_or(observed_at + delay, |due| due.min(observed_at + delay)));
                // A node with permanent changes costs half a core at most.
                std::thread::sleep(observed_at.elapsed());
                moves
            }
            Ready::Due => {
                let before = processor_time();
                // A change before the reading does not concern it.
                if mountinfo.has_changed().map_err(failed("wait for changes of"))? {
                    at = Stamp::now();
                }
                // Of these it is known that they are new.
                mountinfo.read_on().map_err(failed("read"))?;
                let mut moves = table.append(&mountinfo.text);
                let settled = mountinfo.read().map_err(failed("read"))?;
                moves.extend(table.read(&mut mountinfo.text));
                let ended = Instant::now();
                pace.used(processor_time().saturating_sub(before), ended);
                // What changed during the reading may be a part of it.
                if !settled {
                    at = Stamp::now();
                }
                due = (!settled).then(|| ended + pace.delay(ended));
                moves
            }
        };
        warn_of_another(&mut table, args);
        has_receiver = moves.into_iter().all(|step| match step {
            Move::Unmounted(place) => sender.send(at, Change::Unmounted, &place),
            Move::Mounted(place) => sender.send(at, Change::Mounted, &place),
        });
    }
    Ok(())
}

/// Logs that the kubelet has another directory.
fn warn_of_another(table: &mut Table, args: &Args) {
    let Some(other) = table.elsewhere() else { return };
    let (node, given, other) = (&args.node_name, args.kubelet_dir.display(), other.display());
    tracing::warn!("no pod of node {node} has a mount below {given}, but below {other}: {ELSEWHERE}{other}");
}

/// Why a wait ended.
enum Ready {
    /// The table has changed since the last wait.
    Changed,
    /// The time has come.
    Due,
    /// The watch is to end.
    Stopped,
}

/// The table's file, and what was read of it.
struct Mountinfo {
    file: File,
    text: Vec<u8>,
    readings: usize,
}

impl Mountinfo {
    fn open(path: &PathBuf) -> io::Result<Self> {
        let release = rustix::system::uname();
        let readings = if has_cursor(&release.release().to_string_lossy()) { 1 } else { READINGS };
        Ok(Self { file: File::open(path)?, text: Vec::new(), readings })
    }

    /// Waits for a change, at most until this time.
    fn wait(&self, due: Option<Instant>, stop: &PipeReader) -> io::Result<Ready> {
        // A change is signalled as an exceptional condition.
        let changes = PollFlags::POLLPRI | PollFlags::POLLERR;
        let mut ready =
            [PollFd::new(self.file.as_fd(), changes), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        loop {
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            // Without this, permanent changes would prevent the reading.
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Ready::Due);
            }
            match poll(&mut ready, left.map_or(PollTimeout::NONE, timeout)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) if ready[1].any() == Some(true) => return Ok(Ready::Stopped),
                Ok(_) => return Ok(Ready::Changed),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the whole table, without concurrent changes if possible; returns whether there were none.
    fn read(&mut self) -> io::Result<bool> {
        for _ in 0..self.readings {
            self.text.clear();
            self.file.rewind()?;
            self.file.read_to_end(&mut self.text)?;
            if !self.has_changed()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the table has changed since this was asked, or waited for, the last time.
    fn has_changed(&self) -> io::Result<bool> {
        let mut changed = [PollFd::new(self.file.as_fd(), PollFlags::POLLPRI)];
        Ok(poll(&mut changed, PollTimeout::ZERO)? > 0)
    }

    /// Reads what follows the last reading.
    fn read_on(&mut self) -> io::Result<()> {
        self.text.clear();
        self.file.read_to_end(&mut self.text).map(drop)
    }
}

/// Whether readings of a kernel of this release have all lines that exist all the time.
fn has_cursor(release: &str) -> bool {
    let mut numbers =
        release.split(|part: char| !part.is_ascii_digit()).map_while(|number| number.parse().ok());
    let version: (Option<u32>, Option<u32>) = (numbers.next(), numbers.next());
    version >= (Some(5), Some(8))
}

/// The processor time of this thread so far: on a busy machine, time passes in which it does not run.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// At least the duration, in whole milliseconds.
fn timeout(duration: Duration) -> PollTimeout {
    PollTimeout::try_from(duration.as_millis() + 1).unwrap_or(PollTimeout::MAX)
}

/// The reported state.
struct RecordSender<'a> {
    node: &'a str,
    seq: u64,
    records: UnboundedSender<Record>,
}

impl RecordSender<'_> {
    /// Whether the receiver exists.
    fn send(&mut self, at: Stamp, change: Change, place: &KubeletPath) -> bool {
        let (node, place) = (self.node.to_owned(), place.clone());
        let record = Record { at, seq: self.seq, node, change, place };
        self.seq += 1;
        self.records.send(record).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_complete_since_linux_5_8() {
        let expected = [
            ("4.18.0-553.el8_10.x86_64", false),
            ("5.4.0-216-generic", false),
            ("5.8.0", true),
            ("5.14.0-570.el9.x86_64", true),
            ("6.18.44-fc-v657", true),
            ("10.0", true),
            ("unknown", false),
        ];
        for (release, complete) in expected {
            assert_eq!(has_cursor(release), complete, "{release}");
        }
    }
}
