//! The agent's side: [`Client`] calls a zygote over its unix socket.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use nix::sys::socket::{AddressFamily, SockType, UnixAddr, connect, socket};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, open},
    mount::{OpenTreeFlags, open_tree},
};
use tokio::{
    io::unix::AsyncFd,
    sync::{mpsc, oneshot},
};

use crate::{
    ContainerSpec, Execution, Exit, Mount, Result, Runtime, RuntimeError, State,
    protocol::{self, Call, Container, Reply, Request, Target},
};

/// A connection to a zygote. Dropping it leaves the containers running.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    socket: AsyncFd<OwnedFd>,
    path: String,
    next: AtomicU64,
    inbox: Mutex<Inbox>,
}

/// Pending requests. `closed` is set once, when the connection has ended.
#[derive(Default)]
struct Inbox {
    waiting: HashMap<u64, Waiting>,
    /// Programs that were started by `Exec`, by its number.
    programs: HashMap<u64, oneshot::Sender<Exit>>,
    events: Vec<mpsc::UnboundedSender<(String, State)>>,
    closed: bool,
}

struct Waiting {
    answer: oneshot::Sender<std::result::Result<Vec<(String, State)>, String>>,
    listed: Vec<(String, State)>,
}

impl Client {
    /// Connects to the zygote that listens at `path`.
    ///
    /// # Errors
    /// [`RuntimeError::Gone`] if no process listens there.
    pub fn connect(path: &Path) -> Result<Self> {
        let closed = |source| RuntimeError::Gone { socket: path.display().to_string(), source };
        let socket = dial(path).map_err(closed)?;
        let shared = Arc::new(Shared {
            socket: watched(socket).map_err(closed)?,
            path: path.display().to_string(),
            next: AtomicU64::new(1),
            inbox: Mutex::default(),
        });
        // The reader holds the socket weakly in effect: it ends with the connection, and the
        // connection is shut down when the last client is dropped (`Drop for Client`).
        tokio::spawn(read(shared.clone()));
        Ok(Self { shared })
    }

    async fn call(&self, id: &str, call: Call, fds: &[RawFd]) -> Result<Vec<(String, State)>> {
        let seq = self.next();
        self.request(seq, id, call, fds).await
    }

