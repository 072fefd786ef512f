//! The watch: sleeps until the kernel signals a change of the mount table, and reports the difference.

use std::{
    fs::File,
    io::{self, PipeReader, Read, Seek},
    os::fd::AsFd,
    path::PathBuf,
    time::Instant,
};

use claimcheck_model::{KubeletPath, Stamp};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::sync::mpsc::UnboundedSender;

use crate::{Args, Change, Move, Record, Table};

/// Number of attempts to read a table that changes during the read: before Linux 5.8 such a reading may lack
/// lines that existed all the time.
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
/// The kernel wakes it (`mounts_poll`, `fs/proc_namespace.c`). After each reading it sleeps for as long as the
/// reading took, so that a node with permanent changes costs half a core at most: changes that are observed
/// late have the time of the observation.
///
/// # Errors
/// The table cannot be opened, read or waited for.
pub fn watch(args: &Args, stop: &PipeReader, records: UnboundedSender<Record>) -> Result<(), WatchError> {
    let failed = |what| move |source| WatchError { what, path: args.mountinfo.clone(), source };
    let mut mountinfo = File::open(&args.mountinfo).map_err(failed("open"))?;
    let mut sender = RecordSender { node: &args.node_name, seq: 0, records };
    let text = read(&mut mountinfo).map_err(failed("read"))?;
    let at = Stamp::now();
    let mut table = Table::read(&text, &args.kubelet_dir);
    let mut warned = warn_of_another(&text, args);
    let mut has_receiver = table.places().all(|place| sender.send(at, Change::Found, place));
    while has_receiver && changed(&mountinfo, stop).map_err(failed("wait for changes of"))? {
        let began = Instant::now();
        let text = read(&mut mountinfo).map_err(failed("read"))?;
        let at = Stamp::now();
        let later = Table::read(&text, &args.kubelet_dir);
        warned = warned || warn_of_another(&text, args);
        has_receiver = table.moves_to(&later).into_iter().all(|step| match step {
            Move::Unmounted(place) => sender.send(at, Change::Unmounted, &place),
            Move::Mounted(place) => sender.send(at, Change::Mounted, &place),
        });
        table = later;
        std::thread::sleep(began.elapsed());
    }
    Ok(())
}

/// Whether the kubelet has another directory, which is logged.
fn warn_of_another(mountinfo: &[u8], args: &Args) -> bool {
    let (node, given) = (&args.node_name, args.kubelet_dir.display());
    let Some(other) = Table::elsewhere(mountinfo, &args.kubelet_dir) else { return false };
    let other = other.display();
    tracing::warn!("no pod of node {node} has a mount below {given}, but below {other}: {ELSEWHERE}{other}");
    true
}

/// Waits until the table has changed since the last wait; false once `stop` is closed.
fn changed(mountinfo: &File, stop: &PipeReader) -> io::Result<bool> {
    // A change is signalled as an exceptional condition.
    let changes = PollFlags::POLLPRI | PollFlags::POLLERR;
    let mut ready = [PollFd::new(mountinfo.as_fd(), changes), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) => return Ok(ready[1].any() == Some(false)),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the whole table, without concurrent changes if possible.
fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for _ in 0..READINGS {
        text.clear();
        file.rewind()?;
        file.read_to_end(&mut text)?;
        let mut changed = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        if poll(&mut changed, PollTimeout::ZERO)? == 0 {
            break;
        }
    }
    Ok(text)
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
