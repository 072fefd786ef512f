//! The zygote: one thread, one `poll`, and the table of a node's containers.
//!
//! It is started before the node has any volume and creates two mount namespaces: first the node's (N), in
//! which the kubelet directory is mounted at `/var/lib/kubelet` and which node agent and driver join; then its
//! own, which contains only the container [`template`].

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, unshare},
    sys::{
        signal::{SigSet, SigmaskHow, Signal, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
        socket::{AddressFamily, Backlog, SockType, UnixAddr, accept4, bind, listen, socket},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::{
    Exit, container,
    protocol::{self, Call, Reply, Request},
    table::Table,
    template::{self, TemplateError},
};

/// Paths of a zygote.
#[derive(Clone, Debug)]
pub struct Args {
    /// The unix socket to listen on.
    pub socket: PathBuf,
    /// The node's kubelet directory; mounted at [`Self::kubelet_at`] in the node's namespace.
    pub kubelet_dir: PathBuf,
    /// The path where drivers expect the kubelet directory: `/var/lib/kubelet`.
    pub kubelet_at: PathBuf,
}

/// Errors of a zygote.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    /// A step of creating the node's namespace failed.
    #[error("cannot {what} for the node at {path}")]
    Node {
        /// The step.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The container root cannot be built.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Waiting for requests failed.
    #[error("container runtime stopped")]
    Serve(#[from] io::Error),
}

/// Runs the zygote until it is killed. The process must have one thread.
///
/// Writes `node` to standard output once the node's namespace exists; the starter then opens
/// `/proc/<pid>/ns/mnt`, for agent and driver to join, and writes a line to standard input. `ready` follows
/// once containers can be started.
///
/// # Errors
/// If the namespaces cannot be created: without root outside of a user namespace, for example.
pub fn serve(args: &Args) -> Result<std::convert::Infallible, ZygoteError> {
    node_namespace(args)?;
    announce("node")?;
    io::stdin().read_exact(&mut [0])?;

    let listener = listen_at(&args.socket).map_err(doing("listen", &args.socket))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(doing("unshare mounts", &args.socket))?;
    private("/").map_err(doing("make mounts private", &args.socket))?;
    template::enter(&args.socket.with_extension("root"))?;

    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).map_err(io::Error::from)?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&signals, flags).map_err(io::Error::from)?;
    announce("ready")?;
    let mut zygote = Zygote {
        listener,
        signals,
        table: Table::default(),
        connections: BTreeMap::new(),
        next_connection: 0,
        starting: Vec::new(),
        programs: HashMap::new(),
        buffer: Vec::new(),
    };
    loop {
        zygote.serve_one()?;
    }
}

fn announce(word: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{word}")?;
    out.flush()
}

fn doing<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> ZygoteError {
    let path = path.to_owned();
    move |error| ZygoteError::Node { what, path, source: error.into() }
}

fn private(path: &str) -> nix::Result<()> {
    mount(None::<&str>, path, None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
}

fn node_namespace(args: &Args) -> Result<(), ZygoteError> {
    fs::create_dir_all(&args.kubelet_dir).map_err(doing("make the kubelet directory", &args.kubelet_dir))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(doing("unshare mounts", &args.kubelet_dir))?;
    private("/").map_err(doing("make mounts private", &args.kubelet_dir))?;
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(&args.kubelet_dir), &args.kubelet_at, None::<&str>, bind, None::<&str>)
        .map_err(doing("show the kubelet directory", &args.kubelet_at))?;
    // Drivers ask for it, and pods with Bidirectional volumes will.
    mount(None::<&str>, &args.kubelet_at, None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED, None::<&str>)
        .map_err(doing("share the kubelet directory", &args.kubelet_at))
}

fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, protocol::socket_flags(), None)?;
    protocol::enlarge(&socket)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::new(16).expect("16 is a valid backlog"))?;
    Ok(socket)
}

struct Zygote {
    listener: OwnedFd,
    signals: SignalFd,
    table: Table,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    starting: Vec<Starting>,
    /// The programs of `Exec` requests, and who is informed of their end: connection and number.
    programs: HashMap<i32, (u64, u64)>,
    buffer: Vec<u8>,
}

struct Connection {
    socket: OwnedFd,
    /// Messages that the agent has not received yet.
    outbox: VecDeque<Reply>,
}

/// Forked, and not yet known to have started its program.
struct Starting {
    /// The container, unless it is a further program of one.
    container: Option<String>,
    pid: Pid,
    failure_pipe: OwnedFd,
    connection: u64,
    seq: u64,
}

/// A result of `poll`.
enum Ready {
    Listener,
    Signals,
    Connection(u64),
    Starting,
}