    fn next(&self) -> u64 {
        self.shared.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn request(&self, seq: u64, id: &str, call: Call, fds: &[RawFd]) -> Result<Vec<(String, State)>> {
        let (answer, answered) = oneshot::channel();
        {
            let mut inbox = self.shared.lock();
            if inbox.closed {
                return Err(self.closed(io::ErrorKind::BrokenPipe.into()));
            }
            inbox.waiting.insert(seq, Waiting { answer, listed: Vec::new() });
        }
        let request = Request { seq, call };
        loop {
            let mut ready = self.shared.socket.writable().await.map_err(|e| self.closed(e))?;
            match ready.try_io(|socket| protocol::send(socket.as_raw_fd(), &request, fds)) {
                Ok(Ok(())) => break,
                Ok(Err(error)) => {
                    self.shared.lock().waiting.remove(&seq);
                    return Err(match error.kind() {
                        io::ErrorKind::InvalidInput => {
                            RuntimeError::Refused { id: id.to_owned(), reason: error.to_string() }
                        }
                        _ => self.closed(error),
                    });
                }
                Err(_would_block) => {}
            }
        }
        match answered.await {
            Ok(Ok(listed)) => Ok(listed),
            Ok(Err(reason)) => Err(RuntimeError::Refused { id: id.to_owned(), reason }),
            Err(_) => Err(self.closed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn closed(&self, source: io::Error) -> RuntimeError {
        RuntimeError::Gone { socket: self.shared.path.clone(), source }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The reader task is the other holder.
        if Arc::strong_count(&self.shared) <= 2 {
            let _ = rustix::net::shutdown(self.shared.socket.get_ref(), rustix::net::Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime for Client {
    async fn start(&self, spec: ContainerSpec) -> Result<()> {
        let id = spec.id.clone();
        let log = open_log(&spec)?;
        let mut mounts = spec.mounts;
        // Outer mounts first, or they would cover the inner ones.
        mounts.sort_by_key(|mount| mount.target.split('/').filter(|part| !part.is_empty()).count());
        let mut fds = vec![log];
        let mut targets = Vec::new();
        for mount in mounts {
            let (fd, directory) = open_mount(&id, &mount)?;
            fds.push(fd);
            targets.push(Target { path: mount.target, read_only: mount.read_only, directory });
        }
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let container = Container {
            id: spec.id,
            argv: spec.argv,
            env: spec.env,
            cwd: spec.cwd.unwrap_or_else(|| "/".to_owned()),
            mounts: targets,
            uid: spec.uid.unwrap_or(0),
            gid: spec.gid.unwrap_or(0),
            groups: spec.groups,
            hostname: spec.hostname,
        };
        self.call(&id, Call::Start(container), &raw).await?;
        Ok(())
    }

    async fn exec(&self, id: &str, execution: Execution) -> Result<oneshot::Receiver<Exit>> {
        let Execution { argv, stdio, terminal } = execution;
        let seq = self.next();
        let (finished, exit) = oneshot::channel();
        // Before the request, since the program may end before its response is read.
        self.shared.lock().programs.insert(seq, finished);
        let raw = stdio.each_ref().map(AsRawFd::as_raw_fd);
        let started = self.request(seq, id, Call::Exec { id: id.to_owned(), argv, terminal }, &raw).await;
        if let Err(error) = started {
            self.shared.lock().programs.remove(&seq);
            return Err(error);
        }
        Ok(exit)
    }

    async fn signal(&self, id: &str, signal: i32) -> Result<()> {
        self.call(id, Call::Signal { id: id.to_owned(), signal }, &[]).await?;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<(String, State)>> {
        self.call("list", Call::List, &[]).await
    }

    async fn remove(&self, id: &str) -> Result<()> {
        self.call(id, Call::Remove { id: id.to_owned() }, &[]).await?;
        Ok(())
    }

    fn events(&self) -> mpsc::UnboundedReceiver<(String, State)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut inbox = self.shared.lock();
        if !inbox.closed {
            inbox.events.push(sender);
        }
        receiver
    }
}

fn dial(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, protocol::socket_flags(), None)?;
    protocol::enlarge(&socket)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

#[expect(unsafe_code, reason = "tokio cannot know that an OwnedFd keeps its number")]
pub(crate) fn watched(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor, the same until it is dropped, and the AsyncFd owns it.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

fn open_log(spec: &ContainerSpec) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
    open(&spec.log_path, flags, Mode::from_raw_mode(0o640)).map_err(|errno| RuntimeError::Open {
        id: spec.id.clone(),
        path: spec.log_path.clone(),
        source: errno.into(),
    })
}

/// A detached copy of the mount at the source: the container gets this one volume and nothing else of
/// the node's mount table.
fn open_mount(id: &str, mount: &Mount) -> Result<(OwnedFd, bool)> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let opened = open_tree(CWD, &mount.source, flags).and_then(|fd| {
        let directory = FileType::from_raw_mode(fstat(fd.as_fd())?.st_mode) == FileType::Directory;
        Ok((fd, directory))
    });
    opened.map_err(|errno| RuntimeError::Open {
        id: id.to_owned(),
        path: mount.source.clone(),
        source: errno.into(),
    })
}

async fn read(shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    loop {
        let Ok(mut ready) = shared.socket.readable().await else { break };
        let message = ready.try_io(|socket| protocol::receive::<Reply>(socket.get_ref(), &mut buffer));
        match message {
            Ok(Ok(Some((reply, _)))) => deliver(&mut shared.lock(), reply),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => {
                tracing::error!(socket = %shared.path, %error, "container runtime cannot be read");
                break;
            }
            Err(_would_block) => {}
        }
    }
    // Dropping the senders wakes all waiters.
    let mut inbox = shared.lock();
    *inbox = Inbox { closed: true, ..Inbox::default() };
}

fn deliver(inbox: &mut Inbox, reply: Reply) {
    match reply {
        Reply::Done { seq } => {
            if let Some(Waiting { answer, listed }) = inbox.waiting.remove(&seq) {
                let _ = answer.send(Ok(listed));
            }
        }
        Reply::Refused { seq, reason } => {
            if let Some(waiting) = inbox.waiting.remove(&seq) {
                let _ = waiting.answer.send(Err(reason));
            }
        }
        Reply::Listed { seq, containers } => {
            if let Some(waiting) = inbox.waiting.get_mut(&seq) {
                waiting.listed.extend(containers);
            }
        }
        Reply::Finished { seq, exit } => {
            if let Some(finished) = inbox.programs.remove(&seq) {
                let _ = finished.send(exit);
            }
        }
        Reply::Exited { id, state } => {
            inbox.events.retain(|events| events.send((id.clone(), state)).is_ok());
        }
    }
}
