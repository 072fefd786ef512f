//! Holding loop devices of raw block volumes open in a process that outlives the driver.
//!
//! No mount holds the device of a raw block volume: a bind mount of its node does not open it. Without `autoclear` such
//! a device would outlive a killed run; with it, the device would end with the driver, which disruptive cases kill. So a
//! process that ends with the run holds these devices open, and they have `autoclear`: however the run ends, the kernel
//! detaches them. A driver on a real node has no such process, and attaches these devices without `autoclear`.
//!
//! One request per connection, a line each way: `hold 3`, `release 3` or `holds 3`; `yes`, `no`, or an error's text.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tracing::warn;

use super::loops;

/// The environment variable with the socket of the process that holds the driver's loop devices.
pub const LOOP_HOLDER_ENV: &str = "CLAIMCHECK_LOOP_HOLDER";

const HOLD: &str = "hold";
const RELEASE: &str = "release";
const HOLDS: &str = "holds";
const YES: &str = "yes";
const NO: &str = "no";

/// The maximum length of a request or response in bytes.
const LINE: u64 = 4096;
/// The timeout of a request, so that one client cannot block the others.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The devices by number; `None` once all are released for good.
type Devices = Mutex<Option<BTreeMap<u32, File>>>;

/// Holds loop devices open for drivers. Dropping it releases all of them, and so does the end of the process.
#[derive(Debug)]
pub struct LoopHolder {
    socket: PathBuf,
    devices: Arc<Devices>,
}

impl LoopHolder {
    /// Serves requests at `socket`, in a thread. A socket of an earlier holder is replaced.
    ///
    /// # Errors
    /// The socket cannot be created, or the thread cannot be started.
    pub fn start(socket: &Path) -> io::Result<Self> {
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        let devices: Arc<Devices> = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let served = Arc::clone(&devices);
        thread::Builder::new().name("loop-holder".to_owned()).spawn(move || serve(&listener, &served))?;
        Ok(Self { socket: socket.to_owned(), devices })
    }

    /// The socket, for [`LOOP_HOLDER_ENV`].
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for LoopHolder {
    fn drop(&mut self) {
        *lock(&self.devices) = None;
        // The thread waits for a connection, and ends with the next.
        let _ = UnixStream::connect(&self.socket);
    }
}

fn lock(devices: &Devices) -> MutexGuard<'_, Option<BTreeMap<u32, File>>> {
    devices.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(listener: &UnixListener, devices: &Devices) {
    for client in listener.incoming() {
        let mut devices = lock(devices);
        let Some(devices) = devices.as_mut() else { return };
        if let Err(error) = client.and_then(|client| answer(&client, devices)) {
            warn!(%error, "a request to hold a loop device failed");
        }
    }
}

fn answer(client: &UnixStream, devices: &mut BTreeMap<u32, File>) -> io::Result<()> {
    let request = read_line(client)?;
    let response = match carry_out(&request, devices) {
        Ok(true) => YES.to_owned(),
        Ok(false) => NO.to_owned(),
        Err(error) => error.to_string(),
    };
    write_line(client, &response)
}

fn carry_out(request: &str, devices: &mut BTreeMap<u32, File>) -> io::Result<bool> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{request:?} is not a request"));
    let (verb, number) = request.split_once(' ').ok_or_else(invalid)?;
    let number: u32 = number.parse().map_err(|_| invalid())?;
    match verb {
        HOLD => {
            let device = File::open(loops::path(number))?;
            if loops::status(&device)?.is_none() {
                let reason = format!("{} is not attached", loops::path(number).display());
                return Err(io::Error::new(io::ErrorKind::NotFound, reason));
            }
            devices.insert(number, device);
            Ok(true)
        }
        RELEASE => Ok(devices.remove(&number).is_some()),
        HOLDS => Ok(devices.contains_key(&number)),
        _ => Err(invalid()),
    }
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE)).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn write_line(mut stream: &UnixStream, line: &str) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("{line}\n").as_bytes())
}

/// The driver's side.
#[derive(Clone, Debug)]
pub(super) struct HolderClient {
    socket: PathBuf,
}

impl HolderClient {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Lets the process open this device, which must be attached.
    pub(super) fn hold(&self, number: u32) -> io::Result<()> {
        self.request(HOLD, number).map(drop)
    }

    /// Lets the process close this device. Succeeds if it is not open there.
    pub(super) fn release(&self, number: u32) -> io::Result<()> {
        self.request(RELEASE, number).map(drop)
    }

    /// Whether the process has this device open.
    pub(super) fn holds(&self, number: u32) -> io::Result<bool> {
        self.request(HOLDS, number)
    }

    fn request(&self, verb: &str, number: u32) -> io::Result<bool> {
        let exchange = || {
            let stream = UnixStream::connect(&self.socket)?;
            write_line(&stream, &format!("{verb} {number}"))?;
            match &*read_line(&stream)? {
                YES => Ok(true),
                NO => Ok(false),
                "" => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                error => Err(io::Error::other(error)),
            }
        };
        exchange().map_err(|error| {
            let reason = format!("cannot {verb} loop device {number} at {}: {error}", self.socket.display());
            io::Error::new(error.kind(), reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_and_bad_ones_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let holder = LoopHolder::start(&folder.path().join("loops.sock")).unwrap();
        let client = HolderClient::new(holder.socket().to_owned());
        // No kernel has so many.
        assert!(!client.holds(1_000_000).unwrap());
        client.release(1_000_000).unwrap();
        let error = client.hold(1_000_000).unwrap_err().to_string();
        assert!(error.starts_with("cannot hold loop device 1000000 at /"), "{error}");
        for bad in ["", "hold", "hold x", "open 3", "hold -1"] {
            assert!(carry_out(bad, &mut BTreeMap::new()).is_err(), "{bad}");
        }
        drop(holder);
        assert!(client.holds(1_000_000).is_err());
    }
}