impl Zygote {
    /// Waits for the next events, and handles all that are ready.
    fn serve_one(&mut self) -> io::Result<()> {
        for ready in self.wait()? {
            match ready {
                Ready::Listener => self.accept()?,
                Ready::Signals => self.reap()?,
                Ready::Connection(id) => self.serve_connection(id),
                // Handled below all at once, since indexes move.
                Ready::Starting => {}
            }
        }
        self.started();
        self.flush();
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut who = vec![Ready::Listener, Ready::Signals];
        let mut fds = vec![
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        for (id, connection) in &self.connections {
            let writes = if connection.outbox.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            who.push(Ready::Connection(*id));
            fds.push(PollFd::new(connection.socket.as_fd(), PollFlags::POLLIN | writes));
        }
        for starting in &self.starting {
            who.push(Ready::Starting);
            fds.push(PollFd::new(starting.failure_pipe.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().map(|fd| fd.any().unwrap_or(false));
        Ok(who.into_iter().zip(ready).filter_map(|(who, ready)| ready.then_some(who)).collect())
    }

    fn accept(&mut self) -> io::Result<()> {
        let socket = match accept4(self.listener.as_raw_fd(), protocol::socket_flags()) {
            Ok(raw) => protocol::own(raw),
            Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        protocol::enlarge(&socket)?;
        self.connections.insert(self.next_connection, Connection { socket, outbox: VecDeque::new() });
        self.next_connection += 1;
        Ok(())
    }

    /// Handles all requests of one agent; one that has disconnected or sends invalid messages is dropped, and
    /// its containers stay.
    fn serve_connection(&mut self, id: u64) {
        loop {
            let Some(connection) = self.connections.get(&id) else { return };
            match protocol::receive::<Request>(&connection.socket, &mut self.buffer) {
                Ok(Some((request, fds))) => self.handle(id, request, fds),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => {
                    self.connections.remove(&id);
                    return;
                }
            }
        }
    }

    fn handle(&mut self, connection: u64, Request { seq, call }: Request, fds: Vec<OwnedFd>) {
        let result = match call {
            Call::Start(container) if self.table.contains(&container.id) => {
                Err("exists already: remove it first".to_owned())
            }
            Call::Start(container) if fds.len() != container.mounts.len() + 1 => {
                Err(format!("{} mounts came with {} descriptors", container.mounts.len(), fds.len()))
            }
            Call::Start(container) => match container::fork(&container, fds) {
                Ok((pid, failure_pipe)) => {
                    let id = Some(container.id.clone());
                    self.starting.push(Starting { container: id, pid, failure_pipe, connection, seq });
                    return self.table.insert(container, pid);
                }
                Err(error) => Err(format!("cannot fork: {error}")),
            },
            Call::Exec { id, argv, terminal } => match self.table.exec(&id, argv, terminal, fds) {
                Ok((pid, failure_pipe)) => {
                    self.programs.insert(pid.as_raw(), (connection, seq));
                    self.starting.push(Starting { container: None, pid, failure_pipe, connection, seq });
                    return;
                }
                Err(reason) => Err(reason),
            },
            Call::Signal { id, signal } => self.table.signal(&id, signal),
            Call::Remove { id } => self.table.remove(&id),
            Call::List => {
                for chunk in self.table.list().chunks(protocol::LIST_CHUNK) {
                    self.send(connection, Reply::Listed { seq, containers: chunk.to_vec() });
                }
                Ok(())
            }
        };
        self.send(
            connection,
            match result {
                Ok(()) => Reply::Done { seq },
                Err(reason) => Reply::Refused { seq, reason },
            },
        );
    }

    /// Responds for the containers and programs that started, or failed to.
    fn started(&mut self) {
        let mut still = Vec::new();
        for starting in std::mem::take(&mut self.starting) {
            match container::failure(&starting.failure_pipe) {
                None => still.push(starting),
                Some(reason) if reason.is_empty() => {
                    self.send(starting.connection, Reply::Done { seq: starting.seq });
                }
                Some(reason) => {
                    // It never was a container: its exit is not reported.
                    if let Some(id) = starting.container {
                        self.table.forget(&id, starting.pid);
                    }
                    self.programs.remove(&starting.pid.as_raw());
                    self.send(starting.connection, Reply::Refused { seq: starting.seq, reason });
                }
            }
        }
        self.starting = still;
    }

    fn reap(&mut self) -> io::Result<()> {
        while self.signals.read_signal()?.is_some() {}
        // A container that failed to start is answered for before its exit is seen.
        self.started();
        loop {
            let (pid, exit) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Some((connection, seq)) = self.programs.remove(&pid.as_raw()) {
                self.send(connection, Reply::Finished { seq, exit });
                continue;
            }
            let Some((id, state)) = self.table.exited(pid, exit) else { continue };
            for connection in self.connections.values_mut() {
                connection.outbox.push_back(Reply::Exited { id: id.clone(), state });
            }
        }
    }

    fn send(&mut self, connection: u64, reply: Reply) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.outbox.push_back(reply);
        }
    }

    fn flush(&mut self) {
        self.connections.retain(|_, connection| connection.flush().is_ok());
    }
}

impl Connection {
    fn flush(&mut self) -> io::Result<()> {
        while let Some(reply) = self.outbox.front() {
            match protocol::send(self.socket.as_raw_fd(), reply, &[]) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
